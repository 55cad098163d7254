"""Figure 7a: errors of a 6-layer MLP over the number of Newton steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oni.recipes.experiments.errors import count_test_images, errors_at, find_runs
from oni.recipes.experiments.experiment import Claim, Results
from oni.recipes.experiments.fashion_mnist.family import (
    COLOURS,
    NOTABLE,
    PRINTED,
    TRAINS,
    TWO_SEEDS,
    make_figure,
    mlp,
    style_rows,
)
from oni.recipes.experiments.verdicts import (
    Judgement,
    Kind,
    judge_as_good_as_best,
    judge_equal,
    judge_worse_than_best,
)

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart

__all__ = ["BY_STEPS", "EXPERIMENT", "with_steps"]


def with_steps(steps: int) -> dict[str, object]:
    """The options of ONI as the paper has it, with a number of steps."""
    return {**PRINTED, "steps": steps}


BY_STEPS = {steps: mlp(6, "oni", with_steps(steps), rate=0.5 if steps == 7 else 1.0) for steps in range(1, 8)}
ROWS = list(BY_STEPS.values())


# Claims.


def errors_by_steps(results: Results, part: str = "test") -> dict[int, list[float]]:
    """The errors of all seeds, by number of steps."""
    return {steps: errors_at(find_runs(results, network), part) for steps, network in BY_STEPS.items()}


def too_few_hurt(results: Results) -> Judgement:
    return judge_worse_than_best(errors_by_steps(results), 1, count_test_images(results))


def five_are_best(results: Results) -> Judgement:
    return judge_as_good_as_best(errors_by_steps(results), 5, NOTABLE, trains=TRAINS, images=count_test_images(results))


def nearly_equal(results: Results) -> Judgement:
    errors = errors_by_steps(results)
    pairs = {f"{steps} and 7 steps": (errors[steps], errors[7]) for steps in (5, 6)}
    return judge_equal(pairs, NOTABLE, trains=TRAINS, images=count_test_images(results))


CLAIMS = [
    Claim(Kind.PAPER, "Too few steps make it worse", too_few_hurt, TWO_SEEDS),
    Claim(Kind.PAPER, f"5 steps are as good as the best, within {NOTABLE:g} point", five_are_best, TWO_SEEDS),
    Claim(Kind.PAPER, f"5 to 7 steps are nearly equal: test errors within {NOTABLE:g} point", nearly_equal, TWO_SEEDS),
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import error_chart, sweep_chart

    sweep = [(steps, find_runs(results, network)) for steps, network in BY_STEPS.items()]
    return [
        sweep_chart("6 layers, error at the end", "steps T", sweep, COLOURS["ONI"]),
        error_chart("6 layers, training error", style_rows(results, ROWS, shades=True), ["train"]),
    ]


EXPERIMENT = make_figure(
    ROWS,
    id="fig7a",
    title="Effects of the number of steps: ONI in a 6-layer MLP",
    shows="Too few steps make it worse; 5 usually works best without residual connections. On this simple data set "
    "larger numbers are nearly equal.",
    text="The paper does not say which numbers of steps it plots; we use 1 to 7, as in its Figure A6. The learning "
    "rate is chosen for each number.",
    claims=CLAIMS,
    charts=charts,
    findings="With one step the singular values, and therefore the signal, are so small that one seed is still far "
    "behind at the end.",
)
