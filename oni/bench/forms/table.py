"""What ``oni bench forms`` prints and records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oni.bench.forms.result import FormResult
from oni.bench.record import to_dict
from oni.bench.settings import Settings
from oni.bench.shape_result import describe_products, record_products
from oni.bench.table import format_delta, format_median, format_spread, show_heading, show_targets
from oni.bench.targets import BenchVerdict
from oni.terminal import ascii_only, format_number, table

__all__ = ["case_table", "faster_than_oni", "record_forms", "show_forms"]

LEGEND = """\
ms      milliseconds of one forward and backward pass, float32: median over rounds, quartiles
x oni   its time relative to oni with the same number of steps, within each round: above 1, oni is faster.
        oni tight is compared with oni T=5, oni minimax with as many Newton steps as certify the
        same smallest singular value
MiB     peak of the memory allocated during the call
x lit.  the same relative to the literal form with the same number of steps, or T=5
delta   distance from orthogonal, ||W W^T - I|| on the short side
limit   time of the bare matrix products relative to the total: 100% is the fastest possible"""


def show_forms(
    results: Sequence[FormResult], verdicts: Sequence[BenchVerdict], settings: Settings, terminal: Console
) -> None:
    """Print everything that was measured."""
    plain = ascii_only(terminal, plain=settings.plain)
    show_heading(settings, LEGEND, terminal)
    for result in results:
        terminal.print(Text(f"\n{result.name}", style="bold"))
        terminal.print(case_table(result, plain))
        terminal.print(describe_products(result))
    show_targets(results, verdicts, plain, terminal)
    faster = faster_than_oni(results)
    if faster:
        terminal.print(Text("\nWhere something else is faster", style="bold"))
        for line in faster:
            terminal.print(f"* {line}")


def case_table(result: FormResult, ascii_only: bool = False) -> Table:
    """One row per contender."""
    rows = table(ascii_only)
    rows.add_column("contender", no_wrap=True)
    for title in ("ms", "quartiles", "x oni", "quartiles", "MiB", "x lit."):
        rows.add_column(title, justify="right", no_wrap=True)
    rows.add_column("note")
    for name, entry in result.entries.items():
        seconds, ratio = entry.seconds, result.time_ratio(name, entry.contender.against)
        memory = result.memory_beside_literal(name)
        rows.add_row(
            name,
            format_median(seconds, 1e3),
            format_spread(seconds, 1e3),
            format_median(ratio),
            format_spread(ratio),
            "" if entry.peak is None else format_number(entry.peak / 2**20),
            "" if memory is None else f"{memory:.2f}",
            Text(note(name, result)),
            style="bold" if entry.contender.products else None,
        )
    return rows


def note(name: str, result: FormResult) -> str:
    """What a row says besides its numbers."""
    entry = result.entries[name]
    limit = result.nearness_to_limit(entry.contender.products, entry.times)
    words = [
        entry.word,
        "" if entry.delta is None else f"delta {format_delta(entry.delta)}",
        "" if limit is None else f"limit {limit.median:.0%}",
    ]
    return ", ".join(filter(None, words))


def faster_than_oni(results: Sequence[FormResult]) -> list[str]:
    """A sentence for every other method or form that took less time than oni."""
    lines = []
    for result in results:
        for name, entry in result.entries.items():
            against = entry.contender.against
            ratio = result.time_ratio(name, against)
            if entry.contender.products or ratio is None or ratio.median >= 1:
                continue
            doubt = " (within the spread)" if ratio.high >= 1 else ""
            deltas = [entry.delta, result.entries[against].delta]
            words = " against ".join(format_delta(delta) for delta in deltas if delta is not None)
            times = format_number(1 / ratio.median)
            line = f"{result.name}: {name} is {times} times as fast as {against}{doubt}"
            lines.append(f"{line}: delta {words}" if None not in deltas else line)
    return lines


def record_forms(result: FormResult) -> dict[str, Any]:
    """One shape and all who ran on it."""
    return {
        "name": result.name,
        "shape": list(result.shape),
        "products": record_products(result),
        "contenders": [record_form(name, result) for name in result.entries],
    }


def record_form(name: str, result: FormResult) -> dict[str, Any]:
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
        "nearness_to_limit": to_dict(result.nearness_to_limit(entry.contender.products, entry.times)),
    }
