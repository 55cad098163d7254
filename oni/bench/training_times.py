"""Training steps of one network under several methods: what was measured, as a table and as plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table
from rich.text import Text
from torch import nn

from oni.bench.record import to_dict
from oni.bench.result import BenchResult, Timed, exactly, quotient, time_interval, time_ratio
from oni.bench.table import format_delta, format_median, format_spread
from oni.terminal import format_number, table
from oni.timing import Interval, Quartiles, Times, paired_difference, share_of_addition

__all__ = ["STEPS", "MethodTimes", "TrainingMethod", "TrainingResult", "record_method", "training_table"]

STEPS = (2, 5)


@dataclass(frozen=True)
class TrainingMethod:
    """A row of the table."""

    name: str
    apply: Callable[[nn.Module], object]
    """Puts it on a plain network, in place."""
    steps: int | None = None
    against: str = ""
    """The contender by whose addition this one's is divided."""
    ours: bool = False
    cached: bool = False
    """Whether its steps run inside ``oni.cached``."""
    compiled: bool = False
    """Whether ``torch.compile`` has its way with the network first."""
    patient: bool = True
    """Never skipped, however slow."""
    orthogonal: bool = False
    """Whether it makes weights more or less orthogonal."""
    predict: Callable[[nn.Module], float] | None = None
    """Seconds that one forward and backward pass spends on the weights, predicted without running it."""


@dataclass
class MethodTimes(Timed):
    """Training steps under one method."""

    method: TrainingMethod
    times: Times = field(default_factory=dict)
    word: str = ""
    """Why there are no times."""
    first: float = 0.0
    """Seconds of its first step, which is no part of the times."""
    delta: float | None = None
    """How far all weights together are from orthogonal at the start, where that was measured."""


@dataclass
class TrainingResult(BenchResult):
    """One network at one batch size."""

    name: str
    about: str
    entries: dict[str, MethodTimes] = field(default_factory=dict)

    def times_plain(self, name: str) -> Quartiles | None:
        return time_ratio(self.entries, name, "plain")

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

    def measured(self, quantity: str, name: str, over: str) -> Interval | None:
        if quantity == "delta":
            own, other = (self.entries[key].delta if key in self.entries else None for key in (name, over))
            ratio = quotient(own, other)
            return None if ratio is None else exactly(ratio)
        return self.share(name, over) if quantity == "added time" else time_interval(self.entries, name, over)


def training_table(result: TrainingResult, ascii_only: bool = False) -> Table:
    """One row per method."""
    rows = table(ascii_only)
    rows.add_column("contender", no_wrap=True)
    for title in ("ms", "quartiles", "x plain", "adds", "share", "9 of 10", "delta"):
        rows.add_column(title, justify="right", no_wrap=True)
    rows.add_column("note")
    for name, entry in result.entries.items():
        seconds, ratio, added = entry.seconds, result.times_plain(name), result.added(name)
        share = result.share(name, entry.method.against)
        rows.add_row(
            name,
            format_median(seconds, 1e3),
            format_spread(seconds, 1e3),
            format_median(ratio),
            format_median(added, 1e3),
            "" if share is None else format_number(share.value),
            format_spread(share),
            "" if entry.delta is None else format_delta(entry.delta),
            Text(entry.word),
            style="bold" if entry.method.ours else None,
        )
    return rows


def record_method(name: str, result: TrainingResult) -> dict[str, Any]:
    """One method's training steps."""
    entry = result.entries[name]
    against = entry.method.against
    return {
        "name": name,
        "steps": entry.method.steps,
        "note": entry.word or None,
        "rounds": len(entry.times),
        "milliseconds": to_dict(entry.seconds, 1e3),
        "times_plain": to_dict(result.times_plain(name)),
        "added_milliseconds": to_dict(result.added(name), 1e3),
        "delta": entry.delta,
        "against": against or None,
        "share_of_addition": to_dict(result.share(name, against)),
    }
