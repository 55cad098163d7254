"""What ``oni bench matrices`` prints and records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oni.bench.contender import Reached
from oni.bench.matrices.result import ASKED, FASTEST_OTHER, MatrixResult
from oni.bench.record import to_dict
from oni.bench.settings import Settings
from oni.bench.shape_result import ContenderTimes, describe_products, record_products
from oni.bench.table import describe_verdict, format_delta, format_median, format_spread, show_heading
from oni.bench.targets import BenchVerdict
from oni.terminal import ascii_only, format_number, table

__all__ = ["asked_table", "matrix_table", "record_matrix", "show_matrices"]

ONI_FIVE = "oni T=5"
LEGEND = """\
ms        milliseconds of one forward and backward pass, float32: median over rounds, quartiles
x 0.9     its time relative to the fastest that has every singular value within 0.1 of 1,
x 0.99    within 0.01,
x exact   or within 1e-5; - means not reached
smallest  its smallest singular value; delta: its distance from orthogonal, ||W W^T - I|| on the
          short side
MiB       peak of the memory allocated during the call
polar     keeps the singular vectors of Z, so leads to the orthogonal matrix closest to Z
partial   can stop on the way
limit     time of the bare matrix products relative to the total: 100% is the fastest possible
oni 0.9   with the bound, the schedule and the steps that sigma_min=0.9 chooses"""


def show_matrices(
    results: Sequence[MatrixResult], verdicts: Sequence[BenchVerdict], settings: Settings, terminal: Console
) -> None:
    """Print everyone on every case, then for each that is asked ``oni`` beside the fastest other."""
    plain = ascii_only(terminal, plain=settings.plain)
    show_heading(settings, LEGEND, terminal)
    for result in results:
        terminal.print(Text.assemble("\n", (result.name, "bold"), f": {result.about}"))
        terminal.print(matrix_table(result, plain))
        terminal.print(describe_products(result))
    for asked in ASKED:
        terminal.print(
            Text(f"\nLevel {asked}: oni compared with the fastest other method that reaches it", style="bold")
        )
        terminal.print(asked_table(asked, results, verdicts, plain))
    left_out = len(verdicts) - len(select_verdicts(results, verdicts))
    if left_out:
        terminal.print(f"Left out: {left_out} targets of cases that were not run.")


def select_verdicts(results: Sequence[MatrixResult], verdicts: Sequence[BenchVerdict]) -> list[BenchVerdict]:
    """The verdicts on cases that were run."""
    names = {result.name for result in results}
    return [verdict for verdict in verdicts if verdict.target.case in names]


def matrix_table(result: MatrixResult, ascii_only: bool = False) -> Table:
    """One row per contender."""
    rows = table(ascii_only)
    rows.add_column("contender", no_wrap=True)
    for title in ("ms", "quartiles", *(f"x {asked}" for asked in ASKED), "smallest", "delta", "MiB"):
        rows.add_column(title, justify="right", no_wrap=True)
    rows.add_column("note")
    for name, entry in result.entries.items():
        rows.add_row(
            name,
            format_median(entry.seconds, 1e3),
            format_spread(entry.seconds, 1e3),
            *(format_times_fastest(result, name, asked) for asked in ASKED),
            format_smallest(entry.orthogonality),
            "" if entry.delta is None else format_delta(entry.delta),
            "" if entry.peak is None else format_number(entry.peak / 2**20),
            Text(describe_contender(result, entry)),
            style="bold" if entry.contender.products else None,
        )
    return rows


def format_times_fastest(result: MatrixResult, name: str, asked: str) -> str:
    """The ratio, or a dash where what is asked is not reached."""
    if result.entries[name].orthogonality is None:
        return ""
    return format_median(result.times_fastest(name, asked)) if asked in result.reaches(name) else "-"


def format_smallest(orthogonality: Reached | None) -> str:
    """A smallest singular value, or how far it is from 1 where it is close.

    >>> format_smallest(Reached(0.90123, 1.0, 1.0)), format_smallest(Reached(1 - 2.4e-6, 1.0, 1e-5))
    ('0.901', '1-2e-06')
    """
    if orthogonality is None:
        return ""
    smallest = orthogonality.smallest
    return f"{smallest:.3f}" if smallest < 0.9985 else f"1-{max(0.0, 1 - smallest):.0e}"


def describe_contender(result: MatrixResult, entry: ContenderTimes) -> str:
    """What a row says besides its numbers."""
    limit = result.nearness_to_limit(entry.contender.products, entry.times)
    words = [
        entry.word,
        "" if entry.word else str(entry.contender.gives or ""),
        entry.contender.remark,
        "" if limit is None else f"limit {limit.median:.0%}",
    ]
    return "; ".join(filter(None, words))


def asked_table(
    asked: str, results: Sequence[MatrixResult], verdicts: Sequence[BenchVerdict], ascii_only: bool = False
) -> Table:
    """One row per case: oni, the fastest other that reaches what is asked, and five steps."""
    by_case = {verdict.target.case: verdict for verdict in verdicts if verdict.target.contender == f"oni {asked}"}
    rows = table(ascii_only)
    rows.add_column("case", no_wrap=True)
    rows.add_column("oni ms", justify="right", no_wrap=True)
    rows.add_column("fastest other", no_wrap=True)
    for title in ("ms", "oni / other", "9 of 10"):
        rows.add_column(title, justify="right", no_wrap=True)
    rows.add_column("target", no_wrap=True)
    rows.add_column(ONI_FIVE)
    for result in results:
        name, other = f"oni {asked}", result.fastest(asked, but_oni=True)
        ratio = result.measured("time", name, FASTEST_OTHER + asked)
        verdict = by_case.get(result.name)
        word, style = ("no target", "") if verdict is None else describe_verdict(verdict)
        rows.add_row(
            result.name,
            format_median(result.entries[name].seconds, 1e3) if name in result.entries else "",
            other or "",
            format_median(result.entries[other].seconds, 1e3) if other else "",
            "" if ratio is None else format_number(ratio.value),
            format_spread(ratio),
            word,
            describe_five_steps(result, asked),
            style=style,
        )
    return rows


def describe_five_steps(result: MatrixResult, asked: str) -> str:
    """The time of the paper's five steps, and their delta where they do not reach what is asked."""
    entry = result.entries.get(ONI_FIVE)
    if entry is None or entry.seconds is None or entry.delta is None:
        return ""
    short = "" if asked in result.reaches(ONI_FIVE) else f", not reached: delta {format_delta(entry.delta)}"
    return f"{format_median(entry.seconds, 1e3)} ms{short}"


