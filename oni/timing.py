"""Timing on a machine that others use too: contenders take turns, and ratios are taken within a round."""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

__all__ = [
    "Interval",
    "Quartiles",
    "Times",
    "Watch",
    "interleaved",
    "median_ratio",
    "paired_difference",
    "paired_ratio",
    "quartiles",
    "share_of_addition",
    "shuffle",
]

Times = dict[int, float]
"""Seconds by number of round."""

Watch = Callable[[str, float], None]
"""Is told what is being done, and which part of the case is over."""

SHARES = 2
"""A contender that has used so many equal shares of the time, and has run in enough rounds, rests from then on."""

RESAMPLES = 1000

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


def paired_difference(times: Times, minus: Times) -> Quartiles | None:
    """The quartiles of the difference within each round in which both ran.

    >>> paired_difference({0: 3.0, 1: 11.0, 2: 3.0}, {0: 1.0, 1: 9.0})
    Quartiles(low=2.0, median=2.0, high=2.0)
    """
    differences = [times[number] - minus[number] for number in times.keys() & minus.keys()]
    return quartiles(differences) if differences else None


class Interval(NamedTuple):
    """A value, and where it would lie nine times out of ten if the rounds were drawn anew."""

    low: float
    value: float
    high: float


def median_ratio(times: Times, over: Times) -> Interval | None:
    """The median ratio within a round, with its interval by bootstrap over the rounds in which both ran.

    >>> median_ratio({0: 2.0, 1: 20.0, 2: 3.0}, {0: 1.0, 1: 10.0})
    Interval(low=2.0, value=2.0, high=2.0)
    """
    ratios = [times[number] / over[number] for number in sorted(times.keys() & over.keys())]
    return bootstrap(ratios, statistics.median) if ratios else None


def share_of_addition(times: Times, over: Times, base: Times) -> Interval | None:
    """What one contender adds to ``base`` as a part of what another adds, over the rounds in which all three ran.

    The ratio of the medians of the paired differences: the ratio within a round has no stable middle where
    differences are small. The interval is by bootstrap over rounds. ``None`` where the other adds nothing.

    >>> share_of_addition({0: 2.0, 1: 12.0}, {0: 5.0, 1: 15.0}, {0: 1.0, 1: 11.0})
    Interval(low=0.25, value=0.25, high=0.25)
    """
    rounds = sorted(times.keys() & over.keys() & base.keys())
    added = [(times[number] - base[number], over[number] - base[number]) for number in rounds]
    return bootstrap(added, ratio_of_medians)


def bootstrap(rounds: Sequence[T], estimate: Callable[[Sequence[T]], float | None]) -> Interval | None:
    """An estimate from some rounds, and its spread over rounds that are drawn anew from them."""
    value = estimate(rounds)
    if value is None:
        return None
    draw = random.Random(0)
    redrawn = [estimate(draw.choices(rounds, k=len(rounds))) for _ in range(RESAMPLES)]
    twentieths = statistics.quantiles([number for number in redrawn if number is not None] + [value] * 2, n=20)
    return Interval(twentieths[0], value, twentieths[-1])


def ratio_of_medians(pairs: Sequence[tuple[float, float]]) -> float | None:
    if not pairs:
        return None
    own, other = (statistics.median(values) for values in zip(*pairs, strict=True))
    return own / other if other > 0 else None


def shuffle(names: Sequence[T], number: int) -> list[T]:
    """The order of round ``number``, the same in every process: by chance, so that no call always follows a slow one.

    After a call that fills the caches, a call of a millisecond takes half a millisecond longer.
    """
    return random.Random(number).sample(names, len(names))


def interleaved(
    calls: Mapping[str, Callable[[], object]],
    times: Mapping[str, Times],
    *,
    seconds: float,
    least_rounds: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[float]:
    """Run every call once per round, in shuffled order, until the time is up and there are enough rounds.

    Args:
        calls: what to time, by name.
        times: where each time goes as soon as it is known, so that an interrupted run keeps what it has.
        seconds: the time budget. Calls so slow that they rest right after the least rounds come on top: otherwise
            they would leave the others no more rounds than those.
        least_rounds: at least so many rounds, whatever they take.
        clock: seconds since some moment.

    Yields:
        After each round, the part of the work that is done, between 0 and 1.
    """
    names = counted = list(calls)
    spent = dict.fromkeys(calls, 0.0)
    done = 0.0
    for number in itertools.count():
        if number >= least_rounds:
            names = [name for name in names if spent[name] <= SHARES * seconds / len(calls)]
        if number == least_rounds:
            counted = names
        part = sum(spent[name] for name in counted) / seconds
        if number >= least_rounds and (part >= 1 or not names):
            return
        done = max(done, min(part, number / least_rounds, 1.0))
        yield done
        for name in shuffle(names, number):
            before = clock()
            calls[name]()
            times[name][number] = clock() - before
            spent[name] += times[name][number]
