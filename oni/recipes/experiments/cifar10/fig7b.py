"""Figure 7b: errors of a VGG-style network over the number of Newton steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.cifar10.family import (
    LONG,
    TEST_IMAGES,
    TRAINS,
    describe_differences,
    describe_network,
    name_network,
)
from oni.recipes.experiments.cifar10.table1 import CHOICES, ONI, PRESETS, plan_network
from oni.recipes.experiments.errors import (
    COST_COLUMNS,
    COST_NOTE,
    errors_at,
    find_runs,
    groups_of,
    list_rates,
    mean_and_deviation,
    style_rows,
    summarise_cost,
)
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Quantity, Results
from oni.recipes.experiments.runs import COLOURS, Training, describe_sweeps
from oni.recipes.experiments.verdicts import Judgement, Kind, judge_as_good_as_best, judge_worse_than_best

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]

DEFAULT = 5
BY_STEPS = {
    steps: replace(
        ONI, name=f"T = {steps}", title=f"T = {steps}", changes={**ONI.changes, "method_options.steps": steps}
    )
    for steps in (1, 2, 3, 4, 5, 6, 7)
}
PAPER_NETWORK = "g2k3"
NOTABLE = 1.0
"""Percentage points that are called a difference: what 10,000 test images can tell."""
SIZES = {
    name: {key: value for key, value in sizes.items() if key not in ("ours", "sparing")}
    for name, sizes in PRESETS.items()
}


def plan(
    seed: int, *, networks: tuple[str, ...], seeds: int, numbers: tuple[int, ...] = tuple(BY_STEPS), **sizes: Any
) -> list[Training]:
    """The learning rate is the one that is best for 5 steps, from the trials of Table 1, whose runs those are."""
    trial = sizes.pop("trial", None)
    searched = None if trial is None else {**trial, "method_options.steps": DEFAULT}
    rows = [BY_STEPS[steps] for steps in numbers]
    every_seed = range(seed, seed + seeds)
    return [run for network in networks for run in plan_network(rows, network, every_seed, trial=searched, **sizes)]


def table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for row in BY_STEPS.values():
        if runs := find_runs(results, row):
            training = runs[0].parameters
            differences = [*describe_network(training.group, PAPER_NETWORK), *describe_differences(training, row)]
            cells.append(
                [
                    row.title,
                    *(mean_and_deviation(errors_at(runs, part)) for part in ("train", "test")),
                    list_rates(runs),
                    Quantity(len(runs), digits=0),
                    *summarise_cost(runs),
                    "; ".join(differences) or "nothing",
                ]
            )
    note = (
        "Errors in percent at the end, means over seeds ± their standard deviation. The paper shows a plot and no "
        f"numbers. {COST_NOTE}"
    )
    columns = ["steps", "train", "test", "learning rate", "seeds", *COST_COLUMNS, "what differs"]
    return Comparison(columns, cells, note)


# Claims.


def errors_by_steps(results: Results) -> dict[int, list[float]]:
    """The test errors of all seeds, by number of steps."""
    return {steps: errors_at(runs, "test") for steps, row in BY_STEPS.items() if (runs := find_runs(results, row))}


def too_few_hurt(results: Results) -> Judgement:
    errors = errors_by_steps(results)
    return judge_worse_than_best(errors, min(errors), TEST_IMAGES)


def too_many_hurt(results: Results) -> Judgement:
    errors = errors_by_steps(results)
    return judge_worse_than_best(errors, max(errors), TEST_IMAGES)


def five_are_best(results: Results) -> Judgement:
    return judge_as_good_as_best(errors_by_steps(results), DEFAULT, NOTABLE, trains=TRAINS, images=TEST_IMAGES)


CLAIMS = [
    Claim(Kind.PAPER, text, judge, LONG)
    for text, judge in (
        ("Too few steps make it worse", too_few_hurt),
        ("Too many steps make it worse", too_many_hurt),
        (f"5 steps are as good as the best, within {NOTABLE:g} point", five_are_best),
    )
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import error_chart, ramp, sweep_chart

    by_steps = {steps: runs for steps, row in BY_STEPS.items() if (runs := find_runs(results, row))}
    name = name_network(groups_of(results)[0])
    colours = ramp(COLOURS["oni"], len(by_steps))
    styles = style_rows(results, [BY_STEPS[steps] for steps in by_steps], colours=colours)
    return [
        sweep_chart(f"{name}: error at the end", "steps T", list(by_steps.items()), COLOURS["oni"]),
        error_chart(f"{name}: training error", styles, ["train"]),
    ]


EXPERIMENT = Experiment(
    id="fig7b",
    title="Effects of the number of steps: ONI in a VGG-style network",
    shows="Too few and too many steps both make it worse; 5 usually works best without residual connections.",
    choices="As in Table 1, which shares the runs with 5 steps; the learning rate is the best one for 5 steps. The "
    "paper does not say which numbers of steps it plots; we use 1 to 7. Preset full: 2, 3, 5 and 7 steps, g = "
    "2, k = 1 instead of the paper's g = 2, k = 3, 30 of 160 epochs, two seeds, convolutions in bfloat16. "
    f"{CHOICES.strip()}",
    presets={
        "smoke": SIZES["smoke"],
        "laptop": {**SIZES["laptop"], "seeds": 1},
        "full": {**SIZES["full"], "seeds": 2, "numbers": (2, 3, 5, 7)},
        "paper": {**SIZES["paper"], "networks": (PAPER_NETWORK,)},
    },
    plan=plan,
    claims=CLAIMS,
    table=table,
    charts=charts,
    trains=True,
    sweeps=describe_sweeps(
        list(BY_STEPS.values()),
        network="has a network of its own",
        method="varies ONI alone",
        learning_rate="chooses it on images held out",
    ),
)
