"""A run as JSON: every number, and what one needs to know to judge or repeat it."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from oni.bench.limit import operations
from oni.bench.measure import Quartiles
from oni.bench.result import CaseResult
from oni.bench.settings import SEED, Settings
from oni.bench.targets import Verdict

__all__ = ["machine", "record", "versions"]


def record(
    results: Sequence[CaseResult], verdicts: Sequence[Verdict], settings: Settings, *, complete: bool
) -> dict[str, Any]:
    """Everything about a run in plain values."""
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
        "cases": [_case(result) for result in results],
        "targets": [_target(verdict) for verdict in verdicts],
    }


def machine(device: str = "cpu") -> dict[str, Any]:
    """What the numbers depend on."""
    described: dict[str, Any] = {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "platform": platform.platform(),
        "device": device,
    }
    if device != "cpu":
        described["gpu"] = torch.cuda.get_device_name(device)
    return described


def cpu_model() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """The versions of what was measured, and of those peers that are installed."""
    known = {"python": platform.python_version(), "oni": version("oni-torch"), "torch": torch.__version__}
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    if blas:
        known["blas"] = blas[1]
    for package in ("numpy", "geotorch"):
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            continue
    return known


def _case(result: CaseResult) -> dict[str, Any]:
    return {
        "name": result.name,
        "shape": list(result.shape),
        "products": {
            kind: {
                "flop": operations(result.shape, kind),
                "gflop_per_second": _quartiles(result.product_rate(kind), 1e-9),
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
        "milliseconds": _quartiles(entry.seconds, 1e3),
        "against": contender.against or None,
        "time_ratio": _quartiles(result.time_ratio(name, contender.against)),
        "peak_bytes": entry.peak,
        "peak_over_literal": result.memory_beside_literal(name),
        "delta": entry.delta,
        "products": contender.products and contender.products._asdict(),
        "nearness_to_limit": _quartiles(result.nearness_to_limit(name)),
    }


def _quartiles(of: Quartiles | None, unit: float = 1.0) -> dict[str, float] | None:
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
