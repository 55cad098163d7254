"""Figure A10: images by the DCGANs of Figure 8b, for three settings of the optimiser."""

from __future__ import annotations

from oni.recipes.experiments.gan.fig8b import PAIRS, PRESETS
from oni.recipes.experiments.gan.sheets import make_sheets

__all__ = ["EXPERIMENT"]

EXPERIMENT = make_sheets(
    id="figA10",
    title="DCGAN: images for three settings of the optimiser",
    shows="Images from SN and from ONI with T = 2 in settings A, B and C at the end of training, not chosen by hand.",
    choices="The runs are those of fig8b, with its choices.",
    rows={
        f"{letter}, {name}": row
        for letter in ("A", "B", "C")
        for name, row in zip(("SN", "ONI"), PAIRS[letter], strict=True)
    },
    presets=PRESETS,
)
