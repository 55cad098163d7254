"""A run as JSON: every number, and what one needs to know to judge or repeat it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, TypeVar

from oni.bench.settings import SEED, Settings
from oni.bench.targets import BenchVerdict
from oni.machine import code_version, machine, versions
from oni.timing import Interval, Quartiles

__all__ = ["record_run", "to_dict"]

R = TypeVar("R")


def record_run(
    results: Sequence[R],
    verdicts: Sequence[BenchVerdict],
    settings: Settings,
    *,
    complete: bool,
    record_case: Callable[[R], dict[str, Any]],
) -> dict[str, Any]:
    """Everything about a run in plain values; ``record_case`` does the same for one result."""
    return {
        "command": settings.command(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "complete": complete,
        "code": code_version(),
        "machine": machine(settings.device),
        "versions": versions(),
        "settings": {
            "dtype": "float32",
            "seed": SEED,
            "seconds_per_case": settings.seconds,
            "least_rounds": settings.least_rounds,
            "patience_seconds": settings.patience,
        },
        "cases": [record_case(result) for result in results],
        "targets": [record_target(verdict) for verdict in verdicts],
    }


def to_dict(interval: Quartiles | Interval | None, unit: float = 1.0) -> dict[str, float] | None:
    """Quartiles or an interval, in some unit."""
    return None if interval is None else {name: unit * value for name, value in interval._asdict().items()}


def record_target(verdict: BenchVerdict) -> dict[str, Any]:
    """A target, and what was measured of it."""
    target = verdict.target
    return {
        "case": target.case,
        "quantity": target.quantity,
        "of": [target.contender],
        "over": target.over,
        "at_least": target.at_least,
        "at_most": target.at_most,
        "measured": None if verdict.measured is None else verdict.measured.value,
        "interval": None if verdict.is_lower_bound else to_dict(verdict.measured),
        "is_lower_bound": verdict.is_lower_bound,
        "reached": verdict.reached,
    }
