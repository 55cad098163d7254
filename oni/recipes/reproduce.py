"""``oni reproduce`` and ``oni list``: run an experiment, write what was measured, say which claims held."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from oni.machine import machine, versions
from oni.recipes.experiments.experiment import Experiment, Results, Run, experiment, registry
from oni.recipes.training.devices import is_first_process
from oni.recipes.training.run_folder import Busy
from oni.recipes.training.setting import Setting
from oni.style import drawing, save
from oni.terminal import console, table

__all__ = ["RESULTS", "RUNS", "recorded_runs", "reproduce", "show_list"]

RESULTS = "results.json"
RUNS = "runs"
"""The folder of training runs beside the experiments."""
POLL_SECONDS = 5.0
"""Between two looks at runs that another process is training."""


def reproduce(
    id: str,
    preset: str,
    out: Path,
    seed: int = 0,
    *,
    setting: Setting | None = None,
    plain: bool = False,
    as_json_only: bool = False,
) -> None:
    """Run, write ``out/id/results.json`` and the picture, print.

    Args:
        id: which experiment.
        preset: how much of it.
        out: the folder of all results.
        seed: the first seed.
        setting: for an experiment that trains: where, and on what.
        plain: print without colours, in ASCII.
        as_json_only: print what was found as one JSON object, for programs.
    """
    subject = experiment(id)
    planned = subject.planned(preset, seed)
    if setting and not subject.trains and (asked := setting.asked_for()):
        raise ValueError(f"{id} trains nothing, so {asked[0]} is of no use; leave it out")
    setting = setting or Setting(out / RUNS)
    folder = out / id
    folder.mkdir(parents=True, exist_ok=True)
    terminal = Console(quiet=True) if as_json_only else console(plain=plain)
    # Made before the work, so that a folder that can't be written to is told first; files move when all are whole.
    with TemporaryDirectory(dir=folder, prefix=".unfinished-") as unfinished:
        results = measured(subject, planned, terminal, setting)
        if not is_first_process():
            return
        claims = subject.judged(results)
        record = {
            "id": id,
            "preset": preset,
            "machine": machine(),
            "versions": versions(),
            "command": command(id, preset, seed, setting.changes),
            "runs": [run._asdict() for run in results],
            "paper": dict(subject.paper),
            "claims": claims,
        }
        path = Path(unfinished) / RESULTS
        path.write_text(as_json(record), encoding="utf-8")
        with drawing():
            pictures = save(subject.draw(results), Path(unfinished), id)
        for one in (*pictures, path):
            os.replace(one, folder / one.name)
    written = [folder / one.name for one in (*pictures, path)]
    if as_json_only:
        print(json.dumps({"event": "result", "id": id, "claims": claims, "written": [str(one) for one in written]}))
        return
    show(subject, preset, results, claims, terminal, ascii_only=plain or not terminal.encoding.startswith("utf"))
    terminal.out("\nWritten:", *written, sep="\n  ")
    if subject.trains and id in registry():
        terminal.out(f"\nNext: oni report {folder}")


def measured(subject: Experiment, planned: list[dict[str, Any]], terminal: Console, setting: Setting) -> Results:
    """Every run, one after the other."""
    if subject.trains:
        return trained_by_turns(subject, planned, setting)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        return Results(subject.run(parameters) for parameters in bar.track(planned, description=subject.id))


def trained_by_turns(subject: Experiment, planned: list[dict[str, Any]], setting: Setting) -> Results:
    """Every run; one that another process is training comes last, so that several processes share the work."""
    found: dict[int, Run] = {}
    turns, put_off = deque(enumerate(planned)), 0
    while turns:
        index, parameters = turns.popleft()
        if setting.progress in ("auto", "bar", "lines") and is_first_process() and not put_off:
            words = subject.describe(parameters) if subject.describe else str(parameters)
            print(f"{subject.id}, {len(found) + 1} of {len(planned)}: {words}", file=sys.stderr, flush=True)
        try:
            found[index], put_off = subject.run(parameters, setting), 0
        except Busy:
            turns.append((index, parameters))
            put_off += 1
            if put_off >= len(turns):
                time.sleep(POLL_SECONDS)
    return Results(found[index] for index in range(len(planned)))


def command(id: str, preset: str, seed: int, changes: Sequence[str] = ()) -> str:
    """The command that measures the same again."""
    words = ["oni", "reproduce", id, "--preset", preset]
    return shlex.join([*words, *(["--seed", str(seed)] if seed else []), *changes])


def as_json(record: dict[str, Any]) -> str:
    """JSON with one line for each key, and for each item of a list of objects."""

    def written(value: Any) -> str:
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return "[\n" + ",\n".join(f"  {json.dumps(item, allow_nan=False)}" for item in value) + "\n ]"
        return json.dumps(value, allow_nan=False)

    lines = (f" {json.dumps(key)}: {written(value)}" for key, value in record.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def recorded_runs(record: dict[str, Any]) -> Results:
    """The runs of a ``results.json``."""
    return Results(Run(**run) for run in record["runs"])


def show(
    subject: Experiment,
    preset: str,
    results: Results,
    claims: list[dict[str, Any]],
    terminal: Console,
    *,
    ascii_only: bool,
) -> None:
    """Print the table and the verdicts."""

    def text(words: str, style: str = "") -> Text:
        return Text(words.replace("±", "+-") if ascii_only else words, style=style)

    terminal.print(Text(f"{subject.id}: {subject.title} ({preset}, {len(results)} runs)", style="bold"))
    terminal.print(Text(subject.shows + "\n"))
    comparison = subject.table(results)
    rows = table(ascii_only)
    for index, column in enumerate(comparison.columns):
        rows.add_column(text(column), justify="right" if index else "left", overflow="fold")
    for row in comparison.rows:
        rows.add_row(*map(text, row))
    terminal.print(rows)
    if comparison.note:
        terminal.print(text(comparison.note, "italic"))
    verdicts = Table.grid(padding=(0, 2, 0, 0))
    for claim in claims:
        verdict = text("held", "green") if claim["held"] else text("NOT held", "bold red")
        verdicts.add_row(verdict, text(f"{claim['text']}\n{claim['detail']}"))
    terminal.print()
    terminal.print(verdicts)


def show_list(out: Path, *, plain: bool = False) -> None:
    """Print every experiment, its presets, and where its results are."""
    terminal = console(plain=plain)
    rows = table(plain or not terminal.encoding.startswith("utf"))
    for column in ("id", "title", "presets", "results"):
        rows.add_column(column, overflow="fold")
    for one in registry().values():
        path = out / one.id / RESULTS
        rows.add_row(one.id, Text(one.title), " ".join(one.presets), Text(str(path.parent) if path.exists() else "-"))
    terminal.print(rows)
    terminal.out("\nNext: oni reproduce fig2 --preset smoke")
