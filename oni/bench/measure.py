"""Timing on a machine that others use too: contenders take turns, and ratios are taken within a round."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

__all__ = ["Quartiles", "Times", "interleaved", "paired_ratio", "quartiles", "rotated"]

Times = dict[int, float]
"""Seconds by number of round."""

SHARE = 0.25
"""A contender that has used so much of the time budget, and has run in enough rounds, rests from then on."""

T = TypeVar("T")


class Quartiles(NamedTuple):
    """The middle of some values, and the middles of its halves."""

    low: float
    median: float
    high: float


def quartiles(values: Sequence[float]) -> Quartiles:
    """The quartiles, interpolated between values.

    >>> quartiles([4, 1, 2, 3, 5])
    Quartiles(low=2.0, median=3.0, high=4.0)
    """
    if len(values) == 1:
        return Quartiles(values[0], values[0], values[0])
    return Quartiles(*statistics.quantiles(values, n=4, method="inclusive"))


def paired_ratio(times: Times, over: Times) -> Quartiles | None:
    """The quartiles of the ratio within each round in which both ran: what slows a whole round cancels.

    >>> paired_ratio({0: 2.0, 1: 20.0, 2: 3.0}, {0: 1.0, 1: 10.0})
    Quartiles(low=2.0, median=2.0, high=2.0)
    """
    ratios = [times[number] / over[number] for number in times.keys() & over.keys()]
    return quartiles(ratios) if ratios else None


def rotated(names: Sequence[T], number: int) -> list[T]:
    """The order of round ``number``: everyone is first once in as many rounds as there are names.

    >>> rotated("abc", 4)
    ['b', 'c', 'a']
    """
    start = number % len(names)
    return [*names[start:], *names[:start]]


def interleaved(
    calls: Mapping[str, Callable[[], object]],
    times: Mapping[str, Times],
    *,
    seconds: float,
    least_rounds: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[float]:
    """Run every call once per round, in rotating order, until the time is up and there are enough rounds.

    Args:
        calls: what to time, by name.
        times: where each time goes as soon as it is known, so that an interrupted run keeps what it has.
        seconds: the time budget.
        least_rounds: at least so many rounds, whatever they take.
        clock: seconds since some moment.

    Yields:
        After each round, the part of the work that is done, between 0 and 1.
    """
    started = clock()
    names = list(calls)
    for number in itertools.count():
        spent = clock() - started
        if number >= least_rounds:
            names = [name for name in names if sum(times[name].values()) <= SHARE * seconds]
            if spent >= seconds or not names:
                return
        yield min(spent / seconds, number / least_rounds, 1.0)
        for name in rotated(names, number):
            before = clock()
            calls[name]()
            times[name][number] = clock() - before
