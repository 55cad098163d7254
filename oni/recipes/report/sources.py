"""What a report is made from: folders of experiments and of runs, read and checked before anything is drawn."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oni.names import unknown_name
from oni.recipes.charts.chart import Chart
from oni.recipes.experiments.experiment import HELD, Comparison, Experiment
from oni.recipes.experiments.record import RESULTS, RUNS, read_results
from oni.recipes.experiments.registry import load_all, paper_order

__all__ = ["RecordedExperiment", "RecordedRun", "read_sources"]

CONFIG = "config.json"
OF_A_RUN = ("metrics.json", "epochs.csv", "run.json")
DEEPEST = 2
REMEDY = "make one with: oni reproduce fig5 --preset smoke"
KINDS: dict[type, str] = {dict: "an object", list: "a list", str: "a text", bool: "true or false", float: "a number"}


@dataclass(frozen=True)
class RecordedExperiment:
    """A folder made by ``oni reproduce``."""

    folder: Path
    subject: Experiment
    record: dict[str, Any]
    comparison: Comparison
    charts: Sequence[Chart]

    @property
    def held(self) -> int:
        """How many claims held."""
        return sum(claim["verdict"] == HELD for claim in self.record["claims"])


@dataclass(frozen=True)
class RecordedRun:
    """A folder made by training, whether it ended or not."""

    name: str
    config: dict[str, Any]
    """Every key with its value; those of options as ``network_options.depth``."""
    status: str
    """"finished", "diverged" or "unfinished"."""
    epochs: list[dict[str, float | None]]
    """One row for each epoch."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    watched: dict[str, dict[int, dict[str, list[float | None]]]] = field(default_factory=dict)
    """By what was watched, then by step, then by layer or quantity."""
    sessions: list[dict[str, Any]] = field(default_factory=list)


def read_sources(sources: Sequence[Path]) -> tuple[list[RecordedExperiment], list[RecordedRun]]:
    """All experiments, in the paper's order, and all runs that the folders hold."""
    if not sources:
        raise ValueError(f"no folder given: pass one of an experiment, of a run, or one that holds such; {REMEDY}")
    folders: dict[Path, Path] = {}
    for source in sources:
        found = list(within(source))
        if not found:
            raise ValueError(
                f"{source}: neither {RESULTS} of an experiment nor {CONFIG} and one of {', '.join(OF_A_RUN)} of a run "
                f"in it or in folders up to {DEEPEST} below; {REMEDY}"
            )
        folders |= {folder.resolve(): folder for folder in found}
    experiments = [read_experiment(folder) for folder in folders.values() if (folder / RESULTS).is_file()]
    runs = [read_run(folder) for folder in folders.values() if not (folder / RESULTS).is_file()]
    return sorted(experiments, key=lambda one: paper_order(one.subject.id)), runs


def within(source: Path) -> Iterator[Path]:
    """The folders of experiments and runs: the source itself, or those below it."""
    if not source.exists():
        raise FileNotFoundError(f"{source}: there is no such folder; {REMEDY}")
    if not source.is_dir():
        raise ValueError(f"{source}: is a file, expected a folder; pass {source.parent}, or {REMEDY}")

    def look(folder: Path, depth: int) -> Iterator[Path]:
        a_run = (folder / CONFIG).is_file() and any((folder / name).is_file() for name in OF_A_RUN)
        if a_run or (folder / RESULTS).is_file():
            yield folder
        elif depth < DEEPEST:
            children = [child for child in sorted(folder.iterdir(), key=natural) if child.is_dir()]
            if any((child / RESULTS).is_file() for child in children):
                # What its experiments trained is in them already, beside runs that only chose a learning rate.
                children = [child for child in children if child.name != RUNS]
            for child in children:
                if not child.name.startswith("."):
                    yield from look(child, depth + 1)

    return look(source, 0)


def natural(path: Path) -> list[tuple[float, str]]:
    """An order in which lr0.5 comes before lr10."""
    parts = re.split(r"(\d+(?:\.\d+)?)", path.name)
    return [(float(part), "") if index % 2 else (-1.0, part) for index, part in enumerate(parts)]


