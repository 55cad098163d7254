"""What every subject's results have in common."""

from __future__ import annotations

from collections.abc import Mapping

from oni.timing import Interval, Quartiles, Times, median_ratio, paired_ratio, quartiles

__all__ = ["BenchResult", "Timed", "exactly", "quotient", "time_interval", "time_ratio"]


class Timed:
    """A contender that takes its turns."""

    times: Times

    @property
    def seconds(self) -> Quartiles | None:
        return quartiles(list(self.times.values())) if self.times else None


class BenchResult:
    """One case, as targets are held against it."""

    name: str
    disagreement: bool = False
    """Whether a contender did not compute what it should."""

    def measured(self, quantity: str, name: str, over: str) -> Interval | None:
        """One contender's quantity over another's."""
        raise NotImplementedError

    def at_least(self, quantity: str, name: str, over: str) -> float | None:
        """What that is at the least, where it could not be measured."""
        return None


def time_ratio(entries: Mapping[str, Timed], name: str, over: str) -> Quartiles | None:
    """The paired ratio of times, where both have some."""
    if name not in entries or over not in entries:
        return None
    return paired_ratio(entries[name].times, entries[over].times)


def time_interval(entries: Mapping[str, Timed], name: str, over: str) -> Interval | None:
    """The same as a median with its interval, by which targets are judged."""
    if name not in entries or over not in entries:
        return None
    return median_ratio(entries[name].times, entries[over].times)


def exactly(value: float) -> Interval:
    """What is counted, not timed, as an interval."""
    return Interval(value, value, value)


def quotient(value: float | None, over: float | None) -> float | None:
    """Their ratio, where both are known."""
    return None if value is None or not over else value / over
