"""What ``oni bench processes`` prints and records."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oni.bench.processes.model import GPU, predict_added
from oni.bench.processes.result import ProcessesResult
from oni.bench.settings import Settings
from oni.bench.table import show_case, show_heading, show_targets
from oni.bench.targets import BenchVerdict
from oni.bench.training_times import STEPS, record_method, training_table
from oni.terminal import ascii_only, format_number, table

__all__ = ["record_processes", "show_processes"]

GPU_COUNTS = (1, 2, 4, 8, 16)
LEGEND = """\
ms        milliseconds, float32: median over rounds, quartiles; of a training step (zero_grad,
          forward, cross-entropy, backward, SGD) under DistributedDataParallel, until the last
          process is done; each process has its own batch
x plain   its time relative to the plain network, within each round
adds      milliseconds beyond the plain network's step of the same round, median
share     for a shared network: that as a fraction of what it adds without sharing. Next to it,
          the interval that contains the share in 9 of 10 resamplings of the rounds
model     the predicted share: the fraction of all products that the busiest process computes,
          plus the communication, timed separately, as a fraction of what is added without sharing"""


def show_processes(
    results: Sequence[ProcessesResult], verdicts: Sequence[BenchVerdict], settings: Settings, terminal: Console
) -> None:
    """Print everything that was measured, and the model for GPUs."""
    plain = ascii_only(terminal, plain=settings.plain)
    show_heading(settings, LEGEND, terminal)
    for result in results:
        at = result.by_processes.get(result.asked)
        if at is not None:
            show_case(result.name, f"{result.about}, in each of {result.asked} processes", at.entries, terminal)
            terminal.print(training_table(at, plain))
    terminal.print(Text("\nHow it scales", style="bold"))
    terminal.print(growth_table(results, plain))
    if any(processes > (os.cpu_count() or 1) for result in results for processes in result.by_processes):
        terminal.print(f"With more processes than cores ({os.cpu_count()}), processes wait for each other.")
    terminal.print(Text("\nPredicted by the cost model, not measured", style="bold"))
    terminal.print(f"{GPU.about}.", soft_wrap=True)
    terminal.print(gpu_table(results, plain))
    show_targets(results, verdicts, plain, terminal)


def growth_table(results: Sequence[ProcessesResult], ascii_only: bool = False) -> Table:
    """One row per network, number of processes and number of steps."""
    rows = table(ascii_only)
    rows.add_column("network", no_wrap=True)
    for title in ("processes", "steps", "adds", "adds, shared", "share", "model"):
        rows.add_column(title, justify="right", no_wrap=True)
    for row in growth(results):
        rows.add_row(
            row["network"],
            str(row["processes"]),
            str(row["steps"]),
            format_optional(row["added_milliseconds"]),
            format_optional(row["added_milliseconds_shared"]),
            format_optional(row["share"]),
            format_optional(row["model"]),
        )
    return rows


def growth(results: Sequence[ProcessesResult]) -> list[dict[str, Any]]:
    """The same in plain values."""
    rows = []
    for result in results:
        for processes, at in sorted(result.by_processes.items()):
            for steps in STEPS:
                added, shared = at.added(f"oni T={steps}"), at.added(f"oni T={steps} shared")
                share = at.share(f"oni T={steps} shared", f"oni T={steps}")
                rows.append(
                    {
                        "network": result.name,
                        "processes": processes,
                        "steps": steps,
                        "added_milliseconds": None if added is None else 1e3 * added.median,
                        "added_milliseconds_shared": None if shared is None else 1e3 * shared.median,
                        "share": None if share is None else share.value,
                        "model": result.predicted_share(processes, steps),
                    }
                )
    return rows


def gpu_table(results: Sequence[ProcessesResult], ascii_only: bool = False) -> Table:
    """One row per network and number of steps: microseconds that are added, alone and shared by so many GPUs."""
    rows = table(ascii_only)
    rows.add_column("microseconds added", no_wrap=True)
    rows.add_column("steps", justify="right", no_wrap=True)
    for count in GPU_COUNTS:
        rows.add_column("alone" if count == 1 else f"{count} GPUs", justify="right", no_wrap=True)
    for row in predict_on_gpus(results):
        rows.add_row(row["network"], str(row["steps"]), *(format_number(1e6 * value) for value in row["seconds"]))
    return rows


def predict_on_gpus(results: Sequence[ProcessesResult]) -> list[dict[str, Any]]:
    """The same in plain values."""
    return [
        {
            "network": result.name,
            "steps": steps,
            "gpus": list(GPU_COUNTS),
            "seconds": [predict_added(GPU, work, count)[1] for count in GPU_COUNTS],
        }
        for result in results
        for steps, work in result.work.items()
    ]


def format_optional(value: float | None) -> str:
    return "" if value is None else format_number(value)


def record_processes(result: ProcessesResult) -> dict[str, Any]:
    """Everything in plain values."""
    return {
        "name": result.name,
        "about": result.about,
        "processes": {
            str(processes): {
                "contenders": [record_method(name, at) for name in at.entries],
                "exchange_milliseconds": 1e3 * result.exchange_seconds.get(processes, 0.0),
            }
            for processes, at in sorted(result.by_processes.items())
        },
        "growth": growth([result]),
        "gpus_by_the_model": {"assumed": GPU._asdict(), "rows": predict_on_gpus([result])},
    }
