"""``oni reproduce``: run an experiment, write what was measured, say which claims held."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from oni.files import make_folder, read_json, write_atomically
from oni.names import unknown_name
from oni.recipes.experiments.experiment import Comparison, Experiment, Results, Run
from oni.recipes.experiments.listing import RESULTS_FOLDER
from oni.recipes.experiments.record import (
    RESULTS,
    RUNS,
    add_runs,
    find_machines,
    format_json,
    make_command,
    make_record,
)
from oni.recipes.experiments.registry import load_experiment
from oni.recipes.experiments.runs import Training
from oni.recipes.experiments.setting import Setting
from oni.recipes.experiments.table_formats import TABLE_FORMATS
from oni.recipes.experiments.texts import format_override
from oni.recipes.experiments.verdicts import Verdict
from oni.recipes.grid.jobs import Attempt, Job
from oni.recipes.grid.run_jobs import run_jobs
from oni.recipes.own import is_own
from oni.recipes.report.verdicts import KINDS
from oni.recipes.training.devices import is_first_process
from oni.terminal import ascii_only, console, table

__all__ = ["Request", "plan_runs", "reproduce"]

SIZES = ("smoke", "laptop", "full", "paper")
"""Presets, the smallest first."""


@dataclass(frozen=True)
class Request:
    """What ``oni reproduce`` is asked for."""

    id: str
    preset: str = "laptop"
    out: Path | None = None
    """The folder of all results; chosen by what is there otherwise."""
    seed: int = 0
    """The first seed."""
    seeds: int | None = None
    """How many, instead of the preset's."""
    only: str | None = None
    """A glob: measure only the runs that are so described, and put them into the ``results.json`` that is there."""
    dry_run: bool = False
    """List the runs and measure none."""
    finished: bool = False
    """Train nothing; write what the finished runs gave."""
    plain: bool = False
    """Print without colours, in ASCII."""
    json: bool = False
    """Print what was found as one JSON object, for programs."""
    table: str | None = None
    """Print the table alone, in this format."""


def reproduce(request: Request, setting: Setting | None = None) -> None:
    """Run, write ``out/id/results.json`` and the picture, print."""
    experiment = load_experiment(request.id)
    if request.table is not None and request.table not in TABLE_FORMATS:
        raise ValueError(unknown_name("table format", request.table, TABLE_FORMATS))
    if setting and not experiment.trains and (given := setting.given_options()):
        raise ValueError(f"{request.id} trains nothing, so {given[0]} has no effect; leave it out")
    if setting and not experiment.generates and (setting.inception or setting.classifier):
        raise ValueError(
            f"{request.id} measures no generated images, so --inception and --classifier have no effect; leave them out"
        )
    if request.finished and not experiment.trains:
        raise ValueError(f"{request.id} trains nothing, so --finished has no effect; leave it out")
    setting = setting or Setting((request.out or RESULTS_FOLDER) / RUNS)
    planned = plan_runs(experiment, request, setting)
    if request.dry_run:
        show_plan(experiment, planned, setting, console(plain=request.plain))
        return
    if request.finished and (setting.inception or setting.classifier):
        raise ValueError("--finished measures nothing, so --inception and --classifier have no effect; leave them out")
    if experiment.generates:
        setting.check_extractors()
    quiet = request.json or request.table is not None
    terminal = Console(quiet=True) if quiet else console(plain=request.plain)
    finished = collect_finished(experiment, planned, terminal, setting) if request.finished else None
    folder, _ = choose_folder(experiment, request)
    make_folder(folder)
    # Made before the work, so that a folder that can't be written to is noticed first.
    with TemporaryDirectory(dir=folder, prefix=".unfinished-") as unfinished:
        results = finished or measure_runs(experiment, planned, terminal, setting)
        if not is_first_process():
            return
        if request.only is not None:
            written = add_part(experiment, results, request, setting, folder, Path(unfinished))
            show_part(experiment, results, request, terminal, written)
            return
        record = make_record(
            experiment,
            results,
            preset=request.preset,
            seed=request.seed,
            seeds=request.seeds,
            overrides=setting.overrides,
            planned=planned,
            trained_on=find_machines(results, setting.runs),
        )
        # Again, as another process may have written there meanwhile.
        folder, notice = choose_folder(experiment, request)
        make_folder(folder)
        written = write_results(experiment, results, record, folder, Path(unfinished))
    if notice:
        print(f"oni: {notice}", file=sys.stderr)
    if request.json:
        fields = ("id", "preset", "overrides", "claims", "table")
        event = {"event": "result", **{name: record[name] for name in fields}, "written": list(map(str, written))}
        print(json.dumps(event))
    elif request.table:
        print(TABLE_FORMATS[request.table](experiment.table(results)), end="")
    else:
        show_results(experiment, results, record, terminal, plain=request.plain)
        terminal.out("\nWritten:", *written, sep="\n  ")
        if experiment.trains and request.id != "demo":
            terminal.out(f"\nNext: oni report {folder}")


