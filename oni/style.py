"""How pictures look: one colour per method, the same in all of them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

__all__ = ["COLOURS", "PAGE_WIDTH", "drawing", "save", "tint"]

# Okabe and Ito's palette, told apart under every common colour blindness, and a grey for what is plain.
COLOURS = {
    "frobenius": "#D55E00",
    "compact": "#0072B2",
    "tight": "#009E73",
    "oni": "#0072B2",  # as the paper trains with it: compact
    "olm": "#CC79A7",
    "literal": "#E69F00",  # the paper's recurrence as printed, or as its authors released it
    "spectral norm": "#56B4E9",
    "plain": "#666666",
}

PHOTOGRAPH_DPI = 96  # twice the pixels of images of 32 x 32 in eight columns
PAGE_WIDTH = 7.0  # inches: both columns of a two-column page

_SETTINGS: Any = {
    "figure.constrained_layout.use": True,
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "savefig.dpi": 300,
    "svg.hashsalt": "oni",  # ids made from the content instead of at random
}


def drawing() -> AbstractContextManager[None]:
    """Inside it, figures are made and saved in the project's style; matplotlib's settings stay as they are.

    Make figures as ``matplotlib.figure.Figure``: unlike pyplot, that chooses no backend and needs no display.
    """
    return matplotlib.rc_context(_SETTINGS)


def save(figure: Figure, folder: Path, name: str, *, photographs: bool = False) -> list[Path]:
    """Write the figure as PNG and SVG, over what is there, and return both paths; ``photographs`` keep all colours."""
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    for path in paths:
        resolution: dict[str, Any] = {"dpi": PHOTOGRAPH_DPI} if photographs else {}
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, **resolution)
    with Image.open(paths[0]) as picture:
        # With 256 colours a picture of lines looks the same at a third of the size.
        small = picture.convert("RGB") if photographs else picture.convert("RGB").quantize(256)
    small.save(paths[0], optimize=True)
    return paths


def tint(colour: str, strength: float) -> tuple[float, float, float]:
    """The colour mixed with white: all of it at strength 1, white at 0."""
    red, green, blue = (1 - strength * (1 - channel) for channel in to_rgb(colour))
    return red, green, blue
