"""Figure A11: images by the ResNet GANs of Figure 9."""

from __future__ import annotations

from oni.recipes.experiments.gan.fig9 import PAIRS, PRESETS
from oni.recipes.experiments.gan.sheets import make_sheets

__all__ = ["EXPERIMENT"]

EXPERIMENT = make_sheets(
    id="figA11",
    title="ResNet GAN: images with both losses",
    shows="Images from SN and from ONI with the non-saturating and the hinge loss at the end of training, not chosen "
    "by hand.",
    choices="The runs are those of fig9 with sum pooling, as printed, and with its choices.",
    rows={
        f"{label.partition(',')[0]}, {name}": row
        for label, pair in PAIRS.items()
        if "sum" in label
        for name, row in zip(("SN", "ONI"), pair, strict=True)
    },
    presets=PRESETS,
)
