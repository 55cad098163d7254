"""Figure A4: training errors of Table 1's networks, epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from oni.recipes.experiments.cifar10 import table1
from oni.recipes.experiments.cifar10.family import (
    LONG,
    SPEED_COLUMNS,
    SPEED_NOTE,
    judge_all,
    make_speed_cells,
    name_network,
    on_first_network,
    row_speeds,
)
from oni.recipes.experiments.cifar10.table1 import (
    BATCH_NORM,
    BEST,
    CHOICES,
    ONI,
    OTHERS,
    PAPER_ROWS,
    PLAIN,
    PRESET_CHOICES,
    ROWS,
    SCALED,
)
from oni.recipes.experiments.errors import about, find_runs, groups_of, style_rows
from oni.recipes.experiments.experiment import Claim, Comparison, Quantity, Results
from oni.recipes.experiments.runs import Row
from oni.recipes.experiments.verdicts import Judgement, Kind, judge_lower

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]


def table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for network in groups_of(results):
        for row in ROWS:
            if runs := find_runs(results, row, network):
                cells.append(make_speed_cells(f"{network}, {row.title}", row, runs))
    return Comparison(SPEED_COLUMNS, cells, SPEED_NOTE)


def judge_speeds(results: Results, network: str, own: Sequence[Row], others: Sequence[Row]) -> Judgement:
    """Whether the training errors of rows fall faster than those of others."""
    ours, theirs = (row_speeds(results, rows, network) for rows in (own, others))
    return judge_lower(ours, theirs)


CLAIMS = [
    Claim(
        Kind.PAPER,
        "The training errors of ONI and OLM-sqrt2 fall fastest",
        judge_all(partial(judge_speeds, own=BEST, others=OTHERS)),
        LONG,
        about(*PAPER_ROWS),
    ),
    Claim(
        Kind.PAPER,
        "ONI's training error falls faster than that of the plain network",
        judge_all(partial(judge_speeds, own=[ONI], others=[PLAIN])),
        LONG,
        about(ONI, PLAIN),
    ),
    *(
        Claim(
            Kind.OURS,
            f"ONI's training error falls faster than that of {name}",
            judge_all(partial(judge_speeds, own=[ONI], others=[row])),
            LONG,
            on_first_network(ONI, row),
        )
        for row, name in ((SCALED, SCALED.title), (BATCH_NORM, "batch normalisation"))
    ),
]


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import error_chart

    return [
        error_chart(f"{name_network(network)}: training error", style_rows(results, ROWS, network), ["train"])
        for network in groups_of(results)
    ]


EXPERIMENT = replace(
    table1.EXPERIMENT,
    id="figA4",
    title="Training errors of seven methods on VGG-style networks",
    shows="ONI and OLM scaled by sqrt 2 converge faster than the other methods, in epochs, on every network.",
    choices="The runs of Table 1: nothing is trained twice. We judge how fast a training error falls by its mean over "
    "all epochs. The training error is measured on the augmented images of an epoch, while the network "
    f"changes. {CHOICES}{PRESET_CHOICES}",
    paper={"printed numbers": None},
    claims=CLAIMS,
    table=table,
    charts=charts,
    findings="",
)
