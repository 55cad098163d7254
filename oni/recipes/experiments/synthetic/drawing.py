"""What the pictures of Figures 1 to 4 share: deltas by step, and densities of eigenvalues. Import it only to draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from oni.recipes.experiments.experiment import Results
from oni.style import COLOURS, tint

__all__ = [
    "HEIGHT",
    "VARIANT_STYLE",
    "draw_by_step",
    "draw_density",
    "draw_forms",
    "draw_mean",
    "label_eigenvalues",
    "shares",
]

HEIGHT = 2.7
# Colours show the bound, as everywhere; dashed lines are not centred.
VARIANT_STYLE: dict[str, dict[str, Any]] = {
    "ONI": {"color": COLOURS["frobenius"], "linestyle": (0, (2.5, 2.5))},
    "ONI+Center": {"color": COLOURS["frobenius"], "linestyle": "-"},
    "ONI+CSB": {"color": COLOURS["compact"], "linestyle": (2.5, (2.5, 2.5))},
    "ONI+Center+CSB": {"color": COLOURS["compact"], "linestyle": "-"},
}


def draw_forms(axes: Axes, results: Results, quantity: str, variant: str, colour: str) -> None:
    """The stable form, and the printed one in both precisions until it leaves the picture."""
    # Wide lines first, so that all can be seen where they agree.
    styles: list[tuple[str, str, str, dict[str, Any]]] = [
        ("literal", "float32", "as printed, float32", {"color": COLOURS["literal"], "linewidth": 3.2}),
        ("literal", "float64", "as printed, float64", {"color": tint(COLOURS["literal"], 0.5), "linewidth": 2.2}),
        ("stable", "float64", "stable, float64", {"color": colour}),
        ("stable", "float32", "stable, float32", {"color": "black", "linestyle": (0, (1, 2)), "linewidth": 1.0}),
    ]
    for form, precision, label, style in styles:
        runs = results.where(form=form, precision=precision, variant=variant)
        draw_mean(axes, runs, quantity, label=label, **style)


def draw_mean(axes: Axes, results: Results, quantity: str, **style: Any) -> None:
    """The mean over seeds by steps; a line ends at its first number that is not finite."""
    mean = results.mean(quantity)
    # Clipped far outside the picture: an infinite value would end the line inside it.
    axes.plot([min(value, 1e6) for value in mean], **style)


def draw_by_step(axes: Axes, by_seed: Sequence[Mapping[str, Sequence[float]]], colour: str, floor: float) -> None:
    """The density of the eigenvalues of all seeds, in a darker shade for later steps."""
    steps, handles = sorted(map(int, by_seed[0])), []
    for shade, step in zip(make_shades(colour, len(steps)), steps, strict=True):
        draw_density(axes, [value for by_step in by_seed for value in by_step[str(step)]], floor, color=shade)
        handles.append(Line2D([], [], color=shade, label=f"t = {step}"))
    label_eigenvalues(axes, floor)
    axes.legend(handles=handles, loc="upper left", ncols=2, fontsize=6.5, columnspacing=0.8, handlelength=1.2)
    axes.margins(y=0.35)


def draw_density(axes: Axes, values: Sequence[float], floor: float, **style: Any) -> None:
    """A histogram over decades, drawn as an outline; values below the floor are counted at it."""
    decades = -math.log10(floor)
    edges = [10 ** (-decades + index / 10) for index in range(round(10 * decades) + 1)]
    within = [min(max(value, edges[0]), edges[-1]) for value in values]
    axes.hist(within, edges, weights=shares(values), histtype="step", **{"linewidth": 1.4, **style})


def label_eigenvalues(axes: Axes, floor: float) -> None:
    """Label the axes of a histogram over decades."""
    axes.set(xscale="log", xlabel=r"eigenvalues of $WW^\top$", ylabel="share of all", xlim=(floor / 1.3, 2))
    axes.set_xticks([floor, 1e-3, 1e-2, 1e-1, 1], [r"$\leq 10^{-4}$", "$10^{-3}$", "0.01", "0.1", "1"])
    axes.minorticks_off()


def shares(values: Sequence[float]) -> list[float]:
    """Weights that make a histogram show shares of the whole."""
    return [1 / len(values)] * len(values)


def make_shades(colour: str, count: int) -> list[tuple[float, float, float]]:
    return [tint(colour, 0.25 + 0.75 * (index + 1) / count) for index in range(count)]
