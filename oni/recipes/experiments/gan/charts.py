"""The charts of the GAN figures: distances along training, and at its end."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from oni.recipes.charts.chart import Chart, Series
from oni.recipes.experiments.errors import find_runs
from oni.recipes.experiments.experiment import Results
from oni.recipes.experiments.gan.family import Pairs
from oni.recipes.experiments.gan.table import FACTORS, TRAINING_DISTANCE, Column, at_the_end
from oni.recipes.experiments.runs import Row

__all__ = ["COLOURS", "Places", "drawn", "end_chart", "pair_charts", "place_pairs", "training_chart", "way_chart"]

Places = Mapping[int, Row] | Mapping[float, Row]
"""Rows by their place on an axis."""
COLOURS = {"SN": "#000000", "ONI": "#0072B2", "slip": "#CC79A7"}
MOST_BANDS = 3
"""With more lines than this, the ranges over seeds are not drawn: they would hide each other."""


def training_chart(title: str, results: Results, lines: Mapping[str, tuple[str, Row]], caption: str = "") -> Chart:
    """The distance on random features over updates of the generator: the mean over seeds, of few lines with its range.

    The range is from the smallest to the largest of the seeds.
    """
    series = []
    for name, (colour, row) in lines.items():
        runs = find_runs(results, row)
        if not runs:
            continue
        updates = max((run.measured["updates"] for run in runs), key=len)
        curves = [run.measured[TRAINING_DISTANCE] for run in runs]
        columns = [[curve[at] for curve in curves if at < len(curve)] for at in range(len(updates))]
        finite = [[value for value in column if value is not None] for column in columns]
        if not any(finite):
            continue
        several = len(runs) > 1 and len(lines) <= MOST_BANDS
        series.append(
            Series(
                name,
                updates,
                [statistics.fmean(column) if column else None for column in finite],
                colour,
                low=[min(column, default=None) for column in finite] if several else (),
                high=[max(column, default=None) for column in finite] if several else (),
            )
        )
    return Chart(
        title, "updates of the generator", "Frechet distance on random features", series, y_log=True, caption=caption
    )


def end_chart(
    title: str,
    x: str,
    column: Column,
    results: Results,
    lines: Mapping[str, tuple[str, Places]],
    level: tuple[str, str, Row] | None = None,
    names: Sequence[str] = (),
) -> Chart:
    """A number at the end over something that varies, and for comparison one that does not.

    Args:
        title, x: of the chart and its axis.
        column: which number.
        lines: by name, the colour and the rows by their place on the axis.
        level: name, colour and row of a line across.
        names: what stands at places 1, 2, ..., instead of numbers.
    """
    factor = FACTORS.get(column.name, 1.0)
    series = []
    for name, (colour, rows) in lines.items():
        values = {at: finite(at_the_end(find_runs(results, row), column.name)) for at, row in rows.items()}
        values = {at: [factor * value for value in seeds] for at, seeds in values.items() if seeds}
        if values:
            series.append(with_band(name, colour, values))
    places = [at for _, rows in lines.values() for at in rows]
    if level and (seeds := finite(at_the_end(find_runs(results, level[2]), column.name))):
        scaled = [factor * value for value in seeds]
        series.append(with_band(level[0], level[1], {min(places): scaled, max(places): scaled}, dash="dash"))
    return Chart(title, x, column.title, series, x_names=names)


def way_chart(title: str, column: Column, results: Results, lines: Mapping[str, tuple[str, Row]]) -> Chart:
    """A number of the generators that were kept on the way, and of those at the end, over updates."""
    factor = FACTORS.get(column.name, 1.0)
    series = []
    for name, (colour, row) in lines.items():
        values: dict[float, list[float]] = {}
        for run in find_runs(results, row):
            measured = {int(update): numbers for update, numbers in run.measured.get("on_the_way", {}).items()}
            measured[run.measured["updates"][-1] if run.measured["updates"] else 0] = run.measured
            for update, numbers in measured.items():
                if column.name in numbers:
                    values.setdefault(update, []).append(factor * numbers[column.name])
        if len(values) > 1:
            series.append(with_band(name, colour, dict(sorted(values.items()))))
    return Chart(title, "updates of the generator", column.title, series)


def place_pairs(pairs: Pairs) -> dict[str, tuple[str, Places]]:
    """Lines for ``end_chart``: the rows of each pair side by side, the first pair at 1."""
    return {
        name: (COLOURS[name], {float(place): pair[index] for place, pair in enumerate(pairs.values(), 1)})
        for index, name in enumerate(("SN", "ONI"))
    }


def pair_charts(results: Results, pairs: Pairs, columns: Sequence[Column]) -> list[Chart]:
    """A chart for each number at the end, by pair."""
    names = [name.replace(" ", "\n") for name in pairs]
    return [
        end_chart(f"At the end: {column.title}", "", column, results, place_pairs(pairs), names=names)
        for column in columns
    ]


def with_band(name: str, colour: str, values: Mapping[float, Sequence[float]], dash: str = "solid") -> Series:
    """A line through means over seeds, with their range around it."""
    columns = list(values.values())
    several = any(len(column) > 1 for column in columns)
    return Series(
        name,
        list(values),
        [statistics.fmean(column) for column in columns],
        colour,
        dash,
        [min(column) for column in columns] if several else (),
        [max(column) for column in columns] if several else (),
    )


def finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def drawn(charts: Sequence[Chart]) -> list[Chart]:
    """Those charts that have lines."""
    return [chart for chart in charts if chart.series] or list(charts[:1])