def record_matrix(result: MatrixResult) -> dict[str, Any]:
    """A shape and a spectrum in plain values."""
    return {
        "name": result.name,
        "about": result.about,
        "shape": list(result.shape),
        "spectrum": result.spectrum,
        "products": record_products(result),
        "contenders": [record_contender(name, result) for name in result.entries],
        "asked": {asked: record_asked(asked, result) for asked in ASKED},
    }


def record_contender(name: str, result: MatrixResult) -> dict[str, Any]:
    """One row of the table."""
    entry = result.entries[name]
    contender, orthogonality = entry.contender, entry.orthogonality
    return {
        "name": name,
        "choice": contender.remark or None,
        "gives": contender.gives and contender.gives._asdict(),
        "note": entry.word or None,
        "rounds": len(entry.times),
        "milliseconds": to_dict(entry.seconds, 1e3),
        "smallest": orthogonality and orthogonality.smallest,
        "largest": orthogonality and orthogonality.largest,
        "delta": orthogonality and orthogonality.delta,
        "reaches": result.reaches(name),
        "times_fastest": {asked: to_dict(result.times_fastest(name, asked)) for asked in ASKED},
        "peak_bytes": entry.peak,
        "products": contender.products and contender.products._asdict(),
        "nearness_to_limit": to_dict(result.nearness_to_limit(contender.products, entry.times)),
    }


def record_asked(asked: str, result: MatrixResult) -> dict[str, Any]:
    """Who is fastest at what is asked."""
    return {
        "sigma_min": ASKED[asked],
        "fastest": result.fastest(asked),
        "fastest_other": result.fastest(asked, but_oni=True),
        "oni_over_fastest_other": to_dict(result.measured("time", f"oni {asked}", FASTEST_OTHER + asked)),
    }
