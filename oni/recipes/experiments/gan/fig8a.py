"""Figure 8a: DCGAN with spectral normalisation, and with ONI of 0 to 5 steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oni.recipes.experiments.experiment import Claim, Experiment, Results
from oni.recipes.experiments.gan.family import (
    GANRun,
    describe_choices,
    describe_run,
    estimate_cost,
    make_plan,
    make_presets,
    make_sweeps,
    measure,
    oni,
    spectral,
)
from oni.recipes.experiments.gan.reading import TRAINING_DISTANCE, make_table, style_players

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = ["BY_STEPS", "EXPERIMENT", "SN", "UNNORMALISED"]

SN = spectral()
BY_STEPS = {steps: oni(steps) for steps in range(6)}
# Without steps the slip changes nothing.
UNNORMALISED = {steps: oni(steps, first_layer="unnormalised", seeds=1) for steps in range(1, 6)}
PLAYERS = [SN, *BY_STEPS.values(), *UNNORMALISED.values()]
COLUMNS = {TRAINING_DISTANCE: "random features"}
CLAIMS: list[Claim] = []


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import metric_chart

    y = "Frechet distance, random features"
    return [
        metric_chart("As in the paper", style_players(results, [SN, *BY_STEPS.values()]), TRAINING_DISTANCE, y),
        metric_chart(
            "First layer as in the authors' code",
            style_players(results, [SN, *UNNORMALISED.values()]),
            TRAINING_DISTANCE,
            y,
        ),
    ]


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results))


EXPERIMENT = Experiment(
    id="fig8a",
    title="DCGAN: spectral normalisation and ONI of 0 to 5 steps",
    shows="T = 0, which only bounds the spectrum, trains but gives a worse FID than SN; T = 1 is already better than "
    "SN, T = 2 best (FID 20.75, SN 23.31), and larger T worse.",
    choices=describe_choices(
        "DCGAN of width 64",
        "width 16, 1,600 updates",
        "The authors' code does not divide by the norm inside the iteration where a layer has more filters than "
        "inputs, which in DCGAN is the first one; ONI is also run with that slip in the first layer, whatever its "
        "shape, to see its share in larger T being worse.",
    ),
    presets=make_presets(),
    parameters=(GANRun,),
    plan=make_plan(PLAYERS),
    measure=measure,
    paper={"FID": {"SN": 23.31, "ONI, T = 2": 20.75}},
    claims=CLAIMS,
    table=make_table(PLAYERS, COLUMNS),
    draw=draw,
    charts=charts,
    trains=True,
    sweeps=make_sweeps(PLAYERS),
    describe=describe_run,
    cost=estimate_cost,
)
