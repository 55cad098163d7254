"""Charts of what training runs recorded: errors by epoch, spectra, the signal in each layer; and their pictures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from oni.recipes.charts.chart import Chart, Series
from oni.recipes.experiments.experiment import Results
from oni.style import PAGE_WIDTH, tint

__all__ = ["draw_charts", "error_chart", "ramp", "signal_chart", "spectrum_chart", "sweep_chart"]

DASHES = {"solid": "-", "dash": (0, (4, 2)), "dot": (0, (1, 1.5))}
Styles = Mapping[str, tuple[str, Results]]
"""By the name in the legend: the colour, and the runs."""


def error_chart(title: str, of: Styles, parts: Sequence[str] = ("train", "test"), caption: str = "") -> Chart:
    """Errors in percent after each epoch: the mean over seeds, with a band from the least to the most.

    Training is solid, test dashed. A run that diverged counts as wrong everywhere from there on.
    """
    series = []
    for name, (colour, runs) in of.items():
        for part in parts:
            curves = [percent(run.measured[f"{part}_error"], run.parameters.epochs) for run in runs]
            columns = list(zip(*curves, strict=True))
            series.append(
                banded(name, range(1, len(columns) + 1), columns, colour, "solid" if part == "train" else "dash")
            )
    label = "error, %" if len(parts) > 1 else f"{parts[0]} error, %"
    most = max(value for each in series for value in [*each.y, *each.high] if value is not None)
    top = 100 if most > 50 else 10 * math.ceil(most / 10)
    return Chart(title, "epoch", label, series, y_range=(0, top), caption=caption)


def percent(errors: Sequence[float | None], epochs: int) -> list[float]:
    known = [100.0 if error is None else 100 * error for error in errors]
    return known + [100.0] * (epochs - len(known))


def banded(name: str, x: Sequence[float], columns: Sequence[Sequence[float]], colour: str, dash: str) -> Series:
    band = (
        [[min(column) for column in columns], [max(column) for column in columns]] if len(columns[0]) > 1 else [[], []]
    )
    return Series(name, list(x), [statistics.fmean(column) for column in columns], colour, dash, *band)


def sweep_chart(title: str, x: str, of: Sequence[tuple[float, Results]], colour: str, *, x_log: bool = False) -> Chart:
    """The errors at the end against one option."""
    series = []
    for part in ("train", "test"):
        columns = [
            [percent(run.measured[f"{part}_error"], run.parameters.epochs)[-1] for run in runs] for _, runs in of
        ]
        at = [value for value, _ in of]
        series.append(banded(part, at, columns, colour, "solid" if part == "train" else "dash"))
    return Chart(title, x, "error at the end, %", series, x_log=x_log)


def spectrum_chart(title: str, of: Styles, layer: int, step: int | None, caption: str = "") -> Chart:
    """The singular values of one layer in the first run of each; of the last step that was looked at if ``None``."""
    series = []
    for name, (colour, runs) in of.items():
        found = runs[0].measured["spectrum"]
        at = str(
            max(map(int, found)) if step is None else min((int(each) for each in found), key=lambda s: abs(s - step))
        )
        values = found[at].get(str(layer), [])
        series.append(Series(name, list(range(1, len(values) + 1)), values, colour))
    return Chart(title, "rank, largest first", "singular value", series, caption=caption)


def signal_chart(title: str, of: Styles, what: str, y: str, caption: str = "") -> Chart:
    """Mean absolute activations (``"input"``) or gradients in each layer: dotted at the start, solid at the end."""
    series = []
    for name, (colour, runs) in of.items():
        every = [run.measured["signal"] for run in runs]
        for at, dash in ((max, "solid"), (min, "dot")):
            rows = [found[str(at(map(int, found)))][what] for found in every]
            # A zero has no place on a logarithmic axis.
            means = [
                math.exp(statistics.fmean(map(math.log, column))) if all(column) else None
                for column in zip(*rows, strict=True)
            ]
            series.append(Series(name, list(range(1, len(means) + 1)), means, colour, dash))
    return Chart(title, "layer", y, series, y_log=True, caption=caption)


def ramp(colour: str, count: int) -> list[str]:
    """Shades of a colour, from light to full.

    >>> ramp("#0072B2", 2)
    ['#a6cee4', '#0072b2']
    """
    return [to_hex(tint(colour, 0.35 + 0.65 * index / max(count - 1, 1))) for index in range(count)]


def draw_charts(charts: Sequence[Chart], columns: int = 2) -> Figure:
    """All charts in one picture, one legend below."""
    rows = math.ceil(len(charts) / columns)
    names = {series.name for chart in charts for series in chart.series}
    figure = Figure(figsize=(PAGE_WIDTH, 2.6 * rows + 0.16 * math.ceil(len(names) / 3)))
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    handles: dict[str, Any] = {}
    for chart, axes in zip(charts, grid, strict=False):
        draw_chart(axes, chart, handles)
    for axes in grid[len(charts) :]:
        axes.remove()
    figure.legend(handles=list(handles.values()), ncols=min(len(handles), 3), loc="outside lower center")
    return figure


def draw_chart(axes: Axes, chart: Chart, handles: dict[str, Any]) -> None:
    few = max(len(series.x) for series in chart.series) <= 12
    for series in chart.series:
        y = [math.nan if value is None else value for value in series.y]
        (line,) = axes.plot(
            series.x, y, color=series.colour, linestyle=DASHES[series.dash], marker="o" if few else None, markersize=2
        )
        handles.setdefault(series.name, line)
        line.set_label(series.name)
        if series.low:
            axes.fill_between(series.x, series.low, series.high, color=series.colour, alpha=0.15, linewidth=0)
    axes.set(xlabel=chart.x, ylabel=chart.y)
    axes.set_title(chart.title)
    if chart.x_log:
        axes.set_xscale("log", base=2)
    if chart.y_log:
        axes.set_yscale("log")
    if chart.y_range:
        axes.set_ylim(chart.y_range)
