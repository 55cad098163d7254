"""What a person, or a program, sees of a run while it trains."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from oni.terminal import console, printable

__all__ = ["PROGRESS", "Bar", "Lines", "Reporter", "Silent", "choose_kind", "make_bars", "make_reporter"]

PROGRESS = ("auto", "bar", "lines", "json", "none")


class Reporter(Protocol):
    """What the loop calls while a run trains, in this order."""

    def start(self, name: str, steps: int, done: int) -> None: ...
    def step(self, done: int, epoch: str, values: Mapping[str, float]) -> None: ...
    def epoch(self, row: Mapping[str, Any]) -> None: ...
    def warn(self, text: str) -> None: ...
    def end(self, text: str) -> None: ...
    def for_other_work(self) -> Reporter:
        """A reporter for work other than training, which does not count towards the time left."""
        ...


def make_reporter(kind: str = "auto") -> Reporter:
    """Make a reporter by name.

    Args:
        kind: ``"bar"``; ``"lines"``, one per epoch; ``"json"``, one object per line; ``"none"``, warnings only;
            ``"auto"``, a bar on a terminal and lines elsewhere. All but json go to standard error.
    """
    kinds: dict[str, type[Silent]] = {"bar": Bar, "lines": Lines, "json": JsonLines, "none": Silent}
    return kinds[choose_kind(kind)]()


def choose_kind(kind: str) -> str:
    """The kind of reporter, with ``"auto"`` decided."""
    if kind not in PROGRESS:
        raise ValueError(f"progress must be one of {', '.join(PROGRESS)}, got {kind!r}")
    if kind == "auto":
        return "bar" if sys.stderr.isatty() else "lines"
    return kind


class Silent:
    """Prints warnings only."""

    def start(self, name: str, steps: int, done: int) -> None:
        self.name = name

    def step(self, done: int, epoch: str, values: Mapping[str, float]) -> None:
        pass

    def epoch(self, row: Mapping[str, Any]) -> None:
        pass

    def warn(self, text: str) -> None:
        print("warning:", text, file=sys.stderr, flush=True)

    def end(self, text: str) -> None:
        pass

    def for_other_work(self) -> Reporter:
        return self


def format_metric(name: str, value: float, digits: int) -> str:
    """A metric as text: errors in per cent.

    >>> format_metric("test_error", 0.125, 4), format_metric("train_loss", 0.125, 4)
    ('test error 12.50%', 'train loss 0.1250')
    """
    words = name.replace("_", " ")
    return f"{words} {value:.{digits - 2}%}" if name.endswith("error") else f"{words} {value:.{digits}f}"


def format_row(row: Mapping[str, Any], *, errors_only: bool = False) -> str:
    """The metrics of an epoch that were measured, without the learning rate."""
    others = ("epoch", "steps", "seconds", "learning_rate")
    metrics = {name: value for name, value in row.items() if name not in others and value is not None}
    errors = {name: value for name, value in metrics.items() if name.endswith("error")}
    shown = errors if errors_only and errors else metrics
    return ", ".join(format_metric(name, value, 4) for name, value in shown.items()) or "nothing finite"


class Lines(Silent):
    """One line per epoch; if ``named``, with the name of the run, as several may train at once."""

    def __init__(self, *, named: bool = False) -> None:
        self.named = named
        # Events of another process may begin in the middle of a run.
        self.name = "a run"

    def start(self, name: str, steps: int, done: int) -> None:
        super().start(name, steps, done)
        self.print(f"{name}: {steps} steps" if done == 0 else f"{name}: continues after step {done} of {steps}")

    def epoch(self, row: Mapping[str, Any]) -> None:
        name = f"{self.name}: " if self.named else ""
        self.print(f"{name}epoch {row['epoch']}: {format_row(row)}, {row['seconds']:.1f} s")

    def end(self, text: str) -> None:
        self.print(f"{self.name}: {text}")

    def print(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class JsonLines(Silent):
    """One JSON object per line on standard output, for programs."""

    def __init__(self) -> None:
        # Kept, because standard output is redirected while Ray runs, which prints its own messages there.
        self.output = sys.stdout

    def start(self, name: str, steps: int, done: int) -> None:
        super().start(name, steps, done)
        self.print(event="start", steps=steps, done=done)

    def epoch(self, row: Mapping[str, Any]) -> None:
        self.print(event="epoch", **row)

    def warn(self, text: str) -> None:
        self.print(event="warning", text=text)

    def end(self, text: str) -> None:
        self.print(event="end", text=text)

    def print(self, **fields: Any) -> None:
        print(json.dumps({"run": getattr(self, "name", None), **fields}), file=self.output, flush=True)


def format_clock(seconds: float | None) -> str:
    """A time as short text.

    >>> format_clock(7.4), format_clock(3725), format_clock(90000), format_clock(None)
    ('0:07', '1:02:05', '25:00:00', '-:--')
    """
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class TimeColumn(ProgressColumn):
    """The time so far and the time left; the last column to be cut in a narrow terminal."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True, justify="right", min_width=TIME_WIDTH))

    def render(self, task: Task) -> Text:
        left = task.fields.get("left", task.time_remaining)
        return Text(f"{format_clock(task.elapsed)}, {format_clock(left)} left", style="cyan")


TIME_WIDTH = len("12:34, 12:34 left")


def make_bars() -> Progress:
    """Bars on standard error. In a narrow terminal the bar shrinks first, then the text is cut, never the times."""
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis", ratio=3)),
        BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=5, max_width=30)),
        TextColumn("{task.fields[state]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
        TimeColumn(),
        console=console(stderr=True),
        transient=True,
        expand=True,
    )


class Bar(Silent):
    """A bar with epoch, loss, error, the time so far and the time left; one of several, if ``bars`` are given."""

    def __init__(self, bars: Progress | None = None) -> None:
        self.bars = bars or make_bars()
        self.console = self.bars.console

    def start(self, name: str, steps: int, done: int) -> None:
        super().start(name, steps, done)
        self.last_row = ""
        self.bars.start()
        # The hash says little on a terminal.
        self.task = self.bars.add_task(printable(name.rpartition("-")[0]), total=steps, completed=done, state="")

    def step(self, done: int, epoch: str, values: Mapping[str, float]) -> None:
        state = " ".join([epoch, *(format_metric(name, value, 3) for name, value in values.items())])
        self.bars.update(self.task, completed=done, state=state)

    def epoch(self, row: Mapping[str, Any]) -> None:
        self.last_row = f", {format_row(row, errors_only=True)}"

    def warn(self, text: str) -> None:
        self.console.print(f"warning: {text}", style="yellow", soft_wrap=True)

    def end(self, text: str) -> None:
        self.bars.remove_task(self.task)
        if not self.bars.tasks:
            self.bars.stop()
        # The whole name of a run that did not finish, so that its folder is found.
        name = self.name.rpartition("-")[0] if text == "finished" else self.name
        self.console.print(f"{name}: {text}{self.last_row}", soft_wrap=True)
