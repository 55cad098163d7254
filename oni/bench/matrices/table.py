"""The tables that ``oni bench`` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from oni.bench.matrices.result import CaseResult, Result
from oni.bench.record import machine, versions
from oni.bench.settings import Settings
from oni.bench.targets import Target, Verdict
from oni.timing import Interval, Quartiles

__all__ = [
    "case_table",
    "console",
    "number",
    "plain_lines",
    "show",
    "show_heading",
    "show_targets",
    "sooner_than_oni",
    "spread",
    "table",
    "target_table",
]

WIDTH = 100

LEGEND = """\
ms      milliseconds of one forward and backward pass, float32: median over rounds, quartiles
x oni   its time over that of oni with as many steps, within each round: above 1, oni is faster.
        Other methods and oni tight are compared with oni T=5, oni minimax with as many Newton
        steps as certify the same smallest singular value
MiB     peak of the memory allocated on the way
x lit.  that over the literal form's with as many steps, or T=5
delta   distance from orthogonal, ||W W^T - I|| on the short side
limit   time of the bare matrix products over the time taken: 100% is as fast as they allow"""


def console(*, plain: bool = False, stderr: bool = False) -> Console:
    """At no more than 100 columns; without colour codes if ``plain`` or not a terminal."""
    made = Console(
        stderr=stderr,
        highlight=False,
        emoji=False,
        color_system=None if plain else "auto",
        force_terminal=False if plain else None,
    )
    made.width = min(made.width, WIDTH) if made.is_terminal else WIDTH
    return made


def show(results: Sequence[CaseResult], verdicts: Sequence[Verdict], settings: Settings, terminal: Console) -> None:
    """Print everything that was measured."""
    ascii_only = plain_lines(settings, terminal)
    show_heading(settings, LEGEND, terminal)
    for result in results:
        terminal.print(f"\n[bold]{result.name}[/bold]")
        terminal.print(case_table(result, ascii_only))
        terminal.print(product_line(result))
    show_targets(results, verdicts, ascii_only, terminal)
    sooner = sooner_than_oni(results)
    if sooner:
        terminal.print("\n[bold]Where something else is faster[/bold]")
        for line in sooner:
            terminal.print(f"* {line}")


def plain_lines(settings: Settings, terminal: Console) -> bool:
    """Whether to keep to ASCII."""
    return settings.plain or not terminal.encoding.startswith("utf")


def show_heading(settings: Settings, legend: str, terminal: Console) -> None:
    """Print what was measured on, and how to read the tables."""
    about = machine(settings.device)
    terminal.print(
        f"{about.get('gpu', about['cpu'])}, {about['cores']} cores, {about['threads']} torch threads, "
        f"{about['platform']}"
    )
    terminal.print(", ".join(f"{name} {number}" for name, number in versions().items()))
    terminal.print(f"\n{legend}", markup=False)


def show_targets(results: Sequence[Result], verdicts: Sequence[Verdict], ascii_only: bool, terminal: Console) -> None:
    """Print the targets of the cases that were run."""
    terminal.print("\n[bold]What is asked of it[/bold]")
    run = {result.name for result in results}
    judged = [verdict for verdict in verdicts if verdict.target.case in run]
    terminal.print(target_table(judged, ascii_only))
    if len(judged) < len(verdicts):
        terminal.print(f"Left out: {len(verdicts) - len(judged)} targets of cases that were not run.")


def table(ascii_only: bool) -> Table:
    """An empty table in the house's style."""
    lines = None if ascii_only else box.SIMPLE_HEAD
    return Table(box=lines, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))


def case_table(result: CaseResult, ascii_only: bool = False) -> Table:
    """One row per contender."""
    rows = table(ascii_only)
    rows.add_column("contender", no_wrap=True)
    for title in ("ms", "quartiles", "x oni", "quartiles", "MiB", "x lit."):
        rows.add_column(title, justify="right", no_wrap=True)
    rows.add_column("note")
    for name, entry in result.entries.items():
        seconds, ratio = entry.seconds, result.time_ratio(name, entry.contender.against)
        rows.add_row(
            name,
            "" if seconds is None else number(1e3 * seconds.median),
            spread(seconds, 1e3),
            "" if ratio is None else number(ratio.median),
            spread(ratio),
            "" if entry.peak is None else number(entry.peak / 2**20),
            beside(result.memory_beside_literal(name)),
            note(name, result),
            style="bold" if entry.contender.products else None,
        )
    return rows


