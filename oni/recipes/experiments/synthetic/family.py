"""Figures 2 to 4: what the iteration does to random matrices.

The paper gives the matrices' distributions and not its seeds, so every number here is over several. Wherever the
recurrence may be to blame, both its stable form and the one that the paper prints are run, in float64 and float32.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from oni.diagnostics.spectrum import orthogonality, spectrum
from oni.machine import one_thread
from oni.newton.orthogonalize import orthogonalize
from oni.newton.reference import literal
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Results
from oni.recipes.experiments.synthetic import pictures

__all__ = ["EXPERIMENTS", "FORMS", "VARIANTS", "gaussian"]

SEEDS = {"smoke": {"seeds": 2}, "laptop": {"seeds": 10}, "paper": {"seeds": 100}}

VARIANTS = {
    "ONI": {"center": False, "bound": "frobenius"},
    "ONI+Center": {"center": True, "bound": "frobenius"},
    "ONI+CSB": {"center": False, "bound": "compact"},
    "ONI+Center+CSB": {"center": True, "bound": "compact"},
}
"""The paper's names: the first is its Algorithm 1, the last its Algorithm 2."""

FORMS = [(form, precision) for form in ("stable", "literal") for precision in ("float64", "float32")]

ROUNDING = 1e-9
"""A delta below this is rounding noise in float64, and need not fall."""
FOLLOWS = 1e-3
"""How near the delta of another form or precision must stay to that of the stable form in float64."""


def gaussian(shape: Sequence[int], mean: float, seed: int) -> Tensor:
    """A matrix of N(mean, 1) in float64."""
    return mean + torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def eigenvalues(W: Tensor) -> Tensor:
    """Those of W W^T, largest first, the zeros of a tall W included."""
    values = spectrum(W) ** 2
    return torch.nn.functional.pad(values, (0, W.shape[-2] - values.shape[-1]))


@one_thread()
def converge(
    seed: int, shape: Sequence[int], mean: float, variant: str, form: str, precision: str, steps: int, at: Sequence[int]
) -> dict[str, Any]:
    """The deltas after 0 to ``steps`` steps, and the eigenvalues of W W^T after those in ``at``."""
    Z = gaussian(shape, mean, seed).to(getattr(torch, precision))
    map = orthogonalize if form == "stable" else literal
    W = torch.stack([map(Z, t, **VARIANTS[variant]) for t in range(steps + 1)])  # type: ignore[arg-type]
    delta = orthogonality(W)
    return {
        "delta_row": delta.row.tolist(),
        "delta_column": delta.column.tolist(),
        "eigenvalues": {t: eigenvalues(W[t]).tolist() for t in at},
    }


def convergence_runs(shape: Sequence[int], mean: float, variants: Sequence[str], steps: int, at: Sequence[int]) -> Any:
    """The runs of :func:`converge`: all forms; eigenvalues of the first alone, as the others may not be finite."""

    def runs(seed: int, seeds: int) -> list[dict[str, Any]]:
        return [
            {
                "seed": seed + number,
                "shape": list(shape),
                "mean": mean,
                "variant": variant,
                "form": form,
                "precision": precision,
                "steps": steps,
                "at": list(at) if (form, precision) == FORMS[0] else [],
            }
            for number in range(seeds)
            for variant in variants
            for form, precision in FORMS
        ]

    return runs


def exact(results: Results, **parameters: Any) -> Results:
    """The runs of the stable form in float64."""
    return results.where(form="stable", precision="float64", **parameters)


def falls(values: Sequence[float]) -> bool:
    return all(after < before or after < ROUNDING for before, after in itertools.pairwise(values))


def first_below(values: Sequence[float], limit: float) -> float:
    """The first step with a value below the limit."""
    return next((float(step) for step, value in enumerate(values) if value < limit), math.inf)


def span(values: Sequence[float], digits: int = 3) -> str:
    """A range in words: one number if all are the same."""
    low, high = f"{min(values):.{digits}g}", f"{max(values):.{digits}g}"
    return low if low == high else f"{low} to {high}"


def number(value: float | None) -> str:
    """A number for a table."""
    if value is None or not math.isfinite(value):
        return "inf"
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.0e}"


