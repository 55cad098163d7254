"""Charts of what runs recorded, and how runs are told from each other in them: by words and colours."""

from __future__ import annotations

import colorsys
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from matplotlib.colors import to_hex, to_rgb

from oni.recipes.charts.chart import Chart, Series
from oni.recipes.report.sources import RecordedRun
from oni.style import COLOURS, tint

__all__ = ["run_charts", "run_colours", "run_labels", "worded"]

OF_METHODS = {**COLOURS, "sn": COLOURS["spectral norm"]}
OTHERS = ["#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#0072B2"]
"""Okabe and Ito's, for methods without a colour of their own."""
PALEST = 0.6
"""How much of a method's colour is in its palest shade."""
NAMED_IF_DIFFERENT = ("network_options.depth", "learning_rate", "seed")
SHORT = {"learning_rate": "lr"}

ERRORS = {"train_error": "solid", "test_error": "dash"}
SIGNALS = {"input": "activation", "gradient": "gradient"}
AT_LAST = "Of the weight, before any scale, at the last recorded step. All 1: orthogonal."
START_END = "Solid: at the end of training. Dotted: at its start. A level line: the signal is kept through the layers."


def run_charts(runs: Sequence[RecordedRun]) -> list[Chart]:
    """What runs recorded: errors, loss, spectra, and the size of signals; without those charts that have no lines."""
    named = list(zip(runs, run_labels(runs), run_colours(runs), strict=True))

    def by_epoch(keys: dict[str, str], factor: float) -> list[Series]:
        return [
            Series(label, [row.get("epoch") or at for at, row in enumerate(run.epochs, 1)], y, colour, dash)
            for run, label, colour in named
            for key, dash in keys.items()
            if (y := scaled(run, key, factor))
        ]

    charts = [
        Chart(
            "Error by epoch",
            "epoch",
            "error, %",
            by_epoch(ERRORS, 100),
            caption="Solid: on the training samples, as they were trained on. Dashed: on the test samples.",
        ),
        Chart("Training loss by epoch", "epoch", "training loss", by_epoch({"train_loss": "solid"}, 1), y_log=True),
    ]
    layers = {layer: None for run in runs for layer in last(run, "spectrum")}
    for layer in layers:
        lines = [
            Series(label, range(1, len(values) + 1), values, colour)
            for run, label, colour in named
            if (values := last(run, "spectrum").get(layer))
        ]
        charts.append(Chart(f"Singular values of layer {layer}", "rank", "singular value", lines, caption=AT_LAST))
    for key, what in SIGNALS.items():
        lines = [
            Series(label, range(1, len(values) + 1), values, colour, "solid" if step == max(steps) else "dot")
            for run, label, colour in named
            if (steps := run.watched.get("signal", {}))
            for step in sorted({min(steps), max(steps)}, reverse=True)
            if (values := steps[step].get(key))
        ]
        charts.append(
            Chart(f"Size of {what}s by layer", "layer", f"mean absolute {what}", lines, y_log=True, caption=START_END)
        )
    return [chart for chart in charts if chart.series]


def scaled(run: RecordedRun, key: str, factor: float) -> list[float | None]:
    """A number of every epoch; nothing if none has it."""
    found = [None if (value := row.get(key)) is None else factor * value for row in run.epochs]
    return found if any(value is not None for value in found) else []


def last(run: RecordedRun, name: str) -> dict[str, list[float | None]]:
    """What was watched at the last step at which it was."""
    steps = run.watched.get(name, {})
    return steps[max(steps)] if steps else {}


def run_labels(runs: Sequence[RecordedRun]) -> list[str]:
    """What tells each run from the others: its method, the settings in which they differ, its name if need be.

    >>> of = {"method": "oni", "seed": 0, "epochs": 10}
    >>> runs = [RecordedRun("a", {**of, "learning_rate": rate}, "finished", []) for rate in (0.1, 0.5)]
    >>> run_labels(runs)
    ['oni, lr 0.1', 'oni, lr 0.5']
    """
    keys = {key: None for run in runs for key in run.config if key != "method"}
    differ = [key for key in keys if len({worded(run.config[key]) for run in runs if key in run.config}) > 1]
    first = sorted(
        (key for key in differ if key in NAMED_IF_DIFFERENT or key.startswith("method_options.")),
        key=lambda key: (key == "seed", key == "learning_rate"),
    )
    chosen: list[str] = []

    def labels() -> list[str]:
        return [", ".join([str(run.config.get("method", "?")), *settings(run, chosen)]) for run in runs]

    for key in [*first, *(key for key in differ if key not in first)]:
        before = len(set(labels()))
        if key in first or before < len(runs):
            chosen.append(key)
            if key not in first and len(set(labels())) == before:
                chosen.remove(key)
    found = labels()
    return [
        label if found.count(label) == 1 else f"{label} ({run.name})" for run, label in zip(runs, found, strict=True)
    ]


def settings(run: RecordedRun, keys: Iterable[str]) -> list[str]:
    """These settings of the run in words."""

    def setting(key: str, value: Any) -> str:
        word = SHORT.get(key, key.rpartition(".")[2].replace("_", " "))
        return ("" if value else "not ") + word if isinstance(value, bool) else f"{word} {worded(value)}"

    return [setting(key, run.config[key]) for key in keys if key in run.config]


def worded(value: Any) -> str:
    """A plain value as a person writes it.

    >>> worded(0.1), worded([64, 256]), worded([]), worded(True), worded(None)
    ('0.1', '64, 256', 'none', 'yes', 'none')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == [] or value == {}:
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list) and not any(isinstance(one, list | dict) for one in value):
        return ", ".join(map(worded, value))
    return value if isinstance(value, str) else json.dumps(value)


def run_colours(runs: Sequence[RecordedRun]) -> list[str]:
    """A hue for each method; its runs in shades of it, from dark to light."""
    methods = [str(run.config.get("method", "?")) for run in runs]
    hues: dict[str, str] = {method: OF_METHODS[method] for method in methods if method in OF_METHODS}
    for method in methods:
        if method not in hues:
            free = (colour for colour in [*OTHERS, *more_colours(len(runs))] if colour not in hues.values())
            hues[method] = next(free)
    shades = {method: shaded(hues[method], methods.count(method)) for method in hues}
    return [next(shades[method]) for method in methods]


def more_colours(count: int) -> list[str]:
    """Hues as far apart as can be, the number of them not known before."""
    return [to_hex(colorsys.hls_to_rgb(0.618034 * index % 1, 0.35, 0.6)) for index in range(count + len(OF_METHODS))]


def shaded(colour: str, count: int) -> Iterator[str]:
    """The colour itself for one, else so many shades, from dark to light."""
    if count == 1:
        return iter([colour])
    dark = [0.65 * channel for channel in to_rgb(colour)]
    light = tint(colour, PALEST)

    def mixed(share: float) -> str:
        red, green, blue = ((1 - share) * low + share * high for low, high in zip(dark, light, strict=True))
        return to_hex((red, green, blue))

    return (mixed(index / (count - 1)) for index in range(count))
