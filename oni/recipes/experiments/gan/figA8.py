"""Figure A8: the runs of Figure 9, measured by the Inception score."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oni.recipes.experiments.experiment import Results
from oni.recipes.experiments.gan import fig9
from oni.recipes.experiments.gan.family import describe_choices
from oni.recipes.experiments.gan.scores import NEEDS_SCORES, judge_scores, score_charts
from oni.recipes.experiments.gan.table import KID, SCORES, make_table

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]


def charts(results: Results) -> list[Chart]:
    return score_charts(results, fig9.PAIRS) or fig9.charts(results)


EXPERIMENT = replace(
    fig9.EXPERIMENT,
    id="figA8",
    title="ResNet GAN: Inception scores of Figure 9",
    shows="ONI also beats SN by the Inception score, with both losses.",
    choices=describe_choices("the ResNet GANs of Figure 9", "the runs of fig9", NEEDS_SCORES),
    claims=judge_scores(fig9.PAIRS),
    table=make_table(fig9.ROWS, (*SCORES, KID)),
    charts=charts,
    findings="By our own classifier, SN has the higher class score, except for the hinge loss with average pooling, "
    "where ONI has. With sum pooling, as the paper prints it, SN is further ahead than with averages. One "
    "seed each, early in training; this is not the Inception score.",
)
