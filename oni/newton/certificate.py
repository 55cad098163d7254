"""The exact range of a stage's polynomial, proven by interval arithmetic: no extreme hides between two samples.

The derivative decides: where its bounds exclude zero the polynomial is monotone and its extremes lie at the ends. So an
interval is halved until each piece either is monotone or is so small that the polynomial moves by less than a rounding
error on it. That is done once for a stage; the range on any interval follows from its ends and the pieces inside.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from oni.newton.interval import Interval, add, hull, multiply, widen
from oni.newton.stage import Stage

__all__ = ["HIGHEST", "image"]

HIGHEST = 1 + 1e-4
"""Certificates reach a little past 1, as rounding may take a singular value there."""
STILL = 2.0**-54
"""A piece on which the polynomial moves by less than this is not halved further."""


class Piece(NamedTuple):
    """An interval that may hold a turning point, and bounds of the polynomial on it."""

    low: float
    high: float
    bounds: Interval


def image(stage: Stage, low: float, high: float) -> Interval:
    """Bounds of s Q(s^2) for ``0 <= low <= s <= high <= HIGHEST``, wider than the true range by rounding errors alone.

    >>> low, high = image(Stage.complete_square((1.5, -0.5)), 0.5, 1.0)
    >>> round(low, 12), round(high, 12)
    (0.6875, 1.0)
    """
    ends = value(stage, (low, low)), value(stage, (high, high))
    return hull(*ends, *(piece.bounds for piece in turning_pieces(stage) if piece.low < high and low < piece.high))


def value(stage: Stage, s: Interval) -> Interval:
    """Bounds of s Q(s^2); tight where s is a point."""
    l, h, k, e, g = ((number, number) for number in stage)  # noqa: E741
    x = multiply(s, s)
    inner = add(multiply(x, add(x, (-h[1], -h[0]))), k)
    return multiply(s, add(multiply(l, multiply(inner, inner)), multiply(e, x), g))


@lru_cache(maxsize=1024)
def turning_pieces(stage: Stage) -> tuple[Piece, ...]:
    """All of [0, HIGHEST] where the polynomial is not proven to be monotone."""
    slope = derivative(stage)
    pieces = []
    waiting = [(0.0, HIGHEST)]
    while waiting:
        low, high = waiting.pop()
        rise = evaluate(slope, multiply((low, high), (low, high)))
        if rise[0] > 0 or rise[1] < 0:
            continue
        moved = multiply(rise, (0.0, high - low))
        middle = 0.5 * (low + high)
        if max(-moved[0], moved[1]) <= STILL or not low < middle < high:
            pieces.append(Piece(low, high, add(value(stage, (low, low)), moved)))
        else:
            waiting += [(middle, high), (low, middle)]
    return tuple(pieces)


def derivative(stage: Stage) -> list[Interval]:
    """Bounds of the coefficients, in x = s^2, of the derivative of s Q(s^2): sum of (2 i + 1) c_i x^i."""
    l, h, k, e, g = ((number, number) for number in stage)  # noqa: E741
    lh = multiply(l, h)
    coefficients = [
        add(g, multiply(l, multiply(k, k))),
        add(e, multiply((-2.0, -2.0), multiply(lh, k))),
        add(multiply(lh, h), multiply((2.0, 2.0), multiply(l, k))),
        multiply((-2.0, -2.0), lh),
        l,
    ]
    return [multiply((2.0 * i + 1, 2.0 * i + 1), c) for i, c in enumerate(coefficients)]


def evaluate(coefficients: list[Interval], x: Interval) -> Interval:
    """Bounds of a polynomial on an interval, by its Taylor series at the middle: tight also where it is nearly flat."""
    middle = 0.5 * (x[0] + x[1])
    shift = (middle, middle)
    series = list(coefficients)
    for i in range(len(series)):
        for j in reversed(range(i, len(series) - 1)):
            series[j] = add(series[j], multiply(shift, series[j + 1]))
    # x - middle, and the rest by Horner's rule.
    around = widen(x[0] - middle, x[1] - middle)
    total = series[-1]
    for coefficient in series[-2::-1]:
        total = add(multiply(total, around), coefficient)
    return total
