"""Theorems 1 and 2 by simulation: what orthogonal weights keep of a signal, with and without a ReLU.

An expectation is held against its estimate by a test at 99 %, corrected for the number of entries tested.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from oni.diagnostics.spectrum import orthogonality
from oni.machine import one_thread
from oni.newton.orthogonalize import orthogonalize
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Results
from oni.recipes.experiments.theorems.pictures import draw_gains, draw_norms

__all__ = ["EXPERIMENTS", "ISOMETRIC"]

MANY = 30
"""Newton steps after which the short side is orthonormal up to rounding."""
EXACT = 1e-9
"""Rounding of a norm's ratio."""
CONFIDENCE = 0.99
FORWARD, BACKWARD = 2.0, 0.5
"""The standard deviations sigma_1 of x and sigma_2 of the gradient."""
ISOMETRIC = math.sqrt(2 / (1 - 1 / math.pi))
"""The scale that keeps the mean square of activations between ReLU layers whose weights are centred."""

SHAPES = {"n < d": [32, 64], "n = d": [64, 64], "n > d": [64, 32]}


def orthonormal(
    n: int, d: int, generator: torch.Generator, *, center: bool = False, batch: int | None = None
) -> Tensor:
    shape = (n, d) if batch is None else (batch, n, d)
    return orthogonalize(torch.randn(shape, generator=generator, dtype=torch.float64), MANY, center=center)


def limit(count: int) -> float:
    """The size that none of so many standard normal numbers exceeds, with the confidence above."""
    return statistics.NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * count))


def isotropy(vectors: Tensor, sigma: float) -> dict[str, float]:
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


def lengths(after: Tensor, before: Tensor) -> dict[str, Any]:
    """The ratio of norms: quantiles, and the largest distance from 1."""
    ratio = after.norm(dim=1) / before.norm(dim=1)
    at = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=ratio.dtype)
    return {"quantiles": ratio.quantile(at).tolist(), "worst": float((ratio - 1).abs().max())}


@one_thread()
def signal(seed: int, case: str, distribution: str, samples: int) -> dict[str, Any]:
    """One orthonormal matrix, and random vectors through it both ways."""
    generator = torch.Generator().manual_seed(seed)
    n, d = SHAPES[case]
    W = orthonormal(n, d, generator)

    def drawn(size: int, sigma: float) -> Tensor:
        if distribution == "normal":
            return sigma * torch.randn(samples, size, generator=generator, dtype=torch.float64)
        uniform = torch.rand(samples, size, generator=generator, dtype=torch.float64)
        return sigma * math.sqrt(12) * (uniform - 0.5)

    x, g = drawn(d, FORWARD), drawn(n, BACKWARD)
    h, dx = x @ W.mT, g @ W
    return {
        "delta_row": float(orthogonality(W).row),
        "norm_forward": lengths(h, x),
        "forward": isotropy(h, FORWARD),
        "norm_backward": lengths(dx, g),
        "backward": isotropy(dx, BACKWARD),
    }


def signal_runs(seed: int, seeds: int, samples: int) -> list[dict[str, Any]]:
    return [
        {"seed": seed + number, "case": case, "distribution": distribution, "samples": samples}
        for number in range(seeds)
        for case in SHAPES
        for distribution in ("normal", "uniform")
    ]


PROPERTIES = {1: "norm_forward", 2: "forward", 3: "norm_backward", 4: "backward"}


def property_holds(results: Results, which: int) -> tuple[bool, str]:
    """One of the theorem's four properties, in all of the runs."""
    found = results.every(PROPERTIES[which])
    if which in (1, 3):
        worst = max(one["worst"] for one in found)
        return worst < EXACT, f"({which}) norms within {worst:.1g}"
    largest, count = max(one["largest_deviation"] for one in found), sum(one["entries"] for one in found)
    return largest < limit(
        count
    ), f"({which}) largest deviation {largest:.1f} standard errors, limit {limit(count):.1f}"


