r"""Schedules: by which polynomials the steps push the singular values, and what a number of steps guarantees.

``"newton"``
    Each step is Newton's cubic :math:`\varphi(s) = \tfrac32 s - \tfrac12 s^3`, the paper's iteration. It keeps the
    order of the singular values.
``"minimax"``
    Each *pair* of steps is the best odd polynomial of degree 9 for the interval :math:`[l_t, 1]` that is left of
    :math:`[0.1, 1]`: the one that lifts its lower end highest without passing 1 (:mod:`oni.newton.minimax`). A pair
    costs what two Newton steps cost. An odd number of steps starts with a single one, the best cubic, so that T + 2
    steps continue T steps, but T + 1 do not. Three steps take :math:`[0.1, 1]` to 0.9, four to 0.998 and five to 1
    within 1e-6, where Newton's need 7, 8 and 10. Singular values may change their order on the way, and those that
    start well above the lower end may fall before they rise.
``"minimax:0.03"``
    The same for :math:`[0.03, 1]`, or any other lower end. Singular values below it are lifted too, by less.

Every polynomial of a schedule maps :math:`[0, 1]` into :math:`[0, 1]`, so a spectrum that starts there stays there at
*any* length: that is the certificate for :math:`\sigma_{\max} \le 1` (in exact arithmetic; see
:func:`oni.orthogonalize` for rounding).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Protocol

from oni.newton.certificate import image
from oni.newton.minimax import LEAST, best_pair, best_step
from oni.newton.stage import NEWTON_PAIR, NEWTON_STEP, Stage

__all__ = ["SCHEDULES", "Schedule", "certified_range", "checked_interval", "checked_steps", "get_schedule", "phi"]

SCHEDULES = ("newton", "minimax")
DEFAULT_LOWER = 0.1


class Schedule(Protocol):
    """What every schedule can tell."""

    def stages(self, steps: int) -> list[Stage]:
        """The polynomials of this many steps, in pairs; an odd one first."""

    def split(self, steps: int, slope: float) -> list[list[Stage]]:
        """The same in the fewest parts whose slopes at zero are at most this, where a single stage's is."""

    def ranges(self, low: float, high: float) -> Iterator[tuple[float, float]]:
        """To what 0, 1, 2, ... steps take the singular values of an interval."""


def phi(s: float, steps: int = 1) -> float:
    r"""Newton's scalar map :math:`\varphi(s) = 1.5 s - 0.5 s^3`, applied ``steps`` times.

    >>> phi(0.5), round(phi(0.5, steps=2), 6)
    (0.6875, 0.868774)
    """
    for _ in range(steps):
        s = s * (1.5 - 0.5 * s * s)
    return s


