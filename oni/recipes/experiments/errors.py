"""Errors of training runs over seeds: reading, comparing and writing them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from oni.recipes.experiments.experiment import Quantity, Results

__all__ = ["errors_at", "format_errors", "is_below", "mean_and_deviation", "mean_error"]


def mean_and_deviation(values: Sequence[float]) -> Quantity:
    """A cell of a table, over seeds."""
    return Quantity(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def errors_at(runs: Results, part: str = "train", epoch: int = -1) -> list[float]:
    """The error in percent after an epoch, of every seed; a run that diverged has 100 from there on."""
    errors = []
    for run in runs:
        recorded = [100.0 if error is None else 100 * error for error in run.measured[f"{part}_error"]]
        errors.append([*recorded, *[100.0] * (run.parameters.epochs - len(recorded))][epoch])
    return errors


def mean_error(runs: Results, part: str = "train", epoch: int = -1) -> float:
    """The mean of `errors_at` over seeds."""
    return statistics.fmean(errors_at(runs, part, epoch))


def is_below(lower: Sequence[float], higher: Sequence[float]) -> bool:
    """Whether every seed of the one is below every seed of the other."""
    return max(lower) < min(higher)


def format_errors(values: Sequence[float]) -> str:
    """Percentages of all seeds.

    >>> format_errors([1.0, 2.5])
    '1.00 % and 2.50 %'
    """
    return " and ".join(f"{value:.2f} %" for value in values)