def plan_runs(experiment: Experiment, request: Request, setting: Setting) -> list[Any]:
    """The parameters of every run that is asked for, with the overrides."""
    experiment.check_overrides(setting.overrides)
    sizes = {key: value for key, value in setting.overrides.items() if key in ("data", "samples", "epochs")}
    planned = experiment.planned(request.preset, request.seed, request.seeds, **sizes)
    if setting.overrides:
        planned = [parameters.override(setting.overrides) for parameters in planned]
    if request.only is None:
        return planned
    labels = [experiment.describe(parameters) for parameters in planned]
    chosen = [run for run, label in zip(planned, labels, strict=True) if is_chosen(label, request.only)]
    if not chosen:
        raise ValueError(
            f"--only {request.only!r} matches no run of {request.id}; its runs are named like {labels[0]!r}"
        )
    return chosen


def is_chosen(label: str, pattern: str) -> bool:
    """Whether a glob matches what a run is called, or what stands before the first comma, in any case.

    >>> [is_chosen("g2k1/oni, seed 0", pattern) for pattern in ("g2k1/oni", "*seed 0", "g2k1/on")]
    [True, True, False]
    """
    parts = (label.lower(), label.lower().partition(",")[0])
    return any(fnmatchcase(part, pattern.lower()) for part in parts)


def measure_runs(experiment: Experiment, planned: Sequence[Any], terminal: Console, setting: Setting) -> Results:
    """Every run; those that train nothing one after the other."""
    if experiment.trains:
        return train_runs(experiment, planned, setting)
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        return Results(experiment.run(parameters) for parameters in bar.track(planned, description=experiment.id))


def collect_finished(experiment: Experiment, planned: Sequence[Any], terminal: Console, setting: Setting) -> Results:
    """The runs that are finished."""
    from oni.recipes.experiments.dry_run import find_progress

    progress = find_progress(experiment, planned, setting)
    if not progress.results:
        raise ValueError(
            f"no finished run of {experiment.id} in {setting.runs} ({progress.estimate}); to train them, leave out "
            "--finished"
        )
    terminal.print(Text(f"{len(progress.results)} of {len(planned)} runs are finished; {progress.estimate}\n"))
    return progress.results


def train_runs(experiment: Experiment, planned: Sequence[Any], setting: Setting) -> Results:
    """Every run, trained by the engine that was asked for."""
    if setting.engine.name != "local":
        setting = setting.prepare_elsewhere({run.data for run in planned if hasattr(run, "data")})
    jobs = [
        Job(experiment.describe(run), partial(train_run, experiment.id, run, setting), estimate_step(run))
        for run in planned
    ]
    return Results(
        run_jobs(
            jobs,
            experiment.id,
            engine=setting.engine,
            progress=setting.progress,
            folder=setting.runs,
            accelerator=setting.hardware.accelerator,
            resumes=setting.resume,
        )
    )


def estimate_step(parameters: Any) -> float:
    """What a step of a run costs compared with those of others; nothing where nothing is trained."""
    from oni.recipes.experiments.run_costs import estimate_training

    if not isinstance(parameters, Training):
        return 0.0
    if is_own(parameters.config.network):
        return 1.0  # which may not be built just to be counted
    return estimate_training(parameters.config) / max(1, parameters.steps)


def train_run(id: str, parameters: Any, setting: Setting, attempt: Attempt) -> Run:
    """One run, in this process or in one that an engine started."""
    hardware, resume = attempt.place(setting.hardware), setting.resume or attempt.resume
    own = replace(setting, hardware=hardware, resume=resume, reporter=attempt.reporter)
    return load_experiment(id).run(parameters, own)


def choose_folder(experiment: Experiment, request: Request) -> tuple[Path, str]:
    """Where results go, and why not where others are.

    Unless a folder was given, results of a smaller preset replace none of a larger one.
    """
    folder = (request.out or RESULTS_FOLDER) / experiment.file_name
    present = read_preset(folder / RESULTS)
    if request.out is not None or present not in SIZES or request.preset not in SIZES:
        return folder, ""
    if SIZES.index(present) <= SIZES.index(request.preset):
        return folder, ""
    notice = f"{folder} has the preset {present} and is kept; pass --out {RESULTS_FOLDER} to replace it."
    return RESULTS_FOLDER.with_name(f"{RESULTS_FOLDER.name}-{request.preset}") / experiment.file_name, notice


