"""Errors of training runs over seeds: reading, comparing and writing them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from oni.recipes.charts.record import percent
from oni.recipes.experiments.experiment import Judgement, Quantity, Results

__all__ = ["errors_at", "format_errors", "is_below", "judge_lower", "mean_and_deviation", "mean_error"]


def mean_and_deviation(values: Sequence[float]) -> Quantity:
    """A cell of a table, over seeds."""
    return Quantity(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def errors_at(runs: Results, part: str = "train", epoch: int = -1) -> list[float]:
    """The error in percent after an epoch, of every seed; a run that diverged has 100 from there on."""
    errors = []
    for run in runs:
        error = percent(run.measured[f"{part}_error"], run.parameters.epochs)[epoch]
        if error is None:
            raise ValueError(f"the {part} error was not measured after that epoch ({epoch})")
        errors.append(error)
    return errors


def mean_error(runs: Results, part: str = "train", epoch: int = -1) -> float:
    """The mean of `errors_at` over seeds."""
    return statistics.fmean(errors_at(runs, part, epoch))


def is_below(lower: Sequence[float], higher: Sequence[float]) -> bool:
    """Whether every seed of the one is below every seed of the other."""
    return max(lower) < min(higher)


def judge_lower(own: Mapping[str, Sequence[float]], others: Mapping[str, Sequence[float]]) -> Judgement:
    """Held if every seed of each of our own is below every seed of all others; undecided if only the means are.

    >>> judge_lower({"ONI": [1.0, 2.0]}, {"plain": [3.0]})
    (True, 'ONI 1.00 % and 2.00 %; plain 3.00 %')
    """
    missing = [name for name, errors in {**own, **others}.items() if not errors]
    if missing:
        return None, f"not yet measured: {', '.join(missing)}"
    text = "; ".join(f"{name} {format_errors(errors)}" for name, errors in {**own, **others}.items())
    if all(is_below(ours, theirs) for ours in own.values() for theirs in others.values()):
        return True, text
    if max(map(statistics.fmean, own.values())) < min(map(statistics.fmean, others.values())):
        return (
            None,
            f"undecided: {'the mean is' if len(own) == 1 else 'the means are'} lower, but seeds overlap; {text}",
        )
    return False, text


def format_errors(values: Sequence[float]) -> str:
    """Percentages of all seeds.

    >>> format_errors([1.0, 2.5])
    '1.00 % and 2.50 %'
    """
    return " and ".join(f"{value:.2f} %" for value in values)
