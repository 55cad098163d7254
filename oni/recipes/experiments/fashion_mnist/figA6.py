"""Figure A6: the spectra that 1 to 7 Newton steps give, and how such networks train."""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING

from oni.recipes.experiments.experiment import Claim, Experiment, Judgement, Results
from oni.recipes.experiments.fashion_mnist.family import (
    PRESETS,
    SPECTRUM_STEP,
    Network,
    Training,
    describe_choices,
    describe_sweeps,
    describe_training,
    estimate_cost,
    make_measure,
    make_plan,
)
from oni.recipes.experiments.fashion_mnist.fig7a import BY_STEPS, with_steps
from oni.recipes.experiments.fashion_mnist.reading import (
    find_runs,
    make_table,
    spectra,
    style_networks,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]

DEEPER = {
    steps: Network(10, "oni", with_steps(steps), rate=1.0, seeds=1, select_options=with_steps(5))
    for steps in (1, 3, 5, 7)
}
BY_DEPTH = {6: BY_STEPS, 10: DEEPER}
NETWORKS = [*BY_STEPS.values(), *DEEPER.values()]


def nearer_to_one(results: Results) -> Judgement:
    held, texts = True, []
    for depth, networks in BY_DEPTH.items():
        distances = [
            [
                statistics.fmean(abs(1 - value) for value in later)
                for _, later in spectra(find_runs(results, network), 1)
            ]
            for network in networks.values()
        ]
        held &= all(max(more) < min(fewer) for fewer, more in itertools.pairwise(distances))
        means = ", ".join(f"{statistics.fmean(values):.3f}" for values in distances)
        texts.append(f"{depth} layers, T = {', '.join(map(str, networks))}: {means}")
    return held, f"mean distance of a singular value from 1: {'; '.join(texts)}"


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import error_charts, spectrum_chart

    step = min(SPECTRUM_STEP, max(int(step) for step in results[0].measured["spectrum"]))
    drawn = []
    for depth, networks in BY_DEPTH.items():
        styles = style_networks(results, list(networks.values()), shades=True)
        drawn += error_charts(f"{depth} layers, {{part}} error", styles)
        drawn.append(spectrum_chart(f"Layer 1 of {depth} after {step} steps", styles, 1, step))
    return drawn


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results), 3)


EXPERIMENT = Experiment(
    id="figA6",
    title="Training with 1 to 7 steps, and the spectra they give",
    shows="More steps bring the singular values of the first layer nearer to 1, as seen after 200 steps of training.",
    choices=describe_choices(
        NETWORKS,
        "The caption says 10 layers where the text of the ablation says 6: all numbers of steps with 6 layers (the "
        "runs of fig7a), and 1, 3, 5, 7 with 10 layers, one seed, at the learning rate chosen for 5 steps. The spectra "
        "are of the first seed.",
    ),
    presets=PRESETS,
    parameters=(Training,),
    plan=make_plan(NETWORKS),
    measure=make_measure(keep=["spectrum"]),
    paper={"printed numbers": None},
    claims=[
        Claim("More steps bring the singular values of layer 1 nearer to 1", nearer_to_one, {"steps": SPECTRUM_STEP})
    ],
    table=make_table(NETWORKS),
    draw=draw,
    charts=charts,
    trains=True,
    sweeps=describe_sweeps(NETWORKS),
    describe=describe_training,
    cost=estimate_cost,
)
