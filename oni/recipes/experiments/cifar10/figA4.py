"""Figure A4: training errors of Table 1's networks, epoch by epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oni.recipes.experiments.cifar10.family import (
    LONG,
    SHORT,
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
    final_runs,
    find_finals,
    judge_all,
    make_speed_cells,
    networks_of,
    on_first_network,
    row_speeds,
    style_rows,
)
from oni.recipes.experiments.cifar10.table1 import CHOICES, PRESET_CHOICES
from oni.recipes.experiments.cifar10.training import make_measure
from oni.recipes.experiments.cifar10.vgg import BEST, ONI, OTHERS, OUR_ROWS, PRESETS, ROWS, plan
from oni.recipes.experiments.errors import judge_lower
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Judgement, Quantity, Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]


def table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for network in networks_of(results):
        for row in ROWS:
            if runs := find_finals(results, row.name, network):
                cells.append(make_speed_cells(f"{network}, {row.title}", row, runs))
    return Comparison(SPEED_COLUMNS, cells, SPEED_NOTE)


def judge_fastest(results: Results, network: str) -> Judgement:
    return judge_lower(row_speeds(results, BEST, network), row_speeds(results, OTHERS, network))


def judge_practice(results: Results, network: str) -> Judgement:
    return judge_lower(row_speeds(results, [ONI], network), row_speeds(results, OUR_ROWS, network))


CLAIMS = [
    Claim(
        "The training errors of ONI and OLM-sqrt2 fall fastest on every network",
        judge_all(judge_fastest),
        LONG,
        final_runs,
    ),
    Claim(
        "On the first network, also in short training: the training errors of ONI and OLM-sqrt2 fall fastest",
        judge_all(judge_fastest),
        SHORT,
        on_first_network,
    ),
    Claim(
        "On the first network: ONI's falls faster than those of OrthInit x sqrt 2 and batch normalisation (not a claim "
        "of the paper)",
        judge_all(judge_practice),
        SHORT,
        on_first_network,
    ),
]


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import error_chart

    return [
        error_chart(
            f"{name_network(network)}: training error", style_rows(results.where(network=network), ROWS), ["train"]
        )
        for network in networks_of(results)
    ]


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results))


EXPERIMENT = Experiment(
    id="figA4",
    title="Training errors of seven methods on VGG-style networks",
    shows="ONI and OLM scaled by sqrt 2 converge faster than the other methods, in epochs, on every network.",
    choices="The runs of Table 1: nothing is trained twice. How fast a training error falls is judged by its mean over "
    "all epochs; that can be seen in short training too, as far as it goes. The training error is that of an epoch's "
    f"augmented images, while the network changes. {CHOICES}{PRESET_CHOICES}",
    presets=PRESETS,
    parameters=(Trial, Final),
    plan=plan,
    measure=make_measure(ROWS),
    paper={"printed numbers": None},
    claims=CLAIMS,
    table=table,
    draw=draw,
    charts=charts,
    trains=True,
    sweeps=describe_sweeps(ROWS),
    describe=describe_run,
    cost=estimate_cost,
)
