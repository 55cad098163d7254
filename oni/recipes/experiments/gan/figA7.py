"""Figure A7: the runs of Figure 8, measured by the Inception score."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.experiment import Results
from oni.recipes.experiments.gan import fig8a, fig8b
from oni.recipes.experiments.gan.family import describe_choices
from oni.recipes.experiments.gan.scores import NEEDS_SCORES, judge_scores, score_charts
from oni.recipes.experiments.gan.table import KID, SCORES, make_table
from oni.recipes.experiments.runs import Training

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]

PAIRS = {"T = 2": (fig8a.SN, fig8a.BY_STEPS[2]), **{f"setting {name}": pair for name, pair in fig8b.PAIRS.items()}}
ROWS = [*fig8a.TRAINED, *fig8b.ROWS]


def plan(seed: int, setting_epochs: int, **sizes: Any) -> list[Training]:
    """The runs of both halves, each as long as there."""
    first, second = fig8a.EXPERIMENT.plan, fig8b.EXPERIMENT.plan
    return [*first(seed=seed, **sizes), *second(seed=seed, **{**sizes, "epochs": setting_epochs})]


def charts(results: Results) -> list[Chart]:
    from oni.recipes.experiments.gan.charts import COLOURS, end_chart

    lines, across = {"ONI": (COLOURS["ONI"], fig8a.BY_STEPS)}, ("SN", COLOURS["SN"], fig8a.SN)
    by_steps = [end_chart(f"By steps: {column.title}", "steps T", column, results, lines, across) for column in SCORES]
    return [
        *(chart for chart in by_steps if chart.series),
        *score_charts(results, fig8b.PAIRS),
    ] or fig8a.charts(results)


EXPERIMENT = replace(
    fig8a.EXPERIMENT,
    id="figA7",
    title="DCGAN: Inception scores of Figure 8",
    shows="ONI with T = 2 also beats SN by the Inception score, in all six settings too.",
    choices=describe_choices("the DCGANs of Figure 8", "the runs of fig8a and fig8b", NEEDS_SCORES),
    presets={name: {**sizes, "setting_epochs": fig8b.PRESETS[name]["epochs"]} for name, sizes in fig8a.PRESETS.items()},
    plan=plan,
    paper={"Inception score": {"real images": 10.20}},
    claims=judge_scores(PAIRS),
    table=make_table(ROWS, (*SCORES, KID)),
    charts=charts,
    findings="Our own classifier separates the methods more clearly than KID does in Figure 8a: both seeds of SN have "
    "a higher class score than every seed of ONI, and the mean score falls with the number of steps up to 3. "
    "In the six settings, where ONI has 2 steps and each method one seed, the order is reversed in all but "
    "D. All scores are far below the maximum of 10, because this is so early in training. The class score is "
    "not the Inception score: its network knows only these ten classes.",
)
