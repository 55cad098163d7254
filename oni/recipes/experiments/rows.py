"""Rows of a table that compares methods: what each trains with, and what is chosen for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Options", "Row", "format_options"]

Options = Mapping[str, Any]
"""Keys of a configuration, such as ``method_options.steps``, and their values."""


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
