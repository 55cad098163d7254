"""One run of ``oni bench``: choose the cases, measure with progress shown, report, also when interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from oni.bench.matrices import CASES, Case, Watch, measure
from oni.bench.record import record
from oni.bench.report import console, show
from oni.bench.result import CaseResult
from oni.bench.settings import SEED, Settings
from oni.bench.targets import judge

__all__ = ["SUBJECTS", "run"]

INTERRUPTED = 130
DISAGREEMENT = 1


def run(settings: Settings) -> int:
    """Measure and report; return the exit code."""
    subject = SUBJECTS.get(settings.what)
    if subject is None:
        raise ValueError(f"there is no bench {settings.what!r}; pass one of: {', '.join(SUBJECTS)}")
    chosen = subject(settings)
    if settings.json is not None:
        # Better told now than after minutes.
        settings.json.open("a").close()
    results: list[CaseResult] = []
    complete = False
    with threads(settings.threads):
        try:
            with progress(settings, len(chosen)) as begin:
                for case in chosen:
                    results.append(CaseResult(case.name, case.shape))
                    measure(case, results[-1], settings, begin(case.name))
            complete = True
        except KeyboardInterrupt:
            pass
        verdicts = judge(results)
        show(results, verdicts, settings, console(plain=settings.plain))
        if settings.json is not None:
            written = record(results, verdicts, settings, complete=complete)
            settings.json.write_text(json.dumps(written, indent=1) + "\n")
    if not complete:
        return INTERRUPTED
    return DISAGREEMENT if any(result.disagreement for result in results) else 0


def chosen_matrices(settings: Settings) -> list[Case]:
    """The cases that match the pattern; without one, all, or the small ones if it has to be quick."""
    if settings.cases is None:
        return [case for case in CASES if case.quick or not settings.quick]
    chosen = [case for case in CASES if fnmatchcase(case.name, settings.cases)]
    if not chosen:
        names = ", ".join(case.name for case in CASES)
        raise ValueError(f"--cases {settings.cases!r} matches none of: {names}")
    return chosen


SUBJECTS: dict[str, Callable[[Settings], list[Case]]] = {"matrices": chosen_matrices}
"""What can be measured, by the name that the command takes."""


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Inside it torch uses so many threads, and starts from the same seed."""
    before = torch.get_num_threads()
    torch.manual_seed(SEED)
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def progress(settings: Settings, count: int) -> Iterator[Callable[[str], Watch]]:
    """A bar on standard error; where that is no terminal, a line per case."""
    terminal = console(plain=settings.plain, stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    begun = 0
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as bar:
        task = bar.add_task("", total=count)

        def begin(name: str) -> Watch:
            nonlocal begun
            before, begun = begun, begun + 1
            if not terminal.is_terminal:
                terminal.print(f"{name} ({begun} of {count})")

            def watch(doing: str, done: float) -> None:
                bar.update(task, completed=before + done, description=f"{name}: {doing}")

            return watch

        yield begin
