"""Figure 2: how fast Algorithm 1 makes a matrix orthogonal."""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING

from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Quantity, Results
from oni.recipes.experiments.synthetic.family import (
    FORMS,
    MANY_SEEDS,
    NO_NUMBERS,
    PRESETS,
    ROUNDING,
    Convergence,
    exact_runs,
    falls,
    first_step_below,
    make_convergence_plan,
    make_stability_claim,
    measure_convergence,
    quantity,
)
from oni.recipes.experiments.texts import format_range
from oni.recipes.experiments.verdicts import Judgement, Kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT", "MEAN", "SHAPE", "STEPS"]

SHAPE, MEAN = (64, 256), 3.0
STEPS = 15
GOOD = 0.1
"""A delta below this share of its initial value is called good."""


# Claims.


def delta_falls(results: Results) -> Judgement:
    runs = exact_runs(results)
    mean = runs.mean("delta_row")
    text = ", ".join(f"{mean[step]:.3f}" for step in (0, 5, 8, 10, 12))
    return all(map(falls, runs.values("delta_row"))), f"mean delta {text} after 0, 5, 8, 10, 12 steps"


def ten_steps_are_required(results: Results) -> Judgement:
    deltas = exact_runs(results).values("delta_row")
    tenth = [first_step_below(delta, GOOD * delta[0]) for delta in deltas]
    small = [first_step_below(delta, 0.1) for delta in deltas]
    return statistics.median(tenth) == 10, (
        f"delta falls below a tenth of its start at step {format_range(tenth)}, below 0.1 at step {format_range(small)}"
    )


def eigenvalues_reach_one(results: Results) -> Judgement:
    by_seed = exact_runs(results).values("eigenvalues")
    steps = sorted(map(int, by_seed[0]))
    least = [min(min(by_step[str(step)]) for by_step in by_seed) for step in steps]
    most = max(max(by_step[str(step)]) for by_step in by_seed for step in steps)
    text = ", ".join(f"{value:.2g}" for value in least)
    rises = all(before < after for before, after in itertools.pairwise(least))
    return rises and most <= 1 + ROUNDING, (
        f"the smallest of W W^T is {text} after {', '.join(map(str, steps))} steps, the largest never above {most:.6g}"
    )


CLAIMS = [
    Claim(Kind.MATHEMATICS, "delta falls with every iteration", delta_falls, MANY_SEEDS),
    Claim(
        Kind.MATHEMATICS, "10 iterations are required for a good orthogonalisation", ten_steps_are_required, MANY_SEEDS
    ),
    Claim(
        Kind.MATHEMATICS,
        "The iteration stretches the eigenvalues of W W^T towards 1",
        eigenvalues_reach_one,
        MANY_SEEDS,
    ),
    make_stability_claim("Algorithm 1 as printed", "literal", "float32", 10, "ONI"),
    make_stability_claim("Algorithm 1 as printed", "literal", "float64", 15, "ONI"),
    make_stability_claim("This library's form of it", "stable", "float32", 15, "ONI"),
]


def make_table(results: Results) -> Comparison:
    """For each step the mean over seeds, stable in float64 with its deviation first."""
    means = [results.where(form=form, precision=precision).mean("delta_row") for form, precision in FORMS]
    deviation = exact_runs(results).deviation("delta_row")
    cells = [
        [Quantity(step, digits=0), quantity(values[0], deviation[step]), *map(quantity, values[1:])]
        for step, values in enumerate(zip(*means, strict=True))
    ]
    columns = ["steps", "stable float64", "stable float32", "as printed float64", "as printed float32"]
    return Comparison(columns, cells, NO_NUMBERS)


def draw(results: Results) -> Figure:
    """Algorithm 1, stable and as printed, and the eigenvalues on the way."""
    from matplotlib.figure import Figure

    from oni.recipes.experiments.synthetic.drawing import HEIGHT, draw_by_step, draw_forms
    from oni.style import COLOURS, PAGE_WIDTH

    figure = Figure(figsize=(PAGE_WIDTH, HEIGHT))
    left, right = figure.subplots(1, 2)
    draw_forms(left, results, "delta_row", "ONI", COLOURS["frobenius"])
    left.set(xlabel="iterations", ylabel=r"$\delta = \|WW^\top - I\|_F$", ylim=(-0.2, 10))
    left.set_title("(a) Distance from orthogonal")
    left.legend(loc="lower left")
    left.set_xticks(range(0, 16, 2))
    draw_by_step(right, exact_runs(results).values("eigenvalues"), COLOURS["frobenius"], floor=1e-4)
    right.set_title("(b) Eigenvalues after t iterations")
    return figure


EXPERIMENT = Experiment(
    id="fig2",
    title="Convergence of Algorithm 1",
    shows="On Z of 64 x 256 entries N(3, 1), Algorithm 1 converges well; 10 iterations are required for a good "
    "orthogonalisation.",
    choices="Algorithm 1 as printed: no centring, Frobenius bound. The paper does not define good; we take it as "
    "delta below a tenth of its initial value.",
    presets=PRESETS,
    parameters=(Convergence,),
    plan=make_convergence_plan(SHAPE, MEAN, ["ONI"], STEPS, (0, 2, 4, 6, 8, 10)),
    measure=measure_convergence,
    paper={"iterations for a good orthogonalization": 10},
    claims=CLAIMS,
    table=make_table,
    draw=draw,
)
