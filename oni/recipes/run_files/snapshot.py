"""The states of models, optimisers and random generators as plain tensors, whether or not weights are sharded."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

__all__ = ["gather_shards", "load_model", "load_optimizer", "load_random_state", "random_state"]


def gather_shards(value: Any) -> Any:
    """A state with whole tensors instead of shards; every process takes part."""
    if isinstance(value, DTensor):
        return value.full_tensor()
    return {key: gather_shards(item) for key, item in value.items()} if isinstance(value, dict) else value


def load_model(model: nn.Module, state: dict[str, Any]) -> None:
    """Load a whole state, into shards where there are some; every process takes part."""
    present = model.state_dict()
    model.load_state_dict({name: shard_like(present[name], value) for name, value in state.items()})


def load_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Load a whole state, into shards where there are some; every process takes part."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    by_parameter = {
        index: {name: shard_like(parameters[index], value) for name, value in values.items()}
        for index, values in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": by_parameter})


def shard_like(present: Tensor, value: Any) -> Any:
    """The value, sharded like the tensor that it belongs to."""
    if isinstance(present, DTensor) and isinstance(value, Tensor) and value.shape == present.shape:
        return distribute_tensor(value.to(present.device), present.device_mesh, present.placements)
    return value


def random_state(device: torch.device) -> list[Tensor]:
    """The states of torch's generators, the CPU's and the device's."""
    on_device = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *on_device]


def load_random_state(state: list[Tensor], device: torch.device) -> None:
    """Restore torch's generators."""
    torch.set_rng_state(state[0])
    if device.type == "cuda" and len(state) > 1:
        torch.cuda.set_rng_state(state[1], device)
