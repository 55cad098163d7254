"""What ``oni bench models`` prints and records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oni.bench.models.result import ModelResult
from oni.bench.record import to_dict
from oni.bench.settings import Settings
from oni.bench.table import format_median, format_range, show_case, show_heading, show_targets
from oni.bench.targets import Verdict
from oni.terminal import ascii_only, format_number, table

__all__ = ["forward_table", "record_model", "show_models", "training_table"]

LEGEND = """\
ms        milliseconds, float32: median over rounds, quartiles; of a training step (zero_grad,
          forward, cross-entropy, backward, SGD), or of a forward pass in evaluation mode
x plain   its time over that of the plain network, within each round
adds      milliseconds beyond the plain network's step of the same round, median
share     that as a part of what the authors' form adds with as many steps, or T=5; below 1, it
          adds less. Beside it, where the share would lie 9 times of 10 if rounds were drawn anew
authors   the paper's recurrence as its authors released it, in every layer alone, at each use"""


def show_models(
    results: Sequence[ModelResult], verdicts: Sequence[Verdict], settings: Settings, terminal: Console
) -> None:
    """Print everything that was measured."""
    plain = ascii_only(terminal, plain=settings.plain)
    show_heading(settings, LEGEND, terminal)
    for result in results:
        show_case(result.name, result.about, result.entries, terminal)
        terminal.print(training_table(result, plain))
        if result.forward:
            terminal.print("\nForward alone, evaluation mode, no_grad")
            terminal.print(forward_table(result, plain))
    show_targets(results, verdicts, plain, terminal)


def training_table(result: ModelResult, ascii_only: bool = False) -> Table:
    """One row per method."""
    rows = table(ascii_only)
    rows.add_column("contender", no_wrap=True)
    for title in ("ms", "quartiles", "x plain", "adds", "share", "9 of 10"):
        rows.add_column(title, justify="right", no_wrap=True)
    rows.add_column("note")
    for name, entry in result.entries.items():
        seconds, ratio, added = entry.seconds, result.times_plain(name), result.added(name)
        share = result.share(name, entry.method.against)
        rows.add_row(
            name,
            format_median(seconds, 1e3),
            format_range(seconds, 1e3),
            format_median(ratio),
            format_median(added, 1e3),
            "" if share is None else format_number(share.value),
            format_range(share),
            Text(entry.word),
            style="bold" if entry.method.ours else None,
        )
    return rows


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
            format_range(seconds, 1e3),
            "" if ratio is None else f"{ratio.median:.3f}",
            "" if ratio is None else f"{ratio.low:.3f}-{ratio.high:.3f}",
        )
    return rows


def record_model(result: ModelResult) -> dict[str, Any]:
    """The same in plain values."""
    return {
        "name": result.name,
        "about": result.about,
        "contenders": [record_contender(name, result) for name in result.entries],
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


def record_contender(name: str, result: ModelResult) -> dict[str, Any]:
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
        "against": against or None,
        "share_of_addition": to_dict(result.share(name, against)),
    }
