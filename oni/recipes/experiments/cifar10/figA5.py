"""Figure A5: errors of Table 2's networks, epoch by epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oni.recipes.experiments.cifar10 import table2
from oni.recipes.experiments.cifar10.family import (
    LONG,
    SPEED_COLUMNS,
    SPEED_NOTE,
    describe_network,
    make_speed_cells,
    mean_over_epochs,
    name_network,
    row_speeds,
)
from oni.recipes.experiments.cifar10.residual_rows import (
    BATCH_NORM,
    BEGINNINGS,
    CHOICES,
    DEEP,
    EVERY_ROW,
    FIRST_STEPS,
    GROUP_NORM,
    ONI,
    RATE,
    RELEASED_ONI,
    SMALL_RATE,
    at_large_rate,
    find_beginnings,
    find_finals,
    name_beginning,
    on_deep,
)
from oni.recipes.experiments.errors import find_runs, groups_of, style_rows
from oni.recipes.experiments.experiment import Claim, Comparison, Quantity, Results
from oni.recipes.experiments.runs import COLOURS
from oni.recipes.experiments.verdicts import Judgement, Kind, judge_lower

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]


def table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for group in groups_of(find_finals(results))[:1]:
        for row in EVERY_ROW:
            if runs := find_runs(results, row, group):
                cells.append(make_speed_cells(f"{group}, {row.title}", row, runs, *describe_network(group, DEEP)))
    return Comparison(SPEED_COLUMNS, cells, SPEED_NOTE)


def judge_fastest(results: Results) -> Judgement:
    group = groups_of(results)[0]
    return judge_lower(row_speeds(results, [ONI], group), row_speeds(results, [BATCH_NORM, GROUP_NORM], group))


def judge_beginnings(results: Results) -> Judgement:
    """Whether ONI's training error falls faster than that of batch normalisation, at the large rate."""
    ours, theirs = ({row.title: mean_over_epochs(results.where(row=row.name))} for row in (RELEASED_ONI, BATCH_NORM))
    return judge_lower(ours, theirs)


CLAIMS = [
    Claim(
        Kind.PAPER,
        "Res-110: ONI's training error falls faster than those of batch and group normalisation",
        judge_fastest,
        LONG,
        on_deep,
    ),
    Claim(
        Kind.OURS,
        "ONI's training error falls faster than that of batch normalisation in the first three epochs of Res-110",
        judge_beginnings,
        FIRST_STEPS,
        at_large_rate(RELEASED_ONI, BATCH_NORM),
    ),
]


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import error_chart, error_charts

    drawn = []
    for group in groups_of(find_finals(results))[:1]:
        drawn += error_charts(
            f"{name_network(group)}: {{part}} error", style_rows(results, EVERY_ROW, group), log=False
        )
    if beginnings := find_beginnings(results):
        network = beginnings[0].parameters.group.partition(" at ")[0]
        styles, dashes = {}, {}
        for row in BEGINNINGS:
            for rate, dash in ((RATE, "solid"), (SMALL_RATE, "dash")):
                if runs := find_runs(beginnings, row, name_beginning(network, rate)):
                    name = f"{row.title}, {rate:g}"
                    styles[name], dashes[name] = (COLOURS[row.name], runs), dash
        chart = error_chart(f"{name_network(network)}, first epochs: training error", styles, ["train"])
        drawn.append(replace(chart, series=[replace(line, dash=dashes[line.name]) for line in chart.series]))
    return [chart for chart in drawn if chart.series]


EXPERIMENT = replace(
    table2.EXPERIMENT,
    id="figA5",
    title="Errors of a residual network without batch normalisation, by epoch",
    shows="ONI converges significantly faster than batch and group normalisation, in epochs.",
    choices="The runs of Table 2 with large batches: nothing is trained twice. We judge how fast a training error "
    f"falls by its mean over all epochs. {CHOICES}Preset full: Res-20 instead of Res-110, 8 epochs of 10,000 "
    "images, and the first part of training Res-110: three epochs of all images at 0.1, 312 steps at 0.01.",
    paper={"printed numbers": None},
    claims=CLAIMS,
    table=table,
    charts=charts,
    findings="At 0.1 the training error of Res-110 falls faster with ONI as in the released code than with batch "
    "normalisation in both seeds, which is too few to be sure. ONI as described in the text diverges (Table 2 "
    "explains why).",
)
