"""Figure 8b: DCGAN with six settings of the optimiser, with spectral normalisation and with ONI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oni.recipes.experiments.experiment import Claim, Experiment, Results
from oni.recipes.experiments.gan.family import (
    SETTINGS,
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
from oni.recipes.experiments.gan.reading import COLOURS, TRAINING_DISTANCE, find_runs, make_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT", "ONI", "SN"]

SN = {letter: spectral(adam=letter, seeds=1) for letter in SETTINGS}
ONI = {letter: oni(2, adam=letter, seeds=1) for letter in SETTINGS}
PLAYERS = [player for letter in SETTINGS for player in (SN[letter], ONI[letter])]
COLUMNS = {TRAINING_DISTANCE: "random features"}
CLAIMS: list[Claim] = []


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import metric_chart

    y = "Frechet distance, random features"
    return [
        metric_chart(
            f"Setting {letter}",
            {
                name: (colour, find_runs(results, player))
                for name, colour, player in (("SN", COLOURS["SN"], SN[letter]), ("ONI", COLOURS["ONI"], ONI[letter]))
                if find_runs(results, player)
            },
            TRAINING_DISTANCE,
            y,
        )
        for letter in SETTINGS
    ]


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results))


EXPERIMENT = Experiment(
    id="fig8b",
    title="DCGAN: six settings of the optimiser",
    shows="With six settings of Adam (learning rate, betas, updates of the discriminator for each of the generator), "
    "ONI gives a better FID than SN in all.",
    choices=describe_choices(
        "DCGAN of width 64, ONI with T = 2, settings A to F as printed",
        "width 16, 800 updates, one seed",
        "A run whose losses are not finite has diverged, and counts as infinitely far.",
    ),
    presets=make_presets(laptop={"epochs": 2}, full={"epochs": 4}),
    parameters=(GANRun,),
    plan=make_plan(PLAYERS),
    measure=measure,
    paper={"printed numbers": None},
    claims=CLAIMS,
    table=make_table(PLAYERS, COLUMNS),
    draw=draw,
    charts=charts,
    trains=True,
    sweeps=make_sweeps(PLAYERS),
    describe=describe_run,
    cost=estimate_cost,
)