def stable(who: str, form: str, precision: str, last: int, variant: str, quantity: str = "delta_row") -> Claim:
    """The claim that a form, in some precision, gives the deltas of the stable form in float64 up to a step."""

    def test(results: Results) -> tuple[bool, str]:
        apart = [0.0] * (last + 1)
        other = results.where(form=form, precision=precision, variant=variant).every(quantity)
        for one, truth in zip(other, exact(results, variant=variant).every(quantity), strict=True):
            for t in range(last + 1):
                apart[t] = max(apart[t], math.inf if one[t] is None else abs(one[t] - truth[t]))
        left = next((t for t in range(last + 1) if apart[t] > FOLLOWS), None)
        if left is None:
            return True, f"its delta stays within {max(apart):.0e} of the exact one in every seed"
        return False, (
            f"its delta is off by more than {FOLLOWS:g} from step {left} on ({apart[left]:.1e} there, "
            f"{'not finite' if math.isinf(apart[last]) else f'{apart[last]:.0e}'} at step {last})"
        )

    return Claim(f"{who} is numerically stable in {precision} through {last} steps", test)


def deltas_by_step(results: Results, quantity: str, variant: str) -> list[list[str]]:
    """For each step the mean over seeds, stable in float64 with its deviation first."""
    ours = exact(results, variant=variant)
    columns = [
        results.where(form=form, precision=precision, variant=variant).mean(quantity) for form, precision in FORMS
    ]
    return [
        [f"{number(values[0])} ± {deviation:.3f}", *map(number, values[1:])]
        for values, deviation in zip(zip(*columns, strict=True), ours.deviation(quantity), strict=True)
    ]


FORM_COLUMNS = ["stable float64", "stable float32", "as printed float64", "as printed float32"]


def numbers(columns: Sequence[str], quantity: str, variant: str, note: str) -> Any:
    def table(results: Results) -> Comparison:
        rows = deltas_by_step(results, quantity, variant)
        return Comparison([*columns, *FORM_COLUMNS], [[str(t), *row] for t, row in enumerate(rows)], note)

    return table


NO_NUMBERS = (
    "The paper draws this and prints no numbers. Ours: means over seeds, ± their standard deviation; inf is not finite."
)


# Figure 2. Algorithm 1.

FIG2_STEPS = 15
GOOD = 0.1
"""The part of its start below which a delta is called good."""


def ten_steps(results: Results) -> tuple[bool, str]:
    deltas = exact(results).every("delta_row")
    tenth = [first_below(delta, GOOD * delta[0]) for delta in deltas]
    small = [first_below(delta, 0.1) for delta in deltas]
    return statistics.median(tenth) == 10, (
        f"delta falls below a tenth of its start at step {span(tenth)}, below 0.1 at step {span(small)}"
    )


def all_fall(results: Results) -> tuple[bool, str]:
    runs = exact(results)
    mean = runs.mean("delta_row")
    said = ", ".join(f"{mean[t]:.3f}" for t in (0, 5, 8, 10, 12))
    return all(map(falls, runs.every("delta_row"))), f"mean delta {said} after 0, 5, 8, 10, 12 steps"


def eigenvalues_reach_one(results: Results) -> tuple[bool, str]:
    every = exact(results).every("eigenvalues")
    steps = sorted(map(int, every[0]))
    least = [min(min(one[str(t)]) for one in every) for t in steps]
    most = max(max(one[str(t)]) for one in every for t in steps)
    said = ", ".join(f"{value:.2g}" for value in least)
    rising = all(before < after for before, after in itertools.pairwise(least))
    return rising and most <= 1 + ROUNDING, (
        f"the smallest of W W^T is {said} after {', '.join(map(str, steps))} steps, the largest never above {most:.6g}"
    )


