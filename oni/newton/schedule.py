r"""Schedules: how strongly each step pushes the singular values, and what a number of steps guarantees.

Every step applies Newton's cubic :math:`\varphi(s) = \tfrac32 s - \tfrac12 s^3` to the singular values after
stretching them by a factor :math:`\alpha_t \ge 1`:

.. math:: s_{t+1} = \varphi(\alpha_t s_t), \qquad 1 \le \alpha_t \le \sqrt 3.

A schedule is nothing but the sequence of stretches. Because :math:`\varphi` maps :math:`[0, \sqrt 3]` into
:math:`[0, 1]`, a spectrum that starts in :math:`[0, 1]` stays there under *any* such sequence, cut at *any*
length: that is the certificate for :math:`\sigma_{\max} \le 1` (in exact arithmetic; see
:func:`oni.orthogonalize` for rounding).

``"newton"``
    :math:`\alpha_t = 1`, the paper's iteration. Keeps the order of the singular values.
``"minimax"``
    Each step is the best cubic for the interval :math:`[l_t, 1]` that is left of :math:`[0.1, 1]`: the one
    that lifts its lower end highest without passing 1. Setting :math:`\varphi(\alpha l) = \varphi(\alpha)`
    gives :math:`\alpha^2 = 3 / (1 + l + l^2)`. Six steps take :math:`[0.1, 1]` to 1 within 1e-6, where
    Newton's need ten; a step costs the same. It gains for singular values that start below about 0.3 (as
    those of Gaussian matrices do under each bound), and none above. They may change their order on the way.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from itertools import islice

__all__ = ["SCHEDULES", "certified_range", "phi", "steps_for", "stretches"]


def phi(s: float, steps: int = 1) -> float:
    r"""Newton's scalar map :math:`\varphi(s) = 1.5 s - 0.5 s^3`, applied ``steps`` times.

    >>> phi(0.5), round(phi(0.5, steps=2), 6)
    (0.6875, 0.868774)
    """
    for _ in range(steps):
        s = s * (1.5 - 0.5 * s * s)
    return s


def _newton() -> Iterator[float]:
    while True:
        yield 1.0


def _minimax(lower: float = 0.1) -> Iterator[float]:
    while True:
        stretch = math.sqrt(3.0 / (1.0 + lower + lower * lower))
        yield stretch
        # At lower = 1 the formula gives 1 again up to rounding; min() keeps it from drifting past.
        lower = min(1.0, phi(stretch * lower))


SCHEDULES: dict[str, Callable[[], Iterator[float]]] = {"newton": _newton, "minimax": _minimax}


def stretches(schedule: str, steps: int) -> tuple[float, ...]:
    """The stretch of each of the first ``steps`` steps.

    >>> stretches("newton", 3)
    (1.0, 1.0, 1.0)
    >>> [round(a, 3) for a in stretches("minimax", 6)]
    [1.644, 1.517, 1.287, 1.072, 1.004, 1.0]
    """
    steps = checked_steps(steps)
    return tuple(islice(checked_schedule(schedule)(), steps))


def certified_range(interval: tuple[float, float], steps: int, *, schedule: str = "newton") -> tuple[float, float]:
    r"""The exact range ``(sigma_min, sigma_max)`` to which ``steps`` steps map singular values of ``interval``.

    A continuous map takes an interval to an interval, and a cubic's extremes lie at the ends or at its
    only positive critical point (where it is exactly 1); so following the ends through the steps gives the
    image itself, not an estimate of it. Computed in double precision.

    Args:
        interval: ``(low, high)`` with ``0 <= low <= high <= 1``: where the bounded matrix's singular values lie.
        steps: number of steps.
        schedule: ``"newton"`` or ``"minimax"``.

    Returns:
        ``(sigma_min, sigma_max)``; ``sigma_max <= 1`` always, before the rounding of a matrix in its own dtype.

    >>> certified_range((0.1, 0.5), 1)
    (0.1495, 0.6875)
    >>> low, high = certified_range((0.1, 0.5), 4, schedule="minimax")
    >>> low > 0.99 and high <= 1
    True
    """
    low, high = _checked_interval(interval)
    for stretch in stretches(schedule, steps):
        low, high = _image(stretch, low, high)
    return low, high


def steps_for(interval: tuple[float, float], sigma_min: float, *, schedule: str = "newton") -> int:
    r"""The fewest steps that lift every singular value of ``interval`` to at least ``sigma_min``.

    Args:
        interval: ``(low, high)`` with ``0 < low <= high <= 1``: where the bounded matrix's singular values lie.
        sigma_min: the target, at least 0 and below 1 (no finite number of steps reaches 1).
        schedule: ``"newton"`` or ``"minimax"``.

    Returns:
        The smallest ``steps`` for which ``certified_range(interval, steps)[0] >= sigma_min``.

    >>> steps_for((0.1, 1.0), 0.9), steps_for((0.1, 1.0), 0.9, schedule="minimax")
    (7, 4)
    """
    low, high = _checked_interval(interval)
    if low == 0.0:
        raise ValueError(
            f"interval starts at {interval[0]!r}: a zero singular value stays zero for any number of steps; "
            "pass the smallest nonzero singular value as its lower end"
        )
    if isinstance(sigma_min, bool) or not isinstance(sigma_min, int | float) or not 0.0 <= sigma_min < 1.0:
        raise ValueError(
            f"sigma_min must be a number in [0, 1), got {sigma_min!r}; 1 itself is only reached in the limit, "
            "pass for example 0.999"
        )
    steps = 0
    for stretch in checked_schedule(schedule)():
        if low >= sigma_min:
            break
        low, high = _image(stretch, low, high)
        steps += 1
    return steps


def _image(stretch: float, low: float, high: float) -> tuple[float, float]:
    """The image of ``[low, high]``, a part of ``[0, 1]``, under one step."""
    at_low, at_high = phi(stretch * low), phi(stretch * high)
    peak = 1.0 if stretch * low <= 1.0 <= stretch * high else max(at_low, at_high)
    # phi(sqrt 3) is 0; rounding may leave it an ulp below.
    return max(0.0, min(at_low, at_high)), min(1.0, peak)


def checked_schedule(schedule: str) -> Callable[[], Iterator[float]]:
    if not isinstance(schedule, str) or schedule not in SCHEDULES:
        raise ValueError(f"schedule must be one of {', '.join(map(repr, SCHEDULES))}, got {schedule!r}")
    return SCHEDULES[schedule]


def checked_steps(steps: int) -> int:
    try:
        if isinstance(steps, bool):
            raise TypeError
        count = operator.index(steps)
    except TypeError:
        raise TypeError(
            f"steps must be a whole number, got {steps!r} of type {type(steps).__name__}; pass for example steps=5"
        ) from None
    if count < 0:
        raise ValueError(f"steps must not be negative, got {count}; 0 is centring and bounding alone")
    return count


def _checked_interval(interval: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = (float(end) for end in interval)
    except (TypeError, ValueError):
        raise TypeError(
            f"interval must be a pair (low, high) of numbers, got {interval!r}; pass for example (0.1, 1.0)"
        ) from None
    if not 0.0 <= low <= high <= 1.0:
        raise ValueError(
            f"interval must satisfy 0 <= low <= high <= 1, got {interval!r}; every bound of orthogonalize "
            "puts the singular values there"
        )
    return low, high
