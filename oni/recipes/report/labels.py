"""How runs are told from each other: by words and by colours."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from oni.recipes.charts.colours import from_polar, ramp, shades
from oni.recipes.report.sources import RecordedRun
from oni.style import COLOURS

__all__ = ["differing_keys", "format_value", "run_colours", "run_labels"]

METHOD_COLOURS = {**COLOURS, "sn": COLOURS["spectral norm"]}
OTHER_COLOURS = ["#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#0072B2"]
"""Okabe and Ito's, for methods without a colour of their own."""
NAMED_FIRST = ("network_options.depth", "learning_rate", "seed")
"""What is named wherever runs differ in it, beside the options of the method."""
SHORT_NAMES = {"learning_rate": "lr"}


def run_labels(runs: Sequence[RecordedRun]) -> list[str]:
    """What tells each run from the others: its method, the settings in which they differ, its name if need be.

    >>> config = {"method": "oni", "seed": 0, "epochs": 10}
    >>> runs = [RecordedRun("a", {**config, "learning_rate": rate}, "finished", []) for rate in (0.1, 0.5)]
    >>> run_labels(runs)
    ['oni, lr 0.1', 'oni, lr 0.5']
    """
    differing = [key for key in differing_keys([run.config for run in runs], missing=False) if key != "method"]
    first = sorted(
        (key for key in differing if key in NAMED_FIRST or key.startswith("method_options.")),
        key=lambda key: (key == "seed", key == "learning_rate"),
    )
    chosen: list[str] = []

    def labels() -> list[str]:
        return [", ".join([str(run.config.get("method", "?")), *describe_settings(run, chosen)]) for run in runs]

    for key in [*first, *(key for key in differing if key not in first)]:
        before = len(set(labels()))
        if key in first or before < len(runs):
            chosen.append(key)
            if key not in first and len(set(labels())) == before:
                chosen.remove(key)
    final = labels()
    return [
        label if final.count(label) == 1 else f"{label} ({run.name})" for run, label in zip(runs, final, strict=True)
    ]


def differing_keys(configs: Sequence[dict[str, Any]], *, missing: bool = True) -> list[str]:
    """The keys whose value is not the same in all; with ``missing``, also those that only some have.

    >>> differing_keys([{"seed": 0, "epochs": 2}, {"seed": 1, "epochs": 2, "method_options.steps": 5}])
    ['seed', 'method_options.steps']
    """
    keys = dict.fromkeys(key for config in configs for key in config)

    def values(key: str) -> set[str]:
        return {format_value(config[key]) if key in config else "" for config in configs if missing or key in config}

    return [key for key in keys if len(values(key)) > 1]


def describe_settings(run: RecordedRun, keys: Iterable[str]) -> list[str]:
    """These settings of the run in words."""

    def put_in_words(key: str, value: Any) -> str:
        word = SHORT_NAMES.get(key, key.rpartition(".")[2].replace("_", " "))
        return ("" if value else "not ") + word if isinstance(value, bool) else f"{word} {format_value(value)}"

    return [put_in_words(key, run.config[key]) for key in keys if key in run.config]


def format_value(value: Any) -> str:
    """A plain value as a person writes it.

    >>> format_value(0.1), format_value([64, 256]), format_value([]), format_value(True), format_value(None)
    ('0.1', '64, 256', 'none', 'yes', 'none')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == [] or value == {}:
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list) and not any(isinstance(item, list | dict) for item in value):
        return ", ".join(map(format_value, value))
    return value if isinstance(value, str) else json.dumps(value)


def run_colours(runs: Sequence[RecordedRun]) -> list[str]:
    """A hue for each method, and its runs in shades of it; if there is only one method, a ramp of hues."""
    methods = [str(run.config.get("method", "?")) for run in runs]
    hues: dict[str, str] = {method: METHOD_COLOURS[method] for method in methods if method in METHOD_COLOURS}
    for method in methods:
        if method not in hues:
            free = (colour for colour in [*OTHER_COLOURS, *more_colours(len(runs))] if colour not in hues.values())
            hues[method] = next(free)
    if len(hues) == 1 and len(runs) > 1:
        return ramp(hues[methods[0]], len(runs))
    remaining = {method: iter(shades(hue, methods.count(method))) for method, hue in hues.items()}
    return [next(remaining[method]) for method in methods]


def more_colours(count: int) -> list[str]:
    """Hues by the golden ratio: far apart, however many are taken."""
    turn = 2 * math.pi * 0.618034
    return [from_polar(0.55, 0.12, turn * index) for index in range(count + len(METHOD_COLOURS))]
