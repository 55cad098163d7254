"""Figure 7c: errors of ResNet-18 without batch normalisation over the number of Newton steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.errors import errors_at, judge_as_good_as_best, judge_worse_than_best, mean_and_deviation
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Judgement, Quantity, Results, Run
from oni.recipes.experiments.imagenet.family import (
    AGAIN,
    LONG,
    PRESETS,
    SHORT,
    Training,
    describe_run,
    describe_sweeps,
    estimate_cost,
    make_runs,
)
from oni.recipes.experiments.imagenet.reading import (
    counted_images,
    describe_choice,
    describe_differences,
    lowest_errors,
)
from oni.recipes.experiments.imagenet.residual import BATCH, CELLS, STEPS
from oni.recipes.experiments.imagenet.table4 import CHOICES, RATES, SMALL, TINY
from oni.recipes.experiments.imagenet.training import make_demand, make_measure
from oni.recipes.experiments.rows import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]

NETWORK = "resnet18"
ONI = CELLS["none", "oni"]
VARIED = (1, 2, 3, 4, 5, 7)


def plan(
    seed: int, *, seeds: int, options: dict[str, Any] | None = None, batch_size: int = BATCH, **sizes: Any
) -> list[Training]:
    """Every number of steps with each seed; those of Table 4 are runs of that table."""
    runs = []
    for number in range(seed, seed + seeds):
        for steps in VARIED:
            varied = {} if steps == STEPS else {"method_options.steps": steps}
            every = {**(options or {}), **varied}
            (run,) = make_runs([ONI], NETWORK, [number], options=every, batch_size=batch_size, **sizes)
            runs.append(run)
    return runs


def find_steps(results: Results, steps: int) -> Results:
    """The runs with so many steps."""

    def matches(run: Run) -> bool:
        return bool(run.parameters.options.get("method_options.steps", STEPS) == steps)

    return Results(filter(matches, results))


def table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for steps in VARIED:
        if runs := find_steps(results, steps):
            errors = [errors_at(runs, "train"), lowest_errors(runs), errors_at(runs, "test")]
            cells.append(
                [
                    f"T = {steps}",
                    *map(mean_and_deviation, errors),
                    describe_choice(runs),
                    Quantity(len(runs), digits=0),
                ]
            )
    columns = ["steps", "last, train", "lowest, test", "last, test", "learning rate", "seeds"]
    note = "Errors in percent, means over seeds ± their standard deviation. The paper draws this and prints no numbers."
    return Comparison(columns, cells, note + describe_differences(results))


# Claims.


def errors_by_steps(results: Results) -> dict[int, list[float]]:
    """The test errors of all seeds, by number of steps."""
    return {number: errors_at(find_steps(results, number), "test") for number in VARIED}


def too_few_hurt(results: Results) -> Judgement:
    return judge_worse_than_best(errors_by_steps(results), VARIED[0], counted_images(results))


def too_many_hurt(results: Results) -> Judgement:
    return judge_worse_than_best(errors_by_steps(results), VARIED[-1], counted_images(results))


def two_are_best(results: Results) -> Judgement:
    return judge_as_good_as_best(errors_by_steps(results), STEPS, counted_images(results))


CLAIMS = [
    Claim("Too few steps make it worse", too_few_hurt, LONG),
    Claim("Too many steps make it worse", too_many_hurt, LONG),
    Claim("2 steps are as good as the best", two_are_best, LONG),
    Claim(AGAIN + "too few steps make it worse", too_few_hurt, SHORT),
    Claim(AGAIN + "too many steps make it worse", too_many_hurt, SHORT),
    Claim(AGAIN + "2 steps are as good as the best", two_are_best, SHORT),
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import sweep_chart

    sweep = [(steps, runs) for steps in VARIED if (runs := find_steps(results, steps))]
    return [sweep_chart("ResNet-18 without BN: error at the end", "steps T", sweep, COLOURS["oni"])]


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results))


EXPERIMENT = Experiment(
    id="fig7c",
    title="Effects of the number of steps: ONI in ResNet-18 without BN, ImageNet",
    shows="Too few and too many steps both make it worse; 2 usually work best in residual networks.",
    choices=CHOICES + "The caption says ResNet-18, the text without BN. The paper does not say which numbers of steps "
    "it draws; here 1 to 5 and 7. With 2 steps these are runs of Table 4. Its released code has 3 steps for this "
    "network. Presets laptop and full as in Table 4.",
    presets={
        "smoke": {**PRESETS["smoke"], "options": TINY},
        "laptop": {**PRESETS["laptop"], "options": SMALL},
        "full": {**PRESETS["full"], "options": SMALL, "trial_epochs": 3, "rates": RATES},
        "paper": PRESETS["paper"],
    },
    parameters=(Training,),
    plan=plan,
    measure=make_measure([ONI]),
    paper={"printed numbers": None},
    claims=CLAIMS,
    table=table,
    draw=draw,
    charts=charts,
    trains=True,
    sweeps=describe_sweeps([ONI], **{"method_options.steps": "compares numbers of steps"}),
    describe=describe_run,
    cost=estimate_cost,
    demand=make_demand([ONI], {NETWORK: "one GPU"}),
)
