"""The tables that ``oni bench matrices`` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oni.bench.matrices.result import CaseResult
from oni.bench.settings import Settings
from oni.bench.table import format_median, format_range, show_heading, show_targets
from oni.bench.targets import Verdict
from oni.terminal import ascii_only, format_number, table

__all__ = ["case_table", "faster_than_oni", "show"]

LEGEND = """\
ms      milliseconds of one forward and backward pass, float32: median over rounds, quartiles
x oni   its time over that of oni with as many steps, within each round: above 1, oni is faster.
        Other methods and oni tight are compared with oni T=5, oni minimax with as many Newton
        steps as certify the same smallest singular value
MiB     peak of the memory allocated on the way
x lit.  that over the literal form's with as many steps, or T=5
delta   distance from orthogonal, ||W W^T - I|| on the short side
limit   time of the bare matrix products over the time taken: 100% is as fast as they allow"""


def show(results: Sequence[CaseResult], verdicts: Sequence[Verdict], settings: Settings, terminal: Console) -> None:
    """Print everything that was measured."""
    plain = ascii_only(terminal, plain=settings.plain)
    show_heading(settings, LEGEND, terminal)
    for result in results:
        terminal.print(Text(f"\n{result.name}", style="bold"))
        terminal.print(case_table(result, plain))
        terminal.print(product_line(result))
    show_targets(results, verdicts, plain, terminal)
    faster = faster_than_oni(results)
    if faster:
        terminal.print(Text("\nWhere something else is faster", style="bold"))
        for line in faster:
            terminal.print(f"* {line}")


def case_table(result: CaseResult, ascii_only: bool = False) -> Table:
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
            format_range(seconds, 1e3),
            format_median(ratio),
            format_range(ratio),
            "" if entry.peak is None else format_number(entry.peak / 2**20),
            "" if memory is None else f"{memory:.2f}",
            Text(note(name, result)),
            style="bold" if entry.contender.products else None,
        )
    return rows


def note(name: str, result: CaseResult) -> str:
    """What a row says besides its numbers."""
    entry = result.entries[name]
    limit = result.nearness_to_limit(name)
    words = [
        entry.word,
        "" if entry.delta is None else f"delta {format_delta(entry.delta)}",
        "" if limit is None else f"limit {limit.median:.0%}",
    ]
    return ", ".join(filter(None, words))


def product_line(result: CaseResult) -> str:
    """The rates by which the limit was computed."""
    m, p = sorted(result.shape[-2:])
    parts = []
    for kind, long_side in (("short", m), ("long", p)):
        rate = result.product_rate(kind)
        if rate is not None:
            parts.append(f"{kind} ({m} x {m} x {long_side}) {format_median(rate, 1e-9)} GFLOP/s")
    rounds = max((len(times) for times in result.products.values()), default=0)
    return f"Bare products: {', '.join(parts) or 'not measured'}; {rounds} rounds."


def faster_than_oni(results: Sequence[CaseResult]) -> list[str]:
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


def format_delta(delta: float) -> str:
    """A delta to two decimals, or its size.

    >>> format_delta(1.3449), format_delta(0.0), format_delta(3e-6)
    ('1.34', '0.00', '3e-06')
    """
    return f"{delta:.2f}" if delta == 0 or delta >= 0.005 else f"{delta:.0e}"