def properties(expected: dict[str, Sequence[int]], *, hold: bool = True, distribution: str = "normal") -> Any:
    def test(results: Results) -> tuple[bool, str]:
        verdicts = {
            case: [property_holds(results.where(case=case, distribution=distribution), which) for which in numbers]
            for case, numbers in expected.items()
        }
        said = "; ".join(f"{case}: {', '.join(detail for _, detail in found)}" for case, found in verdicts.items())
        return all(held == hold for found in verdicts.values() for held, _ in found), said

    return test


HOLDING: dict[str, Sequence[int]] = {"n < d": (2, 3), "n = d": (1, 2, 3, 4), "n > d": (1, 4)}


def rows_when_tall(results: Results) -> tuple[bool, str]:
    delta = results.where(case="n > d").every("delta_row")
    return max(delta) < EXACT, (
        f"64 rows of 32 entries have rank 32: the row delta is {min(delta):.4f}, the square root of n - d, and can't "
        "be less; the premise for n > d has to be W^T W = I"
    )


def needs_normal(results: Results) -> tuple[bool, str]:
    held, said = properties(HOLDING, distribution="uniform")(results)
    return not held, f"uniform entries do as well: {said}"


def theorem1_table(results: Results) -> Comparison:
    rows = []
    for case, shape in SHAPES.items():
        runs = results.where(case=case, distribution="normal")
        cells = ["holds" if property_holds(runs, which)[0] else "fails" for which in PROPERTIES]
        paper = " ".join(f"({which})" for which in HOLDING[case])
        rows.append([case, "x".join(map(str, shape)), paper, *cells])
    columns = ["case", "n x d", "paper: hold", "(1) |h| = |x|", "(2) cov h", "(3) |dx| = |dh|", "(4) cov dx"]
    return Comparison(columns, rows, "W has an orthonormal short side; normal inputs.")


THEOREM1 = Experiment(
    id="theorem1",
    title="What orthogonal weights keep of a signal",
    shows="For h = W x with W W^T = I: (1) |h| = |x|, (2) h has zero mean and covariance sigma_1^2 I, (3) and (4) the "
    "same for the gradients. All hold for n = d, (2) and (3) for n < d, (1) and (4) for n > d.",
    choices="Sizes, and how the inputs are distributed: normal and uniform entries, of standard deviations 2 and 0.5. "
    "For n > d the columns are orthonormal, as rows can't be.",
    presets={
        "smoke": {"seeds": 2, "samples": 5_000},
        "laptop": {"seeds": 5, "samples": 50_000},
        "paper": {"seeds": 20, "samples": 200_000},
    },
    runs=signal_runs,
    measure=signal,
    paper={case: [f"({which})" for which in numbers] for case, numbers in HOLDING.items()},
    claims=[
        Claim("n = d: (1) to (4) hold", properties({"n = d": HOLDING["n = d"]})),
        Claim("n < d: (2) and (3) hold", properties({"n < d": HOLDING["n < d"]})),
        Claim("n > d: (1) and (4) hold, given W^T W = I", properties({"n > d": HOLDING["n > d"]})),
        Claim(
            "Those not named do not hold: (1), (4) for n < d, (2), (3) for n > d",
            properties({"n < d": (1, 4), "n > d": (2, 3)}, hold=False),
        ),
        Claim("W W^T = I, as the theorem assumes, is possible for n > d", rows_when_tall),
        Claim("The theorem needs Gaussian inputs, as the text says", needs_normal),
    ],
    table=theorem1_table,
    draw=draw_norms,
)


# Theorem 2.

WEIGHTS = [(center, scale) for center in (False, True) for scale in ("1", "sqrt 2", "1.7129")]
SCALES = {"1": 1.0, "sqrt 2": math.sqrt(2), "1.7129": ISOMETRIC}
DEPTH, WIDTH = 20, 256


