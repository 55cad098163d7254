"""Figure A5: errors of Table 2's networks, epoch by epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from oni.recipes.experiments.cifar10.family import (
    LONG,
    SHORT,
    Beginning,
    Final,
    Trial,
    describe_run,
    describe_sweeps,
    estimate_cost,
    name_network,
)
from oni.recipes.experiments.cifar10.reading import (
    SPEED_COLUMNS,
    SPEED_NOTE,
    describe_network,
    find_finals,
    make_speed_cells,
    mean_over_epochs,
    networks_of,
    row_speeds,
    style_rows,
)
from oni.recipes.experiments.cifar10.residual import (
    BATCH_NORM,
    EVERY_ROW,
    GROUP_NORM,
    ONI,
    PRESETS,
    RATE,
    ROWS,
    SMALL_RATE,
    XAVIER,
    plan,
)
from oni.recipes.experiments.cifar10.table2 import CHOICES, DEEP, batch_sizes_of, find_beginnings, on_deep, on_shallow
from oni.recipes.experiments.cifar10.training import make_measure
from oni.recipes.experiments.errors import judge_lower
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Judgement, Quantity, Results
from oni.recipes.experiments.rows import COLOURS, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]


def table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for network in networks_of(results):
        for row in EVERY_ROW:
            if runs := find_finals(results, row.name, network, batch_sizes_of(results)[0]):
                cells.append(make_speed_cells(f"{network}, {row.title}", row, runs, *describe_network(network, DEEP)))
    return Comparison(SPEED_COLUMNS, cells, SPEED_NOTE)


def judge_fastest(results: Results) -> Judgement:
    (network,) = networks_of(results)
    size = batch_sizes_of(results)[0]
    return judge_lower(
        row_speeds(results, [ONI], network, size), row_speeds(results, [BATCH_NORM, GROUP_NORM], network, size)
    )


def judge_beginnings(rate: float, *others: tuple[Row, float]) -> Callable[[Results], Judgement]:
    """Whether ONI's training error falls faster at this rate than those of others at theirs."""

    def measure_speeds(results: Results, *chosen: tuple[Row, float]) -> dict[str, list[float]]:
        return {
            f"{row.title} at {rate:g}": mean_over_epochs(results.where(row=row.name, learning_rate=rate))
            for row, rate in chosen
        }

    return lambda results: judge_lower(measure_speeds(results, (ONI, rate)), measure_speeds(results, *others))


FASTEST = "ONI's training error falls faster than those of batch and group normalisation"
CLAIMS = [
    Claim(f"Res-110: {FASTEST}", judge_fastest, LONG, on_deep),
    Claim(f"A shallower network, in short training: {FASTEST}", judge_fastest, SHORT, on_shallow),
    Claim(
        "In the first steps of Res-110, it falls faster than that of batch normalisation",
        judge_beginnings(RATE, (BATCH_NORM, RATE)),
        {"steps": 300},
        find_beginnings,
    ),
    Claim(
        "At a learning rate of 0.01 it falls faster than those of batch normalisation at 0.1 and 0.01 and of Xavier's "
        "start (not a claim of the paper)",
        judge_beginnings(SMALL_RATE, (BATCH_NORM, RATE), (BATCH_NORM, SMALL_RATE), (XAVIER, SMALL_RATE)),
        {"steps": 300},
        find_beginnings,
    ),
]


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import error_chart, error_charts

    drawn = []
    for network in networks_of(results):
        styles = style_rows(results.where(network=network, batch_size=batch_sizes_of(results)[0]), EVERY_ROW)
        drawn += error_charts(f"{name_network(network)}: {{part}} error", styles, log=False)
    beginnings = find_beginnings(results)
    if beginnings:
        styles, dashes = {}, {}
        for row in EVERY_ROW:
            for rate, dash in ((RATE, "solid"), (SMALL_RATE, "dash")):
                if runs := beginnings.where(row=row.name, learning_rate=rate):
                    name = f"{row.title}, {rate:g}"
                    styles[name], dashes[name] = (COLOURS[row.name], runs), dash
        title = f"{name_network(beginnings[0].parameters.network)}, first steps: training error"
        chart = error_chart(title, styles, ["train"])
        drawn.append(replace(chart, series=[replace(line, dash=dashes[line.name]) for line in chart.series]))
    return [chart for chart in drawn if chart.series]


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results))


EXPERIMENT = Experiment(
    id="figA5",
    title="Errors of a residual network without batch normalisation, by epoch",
    shows="ONI converges significantly faster than batch and group normalisation, in epochs.",
    choices="The runs of Table 2 with large batches: nothing is trained twice. How fast a training error falls is "
    f"judged by its mean over all epochs. {CHOICES}Preset full: Res-20 instead of Res-110, 8 epochs of 10,000 images, "
    "and the first 312 steps of Res-110 at learning rates of 0.1 and 0.01.",
    presets=PRESETS,
    parameters=(Trial, Final, Beginning),
    plan=plan,
    measure=make_measure(EVERY_ROW),
    paper={"printed numbers": None},
    claims=CLAIMS,
    table=table,
    draw=draw,
    charts=charts,
    trains=True,
    sweeps={**describe_sweeps(ROWS), "batch_size": "compares batch sizes"},
    describe=describe_run,
    cost=estimate_cost,
    findings="At 0.1, ONI diverges in Res-110 (Table 2 says more), and in Res-20 one of its two seeds is thrown "
    "back. At 0.01 the two fall together in Res-110: what the paper draws, ONI ahead of batch normalisation from the "
    "first epoch, is not seen at either rate in these 312 steps.",
)
