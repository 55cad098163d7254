"""Numbers, tables and verdicts out of the ``results.json`` of an experiment."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from oni.recipes.experiments.experiment import Cell, Comparison, Quantity
from oni.recipes.experiments.record import RESULTS, read_results
from oni.recipes.experiments.registry import load_experiment
from oni.recipes.experiments.table_formats import format_markdown
from oni.recipes.report.verdicts import count_by_kind, read_claim
from website.experiments import read_records

__all__ = ["MEASURED", "NOT_YET", "claims_text", "find_claim", "number", "read_record", "read_table"]


NOT_YET = "*Not yet measured: its runs are under way.*"


def read_record(results: Path, id: str) -> dict[str, Any]:
    """What is measured of an experiment."""
    record: dict[str, Any] = json.loads((results / id / RESULTS).read_text("utf-8"))
    return record


def read_table(results: Path, id: str) -> Comparison:
    """The table of an experiment."""
    experiment = load_experiment(id)
    return experiment.table(read_results(experiment, read_record(results, id)))


def number(results: Path, id: str, row: str, column: str, digits: int | None = None, spread: bool = True) -> str:
    """One cell of an experiment's table: of the row that begins with ``row``, its first cell or its first two."""
    comparison = read_table(results, id)
    rows = [cells for cells in comparison.cells if row in titles(cells)]
    if len(rows) != 1 or column not in comparison.columns:
        raise ValueError(
            f"{id} has no single cell {row!r}, {column!r}: rows {[str(c[0]) for c in comparison.cells]}, "
            f"columns {list(comparison.columns)}"
        )
    cell = rows[0][list(comparison.columns).index(column)]
    if isinstance(cell, Quantity):
        places = cell.digits if digits is None else digits
        return str(Quantity(cell.value, cell.spread if spread else None, places))
    return cell


def titles(cells: Sequence[Cell]) -> tuple[str, str]:
    """What a row can be called by: its first cell, or its first two."""
    return str(cells[0]), f"{cells[0]}, {cells[1]}"


def table(
    results: Path,
    id: str,
    rows: Sequence[str] = ("*",),
    columns: Sequence[str] | None = None,
    names: Mapping[str, str] | None = None,
    prefix: str = "",
) -> str:
    """A part of an experiment's table.

    Args:
        results: the folder.
        id: of the experiment.
        rows: glob patterns on the first cell, or on the first two with a comma.
        columns: which, in this order; all otherwise.
        names: other titles for columns and other words for first cells.
        prefix: what all first cells begin with, which is left out.
    """
    if not (results / id / RESULTS).exists():
        return NOT_YET
    comparison = read_table(results, id)
    chosen = list(columns or comparison.columns)
    places = [list(comparison.columns).index(column) for column in chosen]
    picked = [
        cells
        for pattern in rows
        for cells in comparison.cells
        if any(fnmatchcase(title, pattern) for title in titles(cells))
    ]
    if not picked and "missing" in read_record(results, id):
        return NOT_YET
    if not picked:
        raise ValueError(f"no row of {id} is like {list(rows)}: {[str(cells[0]) for cells in comparison.cells]}")
    words = names or {}
    picked = [[str(row[0]).removeprefix(prefix), *row[1:]] for row in picked]
    cells = [[words.get(str(row[place]), row[place]) for place in places] for row in picked]
    text = format_markdown(Comparison([words.get(column, column) for column in chosen], cells, note=" "))
    return text.rstrip()


def find_claim(results: Path, id: str, text: str) -> dict[str, Any]:
    """The claim of an experiment that begins so."""
    claims = [read_claim(claim) for claim in read_record(results, id)["claims"]]
    found = [claim for claim in claims if str(claim["text"]).startswith(text)]
    if len(found) != 1:
        raise ValueError(f"{id} has {len(found)} claims that begin with {text!r}: {[c['text'] for c in claims]}")
    return found[0]


def claims_text(results: Path, id: str, claim: str) -> str:
    """A claim's verdict and what was measured."""
    found = find_claim(results, id, claim)
    return f"{found['verdict']}: {found['detail']}"


def verdict_counts(results: Path) -> str:
    """How many claims of all experiments have each verdict, by kind."""
    claims = [read_claim(claim) for record in read_records(results).values() for claim in record["claims"]]
    return "; ".join(f"{words}: {count}" for words, count in count_by_kind(claims).items())


MEASURED: Mapping[str, Callable[..., str]] = {
    "number": number,
    "table": table,
    "claim": claims_text,
    "verdict-counts": verdict_counts,
}