FIG2 = Experiment(
    id="fig2",
    title="Convergence of Algorithm 1",
    shows="On Z of 64 x 256 entries N(3, 1), Algorithm 1 converges well; 10 iterations are required for a good "
    "orthogonalisation.",
    choices="Algorithm 1 as it stands: no centring, Frobenius bound. What is good is not said: here, delta below a "
    "tenth of its start.",
    presets=SEEDS,
    runs=convergence_runs((64, 256), 3.0, ["ONI"], FIG2_STEPS, (0, 2, 4, 6, 8, 10)),
    measure=converge,
    paper={"iterations for a good orthogonalization": 10},
    claims=[
        Claim("delta falls with every iteration", all_fall),
        Claim("10 iterations are required for a good orthogonalisation", ten_steps),
        Claim("The iteration stretches the eigenvalues of W W^T towards 1", eigenvalues_reach_one),
        stable("Algorithm 1 as printed", "literal", "float32", 10, "ONI"),
        stable("Algorithm 1 as printed", "literal", "float64", 15, "ONI"),
        stable("This library's form of it", "stable", "float32", 15, "ONI"),
    ],
    table=numbers(["steps"], "delta_row", "ONI", NO_NUMBERS),
    draw=pictures.draw_convergence,
)


# Figure 3. The two accelerations.

LEVELS = (1.0, 0.1, 0.01)


def faster(fast: str, slow: str) -> Any:
    def test(results: Results) -> tuple[bool, str]:
        quick, calm = (exact(results, variant=name).every("delta_row") for name in (fast, slow))
        ahead = all(
            a[t] < b[t] or b[t] < ROUNDING for a, b in zip(quick, calm, strict=True) for t in range(1, FIG2_STEPS + 1)
        )
        mean = [exact(results, variant=name).mean("delta_row")[5] for name in (fast, slow)]
        return ahead, f"at every step in every seed; at step 5 the mean delta is {mean[0]:.3f} against {mean[1]:.3f}"

    return test


def significantly_faster(fast: str, slow: str) -> Any:
    def test(results: Results) -> tuple[bool, str]:
        quick, calm = (exact(results, variant=name).every("delta_row") for name in (fast, slow))
        saved = {
            level: [first_below(b, level) - first_below(a, level) for a, b in zip(quick, calm, strict=True)]
            for level in LEVELS
        }
        said = "; ".join(f"to delta < {level:g}: {span(steps)}" for level, steps in saved.items())
        return all(min(steps) >= 1 for steps in saved.values()), f"whole steps saved {said}"

    return test


def larger_at_first(results: Results) -> tuple[bool, str]:
    means = {}
    for variant in ("ONI", "ONI+Center"):
        found = exact(results, variant=variant).every("eigenvalues")
        means[variant] = [statistics.fmean(math.sqrt(value) for value in one["1"]) for one in found]
    return min(means["ONI+Center"]) > max(means["ONI"]), (
        f"mean singular value at step 1: {span(means['ONI+Center'])} centred, {span(means['ONI'])} not"
    )


def fig3_table(results: Results) -> Comparison:
    columns = [exact(results, variant=variant).mean("delta_row") for variant in VARIANTS]
    printed = [
        results.where(form="literal", precision=precision, variant=variant).mean("delta_row")
        for precision, variant in (("float32", "ONI"), ("float32", "ONI+Center+CSB"), ("float64", "ONI"))
    ]
    rows = [[str(t), *map(number, values)] for t, values in enumerate(zip(*columns, *printed, strict=True))]
    names = ["ONI as printed, float32", "ONI+Center+CSB as printed, float32", "ONI as printed, float64"]
    return Comparison(["steps", *VARIANTS, *names], rows, NO_NUMBERS)


FIG3 = Experiment(
    id="fig3",
    title="Centring and compact spectral bounding speed up the iteration",
    shows="On the Z of Figure 2, centring converges faster, and compact spectral bounding (CSB) significantly faster.",
    choices="What is significant is not said: here, at least one whole step saved on the way to each of delta = 1, 0.1 "
    "and 0.01, in every seed.",
    presets=SEEDS,
    runs=convergence_runs((64, 256), 3.0, list(VARIANTS), FIG2_STEPS, (1,)),
    measure=converge,
    paper={"printed numbers": None},
    claims=[
        Claim("Centring converges faster", faster("ONI+Center", "ONI")),
        Claim("Centring gives larger singular values on average at the start", larger_at_first),
        Claim("CSB converges faster", faster("ONI+CSB", "ONI")),
        Claim("CSB alone converges significantly faster", significantly_faster("ONI+CSB", "ONI")),
        Claim("CSB on centred Z converges significantly faster", significantly_faster("ONI+Center+CSB", "ONI+Center")),
        Claim("Both together are faster than centring alone", faster("ONI+Center+CSB", "ONI+Center")),
        Claim("Both together are faster than CSB alone", faster("ONI+Center+CSB", "ONI+CSB")),
        stable("Algorithm 2 as printed", "literal", "float32", 10, "ONI+Center+CSB"),
        stable("Algorithm 2 as printed", "literal", "float32", 15, "ONI+Center+CSB"),
    ],
    table=fig3_table,
    draw=pictures.draw_variants,
)


