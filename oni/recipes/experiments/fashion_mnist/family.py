"""Figures 5, 6, 7a, A2, A3 and A6: deep MLPs on Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from oni.recipes.charts.chart import Chart
from oni.recipes.charts.curves import draw_charts, error_chart, signal_chart, spectrum_chart, sweep_chart
from oni.recipes.experiments.experiment import Claim, Experiment, Results
from oni.recipes.experiments.fashion_mnist import claims
from oni.recipes.experiments.fashion_mnist.networks import (
    FIG5,
    FIG6,
    FIG7A,
    FIG_A2,
    FIG_A3,
    FIG_A6,
    along,
    name_of,
    of,
    runs,
)
from oni.recipes.training.config import Config
from oni.recipes.training.setting import SPECTRUM_AT, WATCHED, Setting, trained
from oni.style import COLOURS

__all__ = ["EXPERIMENTS", "PRESETS", "measure"]

GRID = [0.05, 0.1, 0.5, 1.0]
"""The paper's learning rates."""
QUICK = ("plain", "lecun", "orth-init")
"""Those without orthogonalisation take a tenth of the time, so their learning rates are chosen on whole runs."""
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"data": "fashion-mnist-sample", "samples": 512, "epochs": 2, "seeds": 1},
    "laptop": {"data": "fashion-mnist-sample", "samples": 0, "epochs": 10, "seeds": 1},
    "full": {
        "data": "fashion-mnist",
        "samples": 0,
        "epochs": 10,
        "seeds": 2,
        "grid": GRID,
        "select_epochs": 2,
        "sparing": True,
    },
    "paper": {"data": "fashion-mnist", "samples": 0, "epochs": 80, "seeds": 5, "grid": GRID, "select_epochs": 80},
}


