"""Figure 1: how the steps of ONI stretch the singular values of a matrix of full rank and of a singular one."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from oni.baselines.olm import orthogonalize_olm
from oni.diagnostics.spectrum import orthogonality, spectrum
from oni.machine import one_thread
from oni.newton.orthogonalize import orthogonalize
from oni.newton.reference import oracle
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Quantity, Results
from oni.recipes.experiments.synthetic.family import (
    CLOSE,
    MANY_SEEDS,
    NO_NUMBERS,
    PRESETS,
    ROUNDING,
    draw_gaussian,
    falls,
)
from oni.recipes.experiments.verdicts import Judgement, Kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT"]

STEPS = 10
SHOWN = (0, 1, 2, 3, 5)
RANK = 48


@dataclass(frozen=True)
class Stretch:
    """One random matrix made orthogonal by ONI or by OLM."""

    seed: int
    shape: tuple[int, ...]
    mean: float
    kind: str
    """``"full rank"``, or ``"singular"``: its last rows are copies of the first."""
    method: str
    precision: str

    def describe(self) -> str:
        """A run in a few words."""
        return f"{self.kind}, {self.method}, seed {self.seed}"


def plan(seed: int, seeds: int) -> list[Stretch]:
    kinds = [("full rank", "oni", "float64")]
    kinds += [("singular", method, "float32") for method in ("oni", "olm textbook", "olm stable")]
    return [Stretch(seed + index, (64, 256), 3.0, *kind) for index in range(seeds) for kind in kinds]


@one_thread()
def measure(run: Stretch, setting: object = None) -> dict[str, Any]:
    """The singular values after each number of steps, and the distance from the limit at the end."""
    Z = draw_gaussian(run.shape, run.mean, run.seed)
    if run.kind == "singular":
        Z[RANK:] = Z[: run.shape[0] - RANK]
    limit = oracle(Z, 60, center=True)
    Z = Z.to(getattr(torch, run.precision)).requires_grad_()
    delta: list[float] = []
    sigma: dict[int, list[float]] = {}
    if run.method.startswith("olm"):
        W = orthogonalize_olm(Z, center=True, gradient=run.method.removeprefix("olm "))
    else:
        by_step = [orthogonalize(Z, steps, center=True) for steps in range(STEPS + 1)]
        W = by_step[-1]
        delta = [float(orthogonality(W).row) for W in by_step]
        sigma = {step: spectrum(W).tolist() for step, W in enumerate(by_step)}
    (gradient,) = torch.autograd.grad(W.sum(), Z)
    return {
        "delta_row": delta,
        "sigma": sigma if run.kind == "full rank" else {},
        "error": float((W.detach() - limit).norm() / limit.norm()),
        "gradient_finite": bool(gradient.isfinite().all()),
    }


# Claims.


def stretches_towards_one(results: Results) -> Judgement:
    sigmas = results.where(kind="full rank").values("sigma")
    paths = [path for sigma in sigmas for path in zip(*(sigma[str(t)] for t in range(STEPS + 1)), strict=True)]
    # Sorted values can be compared by index, because the map is monotone.
    rises = all(after > before - ROUNDING for path in paths for before, after in itertools.pairwise(path))
    largest = max(max(path) for path in paths)
    least = ", ".join(f"{min(path[t] for path in paths):.3f}" for t in SHOWN)
    return rises and largest <= 1 + ROUNDING, (
        f"the smallest is {least} after {', '.join(map(str, SHOWN))} steps, the largest never above {largest:.6g}"
    )


def delta_falls(results: Results) -> Judgement:
    runs = results.where(kind="full rank")
    mean = runs.mean("delta_row")
    text = ", ".join(f"{mean[t]:.3f}" for t in SHOWN)
    return all(map(falls, runs.values("delta_row"))), f"mean delta {text} after {', '.join(map(str, SHOWN))} steps"


def judge_singular(results: Results, method: str) -> tuple[bool, str]:
    """Whether a method reaches its limit on a singular matrix, with finite gradients."""
    runs = results.where(kind="singular", method=method)
    errors = [math.inf if error is None else error for error in runs.values("error")]
    finite = runs.values("gradient_finite").count(True)
    distance = "not finite" if math.isinf(max(errors)) else f"within {max(errors):.1g} of its limit (relative)"
    return max(errors) < CLOSE and finite == len(runs), (
        f"W is {distance}, the gradient finite in {finite} of {len(runs)}"
    )


def oni_works_on_singular(results: Results) -> Judgement:
    sound, text = judge_singular(results, "oni")
    return sound, f"with {RANK} of 64 singular values not zero, after {STEPS} steps in float32: {text}"


def olm_fails_on_singular(results: Results) -> Judgement:
    sound, text = judge_singular(results, "olm textbook")
    _, stable = judge_singular(results, "olm stable")
    return not sound, f"{text}; this library's form of OLM, with a cutoff and a closed-form gradient: {stable}"


CLAIMS = [
    Claim(
        Kind.MATHEMATICS,
        "More steps bring every singular value closer to 1, and none above it",
        stretches_towards_one,
        MANY_SEEDS,
    ),
    Claim(Kind.MATHEMATICS, "More steps make delta smaller", delta_falls, MANY_SEEDS),
    Claim(Kind.MATHEMATICS, "ONI works well on a singular matrix too", oni_works_on_singular, MANY_SEEDS),
    Claim(
        Kind.MATHEMATICS,
        "On such a matrix the eigendecomposition of OLM is numerically unstable",
        olm_fails_on_singular,
        MANY_SEEDS,
    ),
]


def make_table(results: Results) -> Comparison:
    runs = results.where(kind="full rank")
    delta, deviation = runs.mean("delta_row"), runs.deviation("delta_row")
    cells: list[list[str | Quantity]] = []
    for step in range(9):
        sigma = sorted(value for by_step in runs.values("sigma") for value in by_step[str(step)])
        values = [Quantity(value, digits=3) for value in (sigma[0], statistics.median(sigma), sigma[-1])]
        cells.append([Quantity(step, digits=0), Quantity(delta[step], deviation[step], 3), *values])
    return Comparison(["steps", "delta", "smallest", "median", "largest singular value"], cells, NO_NUMBERS)


def draw(results: Results) -> Figure:
    """A histogram of singular values for each number of steps."""
    from matplotlib.figure import Figure

    from oni.recipes.experiments.synthetic.drawing import HEIGHT, shares
    from oni.style import COLOURS, PAGE_WIDTH

    runs = results.where(kind="full rank")
    figure = Figure(figsize=(PAGE_WIDTH, HEIGHT - 0.7))
    panels = figure.subplots(1, len(SHOWN), sharex=True)
    delta = runs.mean("delta_row")
    edges = [index / 25 for index in range(26)]
    for axes, step in zip(panels, SHOWN, strict=True):
        values = [min(value, 1.0) for sigma in runs.values("sigma") for value in sigma[str(step)]]
        axes.hist(values, edges, weights=shares(values), color=COLOURS["oni"])
        axes.set(xlim=(0, 1.03), xticks=[0, 0.5, 1], xticklabels=["0", "0.5", "1"])
        axes.grid(visible=False, axis="x")
        axes.locator_params(axis="y", nbins=4)
        axes.set_title(f"T = {step}, $\\delta$ = {delta[step]:.2f}")
    panels[0].set_ylabel("share of all")
    figure.supxlabel(r"singular values of $W$ after T steps", fontsize=8)
    return figure


EXPERIMENT = Experiment(
    id="fig1",
    title="Singular values against the number of steps",
    shows="ONI controls how orthogonal a weight matrix is: each step stretches its singular values towards 1.",
    choices="The paper does not say which matrix it plots: we use the 64 x 256 matrix of N(3, 1) of its Figures 2 and "
    "3, under Algorithm 2. The singular matrix is the same, with its last 16 rows copied from the first 16, "
    "in float32.",
    presets=PRESETS,
    parameters=(Stretch,),
    plan=plan,
    measure=measure,
    claims=CLAIMS,
    table=make_table,
    draw=draw,
)
