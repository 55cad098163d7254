"""Numbers and overrides as they are written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

__all__ = ["format_duration", "format_override", "format_range"]


def format_range(values: Sequence[float], digits: int = 3) -> str:
    """The smallest to the largest value; one number if both read the same.

    >>> format_range([0.5, 0.25]), format_range([2, 2])
    ('0.25 to 0.5', '2')
    """
    low, high = f"{min(values):.{digits}g}", f"{max(values):.{digits}g}"
    return low if low == high else f"{low} to {high}"


def format_duration(seconds: float) -> str:
    """A time as a person says it.

    >>> format_duration(50), format_duration(754), format_duration(9000)
    ('50 s', '13 min', '2 h 30 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def format_override(key: str, value: Any) -> str:
    """An override as it is written on the command line.

    >>> format_override("epochs", 3), format_override("method_options.bound", "tight")
    ('epochs=3', 'method_options.bound=tight')
    """
    return f"{key}={value if isinstance(value, str) else json.dumps(value)}"
