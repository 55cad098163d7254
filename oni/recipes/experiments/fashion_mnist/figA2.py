"""Figure A2: the size of activations and gradients in each layer of a 20-layer MLP."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from oni.recipes.experiments.experiment import Claim, Experiment, Judgement, Results
from oni.recipes.experiments.fashion_mnist.family import (
    LONG,
    PRESETS,
    START,
    Network,
    Training,
    describe_choices,
    describe_sweeps,
    describe_training,
    estimate_cost,
    make_measure,
    make_plan,
)
from oni.recipes.experiments.fashion_mnist.fig6 import ISOMETRIC_20, SCALED
from oni.recipes.experiments.fashion_mnist.reading import (
    find_runs,
    make_table,
    style_networks,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]

ONI = {"as printed": SCALED[20, "oni"], "Z orthogonal, not centred": ISOMETRIC_20[0]}
ONI_NS = {"as printed": SCALED[20, "oni-ns"], "Z orthogonal, not centred": ISOMETRIC_20[1]}
NETWORKS: list[Network] = [SCALED[20, "oni"], SCALED[20, "oni-ns"], *ISOMETRIC_20]
VANISHED = 1e-3
"""Of the signal at the other end of the network."""


# Claims.


def signals(runs: Results, when: str) -> list[dict[str, list[float]]]:
    """Activations and gradients at the start or at the end of training, of every seed."""
    by_seed = [run.measured["signal"] for run in runs]
    return [by_step[str((min if when == "start" else max)(map(int, by_step)))] for by_step in by_seed]


def activations_left(runs: Results, when: str) -> list[float]:
    """Input of the output layer over that of the second layer: what 19 hidden layers leave."""
    return [divide(signal["input"][-1], signal["input"][1]) for signal in signals(runs, when)]


def gradients_left(runs: Results, when: str) -> list[float]:
    """Gradient at the first hidden layer over that at the last one."""
    return [divide(signal["gradient"][0], signal["gradient"][-2]) for signal in signals(runs, when)]


def divide(a: float | None, b: float | None) -> float:
    """Not a number where a run diverged: no claim holds of that."""
    return a / b if a is not None and b else math.nan


def vanishes(when: str) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        held, texts = True, []
        for name, network in ONI_NS.items():
            runs = find_runs(results, network)
            activations, gradients = activations_left(runs, when), gradients_left(runs, when)
            if name == "as printed":
                held = all(left < VANISHED for left in activations + gradients)
            texts.append(
                f"{name}: {max(activations):.1e} of the activation and {max(gradients):.1e} of the gradient are left"
            )
        return held, "; ".join(texts)

    return judge


def gradient_stays(results: Results) -> Judgement:
    held, texts = True, []
    for name, network in ONI.items():
        start, end = (gradients_left(find_runs(results, network), when) for when in ("start", "end"))
        if name == "as printed":
            held = all(left > VANISHED for left in start + end)
        texts.append(f"{name}: {min(start):.2g} is left at the start and {min(end):.2g} at the end")
    return held, "; ".join(texts)


CLAIMS = [
    Claim("ONI-NS: activations and gradients vanish at the start", vanishes("start")),
    Claim("ONI-NS: activations and gradients vanish at the end", vanishes("end"), LONG),
    Claim("ONI: the gradient does not vanish", gradient_stays, LONG),
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import signal_chart

    styles = style_networks(results, NETWORKS)
    return [
        signal_chart("Activations", styles, "input", "mean |x|"),
        signal_chart("Gradients", styles, "gradient", "mean |dL/dh|"),
    ]


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results))


EXPERIMENT = Experiment(
    id="figA2",
    title="Activations and gradients, layer by layer, in a 20-layer MLP",
    shows="Without scaling, activations and gradients vanish exponentially with depth, when training begins and at its "
    "end. With it the gradient does not vanish.",
    choices=describe_choices(
        NETWORKS,
        "Mean absolute values over the first 256 training samples, as the figure's text has it (its formulas leave out "
        "the division). They vanish, here, if the last layer's is less than a thousandth of the first hidden layer's "
        f"(the activations) or the other way round (the gradients). {START}",
    ),
    presets=PRESETS,
    parameters=(Training,),
    plan=make_plan(NETWORKS),
    measure=make_measure(keep=["signal"]),
    paper={"printed numbers": None},
    claims=CLAIMS,
    table=make_table(NETWORKS),
    draw=draw,
    charts=charts,
    trains=True,
    sweeps=describe_sweeps(NETWORKS),
    describe=describe_training,
    cost=estimate_cost,
)
