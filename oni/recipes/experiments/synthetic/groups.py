"""What Table A2 and Figure A1 share: OLM can't orthogonalise more rows than columns, and splits them into groups."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oni.baselines.olm import orthogonalize_olm
from oni.diagnostics.spectrum import orthogonality
from oni.machine import one_thread
from oni.newton.orthogonalize import orthogonalize
from oni.recipes.experiments.experiment import Results
from oni.recipes.experiments.synthetic.family import draw_gaussian, eigenvalues
from oni.recipes.experiments.verdicts import Judgement

__all__ = ["FULL_STEPS", "GROUPED", "Grouping", "make_grouping_plan", "measure_grouping"]

FULL_STEPS = 15
"""Steps of ONI where the paper says full: delta is then at the level of rounding."""
GROUPED = ["OLM-G32", "OLM-G16", "OLM-G8"]


@dataclass(frozen=True)
class Grouping:
    """One random matrix made orthogonal by ONI, or by OLM in groups of rows."""

    seed: int
    shape: tuple[int, ...]
    method: str

    def describe(self) -> str:
        """A run in a few words."""
        return f"{self.shape[0]} x {self.shape[1]}, {self.method}, seed {self.seed}"


@one_thread()
def measure_grouping(run: Grouping, setting: object = None) -> dict[str, Any]:
    """The deltas and, for a square matrix, the eigenvalues of W W^T."""
    Z = draw_gaussian(run.shape, 0.0, run.seed)
    if run.method == "ONI":
        W = orthogonalize(Z, FULL_STEPS, center=False)
    else:
        W = orthogonalize_olm(Z, group_size=int(run.method.removeprefix("OLM-G")), center=False)
    delta = orthogonality(W)
    return {
        "delta_row": float(delta.row),
        "delta_column": float(delta.column),
        "eigenvalues": eigenvalues(W).tolist() if run.shape[0] == run.shape[1] else [],
    }


def make_grouping_plan(*cases: tuple[tuple[int, ...], Sequence[str]]) -> Callable[..., list[Grouping]]:
    """Every shape with every method given with it."""

    def plan(seed: int, seeds: int) -> list[Grouping]:
        return [
            Grouping(seed + index, shape, method)
            for index in range(seeds)
            for shape, methods in cases
            for method in methods
        ]

    return plan


def smaller_is_worse(
    shape: tuple[int, ...], methods: Sequence[str], names: Sequence[str]
) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        held, texts = True, []
        for name in names:
            deltas = [results.where(shape=shape, method=method).values(name) for method in methods]
            held &= all(a < b for pair in itertools.pairwise(deltas) for a, b in zip(*pair, strict=True))
            means = ", ".join(f"{statistics.fmean(values):.2f}" for values in deltas)
            texts.append(f"{name.removeprefix('delta_')} delta {means}")
        sizes = ", ".join(method.removeprefix("OLM-") for method in methods)
        return held, f"in every seed; means for {sizes}: {'; '.join(texts)}"

    return judge
