"""The pictures that the README and the site begin with: what the steps do, and how the package is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oni.files import write_atomically
from oni.recipes.charts.chart import Chart
from oni.recipes.charts.matplotlib import draw_chart
from oni.recipes.experiments.record import RESULTS, read_results
from oni.recipes.experiments.registry import load_experiment
from oni.recipes.experiments.studies.certified_charts import chart_front
from oni.recipes.experiments.studies.family import FASHION
from oni.recipes.experiments.studies.practice import chart_over_rates
from oni.style import COLOURS, drawing, save, tint
from website.measured import read_record

__all__ = ["LAYERS", "OVERVIEW", "draw_layers", "overview", "read_chart", "write_pictures"]

STEPS = ("0", "1", "2", "3", "5", "8")
DEPTH = 20
OVERVIEW_WIDTH = 4.6
"""Inches: on a screen of 390 pixels letters of 7 points are then 8 pixels high."""


def read_chart(results: Path) -> Chart:
    """What the steps are good for: certified accuracy over accuracy, a line per method.

    Until that is measured: the test error of deep networks over the learning rate, ONI compared with common practice.
    """
    if is_certified(results):
        return read_fronts(results)
    rates = chart_over_rates(read_results(load_experiment("practice"), read_record(results, "practice")), DEPTH)
    return replace(rates, title=f"{DEPTH} ReLU layers, 3 epochs of Fashion-MNIST")


def is_certified(results: Path) -> bool:
    """Whether the fronts of certified networks are measured."""
    return (results / "certified" / RESULTS).exists() and len(read_fronts(results).series) > 1


def read_fronts(results: Path) -> Chart:
    """Those methods on Fashion-MNIST that were trained at several temperatures of the loss."""
    certified = read_results(load_experiment("certified"), read_record(results, "certified"))
    front = chart_front(certified, FASHION)
    lines = [series for series in front.series if len(series.x) > 1]
    return replace(front, title="Certified networks on Fashion-MNIST, a point per loss temperature", series=lines)


def overview(results: Path, path: str) -> str:
    """The picture in a page, with a text for those who can't see it."""
    right = (
        "certified accuracy over accuracy of networks with spectral norm, ONI and exact orthogonality"
        if is_certified(results)
        else f"test error of a {DEPTH}-layer network over the learning rate, compared with common practice"
    )
    return f"![Above: singular values of a weight after 0 to 8 steps. Below: {right}]({path})"


def draw_overview(results: Path) -> Figure:
    """Above a spectrum that is stretched, below what that is good for; narrow, to be read on a phone."""
    figure = Figure(figsize=(OVERVIEW_WIDTH, 4.9))
    above, below = figure.subplots(2, 1)
    draw_spectrum(above, results)
    chart = read_chart(results)
    draw_chart(below, chart)
    names = [series.name for series in chart.series]
    below.legend(below.lines, names, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2, fontsize=7)
    return figure


def draw_spectrum(axes: Axes, results: Path) -> None:
    """The singular values of one matrix after some numbers of steps."""
    spectra = read_record(results, "fig1")["runs"][0]["measured"]["sigma"]
    for i, steps in enumerate(STEPS):
        values = spectra[steps]
        axes.plot(range(1, len(values) + 1), values, color=tint(COLOURS["oni"], 0.3 + 0.7 * i / (len(STEPS) - 1)))
        axes.annotate(f"T = {steps}", (len(values) + 1, values[-1]), fontsize=7, va="center", annotation_clip=False)
    axes.set(xlabel="rank, largest first", ylabel="singular value of W", ylim=(0, 1.05), xlim=(1, 64))
    axes.set_title("A 64 x 256 weight after T steps")


LAYERS = (
    ("oni.torch_internals", "torch's private interfaces, in one place", ""),
    ("oni.newton", "the map itself, tensor to tensor", "needs only torch"),
    ("oni.diagnostics", "measurements of a weight or a model", ""),
    ("oni.nn", "the map as parametrizations and layers", ""),
    ("oni.models", "whole models: convert, bake, cached", ""),
    ("oni.baselines", "the methods that the paper compares with", ""),
    ("oni.public", "the public names, loaded on first use", ""),
    ("names machine files timing terminal errors style", "one topic each", "needs the extra recipes"),
    ("oni.checkpoints", "weight files from any source, read safely", ""),
    ("oni.recipes", "the paper's experiments, and the training engine", ""),
    ("oni.bench", "speed and memory, compared with peers", ""),
    ("oni.cli_options oni.cli", "the commands, one thin function each", ""),
)
"""From the top: names, what is in them, and where something more is needed from there on."""


def draw_layers() -> str:
    """The layers as SVG, in colours that fit a light and a dark page."""
    width, height, gap = 640, 34, 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {len(LAYERS) * (height + gap)}" '
        'font-family="system-ui, sans-serif" role="img" aria-label="The layers of the package, from the top">',
    ]
    for i, (name, what, needs) in enumerate(LAYERS):
        y = i * (height + gap) + gap / 2
        core = i < 7
        colour = COLOURS["oni"] if core else COLOURS["tight"]
        lines += [
            f'<rect x="1" y="{y}" width="{width - 2}" height="{height}" rx="4" fill="{colour}" fill-opacity="0.13" '
            f'stroke="{colour}"/>',
            f'<text x="12" y="{y + 22}" font-size="14" font-weight="600" fill="{colour}">{escape(name)}</text>',
            f'<text x="{width - 12}" y="{y + 22}" font-size="13" text-anchor="end" fill="#808080">'
            f"{escape(what)}{f' ({escape(needs)})' if needs else ''}</text>",
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def write_pictures(root: Path) -> None:
    """Write both into docs/assets."""
    folder = root / "docs" / "assets"
    write_atomically(folder / "layers.svg", draw_layers())
    with drawing():
        save(draw_overview(root / "results"), folder, "oni")
    (folder / "oni.svg").unlink()  # the PNG is enough


OVERVIEW: Mapping[str, Callable[..., str]] = {"overview": overview}
