r"""The iteration itself: B(S), by which the bounded matrix is multiplied, and its derivative.

The paper's recurrence :math:`B \leftarrow \tfrac32 B - \tfrac12 B^3 S` amplifies rounding errors that do not
commute with S and diverges in float32 after about eight steps. This is the coupled form of the same polynomial,

.. math:: P_0 = S, \quad B \leftarrow B\,Q(P), \quad P \leftarrow P\,Q(P)^2,

with two steps taken at a time (:mod:`oni.newton.stage`). An odd number of steps starts with the single one, which is
linear and free.

**Derivative.** B is a polynomial in the symmetric S, so its derivative :math:`E \mapsto dB[E]` is self-adjoint: the
same recurrence on tangents is both the forward-mode derivative and, applied to the symmetrised gradient, the
reverse-mode one. A squaring costs one product there (:math:`dX\,X` plus its transpose), a product of two
commuting factors two.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oni.newton.product import accumulated, product
from oni.newton.stage import Stage
from oni.torch_internals import may_keep_results

__all__ = ["Trace", "inverse_root", "inverse_root_tangent"]


class Trace(NamedTuple):
    """What one stage leaves behind for the derivative."""

    P: Tensor
    X: Tensor | None
    """The inner square's root ``P^2 - h P + k``; ``None`` for a linear stage."""
    Q: Tensor
    """The stage's polynomial of P."""
    R: Tensor | None
    """``Q^2``; ``None`` in the last stage."""
    B: Tensor
    """The product of the polynomials up to and including this one."""


def inverse_root(S: Tensor, plan: list[Stage], S2: Tensor | None = None) -> list[Trace]:
    """Evaluate B(S), which is the last trace's ``B``. ``S2`` is S squared, if known; ``plan`` must not be empty."""
    traces: list[Trace] = []
    P = S
    for index, stage in enumerate(plan):
        last = index == len(plan) - 1
        X = R = None
        if stage.l == 0.0:
            Q = plus_identity(stage.e * P, stage.g)
            if not last and S2 is not None:
                R = plus_identity(stage.e**2 * S2 + 2 * stage.e * stage.g * P, stage.g**2)
        else:
            if index == 0 and S2 is not None:
                X = plus_identity(S2 - stage.h * P, stage.k)
            else:
                X = plus_identity(product(P, P, plus=P, beta=-stage.h), stage.k)
            Q = plus_identity(product(X, X, plus=P, alpha=stage.l, beta=stage.e), stage.g)
        B = product(traces[-1].B, Q) if traces else Q
        if not last and R is None:
            R = product(Q, Q)
        traces.append(Trace(P, X, Q, R, B))
        if R is not None:
            P = product(P, R)
    return traces


def inverse_root_tangent(E: Tensor, plan: list[Stage], traces: list[Trace]) -> Tensor:
    """The derivative of B in the symmetric direction E, which is also the gradient of <E, B> with respect to S."""
    dP, dB = E, E
    for index, (stage, trace) in enumerate(zip(plan, traces, strict=True)):
        if trace.X is None:
            dQ = stage.e * dP
        else:
            dX = twice_symmetric_part(product(dP, trace.P, plus=dP, beta=-0.5 * stage.h))
            dQ = twice_symmetric_part(product(dX, trace.X, plus=dP, alpha=stage.l, beta=0.5 * stage.e))
        dB = accumulated(product(dB, trace.Q), traces[index - 1].B, dQ) if index else dQ
        if trace.R is not None:
            dR = twice_symmetric_part(product(dQ, trace.Q))
            dP = accumulated(product(dP, trace.R), trace.P, dR)
    return dB


def plus_identity(X: Tensor, factor: float | Tensor) -> Tensor:
    """``X + factor I``, for one factor or one per matrix (..., 1).

    In place where nothing keeps X, which must be a fresh tensor.
    """
    diagonal = X.diagonal(dim1=-2, dim2=-1)
    if may_keep_results():
        return torch.diagonal_scatter(X, diagonal + factor, dim1=-2, dim2=-1)
    diagonal.add_(factor)
    return X


def twice_symmetric_part(X: Tensor) -> Tensor:
    return X + X.mT
