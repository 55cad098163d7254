"""What was measured of a whole network, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field

from oni.bench.matrices.result import Result, Timed, time_ratio
from oni.bench.models.methods import Method
from oni.timing import Interval, Quartiles, Times, paired_difference, share_of_addition

__all__ = ["ForwardEntry", "ModelEntry", "ModelResult"]


@dataclass
class ModelEntry(Timed):
    """Training steps under one method."""

    method: Method
    times: Times = field(default_factory=dict)
    word: str = ""
    """Why there are no times."""
    first: float = 0.0
    """Seconds of its first step, which is no part of the times."""


@dataclass
class ForwardEntry(Timed):
    """Forward passes in evaluation mode."""

    times: Times = field(default_factory=dict)


@dataclass
class ModelResult(Result):
    """One network at one batch size."""

    name: str
    about: str
    entries: dict[str, ModelEntry] = field(default_factory=dict)
    forward: dict[str, ForwardEntry] = field(default_factory=dict)

    def times_plain(self, name: str) -> Quartiles | None:
        return time_ratio(self.entries, name, "plain")

    def forward_ratio(self, name: str, over: str = "plain") -> Quartiles | None:
        return time_ratio(self.forward, name, over)

    def added(self, name: str) -> Quartiles | None:
        """Seconds that a method adds to the plain step of the same round."""
        if name not in self.entries or "plain" not in self.entries or name == "plain":
            return None
        return paired_difference(self.entries[name].times, self.entries["plain"].times)

    def share(self, name: str, over: str) -> Interval | None:
        """What a method adds, as a part of what another adds."""
        if not {name, over, "plain"} <= self.entries.keys():
            return None
        own, other, plain = (self.entries[key].times for key in (name, over, "plain"))
        return share_of_addition(own, other, plain)

    def measured(self, quantity: str, name: str, over: str) -> float | None:
        if quantity == "added time":
            share = self.share(name, over)
            return None if share is None else share.value
        ratio = time_ratio(self.entries, name, over) if quantity == "step time" else self.forward_ratio(name, over)
        return None if ratio is None else ratio.median
