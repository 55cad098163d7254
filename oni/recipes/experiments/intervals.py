"""Where the difference of two means over seeds lies: the intervals by which `verdicts` decides."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["CONFIDENCE", "Interval", "Values", "find_interval", "t_quantile"]

Values = Sequence[float]
"""One number for each seed."""


@dataclass(frozen=True)
class Interval:
    """Where a difference lies, with some confidence."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{(self.low + self.high) / 2:+.2f} ({self.low:+.2f} to {self.high:+.2f})"


CONFIDENCE = 0.95


def t_quantile(degrees: float, confidence: float = CONFIDENCE) -> float:
    """How far Student's t distribution reaches to both sides with this probability, by bisection of its integral.

    >>> [round(t_quantile(degrees), 3) for degrees in (1, 1.5, 2, 5, 30)]
    [12.706, 6.017, 4.303, 2.571, 2.042]
    >>> round(t_quantile(1, 0.995), 2)
    127.32
    """
    low, high = 0.0, 1e5
    while high - low > 1e-9 * max(1.0, low):
        middle = (low + high) / 2
        low, high = (middle, high) if probability_within(middle, degrees) < confidence else (low, middle)
    return low


def probability_within(t: float, degrees: float) -> float:
    """P(-t < T < t): with T = sqrt(degrees) tan x, the integral of a power of the cosine, by Simpson's rule."""
    angle, pieces = math.atan(t / math.sqrt(degrees)), 400
    heights = [math.cos(angle * index / pieces) ** (degrees - 1) for index in range(pieces + 1)]
    integral = heights[0] + heights[-1] + 4 * sum(heights[1::2]) + 2 * sum(heights[2:-1:2])
    whole = math.exp(math.lgamma(degrees / 2) - math.lgamma((degrees + 1) / 2)) * math.sqrt(math.pi) / 2
    return angle / pieces / 3 * integral / whole


def welch(own: Values, other: Values) -> tuple[float, float]:
    """The variance of the difference of two means over seeds, and its degrees of freedom (Welch and Satterthwaite)."""
    parts = [statistics.variance(values) / len(values) for values in (own, other)]
    variance = sum(parts)
    if variance == 0:
        return 0.0, 1.0
    shares = [part / variance for part in parts]
    uncertainty = sum(share**2 / (len(values) - 1) for share, values in zip(shares, (own, other), strict=True))
    return variance, 1 / uncertainty


def find_interval(own: Values, other: Values, *, images: int | None = None, confidence: float = CONFIDENCE) -> Interval:
    """The interval of the difference of two means over seeds; without limits where a side has one seed.

    >>> print(find_interval([40.5, 40.6], [58.0, 59.0], images=10_000))
    -17.95 (-24.20 to -11.70)

    Args:
        own, other: the numbers of all seeds.
        images: how many test images the numbers are errors on, in percent; ``None`` where they are something else.
        confidence: with which the difference lies in it.
    """
    everywhere = Interval(-math.inf, math.inf)
    if min(len(own), len(other)) < 2:
        return everywhere
    # A run that diverged has an infinite number: only if a whole side has it, and the other none, that is sure.
    finite = [[math.isfinite(value) for value in values] for values in (own, other)]
    if not all(map(all, finite)):
        if all(finite[0]) and not any(finite[1]):
            return Interval(-math.inf, -math.inf)
        return Interval(math.inf, math.inf) if all(finite[1]) and not any(finite[0]) else everywhere
    variance, degrees = welch(own, other)
    seeds = t_quantile(degrees, confidence) ** 2 * variance
    means = statistics.fmean(own), statistics.fmean(other)
    normal = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    sampling = 0.0 if images is None else sum(normal**2 * mean * (100 - mean) / images for mean in means)
    half = math.sqrt(seeds + sampling)
    return Interval(means[0] - means[1] - half, means[0] - means[1] + half)
