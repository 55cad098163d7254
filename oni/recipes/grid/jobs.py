"""What every grid of runs knows: a run to train, an attempt at it, and the engine that makes the attempt."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Generic, TypeVar

from oni.errors import make_install_command
from oni.names import unknown_name
from oni.recipes.progress.reporters import Reporter
from oni.recipes.training.devices import Hardware

__all__ = ["POLL_SECONDS", "Attempt", "Engine", "Job"]

ENGINES = ("local", "ray")
POLL_SECONDS = 5.0
"""Seconds to wait before trying again a run that another process is training."""

T = TypeVar("T")


@dataclass(frozen=True)
class Engine:
    """Where runs are trained. Only ``local`` trains one run on several devices."""

    name: str = "local"
    """``"local"``: in this process, one after the other; ``"ray"``: over a Ray cluster."""
    address: str | None = None
    """Of a running cluster: ``"auto"`` or ``HOST:PORT``. Otherwise Ray is started here, and stopped again."""
    gpus_per_run: float | None = None
    """A fraction of a GPU, up to a whole one. By default one if the cluster has GPUs, and none otherwise."""

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise ValueError(unknown_name("engine", self.name, ENGINES))
        given = {"--address": self.address, "--gpus-per-run": self.gpus_per_run}
        for option, value in given.items():
            if self.name == "local" and value is not None:
                raise ValueError(f"{option} {value} is only for a Ray cluster; add --engine ray, or leave it out")
        if self.gpus_per_run is not None and not 0 <= self.gpus_per_run <= 1:
            raise ValueError(
                f"--gpus-per-run must be from 0 to 1, because a run trains on one device; got {self.gpus_per_run}"
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
    """One attempt at a run: what an engine passes to the function that trains it."""

    reporter: Reporter
    resume: bool = False
    """Whether an earlier attempt may have left a checkpoint, from which to continue."""
    accelerator: str | None = None
    """Overrides the one that the user chose."""
    cores: int | None = None
    """How many cores the run may use, if not all of the machine."""

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
