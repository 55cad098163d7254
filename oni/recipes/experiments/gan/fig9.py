"""Figure 9: ResNet GAN with both losses, with spectral normalisation and with ONI."""

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
from oni.recipes.experiments.gan.reading import COLOURS, TRAINING_DISTANCE, find_runs, make_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT", "PAIRS"]

LOSSES = ("non-saturating", "hinge")
POOLINGS = ("sum", "average")
"""As the paper prints it, and as in the authors' code."""
PAIRS = {
    (loss, pooling): (
        spectral(network="resnet-gan", loss=loss, pooling=pooling, seeds=1),
        # As many steps as in the authors' script.
        oni(3, network="resnet-gan", loss=loss, pooling=pooling, seeds=1),
    )
    for pooling in POOLINGS
    for loss in LOSSES
}
"""SN and ONI, by loss and pooling."""
PLAYERS = [player for pair in PAIRS.values() for player in pair]
COLUMNS = {TRAINING_DISTANCE: "random features"}
CLAIMS: list[Claim] = []


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import metric_chart

    y = "Frechet distance, random features"
    return [
        metric_chart(
            f"{loss.capitalize()} loss, {pooling} pooling",
            {
                name: (COLOURS[name], runs)
                for name, player in zip(("SN", "ONI"), pair, strict=True)
                if (runs := find_runs(results, player))
            },
            TRAINING_DISTANCE,
            y,
        )
        for (loss, pooling), pair in PAIRS.items()
    ]


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results))


EXPERIMENT = Experiment(
    id="fig9",
    title="ResNet GAN: non-saturating and hinge loss",
    shows="In a ResNet GAN, ONI gives a better FID than SN with the non-saturating and with the hinge loss.",
    choices=describe_choices(
        "ResNet GAN of width 128",
        "width 24, 1,000 updates, one seed",
        "The paper does not say the number of steps; 3 as in the authors' script. It prints global sum pooling in the "
        "discriminator, and the authors' code averages: both are run.",
    ),
    presets=make_presets(full={"width": 24, "epochs": 5}, paper={"width": 128}),
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
