"""What was measured of processes that train together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from oni.bench.processes.model import Work
from oni.bench.result import BenchResult
from oni.bench.training_times import TrainingResult
from oni.timing import Interval

__all__ = ["ProcessesResult"]


@dataclass
class ProcessesResult(BenchResult):
    """One network, by the number of processes."""

    name: str
    about: str
    work: Mapping[int, Work]
    """By the number of steps."""
    asked: int = 0
    """The number of processes that was asked for: targets are about that."""
    by_processes: dict[int, TrainingResult] = field(default_factory=dict)
    exchange_seconds: dict[int, float] = field(default_factory=dict)
    """What is sent for a shared step, timed by itself."""

    def measured(self, quantity: str, name: str, over: str) -> Interval | None:
        at = self.by_processes.get(self.asked)
        return None if at is None else at.measured(quantity, name, over)

    def predicted_share(self, processes: int, steps: int) -> float | None:
        """What sharing should leave of the time that is added: the busiest's part, and what is sent."""
        added = self.by_processes[processes].added(f"oni T={steps}")
        if added is None or added.median <= 0 or processes not in self.exchange_seconds:
            return None
        return self.work[steps].largest_share(processes) + self.exchange_seconds[processes] / added.median
