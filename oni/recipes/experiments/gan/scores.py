"""What the figures of Inception scores share; their runs are those of other figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from oni.recipes.experiments.experiment import Claim, Judgement, Results
from oni.recipes.experiments.gan.family import PAPER_LENGTH, Player
from oni.recipes.experiments.gan.reading import SCORES, at_the_end, find_runs, missing

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart
    from oni.recipes.experiments.gan.pictures import Places

__all__ = ["NEEDS_SCORES", "judge_scores", "score_charts"]

NEEDS_SCORES = (
    "The Inception score needs the class scores of the Inception network, which --inception FILE has if its network "
    "gives them. Without, a classifier that oni trained on the same data (--classifier RUN) gives a score of its own, "
    "from 1 to its 10 classes, which is not the Inception score."
)


def judge_scores(pairs: Mapping[str, tuple[Player, Player]]) -> Claim:
    """The claim that the second player of every pair has the larger Inception score in every seed."""

    def judge(results: Results) -> Judgement:
        players = [player for pair in pairs.values() for player in pair]
        if reason := missing(results, players, "inception_score"):
            return None, f"{reason} with class scores"
        scores = {
            name: [at_the_end(find_runs(results, player), "inception_score") for player in pair]
            for name, pair in pairs.items()
        }
        text = "; ".join(f"{name}: SN {max(sn):.2f}, ONI {min(ours):.2f}" for name, (sn, ours) in scores.items())
        return all(min(ours) > max(sn) for sn, ours in scores.values()), text

    return Claim("ONI has a larger Inception score than SN", judge, PAPER_LENGTH)


def score_charts(
    title: str,
    x: str,
    results: Results,
    lines: Mapping[str, Places],
    across: Player | None = None,
) -> list[Chart]:
    """A chart for each kind of score that was measured."""
    from oni.recipes.experiments.gan.pictures import COLOURS, end_chart

    coloured = {name: (COLOURS[name], players) for name, players in lines.items()}
    level = ("SN", COLOURS["SN"], across) if across else None
    charts = [
        end_chart(f"{title}: {column.title}", x, column, results, coloured, level)
        for column in SCORES
        if column.name != "kid"
    ]
    return [chart for chart in charts if chart.series]
