"""Charts as the page of a report draws them: plain numbers, and colours for light and for dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.colors import to_hex

from oni.recipes.charts.chart import Chart
from oni.style import tint

__all__ = ["drawable", "for_dark"]


def for_dark(colour: str) -> str:
    """The colour for a dark background: all are lighter, and those that were told apart still are.

    >>> for_dark("#0072B2")
    '#73b1d5'
    """
    return to_hex(tint(colour, 0.55))


def drawable(chart: Chart) -> dict[str, Any]:
    """A chart in plain JSON, with what can't be drawn left out: gaps where a number is not finite, or has no log."""
    known = [value for series in chart.series for value in series.y if value is not None and value > 0]
    names = list(dict.fromkeys(series.name for series in chart.series))
    lines: list[dict[str, Any]] = []
    for series in chart.series:
        x, y = numbers(series.x, chart.x_log), numbers(series.y, chart.y_log)
        if len(x) != len(y):
            raise ValueError(f"chart {chart.title!r}: {series.name!r} has {len(x)} x and {len(y)} y")
        colour = to_hex(series.colour)
        line = {"name": names.index(series.name), "x": x, "y": y, "dash": series.dash}
        line |= {"light": colour, "dark": for_dark(colour)}
        if series.low and series.high:
            floor = min(known, default=1.0) if chart.y_log else -math.inf
            line["band"] = band(x, numbers(series.low, False), numbers(series.high, chart.y_log), floor)
        lines.append(line)
    y_range = list(chart.y_range) if chart.y_range else None
    return {
        "names": names,
        "lines": lines,
        "x": {
            "title": chart.x,
            "log": chart.x_log,
            "ticks": ticks([line["x"] for line in lines], chart.x_log, whole=True),
        },
        "y": {
            "title": chart.y,
            "log": chart.y_log,
            "range": y_range,
            "ticks": ticks([y_range] if y_range else [line["y"] for line in lines], chart.y_log),
        },
    }


def ticks(values: Sequence[Sequence[float | None]], log: bool, *, whole: bool = False) -> list[float] | None:
    """Where an axis has its numbers, if it is short: a logarithmic one, or one of a few whole numbers.

    >>> ticks([[0.3, None, 2.5]], log=True)
    [0.1, 0.2, 0.5, 1.0, 2.0, 5.0]
    >>> ticks([[1.0, 2.0, 3.0]], log=False, whole=True)
    [1, 2, 3]
    """
    known = [value for line in values for value in line if value is not None and (value > 0 or not log)]
    if log and known and max(known) <= 100 * min(known):
        decades = range(math.floor(math.log10(min(known))), math.ceil(math.log10(max(known))))
        return [float(f"{digit}e{decade}") for decade in decades or [decades.start] for digit in (1, 2, 5)]
    if whole and not log and known and max(known) - min(known) <= 12 and all(value % 1 == 0 for value in known):
        return list(range(int(min(known)), int(max(known)) + 1))
    return None


def numbers(values: Sequence[float | None], log: bool) -> list[float | None]:
    def drawn(value: float | None) -> float | None:
        usable = value is not None and abs(value) < 1e300 and (value > 0 or not log)
        return float(f"{value:.6g}") if usable and value is not None else None

    return [drawn(value) for value in values]


def band(
    x: Sequence[float | None], low: Sequence[float | None], high: Sequence[float | None], floor: float
) -> dict[str, list[float | None]]:
    """The outlines of what lies between low and high, one for each stretch without a gap, with gaps between."""
    outline: dict[str, list[float | None]] = {"x": [], "y": []}
    stretch: list[tuple[float, float, float]] = []

    def close() -> None:
        if stretch:
            outline["x"] += [*(at for at, _, _ in stretch), *(at for at, _, _ in reversed(stretch)), None]
            outline["y"] += [*(above for _, _, above in stretch), *(below for _, below, _ in reversed(stretch)), None]
            stretch.clear()

    for at, below, above in zip(x, low, high, strict=True):
        if at is None or below is None or above is None:
            close()
        else:
            stretch.append((at, max(below, floor), max(above, floor)))
    close()
    return outline
