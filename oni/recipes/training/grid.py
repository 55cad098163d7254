"""Who trains the runs of an experiment: this process, one after the other, or a Ray cluster, many at once."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Generic, TypeVar

from oni.errors import make_install_command
from oni.names import unknown_name
from oni.recipes.training.devices import Hardware, is_first_process
from oni.recipes.training.overall import Overall
from oni.recipes.training.progress import Reporter
from oni.recipes.training.run_folder import Busy

__all__ = ["POLL_SECONDS", "Attempt", "Engine", "Job", "run_jobs"]

ENGINES = ("local", "ray")
POLL_SECONDS = 5.0
"""Between two looks at runs that another process is training."""

T = TypeVar("T")


@dataclass(frozen=True)
class Engine:
    """Where runs are trained. One process trains a run on one device; ``local`` alone knows more of them."""

    name: str = "local"
    """``"local"``: in this process, in turn; ``"ray"``: over a Ray cluster."""
    address: str | None = None
    """Of a running cluster: ``"auto"`` or ``HOST:PORT``. Ray is started on this machine otherwise, and ended again."""
    gpus_per_run: float | None = None
    """A part of a GPU up to a whole one; otherwise one if the cluster has any, and none on CPUs."""

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise ValueError(unknown_name("engine", self.name, ENGINES))
        given = {"--address": self.address, "--gpus-per-run": self.gpus_per_run}
        for option, value in given.items():
            if self.name == "local" and value is not None:
                raise ValueError(f"{option} {value}: is for a Ray cluster; add --engine ray, or leave it out")
        if self.gpus_per_run is not None and not 0 <= self.gpus_per_run <= 1:
            raise ValueError(
                f"--gpus-per-run must be from 0 to 1, as a run trains on one device; got {self.gpus_per_run}"
            )
        if self.name == "ray" and find_spec("ray") is None:
            raise ValueError(f"--engine ray needs Ray, which is not installed: {make_install_command('ray')}")

    def check_hardware(self, hardware: Hardware) -> None:
        """Refuse several devices for a run, and a GPU for one that is to train on the CPU."""
        if self.name == "local":
            return
        several = (hardware.devices, hardware.num_nodes, hardware.strategy) != (1, 1, "auto")
        if several or "TORCHELASTIC_RUN_ID" in os.environ:
            raise ValueError(
                "--engine ray trains each run in one process, on one device: leave out --devices, --num-nodes, "
                "--strategy and torchrun, or --engine ray"
            )
        if hardware.accelerator == "cpu" and self.gpus_per_run:
            raise ValueError(f"--gpus-per-run {self.gpus_per_run:g} and --accelerator cpu contradict each other")


@dataclass(frozen=True)
class Attempt:
    """One attempt at a run: what an engine tells the function that trains it."""

    reporter: Reporter
    resume: bool = False
    """Whether an earlier attempt may have left a checkpoint, from which to continue."""
    accelerator: str | None = None
    """Instead of the one that was asked for."""
    cores: int | None = None
    """How many the run has to itself, if not all of the machine."""

    def place(self, hardware: Hardware) -> Hardware:
        """The hardware of this attempt, from what was asked for."""
        workers = hardware.workers if self.cores is None or hardware.workers is not None else self.cores - 1
        return replace(hardware, accelerator=self.accelerator or hardware.accelerator, workers=workers)


@dataclass(frozen=True)
class Job(Generic[T]):
    """A run for an engine."""

    heading: str
    train: Callable[[Attempt], T]
    """Pickled for Ray, so it takes its data from files."""
    step_cost: float = 1.0
    """What a step costs compared with those of other jobs, by which the time left is estimated."""


def run_jobs(
    jobs: Sequence[Job[T]],
    name: str,
    *,
    engine: Engine,
    progress: str,
    folder: Path,
    accelerator: str,
    resumes: bool = False,
) -> list[T]:
    """Train all runs, and return what each gave, in the order of ``jobs``.

    Args:
        jobs: the runs.
        name: of all together, for the progress bar.
        engine: who trains them.
        progress: how to show them, see :func:`oni.recipes.training.progress.make_reporter`.
        folder: which holds the folders of the runs; for Ray, every machine must see the same.
        accelerator: what was asked for.
        resumes: whether the same command continues after an interruption; otherwise it takes ``--resume``.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM, once every run that trained has written a checkpoint.
    """
    at_once = engine.name == "ray"
    costs = [job.step_cost for job in jobs]
    quiet = not is_first_process()
    with Overall(name, len(jobs), progress, quiet=quiet, at_once=at_once, step_costs=costs) as overall:
        if not at_once:
            return train_in_turns(jobs, overall)
        from oni.recipes.training.ray_grid import train_on_ray

        return train_on_ray(jobs, overall, engine, folder, accelerator, resumes=resumes)


def train_in_turns(jobs: Sequence[Job[T]], overall: Overall) -> list[T]:
    """Every run; one that another process is training comes last, so that several processes share the work."""
    finished: dict[int, T] = {}
    turns, postponed, awaited = deque(range(len(jobs))), 0, 0
    while turns:
        number = turns.popleft()
        run = overall.begin(jobs[number].heading, jobs[number].step_cost)
        try:
            finished[number], postponed = jobs[number].train(Attempt(run)), 0
        except Busy:
            turns.append(number)
            postponed += 1
            if postponed >= len(turns):
                if awaited != len(turns):
                    awaited = len(turns)
                    runs = "a run" if awaited == 1 else f"{awaited} runs"
                    overall.note(f"waiting for {runs} that other processes have; Ctrl-C leaves them alone")
                time.sleep(POLL_SECONDS)
        else:
            run.finish()
    return [finished[number] for number in range(len(jobs))]
