"""What the figures of Inception scores share; their runs are those of other figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import isfinite
from statistics import fmean
from typing import TYPE_CHECKING

from oni.recipes.experiments.experiment import Claim, Judgement, Results, all_hold
from oni.recipes.experiments.gan.family import PAPER_LENGTH, SHORT, Player
from oni.recipes.experiments.gan.reading import SCORES, at_the_end, find_runs, missing

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart
    from oni.recipes.experiments.gan.pictures import Pairs

__all__ = ["NEEDS_SCORES", "judge_scores", "score_charts"]

NEEDS_SCORES = (
    "The Inception score needs the class scores of the Inception network, which --inception FILE has if its network "
    "gives them. Without, a classifier that oni trained on the same data (--classifier RUN) gives a score of its own, "
    "from 1 to its 10 classes, which is not the Inception score."
)


def judge_scores(pairs: Mapping[str, tuple[Player, Player]]) -> list[Claim]:
    """The claims that the second player of every pair has the larger score: the paper's, and by our own classifier."""
    return [
        Claim("ONI has a larger Inception score than SN", partial(judge, pairs, "inception_score"), PAPER_LENGTH),
        Claim(
            "By a classifier of our own, ONI has a larger class score than SN in the beginning of training (not a "
            "claim of the paper)",
            partial(judge, pairs, "class_score"),
            SHORT,
        ),
    ]


def judge(pairs: Mapping[str, tuple[Player, Player]], name: str, results: Results) -> Judgement:
    """Whether all seeds of the second player of every pair have a larger score than all seeds of the first.

    ``None`` if that is so of the mean alone.
    """
    players = [player for pair in pairs.values() for player in pair]
    if reason := missing(results, players, name):
        return None, reason
    scores = {label: [final_scores(results, player, name) for player in pair] for label, pair in pairs.items()}
    text = "; ".join(f"{label}: SN {fmean(sn):.2f}, ONI {fmean(ours):.2f}" for label, (sn, ours) in scores.items())
    held = all_hold(is_larger(ours, sn) for sn, ours in scores.values())
    return held, text if held is not None else f"undecided: the means are larger, but seeds differ as much; {text}"


def final_scores(results: Results, player: Player, name: str) -> list[float]:
    """The scores of a player's seeds: the least, 1, where a run diverged."""
    return [score if isfinite(score) else 1.0 for score in at_the_end(find_runs(results, player), name)]


def is_larger(values: Sequence[float], others: Sequence[float]) -> bool | None:
    """Whether all values are larger than all others; ``None`` if their mean is."""
    if min(values) > max(others):
        return True
    return None if fmean(values) > fmean(others) else False


def score_charts(results: Results, pairs: Pairs) -> list[Chart]:
    """A chart for each kind of score that was measured, by pair."""
    from oni.recipes.experiments.gan.pictures import pair_charts

    columns = [column for column in SCORES if column.name != "kid"]
    return [chart for chart in pair_charts(results, pairs, columns) if chart.series]
