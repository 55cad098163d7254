"""The pictures that the README and the site begin with: what the steps do, and how the package is built."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oni.files import write_atomically
from oni.style import COLOURS, PAGE_WIDTH, drawing, save, tint
from website.measured import read_record

__all__ = ["LAYERS", "draw_layers", "read_curves", "write_pictures"]

STEPS = ("0", "1", "2", "3", "5", "8")
Chosen = Callable[[dict[str, Any]], bool]


def is_run(method: str, **options: Any) -> Chosen:
    """Whether a run of Figure 6 is one of 20 layers with this method and these options."""
    return lambda run: (
        run["depth"] == 20
        and run["method"] == method
        and all(run.get("options", {}).get(key) == value for key, value in options.items())
    )


CURVES: dict[str, tuple[str, str, Chosen]] = {
    "ONI, Z orthogonal, not centred": (COLOURS["oni"], "-", is_run("oni", start="orthogonal", center=False)),
    "ONI, as printed": (COLOURS["oni"], "--", is_run("oni", start="given", center=True)),
    "ONI without sqrt 2": (COLOURS["oni"], ":", is_run("oni-ns", start="given")),
    "He's start": (COLOURS["plain"], "-", is_run("he")),
    "orthogonal start x sqrt 2": (COLOURS["plain"], "--", is_run("orth-init")),
}
"""What the right half shows, where it is measured: a label, its colour and line, and which runs."""


def read_curves(results: Path) -> dict[str, list[float]]:
    """The test error in percent after each epoch, mean over seeds."""
    runs = read_record(results, "fig6")["runs"]
    curves = {}
    for label, (_, _, chosen) in CURVES.items():
        errors = [run["measured"]["test_error"] for run in runs if chosen(run["parameters"])]
        if errors:
            curves[label] = [100 * statistics.fmean(epoch) for epoch in zip(*errors, strict=True)]
    return curves


def draw_overview(results: Path) -> Figure:
    """Left a spectrum being stretched, right what that does to a deep network."""
    figure = Figure(figsize=(PAGE_WIDTH, 2.5))
    left, right = figure.subplots(1, 2)
    draw_spectrum(left, results)
    for label, errors in read_curves(results).items():
        colour, line, _ = CURVES[label]
        right.plot(range(1, len(errors) + 1), errors, line, color=colour, label=label)
    right.set(xlabel="epoch", ylabel="test error, %", yscale="log", ylim=(9, 100), yticks=[10, 20, 50, 90])
    right.set_yticklabels(["10", "20", "50", "90"])
    right.minorticks_off()
    right.set_title("A 20-layer ReLU network on Fashion-MNIST")
    right.legend(loc="upper right", bbox_to_anchor=(1.02, 0.92), fontsize=7)
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
    ("oni.newton", "the map itself, tensor to tensor", "needs torch alone"),
    ("oni.diagnostics", "what one measures of a weight or a model", ""),
    ("oni.nn", "the map as parametrizations and layers", ""),
    ("oni.models", "whole models: convert, bake, cached", ""),
    ("oni.baselines", "what the paper compares with", ""),
    ("oni.public", "the public names, loaded when one is used", ""),
    ("names machine files timing terminal errors style", "one home each", "needs the extra recipes"),
    ("oni.checkpoints", "anybody's weight files, read safely", ""),
    ("oni.recipes", "the paper's experiments, and the training engine", ""),
    ("oni.bench", "speed and memory beside the peers", ""),
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
        core = i < 6
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