class Newton:
    """The paper's iteration."""

    def stages(self, steps: int) -> list[Stage]:
        return [NEWTON_STEP] * (steps % 2) + [NEWTON_PAIR] * (steps // 2)

    def split(self, steps: int, slope: float) -> list[list[Stage]]:
        longest = 0
        while NEWTON_STEP.slope ** (longest + 1) <= slope * (1 + 1e-9):
            longest += 1
        parts = max(1, -(-steps // longest))
        cuts = [round(i * steps / parts) for i in range(parts + 1)]
        return [self.stages(stop - start) for start, stop in pairwise(cuts)]

    def ranges(self, low: float, high: float) -> Iterator[tuple[float, float]]:
        # phi rises on [0, 1], so the image of an interval is that of its ends.
        while True:
            yield low, min(1.0, high)
            low, high = phi(low), phi(high)


class Minimax:
    """The best polynomials for singular values in ``[lower, 1]``."""

    def __init__(self, lower: float) -> None:
        self.lower = lower

    def stages(self, steps: int) -> list[Stage]:
        return list(islice(self.designs(odd=bool(steps % 2)), steps % 2 + steps // 2))

    def designs(self, *, odd: bool) -> Iterator[Stage]:
        """The stages of every even, or every odd, number of steps: each is the best for what the last one left."""
        lower, best = self.lower, best_step if odd else best_pair
        while True:
            stage = best(lower)
            yield stage
            lower, best = image(stage, lower, 1.0)[0], best_pair

    def split(self, steps: int, slope: float) -> list[list[Stage]]:
        parts: list[list[Stage]] = [[]]
        reached = 1.0
        for stage in self.stages(steps):
            if parts[-1] and reached * stage.slope > slope:
                parts.append([])
                reached = 1.0
            parts[-1].append(stage)
            reached *= stage.slope
        return parts

    def ranges(self, low: float, high: float) -> Iterator[tuple[float, float]]:
        def follow(stages: Iterator[Stage]) -> Iterator[tuple[float, float]]:
            at = low, high
            for stage in stages:
                bounds = image(stage, *at)
                # The true range lies in [0, 1]: every stage is certified.
                at = max(0.0, bounds[0]), min(1.0, bounds[1])
                yield at

        yield low, high
        for after_odd, after_even in zip(follow(self.designs(odd=True)), follow(self.designs(odd=False)), strict=True):
            yield after_odd
            yield after_even


def find_schedule(name: str) -> Schedule | None:
    """The schedule of this name, if there is one."""
    if name == "newton":
        return Newton()
    kind, colon, end = name.partition(":")
    if kind != "minimax":
        return None
    try:
        lower = float(end) if colon else DEFAULT_LOWER
    except ValueError:
        return None
    return Minimax(lower) if LEAST <= lower < 1.0 else None


def get_schedule(schedule: str) -> Schedule:
    """The schedule of this name."""
    found = find_schedule(schedule) if isinstance(schedule, str) else None
    if found is None:
        raise ValueError(
            f"schedule must be one of {', '.join(map(repr, SCHEDULES))}, got {schedule!r}; for a smallest singular "
            f'value other than {DEFAULT_LOWER} pass for example "minimax:0.03", from {LEAST:g} to below 1'
        )
    return found


def certified_range(interval: tuple[float, float], steps: int, *, schedule: str = "newton") -> tuple[float, float]:
    r"""The proven range ``(sigma_min, sigma_max)`` to which ``steps`` steps map singular values of ``interval``.

    Newton's cubic increases on [0, 1], so following the end points gives the exact image. A minimax polynomial has
    several extrema, which interval arithmetic encloses. The range is therefore proven, and wider than the image only by
    rounding errors in double precision.

    Args:
        interval: ``(low, high)`` with ``0 <= low <= high <= 1``: where the bounded matrix's singular values lie.
        steps: number of steps.
        schedule: ``"newton"``, ``"minimax"`` or, for another lower end than 0.1, for example ``"minimax:0.03"``.

    Returns:
        ``(sigma_min, sigma_max)``; ``sigma_max <= 1`` always, before the rounding of a matrix in its own dtype.

    >>> certified_range((0.1, 0.5), 1)
    (0.1495, 0.6875)
    >>> low, high = certified_range((0.1, 1.0), 2, schedule="minimax")
    >>> round(low, 3), high <= 1
    (0.586, True)
    """
    low, high = checked_interval(interval)
    return next(islice(get_schedule(schedule).ranges(low, high), checked_steps(steps), None))


def checked_steps(steps: int) -> int:
    """Return ``steps`` as an int if it is a number of steps."""
    try:
        if isinstance(steps, bool):
            raise TypeError
        count = operator.index(steps)
    except TypeError:
        raise TypeError(
            f"steps must be a whole number, got {steps!r} of type {type(steps).__name__}; pass for example steps=5"
        ) from None
    if count < 0:
        raise ValueError(f"steps must not be negative, got {count}; 0 means only centring and bounding")
    return count


def checked_interval(interval: tuple[float, float]) -> tuple[float, float]:
    """Return ``interval`` as two floats if it is a part of [0, 1]."""
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
