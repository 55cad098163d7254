"""What was measured, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass

from oni.bench.result import exactly, quotient, time_interval, time_ratio
from oni.bench.shape_result import ShapeResult
from oni.timing import Interval, Quartiles

__all__ = ["FormResult"]


@dataclass
class FormResult(ShapeResult):
    """One shape and all forms that ran on it."""

    def measured(self, quantity: str, name: str, over: str) -> Interval | None:
        if quantity == "time":
            return time_interval(self.entries, name, over)
        ratio = self.memory_ratio(name, over) if quantity == "memory" else self.delta_ratio(name, over)
        return None if ratio is None else exactly(ratio)

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

    def _peak(self, name: str) -> float | None:
        return self.entries[name].peak if name in self.entries else None

    def _delta(self, name: str) -> float | None:
        return self.entries[name].delta if name in self.entries else None
