"""Figure 3: how centring and compact spectral bounding (CSB) speed up the iteration."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING

from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Quantity, Results
from oni.recipes.experiments.synthetic.family import (
    MANY_SEEDS,
    NO_NUMBERS,
    PRESETS,
    ROUNDING,
    VARIANTS,
    Convergence,
    exact_runs,
    first_step_below,
    make_convergence_plan,
    make_stability_claim,
    measure_convergence,
    quantity,
)
from oni.recipes.experiments.synthetic.fig2 import MEAN, SHAPE, STEPS
from oni.recipes.experiments.texts import format_range
from oni.recipes.experiments.verdicts import Judgement, Kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT"]

LEVELS = (1.0, 0.1, 0.01)


# Claims.


def converges_faster(fast: str, slow: str) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        quicker, slower = (exact_runs(results, variant=name).values("delta_row") for name in (fast, slow))
        ahead = all(
            a[step] < b[step] or b[step] < ROUNDING
            for a, b in zip(quicker, slower, strict=True)
            for step in range(1, STEPS + 1)
        )
        mean = [exact_runs(results, variant=name).mean("delta_row")[5] for name in (fast, slow)]
        return ahead, f"at every step in every seed; at step 5 the mean delta is {mean[0]:.3f} against {mean[1]:.3f}"

    return judge


def saves_whole_steps(fast: str, slow: str) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        quicker, slower = (exact_runs(results, variant=name).values("delta_row") for name in (fast, slow))
        saved = {
            level: [
                first_step_below(b, level) - first_step_below(a, level) for a, b in zip(quicker, slower, strict=True)
            ]
            for level in LEVELS
        }
        text = "; ".join(f"to delta < {level:g}: {format_range(steps)}" for level, steps in saved.items())
        return all(min(steps) >= 1 for steps in saved.values()), f"whole steps saved {text}"

    return judge


def larger_at_first(results: Results) -> Judgement:
    means = {}
    for variant in ("ONI", "ONI+Center"):
        by_seed = exact_runs(results, variant=variant).values("eigenvalues")
        means[variant] = [statistics.fmean(math.sqrt(value) for value in by_step["1"]) for by_step in by_seed]
    return min(means["ONI+Center"]) > max(means["ONI"]), (
        f"mean singular value at step 1: {format_range(means['ONI+Center'])} centred, {format_range(means['ONI'])} not"
    )


CLAIMS = [
    Claim(Kind.MATHEMATICS, "Centring converges faster", converges_faster("ONI+Center", "ONI"), MANY_SEEDS),
    Claim(
        Kind.MATHEMATICS, "Centring gives larger singular values on average at the start", larger_at_first, MANY_SEEDS
    ),
    Claim(Kind.MATHEMATICS, "CSB converges faster", converges_faster("ONI+CSB", "ONI"), MANY_SEEDS),
    Claim(
        Kind.MATHEMATICS, "CSB alone converges significantly faster", saves_whole_steps("ONI+CSB", "ONI"), MANY_SEEDS
    ),
    Claim(
        Kind.MATHEMATICS,
        "CSB on centred Z converges significantly faster",
        saves_whole_steps("ONI+Center+CSB", "ONI+Center"),
        MANY_SEEDS,
    ),
    Claim(
        Kind.MATHEMATICS,
        "Both together are faster than centring alone",
        converges_faster("ONI+Center+CSB", "ONI+Center"),
        MANY_SEEDS,
    ),
    Claim(
        Kind.MATHEMATICS,
        "Both together are faster than CSB alone",
        converges_faster("ONI+Center+CSB", "ONI+CSB"),
        MANY_SEEDS,
    ),
    make_stability_claim("Algorithm 2 as printed", "literal", "float32", 10, "ONI+Center+CSB"),
    make_stability_claim("Algorithm 2 as printed", "literal", "float32", 15, "ONI+Center+CSB"),
]


def make_table(results: Results) -> Comparison:
    exact = [exact_runs(results, variant=variant).mean("delta_row") for variant in VARIANTS]
    printed = [
        results.where(form="literal", precision=precision, variant=variant).mean("delta_row")
        for precision, variant in (("float32", "ONI"), ("float32", "ONI+Center+CSB"), ("float64", "ONI"))
    ]
    cells = [
        [Quantity(step, digits=0), *map(quantity, values)]
        for step, values in enumerate(zip(*exact, *printed, strict=True))
    ]
    names = ["ONI as printed, float32", "ONI+Center+CSB as printed, float32", "ONI as printed, float64"]
    return Comparison(["steps", *VARIANTS, *names], cells, NO_NUMBERS)


def draw(results: Results) -> Figure:
    """Four variants, their eigenvalues after one step, and the printed form in float32."""
    from matplotlib.figure import Figure

    from oni.recipes.experiments.synthetic.drawing import (
        HEIGHT,
        VARIANT_STYLE,
        draw_density,
        draw_mean,
        label_eigenvalues,
    )
    from oni.style import PAGE_WIDTH

    figure = Figure(figsize=(PAGE_WIDTH, HEIGHT + 0.2))
    left, middle, right = figure.subplots(1, 3)
    right.sharey(left)
    exact, printed = exact_runs(results), results.where(form="literal", precision="float32")
    for variant, style in VARIANT_STYLE.items():
        draw_mean(left, exact.where(variant=variant), "delta_row", label=variant, **style)
        draw_mean(right, printed.where(variant=variant), "delta_row", **style)
        values = [value for by_step in exact.where(variant=variant).values("eigenvalues") for value in by_step["1"]]
        draw_density(middle, values, floor=1e-4, **style)
    left.set(
        xlabel="iterations",
        ylabel=r"$\delta = \|WW^\top - I\|_F$",
        ylim=(-0.2, 10),
        xlim=(0, 12),
        xticks=range(0, 13, 2),
    )
    right.set(xlabel="iterations", xlim=(0, 12), xticks=range(0, 13, 2))
    right.tick_params(labelleft=False)
    label_eigenvalues(middle, 1e-4)
    left.set_title("(a) Distance from orthogonal")
    middle.set_title("(b) Eigenvalues at t = 1")
    right.set_title("(c) As printed, in float32")
    figure.legend(handles=left.lines, ncols=4, loc="outside lower center", handlelength=3.2)
    return figure


EXPERIMENT = Experiment(
    id="fig3",
    title="Centring and compact spectral bounding speed up the iteration",
    shows="On the Z of Figure 2, centring converges faster, and compact spectral bounding (CSB) significantly faster.",
    choices="The paper does not define significant; we take it as at least one whole step saved on the way to each of "
    "delta = 1, 0.1 and 0.01, in every seed.",
    presets=PRESETS,
    parameters=(Convergence,),
    plan=make_convergence_plan(SHAPE, MEAN, list(VARIANTS), STEPS, (1,)),
    measure=measure_convergence,
    claims=CLAIMS,
    table=make_table,
    draw=draw,
)