# Figure 4. More rows than columns.

FIG4_STEPS = 12
FIG4_VARIANTS = ["ONI", "ONI+CSB", "ONI+Center+CSB"]


def ends_at(quantity: str, variant: str, limit: float) -> Any:
    def test(results: Results) -> tuple[bool, str]:
        last = [delta[-1] for delta in exact(results, variant=variant).every(quantity)]
        kind = quantity.removeprefix("delta_")
        return all(abs(value - limit) < FOLLOWS for value in last), (
            f"delta of the {kind}s after {FIG4_STEPS} steps: {min(last):.4f} to {max(last):.4f}"
        )

    return test


def half_reach_one(results: Results) -> tuple[bool, str]:
    last = [one[str(FIG4_STEPS)] for one in exact(results, variant="ONI").every("eigenvalues")]
    upper, lower = min(min(one[:32]) for one in last), max(max(one[32:]) for one in last)
    return 1 - upper < FOLLOWS and lower < FOLLOWS, (
        f"after {FIG4_STEPS} steps the 32 largest are at least {upper:.6f}, the 32 others at most {lower:.6f}"
    )


def fig4_table(results: Results) -> Comparison:
    quantities = [("delta_row", "ONI"), ("delta_column", "ONI"), ("delta_column", "ONI+CSB")]
    quantities += [("delta_column", "ONI+Center+CSB")]
    columns = [exact(results, variant=variant).mean(quantity) for quantity, variant in quantities]
    columns += [
        results.where(form="literal", precision=precision, variant="ONI").mean("delta_column")
        for precision in ("float32", "float64")
    ]
    rows = [[str(t), *map(number, values)] for t, values in enumerate(zip(*columns, strict=True))]
    names = ["row: ONI", "column: ONI", "column: ONI+CSB", "column: Alg. 2 (centred)"]
    names += ["as printed float32: column", "as printed float64: column"]
    return Comparison(["steps", *names], rows, NO_NUMBERS)


FIG4 = Experiment(
    id="fig4",
    title="Rows and columns by one iteration",
    shows="On Z of 64 x 32 entries N(0, 1), the same iteration makes the columns orthogonal: the column delta goes to "
    "0, the row delta can't.",
    choices="Neither centring nor the bound are said. The paper's Table A2 has a column delta of 0 for this set-up, "
    "which only uncentred Z can reach; both bounds, and Algorithm 2 with its centring, are run.",
    presets=SEEDS,
    runs=convergence_runs((64, 32), 0.0, FIG4_VARIANTS, FIG4_STEPS, (0, 2, 4, 6, FIG4_STEPS)),
    measure=converge,
    paper={"printed numbers": None},
    claims=[
        Claim("The columns become orthonormal (Frobenius bound)", ends_at("delta_column", "ONI", 0.0)),
        Claim("The columns become orthonormal (CSB)", ends_at("delta_column", "ONI+CSB", 0.0)),
        Claim("The row delta ends at the square root of n - d = 32", ends_at("delta_row", "ONI", math.sqrt(32))),
        Claim("32 eigenvalues of W W^T go to 1, 32 stay 0", half_reach_one),
        Claim(
            "Algorithm 2 with its centring makes the columns orthonormal too",
            ends_at("delta_column", "ONI+Center+CSB", 0.0),
        ),
        stable("Algorithm 1 as printed", "literal", "float32", 12, "ONI", "delta_column"),
        stable("This library's form of it", "stable", "float32", 12, "ONI", "delta_column"),
    ],
    table=fig4_table,
    draw=pictures.draw_rows_and_columns,
)

EXPERIMENTS = [FIG2, FIG3, FIG4]
