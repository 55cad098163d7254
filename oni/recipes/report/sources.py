"""What a report is made from: the folders of experiments and runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oni.names import unknown_name
from oni.recipes.charts.chart import Chart
from oni.recipes.experiments.experiment import Comparison, Experiment
from oni.recipes.experiments.record import RESULTS, RUNS, read_results
from oni.recipes.experiments.registry import MODULES, PAPER, load_experiment, paper_order
from oni.recipes.own import is_own
from oni.recipes.report.checks import (
    REMEDY,
    check_format,
    check_type,
    read_epochs,
    read_json,
    read_numbers,
    read_watched,
)
from oni.recipes.report.verdicts import KINDS, VERDICTS, read_claim
from oni.recipes.run_files.recorded import TrainingRecord

__all__ = ["RecordedExperiment", "RecordedRun", "read_sources"]

CONFIG = "config.json"
RUN_FILES = ("metrics.json", "epochs.csv", "run.json")
SAMPLES = "samples"
PNG = b"\x89PNG\r\n\x1a\n"
LARGEST_SHEET = 4 << 20
DEEPEST = 2
"""How many folders below a source are searched."""
EXPERIMENT_KEYS: dict[str, type] = {
    "id": str,
    "preset": str,
    "machine": dict,
    "versions": dict,
    "command": str,
    "runs": list,
    "claims": list,
}
OPTIONAL_KEYS: dict[str, type] = {"overrides": dict, "date": str, "code": str}


@dataclass(frozen=True)
class RecordedExperiment:
    """A folder made by ``oni reproduce``."""

    folder: Path
    subject: Experiment
    record: dict[str, Any]
    claims: Sequence[dict[str, str]]
    """Each with its kind, text, verdict and detail."""
    comparison: Comparison
    charts: Sequence[Chart]
    of_paper: bool
    """Whether it is the paper's, or one of our own."""
    images: Mapping[str, bytes] = field(default_factory=dict)
    """PNG files by their captions."""


@dataclass(frozen=True)
class RecordedRun:
    """A folder made by training, whether the run ended or not."""

    name: str
    config: dict[str, Any]
    """Every key with its value; options as ``network_options.depth``."""
    status: str
    """"finished", "diverged" or "unfinished"."""
    rows: list[dict[str, float | None]]
    """One for each epoch."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    watched: dict[str, dict[int, dict[str, list[float | None]]]] = field(default_factory=dict)
    """By what was watched, then by step, then by layer or quantity."""
    sessions: list[dict[str, Any]] = field(default_factory=list)
    sheet: bytes = b""
    """The newest sheet of generated images, a PNG; empty if there is none."""

    @property
    def record(self) -> TrainingRecord:
        """The curves, in the form that charts are built from."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        metrics = {name: [row.get(name) for row in self.rows] for name in names}
        planned = self.config.get("epochs")
        ended = self.status == "diverged" and isinstance(planned, int)
        return TrainingRecord(metrics, planned if ended else len(self.rows), self.watched)  # type: ignore[arg-type]

    def final(self, metric: str) -> float | None:
        """A number at the end of the run, or so far."""
        if self.status == "unfinished":
            return self.rows[-1].get(metric) if self.rows else None
        return self.metrics.get(metric)


def read_sources(
    sources: Sequence[Path], own: Sequence[str] = ()
) -> tuple[list[RecordedExperiment], list[RecordedRun]]:
    """All experiments, in the paper's order, and all runs that the folders hold.

    Args:
        sources: folders of experiments or runs, or folders that hold such.
        own: experiments of the user's own, ``package.module:EXPERIMENT``, whose code may be imported.
    """
    if not sources:
        raise ValueError(
            f"no folder given: pass the folder of an experiment or run, or one that contains these; {REMEDY}"
        )
    folders: dict[Path, Path] = {}
    for source in sources:
        inside = list(find_folders(source))
        if not inside:
            raise ValueError(
                f"{source}: has no experiment ({RESULTS}) and no run ({CONFIG} and one of {', '.join(RUN_FILES)}), "
                f"up to {DEEPEST} folders deep; {REMEDY}"
            )
        folders |= {folder.resolve(): folder for folder in inside}
    experiments = [read_experiment(folder, own) for folder in folders.values() if (folder / RESULTS).is_file()]
    runs = [read_run(folder) for folder in folders.values() if not (folder / RESULTS).is_file()]
    return sorted(experiments, key=lambda experiment: paper_order(experiment.subject.id)), runs


def find_folders(source: Path) -> Iterator[Path]:
    """The folders of experiments and runs: the source itself, or those below it."""
    if not source.exists():
        raise FileNotFoundError(f"{source}: no such folder; {REMEDY}")
    if not source.is_dir():
        raise ValueError(f"{source}: is a file, expected a folder; pass {source.parent}, or {REMEDY}")

    def search(folder: Path, depth: int) -> Iterator[Path]:
        is_run = (folder / CONFIG).is_file() and any((folder / name).is_file() for name in RUN_FILES)
        if is_run or (folder / RESULTS).is_file():
            yield folder
        elif depth < DEEPEST:
            children = [child for child in sorted(folder.iterdir(), key=natural_order) if child.is_dir()]
            if any((child / RESULTS).is_file() for child in children):
                # The results hold these runs already, without those that only chose a learning rate.
                children = [child for child in children if child.name != RUNS]
            for child in children:
                if not child.name.startswith("."):
                    yield from search(child, depth + 1)

    return search(source, 0)


