"""Figure 7b: errors of a VGG-style network over the number of Newton steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.cifar10.family import Final, Trial, describe_run, estimate_cost, make_measure
from oni.recipes.experiments.cifar10.reading import COLOURS
from oni.recipes.experiments.cifar10.table1 import ONI, PRESETS, make_finals
from oni.recipes.experiments.errors import errors_at, mean_and_deviation
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Quantity, Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]

STEPS = (1, 2, 3, 4, 5, 6, 7)
DEFAULT = 5
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
    return Results(
        run
        for run in results
        if isinstance(run.parameters, Final) and run.parameters.options.get("method_options.steps", DEFAULT) == steps
    )


def table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for steps in STEPS:
        runs = find_steps(results, steps)
        if runs:
            errors = [errors_at(runs, "train"), errors_at(runs, "test")]
            cells.append([f"T = {steps}", *map(mean_and_deviation, errors), Quantity(len(runs), digits=0)])
    return Comparison(["steps", "train", "test", "seeds"], cells, "")


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import sweep_chart

    sweep = [(steps, runs) for steps in STEPS if (runs := find_steps(results, steps))]
    return [sweep_chart("Error at the end", "steps T", sweep, COLOURS["oni"])]


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results))


CLAIMS: list[Claim] = []
EXPERIMENT = Experiment(
    id="fig7b",
    title="Effects of the number of steps: ONI in a VGG-style network",
    shows="Too few and too many steps both make it worse; 5 usually works best without residual connections.",
    choices="As the text has it; what it leaves open is as in the authors' code.",
    presets={
        "smoke": SIZES["smoke"],
        "laptop": {**SIZES["laptop"], "seeds": 1},
        "full": {**SIZES["full"], "networks": ("g2k1",)},
        "paper": {**SIZES["paper"], "networks": ("g2k3",)},
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
    describe=describe_run,
    cost=estimate_cost,
)
