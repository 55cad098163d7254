"""What the tables of all benches share: the heading, the targets, and how numbers are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oni.bench.result import BenchResult, Timed
from oni.bench.settings import Settings
from oni.bench.targets import BenchTarget, BenchVerdict
from oni.machine import machine, versions
from oni.terminal import format_number, table
from oni.timing import Interval, Quartiles

__all__ = [
    "describe_verdict",
    "format_delta",
    "format_median",
    "format_spread",
    "show_case",
    "show_heading",
    "show_targets",
    "target_table",
]

WORDS = {True: ("reached", "green"), False: ("not reached", "red")}


def show_heading(settings: Settings, legend: str, terminal: Console) -> None:
    """Print what was measured on, and how to read the tables."""
    computer = machine(settings.device)
    terminal.print(
        f"{computer.get('gpu', computer['cpu'])}, {computer['cores']} cores, {computer['threads']} torch threads, "
        f"{computer['platform']}"
    )
    terminal.print(", ".join(f"{name} {version}" for name, version in versions().items()))
    terminal.print(f"\n{legend}")


def show_case(name: str, about: str, entries: Mapping[str, Timed], terminal: Console) -> None:
    """Print what a case is called, what it is, and how many rounds it had."""
    rounds = max((len(entry.times) for entry in entries.values()), default=0)
    terminal.print(Text.assemble("\n", (name, "bold"), f": {about}; {rounds} rounds"))


def show_targets(
    results: Sequence[BenchResult], verdicts: Sequence[BenchVerdict], ascii_only: bool, terminal: Console
) -> None:
    """Print the targets of the cases that were run."""
    terminal.print(Text("\nTargets", style="bold"))
    names = {result.name for result in results}
    judged = [verdict for verdict in verdicts if verdict.target.case in names]
    terminal.print(target_table(judged, ascii_only))
    if len(judged) < len(verdicts):
        terminal.print(f"Left out: {len(verdicts) - len(judged)} targets of cases that were not run.")


def target_table(verdicts: Sequence[BenchVerdict], ascii_only: bool = False) -> Table:
    """One row per target, in the order of the cases."""
    rows = table(ascii_only)
    rows.add_column("case", no_wrap=True)
    rows.add_column("quantity")
    rows.add_column("asked", justify="right")
    rows.add_column("measured", justify="right")
    rows.add_column("9 of 10", justify="right")
    rows.add_column("", no_wrap=True)
    for verdict in verdicts:
        word, style = describe_verdict(verdict)
        measured = "" if verdict.measured is None else format_number(verdict.measured.value)
        if verdict.is_lower_bound:
            measured = f"over {measured}"
        target = verdict.target
        spread = "" if verdict.is_lower_bound else format_spread(verdict.measured)
        rows.add_row(target.case, describe_target(target), describe_bound(target), measured, spread, word, style=style)
    return rows


def describe_verdict(verdict: BenchVerdict) -> tuple[str, str]:
    """A word for it, and the style to print that in."""
    if verdict.reached is None:
        return ("not measured" if verdict.measured is None else "undecided", "dim")
    return WORDS[verdict.reached]


def describe_target(target: BenchTarget) -> str:
    """What is divided by what."""
    return f"{target.quantity} of {target.contender} / {target.over}"


def describe_bound(target: BenchTarget) -> str:
    """What it must come to."""
    return f">= {target.at_least:.3g}" if target.at_least is not None else f"<= {target.at_most:.3g}"


def format_median(quartiles: Quartiles | None, unit: float = 1.0) -> str:
    """The middle, in some unit."""
    return "" if quartiles is None else format_number(unit * quartiles.median)


def format_spread(interval: Quartiles | Interval | None, unit: float = 1.0) -> str:
    """From the lower to the upper end."""
    return "" if interval is None else f"{format_number(unit * interval.low)}-{format_number(unit * interval.high)}"


def format_delta(delta: float) -> str:
    """A delta to two decimals, or its size.

    >>> format_delta(1.3449), format_delta(0.0), format_delta(3e-6)
    ('1.34', '0.00', '3e-06')
    """
    return f"{delta:.2f}" if delta == 0 or delta >= 0.005 else f"{delta:.0e}"
