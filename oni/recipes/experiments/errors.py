"""Errors of training runs over seeds: reading, comparing and writing them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from oni.recipes.charts.record import percent
from oni.recipes.experiments.experiment import Judgement, Quantity, Results

__all__ = [
    "errors_at",
    "format_errors",
    "is_below",
    "judge_as_good_as_best",
    "judge_lower",
    "judge_worse_than_best",
    "mean_and_deviation",
    "mean_error",
    "sampling_margin",
]


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


def sampling_margin(first: Sequence[float], second: Sequence[float], images: int) -> float:
    """Two standard errors of the difference of two mean errors in percent, of networks tested on so many images.

    As if each network had images of its own: on the same ones it is less, by as much as networks err alike.

    >>> round(sampling_margin([40.0, 40.0], [40.0, 40.0], 10_000), 2)
    0.98
    """
    means = [(statistics.fmean(errors), len(errors)) for errors in (first, second)]
    return 2 * math.sqrt(sum(mean * (100 - mean) / (images * count) for mean, count in means))


def judge_lower(
    own: Mapping[str, Sequence[float]], others: Mapping[str, Sequence[float]], images: int | None = None
) -> Judgement:
    """Held if every seed of each of our own is below every seed of all others; undecided if only the means are.

    With the number of test images, a difference of means that is less than their `sampling_margin` is undecided too.

    >>> judge_lower({"ONI": [1.0, 2.0]}, {"plain": [3.0]})
    (True, 'ONI 1.00 % and 2.00 %; plain 3.00 %')
    >>> judge_lower({"ONI": [1.0, 2.0]}, {"plain": [3.0]}, images=100)[0] is None
    True
    """
    missing = [name for name, errors in {**own, **others}.items() if not errors]
    if missing:
        return None, f"not yet measured: {', '.join(missing)}"
    text = "; ".join(f"{name} {format_errors(errors)}" for name, errors in {**own, **others}.items())
    if max(map(statistics.fmean, own.values())) >= min(map(statistics.fmean, others.values())):
        return False, text
    lower = "the mean is lower" if len(own) == 1 else "the means are lower"
    pairs = [(ours, theirs) for ours in own.values() for theirs in others.values()]
    if not all(is_below(*pair) for pair in pairs):
        return None, f"undecided: {lower}, but seeds overlap; {text}"
    if images is not None and not all(is_beyond_sampling(*pair, images) for pair in pairs):
        return None, f"undecided: {lower}, but within two standard errors of {images:,} test images; {text}"
    return True, text


def is_beyond_sampling(lower: Sequence[float], higher: Sequence[float], images: int) -> bool:
    """Whether a mean is lower by more than the `sampling_margin`."""
    return statistics.fmean(higher) - statistics.fmean(lower) > sampling_margin(lower, higher, images)


def judge_worse_than_best(errors: Mapping[int, Sequence[float]], steps: int, images: int | None) -> Judgement:
    """Whether so many steps have a larger test error than the best number of steps, by `judge_lower`.

    >>> judge_worse_than_best({1: [20.0], 2: [10.0], 3: [10.5]}, 1, images=10_000)
    (True, 'best with 2 steps; T = 1 20.00 %, T = 2 10.00 %, T = 3 10.50 %')
    >>> judge_worse_than_best({1: [20.0], 2: [10.0], 3: [10.5]}, 3, images=10_000)[0] is None
    True

    Args:
        errors: of the seeds, by number of steps; none where nothing was measured.
        steps: the number that is judged.
        images: how many were tested on, if the `sampling_margin` is to count.
    """
    worse, text = compare_with_best(errors, steps, images)
    if worse is None and all(errors.values()):
        return None, f"undecided: {steps} steps have more, but not surely; {text}"
    return worse, text


def judge_as_good_as_best(errors: Mapping[int, Sequence[float]], steps: int, images: int | None) -> Judgement:
    """Held unless so many steps surely have a larger test error than the best number of steps."""
    worse, text = compare_with_best(errors, steps, images)
    return (not worse if all(errors.values()) else None), text


def compare_with_best(errors: Mapping[int, Sequence[float]], steps: int, images: int | None) -> Judgement:
    """The verdict of `judge_lower` on the best number of steps beside another, and the errors of all."""
    if missing := [str(number) for number, values in errors.items() if not values]:
        return None, f"not yet measured: {', '.join(missing)} steps"
    best = min(errors, key=lambda number: statistics.fmean(errors[number]))
    worse, _ = judge_lower({"best": errors[best]}, {"judged": errors[steps]}, images)
    listed = ", ".join(f"T = {number} {format_errors(values)}" for number, values in errors.items())
    return worse, f"best with {best} steps; {listed}"


def format_errors(values: Sequence[float]) -> str:
    """Percentages of all seeds.

    >>> format_errors([1.0, 2.5])
    '1.00 % and 2.50 %'
    """
    return " and ".join(f"{value:.2f} %" for value in values)