def note(name: str, result: CaseResult) -> str:
    entry = result.entries[name]
    near = result.nearness_to_limit(name)
    words = [
        entry.word,
        "" if entry.delta is None else f"delta {short(entry.delta)}",
        "" if near is None else f"limit {near.median:.0%}",
    ]
    return escape(", ".join(filter(None, words)))


def product_line(result: CaseResult) -> str:
    """The rates by which the limit was computed."""
    m, p = sorted(result.shape[-2:])
    parts = []
    for kind, long_side in (("short", m), ("long", p)):
        rate = result.product_rate(kind)
        if rate is not None:
            parts.append(f"{kind} ({m} x {m} x {long_side}) {number(rate.median / 1e9)} GFLOP/s")
    rounds = max((len(times) for times in result.products.values()), default=0)
    return f"Bare products: {', '.join(parts) or 'not measured'}; {rounds} rounds."


def target_table(verdicts: Sequence[Verdict], ascii_only: bool = False) -> Table:
    """One row per target, in the order of the cases."""
    rows = table(ascii_only)
    rows.add_column("case", no_wrap=True)
    rows.add_column("quantity")
    rows.add_column("asked", justify="right")
    rows.add_column("measured", justify="right")
    rows.add_column("", no_wrap=True)
    for verdict in verdicts:
        word, style = {True: ("reached", "green"), False: ("not reached", "red"), None: ("not measured", "dim")}[
            verdict.reached
        ]
        measured = "" if verdict.measured is None else number(verdict.measured)
        if verdict.is_lower_bound:
            measured = f"over {measured}"
        target = verdict.target
        rows.add_row(target.case, sentence(target), asked(target), measured, word, style=style)
    return rows


def sentence(target: Target) -> str:
    of = target.names[0] if len(target.names) == 1 else f"the fastest of {', '.join(target.names)}"
    return f"{target.quantity} of {of} / {target.over}"


def asked(target: Target) -> str:
    return f">= {target.at_least:.3g}" if target.at_least is not None else f"<= {target.at_most:.3g}"


def sooner_than_oni(results: Sequence[CaseResult]) -> list[str]:
    """A sentence for every other method or form that took less time than oni."""
    lines = []
    for result in results:
        for name, entry in result.entries.items():
            against = entry.contender.against
            ratio = result.time_ratio(name, against)
            if entry.contender.products or ratio is None or ratio.median >= 1:
                continue
            ours = result.entries[against].delta
            deltas = (
                "" if ours is None or entry.delta is None else f": delta {short(entry.delta)} against {short(ours)}"
            )
            doubt = " (within the spread)" if ratio.high >= 1 else ""
            times = number(1 / ratio.median)
            lines.append(f"{result.name}: {name} is {times} times as fast as {against}{doubt}{deltas}")
    return lines


def spread(of: Quartiles | Interval | None, unit: float = 1.0) -> str:
    """From its lower to its upper end."""
    return "" if of is None else f"{number(unit * of.low)}-{number(unit * of.high)}"


def beside(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def number(value: float) -> str:
    """Three digits.

    >>> number(0.01234), number(1.234), number(12.34), number(123.4), number(1234.5), number(-12.34)
    ('0.012', '1.23', '12.3', '123', '1234', '-12.3')
    """
    if value < 0:
        return f"-{number(-value)}"
    if value < 1:
        return f"{value:.2g}" if value < 0.1 else f"{value:.2f}"
    return f"{value:.{max(0, 2 - (value >= 10) - (value >= 100))}f}"


def short(delta: float) -> str:
    """A delta to two decimals, or its size.

    >>> short(1.3449), short(0.0), short(3e-6)
    ('1.34', '0.00', '3e-06')
    """
    return f"{delta:.2f}" if delta == 0 or delta >= 0.005 else f"{delta:.0e}"
