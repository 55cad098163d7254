"""Theorem 1 by simulation: what an orthogonal weight preserves of a signal and of its gradient."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from oni.diagnostics.spectrum import orthogonality
from oni.machine import one_thread
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Results
from oni.recipes.experiments.theorems.family import EXACT, confidence_limit, draw_orthonormal
from oni.recipes.experiments.verdicts import Judgement, Kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT"]

FORWARD, BACKWARD = 2.0, 0.5
"""The standard deviations sigma_1 of x and sigma_2 of the gradient."""
SHAPES = {"n < d": (32, 64), "n = d": (64, 64), "n > d": (64, 32)}
PROPERTIES = {1: "norm_forward", 2: "forward", 3: "norm_backward", 4: "backward"}
HOLDING: dict[str, Sequence[int]] = {"n < d": (2, 3), "n = d": (1, 2, 3, 4), "n > d": (1, 4)}
"""Which properties the theorem says hold."""


@dataclass(frozen=True)
class SignalRun:
    """Random vectors sent through one orthonormal matrix, both ways."""

    seed: int
    case: str
    distribution: str
    samples: int

    def describe(self) -> str:
        """A run in a few words."""
        return f"{self.case}, {self.distribution} inputs, seed {self.seed}"


def plan(seed: int, seeds: int, samples: int) -> list[SignalRun]:
    return [
        SignalRun(seed + index, case, distribution, samples)
        for index in range(seeds)
        for case in SHAPES
        for distribution in ("normal", "uniform")
    ]


@one_thread()
def measure(run: SignalRun, setting: object = None) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(run.seed)
    n, d = SHAPES[run.case]
    W = draw_orthonormal(n, d, generator)

    def draw_vectors(size: int, sigma: float) -> Tensor:
        if run.distribution == "normal":
            return sigma * torch.randn(run.samples, size, generator=generator, dtype=torch.float64)
        uniform = torch.rand(run.samples, size, generator=generator, dtype=torch.float64)
        return sigma * math.sqrt(12) * (uniform - 0.5)

    x, g = draw_vectors(d, FORWARD), draw_vectors(n, BACKWARD)
    h, dx = x @ W.mT, g @ W
    return {
        "delta_row": float(orthogonality(W).row),
        "norm_forward": compare_norms(h, x),
        "forward": measure_isotropy(h, FORWARD),
        "norm_backward": compare_norms(dx, g),
        "backward": measure_isotropy(dx, BACKWARD),
    }


def measure_isotropy(vectors: Tensor, sigma: float) -> dict[str, float]:
    """How far zero mean and covariance sigma^2 I are from the samples, in standard errors."""
    count, size = vectors.shape
    mean = vectors.mean(0) / (vectors.std(0) / math.sqrt(count))
    covariance = vectors.mT @ vectors / count
    error = ((vectors**2).mT @ vectors**2 / count - covariance**2).sqrt() / math.sqrt(count)
    identity = sigma**2 * torch.eye(size, dtype=vectors.dtype)
    deviations = ((covariance - identity) / error).triu()
    energy = (vectors**2).mean(1) / sigma**2
    return {
        "largest_deviation": float(torch.maximum(mean.abs().max(), deviations.abs().max())),
        "entries": size + size * (size + 1) // 2,
        "variance": float(energy.mean()),
        "variance_error": float(energy.std() / math.sqrt(count)),
    }


def compare_norms(after: Tensor, before: Tensor) -> dict[str, Any]:
    """The ratio of norms: quantiles, and the largest distance from 1."""
    ratio = after.norm(dim=1) / before.norm(dim=1)
    at = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=ratio.dtype)
    return {"quantiles": ratio.quantile(at).tolist(), "worst": float((ratio - 1).abs().max())}


# Claims.


def judge_property(results: Results, number: int) -> tuple[bool, str]:
    """Whether one of the theorem's four properties holds in all of the runs."""
    values = results.values(PROPERTIES[number])
    if number in (1, 3):
        worst = max(value["worst"] for value in values)
        return worst < EXACT, f"({number}) norms within {worst:.1g}"
    largest = max(value["largest_deviation"] for value in values)
    limit = confidence_limit(sum(value["entries"] for value in values))
    return largest < limit, f"({number}) largest deviation {largest:.1f} standard errors, limit {limit:.1f}"


def properties(
    numbers_by_case: Mapping[str, Sequence[int]], *, hold: bool = True, distribution: str = "normal"
) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        judgements = {
            case: [judge_property(results.where(case=case, distribution=distribution), number) for number in numbers]
            for case, numbers in numbers_by_case.items()
        }
        text = "; ".join(f"{case}: {', '.join(detail for _, detail in pairs)}" for case, pairs in judgements.items())
        return all(held == hold for pairs in judgements.values() for held, _ in pairs), text

    return judge


def rows_orthonormal_when_tall(results: Results) -> Judgement:
    delta = results.where(case="n > d").values("delta_row")
    return max(delta) < EXACT, (
        f"64 rows of 32 entries have rank 32: the row delta is {min(delta):.4f}, the square root of n - d, and can't "
        "be smaller; the premise for n > d must be W^T W = I"
    )


