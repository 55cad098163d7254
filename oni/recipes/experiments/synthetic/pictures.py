"""Pictures of the synthetic experiments: deltas by step, and where eigenvalues and singular values lie."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from oni.recipes.experiments.experiment import Results
from oni.style import COLOURS, PAGE_WIDTH, tint

__all__ = [
    "draw_convergence",
    "draw_group_eigenvalues",
    "draw_groups_table",
    "draw_rows_and_columns",
    "draw_stretching",
    "draw_variants",
]

HEIGHT = 2.7
# Colour is the bound, as everywhere; dashes are without centring.
VARIANT_STYLE: dict[str, dict[str, Any]] = {
    "ONI": {"color": COLOURS["frobenius"], "linestyle": (0, (2.5, 2.5))},
    "ONI+Center": {"color": COLOURS["frobenius"], "linestyle": "-"},
    "ONI+CSB": {"color": COLOURS["compact"], "linestyle": (2.5, (2.5, 2.5))},
    "ONI+Center+CSB": {"color": COLOURS["compact"], "linestyle": "-"},
}


def draw_stretching(results: Results, at: Sequence[int]) -> Figure:
    """Figure 1: a histogram of singular values for each number of steps."""
    figure = Figure(figsize=(PAGE_WIDTH, HEIGHT - 0.7))
    panels = figure.subplots(1, len(at), sharex=True)
    delta = results.mean("delta_row")
    edges = [index / 25 for index in range(26)]
    for axes, t in zip(panels, at, strict=True):
        values = [min(value, 1.0) for sigma in results.every("sigma") for value in sigma[str(t)]]
        axes.hist(values, edges, weights=share(values), color=COLOURS["oni"])
        axes.set(xlim=(0, 1.03), xticks=[0, 0.5, 1], xticklabels=["0", "0.5", "1"])
        axes.grid(visible=False, axis="x")
        axes.locator_params(axis="y", nbins=4)
        axes.set_title(f"T = {t}, $\\delta$ = {delta[t]:.2f}")
    panels[0].set_ylabel("share of all")
    figure.supxlabel(r"singular values of $W$ after T steps", fontsize=8)
    return figure


def draw_convergence(results: Results) -> Figure:
    """Figure 2: Algorithm 1, stable and as printed, and the eigenvalues on the way."""
    figure = Figure(figsize=(PAGE_WIDTH, HEIGHT))
    left, right = figure.subplots(1, 2)
    draw_forms(left, results, "delta_row", "ONI", COLOURS["frobenius"])
    left.set(xlabel="iterations", ylabel=r"$\delta = \|WW^\top - I\|_F$", ylim=(-0.2, 10))
    left.set_title("(a) Distance from orthogonal")
    left.legend(loc="lower left")
    left.set_xticks(range(0, 16, 2))
    exact = results.where(form="stable", precision="float64")
    draw_by_step(right, exact.every("eigenvalues"), COLOURS["frobenius"], floor=1e-4)
    right.set_title("(b) Eigenvalues after t iterations")
    return figure


def draw_variants(results: Results) -> Figure:
    """Figure 3: four variants, their eigenvalues after one step, and what float32 makes of them as printed."""
    figure = Figure(figsize=(PAGE_WIDTH, HEIGHT + 0.2))
    left, middle, right = figure.subplots(1, 3)
    right.sharey(left)
    exact = results.where(form="stable", precision="float64")
    printed = results.where(form="literal", precision="float32")
    for variant, style in VARIANT_STYLE.items():
        draw_mean(left, exact.where(variant=variant), "delta_row", label=variant, **style)
        draw_mean(right, printed.where(variant=variant), "delta_row", **style)
        values = [value for one in exact.where(variant=variant).every("eigenvalues") for value in one["1"]]
        draw_density(middle, values, floor=1e-4, **style)
    left.set(
        xlabel="iterations",
        ylabel=r"$\delta = \|WW^\top - I\|_F$",
        ylim=(-0.2, 10),
        xlim=(0, 12),
        xticks=range(0, 13, 2),
    )
    right.set(xlabel="iterations", xlim=(0, 12), xticks=range(0, 13, 2))
    right.tick_params(labelleft=False)
    label_eigenvalues(middle, 1e-4)
    left.set_title("(a) Distance from orthogonal")
    middle.set_title("(b) Eigenvalues at t = 1")
    right.set_title("(c) As printed, in float32")
    figure.legend(handles=left.lines, ncols=4, loc="outside lower center", handlelength=3.2)
    return figure


def draw_rows_and_columns(results: Results) -> Figure:
    """Figure 4: both deltas, the eigenvalues, and the column delta as printed."""
    figure = Figure(figsize=(PAGE_WIDTH, HEIGHT + 0.2))
    left, middle, right = figure.subplots(1, 3)
    right.sharey(left)
    exact = results.where(form="stable", precision="float64")
    for variant, name in (("ONI", "Frobenius"), ("ONI+CSB", "CSB"), ("ONI+Center+CSB", "CSB, centred (Alg. 2)")):
        style = VARIANT_STYLE[variant]
        runs = exact.where(variant=variant)
        draw_mean(left, runs, "delta_column", label=f"columns, {name}", **style)
        draw_mean(left, runs, "delta_row", label=f"rows, {name}", marker="s", markevery=3, markersize=2.5, **style)
    draw_by_step(middle, exact.where(variant="ONI").every("eigenvalues"), COLOURS["frobenius"], floor=1e-4)
    draw_forms(right, results, "delta_column", "ONI", COLOURS["frobenius"])
    left.set(xlabel="iterations", ylabel=r"$\delta$", ylim=(-0.2, 10), xticks=range(0, 13, 2))
    right.set(xlabel="iterations", xticks=range(0, 13, 2))
    right.tick_params(labelleft=False)
    left.set_title("(a) Rows and columns")
    middle.set_title("(b) Eigenvalues after t iterations")
    right.set_title("(c) Columns, Frobenius, by form")
    right.legend(loc="upper left", fontsize=6.5)
    figure.legend(handles=left.lines, ncols=3, loc="outside lower center", handlelength=3.2)
    return figure


def draw_groups_table(results: Results, printed: Mapping[str, tuple[float, float]]) -> Figure:
    """Table A2: bars for ours, marks for the paper's."""
    figure = Figure(figsize=(PAGE_WIDTH, HEIGHT - 0.3))
    for index, (axes, quantity) in enumerate(
        zip(figure.subplots(1, 2, sharey=True), ("delta_row", "delta_column"), strict=True)
    ):
        for place, (method, numbers) in enumerate(printed.items()):
            runs = results.where(method=method)
            colour = COLOURS["oni" if method == "ONI" else "olm"]
            mean, deviation = runs.mean(quantity), runs.deviation(quantity)
            axes.bar(place, mean, 0.6, yerr=deviation, color=colour, error_kw={"linewidth": 2.0})
            (mark,) = axes.plot(
                place,
                numbers[index],
                "kD",
                markersize=5,
                markerfacecolor="none",
                label="printed in the paper",
                zorder=3,
            )
        axes.set_xticks(range(len(printed)), list(printed))
        axes.grid(visible=False, axis="x")
        side, formula = (("Rows", r"WW^\top"), ("Columns", r"W^\top W"))[index]
        axes.set_title(f"({'ab'[index]}) {side}: $\\|{formula} - I\\|_F$")
        if not index:
            axes.set(ylabel=r"$\delta$, mean and deviation of seeds", ylim=(-0.2, 12.5))
            axes.legend(handles=[mark], loc="upper left")
    return figure


