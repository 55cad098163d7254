"""The progress of many runs, in turn or at once: which of them train, how many are done, and the time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from oni.recipes.progress.reporters import Bar, Lines, Reporter, choose_kind, format_clock, make_bars, make_reporter

__all__ = ["OneRun", "Overall"]


class Estimate:
    """The time left for all runs: as many steps as the finished ones had on average, as quick as those so far.

    Args:
        total: how many runs.
        step_costs: what a step of each costs compared with the others; the same if there are none.
    """

    def __init__(self, total: int, step_costs: Sequence[float] = ()) -> None:
        self.total, self.done = total, 0
        self.cost_left = sum(step_costs) if step_costs else float(total)
        """What a step of each costs, added up over runs that are not done."""
        self.finished_steps: list[int] = []
        """The lengths of the runs trained in this session; those finished before take no time."""
        self.work, self.seconds = 0.0, 0.0
        """All steps made now, each times its cost, and the time they took, added up over runs."""
        self.at_once = 1
        """The largest number of runs that trained at the same time."""

    def finish(self, steps: int = 0, cost: float = 1.0) -> None:
        """Count a run as done, with the steps that were trained now, if any."""
        self.done += 1
        self.cost_left -= cost
        if steps:
            self.finished_steps.append(steps)

    def seconds_left(self, training: Sequence[tuple[int, int, float]] = ()) -> float | None:
        """The seconds left; ``None`` if unknown.

        Args:
            training: of each run that trains now, its steps, how many of them are done, and what a step costs.
        """
        self.at_once = max(self.at_once, len(training))
        lengths = self.finished_steps or [steps for steps, _, _ in training]
        if not self.work or not lengths:
            return None
        waiting = max(0.0, self.cost_left - sum(cost for _, _, cost in training))
        work_left = waiting * sum(lengths) / len(lengths)
        work_left += sum(cost * max(0, steps - done) for steps, done, cost in training)
        at_once = max(1, min(self.at_once, self.total - self.done))
        return work_left * self.seconds / self.work / at_once


class Overall:
    """Shows the progress of a whole experiment; ``begin`` returns a reporter for each of its runs.

    Usage::

        with Overall("fig5", total=len(runs), kind="auto") as overall:
            for run in runs:
                reporter = overall.begin(str(run))
                try:
                    train(run, out, progress=reporter)
                except Busy:
                    continue           # nothing was printed
                reporter.finish()

    The heading given to ``begin`` is printed when training starts, so a run that another process is training has none.
    One run may train several times, as a search over learning rates does.

    Args:
        name: of the experiment.
        total: how many runs.
        kind: see :func:`oni.recipes.progress.reporters.make_reporter`.
        quiet: print warnings only.
        at_once: whether several runs may train at the same time, so that each line needs the name of its run.
        step_costs: see `Estimate`.
    """

    def __init__(
        self,
        name: str,
        total: int,
        kind: str = "auto",
        *,
        quiet: bool = False,
        at_once: bool = False,
        step_costs: Sequence[float] = (),
    ) -> None:
        self.name, self.kind = name, "none" if quiet else choose_kind(kind)
        self.at_once = at_once
        self.estimate = Estimate(total, step_costs)
        self.training: list[OneRun] = []
        self.announced = 0
        self.bars = make_bars() if self.kind == "bar" else None

    def __enter__(self) -> Overall:
        if self.bars:
            self.bars.start()
            self.bar = self.bars.add_task(self.name, total=self.estimate.total, state="", left=None)
            self.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bars:
            self.bars.stop()

    def begin(self, heading: str, step_cost: float = 1.0) -> OneRun:
        """A reporter for the next run."""
        return OneRun(self, heading, step_cost)

    def make_reporter(self) -> Reporter:
        """The reporter that prints or draws one run."""
        if self.bars:
            return Bar(self.bars)
        return Lines(named=self.at_once) if self.kind == "lines" else make_reporter(self.kind)

    def note(self, text: str) -> None:
        """Print a line for people; programs that read JSON do not get it."""
        if self.bars:
            self.bars.console.print(text, soft_wrap=True)
        elif self.kind == "lines":
            print(text, file=sys.stderr, flush=True)

    def announce(self, heading: str, step_cost: float, note: str = "") -> None:
        """Print which run starts, or why it does not have to train."""
        self.announced += 1
        text = f"{self.name}, {self.announced} of {self.estimate.total}: {heading}" + (f" ({note})" if note else "")
        itself = (0, 0, step_cost)
        left = self.estimate.seconds_left([*self.steps(), itself]) if self.estimate.finished_steps else None
        if self.kind == "lines" and left is not None:
            text += f", about {format_clock(left)} left after it"
        self.note(text)

    def steps(self) -> list[tuple[int, int, float]]:
        """Of each run that trains now, its steps, how many of them are done, and what a step costs."""
        return [(run.steps, run.done, run.step_cost) for run in self.training]

    def refresh(self) -> None:
        """Show how many runs are done and the time left."""
        if self.bars:
            part = sum(run.done / run.steps for run in self.training if run.steps)
            self.bars.update(
                self.bar,
                completed=self.estimate.done + part,
                state=f"{self.estimate.done}/{self.estimate.total} runs",
                left=self.estimate.seconds_left(self.steps()),
            )


class OneRun:
    """The reporter of one run of an `Overall`. Pass it as ``progress`` to ``train``, then call ``finish``."""

    def __init__(self, overall: Overall, heading: str, step_cost: float = 1.0) -> None:
        self.overall, self.heading, self.step_cost = overall, heading, step_cost
        self.reporter = overall.make_reporter()
        self.announced = False
        self.steps = self.done = 0
        """Of the training that is going on."""
        self.trained_steps, self.counted_at = 0, 0.0
        self.shown = False
        """Whether something was started and has not ended."""

    def announce(self, note: str = "") -> None:
        """Print the heading, at most once."""
        if not self.announced:
            self.overall.announce(self.heading, self.step_cost, note)
            self.announced = True

    def finish(self) -> None:
        """Count the run as done."""
        self.announce("finished before")
        self.overall.estimate.finish(self.trained_steps, self.step_cost)
        self.overall.refresh()

    def count(self, done: int) -> None:
        """Record the steps made and the time they took."""
        now, made = time.perf_counter(), done - self.done
        self.trained_steps += made
        self.overall.estimate.work += made * self.step_cost
        self.overall.estimate.seconds += now - self.counted_at
        self.done, self.counted_at = done, now

    def start(self, name: str, steps: int, done: int) -> None:
        self.steps, self.done, self.counted_at = steps, done, time.perf_counter()
        self.overall.training.append(self)
        self.show_start(name, steps, done)

    def show_start(self, name: str, steps: int, done: int) -> None:
        """Show the start of something."""
        self.announce()
        self.reporter.start(name, steps, done)
        self.shown = True

    def step(self, done: int, epoch: str, values: Mapping[str, float]) -> None:
        self.count(done)
        self.reporter.step(done, epoch, values)
        self.overall.refresh()

    def epoch(self, row: Mapping[str, Any]) -> None:
        self.count(row["steps"])
        self.reporter.epoch(row)

    def warn(self, text: str) -> None:
        self.reporter.warn(text)

    def end(self, text: str) -> None:
        """End what was started, if anything was: a process may die before its first step."""
        if self in self.overall.training:
            self.overall.training.remove(self)
        if self.shown:
            self.reporter.end(text)
        self.shown = False

    def for_other_work(self) -> OtherWork:
        """A reporter for work other than training, which does not count towards the time left."""
        return OtherWork(self)


class OtherWork:
    """The reporter of a run for work other than training."""

    def __init__(self, run: OneRun) -> None:
        self.run = run
        self.start, self.end = run.show_start, run.end
        self.for_other_work = lambda: self
        self.step, self.epoch, self.warn = run.reporter.step, run.reporter.epoch, run.reporter.warn