def needs_normal_inputs(results: Results) -> Judgement:
    held, text = properties(HOLDING, distribution="uniform")(results)
    return not held, f"uniform entries work as well: {text}"


NEEDS = {"seeds": 5}
CLAIMS = [
    Claim(Kind.MATHEMATICS, "n = d: (1) to (4) hold", properties({"n = d": HOLDING["n = d"]}), NEEDS),
    Claim(Kind.MATHEMATICS, "n < d: (2) and (3) hold", properties({"n < d": HOLDING["n < d"]}), NEEDS),
    Claim(Kind.MATHEMATICS, "n > d: (1) and (4) hold, given W^T W = I", properties({"n > d": HOLDING["n > d"]}), NEEDS),
    Claim(
        Kind.MATHEMATICS,
        "The others do not hold: (1), (4) for n < d, (2), (3) for n > d",
        properties({"n < d": (1, 4), "n > d": (2, 3)}, hold=False),
        NEEDS,
    ),
    Claim(
        Kind.MATHEMATICS, "W W^T = I, as the theorem assumes, is possible for n > d", rows_orthonormal_when_tall, NEEDS
    ),
    Claim(Kind.MATHEMATICS, "The theorem needs Gaussian inputs, as the text says", needs_normal_inputs, NEEDS),
]


def make_table(results: Results) -> Comparison:
    rows = []
    for case, shape in SHAPES.items():
        runs = results.where(case=case, distribution="normal")
        cells = ["holds" if judge_property(runs, number)[0] else "fails" for number in PROPERTIES]
        paper = " ".join(f"({number})" for number in HOLDING[case])
        rows.append([case, "x".join(map(str, shape)), paper, *cells])
    columns = ["case", "n x d", "paper: hold", "(1) |h| = |x|", "(2) cov h", "(3) |dx| = |dh|", "(4) cov dx"]
    return Comparison(columns, rows, "W has an orthonormal short side; normal inputs.")


def draw(results: Results) -> Figure:
    """The ratios of norms and of variances, forward and backward."""
    from matplotlib.figure import Figure

    from oni.style import COLOURS, PAGE_WIDTH

    figure = Figure(figsize=(PAGE_WIDTH, 2.5))
    left, right = figure.subplots(1, 2)
    ways = {"forward": (COLOURS["oni"], "o", r"$\hat h = Wx$"), "backward": (COLOURS["plain"], "s", r"$W^\top g$")}
    normal = results.where(distribution="normal")
    for shift, (way, (colour, marker, label)) in zip((-0.12, 0.12), ways.items(), strict=True):
        for place, case in enumerate(SHAPES):
            runs = normal.where(case=case)
            by_quantile = zip(*(norms["quantiles"] for norms in runs.values(f"norm_{way}")), strict=True)
            low, _, middle, _, high = map(statistics.fmean, by_quantile)
            left.errorbar(
                place + shift,
                middle,
                [[middle - low], [high - middle]],
                color=colour,
                fmt=marker,
                capsize=3,
                label=label,
            )
            for index, isotropy in enumerate(runs.values(way)):
                right.errorbar(
                    place + shift + 0.03 * (index - len(runs) / 2),
                    isotropy["variance"],
                    2.576 * isotropy["variance_error"],
                    color=colour,
                    fmt=marker,
                    markersize=2,
                    linewidth=0.8,
                )
    for axes in (left, right):
        axes.axhline(1, color="black", linewidth=0.8, zorder=0)
        axes.set_xticks(range(3), [f"{case}\n{n} x {d}" for case, (n, d) in SHAPES.items()])
        axes.grid(visible=False, axis="x")
    left.set_ylabel("norm after / before, 5 % to 95 %")
    right.set_ylabel(r"variance per entry / $\sigma^2$, 99 %")
    left.set_title("(a) Norms: properties 1 and 3")
    right.set_title("(b) Variances: properties 2 and 4")
    handles, labels = left.get_legend_handles_labels()
    left.legend(handles[::3], labels[::3], loc="lower center")
    return figure


EXPERIMENT = Experiment(
    id="theorem1",
    title="What orthogonal weights preserve of a signal",
    shows="For h = W x with W W^T = I: (1) |h| = |x|, (2) h has zero mean and covariance sigma_1^2 I, (3) and (4) the "
    "same for the gradients. All hold for n = d, (2) and (3) for n < d, (1) and (4) for n > d.",
    choices="Sizes and input distributions: normal and uniform entries, with standard deviations 2 and 0.5. For n > d "
    "the columns are orthonormal, because the rows can't be.",
    presets={
        "smoke": {"seeds": 2, "samples": 5_000},
        "laptop": {"seeds": 5, "samples": 50_000},
        "paper": {"seeds": 20, "samples": 200_000},
    },
    parameters=(SignalRun,),
    plan=plan,
    measure=measure,
    paper={case: [f"({number})" for number in numbers] for case, numbers in HOLDING.items()},
    claims=CLAIMS,
    table=make_table,
    draw=draw,
)
