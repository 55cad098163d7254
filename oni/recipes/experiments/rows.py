"""Rows of a table that compares methods: what each trains with, and what is chosen for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["COLOURS", "Options", "Row", "format_options"]

Options = Mapping[str, Any]
"""Keys of a configuration, such as ``method_options.steps``, and their values."""
COLOURS = {
    "plain": "#666666",
    "xavier": "#666666",
    "wn": "#8B5A2B",
    "orth-init": "#E69F00",
    "orth-init-sqrt2": "#B8A000",
    "orth-reg": "#7A5195",
    "olm-1": "#D55E00",
    "olm-sqrt2": "#CC79A7",
    "bn": "#56B4E9",
    "gn": "#E69F00",
    "oni": "#0072B2",
    "oni-searched": "#009E73",
    "oni-released": "#CC79A7",
    "gn-released": "#D55E00",
}
"""Of the lines in charts, by the name of the row."""


@dataclass(frozen=True)
class Row:
    """A row of a table: a method as it is trained there."""

    name: str
    """On the command line."""
    title: str
    method: str
    options: Options = field(default_factory=dict)
    candidates: tuple[Options, ...] = ({},)
    """The best of these is reported; presets that spare time take the first."""
    rates: tuple[float, ...] = ()
    """The learning rates to choose from, for batches of the paper's size."""
    rate: float = 0.0
    """The one for presets that do not choose."""
    ours: bool = False
    """Whether the paper lacks it."""


def format_options(options: Options) -> str:
    """Options in a few words, without where they belong.

    >>> format_options({"method_options.coefficient": 1e-4})
    'coefficient 0.0001'
    """
    return ", ".join(
        f"{key.rpartition('.')[2].replace('_', ' ')} {value if value is not None else 'all'}"
        for key, value in options.items()
    )
