"""What was measured of a whole network."""

from __future__ import annotations

from dataclasses import dataclass, field

from oni.bench.result import Timed, time_interval, time_ratio
from oni.bench.training_times import TrainingResult
from oni.timing import Interval, Quartiles, Times

__all__ = ["ForwardTimes", "ModelResult"]


@dataclass
class ForwardTimes(Timed):
    """Forward passes in evaluation mode."""

    times: Times = field(default_factory=dict)


@dataclass
class ModelResult(TrainingResult):
    """Its training steps, and forward passes once it is done with training."""

    forward: dict[str, ForwardTimes] = field(default_factory=dict)

    def forward_ratio(self, name: str) -> Quartiles | None:
        return time_ratio(self.forward, name, "plain")

    def measured(self, quantity: str, name: str, over: str) -> Interval | None:
        if quantity == "forward time":
            return time_interval(self.forward, name, over)
        return super().measured(quantity, name, over)
