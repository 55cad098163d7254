"""Figures of sample sheets: images of each row's generator at the end of training, the first ones of a fixed z."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.errors import find_runs
from oni.recipes.experiments.experiment import Comparison, Experiment, Quantity, Results
from oni.recipes.experiments.gan.family import make_plan, make_sweeps
from oni.recipes.experiments.gan.table import NOT_MEASURED, outcome
from oni.recipes.experiments.runs import Row, Training, train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.experiments.setting import Setting

__all__ = ["make_sheets"]

LINES, COLUMNS = 2, 8
"""Of a sheet; those in the folders of runs have 64 images."""


def measure(training: Training, setting: Setting) -> dict[str, Any]:
    """Train, or read what was trained, and draw images from the same z for every run."""
    from oni.recipes.generated.samples import TrainedGenerator
    from oni.recipes.sheets import write_sheet

    result = train(training.config, setting)
    measured: dict[str, Any] = {
        "run": result.folder.name,
        "status": result.metrics["status"],
        "updates": [row["steps"] for row in result.epochs],
        "pixel_deviation": [row.get("pixel_deviation") for row in result.epochs],
    }
    if not result.diverged:
        images = TrainedGenerator(result.folder).images(LINES * COLUMNS)
        measured["sheet"] = {"png": base64.b64encode(write_sheet(images, COLUMNS)).decode()}
    return measured


def make_draw(rows: Mapping[str, Row]) -> Callable[[Results], Figure]:
    """A function that draws one sheet of the first seed for each row, below each other."""

    def draw(results: Results) -> Figure:
        import numpy
        from matplotlib.figure import Figure
        from PIL import Image

        from oni.style import PAGE_WIDTH

        shown = {name: runs for name, row in rows.items() if (runs := find_runs(results, row))}
        height = PAGE_WIDTH * 0.82 / COLUMNS * LINES + 0.08
        figure = Figure(figsize=(PAGE_WIDTH, height * max(1, len(shown))))
        panels = figure.subplots(max(1, len(shown)), 1, squeeze=False)[:, 0]
        for axes, (name, runs) in zip(panels, shown.items(), strict=False):
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            axes.set_anchor("E")  # what is left over is for the label
            sheet = runs[0].measured.get("sheet")
            if sheet is None:
                axes.text(0.5, 0.5, outcome(runs[0]), ha="center", va="center", transform=axes.transAxes)
            else:
                image = Image.open(io.BytesIO(base64.b64decode(sheet["png"]))).convert("RGB")
                axes.imshow(numpy.asarray(image), interpolation="none")
            axes.set_ylabel(name.replace(", ", "\n"), rotation=0, ha="right", va="center")
        return figure

    return draw


def make_table(rows: Mapping[str, Row]) -> Callable[[Results], Comparison]:
    """A function that makes a table of how long each row trained, and how it ended."""

    def table(results: Results) -> Comparison:
        cells: list[list[str | Quantity]] = []
        for name, row in rows.items():
            runs = find_runs(results, row)
            if not runs:
                cells.append([name, NOT_MEASURED, NOT_MEASURED, NOT_MEASURED])
                continue
            updates, spread = runs[0].measured["updates"], runs[0].measured["pixel_deviation"]
            cells.append(
                [
                    name,
                    Quantity(updates[-1] if updates else 0, digits=None),
                    Quantity(spread[-1] if spread else None),
                    outcome(runs[0]),
                ]
            )
        return Comparison(
            ["GAN", "updates", "deviation of a pixel", "training"],
            cells,
            "All rows use the same z, and the images are the first ones, not chosen by hand. The deviation of a pixel "
            "over generated images in [-1, 1] is 0 if all are alike, and about 0.5 in CIFAR-10.",
        )

    return table


def make_sheets(rows: Mapping[str, Row], *, presets: Mapping[str, Any], **fields: Any) -> Experiment:
    """A figure of sample sheets, from the runs of another figure whose presets are given."""
    every_row = list(rows.values())
    return Experiment(
        presets={name: {**sizes, "seeds": 1} for name, sizes in presets.items()},
        plan=make_plan(every_row),
        measure=measure,
        claims=[],
        table=make_table(rows),
        draw=make_draw(rows),
        trains=True,
        photographs=True,
        sweeps=make_sweeps(every_row),
        **fields,
    )