@one_thread()
def rectified(seed: int, kind: str, center: bool, scale: str, samples: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return MEASURES[kind](generator, center, SCALES[scale], samples)


def jacobian(generator: torch.Generator, center: bool, scale: float, samples: int) -> dict[str, Any]:
    """J J^T of h = max(0, W x), x standard normal: J's rows are those of W where h is positive, else zero."""
    W = scale * orthonormal(32, 64, generator, center=center)
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


def layer(generator: torch.Generator, center: bool, scale: float, samples: int) -> dict[str, Any]:
    """The gain in mean square of single layers whose inputs come from a ReLU, and of gradients back through them."""
    forward, backward = [], []
    for W in scale * orthonormal(128, 256, generator, center=center, batch=20):
        x = torch.randn(samples // 20, 256, generator=generator, dtype=torch.float64).relu()
        h = (x @ W.mT).relu()
        g = torch.randn(h.shape, generator=generator, dtype=torch.float64)
        forward.append(float((h**2).mean() / (x**2).mean()))
        backward.append(float((((h > 0) * g) @ W).square().sum() / g.square().sum()))
    return {"forward": forward, "backward": backward}


def network(generator: torch.Generator, center: bool, scale: float, samples: int) -> dict[str, Any]:
    """The mean square by layer of a deep ReLU network, of activations and of gradients sent back from the end."""
    weights = scale * orthonormal(WIDTH, WIDTH, generator, center=center, batch=DEPTH)
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
    "jacobian": jacobian,
    "layer": layer,
    "network": network,
}


def rectified_runs(seed: int, seeds: int, samples: int) -> list[dict[str, Any]]:
    return [
        {"seed": seed + number, "kind": kind, "center": center, "scale": scale, "samples": samples}
        for number in range(seeds)
        for kind in MEASURES
        for center, scale in WEIGHTS
    ]


def predicted(center: bool, scale: str, way: str) -> float:
    """The gain in mean square that theory has for a layer."""
    lost = 1 / math.pi if center and way == "forward" else 0.0
    return SCALES[scale] ** 2 / 2 * (1 - lost)


def gain(results: Results, center: bool, scale: str, way: str) -> tuple[float, float]:
    """The measured gain of a layer, and half its confidence interval."""
    runs = results.where(kind="layer", center=center, scale=scale)
    values = [value for one in runs.every(way) for value in one]
    return statistics.fmean(values), limit(1) * statistics.stdev(values) / math.sqrt(len(values))


def expected_jacobian(scale: str, size: float) -> Any:
    def test(results: Results) -> tuple[bool, str]:
        runs = results.where(kind="jacobian", center=False, scale=scale)
        values = [value for one in runs.every("diagonal") for value in one]
        error = runs.every("diagonal_error")[0]
        largest, most = max(abs(value - size) for value in values) / error, limit(len(values))
        half = limit(1) * error / math.sqrt(len(values))
        off = max(runs.every("off_diagonal"))
        return largest < most and off < EXACT, (
            f"diagonal {statistics.fmean(values):.4f} ± {half:.4f} on average, its entries within {largest:.1f} "
            f"standard errors of {size:g} (limit {most:.1f}); off it at most {off:.0e}"
        )

    return test


def each_jacobian(results: Results) -> tuple[bool, str]:
    zero = results.where(kind="jacobian", center=False, scale="sqrt 2").mean("zero_singular_values")
    return zero < 0.01, (
        f"{zero:.1%} of its singular values are 0 and the others sqrt 2: it is isometric in expectation only"
    )


def proof_covariance(results: Results) -> tuple[bool, str]:
    variance = results.where(kind="jacobian", center=False, scale="sqrt 2").mean("variance")
    return abs(variance - 1) < 0.01, (
        f"measured {variance:.3f} I, which is sigma^2 I; the result stands, as it needs only that W x is symmetric"
    )


def gain_is(center: bool, scale: str, way: str, expected: float) -> Any:
    def test(results: Results) -> tuple[bool, str]:
        mean, half = gain(results, center, scale, way)
        return abs(mean - expected) <= max(half, 0.005), (
            f"mean square times {mean:.4f} ± {half:.4f} per layer; theory: {predicted(center, scale, way):.4f}"
        )

    return test


def twenty_layers(center: bool, scale: str, way: str) -> Any:
    def test(results: Results) -> tuple[bool, str]:
        every = results.where(kind="network", center=center, scale=scale).every(way)
        ratios = [one[-1] / one[0] if way == "forward" else one[0] / one[-1] for one in every]
        ratio = statistics.geometric_mean(ratios)
        rate = ratio ** (1 / (DEPTH - 1))
        return (
            0.5 < ratio < 2,
            f"from one end to the other the mean square changes by {ratio:.2g}, {rate:.3f} per layer",
        )

    return test


def theorem2_table(results: Results) -> Comparison:
    rows = []
    for center, scale in WEIGHTS:
        row = ["centred" if center else "uncentred", scale]
        for way in ("forward", "backward"):
            mean, half = gain(results, center, scale, way)
            row += [f"{predicted(center, scale, way):.4f}", f"{mean:.4f} ± {half:.4f}"]
        rows.append(row)
    columns = ["W", "scale", "forward: theory", "forward: ours", "backward: theory", "backward: ours"]
    note = "Gain in mean square of one ReLU layer after another; the paper's theorem asks for 1. ± is at 99 %."
    return Comparison(columns, rows, note)


THEOREM2 = Experiment(
    id="theorem2",
    title="Orthogonal weights times sqrt 2 before a ReLU",
    shows="For h = max(0, W x) with W W^T = sigma^2 I and x standard normal, sigma^2 = 2 gives E[J J^T] = I: a factor "
    "of sqrt 2 gives each layer dynamical isometry.",
    choices="Sizes: 32 x 64 for the Jacobian, 128 x 256 for single layers after a ReLU, 20 layers of 256 x 256. The "
    "theorem leaves out that Algorithm 2 centres W, so each is measured with and without.",
    presets={
        "smoke": {"seeds": 1, "samples": 4_000},
        "laptop": {"seeds": 5, "samples": 20_000},
        "paper": {"seeds": 20, "samples": 100_000},
    },
    runs=rectified_runs,
    measure=rectified,
    paper={"E[J J^T] for sigma^2 = 2": 1.0},
    claims=[
        Claim("E[J J^T] = I for sigma^2 = 2", expected_jacobian("sqrt 2", 1.0)),
        Claim("E[J J^T] = I / 2 without the factor", expected_jacobian("1", 0.5)),
        Claim("Each single J is isometric", each_jacobian),
        Claim("W x has covariance I, as the proof says", proof_covariance),
        Claim("sqrt 2 keeps the activations' mean square, W uncentred", gain_is(False, "sqrt 2", "forward", 1.0)),
        Claim("sqrt 2 keeps it with Algorithm 2, whose W is centred", gain_is(True, "sqrt 2", "forward", 1.0)),
        Claim("sqrt 2 keeps the gradients' mean square, W centred", gain_is(True, "sqrt 2", "backward", 1.0)),
        Claim(
            "Centred W have a forward gain of 0.6817 with sqrt 2",
            gain_is(True, "sqrt 2", "forward", predicted(True, "sqrt 2", "forward")),
        ),
        Claim(
            "Centred W have a forward gain of 0.3408 without",
            gain_is(True, "1", "forward", predicted(True, "1", "forward")),
        ),
        Claim("1.7129 keeps the activations' mean square, W centred", gain_is(True, "1.7129", "forward", 1.0)),
        Claim("sqrt 2 keeps activations through 20 layers, W uncentred", twenty_layers(False, "sqrt 2", "forward")),
        Claim("sqrt 2 keeps activations through 20 layers, W centred", twenty_layers(True, "sqrt 2", "forward")),
        Claim("sqrt 2 keeps gradients through 20 layers, W centred", twenty_layers(True, "sqrt 2", "backward")),
    ],
    table=theorem2_table,
    draw=lambda results: draw_gains(results.where(kind="network"), WEIGHTS),
)

EXPERIMENTS = [THEOREM1, THEOREM2]
