"""Where a run trains: a CPU, one GPU or many, through Lightning Fabric."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from torch import nn

from oni.names import unknown_name
from oni.recipes.data.batches import Unreadable
from oni.recipes.run_files.run_folder import Busy

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Hardware", "is_first_process", "launch_fabric", "on_first_process", "print_errors_once"]

STRATEGIES = ("auto", "ddp", "fsdp2")
ACCELERATORS = ("auto", "cpu", "cuda", "gpu", "mps")
PROCESSES_PER_CORE = 4
"""More CPU processes than this are a mistake: they would take minutes to start, and then wait for each other."""
MOST_READERS = 16
"""More readers than this are of no use: they would decode faster than a device trains."""
CLUSTERS = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "SLURM_JOB_ID", "LSB_JOBID")
"""Environment variables, each of which says how the machines find each other."""

T = TypeVar("T")


@dataclass(frozen=True)
class Hardware:
    """What Fabric is asked for. Under torchrun, that says how many processes there are."""

    accelerator: str = "auto"
    devices: int = 1
    """On each node."""
    strategy: str = "auto"
    """``"ddp"``: every device has the whole model; ``"fsdp2"``: a part of it; ``"auto"``: ddp if there are several."""
    num_nodes: int = 1
    workers: int | None = None
    """Processes that read samples which are not in memory, on each device; a share of the cores otherwise."""
    compile: bool = False
    """Whether torch compiles the models. Results are the same but for rounding."""
    share: bool = False
    """Whether the devices share the work of orthogonalisation. Results are the same but for rounding."""

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(unknown_name("strategy", self.strategy, STRATEGIES))
        if self.accelerator not in ACCELERATORS:
            raise ValueError(unknown_name("accelerator", self.accelerator, ACCELERATORS))
        for name in ("devices", "num_nodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.workers is not None and self.workers < 0:
            raise ValueError(f"--workers must be at least 0, got {self.workers}")
        if self.share and self.strategy == "fsdp2":
            raise ValueError("--share: under fsdp2 no device holds whole weights; pass --strategy ddp")
        if self.share and self.compile:
            raise ValueError("--share: a compiled network computes all its weights itself; leave out --compile")
        self.check_machine()

    @property
    def readers(self) -> int:
        """How many processes read samples for each device: a core each, one of them for training itself."""
        if self.workers is not None:
            return self.workers
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(MOST_READERS, max(0, cores // self.devices - 1))

    @property
    def single_device(self) -> str:
        """Where one process computes something by itself: "cuda" or "cpu"."""
        return "cuda" if self.accelerator in ("auto", "cuda", "gpu") and torch.cuda.is_available() else "cpu"

    def check_machine(self) -> None:
        """Refuse devices that this machine does not have: Fabric would wait for them."""
        cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
        if (self.accelerator == "cuda" and not cuda) or (self.accelerator == "mps" and not mps):
            raise ValueError(f"--accelerator {self.accelerator}: torch finds no such device; pass --accelerator cpu")
        if self.accelerator == "gpu" and not (cuda or mps):
            raise ValueError("--accelerator gpu: torch finds no GPU; pass --accelerator cpu")
        if cuda and self.accelerator != "cpu":
            most, what = torch.cuda.device_count(), "GPUs"
        elif mps and self.accelerator != "cpu":
            most, what = 1, "GPU"
        else:
            most, what = PROCESSES_PER_CORE * (os.cpu_count() or 1), f"processes ({PROCESSES_PER_CORE} per core)"
        if self.devices > most:
            raise ValueError(f"--devices {self.devices}: this machine has at most {most} {what}; pass {most} or fewer")
        if self.num_nodes > 1 and not any(name in os.environ for name in CLUSTERS):
            raise ValueError(
                f"--num-nodes {self.num_nodes}: the machines don't know each other; start the command on each of them "
                f"with torchrun --nnodes {self.num_nodes} --nproc-per-node {self.devices} --rdzv-backend c10d "
                "--rdzv-endpoint HOST:PORT -m oni.cli ..."
            )


def is_first_process() -> bool:
    """Whether this process prints and writes for all; also before Fabric is launched."""
    ranks = ("RANK",) if "RANK" in os.environ else ("NODE_RANK", "LOCAL_RANK")
    return all(int(os.environ.get(rank, 0)) == 0 for rank in ranks)


def on_first_process(fabric: Fabric, function: Callable[[], T]) -> T:
    """Call a function in the first process; all return its value, or raise what it raised."""
    if fabric.world_size == 1:
        return function()
    outcome: tuple[Any, BaseException | None] = (None, None)
    if fabric.is_global_zero:
        try:
            outcome = (function(), None)
        except Exception as error:
            # Without its cause and traceback, which may not be picklable.
            outcome = (None, error.with_traceback(None))
            error.__cause__ = error.__context__ = None
    value, failure = fabric.broadcast(outcome)
    if failure is not None:
        raise failure
    return cast(T, value)


@contextmanager
def print_errors_once() -> Iterator[None]:
    """Where all processes meet the same error, let the first one raise it and the others end without a word.

    Except for what callers handle: that another process trains the run, and Ctrl-C. A sample that can't be read is met
    by one process alone.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        if is_first_process() or isinstance(error, Busy | Unreadable):
            raise
        raise SystemExit(getattr(error, "exit_code", 2)) from None


@contextmanager
def hidden(package: str) -> Iterator[None]:
    """Let nothing inside load a package that is not loaded yet.

    Fabric loads all of torchmetrics, and with it transformers where that is installed, to read a version it does not
    use here: seconds in every process.
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = cast(Any, None)
    try:
        yield
    finally:
        del sys.modules[package]


def launch_fabric(hardware: Hardware, precision: str) -> Fabric:
    """Fabric with its processes started; with several, this script runs in each of them from its beginning."""
    # It takes seconds to load, and most commands train nothing.
    with hidden("torchmetrics"):
        from lightning_fabric import Fabric
        from lightning_fabric.strategies.model_parallel import ModelParallelStrategy

    # It would say anew for every run which precision it has.
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    devices, num_nodes = hardware.devices, hardware.num_nodes
    if "TORCHELASTIC_RUN_ID" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        num_nodes = int(os.environ["WORLD_SIZE"]) // devices
    strategy: Any = hardware.strategy
    if strategy == "fsdp2":
        # Its own choice is one data-parallel process per node, the others tensor-parallel: none would be in step.
        strategy = ModelParallelStrategy(shard_layers, data_parallel_size=devices * num_nodes, tensor_parallel_size=1)
    elif strategy == "auto" and devices * num_nodes > 1:
        strategy = "ddp"
    fabric = Fabric(
        accelerator=hardware.accelerator,
        devices=devices,
        num_nodes=num_nodes,
        strategy=strategy,
        # Its own 64-true makes the outputs single again; 32-true touches no dtype, and the model is double already.
        precision=cast(Any, "32-true" if precision == "64-true" else precision),
    )
    fabric.launch()
    return fabric


def shard_layers(model: nn.Module, mesh: Any) -> nn.Module:
    """Shard every linear and convolutional layer on its own, then the rest."""
    from torch.distributed.fsdp import fully_shard

    mesh = mesh["data_parallel"]
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.modules.conv._ConvNd):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model
