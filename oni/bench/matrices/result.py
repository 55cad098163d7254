"""What was measured, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from oni.bench.matrices.contender import Contender
from oni.bench.matrices.limit import REPEATS, operations
from oni.timing import Quartiles, Times, paired_ratio, quartiles

__all__ = ["CaseResult", "Entry", "Result", "Timed", "quotient", "time_ratio"]


class Timed:
    """A contender that takes its turns."""

    times: Times

    @property
    def seconds(self) -> Quartiles | None:
        return quartiles(list(self.times.values())) if self.times else None


class Result:
    """One case, as targets are held against it."""

    name: str
    disagreement: bool = False
    """Whether a contender that should compute the same as another did not."""

    def measured(self, quantity: str, name: str, over: str) -> float | None:
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


@dataclass
class Entry(Timed):
    """What was measured of one contender."""

    contender: Contender
    times: Times = field(default_factory=dict)
    word: str = ""
    """Why there are no times."""
    at_least: float | None = None
    """Seconds that one call takes at the very least, if it was skipped for that."""
    peak: int | None = None
    """Bytes, forward and backward."""
    delta: float | None = None
    """How far from orthogonal the weight is, on its short side; the worst of a batch."""


@dataclass
class CaseResult(Result):
    """One shape and all who ran on it."""

    name: str
    shape: tuple[int, ...]
    entries: dict[str, Entry] = field(default_factory=dict)
    products: dict[str, Times] = field(default_factory=lambda: {kind: {} for kind in REPEATS})
    """Times of the bare matrix products, :data:`~oni.bench.matrices.limit.REPEATS` in each."""
    disagreement: bool = False

    def measured(self, quantity: str, name: str, over: str) -> float | None:
        if quantity == "time":
            ratio = self.time_ratio(name, over)
            return None if ratio is None else ratio.median
        return self.memory_ratio(name, over) if quantity == "memory" else self.delta_ratio(name, over)

    def at_least(self, quantity: str, name: str, over: str) -> float | None:
        return self.least_time_ratio(name, over) if quantity == "time" else None

    def time_ratio(self, name: str, over: str) -> Quartiles | None:
        return time_ratio(self.entries, name, over)

    def memory_ratio(self, name: str, over: str) -> float | None:
        return quotient(self._peak(name), self._peak(over))

    def delta_ratio(self, name: str, over: str) -> float | None:
        return quotient(self._delta(name), self._delta(over))

    def least_time_ratio(self, name: str, over: str) -> float | None:
        """What the ratio is at the least, where the contender was skipped for being slow."""
        slow, fast = self.entries.get(name), self.entries.get(over)
        if slow is None or fast is None or slow.at_least is None or fast.seconds is None:
            return None
        return slow.at_least / fast.seconds.median

    def memory_beside_literal(self, name: str) -> float | None:
        """Its peak as a part of the literal form's with as many steps; 5, if it has no literal form."""
        own = f"literal T={self.entries[name].contender.steps}"
        return self.memory_ratio(name, own if own in self.entries else "literal T=5")

    def nearness_to_limit(self, name: str) -> Quartiles | None:
        """The time of its bare matrix products in the same round, over its own."""
        entry = self.entries[name]
        count = entry.contender.products
        if count is None:
            return None
        short, long = self.products["short"], self.products["long"]
        limit = {
            number: count.short * short[number] / REPEATS["short"] + count.long * long[number] / REPEATS["long"]
            for number in short.keys() & long.keys()
        }
        return paired_ratio(limit, entry.times)

    def product_rate(self, kind: str) -> Quartiles | None:
        """Floating point operations per second of the bare products."""
        work = operations(self.shape, kind) * REPEATS[kind]
        times = self.products[kind]
        return quartiles([work / seconds for seconds in times.values()]) if times else None

    def _peak(self, name: str) -> float | None:
        return self.entries[name].peak if name in self.entries else None

    def _delta(self, name: str) -> float | None:
        return self.entries[name].delta if name in self.entries else None


def quotient(value: float | None, over: float | None) -> float | None:
    """Their ratio, where both are known."""
    return None if value is None or not over else value / over
