"""Several runs as a few numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Spread", "spread"]


class Spread(NamedTuple):
    """What runs that differ in their seeds gave."""

    runs: int
    diverged: int
    """How many of them; the numbers are of the others, and ``None`` if there are none."""
    mean: float | None
    median: float | None
    deviation: float | None
    """Of the sample; ``None`` for fewer than two."""
    least: float | None
    most: float | None


def spread(values: Iterable[float | None]) -> Spread:
    """Mean, median and spread; ``None`` stands for a run that diverged.

    >>> spread([10.0, 12.0, 17.0, None])
    Spread(runs=4, diverged=1, mean=13.0, median=12.0, deviation=3.6055, least=10.0, most=17.0)
    """
    every = list(values)
    known = [value for value in every if value is not None and math.isfinite(value)]
    return Spread(
        len(every),
        len(every) - len(known),
        statistics.fmean(known) if known else None,
        statistics.median(known) if known else None,
        statistics.stdev(known) if len(known) > 1 else None,
        min(known, default=None),
        max(known, default=None),
    )
