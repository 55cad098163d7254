"""Charts as the report's page draws them with plotly.js: plain numbers, with colours for light and for dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from oni.recipes.charts.chart import Chart
from oni.recipes.charts.colours import for_dark
from oni.recipes.charts.ticks import axis_ticks, tick_label
from oni.terminal import printable

__all__ = ["encode_chart"]

Values = Sequence[float | None]


def encode_chart(chart: Chart) -> dict[str, Any]:
    """A chart in plain JSON. What can't be drawn (not finite, or without a logarithm) becomes a gap."""
    positive = [value for series in chart.series for value in series.y if value is not None and value > 0]
    names = list(dict.fromkeys(series.name for series in chart.series))
    lines: list[dict[str, Any]] = []
    for series in chart.series:
        x, y = encode_numbers(series.x, log=chart.x_log), encode_numbers(series.y, log=chart.y_log)
        if len(x) != len(y):
            raise ValueError(f"chart {chart.title!r}: {series.name!r} has {len(x)} x and {len(y)} y")
        line = {"name": names.index(series.name), "x": x, "y": y, "dash": series.dash}
        if chart.x_names:
            line["points"] = True
        line |= {"light": series.colour.lower(), "dark": for_dark(series.colour)}
        if series.low and series.high:
            floor = min(positive, default=1.0) if chart.y_log else -math.inf
            low, high = encode_numbers(series.low, log=False), encode_numbers(series.high, log=chart.y_log)
            if chart.x_names:
                line["spread"] = {"low": subtract(y, low), "high": subtract(high, y)}
            else:
                line["band"] = outline_band(x, low, high, floor)
        lines.append(line)
    y_range = list(chart.y_range) if chart.y_range else None
    x_values = [value for line in lines for value in line["x"]]
    y_values = y_range or [value for line in lines for value in line["y"]]
    return {
        "names": [printable(name) for name in names],
        "dashes": dict(chart.dashes),
        "lines": lines,
        "x": encode_names(chart)
        if chart.x_names
        else encode_axis(chart.x, chart.x_log, None, axis_ticks(x_values, log=chart.x_log, settings=True)),
        "y": encode_axis(chart.y, chart.y_log, y_range, axis_ticks(y_values, log=chart.y_log)),
    }


def encode_axis(title: str, log: bool, limits: list[float] | None, ticks: list[float] | None) -> dict[str, Any]:
    labels = [tick_label(tick) for tick in ticks] if ticks else None
    return {"title": title, "log": log, "range": limits, "ticks": ticks, "labels": labels}


def encode_names(chart: Chart) -> dict[str, Any]:
    """An axis with names at 1, 2, ..., and half a place around them."""
    ticks = [float(place) for place in range(1, len(chart.x_names) + 1)]
    names = [printable(name.replace("\n", " ")) for name in chart.x_names]
    return {"title": chart.x, "log": False, "range": [0.5, len(names) + 0.5], "ticks": ticks, "labels": names}


def encode_numbers(values: Values, *, log: bool) -> list[float | None]:
    """Six digits of each number that can be drawn, ``None`` for the others."""

    def encode(value: float | None) -> float | None:
        if value is None or not abs(value) < 1e300 or (log and value <= 0):
            return None
        return float(f"{value:.6g}")

    return [encode(value) for value in values]


def subtract(values: Values, others: Values) -> list[float | None]:
    """Differences, with gaps where a number is missing."""
    return [
        None if value is None or other is None else value - other for value, other in zip(values, others, strict=True)
    ]


def outline_band(x: Values, low: Values, high: Values, floor: float) -> dict[str, list[float | None]]:
    """The outline of the area between low and high: one for each stretch without a gap, with gaps between."""
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
