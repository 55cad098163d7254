r"""A stage: the polynomial by which one or two steps move every singular value, in the form that is cheap on matrices.

A stage maps s to :math:`s\,Q(s^2)`, on matrices :math:`V \mapsto Q(V V^\top) V`. For a single step Q is linear and
costs no product. For two steps it is a quartic, and *every* quartic is a square plus a linear rest, so two squarings
suffice:

.. math:: Q(P) = \ell\,(P^2 - h P + k I)^2 + e P + g I .
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["NEWTON_PAIR", "NEWTON_STEP", "Stage"]


class Stage(NamedTuple):
    """Q as ``l (P^2 - h P + k)^2 + e P + g``; linear where ``l`` is 0."""

    l: float  # noqa: E741  (the formula's letter)
    h: float
    k: float
    e: float
    g: float

    @classmethod
    def complete_square(cls, coefficients: Sequence[float]) -> Stage:
        """The stage with Q(x) = c0 + c1 x, or c0 + c1 x + ... + c4 x^4 where c4 is not 0."""
        if len(coefficients) == 2:
            g, e = coefficients
            return cls(0.0, 0.0, 0.0, e, g)
        c0, c1, c2, c3, c4 = coefficients
        h = -c3 / (2 * c4)
        k = (c2 / c4 - h * h) / 2
        return cls(c4, h, k, c1 + 2 * c4 * h * k, c0 - c4 * k * k)

    def coefficients(self) -> tuple[float, ...]:
        """The coefficients of Q, the constant first.

        >>> NEWTON_PAIR.coefficients()
        (2.25, -2.4375, 1.6875, -0.5625, 0.0625)
        """
        l, h, k, e, g = self  # noqa: E741
        return (g + l * k * k, e - 2 * l * h * k, l * (h * h + 2 * k), -2 * l * h, l) if l else (g, e)

    def value(self, s: float) -> float:
        """The singular value to which the stage moves s, up to rounding."""
        return s * sum(c * s ** (2 * i) for i, c in enumerate(self.coefficients()))

    def derivative(self, s: float) -> float:
        """The derivative of ``value`` at s, up to rounding."""
        return sum((2 * i + 1) * c * s ** (2 * i) for i, c in enumerate(self.coefficients()))

    @property
    def slope(self) -> float:
        """The derivative at zero: the factor by which a tiny singular value grows."""
        return self.l * self.k**2 + self.g


NEWTON_STEP = Stage.complete_square((1.5, -0.5))
r""":math:`\varphi(s) = \tfrac32 s - \tfrac12 s^3`."""
NEWTON_PAIR = Stage.complete_square((2.25, -2.4375, 1.6875, -0.5625, 0.0625))
r""":math:`\varphi(\varphi(s))`."""
