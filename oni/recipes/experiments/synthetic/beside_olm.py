"""Figure 1, Table A2 and Figure A1: singular values under ONI, beside those under OLM and its groups."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import Any

import torch

from oni.baselines.olm import orthogonalize_olm
from oni.diagnostics.spectrum import orthogonality, spectrum
from oni.machine import one_thread
from oni.newton.orthogonalize import orthogonalize
from oni.newton.reference import oracle
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Results
from oni.recipes.experiments.synthetic import pictures
from oni.recipes.experiments.synthetic.family import (
    FOLLOWS,
    NO_NUMBERS,
    ROUNDING,
    SEEDS,
    eigenvalues,
    falls,
    gaussian,
    span,
)

__all__ = ["EXPERIMENTS"]

# Figure 1. Singular values of W under Algorithm 2, of a matrix of full rank and of one with zero singular values.

FIG1_STEPS = 10
FIG1_AT = (0, 1, 2, 3, 5)
RANK = 48


@one_thread()
def stretch(seed: int, shape: Sequence[int], mean: float, kind: str, method: str, precision: str) -> dict[str, Any]:
    """The singular values after each number of steps, and the distance from the limit at the end."""
    Z = gaussian(shape, mean, seed)
    if kind == "singular":
        Z[RANK:] = Z[: shape[0] - RANK]
    limit = oracle(Z, 60, center=True)
    Z = Z.to(getattr(torch, precision)).requires_grad_()
    if method.startswith("olm"):
        W = orthogonalize_olm(Z, center=True, gradient=method.removeprefix("olm "))
        sigma = {}
    else:
        every = [orthogonalize(Z, t, center=True) for t in range(FIG1_STEPS + 1)]
        W = every[-1]
        sigma = {t: spectrum(every[t]).tolist() for t in range(FIG1_STEPS + 1)}
    (gradient,) = torch.autograd.grad(W.sum(), Z)
    return {
        "delta_row": [float(orthogonality(one).row) for one in every] if sigma else [],
        "sigma": sigma if kind == "full rank" else {},
        "error": float((W.detach() - limit).norm() / limit.norm()),
        "gradient_finite": bool(gradient.isfinite().all()),
    }


def stretch_runs(seed: int, seeds: int) -> list[dict[str, Any]]:
    kinds = [("full rank", "oni", "float64")]
    kinds += [("singular", method, "float32") for method in ("oni", "olm textbook", "olm stable")]
    return [
        {"seed": seed + count, "shape": [64, 256], "mean": 3.0, "kind": kind, "method": method, "precision": precision}
        for count in range(seeds)
        for kind, method, precision in kinds
    ]


def towards_one(results: Results) -> tuple[bool, str]:
    every = results.where(kind="full rank").every("sigma")
    paths = [path for sigma in every for path in zip(*(sigma[str(t)] for t in range(FIG1_STEPS + 1)), strict=True)]
    # In sorted order: the map keeps it. 1e-9: rounding at the fixed point.
    rising = all(after > before - ROUNDING for path in paths for before, after in itertools.pairwise(path))
    largest = max(max(path) for path in paths)
    least = [min(path[t] for path in paths) for t in FIG1_AT]
    said = ", ".join(f"{value:.3f}" for value in least)
    return rising and largest <= 1 + ROUNDING, (
        f"the smallest is {said} after {', '.join(map(str, FIG1_AT))} steps, the largest never above {largest:.6g}"
    )


def fewer_delta(results: Results) -> tuple[bool, str]:
    deltas = results.where(kind="full rank")
    mean = deltas.mean("delta_row")
    said = ", ".join(f"{mean[t]:.3f}" for t in FIG1_AT)
    return all(map(falls, deltas.every("delta_row"))), f"mean delta {said} after {', '.join(map(str, FIG1_AT))} steps"


def on_singular(results: Results, method: str) -> tuple[bool, str]:
    runs = results.where(kind="singular", method=method)
    errors = [math.inf if error is None else error for error in runs.every("error")]
    finite = runs.every("gradient_finite").count(True)
    far = "not finite" if math.isinf(max(errors)) else f"within {max(errors):.1g} of its limit (relative)"
    return max(errors) < FOLLOWS and finite == len(runs), f"W is {far}, the gradient finite in {finite} of {len(runs)}"


def oni_on_singular(results: Results) -> tuple[bool, str]:
    sound, said = on_singular(results, "oni")
    return sound, f"with {RANK} of 64 singular values not zero, after {FIG1_STEPS} steps in float32: {said}"


def olm_on_singular(results: Results) -> tuple[bool, str]:
    sound, said = on_singular(results, "olm textbook")
    _, mended = on_singular(results, "olm stable")
    return not sound, f"{said}; this library's form of OLM, with a cutoff and a closed-form gradient: {mended}"


def fig1_table(results: Results) -> Comparison:
    full = results.where(kind="full rank")
    delta, deviation = full.mean("delta_row"), full.deviation("delta_row")
    rows = []
    for t in range(9):
        sigma = sorted(value for one in full.every("sigma") for value in one[str(t)])
        shown = (sigma[0], statistics.median(sigma), sigma[-1])
        rows.append([str(t), f"{delta[t]:.3f} ± {deviation[t]:.3f}", *(f"{value:.3f}" for value in shown)])
    return Comparison(["steps", "delta", "smallest", "median", "largest singular value"], rows, NO_NUMBERS)


FIG1 = Experiment(
    id="fig1",
    title="Singular values against the number of steps",
    shows="ONI controls how orthogonal a weight matrix is by stretching its singular values towards 1 step by step.",
    choices="The paper does not say which matrix it draws: here the 64 x 256 of N(3, 1) of its Figures 2 and 3, under "
    "Algorithm 2. The singular matrix is the same with its last 16 rows copies of the first 16, in float32.",
    presets=SEEDS,
    runs=stretch_runs,
    measure=stretch,
    paper={"printed numbers": None},
    claims=[
        Claim("More steps bring every singular value nearer to 1, and none past it", towards_one),
        Claim("More steps make delta smaller", fewer_delta),
        Claim("ONI works well on a singular matrix too", oni_on_singular),
        Claim("There the eigendecomposition of OLM is numerically unstable", olm_on_singular),
    ],
    table=fig1_table,
    draw=lambda results: pictures.draw_stretching(results.where(kind="full rank"), FIG1_AT),
)


# Table A2 and Figure A1. OLM can't take more rows than columns at once, and splits them into groups.

FULL_STEPS = 15
"""Steps of ONI where the paper says full: its delta is then down to rounding."""
PRINTED = {"ONI": (5.66, 0.0), "OLM-G32": (8.0, 5.66), "OLM-G16": (9.85, 8.07), "OLM-G8": (10.58, 8.94)}


@one_thread()
def group(seed: int, shape: Sequence[int], method: str) -> dict[str, Any]:
    """The deltas and the eigenvalues of W W^T."""
    Z = gaussian(shape, 0.0, seed)
    if method == "ONI":
        W = orthogonalize(Z, FULL_STEPS, center=False)
    else:
        W = orthogonalize_olm(Z, group_size=int(method.removeprefix("OLM-G")), center=False)
    delta = orthogonality(W)
    return {
        "delta_row": float(delta.row),
        "delta_column": float(delta.column),
        "eigenvalues": eigenvalues(W).tolist() if shape[0] == shape[1] else [],
    }


def group_runs(*of: tuple[Sequence[int], Sequence[str]]) -> Any:
    def runs(seed: int, seeds: int) -> list[dict[str, Any]]:
        return [
            {"seed": seed + count, "shape": list(shape), "method": method}
            for count in range(seeds)
            for shape, methods in of
            for method in methods
        ]

    return runs


TALL, WIDE, SQUARE = [64, 32], [32, 64], [64, 64]
GROUPED = ["OLM-G32", "OLM-G16", "OLM-G8"]


def columns_orthonormal(results: Results) -> tuple[bool, str]:
    runs = results.where(shape=TALL, method="ONI")
    row, column = runs.every("delta_row"), runs.every("delta_column")
    return max(column) < FOLLOWS, f"column delta at most {max(column):.0e}, row delta {span(row, 4)}"


def neither(results: Results) -> tuple[bool, str]:
    least = {
        method: min(min(runs.every("delta_row")) for runs in [results.where(shape=TALL, method=method)])
        for method in GROUPED
    }
    columns = {method: min(results.where(shape=TALL, method=method).every("delta_column")) for method in GROUPED}
    said = "; ".join(f"{method}: {least[method]:.2f} and {columns[method]:.2f}" for method in GROUPED)
    return min(*least.values(), *columns.values()) > 1, f"smallest row and column delta of any seed: {said}"


def worse_with_smaller(shape: list[int], methods: Sequence[str], quantities: Sequence[str]) -> Any:
    def test(results: Results) -> tuple[bool, str]:
        held, said = True, []
        for quantity in quantities:
            every = [results.where(shape=shape, method=method).every(quantity) for method in methods]
            held &= all(a < b for pair in itertools.pairwise(every) for a, b in zip(*pair, strict=True))
            means = ", ".join(f"{statistics.fmean(values):.2f}" for values in every)
            said.append(f"{quantity.removeprefix('delta_')} delta {means}")
        names = ", ".join(method.removeprefix("OLM-") for method in methods)
        return held, f"in every seed; means for {names}: {'; '.join(said)}"

    return test


def printed_within_reach(results: Results) -> tuple[bool, str]:
    held, said = True, []
    for method, printed in PRINTED.items():
        runs = results.where(shape=TALL, method=method)
        for quantity, value in zip(("delta_row", "delta_column"), printed, strict=True):
            mean, deviation = runs.mean(quantity), runs.deviation(quantity)
            # One draw of the paper's: three deviations, and the rounding of what is printed.
            off = abs(mean - value)
            held &= off <= 3 * deviation + 0.005
            said.append(
                f"{value:g} by {off:.3f} ({off / deviation:.1f} sd)" if deviation > 1e-6 else f"{value:g} by {off:.3f}"
            )
    return held, f"our means miss the printed {', '.join(said)}"


def caption_shape(results: Results) -> tuple[bool, str]:
    runs = results.where(shape=WIDE, method="OLM-G32")
    row, column = runs.mean("delta_row"), runs.mean("delta_column")
    return abs(row - 8) < 0.1 and abs(column - 5.66) < 0.1, (
        f"32 x 64 gives OLM-G32 a row delta of {row:.2f} and a column delta of {column:.2f}, printed are 8 and 5.66: "
        "the shape is 64 x 32, as the section's text has it"
    )


def tableA2_table(results: Results) -> Comparison:
    rows = []
    for method, (row, column) in PRINTED.items():
        runs = results.where(shape=TALL, method=method)
        ours = [f"{runs.mean(name):.2f} ± {runs.deviation(name):.2f}" for name in ("delta_row", "delta_column")]
        rows.append([method, f"{row:g}", ours[0], f"{column:g}", ours[1]])
    note = "Ours: means over seeds, ± their standard deviation."
    return Comparison(["method", "row: paper", "row: ours", "column: paper", "column: ours"], rows, note)


TABLE_A2 = Experiment(
    id="tableA2",
    title="Row and column orthogonality of ONI and of OLM in groups",
    shows="On Z of 64 x 32 entries N(0, 1), OLM in groups makes neither rows nor columns orthogonal, the less so the "
    "smaller the groups; ONI makes the columns orthogonal.",
    choices=f"No centring: with it, a group of 32 rows of 32 entries would be singular. ONI with {FULL_STEPS} steps.",
    presets={"smoke": {"seeds": 8}, "laptop": {"seeds": 100}, "paper": {"seeds": 500}},
    runs=group_runs((TALL, list(PRINTED)), (WIDE, ["OLM-G32"])),
    measure=group,
    paper={method: {"delta_row": row, "delta_column": column} for method, (row, column) in PRINTED.items()},
    claims=[
        Claim("ONI makes the columns orthonormal", columns_orthonormal),
        Claim("Groups make neither rows nor columns orthonormal", neither),
        Claim(
            "Smaller groups are less orthogonal",
            worse_with_smaller(TALL, GROUPED, ["delta_row", "delta_column"]),
        ),
        Claim("The printed numbers are a draw of what is measured here", printed_within_reach),
        Claim("Z is 32 x 64, as the table's caption says", caption_shape),
    ],
    table=tableA2_table,
    draw=lambda results: pictures.draw_groups_table(results.where(shape=TALL), PRINTED),
)

SQUARE_GROUPS = ["OLM-G64", *GROUPED]


def only_full(results: Results) -> tuple[bool, str]:
    off = {
        method: [max(abs(value - 1) for value in one) for one in results.where(method=method).every("eigenvalues")]
        for method in SQUARE_GROUPS
    }
    said = "; ".join(f"{method.removeprefix('OLM-')} {span(values, 2)}" for method, values in off.items())
    full, *others = off.values()
    return max(full) < FOLLOWS < min(map(min, others)), f"an eigenvalue is off 1 by up to: {said}"


def spread_grows(results: Results) -> tuple[bool, str]:
    largest = [[max(one) for one in results.where(method=method).every("eigenvalues")] for method in SQUARE_GROUPS]
    held = all(a < b for pair in itertools.pairwise(largest) for a, b in zip(*pair, strict=True))
    means = ", ".join(f"{statistics.fmean(values):.2f}" for values in largest)
    return held, f"in every seed; mean largest eigenvalue {means} for G64, G32, G16, G8"


def figA1_table(results: Results) -> Comparison:
    rows = []
    for method in SQUARE_GROUPS:
        runs = results.where(method=method)
        values = runs.every("eigenvalues")
        extremes = [f"{statistics.fmean(of(one) for one in values):.3f}" for of in (min, max)]
        rows.append([method, f"{runs.mean('delta_row'):.3f} ± {runs.deviation('delta_row'):.3f}", *extremes])
    return Comparison(["method", "row delta", "smallest eigenvalue", "largest eigenvalue"], rows, NO_NUMBERS)


FIG_A1 = Experiment(
    id="figA1",
    title="Eigenvalues of W W^T under OLM in groups",
    shows="On Z of 64 x 64 entries N(0, 1), only the full group of 64 makes W orthogonal; smaller groups tend to be "
    "worse.",
    choices="No centring, as in Table A2.",
    presets=SEEDS,
    runs=group_runs((SQUARE, SQUARE_GROUPS)),
    measure=group,
    paper={"printed numbers": None},
    claims=[
        Claim("Only the full group has all eigenvalues 1", only_full),
        Claim("The eigenvalues spread further with smaller groups", spread_grows),
        Claim("Smaller groups are less orthogonal", worse_with_smaller(SQUARE, SQUARE_GROUPS, ["delta_row"])),
    ],
    table=figA1_table,
    draw=lambda results: pictures.draw_group_eigenvalues(results, SQUARE_GROUPS),
)

EXPERIMENTS = [FIG1, TABLE_A2, FIG_A1]
