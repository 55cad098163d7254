"""A chart as data: what a picture and the report draw is decided once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Chart", "Series"]


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    """In the legend; lines of one name are switched on and off together, and only the first is named there."""
    x: Sequence[float]
    y: Sequence[float | None]
    """``None`` where there is no number: the line has a gap."""
    colour: str
    dash: str = "solid"
    """"solid", "dash" or "dot"."""
    low: Sequence[float] = field(default=())
    """With ``high``: the spread around the line, drawn as a band; or none."""
    high: Sequence[float] = field(default=())


@dataclass(frozen=True)
class Chart:
    """Lines over one pair of axes."""

    title: str
    x: str
    """What is along the axis, with its unit."""
    y: str
    series: Sequence[Series]
    x_log: bool = False
    y_log: bool = False
    y_range: tuple[float, float] | None = None
    caption: str = ""
    """What to see in it."""
