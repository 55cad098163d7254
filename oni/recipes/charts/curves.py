"""Charts of what training runs recorded: errors and losses by epoch, spectra, the signal in each layer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from oni.recipes.charts.chart import Chart, Series
from oni.recipes.charts.colours import ramp
from oni.recipes.run_files.recorded import MeasuredRun, TrainingRecord, percent, read_record

__all__ = [
    "error_chart",
    "error_charts",
    "metric_chart",
    "percent",
    "ramp",
    "signal_chart",
    "spectrum_chart",
    "sweep_chart",
]

Runs = Sequence[MeasuredRun | TrainingRecord]
Styles = Mapping[str, tuple[str, Runs]]
"""By the name in the legend: the colour, and the runs that differ in their seed alone."""

PARTS = {"train": "training", "validation": "validation", "test": "test"}
DASHES = {"train": "solid", "validation": "dot", "test": "dash"}
WIDE = 3.0
"""An axis of errors is logarithmic if the largest is so many times the smallest."""


def error_charts(title: str, styles: Styles, parts: Sequence[str] = ("train", "test"), **options: Any) -> list[Chart]:
    """One chart of errors for each part that was recorded; ``{part}`` or ``{Part}`` in the title is replaced.

    >>> runs = [TrainingRecord({"train_error": [0.5, 0.25], "test_error": [0.6, 0.5]}, 2)]
    >>> [chart.title for chart in error_charts("10 layers, {part} error", {"ONI": ("#0072B2", runs)})]
    ['10 layers, training error', '10 layers, test error']
    """
    charts = [
        error_chart(title.format(part=PARTS[part], Part=PARTS[part].capitalize()), styles, [part], **options)
        for part in parts
    ]
    return [chart for chart in charts if chart.series]


def error_chart(
    title: str,
    styles: Styles,
    parts: Sequence[str] = ("train", "test"),
    caption: str = "",
    *,
    log: bool | None = None,
) -> Chart:
    """Errors in percent after each epoch: the mean over seeds, with a band from the least to the most.

    With several parts, training is solid, test dashed and validation dotted. A run that diverged counts as 100 % wrong
    from there on.

    Args:
        title, caption: of the chart.
        styles: colour and runs of each line.
        parts: of "train", "validation" and "test".
        log: whether the axis is logarithmic; by default where one failed run would squash the others.
    """
    dashes = DASHES if len(parts) > 1 else {parts[0]: "solid"}
    series = []
    for name, (colour, runs) in styles.items():
        for part in parts:
            curves = [curve for run in runs if (curve := read_record(run).percent(part))]
            columns = measured_columns(curves)
            if columns:
                series.append(mean_and_band(name, list(columns), list(columns.values()), colour, dashes[part]))
    label = f"{PARTS[parts[0]]} error, %" if len(parts) == 1 else "error, %"
    meanings = {dashes[part]: PARTS[part] for part in parts} if len(parts) > 1 else {}
    chart = Chart(title, "epoch", label, series, caption=caption, dashes=meanings)
    return with_error_axis(chart, log)


def measured_columns(curves: Sequence[Sequence[float | None]]) -> dict[int, list[float]]:
    """By epoch, from 1: the values of all curves, for those epochs after which every run was measured.

    >>> measured_columns([[50.0, None, 25.0], [40.0, None, 20.0]])
    {1: [50.0, 40.0], 3: [25.0, 20.0]}
    """
    columns = {}
    for epoch, values in enumerate(zip(*curves, strict=False), 1):
        present = [value for value in values if value is not None]
        if len(present) == len(values):
            columns[epoch] = present
    return columns


def with_error_axis(chart: Chart, log: bool | None = None) -> Chart:
    """The chart with a range for errors in percent, logarithmic where one line would squash the others."""
    values = [value for line in chart.series for value in [*line.y, *line.low, *line.high] if value is not None]
    low, high = log_range(values)
    smallest = min(values, default=0.0) or low
    if log or (log is None and max(values, default=0.0) > WIDE * smallest):
        series = [at_least(line, low) for line in chart.series]
        return replace(chart, series=series, y_log=True, y_range=(low, min(high, 100.0)))
    return replace(chart, y_range=linear_range(values))


def linear_range(values: Sequence[float]) -> tuple[float, float]:
    """Round numbers below and above the values, at most 100; from 0 unless that would leave a third of the axis empty.

    >>> linear_range([3.0, 38.0]), linear_range([10.3, 21.0]), linear_range([88.0, 90.0]), linear_range([])
    ((0.0, 40.0), (10.0, 25.0), (87.0, 91.0), (0.0, 10.0))
    """
    if not values:
        return 0.0, 10.0
    low, high = min(values), max(values)
    step = next(step for step in (1, 2, 5, 10, 20, 50) if 4 * step >= high - low)
    first, last = step * (math.ceil(low / step) - 1), step * (math.floor(high / step) + 1)
    return float(max(first, 0)) if 3 * first > last else 0.0, float(min(last, 100))


def log_range(values: Sequence[float]) -> tuple[float, float]:
    """The numbers 1, 2, 5, 10, ... just below and above; if there is a zero, half the lower one stands for it.

    >>> log_range([2.3, 90.0]), log_range([0.0, 2.0, 14.0]), log_range([])
    ((2.0, 100.0), (1.0, 20.0), (1.0, 100.0))
    """
    positive = [value for value in values if value > 0]
    if not positive:
        return 1.0, 100.0
    power = 10.0 ** math.floor(math.log10(min(positive)))
    low = max(power * digit for digit in (1, 2, 5) if power * digit <= min(positive) * (1 + 1e-9))
    power = 10.0 ** math.floor(math.log10(max(positive)))
    high = min(power * digit for digit in (1, 2, 5, 10) if power * digit >= max(positive) * (1 - 1e-9))
    return low / 2 if min(values) == 0 else low, high


def at_least(series: Series, low: float) -> Series:
    """The line with everything below ``low`` raised to it: zero has no place on a logarithmic axis."""

    def raised(values: Sequence[float | None]) -> list[float | None]:
        return [None if value is None else max(value, low) for value in values]

    return replace(series, y=raised(series.y), low=raised(series.low), high=raised(series.high))


def mean_and_band(
    name: str, x: Sequence[float], columns: Sequence[Sequence[float]], colour: str, dash: str = "solid"
) -> Series:
    """A line through the mean of each column; with several values in it, a band from the least to the most."""
    several = any(len(column) > 1 for column in columns)
    low = [min(column) for column in columns] if several else []
    high = [max(column) for column in columns] if several else []
    return Series(name, list(x), [statistics.fmean(column) for column in columns], colour, dash, low, high)


def metric_chart(title: str, styles: Styles, metric: str, y: str, caption: str = "", *, log: bool = False) -> Chart:
    """Any recorded number by epoch: the mean over seeds, where it was measured and is finite."""
    series = []
    for name, (colour, runs) in styles.items():
        columns = measured_columns([curve for run in runs if (curve := read_record(run).metrics.get(metric))])
        if columns:
            series.append(
                Series(name, list(columns), [statistics.fmean(column) for column in columns.values()], colour)
            )
    return Chart(title, "epoch", y, series, y_log=log, caption=caption)


def sweep_chart(
    title: str, x: str, results: Sequence[tuple[float, Runs]], colour: str, *, x_log: bool = False, caption: str = ""
) -> Chart:
    """The errors at the end against one option."""
    series = []
    for part in ("train", "test"):
        # The last epoch is always measured.
        columns = [
            [error for run in runs if (error := read_record(run).percent(part)[-1]) is not None] for _, runs in results
        ]
        series.append(mean_and_band(PARTS[part], [at for at, _ in results], columns, colour, DASHES[part]))
    return with_error_axis(Chart(title, x, "error at the end, %", series, x_log=x_log, caption=caption))


def spectrum_chart(title: str, styles: Styles, layer: int | str, step: int | None, caption: str = "") -> Chart:
    """The singular values of one layer, in the first run of each.

    At the recorded step nearest to ``step``; at the last one if that is ``None``.
    """
    series = []
    for name, (colour, runs) in styles.items():
        steps = read_record(runs[0]).steps("spectrum")
        if not steps:
            continue
        nearest = max(steps) if step is None else min(steps, key=lambda recorded: abs(recorded - step))
        values = steps[nearest].get(str(layer), [])
        if values:
            series.append(Series(name, list(range(1, len(values) + 1)), list(values), colour))
    return Chart(title, "rank, largest first", "singular value", series, caption=caption)


def signal_chart(title: str, styles: Styles, quantity: str, y: str, caption: str = "") -> Chart:
    """Mean absolute activations (``"input"``) or gradients (``"gradient"``) in each layer, at the start and the end."""
    series = []
    for name, (colour, runs) in styles.items():
        watched = [steps for run in runs if (steps := read_record(run).steps("signal"))]
        for choose, dash in ((max, "solid"), (min, "dot")):
            rows = [values for steps in watched if (values := steps[choose(steps)].get(quantity))]
            means = [geometric_mean(column) for column in zip(*rows, strict=False)]
            if means and not (dash == "dot" and all(len(steps) == 1 for steps in watched)):
                series.append(Series(name, list(range(1, len(means) + 1)), means, colour, dash))
    dashes = {"solid": "end of training", "dot": "start"}
    return Chart(title, "layer", y, series, y_log=True, caption=caption, dashes=dashes)


def geometric_mean(values: Sequence[float | None]) -> float | None:
    """``None`` if a value is missing or zero, which has no place on a logarithmic axis."""
    present = [value for value in values if value]
    return math.exp(statistics.fmean(map(math.log, present))) if len(present) == len(values) else None
