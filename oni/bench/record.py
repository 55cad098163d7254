"""A run as JSON: every number, and what one needs to know to judge or repeat it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, TypeVar

from oni.bench.matrices.limit import operations
from oni.bench.matrices.result import CaseResult
from oni.bench.settings import SEED, Settings
from oni.bench.targets import Verdict
from oni.machine import machine, versions
from oni.timing import Interval, Quartiles

__all__ = ["record", "record_case", "to_dict"]

R = TypeVar("R")


def record(
    results: Sequence[R],
    verdicts: Sequence[Verdict],
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


def record_case(result: CaseResult) -> dict[str, Any]:
    """One shape and all who ran on it."""
    return {
        "name": result.name,
        "shape": list(result.shape),
        "products": {
            kind: {
                "flop": operations(result.shape, kind),
                "gflop_per_second": to_dict(result.product_rate(kind), 1e-9),
                "rounds": len(result.products[kind]),
            }
            for kind in result.products
        },
        "contenders": [record_contender(name, result) for name in result.entries],
    }


def record_contender(name: str, result: CaseResult) -> dict[str, Any]:
    """One row of the table."""
    entry = result.entries[name]
    contender = entry.contender
    return {
        "name": name,
        "steps": contender.steps,
        "note": entry.word or contender.remark or None,
        "rounds": len(entry.times),
        "milliseconds": to_dict(entry.seconds, 1e3),
        "against": contender.against or None,
        "time_ratio": to_dict(result.time_ratio(name, contender.against)),
        "peak_bytes": entry.peak,
        "peak_over_literal": result.memory_beside_literal(name),
        "delta": entry.delta,
        "products": contender.products and contender.products._asdict(),
        "nearness_to_limit": to_dict(result.nearness_to_limit(name)),
    }


def to_dict(interval: Quartiles | Interval | None, unit: float = 1.0) -> dict[str, float] | None:
    """Quartiles or an interval, in some unit."""
    return None if interval is None else {name: unit * value for name, value in interval._asdict().items()}


def record_target(verdict: Verdict) -> dict[str, Any]:
    """A target, and what was measured of it."""
    target = verdict.target
    return {
        "case": target.case,
        "quantity": target.quantity,
        "of": list(target.names),
        "over": target.over,
        "at_least": target.at_least,
        "at_most": target.at_most,
        "measured": verdict.measured,
        "is_lower_bound": verdict.is_lower_bound,
        "reached": verdict.reached,
    }
