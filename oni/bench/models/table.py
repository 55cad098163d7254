"""What ``oni bench models`` prints and records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from oni.bench.models.result import ModelResult
from oni.bench.record import to_dict
from oni.bench.settings import Settings
from oni.bench.table import format_median, format_spread, show_case, show_heading, show_targets
from oni.bench.targets import BenchVerdict
from oni.bench.training_times import record_method, training_table
from oni.terminal import ascii_only, table

__all__ = ["forward_table", "record_model", "show_models"]

LEGEND = """\
ms        milliseconds, float32: median over rounds, quartiles; of a training step (zero_grad,
          forward, cross-entropy, backward, SGD), or of a forward pass in evaluation mode
x plain   its time relative to the plain network, within each round
adds      milliseconds beyond the plain network's step of the same round, median
share     that as a fraction of what the authors' form adds with the same number of steps, or T=5;
          for oni 0.9 and cholesky, of what oni T=5 adds; below 1, it adds less. Next to it, the
          interval that contains the share in 9 of 10 resamplings of the rounds
delta     how far all weights together are from orthogonal at the start
oni 0.9   sigma_min=0.9, start="orthogonal"; cholesky is initialised orthogonal too
authors   the paper's recurrence as its authors released it, for each layer separately, at each use"""


def show_models(
    results: Sequence[ModelResult], verdicts: Sequence[BenchVerdict], settings: Settings, terminal: Console
) -> None:
    """Print everything that was measured."""
    plain = ascii_only(terminal, plain=settings.plain)
    show_heading(settings, LEGEND, terminal)
    for result in results:
        show_case(result.name, result.about, result.entries, terminal)
        terminal.print(training_table(result, plain))
        if result.forward:
            terminal.print("\nForward only, evaluation mode, no_grad")
            terminal.print(forward_table(result, plain))
    show_targets(results, verdicts, plain, terminal)


def forward_table(result: ModelResult, ascii_only: bool = False) -> Table:
    """One row per network that is done with training."""
    rows = table(ascii_only)
    rows.add_column("contender", no_wrap=True)
    for title in ("ms", "quartiles", "x plain", "quartiles"):
        rows.add_column(title, justify="right", no_wrap=True)
    for name, entry in result.forward.items():
        seconds, ratio = entry.seconds, result.forward_ratio(name)
        rows.add_row(
            name,
            format_median(seconds, 1e3),
            format_spread(seconds, 1e3),
            "" if ratio is None else f"{ratio.median:.3f}",
            "" if ratio is None else f"{ratio.low:.3f}-{ratio.high:.3f}",
        )
    return rows


def record_model(result: ModelResult) -> dict[str, Any]:
    """The same in plain values."""
    return {
        "name": result.name,
        "about": result.about,
        "contenders": [record_method(name, result) for name in result.entries],
        "forward": [
            {
                "name": name,
                "rounds": len(entry.times),
                "milliseconds": to_dict(entry.seconds, 1e3),
                "times_plain": to_dict(result.forward_ratio(name)),
            }
            for name, entry in result.forward.items()
        ],
    }