def draw_group_eigenvalues(results: Results, methods: Sequence[str]) -> Figure:
    """Figure A1: eigenvalues by rank, one line for each seed."""
    figure = Figure(figsize=(PAGE_WIDTH, HEIGHT - 0.3))
    panels = figure.subplots(1, len(methods), sharey=True)
    for axes, method in zip(panels, methods, strict=True):
        every = results.where(method=method).every("eigenvalues")
        for values in every:
            axes.plot(range(1, len(values) + 1), values, color=tint(COLOURS["olm"], 0.35), linewidth=0.7)
        mean = [sum(values) / len(values) for values in zip(*every, strict=True)]
        axes.plot(range(1, len(mean) + 1), mean, color=COLOURS["olm"])
        axes.set(xlabel="rank, largest first", xticks=[1, 16, 32, 48, 64])
        axes.set_title(f"G = {method.removeprefix('OLM-G')}")
    panels[0].set(ylabel=r"eigenvalues of $WW^\top$", ylim=(-0.1, 3.8))
    return figure


def draw_forms(axes: Axes, results: Results, quantity: str, variant: str, colour: str) -> None:
    """The stable form, and the printed one in both precisions until it leaves the picture."""
    # From the bottom up: where they agree, all can be seen.
    looks: list[tuple[str, str, str, dict[str, Any]]] = [
        ("literal", "float32", "as printed, float32", {"color": COLOURS["literal"], "linewidth": 3.2}),
        ("literal", "float64", "as printed, float64", {"color": tint(COLOURS["literal"], 0.5), "linewidth": 2.2}),
        ("stable", "float64", "stable, float64", {"color": colour}),
        ("stable", "float32", "stable, float32", {"color": "black", "linestyle": (0, (1, 2)), "linewidth": 1.0}),
    ]
    for form, precision, label, style in looks:
        runs = results.where(form=form, precision=precision, variant=variant)
        draw_mean(axes, runs, quantity, label=label, **style)