def measure(
    setting: Setting,
    *,
    depth: int,
    method: str,
    options: Mapping[str, Any],
    seed: int,
    grid: list[float],
    select_epochs: int,
    select_seed: int,
    select_options: Mapping[str, Any],
    epochs: int,
    keep: Sequence[str] = WATCHED,
    **others: Any,
) -> dict[str, Any]:
    """One network, trained; of what was watched only some is kept."""
    config = Config(
        network="mlp",
        network_options={"depth": depth, "width": 256, "bias": False},
        method=method,
        method_options=options,
        seed=seed,
        epochs=epochs,
        # As far along as in the code of the authors' earlier paper.
        drops=(epochs // 2,) if epochs > 1 else (),
        drop_factor=0.5,
        **others,
    )
    selected_for = replace(config, method_options=select_options, seed=select_seed)
    found = trained(config, setting, grid=grid, select_epochs=select_epochs, selected_for=selected_for)
    return {name: value for name, value in found.items() if name not in WATCHED or name in keep}


def runs_of(networks: list[dict[str, Any]]) -> Callable[..., list[dict[str, Any]]]:
    """From a preset's sizes to the runs: every network with every seed; fewer where it is ``sparing``."""

    def runs(seed: int, seeds: int, sparing: bool = False, **sizes: Any) -> list[dict[str, Any]]:
        found = []
        for each in networks:
            if not sparing:
                each = {**each, "seeds": seeds, "select_options": each["options"]}
            count = min(seeds, each["seeds"] or seeds)
            found += [parameters(each, seed, seed + more, **sizes) for more in range(count)]
        return found

    return runs


def parameters(
    of: Mapping[str, Any],
    first: int,
    seed: int,
    *,
    grid: list[float] | None = None,
    select_epochs: int = 0,
    **sizes: Any,
) -> dict[str, Any]:
    """Of one run. Without a grid, the learning rate is the one chosen on the full data."""
    return {
        **{key: value for key, value in of.items() if key != "seeds"},
        "seed": seed,
        "grid": grid or [CHOSEN.get(f"{of['depth']} {name_of(of)}", 0.1)],
        "select_epochs": sizes["epochs"] if of["method"] in QUICK else select_epochs,
        "select_seed": first,
        **sizes,
    }


CHOSEN: dict[str, float] = {
    "6 OLM": 1,
    "6 OLM-NS": 1,
    "6 ONI": 1,
    "6 ONI, T = 1": 1,
    "6 ONI, T = 2": 1,
    "6 ONI, T = 3": 1,
    "6 ONI, T = 4": 1,
    "6 ONI, T = 5": 1,
    "6 ONI, T = 6": 1,
    "6 ONI, T = 7": 0.5,
    "6 ONI, Z orthogonal, not centred": 1,
    "6 ONI-NS": 1,
    "6 ONI-NS, Z orthogonal, not centred": 1,
    "10 ONI": 1,
    "10 ONI, G = 128": 1,
    "10 ONI, G = 16": 0.05,
    "10 ONI, G = 256": 1,
    "10 ONI, G = 64": 0.5,
    "10 ONI, T = 1": 1,
    "10 ONI, T = 3": 1,
    "10 ONI, T = 5": 1,
    "10 ONI, T = 7": 1,
    "10 ONI, Z orthogonal, centred": 1,
    "10 ONI, Z orthogonal, not centred": 1,
    "10 ONI, Z random, not centred": 1,
    "10 plain, torch's start": 1,
    "20 OLM": 0.5,
    "20 OLM-NS": 0.05,
    "20 ONI": 1,
    "20 ONI-NS": 0.05,
    "20 ONI-NS, Z orthogonal, not centred": 0.05,
}
"""By depth and name, where the choice on the full data was not 0.1."""


def describe(parameters: dict[str, Any]) -> str:
    return f"{parameters['depth']}-layer MLP, {name_of(parameters)}, seed {parameters['seed']}"


SHARED = (
    "{depths} hidden layers of width 256 with ReLU and an ordinary output layer, as in the code of the authors' "
    "earlier paper, which also has: no biases in hidden layers, SGD without momentum or weight decay, pixels divided "
    "by 255 less their mean, the learning rate halved half-way, incomplete batches left out. The learning rate is the "
    "best of {{.05, .1, .5, 1}} on 5,000 held-out samples with the first seed, in runs of 2 epochs (in whole runs for "
    "networks without orthogonalisation, which are quick; preset paper: whole runs for all); then all samples are "
    "trained on. Presets: full is all 60,000 images, 10 epochs, 2 seeds; paper 80 epochs, 5 seeds; smoke and laptop "
    "use the embedded sample and the learning rates chosen on the full data. ONI with 5 steps, centred, compact bound, "
    "a learnable scale per row that starts at sqrt 2 (NS: 1). "
)
START = (
    "The paper starts from LeCun's random weights. For ONI that leaves the spectrum of Z wide, so that 5 steps do not "
    "make W orthogonal, and centring takes away a third of the signal's mean square in each layer. So ONI is also run "
    "with Z started orthogonal and rows not centred."
)


def charts5(results: Results) -> list[Chart]:
    styles = of(results, FIG5)
    spectra = {name: style for name, style in styles.items() if not name.startswith("plain, ")}
    step = min(SPECTRUM_AT, max(int(at) for at in results[0].measured["spectrum"]))
    return [
        error_chart("Training (solid) and test error (dashed)", styles),
        spectrum_chart(f"Spectrum of layer 5 after {step} steps", spectra, 5, step),
    ]


def charts6(results: Results) -> list[Chart]:
    return [
        error_chart(
            f"{depth} layers, {part} error", of(results, [each for each in FIG6 if each["depth"] == depth]), [part]
        )
        for depth in (6, 20)
        for part in ("train", "test")
    ]


def chartsA2(results: Results) -> list[Chart]:
    styles = of(results, FIG_A2)
    return [
        signal_chart("Activations: start (dotted), end (solid)", styles, "input", "mean |x|"),
        signal_chart("Gradients: start (dotted), end (solid)", styles, "gradient", "mean |dL/dh|"),
    ]


def charts7a(results: Results) -> list[Chart]:
    sweep = [(each["options"]["steps"], runs(results, each)) for each in FIG7A]
    styles = along(results, FIG7A)
    return [
        sweep_chart("6 layers, error at the end", "steps T", sweep, COLOURS["oni"]),
        error_chart("6 layers, training error", styles, ["train"]),
    ]


def chartsA3(results: Results) -> list[Chart]:
    styles = along(results, FIG_A3)
    return [error_chart(f"10 layers, {part} error", styles, [part]) for part in ("train", "test")]


def chartsA6(results: Results) -> list[Chart]:
    step = min(SPECTRUM_AT, max(int(at) for at in results[0].measured["spectrum"]))
    found = []
    for depth in (6, 10):
        styles = along(results, [each for each in FIG_A6 if each["depth"] == depth])
        found += [error_chart(f"{depth} layers, {part} error", styles, [part]) for part in ("train", "test")]
        found.append(spectrum_chart(f"Layer 1 of {depth} after {step} steps", styles, 1, step))
    return found


def figure(
    id: str,
    title: str,
    shows: str,
    choices: str,
    networks: list[dict[str, Any]],
    claimed: list[Claim],
    charts: Callable[[Results], list[Chart]],
    *,
    columns: int = 2,
    keep: Sequence[str] = (),
    found: str = "",
) -> Experiment:
    """One of the figures; ``keep`` is what it shows of what was watched."""
    depths = " or ".join(map(str, sorted({each["depth"] for each in networks})))
    return Experiment(
        id=id,
        title=title,
        shows=shows,
        choices=SHARED.format(depths=depths) + choices,
        presets=PRESETS,
        runs=runs_of(networks),
        measure=partial(measure, keep=keep),
        paper={"printed numbers": None},
        claims=claimed,
        table=lambda results: claims.summary(
            {f"{each['depth']} layers, {name_of(each)}": runs(results, each) for each in networks}
        ),
        draw=lambda results: draw_charts(charts(results), columns),
        found=found,
        charts=charts,
        trains=True,
        describe=describe,
    )


FIGURE5 = figure(
    "fig5",
    "Maintaining orthogonality: plain, OrthInit and ONI in a 10-layer MLP",
    "Orthogonal initialisation makes the first phase of training faster than plain; then its benefit is lost, as "
    "updates leave the orthogonal matrices; ONI keeps it, and ends with the lowest training error.",
    "Plain starts from weights N(0, 1/d), LeCun's; with torch's default, uniform of a third of that variance, it is "
    "also shown. OrthInit has gain 1. "
    + START
    + " The other two combinations have one seed. The spectra are of W without its "
    "scale, of the first seed.",
    FIG5,
    [
        Claim("OrthInit trains faster than plain at first", claims.faster_at_first),
        Claim("Later OrthInit has no such advantage, and ONI ends with a lower training error", claims.overtaken),
        Claim("ONI ends with the lowest training error", claims.lowest_at_the_end),
        Claim("After 200 steps the spectrum of OrthInit's layer 5 has spread", claims.spread_out),
        Claim("ONI's has changed less", claims.drifts_less),
        Claim("ONI's start and centring matter (not a claim of the paper)", claims.choice_matters),
    ],
    charts5,
    keep=["spectrum"],
    found="In each seed OrthInit is ahead of plain in the first epoch, by less than seeds differ, and no longer in the "
    "second. Trained at ten times its learning rate, ONI as "
    "printed changes its spectrum more: five steps bring the median singular value of a random Z only to 0.89, so W "
    "follows what the updates do to Z. But none passes 1, while OrthInit's largest grows. From an orthogonal Z it "
    "moves about as little as OrthInit's.",
)
FIGURE6 = figure(
    "fig6",
    "Effects of scaling by sqrt 2: OLM and ONI in 6 and 20 layers",
    "Scaling has no significant effect on 6 layers. Of 20 layers, neither OLM nor ONI converges without it, and both "
    "do with it. ONI performs nearly as OLM does, which orthogonalises exactly.",
    "OLM by eigendecomposition in groups of 64 rows, centred, as in its own code; its scale is fixed. Converged is "
    "here: less than half of the training samples wrong at the end. "
    + START
    + " With 6 layers, and without scaling, that has "
    "one seed.",
    FIG6,
    [
        Claim("In 6 layers the scale makes no notable difference", claims.scale_makes_no_difference),
        Claim("In 20 layers neither ONI nor OLM converges without it", claims.no_convergence),
        Claim("In 20 layers both converge with it", claims.convergence),
        Claim("ONI performs nearly as OLM", claims.same_as_olm),
        Claim(
            "With Z started orthogonal and not centred, the same holds (not a claim of the paper)", claims.isometric_too
        ),
    ],
    charts6,
    found="With 6 layers, networks without the scale begin more slowly, and after 10 epochs are still behind in "
    "training error; test errors are the same. With 20 layers, ONI as printed leaves the plateau late, at the largest "
    "learning rate alone, and goes on unsteadily: five steps from a random Z leave W far from orthogonal, and centring "
    "weakens the signal further. OLM, which is exact, does not depend on the start of Z. Started orthogonal and not "
    "centred, ONI trains as steadily as OLM and ends below it, as the paper says of ONI; the authors' code for "
    "convolutions starts Z so. What stays at 90 % for the two epochs of "
    "the choice has no best learning rate: the one taken there is arbitrary.",
)
FIGURE7A = figure(
    "fig7a",
    "Effects of the number of steps: ONI in a 6-layer MLP",
    "Too few and too many steps both make it worse; 5 usually works best without residual connections. For this simple "
    "data set larger numbers are nearly equal.",
    "The paper does not say which numbers of steps it draws; here 1 to 7, as in its Figure A6. The learning rate is "
    "chosen for each.",
    FIG7A,
    [
        Claim("Too few steps make it worse", claims.too_few_hurt),
        Claim("Too many steps make it worse", claims.too_many_hurt),
        Claim("5 steps are as good as the best", claims.five_is_best),
        Claim("5 to 7 steps are nearly equal", claims.plateau),
    ],
    charts7a,
    found="Up to 7 steps, more are never worse in test error: on this data set the paper itself says that larger "
    "numbers are nearly equal. With one step the singular values, and with them the signal, are so small that one seed "
    "is still far behind at the end.",
)
FIGURE_A2 = figure(
    "figA2",
    "Activations and gradients, layer by layer, in a 20-layer MLP",
    "Without scaling, activations and gradients vanish exponentially with depth, when training begins and at its end. "
    "With it the gradient does not vanish.",
    "Mean absolute values over the first 256 training samples, as the figure's text has it (its formulas leave out the "
    "division). They vanish, here, if the last layer's is less than a thousandth of the first hidden layer's (the "
    "activations) or the other way round (the gradients). " + START,
    FIG_A2,
    [
        Claim("ONI-NS: activations and gradients vanish at the start", claims.vanishes("start")),
        Claim("ONI-NS: activations and gradients vanish at the end", claims.vanishes("end")),
        Claim("ONI: the gradient does not vanish", claims.gradient_stays),
    ],
    chartsA2,
    keep=["signal"],
)
FIGURE_A3 = figure(
    "figA3",
    "Effects of groups: ONI with groups of 16 to 256 rows in a 10-layer MLP",
    "ONI is slightly better with larger groups, because groups can't make the whole matrix orthogonal.",
    "The learning rate is chosen for each size.",
    FIG_A3,
    [
        Claim("The largest group ends with a lower training error than the smallest", claims.larger_beats_smaller),
        Claim("The training error falls with every larger size", claims.falls_with_groups),
        Claim("The differences are slight: test errors within 1 point", claims.slight),
    ],
    chartsA3,
    found="The learning rates chosen in two epochs grow with the size: 0.05, 0.1, 0.5, 1, 1. At 0.5 one of the two "
    "seeds with 64 rows was thrown back in its first epoch (66 % wrong, the other 36 %) and did not catch up: it ended "
    "with 11.7 % training errors, the other with 5.1 %. Two seeds can't tell whether 64 rows are worse than 32.",
)
FIGURE_A6 = figure(
    "figA6",
    "Training with 1 to 7 steps, and the spectra they give",
    "More steps bring the singular values of the first layer nearer to 1, as seen after 200 steps of training.",
    "The caption says 10 layers where the text of the ablation says 6: all numbers of steps with 6 layers (the runs of "
    "fig7a), and 1, 3, 5, 7 with 10 layers, one seed, at the learning rate chosen for 5 steps. The spectra are of the "
    "first seed.",
    FIG_A6,
    [
        Claim("More steps bring the singular values of layer 1 nearer to 1", claims.nearer_one),
    ],
    chartsA6,
    columns=3,
    keep=["spectrum"],
)

EXPERIMENTS = [FIGURE5, FIGURE6, FIGURE7A, FIGURE_A2, FIGURE_A3, FIGURE_A6]
