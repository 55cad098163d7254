"""Theorem 2 by simulation: what orthogonal weights scaled by sqrt 2 preserve of a signal through ReLUs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from oni.machine import one_thread
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Quantity, Results
from oni.recipes.experiments.theorems.family import EXACT, confidence_limit, draw_orthonormal
from oni.recipes.experiments.verdicts import Judgement, Kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT"]

ISOMETRIC = math.sqrt(2 / (1 - 1 / math.pi))
"""The scale that keeps the mean square of activations between ReLU layers whose weights are centred."""
SCALES = {"1": 1.0, "sqrt 2": math.sqrt(2), "1.7129": ISOMETRIC}
WEIGHTS = [(center, scale) for center in (False, True) for scale in SCALES]
DEPTH, WIDTH = 20, 256


@dataclass(frozen=True)
class Rectified:
    """Random vectors through one or more ReLU layers."""

    seed: int
    kind: str
    """``"jacobian"``, ``"layer"`` or ``"network"``."""
    center: bool
    scale: str
    samples: int

    def describe(self) -> str:
        """A run in a few words."""
        return f"{self.kind}, {'centred' if self.center else 'uncentred'}, scale {self.scale}, seed {self.seed}"


def plan(seed: int, seeds: int, samples: int) -> list[Rectified]:
    return [
        Rectified(seed + index, kind, center, scale, samples)
        for index in range(seeds)
        for kind in MEASURES
        for center, scale in WEIGHTS
    ]


@one_thread()
def measure(run: Rectified, setting: object = None) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(run.seed)
    return MEASURES[run.kind](generator, run.center, SCALES[run.scale], run.samples)


def measure_jacobian(generator: torch.Generator, center: bool, scale: float, samples: int) -> dict[str, Any]:
    """J J^T of h = max(0, W x), x standard normal: J's rows are those of W where h is positive, else zero."""
    W = scale * draw_orthonormal(32, 64, generator, center=center)
    pre = torch.randn(samples, 64, generator=generator, dtype=torch.float64) @ W.mT
    mask = (pre > 0).double()
    expected = (mask.mT @ mask / samples) * (W @ W.mT)
    diagonal = expected.diagonal()
    return {
        "diagonal": diagonal.tolist(),
        "diagonal_error": scale**2 * 0.5 / math.sqrt(samples),
        "off_diagonal": float((expected - diagonal.diag()).abs().max()),
        "variance": float((pre**2).mean()),
        "zero_singular_values": float(1 - mask.mean()),
    }


