"""A chart as data: what the pictures and the report draw is decided once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Chart", "Series"]


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    """In the legend. Lines with the same name share one entry there and are switched on and off together."""
    x: Sequence[float]
    y: Sequence[float | None]
    """``None`` where there is no number: the line has a gap."""
    colour: str
    """As ``#rrggbb``, for a light background; the report derives the colour for a dark one."""
    dash: str = "solid"
    """"solid", "dash" or "dot"."""
    low: Sequence[float | None] = field(default=())
    """With ``high``: the spread around the line, drawn as a band."""
    high: Sequence[float | None] = field(default=())


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
    x_names: Sequence[str] = ()
    """What stands at 1, 2, ... along the axis, which then has no numbers; points are not joined, and their spread is
    a bar."""
    caption: str = ""
    """What to see in it."""
    dashes: Mapping[str, str] = field(default_factory=dict)
    """What each kind of line means, for the legend: ``{"solid": "training", "dash": "test"}``."""
