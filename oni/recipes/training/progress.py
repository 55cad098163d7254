"""What a person, or a program, sees of a run while it trains."""

from __future__ import annotations

import json
import sys
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["PROGRESS", "Reporter", "reporter"]

PROGRESS = ("auto", "bar", "lines", "json", "none")


class Reporter(Protocol):
    """Told of everything, in this order."""

    def start(self, name: str, steps: int, done: int) -> None: ...
    def step(self, done: int, epoch: str, loss: float, error: float) -> None: ...
    def epoch(self, row: dict[str, Any]) -> None: ...
    def warn(self, text: str) -> None: ...
    def end(self, text: str) -> None: ...


def reporter(kind: str | Reporter = "auto") -> Reporter:
    """A reporter by its word; one that is made already is returned as it is.

    Args:
        kind: ``"bar"``; ``"lines"``, one for each epoch; ``"json"``, one object a line; ``"none"``, warnings only;
            ``"auto"``, a bar on a terminal and lines elsewhere. All but json go to standard error.
    """
    if not isinstance(kind, str):
        return kind
    if kind not in PROGRESS:
        raise ValueError(f"progress must be one of {', '.join(PROGRESS)}, got {kind!r}")
    if kind == "auto":
        kind = "bar" if sys.stderr.isatty() else "lines"
    kinds: dict[str, type[Silent]] = {"bar": Bar, "lines": Lines, "json": JsonLines, "none": Silent}
    return kinds[kind]()


class Silent:
    """Says nothing but warnings."""

    def start(self, name: str, steps: int, done: int) -> None:
        self.name = name

    def step(self, done: int, epoch: str, loss: float, error: float) -> None:
        pass

    def epoch(self, row: dict[str, Any]) -> None:
        pass

    def warn(self, text: str) -> None:
        print("warning:", text, file=sys.stderr, flush=True)

    def end(self, text: str) -> None:
        pass


def errors_in(row: dict[str, Any]) -> str:
    """Those that an epoch has."""
    parts = ("train", "validation", "test")
    return ", ".join(f"{part} error {row[f'{part}_error']:.2%}" for part in parts if row[f"{part}_error"] is not None)


class Lines(Silent):
    """One line for each epoch."""

    def start(self, name: str, steps: int, done: int) -> None:
        super().start(name, steps, done)
        self.say(f"{name}: {steps} steps" if done == 0 else f"{name}: continues after step {done} of {steps} steps")

    def epoch(self, row: dict[str, Any]) -> None:
        loss = "not finite" if row["train_loss"] is None else f"{row['train_loss']:.4f}"
        self.say(f"epoch {row['epoch']}: loss {loss}, {errors_in(row)}, {row['seconds']:.1f} s")

    def end(self, text: str) -> None:
        self.say(f"{self.name}: {text}")

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class JsonLines(Silent):
    """One JSON object a line on standard output, for programs."""

    def start(self, name: str, steps: int, done: int) -> None:
        super().start(name, steps, done)
        self.say(event="start", steps=steps, done=done)

    def epoch(self, row: dict[str, Any]) -> None:
        self.say(event="epoch", **row)

    def warn(self, text: str) -> None:
        self.say(event="warning", text=text)

    def end(self, text: str) -> None:
        self.say(event="end", text=text)

    def say(self, **what: Any) -> None:
        print(json.dumps({"run": getattr(self, "name", None), **what}), flush=True)


class Bar(Silent):
    """A bar with epoch, loss, error and the time left."""

    def start(self, name: str, steps: int, done: int) -> None:
        super().start(name, steps, done)
        self.console = Console(stderr=True, highlight=False)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        # The hash says little on a terminal.
        self.task = self.progress.add_task(name.rpartition("-")[0], total=steps, completed=done, state="")
        self.progress.start()
        self.reached = ""

    def step(self, done: int, epoch: str, loss: float, error: float) -> None:
        self.progress.update(self.task, completed=done, state=f"epoch {epoch} loss {loss:.3f} error {error:.1%}")

    def epoch(self, row: dict[str, Any]) -> None:
        self.reached = f", {errors_in(row)}"

    def warn(self, text: str) -> None:
        if hasattr(self, "progress"):
            self.console.print(f"warning: {text}", style="yellow", markup=False)
        else:
            super().warn(text)

    def end(self, text: str) -> None:
        self.progress.stop()
        # Of a run without an end, the name is needed to find it again.
        name = self.name.rpartition("-")[0] if text == "finished" else self.name
        self.console.print(f"{name}: {text}{self.reached}", markup=False)
