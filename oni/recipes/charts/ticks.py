"""Where an axis has its numbers, and how they are written: the same in pictures and in the report."""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["axis_ticks", "tick_label"]

MOST = 5
"""Numbers of a logarithmic axis: more do not fit below three charts side by side."""
FEW = 12
DIGITS = 2
"""Of a number that somebody chose; measured ones have more."""
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def axis_ticks(values: Iterable[float | None], *, log: bool = False, settings: bool = False) -> list[float] | None:
    """Ticks of an axis over these values, or ``None`` where those of the drawing library are good.

    A logarithmic axis always gets some, also where the values span less than a decade. With ``settings``, the values
    may be what was set, such as epochs or learning rates: a few whole numbers get a tick each, and on a logarithmic
    axis a few short numbers do, or every second of them.

    >>> axis_ticks([0.3, None, 2.5], log=True)
    [0.5, 1.0, 2.0]
    >>> axis_ticks([0.01, 1.0], log=True)
    [0.01, 0.03, 0.1, 0.3, 1.0]
    >>> axis_ticks([2.302, 2.306], log=True)
    [2.302, 2.303, 2.304, 2.305, 2.306]
    >>> axis_ticks([1e-9, 1.0], log=True)
    [1e-08, 1e-06, 0.0001, 0.01, 1.0]
    >>> axis_ticks([1.0, 2.0, 3.0], settings=True)
    [1, 2, 3]
    >>> axis_ticks([0.02, 0.2, 0.7, 2.0], log=True, settings=True)
    [0.02, 0.2, 0.7, 2.0]
    """
    numbers = [value for value in values if value is not None and (value > 0 or not log)]
    if not numbers:
        return None
    low, high = min(numbers), max(numbers)
    if log:
        return (settings and few_ticks(numbers)) or log_ticks(low, high)
    if settings and high - low <= 12 and all(value % 1 == 0 for value in numbers):
        return list(range(int(low), int(high) + 1))
    return None


def few_ticks(numbers: Iterable[float]) -> list[float]:
    """The numbers themselves, as many of them as there is room for; none if they are too many, or have many digits."""
    different = sorted(set(numbers))
    if len(different) > FEW or any(float(f"{number:.{DIGITS}g}") != number for number in different):
        return []
    return different[:: math.ceil(len(different) / MOST)]


def log_ticks(low: float, high: float) -> list[float]:
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    if high > 200 * low:
        powers = [power for power in exponents if low * 0.999 <= 10.0**power <= high * 1.001]
        every = math.ceil(len(powers) / 6)
        return [float(f"1e{power}") for power in powers if power % every == 0]
    for digits in ((1, 2, 5), (1, 3)):
        ticks = [float(f"{digit}e{power}") for power in exponents for digit in digits]
        inside = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if len(inside) <= MOST:
            break
    return inside if len(inside) >= 3 else even_ticks(low, high)


def even_ticks(low: float, high: float) -> list[float]:
    """Round numbers at equal distances from low to high."""
    span = high - low or abs(high) or 1.0
    size = 10.0 ** math.floor(math.log10(span / 4))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= span / 5)
    first, last = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6)
    return [float(f"{index * step:.10g}") for index in range(first, last + 1)] or [float(f"{low:.3g}")]


def tick_label(value: float) -> str:
    """The number as an axis shows it.

    >>> [tick_label(value) for value in (0.05, 20.0, 1e-6, 100000.0)]
    ['0.05', '20', '10⁻⁶', '10⁵']
    """
    power = round(math.log10(value)) if value > 0 else 0
    if (power <= -4 or power >= 5) and math.isclose(value, 10.0**power):
        return "10" + str(power).translate(SUPERSCRIPTS)
    return f"{value:.10g}"