def measure_layer(generator: torch.Generator, center: bool, scale: float, samples: int) -> dict[str, Any]:
    """The gain in mean square of single layers whose inputs come from a ReLU, and of gradients back through them."""
    forward, backward = [], []
    for W in scale * draw_orthonormal(128, 256, generator, center=center, batch=20):
        x = torch.randn(samples // 20, 256, generator=generator, dtype=torch.float64).relu()
        h = (x @ W.mT).relu()
        g = torch.randn(h.shape, generator=generator, dtype=torch.float64)
        forward.append(float((h**2).mean() / (x**2).mean()))
        backward.append(float((((h > 0) * g) @ W).square().sum() / g.square().sum()))
    return {"forward": forward, "backward": backward}


def measure_network(generator: torch.Generator, center: bool, scale: float, samples: int) -> dict[str, Any]:
    """The mean square by layer of a deep ReLU network, of activations and of gradients sent back from the end."""
    weights = scale * draw_orthonormal(WIDTH, WIDTH, generator, center=center, batch=DEPTH)
    h = torch.randn(256, WIDTH, generator=generator, dtype=torch.float64)
    forward, masks = [], []
    for W in weights:
        h = (h @ W.mT).relu()
        masks.append(h > 0)
        forward.append(float(h.square().mean()))
    g = torch.randn(h.shape, generator=generator, dtype=torch.float64)
    backward = [1.0]
    for W, mask in zip(weights.flip(0)[:-1], masks[::-1][:-1], strict=True):
        g = (mask * g) @ W
        backward.append(float(g.square().mean()))
    return {"forward": forward, "backward": backward[::-1]}


MEASURES: dict[str, Callable[[torch.Generator, bool, float, int], dict[str, Any]]] = {
    "jacobian": measure_jacobian,
    "layer": measure_layer,
    "network": measure_network,
}


# Claims.


def predict_gain(center: bool, scale: str, way: str) -> float:
    """The gain in mean square of a layer, by theory."""
    lost = 1 / math.pi if center and way == "forward" else 0.0
    return SCALES[scale] ** 2 / 2 * (1 - lost)


def measured_gain(results: Results, center: bool, scale: str, way: str) -> tuple[float, float]:
    """The measured gain of a layer, and half its confidence interval."""
    runs = results.where(kind="layer", center=center, scale=scale)
    gains = [gain for by_layer in runs.values(way) for gain in by_layer]
    return statistics.fmean(gains), confidence_limit(1) * statistics.stdev(gains) / math.sqrt(len(gains))


def expected_jacobian(scale: str, size: float) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        runs = results.where(kind="jacobian", center=False, scale=scale)
        entries = [entry for diagonal in runs.values("diagonal") for entry in diagonal]
        error = runs.values("diagonal_error")[0]
        largest, limit = max(abs(entry - size) for entry in entries) / error, confidence_limit(len(entries))
        half = confidence_limit(1) * error / math.sqrt(len(entries))
        off = max(runs.values("off_diagonal"))
        return largest < limit and off < EXACT, (
            f"diagonal {statistics.fmean(entries):.4f} ± {half:.4f} on average, its entries within {largest:.1f} "
            f"standard errors of {size:g} (limit {limit:.1f}); off it at most {off:.0e}"
        )

    return judge


def each_is_isometric(results: Results) -> Judgement:
    zero = results.where(kind="jacobian", center=False, scale="sqrt 2").mean("zero_singular_values")
    return zero < 0.01, (
        f"{zero:.1%} of its singular values are 0 and the others sqrt 2: it is isometric in expectation only"
    )


def covariance_is_identity(results: Results) -> Judgement:
    variance = results.where(kind="jacobian", center=False, scale="sqrt 2").mean("variance")
    return abs(variance - 1) < 0.01, (
        f"measured {variance:.3f} I, which is sigma^2 I; the result still holds, because it only needs W x to be "
        "symmetric"
    )


def gain_is(center: bool, scale: str, way: str, expected: float) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        mean, half = measured_gain(results, center, scale, way)
        return abs(mean - expected) <= max(half, 0.005), (
            f"mean square times {mean:.4f} ± {half:.4f} per layer; theory: {predict_gain(center, scale, way):.4f}"
        )

    return judge


def kept_by_network(center: bool, scale: str, way: str) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        by_seed = results.where(kind="network", center=center, scale=scale).values(way)
        ratios = [layers[-1] / layers[0] if way == "forward" else layers[0] / layers[-1] for layers in by_seed]
        ratio = statistics.geometric_mean(ratios)
        rate = ratio ** (1 / (DEPTH - 1))
        return (
            0.5 < ratio < 2,
            f"from one end to the other the mean square changes by {ratio:.2g}, {rate:.3f} per layer",
        )

    return judge


NEEDS = {"seeds": 5}
CLAIMS = [
    Claim(Kind.MATHEMATICS, "E[J J^T] = I for sigma^2 = 2", expected_jacobian("sqrt 2", 1.0), NEEDS),
    Claim(Kind.MATHEMATICS, "E[J J^T] = I / 2 without the factor", expected_jacobian("1", 0.5), NEEDS),
    Claim(Kind.MATHEMATICS, "Each single J is isometric", each_is_isometric, NEEDS),
    Claim(Kind.MATHEMATICS, "W x has covariance I, as the proof says", covariance_is_identity, NEEDS),
    Claim(
        Kind.MATHEMATICS,
        "sqrt 2 preserves the activations' mean square, W uncentred",
        gain_is(False, "sqrt 2", "forward", 1.0),
        NEEDS,
    ),
    Claim(
        Kind.MATHEMATICS,
        "sqrt 2 preserves it with Algorithm 2, whose W is centred",
        gain_is(True, "sqrt 2", "forward", 1.0),
        NEEDS,
    ),
    Claim(
        Kind.MATHEMATICS,
        "sqrt 2 preserves the gradients' mean square, W centred",
        gain_is(True, "sqrt 2", "backward", 1.0),
        NEEDS,
    ),
    Claim(
        Kind.MATHEMATICS,
        "Centred W have a forward gain of 0.6817 with sqrt 2",
        gain_is(True, "sqrt 2", "forward", predict_gain(True, "sqrt 2", "forward")),
        NEEDS,
    ),
    Claim(
        Kind.MATHEMATICS,
        "Centred W have a forward gain of 0.3408 without",
        gain_is(True, "1", "forward", predict_gain(True, "1", "forward")),
        NEEDS,
    ),
    Claim(
        Kind.MATHEMATICS,
        "1.7129 preserves the activations' mean square, W centred",
        gain_is(True, "1.7129", "forward", 1.0),
        NEEDS,
    ),
    Claim(
        Kind.MATHEMATICS,
        "sqrt 2 preserves activations through 20 layers, W uncentred",
        kept_by_network(False, "sqrt 2", "forward"),
        NEEDS,
    ),
    Claim(
        Kind.MATHEMATICS,
        "sqrt 2 preserves activations through 20 layers, W centred",
        kept_by_network(True, "sqrt 2", "forward"),
        NEEDS,
    ),
    Claim(
        Kind.MATHEMATICS,
        "sqrt 2 preserves gradients through 20 layers, W centred",
        kept_by_network(True, "sqrt 2", "backward"),
        NEEDS,
    ),
]


def make_table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for center, scale in WEIGHTS:
        row: list[str | Quantity] = ["centred" if center else "uncentred", scale]
        for way in ("forward", "backward"):
            mean, half = measured_gain(results, center, scale, way)
            row += [Quantity(predict_gain(center, scale, way), digits=4), Quantity(mean, half, 4)]
        cells.append(row)
    columns = ["W", "scale", "forward: theory", "forward: ours", "backward: theory", "backward: ours"]
    note = "Gain in mean square per ReLU layer; the paper's theorem asks for 1. ± is at 99 %."
    return Comparison(columns, cells, note)


def draw(results: Results) -> Figure:
    """Mean squares by layer of a deep network, for every scale, centred and not."""
    from matplotlib.figure import Figure

    from oni.style import COLOURS, PAGE_WIDTH, tint

    figure = Figure(figsize=(PAGE_WIDTH, 2.9))
    panels = figure.subplots(1, 2, sharey=True)
    shades = {"1": tint(COLOURS["oni"], 0.4), "sqrt 2": tint(COLOURS["oni"], 1.0), "1.7129": (0.0, 0.0, 0.0)}
    names = {"1": "1", "sqrt 2": r"$\sqrt{2}$", "1.7129": "1.7129"}
    for axes, way, title in zip(
        panels, ("forward", "backward"), ("(a) Activations", "(b) Gradients, from the last layer back"), strict=True
    ):
        for center, scale in WEIGHTS:
            by_seed = results.where(kind="network", center=center, scale=scale).values(way)
            mean = [statistics.geometric_mean(values) for values in zip(*by_seed, strict=True)]
            style: dict[str, Any] = {"color": shades[scale], "linestyle": "-" if center else (0, (2.5, 2.5))}
            label = f"{'centred' if center else 'uncentred'}, scale {names[scale]}"
            axes.plot(range(1, len(mean) + 1), mean, label=label, **style)
        axes.set(xlabel="layer", xticks=[1, 5, 10, 15, 20], yscale="log")
        axes.set_title(title)
    panels[0].set_ylabel("mean square")
    # Filled column by column: one for each scale.
    half = len(WEIGHTS) // 2
    handles = [panels[0].lines[index + shift] for index in range(half) for shift in (0, half)]
    figure.legend(handles=handles, ncols=3, loc="outside lower center", handlelength=3.2)
    return figure


EXPERIMENT = Experiment(
    id="theorem2",
    title="Orthogonal weights times sqrt 2 before a ReLU",
    shows="For h = max(0, W x) with W W^T = sigma^2 I and x standard normal, sigma^2 = 2 gives E[J J^T] = I: a factor "
    "of sqrt 2 gives each layer dynamical isometry.",
    choices="Sizes: 32 x 64 for the Jacobian, 128 x 256 for single layers after a ReLU, 20 layers of 256 x 256. The "
    "theorem ignores that Algorithm 2 centres W, so everything is measured with and without centring.",
    presets={
        "smoke": {"seeds": 1, "samples": 500},
        "laptop": {"seeds": 5, "samples": 20_000},
        "paper": {"seeds": 20, "samples": 100_000},
    },
    parameters=(Rectified,),
    plan=plan,
    measure=measure,
    paper={"E[J J^T] for sigma^2 = 2": 1.0},
    claims=CLAIMS,
    table=make_table,
    draw=draw,
)
