"""Figure 7b: errors of a VGG-style network over the number of Newton steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.cifar10.family import (
    LONG,
    SHORT,
    Final,
    Trial,
    describe_run,
    describe_sweeps,
    estimate_cost,
    name_network,
)
from oni.recipes.experiments.cifar10.reading import (
    counted_images,
    describe_differences,
    describe_network,
    final_runs,
    networks_of,
)
from oni.recipes.experiments.cifar10.table1 import CHOICES
from oni.recipes.experiments.cifar10.training import make_measure
from oni.recipes.experiments.cifar10.vgg import ONI, PRESETS, make_finals
from oni.recipes.experiments.errors import errors_at, judge_as_good_as_best, judge_worse_than_best, mean_and_deviation
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Judgement, Quantity, Results, Run
from oni.recipes.experiments.rows import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]

STEPS = (1, 2, 3, 4, 5, 6, 7)
DEFAULT = 5
PAPER_NETWORK = "g2k3"
SIZES = {name: {key: value for key, value in sizes.items() if key != "ours"} for name, sizes in PRESETS.items()}


def plan(seed: int, *, networks: tuple[str, ...], seeds: int, search: str = "first", **sizes: Any) -> list[Any]:
    """The learning rate is the one that is best for 5 steps, from the trials of Table 1."""
    runs: list[Any] = []
    for network in networks:
        for number in range(seed, seed + seeds):
            for steps in STEPS:
                # Without options these are the runs of Table 1.
                options = {} if steps == DEFAULT else {"method_options.steps": steps}
                (final,) = make_finals(
                    [ONI],
                    network,
                    [number],
                    searched=network,
                    first_seed=seed,
                    search=search,
                    options=options,
                    **sizes,
                )
                runs.extend(trial for trial in final.trials() if trial not in runs)
                runs.append(final)
    return runs


def find_steps(results: Results, steps: int) -> Results:
    """The final runs with so many steps."""

    def matches(run: Run) -> bool:
        return bool(run.parameters.options.get("method_options.steps", DEFAULT) == steps)

    return Results(filter(matches, final_runs(results)))


def table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for steps in STEPS:
        if runs := find_steps(results, steps):
            errors = [errors_at(runs, "train"), errors_at(runs, "test")]
            rate = Quantity(runs[0].measured["learning_rate"], digits=None)
            run = runs[0].parameters
            differences = [*describe_network(run.network, PAPER_NETWORK), *describe_differences(run, ONI)]
            cells.append(
                [
                    f"T = {steps}",
                    *map(mean_and_deviation, errors),
                    rate,
                    Quantity(len(runs), digits=0),
                    "; ".join(differences) or "nothing",
                ]
            )
    note = "Errors in percent at the end, means over seeds ± their standard deviation. The paper draws this and prints "
    return Comparison(["steps", "train", "test", "learning rate", "seeds", "what differs"], cells, note + "no numbers.")


# Claims.


def errors_by_steps(results: Results) -> dict[int, list[float]]:
    """The test errors of all seeds, by number of steps."""
    return {number: errors_at(find_steps(results, number), "test") for number in STEPS}


def too_few_hurt(results: Results) -> Judgement:
    return judge_worse_than_best(errors_by_steps(results), min(STEPS), counted_images(results))


def too_many_hurt(results: Results) -> Judgement:
    return judge_worse_than_best(errors_by_steps(results), max(STEPS), counted_images(results))


def five_are_best(results: Results) -> Judgement:
    return judge_as_good_as_best(errors_by_steps(results), DEFAULT, counted_images(results))


CLAIMS = [
    Claim(words.format(text), judge, needs, final_runs)
    for words, needs in (("In full training, {}", LONG), ("Also in short training, {}", SHORT))
    for text, judge in (
        ("too few steps make it worse", too_few_hurt),
        ("too many steps make it worse", too_many_hurt),
        ("5 steps are as good as the best", five_are_best),
    )
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import error_chart, ramp, sweep_chart

    by_steps = {steps: runs for steps in STEPS if (runs := find_steps(results, steps))}
    name = name_network(networks_of(results)[0])
    colours = ramp(COLOURS["oni"], len(by_steps))
    styles = {f"T = {steps}": (colour, by_steps[steps]) for steps, colour in zip(by_steps, colours, strict=True)}
    return [
        sweep_chart(f"{name}: error at the end", "steps T", list(by_steps.items()), COLOURS["oni"]),
        error_chart(f"{name}: training error", styles, ["train"]),
    ]


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results))


EXPERIMENT = Experiment(
    id="fig7b",
    title="Effects of the number of steps: ONI in a VGG-style network",
    shows="Too few and too many steps both make it worse; 5 usually works best without residual connections.",
    choices="As Table 1, whose runs with 5 steps these are; the learning rate is the one that is best for 5 steps. The "
    "paper does not say which numbers of steps it draws; here 1 to 7. Preset full: g = 2, k = 1 instead of the paper's "
    "g = 2, k = 3, 8 epochs of 10,000 images, two seeds. The paper's claims are about networks trained to the end, so "
    f"they are not tested there, and what is judged says that training was short. {CHOICES.strip()}",
    presets={
        "smoke": SIZES["smoke"],
        "laptop": {**SIZES["laptop"], "seeds": 1},
        "full": {**SIZES["full"], "networks": ("g2k1",)},
        "paper": {**SIZES["paper"], "networks": (PAPER_NETWORK,)},
    },
    parameters=(Trial, Final),
    plan=plan,
    measure=make_measure([ONI]),
    paper={"printed numbers": None},
    claims=CLAIMS,
    table=table,
    draw=draw,
    charts=charts,
    trains=True,
    sweeps={**describe_sweeps([ONI]), "method_options.steps": "compares 1 to 7 steps"},
    describe=describe_run,
    cost=estimate_cost,
    findings="With 1 step nothing is learnt, with 2 and 3 less than with more; from 4 on the errors are level, as in "
    "Figure 7a. That too many steps hurt is not seen up to 7, and can't be at this length of training: Z starts "
    "orthogonal and stays near it (oni inspect shows condition numbers below 2 at the end), so that 5 steps already "
    "make the weights orthogonal and 7 give the same ones.",
)
