"""Figure 7c: errors of ResNet-18 without batch normalisation over the number of Newton steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.errors import count_test_images, errors_at, find_runs, mean_and_deviation
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Quantity, Results
from oni.recipes.experiments.imagenet.family import (
    AGAIN,
    BATCH,
    CELLS,
    LONG,
    PRESETS,
    SHORT,
    STEPS,
    SWEEPS,
    describe_differences,
    format_choice,
    lowest_errors,
    make_demand,
    plan_network,
)
from oni.recipes.experiments.imagenet.table4 import CHOICES, NOTABLE, RATES, SMALL, TINY, TRAINS
from oni.recipes.experiments.runs import COLOURS, Training, describe_sweeps
from oni.recipes.experiments.verdicts import Judgement, Kind, judge_as_good_as_best, judge_worse_than_best

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]

NETWORK = "resnet18"
ONI = CELLS["none", "oni"]
BY_STEPS = {
    steps: replace(
        ONI, name=f"T = {steps}", title=f"T = {steps}", changes={**ONI.changes, "method_options.steps": steps}
    )
    for steps in (1, 2, 3, 4, 5, 7)
}


def plan(seed: int, *, seeds: int, batch_size: int = BATCH, **sizes: Any) -> list[Training]:
    """Every number of steps with each seed; those of Table 4 are runs of that table."""
    rows = list(BY_STEPS.values())
    return plan_network(rows, NETWORK, range(seed, seed + seeds), batch_size=batch_size, **sizes)


def table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for row in BY_STEPS.values():
        if runs := find_runs(results, row):
            errors = [errors_at(runs, "train"), lowest_errors(runs), errors_at(runs, "test")]
            cells.append(
                [
                    row.title,
                    *map(mean_and_deviation, errors),
                    format_choice(runs, row),
                    Quantity(len(runs), digits=0),
                ]
            )
    columns = ["steps", "last, train", "lowest, test", "last, test", "learning rate", "seeds"]
    note = "Errors in percent, means over seeds ± their standard deviation. The paper shows a plot and no numbers."
    return Comparison(columns, cells, note + describe_differences(results))


# Claims.


def errors_by_steps(results: Results) -> dict[int, list[float]]:
    """The test errors of all seeds, by number of steps."""
    return {steps: errors_at(find_runs(results, row), "test") for steps, row in BY_STEPS.items()}


def too_few_hurt(results: Results) -> Judgement:
    return judge_worse_than_best(errors_by_steps(results), min(BY_STEPS), count_test_images(results))


def too_many_hurt(results: Results) -> Judgement:
    return judge_worse_than_best(errors_by_steps(results), max(BY_STEPS), count_test_images(results))


def two_are_best(results: Results) -> Judgement:
    return judge_as_good_as_best(
        errors_by_steps(results), STEPS, NOTABLE, trains=TRAINS, images=count_test_images(results)
    )


CLAIMS = [
    Claim(Kind.PAPER, "Too few steps make it worse", too_few_hurt, LONG),
    Claim(Kind.PAPER, "Too many steps make it worse", too_many_hurt, LONG),
    Claim(Kind.PAPER, f"2 steps are as good as the best, within {NOTABLE:g} point", two_are_best, LONG),
    Claim(Kind.OURS, AGAIN + "too few steps make it worse", too_few_hurt, SHORT),
    Claim(Kind.OURS, AGAIN + "too many steps make it worse", too_many_hurt, SHORT),
    Claim(Kind.OURS, AGAIN + f"2 steps are as good as the best, within {NOTABLE:g} point", two_are_best, SHORT),
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import sweep_chart

    sweep = [(steps, runs) for steps, row in BY_STEPS.items() if (runs := find_runs(results, row))]
    return [sweep_chart("ResNet-18 without BN: error at the end", "steps T", sweep, COLOURS["oni"])]


EXPERIMENT = Experiment(
    id="fig7c",
    title="Effects of the number of steps: ONI in ResNet-18 without BN, ImageNet",
    shows="Too few and too many steps both make it worse; 2 usually works best in residual networks.",
    choices=CHOICES + "The caption says ResNet-18, the text says without BN. The paper does not say which numbers of "
    "steps it plots; we use 1 to 5 and 7. The runs with 2 steps are those of Table 4. The released "
    "code has 3 steps for this network. Presets laptop and full as in Table 4.",
    presets={
        "smoke": {**PRESETS["smoke"], "options": TINY},
        "laptop": {**PRESETS["laptop"], "options": SMALL},
        "full": {**PRESETS["full"], "options": SMALL, "trial_epochs": 3, "rates": RATES},
        "paper": PRESETS["paper"],
    },
    plan=plan,
    claims=CLAIMS,
    table=table,
    charts=charts,
    trains=True,
    sweeps=describe_sweeps(list(BY_STEPS.values()), **SWEEPS, method="varies ONI alone"),
    demand=make_demand({NETWORK: "one GPU"}),
)
