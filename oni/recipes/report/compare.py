"""``oni compare``: what differs between runs, or between results of one experiment, in configuration and in result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from oni.recipes.report.charts import metric_names
from oni.recipes.report.labels import differing_keys, format_value
from oni.recipes.report.provenance import describe_code
from oni.recipes.report.sources import RecordedExperiment, RecordedRun, read_sources
from oni.recipes.report.verdicts import show_verdict
from oni.terminal import ascii_only, console, printable, table

__all__ = ["compare"]

Rows = dict[str, list[Any]]
"""By key, one value for each of what is compared; ``None`` where it has none."""
NARROWEST_KEYS = 40
"""Columns that keys may take at least; in a wide terminal, half of it."""


def compare(sources: Sequence[Path], own: Sequence[str] = (), *, as_json: bool = False, plain: bool = False) -> None:
    """Print what differs.

    Args:
        sources: folders of runs, or of results of one experiment; or folders that hold such.
        own: experiments of the user's own, ``package.module:EXPERIMENT``, whose code may be imported.
        as_json: print one JSON object, for programs.
        plain: ASCII only, no colours.
    """
    experiments, runs = read_sources(sources, own)
    if experiments and runs:
        raise ValueError("can't compare runs with results of an experiment; pass folders of one kind")
    if len(experiments) + len(runs) < 2:
        raise ValueError(f"nothing to compare: {sources[0]} is a single {'run' if runs else 'experiment'}; pass two")
    if len(ids := sorted({experiment.subject.id for experiment in experiments})) > 1:
        raise ValueError(
            f"these are results of different experiments ({', '.join(ids)}); pass folders of the same experiment"
        )
    names = [run.name for run in runs] or name_experiments(experiments)
    configuration = compare_configs(runs) if runs else compare_settings(experiments)
    results = compare_metrics(runs) if runs else compare_tables(experiments)
    if as_json:
        kind = "runs" if runs else "experiments"
        print(json.dumps({kind: names, "configuration": configuration, "results": results}))
        return
    terminal = console(plain=plain)
    show(terminal, names, configuration, results, ascii=ascii_only(terminal, plain=plain), percent=bool(runs))


def name_experiments(experiments: Sequence[RecordedExperiment]) -> list[str]:
    """The folders; the same experiment lies in folders of the same name, so with what is above them."""
    return [str(experiment.folder) for experiment in experiments]


def compare_configs(runs: Sequence[RecordedRun]) -> Rows:
    configs = [run.config for run in runs]
    return {key: [config.get(key) for config in configs] for key in differing_keys(configs)}


def compare_metrics(runs: Sequence[RecordedRun]) -> Rows:
    """How the runs ended: what differs of status, epochs, metrics, time and code."""
    rows: Rows = {"status": [run.status for run in runs], "epochs done": [len(run.rows) for run in runs]}
    rows |= {name: [run.final(name) for run in runs] for name in metric_names(runs)}
    rows["seconds"] = [run.final("seconds") if run.status != "unfinished" else None for run in runs]
    last = [run.sessions[-1] if run.sessions else {} for run in runs]
    rows["code"] = [describe_code(str(session["code"])) if session.get("code") else None for session in last]
    rows["torch"] = [(session.get("versions") or {}).get("torch") for session in last]
    return only_different(rows)


def compare_settings(experiments: Sequence[RecordedExperiment]) -> Rows:
    """How the results came about."""
    records = [experiment.record for experiment in experiments]
    rows: Rows = {"preset": [record["preset"] for record in records]}
    overrides = [record.get("overrides") or {} for record in records]
    for key in dict.fromkeys(key for changes in overrides for key in changes):
        rows[f"override {key}"] = [changes.get(key) for changes in overrides]
    rows["runs"] = [len(record["runs"]) for record in records]
    rows["seeds"] = [record.get("seeds") for record in records]
    rows["date"] = [record.get("date") for record in records]
    rows["code"] = [describe_code(record["code"]) if record.get("code") else None for record in records]
    for part in ("machine", "versions"):
        for key in dict.fromkeys(key for record in records for key in record[part]):
            rows[key] = [record[part].get(key) for record in records]
    return only_different(rows)


def compare_tables(experiments: Sequence[RecordedExperiment]) -> Rows:
    """The cells of their tables, then the verdicts, that differ."""
    rows: Rows = {}

    def fill(index: int, key: str, value: str) -> None:
        rows.setdefault(key, [None] * len(experiments))[index] = value

    for index, experiment in enumerate(experiments):
        columns = experiment.comparison.columns
        for label, *cells in experiment.comparison.rows:
            for column, cell in zip(columns[1:], cells, strict=True):
                fill(index, f"{label}: {column}", cell)
    for index, experiment in enumerate(experiments):
        for claim in experiment.claims:
            fill(index, claim["text"], show_verdict(claim["verdict"]))
    return only_different(rows)


def only_different(rows: Rows) -> Rows:
    return {key: values for key, values in rows.items() if any(value != values[0] for value in values)}


def show(
    terminal: Console, names: Sequence[str], configuration: Rows, results: Rows, *, ascii: bool, percent: bool
) -> None:
    """Print the names under numbers, then both tables with a column for each number."""

    def clean(text: str) -> str:
        return printable(text.replace("±", "+-") if ascii else text, ascii_only=ascii)

    for number, name in enumerate(names, 1):
        terminal.print(Text(f"{number}  {clean(name)}"), overflow="fold")
    parts: Mapping[str, tuple[Rows, Callable[[str, Any], str]]] = {
        "Configuration": (configuration, lambda key, value: format_cell(value)),
        "Results": (results, format_result if percent else lambda key, value: format_cell(value)),
    }
    for title, (rows, write) in parts.items():
        terminal.print()
        terminal.print(Text(title if rows else f"{title}: no differences", style="bold"))
        if not rows:
            continue
        cells = {key: [clean(write(key, value)) for value in values] for key, values in rows.items()}
        headings = [str(number) for number in range(1, len(names) + 1)]
        if percent and rows is results and len(names) == 2:
            headings.append("2 - 1")
            for key, (first, second) in rows.items():
                cells[key].append(format_difference(key, first, second))
        for columns in fit_columns(cells, terminal.width):
            lines = table(ascii)
            lines.add_column("", overflow="fold", max_width=max(NARROWEST_KEYS, terminal.width // 2))
            for column in columns:
                lines.add_column(headings[column], justify="right", overflow="fold")
            for key, values in cells.items():
                lines.add_row(Text(clean(key)), *(Text(values[column]) for column in columns))
            terminal.print(lines)


def fit_columns(cells: Mapping[str, Sequence[str]], width: int) -> Iterator[list[int]]:
    """Groups of columns that fit beside the keys; a column that never fits alone is folded by the table."""
    widths = [max(map(len, column)) + 1 for column in zip(*cells.values(), strict=True)]
    room = width - min(max(map(len, cells)), max(NARROWEST_KEYS, width // 2)) - 1
    group: list[int] = []
    for column, wide in enumerate(widths):
        if group and sum(widths[other] for other in group) + wide > room:
            yield group
            group = []
        group.append(column)
    yield group


def format_cell(value: Any) -> str:
    return "-" if value is None else format_value(value)


def format_result(key: str, value: Any) -> str:
    """Errors of runs in percent, other numbers with four digits."""
    if isinstance(value, float):
        return f"{100 * value:.2f} %" if key.endswith("_error") else f"{value:#.4g}"
    return format_cell(value)


def format_difference(key: str, first: Any, second: Any) -> str:
    """How much more the second number is; empty if one is missing."""
    if isinstance(first, float) and isinstance(second, float):
        return f"{100 * (second - first):+.2f}" if key.endswith("_error") else f"{second - first:+#.4g}"
    return ""
