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

__all__ = ["machine", "plain", "record", "recorded_case", "versions"]

R = TypeVar("R")


def record(
    results: Sequence[R],
    verdicts: Sequence[Verdict],
    settings: Settings,
    *,
    complete: bool,
    of_case: Callable[[R], dict[str, Any]],
) -> dict[str, Any]:
    """Everything about a run in plain values; ``of_case`` puts one result into such."""
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
        "cases": [of_case(result) for result in results],
        "targets": [_target(verdict) for verdict in verdicts],
    }


def recorded_case(result: CaseResult) -> dict[str, Any]:
    """One shape and all who ran on it."""
    return {
        "name": result.name,
        "shape": list(result.shape),
        "products": {
            kind: {
                "flop": operations(result.shape, kind),
                "gflop_per_second": plain(result.product_rate(kind), 1e-9),
                "rounds": len(result.products[kind]),
            }
            for kind in result.products
        },
        "contenders": [_contender(name, result) for name in result.entries],
    }


def _contender(name: str, result: CaseResult) -> dict[str, Any]:
    entry = result.entries[name]
    contender = entry.contender
    return {
        "name": name,
        "steps": contender.steps,
        "note": entry.word or contender.remark or None,
        "rounds": len(entry.times),
        "milliseconds": plain(entry.seconds, 1e3),
        "against": contender.against or None,
        "time_ratio": plain(result.time_ratio(name, contender.against)),
        "peak_bytes": entry.peak,
        "peak_over_literal": result.memory_beside_literal(name),
        "delta": entry.delta,
        "products": contender.products and contender.products._asdict(),
        "nearness_to_limit": plain(result.nearness_to_limit(name)),
    }


def plain(of: Quartiles | Interval | None, unit: float = 1.0) -> dict[str, float] | None:
    """Quartiles or an interval, in some unit."""
    return None if of is None else {name: unit * value for name, value in of._asdict().items()}


def _target(verdict: Verdict) -> dict[str, Any]:
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