def draw_mean(axes: Axes, results: Results, quantity: str, **style: Any) -> None:
    """The mean over seeds by steps; a line ends at its first number that is not finite."""
    mean = results.mean(quantity)
    # Far outside the picture is as good as infinite, which would end the line inside it.
    axes.plot([min(value, 1e6) for value in mean], **style)


def draw_by_step(axes: Axes, every: Sequence[Mapping[str, Sequence[float]]], colour: str, floor: float) -> None:
    """Where the eigenvalues of all seeds lie, in a darker shade for later steps."""
    steps, handles = sorted(map(int, every[0])), []
    for shade, t in zip(shaded(colour, len(steps)), steps, strict=True):
        draw_density(axes, [value for one in every for value in one[str(t)]], floor, color=shade)
        handles.append(Line2D([], [], color=shade, label=f"t = {t}"))
    label_eigenvalues(axes, floor)
    axes.legend(handles=handles, loc="upper left", ncols=2, fontsize=6.5, columnspacing=0.8, handlelength=1.2)
    axes.margins(y=0.35)


def draw_density(axes: Axes, values: Sequence[float], floor: float, **style: Any) -> None:
    """A histogram as an outline, over decades; what is below the floor is at it."""
    decades = -math.log10(floor)
    edges = [10 ** (-decades + index / 10) for index in range(round(10 * decades) + 1)]
    within = [min(max(value, edges[0]), edges[-1]) for value in values]
    axes.hist(within, edges, weights=share(values), histtype="step", **{"linewidth": 1.4, **style})


def label_eigenvalues(axes: Axes, floor: float) -> None:
    axes.set(xscale="log", xlabel=r"eigenvalues of $WW^\top$", ylabel="share of all", xlim=(floor / 1.3, 2))
    axes.set_xticks([floor, 1e-3, 1e-2, 1e-1, 1], [r"$\leq 10^{-4}$", "$10^{-3}$", "0.01", "0.1", "1"])
    axes.minorticks_off()


def share(values: Sequence[float]) -> list[float]:
    return [1 / len(values)] * len(values)


def shaded(colour: str, count: int) -> Iterable[tuple[float, float, float]]:
    return [tint(colour, 0.25 + 0.75 * (index + 1) / count) for index in range(count)]
