"""Interval arithmetic: bounds that no rounding error can break.

An interval is a pair (low, high) of floats. Each operation rounds its low end down and its high end up by one float, so
the true result of any numbers from the operands lies inside.
"""

from __future__ import annotations

import math
from typing import TypeAlias

__all__ = ["Interval", "add", "hull", "multiply", "widen"]

Interval: TypeAlias = tuple[float, float]


def widen(low: float, high: float) -> Interval:
    """The interval one float wider on both sides."""
    return math.nextafter(low, -math.inf), math.nextafter(high, math.inf)


def add(*terms: Interval) -> Interval:
    """The sum.

    >>> low, high = add((0.1, 0.1), (0.2, 0.2))
    >>> low < 0.1 + 0.2 < high
    True
    """
    low, high = terms[0]
    for term in terms[1:]:
        low, high = widen(low + term[0], high + term[1])
    return low, high


def multiply(x: Interval, y: Interval) -> Interval:
    """The product."""
    products = (x[0] * y[0], x[0] * y[1], x[1] * y[0], x[1] * y[1])
    return widen(min(products), max(products))


def hull(*intervals: Interval) -> Interval:
    """The smallest interval that holds them all."""
    return min(low for low, _ in intervals), max(high for _, high in intervals)
