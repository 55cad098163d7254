"""One run of ``oni bench``: choose the cases, measure with progress shown, report, also when interrupted."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Generic, Protocol, TypeVar

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from oni.bench import choices, images, overhead
from oni.bench.forms import cases as forms
from oni.bench.forms.result import FormResult
from oni.bench.forms.table import record_forms, show_forms
from oni.bench.matrices import cases as matrices
from oni.bench.matrices.result import MatrixResult
from oni.bench.matrices.table import record_matrix, show_matrices
from oni.bench.models import cases as models
from oni.bench.models.result import ModelResult
from oni.bench.models.table import record_model, show_models
from oni.bench.processes import cases as processes
from oni.bench.processes.table import record_processes, show_processes
from oni.bench.record import record_run
from oni.bench.result import BenchResult
from oni.bench.settings import SEED, Settings
from oni.bench.targets import (
    FORM_TARGETS,
    MATRIX_TARGETS,
    MODEL_TARGETS,
    PROCESSES_TARGETS,
    BenchTarget,
    BenchVerdict,
    judge_targets,
)
from oni.files import check_writable, write_atomically
from oni.machine import keep_freed_memory, torch_threads
from oni.names import unknown_name
from oni.terminal import console
from oni.timing import Watch

__all__ = ["SUBJECTS", "Subject", "run"]

INTERRUPTED = 130
DISAGREEMENT = 1


class Named(Protocol):
    """What is asked of a case here."""

    @property
    def name(self) -> str: ...
    @property
    def quick(self) -> bool: ...


C = TypeVar("C", bound=Named)
R = TypeVar("R", bound=BenchResult)


@dataclass(frozen=True)
class Subject(Generic[C, R]):
    """What can be measured."""

    cases: Callable[[], Sequence[C]]
    begin: Callable[[C], R]
    """The empty result of a case."""
    measure: Callable[[C, R, Settings, Watch], None]
    targets: Sequence[BenchTarget]
    show: Callable[[Sequence[R], Sequence[BenchVerdict], Settings, Console], None]
    record: Callable[[R], dict[str, Any]]


SUBJECTS: dict[str, Subject[Any, Any]] = {
    "matrices": Subject(
        lambda: matrices.MATRIX_CASES,
        lambda case: MatrixResult(case.name, case.shape, spectrum=case.spectrum, about=case.about),
        matrices.measure_matrix,
        MATRIX_TARGETS,
        show_matrices,
        record_matrix,
    ),
    "forms": Subject(
        lambda: forms.FORM_CASES,
        lambda case: FormResult(case.name, case.shape),
        forms.measure_forms,
        FORM_TARGETS,
        show_forms,
        record_forms,
    ),
    "choices": Subject(
        lambda: choices.CHOICE_CASES,
        lambda case: choices.ChoiceResult(case.name, case.shape, spectrum=case.spectrum, sigma_min=case.sigma_min),
        choices.measure_choices,
        choices.CHOICE_TARGETS,
        choices.show_choices,
        choices.record_choices,
    ),
    "models": Subject(
        lambda: models.MODEL_CASES,
        lambda case: ModelResult(case.name, case.about),
        models.measure_model,
        MODEL_TARGETS,
        show_models,
        record_model,
    ),
    "processes": Subject(
        lambda: processes.PROCESSES_CASES,
        processes.begin,
        processes.measure_processes,
        PROCESSES_TARGETS,
        show_processes,
        record_processes,
    ),
    "images": Subject(
        lambda: images.IMAGE_CASES,
        lambda case: images.ImageResult(case.name, case.about),
        images.measure_formats,
        images.IMAGE_TARGETS,
        images.show_images,
        images.record_images,
    ),
    "overhead": Subject(
        lambda: overhead.OVERHEAD_CASES,
        lambda case: overhead.OverheadResult(case.name, case.about, case),
        overhead.measure_overhead,
        (),
        overhead.show_overhead,
        overhead.record_overhead,
    ),
}
"""By the name that the command takes."""


def run(settings: Settings) -> int:
    """Measure and report; return the exit code."""
    subject = SUBJECTS.get(settings.what)
    if subject is None:
        raise ValueError(unknown_name("bench", settings.what, SUBJECTS))
    cases = choose_cases(subject.cases(), settings)
    if settings.json is not None:
        check_writable(settings.json)
    keep_freed_memory()
    results: list[BenchResult] = []
    complete = False
    torch.manual_seed(SEED)
    with torch_threads(settings.threads):
        try:
            with interrupted_by_sigterm(), progress(settings, len(cases)) as begin:
                for case in cases:
                    results.append(subject.begin(case))
                    subject.measure(case, results[-1], settings, begin(case.name))
            complete = True
        except KeyboardInterrupt:
            pass
        finally:
            # An error ends the run as well, but hours of measurements are not lost with it.
            verdicts = judge_targets(results, subject.targets)
            if settings.json is not None:
                content = record_run(results, verdicts, settings, complete=complete, record_case=subject.record)
                write_atomically(settings.json, json.dumps(content, indent=1) + "\n")
        subject.show(results, verdicts, settings, console(plain=settings.plain))
    if not complete:
        return INTERRUPTED
    return DISAGREEMENT if any(result.disagreement for result in results) else 0


def choose_cases(cases: Sequence[C], settings: Settings) -> list[C]:
    """The cases that match a pattern; without one, all, or the small ones if it has to be quick."""
    if settings.cases is None:
        return [case for case in cases if case.quick or not settings.quick]
    patterns = settings.cases.split(",")
    chosen = [case for case in cases if any(fnmatchcase(case.name, pattern) for pattern in patterns)]
    if not chosen:
        names = ", ".join(case.name for case in cases)
        raise ValueError(f"--cases {settings.cases!r} matches none of: {names}")
    return chosen


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Inside, SIGTERM is what Ctrl-C is: where a time limit ends it, what was measured is kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def progress(settings: Settings, count: int) -> Iterator[Callable[[str], Watch]]:
    """A bar on standard error; where that is no terminal, a line per case."""
    terminal = console(plain=settings.plain, stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    started = 0
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        task = bar.add_task("", total=count)

        def begin(name: str) -> Watch:
            nonlocal started
            before, started = started, started + 1
            if not terminal.is_terminal:
                terminal.print(f"{name} ({started} of {count})")

            def watch(doing: str, done: float) -> None:
                bar.update(task, completed=before + done, description=f"{name}: {doing}")

            return watch

        yield begin
