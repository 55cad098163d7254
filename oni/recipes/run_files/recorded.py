"""The curves that a training run recorded, read from its folder or from the results of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["MeasuredRun", "TrainingRecord", "percent", "read_record"]

Values = Sequence[float | None]


class MeasuredRun(Protocol):
    """A run of an experiment: `oni.recipes.experiments.experiment.Run`."""

    @property
    def parameters(self) -> Any: ...
    @property
    def measured(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class TrainingRecord:
    """The curves of one run, and what was watched while it trained."""

    metrics: Mapping[str, Values]
    """By name, one value for each epoch; ``None`` where it was not measured, or not finite."""
    epochs: int = 0
    """How many were planned. A run that ended earlier has diverged; from there on its error counts as 100 %."""
    watched: Mapping[str, Mapping[int, Mapping[str, Values]]] = field(default_factory=dict)
    """By what was watched (spectrum, signal), then by step, then by layer or quantity."""

    def percent(self, part: str) -> list[float | None]:
        """The error of a part ("train", "validation", "test") in percent, after each epoch; empty if not recorded."""
        errors = self.metrics.get(f"{part}_error", ())
        return percent(errors, self.epochs) if any(error is not None for error in errors) else []

    def steps(self, name: str) -> Mapping[int, Mapping[str, Values]]:
        """What was watched under this name, by step."""
        return self.watched.get(name, {})


def percent(errors: Values, epochs: int, diverged: float = 100.0) -> list[float | None]:
    """Errors in percent for every epoch; ``None`` where there was no measurement, ``diverged`` after a run had.

    >>> percent([0.25, None, 0.125], 4), percent([0.25, None], 3)
    ([25.0, None, 12.5, 100.0], [25.0, 100.0, 100.0])
    """
    measured = [None if error is None else 100 * error for error in errors]
    while len(errors) < epochs and measured and measured[-1] is None:
        measured.pop()
    return measured + [diverged] * (epochs - len(measured))


def read_record(run: MeasuredRun | TrainingRecord) -> TrainingRecord:
    """The record of a run of an experiment, in which the steps of what was watched are strings."""
    if isinstance(run, TrainingRecord):
        return run
    watched = {
        name: {int(step): values for step, values in run.measured[name].items()}
        for name in ("spectrum", "signal")
        if name in run.measured
    }
    metrics = {
        name: values
        for name, values in run.measured.items()
        if name.endswith(("_error", "_loss", "_distance")) and isinstance(values, list)
    }
    parameters = run.parameters
    epochs = parameters["epochs"] if isinstance(parameters, Mapping) else parameters.epochs
    return TrainingRecord(metrics, epochs, watched)
