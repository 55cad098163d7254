r"""The best stage for singular values in :math:`[l, 1]`: it lifts the lowest of them highest, and none past 1.

Two steps may be any odd polynomial of degree 9 at the price of two squarings (:mod:`oni.newton.stage`). Divided by its
own maximum, the best is the best uniform approximation of 1,

.. math:: \min_p \max_{s \in [l, 1]} |p(s) - 1| = E, \qquad p / (1 + E) \in \Bigl[\tfrac{1 - E}{1 + E}, 1\Bigr],

which Remez's exchange finds: p takes the values 1 - E and 1 + E in turn at six points, beginning with l. The last is
the upper end, where p rises steeply (slope 18 for l = 0.1), so that end is put at 1 + 1e-4: what rounding makes of 1 in
float32 stays below 1. One step alone is the best cubic, :math:`\varphi(\alpha s)` with
:math:`\alpha^2 = 3 / (1 + l + l^2)`.

Nothing is taken on trust: each polynomial is divided by a proven bound of its maximum (:mod:`oni.newton.certificate`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

from oni.newton.certificate import HIGHEST, image
from oni.newton.stage import Stage

__all__ = ["LEAST", "best_pair", "best_step", "lift_by_pair", "lift_by_step"]

LEAST = 1e-9
"""The smallest lower end for which coefficients are computed."""
NEARLY_ONE = 0.97
"""Above this the exchange would lose its digits to rounding. The best polynomial for this end lifts it to 1 - 1e-9, and
Taylor's takes over from there."""
TAYLOR = Stage.complete_square([c / 128 for c in (315, -420, 378, -180, 35)])
r"""The first five terms of :math:`s^{-1} = (1 - (1 - s^2))^{-1/2}` in powers of :math:`1 - s^2`."""
COUNT = 5
"""The number of coefficients of an odd polynomial of degree 9."""


@lru_cache(maxsize=256)
def best_step(lower: float) -> Stage:
    """The best cubic for ``[lower, 1]``; it takes both ends to the same value."""
    stretch = math.sqrt(3.0 / (1.0 + lower + lower * lower))
    return certified(Stage.complete_square((1.5 * stretch, -0.5 * stretch**3)))


@lru_cache(maxsize=256)
def best_pair(lower: float) -> Stage:
    """The best polynomial of degree 9 for ``[lower, 1]``.

    >>> [round(image(best_pair(lower), lower, 1.0)[0], 3) for lower in (0.1, 0.2)]
    [0.586, 0.852]
    """
    if lower <= NEARLY_ONE:
        return certified(Stage.complete_square(exchange(lower, HIGHEST)[0]))
    candidates = best_pair(NEARLY_ONE), certified(TAYLOR)
    return max(candidates, key=lambda stage: image(stage, lower, 1.0)[0])


def certified(stage: Stage) -> Stage:
    """The stage divided by its maximum on [0, HIGHEST], so that this is at most 1, proven."""
    highest = image(stage, 0.0, HIGHEST)[1]
    while highest > 1.0:
        l, h, k, e, g = stage  # noqa: E741
        # Rounding the three coefficients may cost more than it corrects, hence the loop and the last factor.
        factor = (1 - 2.0**-52) / highest
        stage = Stage(l * factor, h, k, e * factor, g * factor)
        highest = image(stage, 0.0, HIGHEST)[1]
    return stage


def lift_by_step(lower: float) -> float:
    """Return the value to which ``best_step`` lifts ``lower``, up to rounding."""
    return best_step(lower).value(lower)


def lift_by_pair(lower: float) -> float:
    """Return the value to which ``best_pair`` lifts ``lower``, up to 1e-9: without a certificate, which is slow."""
    if lower > NEARLY_ONE:
        return image(best_pair(lower), lower, 1.0)[0]
    error = exchange(lower, HIGHEST)[1]
    return (1 - error) / (1 + error)


