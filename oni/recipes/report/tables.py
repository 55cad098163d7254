"""The tables of the report: columns, cells, and which columns are numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oni.recipes.report.charts import metric_names
from oni.recipes.report.labels import format_value
from oni.recipes.report.provenance import describe_provenance
from oni.recipes.report.sources import RecordedExperiment, RecordedRun
from oni.recipes.report.verdicts import count_verdicts

__all__ = ["Cell", "Table", "make_table", "overview_table", "run_table", "split_parameters"]

NUMERIC = re.compile(r"[-+±\d.,%e/ ]*|inf|nan|–|not yet measured")
STATUS_KINDS = {"finished": "good", "diverged": "bad"}
SETTINGS = {"method": "method", "network_options.depth": "depth", "learning_rate": "lr", "seed": "seed"}


@dataclass(frozen=True)
class Cell:
    """Text, which may be a link or have a badge."""

    text: str
    link: str = ""
    badge: str = ""
    kind: str = ""
    """Of the badge: "good", "bad", "mixed" or "neutral"."""


@dataclass(frozen=True)
class Table:
    """Cells under named columns."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numeric: Sequence[bool]
    """For each column, whether it is aligned as numbers are."""
    kind: str = ""
    """A class for the style sheet."""

    @property
    def shape(self) -> str:
        """How it is shown on a phone: a card for each row, or columns of numbers that scroll."""
        return "narrow" if len(self.columns) <= 3 else "wide" if self.numeric[0] else "stack"


def make_table(
    columns: Sequence[str], rows: Sequence[Sequence[str | Cell]], kind: str = "", numeric: Sequence[str] = ()
) -> Table:
    """A table; columns that hold nothing but numbers, and those in ``numeric``, are aligned as numbers."""
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]

    def is_numeric(index: int) -> bool:
        column = [row[index] for row in cells]
        plain = all(not cell.link and not cell.badge and NUMERIC.fullmatch(cell.text) for cell in column)
        return columns[index] in numeric or (plain and any(cell.text for cell in column))

    return Table(columns, cells, [is_numeric(index) for index in range(len(columns))], kind)


def overview_table(experiments: Sequence[RecordedExperiment], anchors: Sequence[str]) -> Table:
    """Every experiment in one row."""
    rows = []
    for experiment, anchor in zip(experiments, anchors, strict=True):
        verdicts = {claim["verdict"] for claim in experiment.claims}
        kind = "good" if verdicts == {"held"} else "neutral" if verdicts <= {"not tested"} else "mixed"
        rows.append(
            [
                Cell(experiment.subject.id, link=f"#{anchor}"),
                experiment.subject.title,
                experiment.record["preset"],
                Cell("", badge=count_verdicts(experiment.claims), kind=kind),
                describe_provenance(experiment.record),
            ]
        )
    columns = ["experiment", "title", "preset", "claims", "measured"]
    if not any(row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return make_table(columns, rows, "summary")


def run_table(runs: Sequence[RecordedRun], anchors: Sequence[str]) -> tuple[Table, str]:
    """Every run in one row, and a note on what the numbers are.

    The run with the lowest validation error is marked. Without validation none is: to choose by the test error would
    make that error meaningless.
    """
    metrics = [name for name in metric_names(runs) if not name.endswith("_loss")]
    settings = {key: word for key, word in SETTINGS.items() if any(key in run.config for run in runs)}
    best = best_run(runs)
    rows = []
    for index, (run, anchor) in enumerate(zip(runs, anchors, strict=True)):
        seconds = run.metrics.get("seconds")
        if seconds is None:
            seconds = sum(row.get("seconds") or 0.0 for row in run.rows)
        rows.append(
            [
                Cell(run.name, link=f"#{anchor}"),
                Cell("", badge=run.status, kind=STATUS_KINDS.get(run.status, "mixed")),
                *(format_value(run.config.get(key, "")) for key in settings),
                f"{len(run.rows)} / {format_value(run.config.get('epochs', '?'))}",
                *(
                    Cell(format_metric(name, run.final(name)), badge="best", kind="good")
                    if name == "validation_error" and index == best
                    else format_metric(name, run.final(name))
                    for name in metrics
                ),
                f"{seconds:.1f}",
            ]
        )
    titles = [name.replace("_", " ") + (" %" if name.endswith("_error") else "") for name in metrics]
    table = make_table(["run", "status", *settings.values(), "epochs", *titles, "seconds"], rows, "runs", titles)
    note = "Measured after the last epoch."
    if best is not None:
        note += " Best: the lowest validation error of the runs that finished."
    return table, note


def best_run(runs: Sequence[RecordedRun]) -> int | None:
    """The finished run with the lowest validation error; ``None`` if there are not two to choose from."""
    errors = {
        index: error
        for index, run in enumerate(runs)
        if run.status == "finished" and (error := run.final("validation_error")) is not None
    }
    return min(errors, key=lambda index: errors[index]) if len(errors) > 1 else None


def format_metric(name: str, value: float | None) -> str:
    """Errors in percent, other numbers with four digits."""
    if value is None:
        return "–"
    return f"{100 * value:.2f}" if name.endswith("_error") else f"{value:.4g}"


def split_parameters(parameters: Sequence[Mapping[str, Any]]) -> tuple[dict[str, str], Table | None]:
    """The parameters of all runs: those that are the same in every run, and a table of the others."""
    keys = list(dict.fromkeys(key for run in parameters for key in run))
    words = {key: [format_value(run[key]) if key in run else "" for run in parameters] for key in keys}
    same = {key: values[0] for key, values in words.items() if len(parameters) > 1 and len(set(values)) == 1}
    varied = [key for key in keys if key not in same]
    rows = [[str(index + 1), *(words[key][index] for key in varied)] for index in range(len(parameters))]
    return same, make_table(["run", *varied], rows, "long") if varied else None
