"""Figure A9: images by the DCGANs of Figure 8a, for every number of steps."""

from __future__ import annotations

from oni.recipes.experiments.gan.fig8a import BY_STEPS, PRESETS
from oni.recipes.experiments.gan.sheets import make_sheets

__all__ = ["EXPERIMENT"]

EXPERIMENT = make_sheets(
    id="figA9",
    title="DCGAN: images for every number of steps",
    shows="Images from ONI with T = 0 to 5 at the end of training, not chosen by hand.",
    choices="The runs are those of fig8a, with its choices; the first seed.",
    rows={f"T = {steps}": row for steps, row in BY_STEPS.items()},
    presets=PRESETS,
)
