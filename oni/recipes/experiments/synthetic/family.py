"""What Figures 2 to 4 share: random matrices under the iteration, in its stable form and as the paper prints it.

The paper gives the distributions of its matrices but not its seeds, so every number here is over several seeds. Where
a result may depend on the form of the recurrence, both the stable and the printed form are run, in float64 and float32.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oni.diagnostics.spectrum import orthogonality, spectrum
from oni.machine import one_thread
from oni.newton.orthogonalize import orthogonalize
from oni.newton.reference import literal
from oni.recipes.experiments.experiment import Claim, Quantity, Results
from oni.recipes.experiments.verdicts import Judgement, Kind

__all__ = [
    "CLOSE",
    "FORMS",
    "MANY_SEEDS",
    "NO_NUMBERS",
    "PRESETS",
    "ROUNDING",
    "VARIANTS",
    "Convergence",
    "draw_gaussian",
    "eigenvalues",
    "exact_runs",
    "falls",
    "first_step_below",
    "make_convergence_plan",
    "make_stability_claim",
    "measure_convergence",
]

PRESETS = {"smoke": {"seeds": 2}, "laptop": {"seeds": 10}, "paper": {"seeds": 100}}
MANY_SEEDS = {"seeds": 5}
"""What a claim about every seed needs."""

VARIANTS = {
    "ONI": {"center": False, "bound": "frobenius"},
    "ONI+Center": {"center": True, "bound": "frobenius"},
    "ONI+CSB": {"center": False, "bound": "compact"},
    "ONI+Center+CSB": {"center": True, "bound": "compact"},
}
"""The paper's names: the first is its Algorithm 1, the last its Algorithm 2."""
FORMS = [(form, precision) for form in ("stable", "literal") for precision in ("float64", "float32")]

ROUNDING = 1e-9
"""A delta below this is rounding noise in float64 and need not decrease."""
CLOSE = 1e-3
"""How close the delta of another form or precision must stay to that of the stable form in float64."""
NO_NUMBERS = (
    "The paper shows a plot and no numbers. Ours: means over seeds, ± their standard deviation; inf means not finite."
)


@dataclass(frozen=True)
class Convergence:
    """One random matrix under one variant of the iteration."""

    seed: int
    shape: tuple[int, ...]
    mean: float
    variant: str
    form: str
    """``"stable"``, or ``"literal"`` as the paper prints it."""
    precision: str
    steps: int
    at: tuple[int, ...]
    """The steps after which eigenvalues are recorded."""

    def describe(self) -> str:
        """A run in a few words."""
        return f"{self.variant}, {self.form} in {self.precision}, seed {self.seed}"


def draw_gaussian(shape: Sequence[int], mean: float, seed: int) -> Tensor:
    """A matrix of N(mean, 1) in float64."""
    return mean + torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def eigenvalues(W: Tensor) -> Tensor:
    """The eigenvalues of W W^T, largest first, with the zeros of a tall W."""
    values = spectrum(W) ** 2
    return torch.nn.functional.pad(values, (0, W.shape[-2] - values.shape[-1]))


@one_thread()
def measure_convergence(run: Convergence, setting: object = None) -> dict[str, Any]:
    """The deltas after every number of steps, and the eigenvalues of W W^T after those in ``at``."""
    Z = draw_gaussian(run.shape, run.mean, run.seed).to(getattr(torch, run.precision))
    function = orthogonalize if run.form == "stable" else literal
    options: dict[str, Any] = VARIANTS[run.variant]
    W = torch.stack([function(Z, steps, **options) for steps in range(run.steps + 1)])
    delta = orthogonality(W)
    return {
        "delta_row": delta.row.tolist(),
        "delta_column": delta.column.tolist(),
        "eigenvalues": {step: eigenvalues(W[step]).tolist() for step in run.at},
    }


def make_convergence_plan(
    shape: tuple[int, ...], mean: float, variants: Sequence[str], steps: int, at: tuple[int, ...]
) -> Callable[..., list[Convergence]]:
    """All forms of all variants; eigenvalues of the first form only, because the others may not be finite."""

    def plan(seed: int, seeds: int) -> list[Convergence]:
        return [
            Convergence(
                seed + index, shape, mean, variant, form, precision, steps, at if (form, precision) == FORMS[0] else ()
            )
            for index in range(seeds)
            for variant in variants
            for form, precision in FORMS
        ]

    return plan


def exact_runs(results: Results, **parameters: Any) -> Results:
    """The runs of the stable form in float64."""
    return results.where(form="stable", precision="float64", **parameters)


def falls(values: Sequence[float]) -> bool:
    """Whether every value is below the one before it, down to rounding."""
    return all(after < before or after < ROUNDING for before, after in itertools.pairwise(values))


def first_step_below(values: Sequence[float], limit: float) -> float:
    """The first step with a value below the limit."""
    return next((float(step) for step, value in enumerate(values) if value < limit), math.inf)


def quantity(value: float | None, deviation: float | None = None) -> Quantity:
    """A delta for a table; what is not finite is infinite."""
    return Quantity(math.inf if value is None else value, deviation, 3)


def make_stability_claim(
    subject: str, form: str, precision: str, last: int, variant: str, quantity: str = "delta_row"
) -> Claim:
    """The claim that a form, in some precision, gives the deltas of the stable form in float64 up to a step."""

    def judge(results: Results) -> Judgement:
        apart = [0.0] * (last + 1)
        deltas = results.where(form=form, precision=precision, variant=variant).values(quantity)
        for delta, exact in zip(deltas, exact_runs(results, variant=variant).values(quantity), strict=True):
            for step in range(last + 1):
                distance = math.inf if delta[step] is None else abs(delta[step] - exact[step])
                apart[step] = max(apart[step], distance)
        left = next((step for step in range(last + 1) if apart[step] > CLOSE), None)
        if left is None:
            return True, f"its delta stays within {max(apart):.0e} of the exact one in every seed"
        return False, (
            f"its delta is off by more than {CLOSE:g} from step {left} on ({apart[left]:.1e} there, "
            f"{'not finite' if math.isinf(apart[last]) else f'{apart[last]:.0e}'} at step {last})"
        )

    return Claim(
        Kind.MATHEMATICS, f"{subject} is numerically stable in {precision} through {last} steps", judge, MANY_SEEDS
    )
