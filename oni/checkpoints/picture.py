"""The picture of ``oni inspect``: one strip per weight matrix, dark where its singular values are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from oni.checkpoints.matrices import Matrix
from oni.style import COLOURS, PAGE_WIDTH, tint
from oni.terminal import format_number, printable, shorten_name

__all__ = ["draw"]

IN_A_PANEL = 48
PANELS = 3
MOST = 600
"""Strips in a picture: nobody looks at more, and each takes its time."""
BINS = 90
DEEPEST = 1e-4
"""Singular values below this share of the largest are drawn at the left edge."""
LETTERS = 34


def draw(matrices: Sequence[Matrix], title: str) -> Figure:
    """Strips from top to bottom in the order of the file, in as many panels side by side as it takes."""
    finite = (matrix for matrix in matrices if matrix.sigma is not None and bool(torch.isfinite(matrix.sigma).all()))
    shown = list(islice(finite, MOST))
    panels = max(1, min(PANELS, math.ceil(len(shown) / IN_A_PANEL)))
    height = max(1, math.ceil(len(shown) / panels))
    figure = Figure(figsize=(PAGE_WIDTH * panels, 1.15 + 0.17 * max(height, 3)))
    low, high = axis_limits(shown)
    parts = [shown[start : start + height] for start in range(0, len(shown), height)]
    for axes, part in zip(figure.subplots(1, panels, squeeze=False)[0], parts or [[]], strict=False):
        draw_strips(axes, part, low, high, height)
    hidden = len(matrices) - len(shown)
    left_out = f" ({hidden} left out)" if hidden else ""
    figure.suptitle(
        f"{printable(title)}: singular values of {len(shown)} weight matrices{left_out}",
        x=0.01,
        ha="left",
        parse_math=False,
        fontsize=9.5,
    )
    handles: list[Patch | Line2D] = [Patch(color=COLOURS["oni"], label="weight (dark: many singular values)")]
    if any(matrix.kind == "proxy" for matrix in shown):
        handles.append(Patch(color=COLOURS["plain"], label="proxy"))
    handles.append(Line2D([], [], color=COLOURS["frobenius"], marker="|", linestyle="", markersize=7, label="median"))
    handles.append(Line2D([], [], color="black", linewidth=0.6, linestyle=(0, (4, 3)), label="1: orthogonal"))
    figure.legend(handles=handles, ncols=len(handles), loc="outside lower center")
    return figure


def axis_limits(shown: list[Matrix]) -> tuple[float, float]:
    """An axis for all, with 1 on it."""
    high = max([1.0, *(matrix.quantile(1) for matrix in shown)])
    low = min([1.0, *(matrix.quantile(0) for matrix in shown)])
    low = max(low, DEEPEST * high)
    return (low * 0.85, high * 1.15) if high > 4 * low else (max(0.0, low - 0.05 * high), 1.05 * high)


def draw_strips(axes: Axes, part: list[Matrix], low: float, high: float, height: int) -> None:
    """One panel, ``height`` strips high even where it holds fewer."""
    logarithmic = high > 4 * low and low > 0
    scale = math.log if logarithmic else float
    edges = torch.linspace(scale(low), scale(high), BINS + 1, dtype=torch.float64)
    colours = []
    for matrix in part:
        assert matrix.sigma is not None
        sigma = matrix.sigma.clamp(min=low)
        counts = torch.histc(sigma.log() if logarithmic else sigma, BINS, float(edges[0]), float(edges[-1]))
        shares = (counts / counts.max()).sqrt().tolist()
        colour = COLOURS["plain" if matrix.kind == "proxy" else "oni"]
        # The few are faint, not lost; where there are none, a very light ground carries the row.
        colours.append([tint(colour, 0.15 + 0.85 * share) if share else (0.965, 0.965, 0.965) for share in shares])
    bounds = (edges.exp() if logarithmic else edges).tolist()
    for row, line in enumerate(colours):
        axes.pcolormesh(bounds, [row - 0.4, row + 0.4], torch.tensor([line]).numpy(), rasterized=True)
    medians = [max(matrix.quantile(0.5), low) for matrix in part]
    axes.vlines(medians, [row - 0.4 for row in range(len(part))], [row + 0.4 for row in range(len(part))])
    axes.collections[-1].set(color=COLOURS["frobenius"], linewidth=1.2)
    axes.axvline(1, color="black", linewidth=0.6, linestyle=(0, (4, 3)))
    if logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 60 else (1,)))
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set(xlim=(bounds[0], bounds[-1]), ylim=(height - 0.4, -0.6), xlabel=r"singular value $\sigma$")
    labels = [shorten_name(printable(matrix.label), LETTERS) for matrix in part]
    axes.set_yticks(range(len(part)), labels, fontsize=6.5, parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(False)
    right = axes.secondary_yaxis("right")
    right.set_yticks(range(len(part)), [facts(matrix) for matrix in part], fontsize=6)
    right.tick_params(axis="y", length=0, labelcolor="#555555")
    right.spines["right"].set_visible(False)
    axes.annotate(
        r"matrix, $\delta$",
        (1, 1),
        (4, 2),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=6,
        color="#555555",
    )


def facts(matrix: Matrix) -> str:
    """What stands at the right of a strip."""
    return f"{matrix.size[0]}×{matrix.size[1]}, {format_number(matrix.delta)}"
