"""The networks that several processes train together, and one measurement of them in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from os import environ
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

import oni
from oni.bench.processes.model import count_network_work
from oni.bench.processes.result import ProcessesResult
from oni.bench.settings import Settings
from oni.bench.training_times import STEPS, MethodTimes, TrainingMethod, TrainingResult
from oni.recipes.networks.mlp import MLP
from oni.recipes.networks.resnet_imagenet import resnet18
from oni.timing import Watch

__all__ = ["NETWORKS", "PROCESSES_CASES", "ProcessesCase", "begin", "list_shared_methods", "measure_processes"]

NETWORKS: dict[str, Callable[..., nn.Module]] = {"mlp": MLP, "resnet18": resnet18}
GROWTH = (1, 2, 4)
"""Numbers of processes, besides the one that is asked for, at which the first case is measured too."""


@dataclass(frozen=True)
class ProcessesCase:
    """A network in plain values, as every process builds its own, and the batch of each process."""

    name: str
    about: str
    network: str
    options: dict[str, Any]
    shape: tuple[int, ...]
    batch: int
    classes: int = 10
    quick: bool = False
    grows: bool = False
    """Whether to measure it with several numbers of processes."""

    def build(self) -> nn.Module:
        return NETWORKS[self.network](**self.options)


def _mlp(depth: int, width: int, **more: Any) -> ProcessesCase:
    name = "mlp20-b256" if (depth, width) == (20, 256) else f"mlp{depth}-w{width}"
    options = {"depth": depth, "width": width}
    return ProcessesCase(name, f"{depth}-layer 784-{width} MLP, batch 256", "mlp", options, (784,), 256, **more)


PROCESSES_CASES = (
    _mlp(20, 256, quick=True, grows=True),
    ProcessesCase("resnet18-b32", "ResNet-18 at 64x64, batch 32", "resnet18", {"classes": 200}, (3, 64, 64), 32, 200),
    _mlp(20, 128),
    _mlp(20, 512),
    _mlp(10, 256),
    _mlp(40, 256),
)


def list_shared_methods(processes: int) -> list[TrainingMethod]:
    """The plain network, and ``oni`` without and with sharing."""
    methods = [TrainingMethod("plain", lambda net: None)]
    for steps in STEPS:
        methods.append(TrainingMethod(f"oni T={steps}", partial(oni.convert, steps=steps), steps, ours=True))
        if processes > 1:
            share = partial(convert_and_share, steps=steps)
            methods.append(TrainingMethod(f"oni T={steps} shared", share, steps, f"oni T={steps}", ours=True))
    return methods


def convert_and_share(net: nn.Module, steps: int) -> None:
    """Convert a network whose weights the processes of the group then share."""
    oni.share(oni.convert(net, steps=steps))


def begin(case: ProcessesCase) -> ProcessesResult:
    """The empty result of a case."""
    return ProcessesResult(case.name, case.about, {steps: count_network_work(case.build(), steps) for steps in STEPS})


def measure_processes(case: ProcessesCase, result: ProcessesResult, settings: Settings, watch: Watch) -> None:
    """Measure a case with the number of processes that is asked for, and the first one with others beside it."""
    assert settings.processes is not None
    result.asked = settings.processes
    counts = {result.asked, *(GROWTH if case.grows and not settings.quick else ())}
    for number, processes in enumerate(sorted(counts)):
        watch(f"{processes} processes", number / len(counts))
        launch(case, processes, result, settings)


def launch(case: ProcessesCase, processes: int, result: ProcessesResult, settings: Settings) -> None:
    """Let so many processes measure_processes, each with its threads; a failure is said in every row."""
    at = result.by_processes[processes] = TrainingResult(case.name, case.about)
    at.entries.update({method.name: MethodTimes(method) for method in list_shared_methods(processes)})
    plan = {**asdict(case), "seconds": settings.seconds, "least_rounds": settings.least_rounds}
    threads = str(settings.threads)
    environment = {**environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    with TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "oni.bench.processes.worker", json.dumps(plan), str(processes), folder]
        running = [
            subprocess.Popen([*words, str(rank)], env=environment, stderr=subprocess.PIPE, text=True)
            for rank in range(processes)
        ]
        try:
            errors = [process.communicate()[1] for process in running]
        finally:
            for process in running:
                process.kill()
        if any(process.returncode for process in running):
            failed = next(rank for rank, process in enumerate(running) if process.returncode)
            last = errors[failed].strip().splitlines()[-1:] or [f"exit code {running[failed].returncode}"]
            for entry in at.entries.values():
                entry.word = f"failed in process {failed}: {last[0]}"
            return
        measured = json.loads(Path(folder, "measured.json").read_text(encoding="utf-8"))
    for name, times in measured["times"].items():
        at.entries[name].times.update({int(number): seconds for number, seconds in times.items()})
    if processes > 1:
        result.exchange_seconds[processes] = measured["exchange_seconds"]