def read_preset(path: Path) -> str | None:
    """Which preset a ``results.json`` holds, if it can be read."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        return str(read_json(path, remedy="measure it again")["preset"])
    return None


def add_part(
    experiment: Experiment, results: Results, request: Request, setting: Setting, folder: Path, unfinished: Path
) -> list[Path]:
    """Put the runs that ``--only`` chose into the ``results.json`` of the same command, if there is one."""
    if not (folder / RESULTS).exists():
        return []
    record = read_json(folder / RESULTS, remedy="delete it to measure again")
    if record["command"] != make_command(
        request.id, request.preset, request.seed, request.seeds, overrides=setting.overrides
    ):
        return []
    planned = plan_runs(experiment, replace(request, only=None), setting)
    merged, record = add_runs(experiment, record, results, planned, setting.runs)
    return write_results(experiment, merged, record, folder, unfinished)


def write_results(
    experiment: Experiment, results: Results, record: dict[str, Any], folder: Path, unfinished: Path
) -> list[Path]:
    """Write the pictures and ``results.json``, once all of them are whole."""
    from oni.style import drawing, save

    with drawing():
        pictures = save(
            experiment.picture(results), unfinished, experiment.file_name, photographs=experiment.photographs
        )
    written = [write_atomically(folder / picture.name, picture.read_bytes()) for picture in pictures]
    return [*written, write_atomically(folder / RESULTS, format_json(record))]


# What is printed.


def show_results(
    experiment: Experiment, results: Results, record: dict[str, Any], terminal: Console, *, plain: bool
) -> None:
    """Print the table and the verdicts."""
    ascii = ascii_only(terminal, plain=plain)

    def text(words: str, style: str = "") -> Text:
        return Text(words.replace("±", "+-") if ascii else words, style=style)

    overrides = "".join(f", {format_override(key, value)}" for key, value in record["overrides"].items())
    heading = f"{experiment.id}: {experiment.title} ({record['preset']}, {len(results)} runs{overrides})"
    terminal.print(text(heading, "bold"))
    terminal.print(Text(experiment.shows + "\n"))
    comparison = experiment.table(results)
    show_table(comparison, terminal, ascii=ascii)
    note = f"{comparison.note} Overridden: {overrides.removeprefix(', ')}." if overrides else comparison.note
    if note:
        terminal.print(text(note.strip(), "italic"))
    verdicts = Table.grid(padding=(0, 2, 0, 0))
    styles = {Verdict.HELD: "green", Verdict.NOT_HELD: "bold red"}
    for kind, words in KINDS.items():
        for index, claim in enumerate(claim for claim in record["claims"] if claim["kind"] == kind):
            if not index:
                verdicts.add_row("", text(f"\n{words[0].upper()}{words[1:]}", "bold"))
            verdict = Verdict(claim["verdict"])
            shown = "NOT held" if verdict is Verdict.NOT_HELD else verdict.value
            verdicts.add_row(text(shown, styles.get(verdict, "yellow")), text(f"{claim['text']}\n{claim['detail']}"))
    terminal.print(verdicts)


def show_table(comparison: Comparison, terminal: Console, *, ascii: bool) -> None:
    rows = table(ascii)
    for index, column in enumerate(comparison.columns):
        rows.add_column(
            column.replace("±", "+-") if ascii else column, justify="right" if index else "left", overflow="fold"
        )
    for row in comparison.rows:
        rows.add_row(*(Text(cell.replace("±", "+-") if ascii else cell) for cell in row))
    terminal.print(rows)


def show_part(
    experiment: Experiment, results: Results, request: Request, terminal: Console, written: Sequence[Path]
) -> None:
    """Print the numbers of the runs that ``--only`` chose."""

    def last_number(value: Any) -> Any:
        return value[-1] if isinstance(value, list) and value else value

    rows = []
    for run in results:
        numbers = {name: last_number(value) for name, value in run.measured.items()}
        numbers = {name: value for name, value in numbers.items() if isinstance(value, int | float | str)}
        folder = {"folder": numbers.pop("run")} if "run" in numbers else {}
        rows.append({"run": experiment.describe(run.parameters), **numbers, **folder})
    if request.json:
        event = {"event": "part", "id": experiment.id, "only": request.only, "runs": rows}
        print(json.dumps({**event, "written": list(map(str, written))}))
        return
    for row in rows:
        words = [
            f"{name} {value:.5g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
        ]
        terminal.print(Text(", ".join(words[1:] and [str(row["run"]), *words[1:]])))
    if written:
        terminal.out("\nPut into what was measured before:", *written, sep="\n  ")
    else:
        terminal.print(Text(f"\nThis is a part of {experiment.id}: {RESULTS} is written only without --only."))


def show_plan(experiment: Experiment, planned: Sequence[Any], setting: Setting, terminal: Console) -> None:
    """Print every run, whether it is finished, and how long the rest may take."""
    from oni.recipes.experiments.dry_run import find_progress

    progress = find_progress(experiment, planned, setting)
    for parameters, state in zip(planned, progress.states, strict=True):
        terminal.print(Text(f"{state:>9}  {experiment.describe(parameters)}"))
    finished = progress.states.count("finished")
    terminal.print(Text(f"\n{len(planned)} runs, {finished} finished; {progress.estimate}"))
    for line in experiment.demand(planned, setting) if experiment.demand else []:
        terminal.print(Text(line))
