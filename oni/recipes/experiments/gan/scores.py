"""What the figures of Inception scores share; their runs are those of other figures."""

from __future__ import annotations

from functools import partial
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING

from oni.recipes.experiments.errors import find_runs
from oni.recipes.experiments.experiment import Claim, Results
from oni.recipes.experiments.gan.family import PAPER_LENGTH, SHORT, Pairs
from oni.recipes.experiments.gan.table import SCORES, at_the_end, missing
from oni.recipes.experiments.runs import Row
from oni.recipes.experiments.verdicts import Judgement, Kind, Verdict, all_hold, is_lower

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart

__all__ = ["NEEDS_SCORES", "judge_scores", "score_charts"]

NEEDS_SCORES = (
    "The Inception score needs the class scores of the Inception network, which --inception FILE provides if its "
    "network returns them. Otherwise a classifier that oni trained on the same data (--classifier RUN) gives its own "
    "score, from 1 to its 10 classes, which is not the Inception score."
)


def judge_scores(pairs: Pairs) -> list[Claim]:
    """The claims that the second row of every pair has the larger score: the paper's, and by our own classifier."""
    first, _ = next(iter(pairs.values()))
    return [
        Claim(
            Kind.PAPER,
            "ONI has a higher Inception score than SN",
            partial(judge, pairs, "inception_score"),
            PAPER_LENGTH[str(first.changes["network"])],
        ),
        Claim(
            Kind.OURS,
            "Early in training: ONI has a higher class score than SN, by our own classifier",
            partial(judge, pairs, "class_score"),
            SHORT,
        ),
    ]


def judge(pairs: Pairs, name: str, results: Results) -> Judgement:
    """Whether the second row of every pair surely has a larger score than the first."""
    rows = [row for pair in pairs.values() for row in pair]
    if reason := missing(results, rows, name):
        return Verdict.NOT_TESTED, reason
    scores = {label: [final_scores(results, row, name) for row in pair] for label, pair in pairs.items()}
    text = "; ".join(f"{label}: SN {fmean(sn):.2f}, ONI {fmean(ours):.2f}" for label, (sn, ours) in scores.items())
    return all_hold(is_lower(sn, ours, pairs=len(scores)) for sn, ours in scores.values()), text


def final_scores(results: Results, row: Row, name: str) -> list[float]:
    """The scores of a row's seeds: the least, 1, where a run diverged."""
    return [score if isfinite(score) else 1.0 for score in at_the_end(find_runs(results, row), name)]


def score_charts(results: Results, pairs: Pairs) -> list[Chart]:
    """A chart for each kind of score that was measured, by pair."""
    from oni.recipes.experiments.gan.charts import end_charts

    return [chart for chart in end_charts(results, pairs, SCORES) if chart.series]
