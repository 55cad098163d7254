"""Where a run trains: a CPU, one GPU or many, through Lightning Fabric."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, cast

from lightning_fabric import Fabric
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from torch import nn

__all__ = ["Hardware", "first_process", "launched"]

STRATEGIES = ("auto", "ddp", "fsdp2")


@dataclass(frozen=True)
class Hardware:
    """What Fabric is asked for. Under torchrun, that says how many processes there are."""

    accelerator: str = "auto"
    devices: int = 1
    """On each node."""
    strategy: str = "auto"
    """``"ddp"``: every device has the whole model; ``"fsdp2"``: a part of it; ``"auto"``: ddp if there are several."""
    num_nodes: int = 1

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, got {self.strategy!r}")
        for name in ("devices", "num_nodes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")


def first_process() -> bool:
    """Whether this process speaks and writes for all; also before Fabric is launched."""
    ranks = ("RANK",) if "RANK" in os.environ else ("NODE_RANK", "LOCAL_RANK")
    return all(int(os.environ.get(rank, 0)) == 0 for rank in ranks)


def launched(hardware: Hardware, precision: str) -> Fabric:
    """Fabric with its processes started; with several, this script runs in each of them from its beginning."""
    devices, num_nodes = hardware.devices, hardware.num_nodes
    if "TORCHELASTIC_RUN_ID" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        num_nodes = int(os.environ["WORLD_SIZE"]) // devices
    strategy: Any = hardware.strategy
    if strategy == "fsdp2":
        # Its own choice is one data-parallel process per node, the others tensor-parallel: none would be in step.
        strategy = ModelParallelStrategy(shard, data_parallel_size=devices * num_nodes, tensor_parallel_size=1)
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


def shard(model: nn.Module, mesh: Any) -> nn.Module:
    """Every linear and convolutional layer on its own, then the rest."""
    from torch.distributed.fsdp import fully_shard

    mesh = mesh["data_parallel"]
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.modules.conv._ConvNd):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model