def natural_order(path: Path) -> list[tuple[float, str]]:
    """A key to sort by, in which lr0.5 comes before lr10."""
    parts = re.split(r"(\d+(?:\.\d+)?)", path.name)
    return [(float(part), "") if index % 2 else (-1.0, part) for index, part in enumerate(parts)]


def read_experiment(folder: Path, own: Sequence[str] = ()) -> RecordedExperiment:
    path = folder / RESULTS
    record = check_type(path, "it", read_json(path), dict)
    for name, kind in EXPERIMENT_KEYS.items():
        check_type(path, f'"{name}"', record.get(name), kind)
    for name, kind in OPTIONAL_KEYS.items():
        if record.get(name) is not None:
            check_type(path, f'"{name}"', record[name], kind)
    claims = [read_claim(check_type(path, "each claim", claim, dict)) for claim in record["claims"]]
    for claim in claims:
        for name, value in claim.items():
            check_type(path, f'"{name}" of each claim', value, str)
        for name, choices in (("verdict", VERDICTS), ("kind", list(KINDS))):
            if claim[name] not in choices:
                raise ValueError(f"{path}: {unknown_name(name, claim[name], choices)}; {REMEDY}")
    for run in record["runs"]:
        check_type(path, "each run", run, dict)
        if sorted(run) != ["measured", "parameters"]:
            raise ValueError(f'{path}: each run must have "parameters" and "measured", got {sorted(run)}; {REMEDY}')
        for name, value in run.items():
            check_type(path, f'"{name}" of each run', value, dict)
    subject = find_subject(path, record["id"], own)
    id = subject.id
    try:
        results = read_results(subject, record)
        comparison = subject.table(results)
        charts = subject.charts(results) if subject.charts else []
        images = subject.images(results) if subject.images else {}
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: its runs do not match the experiment {id} ({type(error).__name__}: {error}); "
            f"run it again with: oni reproduce {id}"
        ) from error
    drawn = [chart for chart in charts if chart.series]
    return RecordedExperiment(folder, subject, record, claims, comparison, drawn, id in PAPER, images)


def find_subject(path: Path, id: str, own: Sequence[str]) -> Experiment:
    """The experiment that results are of. The user's own code is imported if the user names it, not if a file does."""
    if is_own(id) and id not in own:
        raise ValueError(
            f"{path}: belongs to your own experiment, whose code is imported only if you name it; if you trust {id}, "
            f"add --experiment {id}"
        )
    if not is_own(id) and id not in MODULES:
        raise ValueError(f"{path}: {unknown_name('experiment', id, MODULES)}")
    return load_experiment(id)


def read_run(folder: Path) -> RecordedRun:
    config = flatten(check_type(folder / CONFIG, "it", read_json(folder / CONFIG), dict))
    status, rows, metrics, watched = "unfinished", [], {}, {}
    if (folder / "metrics.json").is_file():
        path = folder / "metrics.json"
        record = check_format(path, check_type(path, "it", read_json(path), dict))
        final = check_type(path, '"metrics"', record.get("metrics"), dict)
        status = check_type(path, '"status"', final.get("status"), str)
        metrics = read_numbers(path, {key: value for key, value in final.items() if key != "status"})
        rows = [
            read_numbers(path, check_type(path, "each of epochs", row, dict))
            for row in check_type(path, '"epochs"', record.get("epochs"), list)
        ]
        watched = read_watched(path, check_type(path, '"watched"', record.get("watched"), dict))
    elif (folder / "epochs.csv").is_file():
        rows = read_epochs(folder / "epochs.csv")
    sessions: list[dict[str, Any]] = []
    if (folder / "run.json").is_file():
        path = folder / "run.json"
        record = check_format(path, check_type(path, "it", read_json(path), dict))
        sessions = [
            check_type(path, "each of sessions", session, dict)
            for session in check_type(path, '"sessions"', record.get("sessions"), list)
        ]
    sheet = read_sheet(folder / SAMPLES)
    return RecordedRun(folder.resolve().name, config, status, rows, metrics, watched, sessions, sheet)


def read_sheet(folder: Path) -> bytes:
    """The newest sheet of generated images; empty if there is none that is a PNG of a reasonable size."""
    sheets = sorted(folder.glob("update-*.png"))
    if not sheets or sheets[-1].stat().st_size > LARGEST_SHEET:
        return b""
    content = sheets[-1].read_bytes()
    return content if content.startswith(PNG) else b""


def flatten(config: dict[str, Any]) -> dict[str, Any]:
    """Options beside the other keys.

    >>> flatten({"seed": 0, "network_options": {"depth": 10}})
    {'seed': 0, 'network_options.depth': 10}
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= {f"{key}.{name}": option for name, option in value.items()} if isinstance(value, dict) else {key: value}
    return flat
