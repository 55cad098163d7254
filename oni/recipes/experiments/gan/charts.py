"""The charts of the GAN figures: distances along training, and at its end."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from oni.recipes.charts.chart import Chart, Series
from oni.recipes.charts.curves import mean_and_band
from oni.recipes.experiments.errors import find_runs
from oni.recipes.experiments.experiment import Results
from oni.recipes.experiments.gan.family import Pairs
from oni.recipes.experiments.gan.table import DISTANCES, TRAINING_DISTANCE, Column, at_the_end
from oni.recipes.experiments.runs import Row

__all__ = ["COLOURS", "drawn", "end_chart", "end_charts", "pair_charts", "training_chart", "way_chart"]

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
    lines: Mapping[str, tuple[str, Mapping[int, Row]]],
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
    series = []
    for name, (colour, rows) in lines.items():
        values = {at: seeds for at, row in rows.items() if (seeds := finite_values(results, row, column))}
        if values:
            series.append(mean_and_band(name, list(values), list(values.values()), colour))
    places = [at for _, rows in lines.values() for at in rows]
    if level and (seeds := finite_values(results, level[2], column)):
        series.append(mean_and_band(level[0], [min(places), max(places)], [seeds, seeds], level[1], "dash"))
    return Chart(title, x, column.title, series, x_names=names)


def way_chart(title: str, column: Column, results: Results, lines: Mapping[str, tuple[str, Row]]) -> Chart:
    """A number of the generators that were kept on the way, and of those at the end, over updates."""
    series = []
    for name, (colour, row) in lines.items():
        values: dict[float, list[float]] = {}
        for run in find_runs(results, row):
            measured = {int(update): numbers for update, numbers in run.measured.get("on_the_way", {}).items()}
            measured[run.measured["updates"][-1] if run.measured["updates"] else 0] = run.measured
            for update, numbers in measured.items():
                if column.name in numbers:
                    values.setdefault(update, []).append(column.factor * numbers[column.name])
        if len(values) > 1:
            updates = sorted(values)
            series.append(mean_and_band(name, updates, [values[update] for update in updates], colour))
    return Chart(title, "updates of the generator", column.title, series)


def end_charts(results: Results, pairs: Pairs, columns: Sequence[Column]) -> list[Chart]:
    """A chart for each number at the end: SN and ONI side by side, the first pair at 1."""
    names = [name.replace(" ", "\n") for name in pairs]
    lines = {
        name: (COLOURS[name], dict(enumerate(rows, 1)))
        for name, rows in zip(("SN", "ONI"), zip(*pairs.values(), strict=True), strict=True)
    }
    return [end_chart(f"At the end: {column.title}", "", column, results, lines, names=names) for column in columns]


def pair_charts(results: Results, pairs: Pairs, titles: Sequence[str]) -> list[Chart]:
    """FID and KID at the end of all pairs, and the training of each under its title."""
    lines = [
        {name: (COLOURS[name], row) for name, row in zip(("SN", "ONI"), pair, strict=True)} for pair in pairs.values()
    ]
    curves = [training_chart(title, results, pair) for title, pair in zip(titles, lines, strict=True)]
    return drawn([*end_charts(results, pairs, DISTANCES[:2]), *curves])


def finite_values(results: Results, row: Row, column: Column) -> list[float]:
    """The final numbers of a row's seeds in the unit of the column, without those of runs that diverged."""
    values = at_the_end(find_runs(results, row), column.name)
    return [column.factor * value for value in values if math.isfinite(value)]


def drawn(charts: Sequence[Chart]) -> list[Chart]:
    """Those charts that have lines."""
    return [chart for chart in charts if chart.series] or list(charts[:1])