def exchange(low: float, high: float) -> tuple[list[float], float]:
    """Remez's exchange: the coefficients of Q with s Q(s^2) nearest to 1 on [low, high], and the largest distance."""
    a, b = low * low, high * high

    def at(s: float) -> float:
        """Where s^2 lies in [a, b], from -1 to 1."""
        return (2 * s * s - a - b) / (b - a)

    points = chebyshev_points(low, high, COUNT)
    for _ in range(12):
        rows = [[s * T for T in chebyshev(at(s))] + [(-1.0) ** i, 1.0] for i, s in enumerate(points)]
        *weights, error = solve(rows)
        extremes = [low, *turning_points(weights, low, high, at), high]
        if len(extremes) != COUNT + 1:
            break
        distances = [abs(s * dot(weights, chebyshev(at(s))) - 1) for s in extremes]
        if max(distances) <= (1 + 1e-9) * abs(error):
            break
        points = extremes
    return in_powers(weights, 2 / (b - a), -(a + b) / (b - a)), abs(error)


def chebyshev_points(low: float, high: float, count: int) -> list[float]:
    """Points from ``low`` to ``high``, dense at the ends, ``count`` intervals in all."""
    return [low + (high - low) * 0.5 * (1 - math.cos(math.pi * i / count)) for i in range(count + 1)]


def chebyshev(y: float) -> tuple[float, ...]:
    """Chebyshev's polynomials T_0 to T_4."""
    return 1.0, y, 2 * y * y - 1, (4 * y * y - 3) * y, 8 * y * y * (y * y - 1) + 1


def chebyshev_slopes(y: float) -> tuple[float, ...]:
    """Their derivatives."""
    return 0.0, 1.0, 4 * y, 12 * y * y - 3, (32 * y * y - 16) * y


def turning_points(weights: list[float], low: float, high: float, at: Callable[[float], float]) -> list[float]:
    """Where the derivative of s Q(s^2) changes its sign between the ends."""
    scale = 4 / (high * high - low * low)

    def slope(s: float) -> float:
        y = at(s)
        return dot(weights, chebyshev(y)) + scale * s * s * dot(weights, chebyshev_slopes(y))

    found = []
    for (left, rise), (right, next_rise) in pairwise((s, slope(s)) for s in chebyshev_points(low, high, 40)):
        if (rise < 0) != (next_rise < 0):
            # 24 halvings leave 1e-8 of the interval, and at a turning point the square of that.
            for _ in range(24):
                middle = 0.5 * (left + right)
                left, right = (middle, right) if (slope(middle) < 0) == (rise < 0) else (left, middle)
            found.append(left)
    return found


def in_powers(weights: list[float], slope: float, offset: float) -> list[float]:
    """The coefficients in powers of x of the sum of weights[j] T_j(slope x + offset)."""
    w0, w1, w2, w3, w4 = weights
    powers_of_y = [w0 - w2 + w4, w1 - 3 * w3, 2 * w2 - 8 * w4, 4 * w3, 8 * w4]
    total = [0.0] * COUNT
    for coefficient in reversed(powers_of_y):
        # total <- total * (slope x + offset) + coefficient
        total = [offset * here + slope * below for here, below in zip(total, [0.0, *total], strict=False)]
        total[0] += coefficient
    return total


def solve(rows: list[list[float]]) -> list[float]:
    """Solve linear equations, each a row with its right-hand side last, by elimination with pivots.

    Not by ``torch.linalg.solve``: a model of fake tensors can be converted too, and there no tensor holds numbers.
    """
    rows = [row[:] for row in rows]
    size = len(rows)
    for i in range(size):
        pivot = max(range(i, size), key=lambda j: abs(rows[j][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for j in range(size):
            if j != i:
                factor = rows[j][i] / rows[i][i]
                rows[j] = [x - factor * y for x, y in zip(rows[j], rows[i], strict=True)]
    return [row[-1] / row[i] for i, row in enumerate(rows)]


def dot(x: Sequence[float], y: Sequence[float]) -> float:
    return sum(map(operator.mul, x, y))
