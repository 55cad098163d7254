"""Charts as one picture, drawn by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from oni.recipes.charts.chart import Chart
from oni.recipes.charts.ticks import axis_ticks, tick_label
from oni.style import PAGE_WIDTH

__all__ = ["draw_charts"]

DASHES: dict[str, Any] = {"solid": "-", "dash": (0, (4, 2)), "dot": (0, (1, 1.5))}
KEY_COLOUR = "#444444"
"""Of the lines in the legend that explain a dash."""


def draw_charts(charts: Sequence[Chart], columns: int = 2) -> Figure:
    """All charts in one picture, with one legend below: a line for each name, then what each dash means."""
    columns = min(columns, len(charts))
    rows = math.ceil(len(charts) / columns)
    entries: dict[str, Line2D] = {}
    for chart in charts:
        for series in chart.series:
            dash = "solid" if chart.dashes else series.dash
            entries.setdefault(series.name, Line2D([], [], color=series.colour, **legend_line(chart, dash)))
    for chart in charts:
        for dash, meaning in chart.dashes.items():
            entries.setdefault(meaning, Line2D([], [], color=KEY_COLOUR, linestyle=DASHES[dash]))
    legend_columns = min(len(entries), 3 if max(map(len, entries), default=0) > 16 else 4)
    legend_rows = math.ceil(len(entries) / max(legend_columns, 1))
    figure = Figure(figsize=(PAGE_WIDTH, 2.6 * rows + 0.16 * legend_rows))
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for chart, axes in zip(charts, panels, strict=False):
        draw_chart(axes, chart)
    for axes in panels[len(charts) :]:
        axes.remove()
    figure.legend(list(entries.values()), list(entries), ncols=legend_columns, loc="outside lower center")
    return figure


def legend_line(chart: Chart, dash: str) -> dict[str, Any]:
    """How a line of the chart looks in the legend."""
    return {"linestyle": "none", "marker": "o", "markersize": 4} if chart.x_names else {"linestyle": DASHES[dash]}


def draw_chart(axes: Axes, chart: Chart) -> None:
    """Draw one chart on its axes."""
    few = max((len(series.x) for series in chart.series), default=0) <= 12
    for series in chart.series:
        axes.plot(
            series.x,
            [math.nan if value is None else value for value in series.y],
            color=series.colour,
            linestyle="none" if chart.x_names else DASHES[series.dash],
            marker="o" if few or chart.x_names else None,
            markersize=4 if chart.x_names else 2,
        )
        if series.low:
            low, high = ([math.nan if value is None else value for value in edge] for edge in (series.low, series.high))
            if chart.x_names:
                axes.vlines(series.x, low, high, color=series.colour, alpha=0.5)
            else:
                axes.fill_between(series.x, low, high, color=series.colour, alpha=0.15, linewidth=0)
    axes.set(xlabel=chart.x, ylabel=chart.y)
    axes.set_title(chart.title)
    if chart.x_log:
        axes.set_xscale("log", base=2)
    if chart.y_log:
        axes.set_yscale("log")
    if chart.y_range:
        axes.set_ylim(chart.y_range)
    if chart.x_names:
        axes.set_xticks(range(1, len(chart.x_names) + 1), list(chart.x_names))
        axes.set_xlim(0.5, len(chart.x_names) + 0.5)
    else:
        along = [x for series in chart.series for x in series.x]
        set_ticks(axes.xaxis, axis_ticks(along, log=chart.x_log, settings=True))
    drawn = chart.y_range or [y for series in chart.series for y in series.y]
    set_ticks(axes.yaxis, axis_ticks(drawn, log=chart.y_log))


def set_ticks(axis: Axis, ticks: Sequence[float] | None) -> None:
    if ticks:
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter(FixedFormatter([tick_label(tick) for tick in ticks]))
        axis.set_minor_locator(NullLocator())
