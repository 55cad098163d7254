"""Figure 7a: errors of a 6-layer MLP over the number of Newton steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oni.recipes.experiments.errors import errors_at, judge_as_good_as_best, judge_worse_than_best, mean_error
from oni.recipes.experiments.experiment import Claim, Experiment, Judgement, Results
from oni.recipes.experiments.fashion_mnist.family import (
    LONG,
    PRESETS,
    PRINTED,
    TEST_IMAGES,
    Network,
    Training,
    describe_choices,
    describe_sweeps,
    describe_training,
    estimate_cost,
    make_measure,
    make_plan,
)
from oni.recipes.experiments.fashion_mnist.reading import COLOURS, NOTABLE, find_runs, make_table, style_networks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = ["BY_STEPS", "EXPERIMENT", "with_steps"]


def with_steps(steps: int) -> dict[str, object]:
    """The options of ONI as the paper has it, with a number of steps."""
    return {**PRINTED, "steps": steps}


BY_STEPS = {steps: Network(6, "oni", with_steps(steps), rate=0.5 if steps == 7 else 1.0) for steps in range(1, 8)}
NETWORKS = list(BY_STEPS.values())


# Claims.


def means_by_steps(results: Results, part: str) -> dict[int, float]:
    return {steps: mean_error(find_runs(results, network), part) for steps, network in BY_STEPS.items()}


def errors_by_steps(results: Results) -> dict[int, list[float]]:
    """The test errors of all seeds, by number of steps."""
    return {steps: errors_at(find_runs(results, network), "test") for steps, network in BY_STEPS.items()}


def count_test_images(results: Results) -> int:
    return TEST_IMAGES[results[0].parameters.data]


def too_few_hurt(results: Results) -> Judgement:
    return judge_worse_than_best(errors_by_steps(results), 1, count_test_images(results))


def too_many_hurt(results: Results) -> Judgement:
    return judge_worse_than_best(errors_by_steps(results), 7, count_test_images(results))


def five_are_best(results: Results) -> Judgement:
    return judge_as_good_as_best(errors_by_steps(results), 5, count_test_images(results))


def nearly_equal(results: Results) -> Judgement:
    ranges = {}
    for part in ("train", "test"):
        values = [value for steps, value in means_by_steps(results, part).items() if steps >= 5]
        ranges[part] = max(values) - min(values)
    return max(ranges.values()) < NOTABLE, ", ".join(
        f"{part} errors within {value:.2f} points" for part, value in ranges.items()
    )


TWO_SEEDS = {**LONG, "seeds": 2}
CLAIMS = [
    Claim("Too few steps make it worse", too_few_hurt, TWO_SEEDS),
    Claim("Too many steps make it worse", too_many_hurt, TWO_SEEDS),
    Claim("5 steps are as good as the best", five_are_best, TWO_SEEDS),
    Claim("5 to 7 steps are nearly equal", nearly_equal, LONG),
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import error_chart, sweep_chart

    sweep = [(steps, find_runs(results, network)) for steps, network in BY_STEPS.items()]
    return [
        sweep_chart("6 layers, error at the end", "steps T", sweep, COLOURS["ONI"]),
        error_chart("6 layers, training error", style_networks(results, NETWORKS, shades=True), ["train"]),
    ]


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results))


EXPERIMENT = Experiment(
    id="fig7a",
    title="Effects of the number of steps: ONI in a 6-layer MLP",
    shows="Too few and too many steps both make it worse; 5 usually works best without residual connections. For this "
    "simple data set larger numbers are nearly equal.",
    choices=describe_choices(
        NETWORKS,
        "The paper does not say which numbers of steps it draws; here 1 to 7, as in its Figure A6. The learning rate "
        "is chosen for each.",
    ),
    presets=PRESETS,
    parameters=(Training,),
    plan=make_plan(NETWORKS),
    measure=make_measure(),
    paper={"printed numbers": None},
    claims=CLAIMS,
    table=make_table(NETWORKS),
    draw=draw,
    charts=charts,
    trains=True,
    sweeps=describe_sweeps(NETWORKS),
    describe=describe_training,
    cost=estimate_cost,
    findings="Up to 7 steps, more are never worse in test error: on this data set the paper itself says that larger "
    "numbers are nearly equal. With one step the singular values, and with them the signal, are so small that one seed "
    "is still far behind at the end.",
)
