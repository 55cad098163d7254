"""Pictures of the two theorems."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from oni.recipes.experiments.experiment import Results
from oni.style import COLOURS, PAGE_WIDTH, tint

__all__ = ["draw_gains", "draw_norms"]

CASES = ["n < d", "n = d", "n > d"]


def draw_norms(results: Results) -> Figure:
    """Theorem 1: what becomes of the norms, and of the variances, on the way there and back."""
    figure = Figure(figsize=(PAGE_WIDTH, 2.5))
    left, right = figure.subplots(1, 2)
    ways = {"forward": (COLOURS["oni"], "o", r"$\hat h = Wx$"), "backward": (COLOURS["plain"], "s", r"$W^\top g$")}
    normal = results.where(distribution="normal")
    for shift, (way, (colour, marker, label)) in zip((-0.12, 0.12), ways.items(), strict=True):
        for place, case in enumerate(CASES):
            runs = normal.where(case=case)
            low, *_, high = quantiles = [statistics.fmean(q) for q in quantile_columns(runs, f"norm_{way}")]
            middle = quantiles[2]
            left.errorbar(
                place + shift,
                middle,
                [[middle - low], [high - middle]],
                color=colour,
                fmt=marker,
                capsize=3,
                label=label,
            )
            found = runs.every(way)
            for step, one in enumerate(found):
                right.errorbar(
                    place + shift + 0.03 * (step - len(found) / 2),
                    one["variance"],
                    2.576 * one["variance_error"],
                    color=colour,
                    fmt=marker,
                    markersize=2,
                    linewidth=0.8,
                )
    for axes in (left, right):
        axes.axhline(1, color="black", linewidth=0.8, zorder=0)
        axes.set_xticks(range(3), [f"{case}\n{size}" for case, size in zip(CASES, SIZES, strict=True)])
        axes.grid(visible=False, axis="x")
    left.set_ylabel("norm after / before, 5 % to 95 %")
    right.set_ylabel(r"variance per entry / $\sigma^2$, 99 %")
    left.set_title("(a) Norms: properties 1 and 3")
    right.set_title("(b) Variances: properties 2 and 4")
    handles, labels = left.get_legend_handles_labels()
    left.legend(handles[::3], labels[::3], loc="lower center")
    return figure


SIZES = ["32 x 64", "64 x 64", "64 x 32"]


def quantile_columns(results: Results, name: str) -> list[tuple[float, ...]]:
    return list(zip(*(one["quantiles"] for one in results.every(name)), strict=True))


def draw_gains(results: Results, weights: Sequence[tuple[bool, str]]) -> Figure:
    """Theorem 2: mean squares by layer of a deep network, for every scale, centred and not."""
    figure = Figure(figsize=(PAGE_WIDTH, 2.9))
    panels = figure.subplots(1, 2, sharey=True)
    shades = {"1": tint(COLOURS["oni"], 0.4), "sqrt 2": tint(COLOURS["oni"], 1.0), "1.7129": (0.0, 0.0, 0.0)}
    names = {"1": "1", "sqrt 2": r"$\sqrt{2}$", "1.7129": "1.7129"}
    for axes, way, title in zip(
        panels, ("forward", "backward"), ("(a) Activations", "(b) Gradients, from the last layer back"), strict=True
    ):
        for center, scale in weights:
            every = results.where(center=center, scale=scale).every(way)
            mean = [statistics.geometric_mean(values) for values in zip(*every, strict=True)]
            style: dict[str, Any] = {"color": shades[scale], "linestyle": "-" if center else (0, (2.5, 2.5))}
            label = f"{'centred' if center else 'uncentred'}, scale {names[scale]}"
            axes.plot(range(1, len(mean) + 1), mean, label=label, **style)
        axes.set(xlabel="layer", xticks=[1, 5, 10, 15, 20], yscale="log")
        axes.set_title(title)
    panels[0].set_ylabel("mean square")
    # Filled column by column: one for each scale.
    half = len(weights) // 2
    handles = [panels[0].lines[index + shift] for index in range(half) for shift in (0, half)]
    figure.legend(handles=handles, ncols=3, loc="outside lower center", handlelength=3.2)
    return figure
