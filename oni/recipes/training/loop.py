"""The loop of a run: epochs of steps, each a function of the state that a checkpoint holds and of nothing else."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from oni.recipes.progress.reporters import Reporter
from oni.recipes.progress.tensorboard import EventWriter
from oni.recipes.run_files.run_folder import CHECKPOINT_FORMAT, FORMAT, RunFolder
from oni.recipes.run_files.snapshot import load_random_state, random_state
from oni.recipes.training.interruption import Interrupted, Stop, how_to_continue
from oni.recipes.training.task import Task
from oni.recipes.training.totals import sum_over_processes

__all__ = ["Loop", "Saving", "Watch"]

Watch = Callable[[int, nn.Module], Any]
"""Called with the number of steps done and the model."""

LOOK_EVERY = 20
"""Steps between two checks of the loss, the clock and the signals of other processes; on a GPU a check waits."""
SHOW_EVERY = 0.2
"""Seconds between two updates of the progress bar."""


@dataclass
class Saving:
    """When and where to save."""

    folder: RunFolder
    stop: Stop
    seconds: float
    steps: int | None
    resumes: bool
    """Whether the same command continues, or needs ``--resume``."""


class Loop:
    """A run in progress. It knows the task's metrics by name only."""

    def __init__(self, task: Task, watch: Mapping[str, Watch], report: Reporter, saving: Saving) -> None:
        self.task, self.config, self.fabric = task, task.config, task.fabric
        self.watch, self.report, self.saving = watch, report, saving
        self.step = 0
        self.rows: list[dict[str, Any]] = []
        self.watched: dict[str, dict[int, Any]] = {name: {} for name in watch}
        self.before, self.since = 0.0, time.perf_counter()
        """Seconds in this epoch before an interruption, and when it was resumed."""
        torch.manual_seed(self.config.seed + 1 + self.fabric.global_rank)

    def resume(self) -> None:
        """Continue from the newest whole checkpoint, if there is one."""
        state = None
        if self.fabric.is_global_zero:
            state = self.saving.folder.load_checkpoint(self.report.warn)
        state = self.fabric.broadcast(state)
        if state is None:
            return
        self.task.load_state_dict(state["task"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        self.step, self.before = state["step"], state["seconds"]
        self.rows, watched = json.loads(state["rows"]), json.loads(state["watched"])
        self.watched = {name: {int(step): value for step, value in steps.items()} for name, steps in watched.items()}
        processes = state["processes"]
        self.task.totals.load_state_dicts([process["totals"] for process in processes])
        if len(processes) == self.fabric.world_size:
            load_random_state(processes[self.fabric.global_rank]["random"], self.fabric.device)
        self.since = time.perf_counter()

    def run(self) -> None:
        """Train to the end, and write how it ended."""
        self.report.start(self.saving.folder.path.name, self.config.epochs * self.task.steps_per_epoch, self.step)
        outcome = "stopped by an error"
        self.events = EventWriter(self.saving.folder, self.task.metrics) if self.fabric.is_global_zero else None
        try:
            self.saved_at = self.shown_at = time.perf_counter()
            if self.step == 0:
                self.look()
            status = "finished"
            while len(self.rows) < self.config.epochs:
                if not (self.train_epoch() and self.end_epoch()):
                    status = "diverged"
                    break
            if status == "finished":
                self.save()
            self.write_end(status)
            outcome = status if status == "finished" else f"diverged at step {self.step}: the loss is not finite"
        except Interrupted as error:
            outcome = str(error)
            raise
        finally:
            if self.events:
                self.events.close()
            self.report.end(outcome)

    def train_epoch(self) -> bool:
        """Make the remaining steps of this epoch; return whether all checked numbers were finite."""
        epoch = len(self.rows)
        first = self.step - epoch * self.task.steps_per_epoch
        if first == 0:
            self.task.retune_weights()
        self.task.start_epoch(epoch, first)
        for done in range(first + 1, self.task.steps_per_epoch + 1):
            self.task.train_step()
            self.step += 1
            self.look()
            if self.step % LOOK_EVERY == 0:
                if not self.report_progress():
                    return False
            elif self.fabric.world_size == 1 and time.perf_counter() - self.shown_at >= SHOW_EVERY:
                self.report_progress()
            self.pause(last=done == self.task.steps_per_epoch)
        return True

    def report_progress(self) -> bool:
        """Report progress and return whether all of it is finite."""
        self.shown_at = time.perf_counter()
        values = self.task.running()
        self.report.step(self.step, f"{len(self.rows) + 1}/{self.config.epochs}", values)
        return all(map(math.isfinite, values.values()))

    def pause(self, *, last: bool) -> None:
        """Between two steps: save if it is time to, and stop if asked. ``last``: whether the epoch is over."""
        due = time.perf_counter() - self.saved_at >= self.saving.seconds
        asked = self.saving.stop.asked
        if self.fabric.world_size > 1:
            # All processes must do the same, so they agree when they check.
            if self.step % LOOK_EVERY and not last:
                due = asked = False
            else:
                wishes = torch.tensor([due, asked], dtype=torch.int32, device=self.fabric.device)
                due, asked = (value > 0 for value in sum_over_processes(self.fabric, wishes).tolist())
        if due or asked or (self.saving.steps and self.step % self.saving.steps == 0):
            self.save()
        if asked:
            again = how_to_continue(self.saving.resumes)
            raise Interrupted(f"stopped after step {self.step}; {again} {self.saving.folder.path}")

    def end_epoch(self) -> bool:
        """Measure and write a row; return whether every number was finite."""
        measured = self.task.measure()
        for name, content in self.task.files().items():
            if self.fabric.is_global_zero:
                self.saving.folder.write(name, content)
        row: dict[str, Any] = {"epoch": len(self.rows) + 1, "steps": self.step}
        row |= {name: as_json(measured.get(name)) for name in self.task.metrics}
        row["seconds"] = round(self.seconds(), 3)
        self.rows.append(row)
        self.report.epoch(row)
        warnings = self.task.warnings()
        if self.fabric.is_global_zero:
            for message in warnings:
                self.report.warn(message)
            self.saving.folder.write_csv("epochs.csv", self.rows)
        if self.events:
            self.events.write(self.rows)
        self.before, self.since = 0.0, time.perf_counter()
        self.task.totals.clear()
        return all(map(math.isfinite, measured.values()))

    def look(self) -> None:
        """Call the watchers, without any effect on training."""
        due = {name: watch for name, watch in self.watch.items() if self.step in getattr(watch, "steps", [self.step])}
        if not due:
            return
        training = {name: model.training for name, model in self.task.models.items()}
        on_device = [self.fabric.device] if self.fabric.device.type == "cuda" else []
        with torch.random.fork_rng(on_device):
            models = self.task.whole_models()
            model = next(iter(models.values())) if len(models) == 1 else nn.ModuleDict(models)
            model.eval()
            for name, watch in due.items():
                value = watch(self.step, model)
                if value is not None:
                    # Refused now if it is not JSON; what is not finite is None.
                    self.watched[name][self.step] = json.loads(json.dumps(value), parse_constant=lambda _: None)
        for name, model in self.task.models.items():
            model.train(training[name])

    def seconds(self) -> float:
        """The time in this epoch, also before an interruption."""
        return self.before + time.perf_counter() - self.since

    def save(self) -> None:
        """Write a checkpoint."""
        task = self.task.state_dict()
        own = {"totals": self.task.totals.state_dict(), "random": random_state(self.fabric.device)}
        processes: list[Any] = [own]
        if self.fabric.world_size > 1:
            processes = [None] * self.fabric.world_size
            torch.distributed.all_gather_object(processes, own)
        if self.fabric.is_global_zero:
            state = {
                "format": CHECKPOINT_FORMAT,
                "hash": self.config.hash,
                "step": self.step,
                "seconds": self.seconds(),
                "rows": json.dumps(self.rows),
                "watched": json.dumps(self.watched),
                "task": task,
                "precision": self.fabric.strategy.precision.state_dict(),
                "processes": processes,
            }
            self.saving.folder.save_checkpoint(self.step, state)
        self.saved_at = time.perf_counter()

    def write_end(self, status: str) -> None:
        """Write metrics.json, which marks the run as ended."""
        if not self.fabric.is_global_zero:
            return
        measured = bool(self.rows) and self.rows[-1]["steps"] == self.step
        last = self.rows[-1] if measured and status == "finished" else {}
        metrics = {
            "status": status,
            "steps": self.step,
            "epochs": len(self.rows),
            **{name: last.get(name) for name in self.task.metrics},
            "seconds": round(sum(row["seconds"] for row in self.rows) + (0.0 if measured else self.seconds()), 3),
        }
        watched = {name: {str(step): value for step, value in steps.items()} for name, steps in self.watched.items()}
        record = {"format": FORMAT, "metrics": metrics, "epochs": self.rows, "watched": watched}
        self.saving.folder.write_json("metrics.json", record)


def as_json(value: float | None) -> float | None:
    """A number, or None if it is not finite."""
    return value if value is not None and math.isfinite(value) else None
