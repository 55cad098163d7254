"""Figure 9: ResNet GAN with both losses, with spectral normalisation and with ONI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oni.recipes.experiments.experiment import Claim, Results
from oni.recipes.experiments.gan.family import (
    PAPER_LENGTH,
    SHORT,
    describe_choices,
    make_presets,
    oni,
    spectral,
)
from oni.recipes.experiments.gan.table import DISTANCES, judge_pairs, make_figure, nobody_diverges
from oni.recipes.experiments.verdicts import Kind

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT", "PAIRS", "PRESETS"]

LOSSES = ("non-saturating", "hinge")
POOLINGS = ("sum", "average")
"""As the paper prints it, and as in the authors' code."""
PAIRS = {
    f"{loss}, {pooling} pooling": (
        spectral(network="resnet-gan", loss=loss, pooling=pooling, seeds=1),
        # As many steps as in the authors' script.
        oni(3, network="resnet-gan", loss=loss, pooling=pooling, seeds=1),
    )
    for pooling in POOLINGS
    for loss in LOSSES
}
"""SN and ONI, by loss and pooling."""
ROWS = [row for pair in PAIRS.values() for row in pair]
PRESETS = make_presets(full={"width": 24, "epochs": 5}, paper={"width": 128})

CLAIMS = [
    Claim(Kind.PAPER, "ONI is better than SN with both losses", judge_pairs(PAIRS), PAPER_LENGTH["resnet-gan"]),
    Claim(Kind.OURS, "Early in training: ONI is better than SN with both losses", judge_pairs(PAIRS), SHORT),
    Claim(Kind.OURS, "No run diverges", nobody_diverges(ROWS), SHORT),
]


def charts(results: Results) -> list[Chart]:
    from oni.recipes.experiments.gan.charts import pair_charts

    return pair_charts(results, PAIRS, [label.capitalize() for label in PAIRS])


EXPERIMENT = make_figure(
    ROWS,
    DISTANCES,
    id="fig9",
    title="ResNet GAN: non-saturating and hinge loss",
    shows="In a ResNet GAN, ONI has a better FID than SN with the non-saturating and with the hinge loss.",
    choices=describe_choices(
        "ResNet GAN of width 128",
        "width 24, 1,000 updates, one seed",
        "The paper does not state the number of steps; we use 3, as in the authors' script. The paper prints global "
        "sum pooling in the discriminator, but the authors' code averages: we run both.",
    ),
    presets=PRESETS,
    claims=CLAIMS,
    charts=charts,
    findings="This early, SN is ahead by KID with both losses and both poolings. This is certain for these eight "
    "generators, but each has one seed, and in Figure 8a seeds are as far apart as most of these pairs. By "
    "FID the two are equal with the non-saturating loss and average pooling. As in DCGAN, the discriminator "
    "with ONI has the smaller loss in every pair; only training of the paper's length would show whether "
    "that pays off later. With averages instead of sums, as in the authors' code, ONI is closer to SN with "
    "the hinge loss.",
)
