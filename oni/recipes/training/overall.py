"""The progress of many runs one after the other: which one trains, how many are done, the time left for all."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from oni.recipes.training.progress import Bar, Reporter, choose_kind, format_seconds, make_reporter

__all__ = ["Overall"]


class Estimate:
    """The time left for all runs: as many steps as the finished ones had on average, as quick as those so far."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.finished_steps: list[int] = []
        """Of runs that were trained now; those finished before take no time."""
        self.steps, self.seconds = 0, 0.0
        """All steps made now, and the time they took."""

    def seconds_left(self, run_steps: int = 0, run_done: int = 0) -> float | None:
        """What is left, with so many steps of the present run of which so many are done; ``None`` if unknown."""
        if not self.steps:
            return None
        mean = sum(self.finished_steps) / len(self.finished_steps) if self.finished_steps else run_steps
        waiting = self.total - self.done - 1
        steps_left = max(0, waiting) * mean + max(0, run_steps - run_done)
        return steps_left * self.seconds / self.steps


class Overall:
    """A reporter for a whole experiment. Pass it as ``progress`` to every ``train``.

    Usage::

        with Overall("fig5", total=len(runs), kind="auto") as overall:
            for run in runs:
                overall.begin(str(run))
                try:
                    train(run, out, progress=overall)
                except Busy:
                    continue           # nothing was printed
                overall.finish()

    The heading given to ``begin`` is printed when a training starts, so it is never that of a run which another process
    has; one run may train several times, as a search over learning rates does.
    """

    def __init__(self, name: str, total: int, kind: str = "auto", *, quiet: bool = False) -> None:
        self.name, self.kind = name, "none" if quiet else choose_kind(kind)
        self.reporter = make_reporter(self.kind)
        self.estimate = Estimate(total)
        self.heading: str | None = None
        self.run_steps = self.run_done = self.trained_steps = 0
        self.started_at = 0.0

    def __enter__(self) -> Overall:
        if isinstance(self.reporter, Bar):
            self.reporter.bars.start()
            self.bar = self.reporter.bars.add_task(self.name, total=self.estimate.total, state="", left=None)
            self.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        if isinstance(self.reporter, Bar):
            self.reporter.bars.stop()

    def begin(self, heading: str) -> None:
        """Say what comes next, to be printed once it trains."""
        self.heading = heading
        self.run_steps = self.run_done = 0
        self.trained_steps = 0

    def for_other_work(self) -> Reporter:
        """The reporter of one run, for what is no training: its steps say nothing of the time left."""
        self.print_heading()
        return self.reporter

    def finish(self) -> None:
        """Count the run as done."""
        if self.heading is not None:
            self.print_heading("finished before")
        self.estimate.done += 1
        if self.trained_steps:
            self.estimate.finished_steps.append(self.trained_steps)
        self.run_steps = self.run_done = 0
        self.refresh()

    def print_heading(self, note: str = "") -> None:
        """Print the heading, at most once."""
        if self.heading is None:
            return
        number = f"{self.estimate.done + 1} of {self.estimate.total}"
        text = f"{self.name}, {number}: {self.heading}" + (f" ({note})" if note else "")
        self.heading = None
        if isinstance(self.reporter, Bar):
            self.reporter.console.print(text, soft_wrap=True)
        elif self.kind == "lines":
            left = self.estimate.seconds_left() if self.estimate.finished_steps else None
            after = f", about {format_seconds(left)} left after it" if left is not None else ""
            print(text + after, file=sys.stderr, flush=True)

    def refresh(self) -> None:
        """Show how many runs are done and the time left."""
        if isinstance(self.reporter, Bar):
            left = self.estimate.seconds_left(self.run_steps, self.run_done)
            state = f"{self.estimate.done}/{self.estimate.total} runs"
            part = self.run_done / self.run_steps if self.run_steps else 0.0
            self.reporter.bars.update(self.bar, completed=self.estimate.done + part, state=state, left=left)

    def count(self, done: int) -> None:
        """Take note of steps made and of the time they took."""
        now = time.perf_counter()
        made = done - self.run_done
        self.trained_steps += made
        self.estimate.steps += made
        self.estimate.seconds += now - self.started_at
        self.run_done, self.started_at = done, now

    def start(self, name: str, steps: int, done: int) -> None:
        self.print_heading()
        self.run_steps, self.run_done, self.started_at = steps, done, time.perf_counter()
        self.reporter.start(name, steps, done)

    def step(self, done: int, epoch: str, values: Mapping[str, float]) -> None:
        self.count(done)
        self.reporter.step(done, epoch, values)
        self.refresh()

    def epoch(self, row: Mapping[str, Any]) -> None:
        self.count(row["steps"])
        self.reporter.epoch(row)

    def warn(self, text: str) -> None:
        self.reporter.warn(text)

    def end(self, text: str) -> None:
        self.reporter.end(text)