def read_experiment(folder: Path) -> RecordedExperiment:
    path = folder / RESULTS
    record = expect(path, "it", read_json(path), dict)
    kinds: dict[str, type] = {
        "id": str,
        "preset": str,
        "machine": dict,
        "versions": dict,
        "command": str,
        "runs": list,
        "claims": list,
    }
    for name, kind in kinds.items():
        expect(path, f'"{name}"', record.get(name), kind)
    for claim in record["claims"]:
        expect(path, "each claim", claim, dict)
        for name in ("text", "verdict", "detail"):
            expect(path, f'"{name}" of each claim', claim.get(name), str)
    for run in record["runs"]:
        expect(path, "each run", run, dict)
        if sorted(run) != ["measured", "parameters"]:
            raise ValueError(f'{path}: each run must have "parameters" and "measured", got {sorted(run)}; {REMEDY}')
        expect(path, '"parameters" of each run', run["parameters"], dict)
        expect(path, '"measured" of each run', run["measured"], dict)
    known = load_all()
    id = record["id"]
    if id not in known:
        raise ValueError(f"{path}: {unknown_name('experiment', id, known)}")
    subject = known[id]
    try:
        results = read_results(subject, record)
        draw = getattr(subject, "charts", None)
        comparison = subject.table(results)
        charts = draw(results) if draw else []
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: its runs are not what {id} measures ({type(error).__name__}: {error}); "
            f"make it again with: oni reproduce {id}"
        ) from error
    return RecordedExperiment(folder, subject, record, comparison, charts)


def read_run(folder: Path) -> RecordedRun:
    config = flat(expect(folder / CONFIG, "it", read_json(folder / CONFIG), dict))
    status, epochs, metrics, watched = "unfinished", [], {}, {}
    if (folder / "metrics.json").is_file():
        path = folder / "metrics.json"
        record = expect(path, "it", read_json(path), dict)
        ended = expect(path, '"metrics"', record.get("metrics"), dict)
        status = expect(path, '"status"', ended.get("status"), str)
        metrics = numbers(path, {key: value for key, value in ended.items() if key != "status"})
        epochs = [
            numbers(path, expect(path, "each of epochs", row, dict))
            for row in expect(path, '"epochs"', record.get("epochs"), list)
        ]
        watched = read_watched(path, expect(path, '"watched"', record.get("watched"), dict))
    elif (folder / "epochs.csv").is_file():
        epochs = read_epochs(folder / "epochs.csv")
    sessions: list[dict[str, Any]] = []
    if (folder / "run.json").is_file():
        path = folder / "run.json"
        record = expect(path, "it", read_json(path), dict)
        sessions = [
            expect(path, "each of sessions", session, dict)
            for session in expect(path, '"sessions"', record.get("sessions"), list)
        ]
    return RecordedRun(folder.resolve().name, config, status, epochs, metrics, watched, sessions)


def read_json(path: Path) -> Any:
    def refused(word: str) -> None:
        raise ValueError(f"{word} is no number of JSON")

    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=refused)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({error}); delete it and {REMEDY}") from None


def read_epochs(path: Path) -> list[dict[str, float | None]]:
    """The rows of epochs.csv; an empty cell is ``None``."""
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines(), strict=True))
        return [{name: number(path, name, float(cell) if cell else None) for name, cell in row.items()} for row in rows]
    except (ValueError, TypeError, csv.Error) as error:
        raise ValueError(
            f"{path}: not the table of epochs that training writes ({error}); train the run again"
        ) from None


def read_watched(path: Path, watched: dict[str, Any]) -> dict[str, dict[int, dict[str, list[float | None]]]]:
    """Lists of numbers by step; what is recorded in another form is left out, as it can't be drawn."""
    found: dict[str, dict[int, dict[str, list[float | None]]]] = {}
    for name, steps in watched.items():
        for step, values in expect(path, f'"{name}" of "watched"', steps, dict).items():
            if not re.fullmatch(r"[0-9]{1,15}", step):
                raise ValueError(f'{path}: steps of "{name}" must be whole numbers, got {step!r}; {REMEDY}')
            if isinstance(values, dict) and all(isinstance(value, list) for value in values.values()):
                each = {key: [number(path, key, one) for one in value] for key, value in values.items()}
                found.setdefault(name, {})[int(step)] = each
    return found


def numbers(path: Path, row: dict[str, Any]) -> dict[str, float | None]:
    return {name: number(path, name, value) for name, value in row.items()}


def number(path: Path, name: str, value: Any) -> float | None:
    """A number, or ``None`` for one that is not there or not finite."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f'{path}: "{name}" must be a number or null, got {shown(value)}; {REMEDY}')
    return value if abs(value) < 1e300 else None


def expect(path: Path, what: str, value: Any, kind: type) -> Any:
    """The value, if it is of the kind."""
    if not isinstance(value, kind):
        raise ValueError(f"{path}: {what} must be {KINDS[kind]}, got {shown(value)}; {REMEDY}")
    return value


def shown(value: Any) -> str:
    """What was met, in a few words."""
    return "nothing" if value is None else repr(value)[:40]


def flat(config: dict[str, Any]) -> dict[str, Any]:
    """Options beside the rest.

    >>> flat({"seed": 0, "network_options": {"depth": 10}})
    {'seed': 0, 'network_options.depth': 10}
    """
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= {f"{key}.{option}": of for option, of in value.items()} if isinstance(value, dict) else {key: value}
    return found
