"""States of a model, an optimizer and generators as plain tensors: the same whether a process has all or a shard."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

__all__ = ["random_state", "restore", "restore_random_state", "states"]


def states(model: nn.Module, optimizer: Optimizer) -> tuple[dict[str, Any], dict[str, Any]]:
    """The whole states of both; every process takes part."""
    # As a plain dict, without the versions that torch attaches to it.
    return whole(dict(model.state_dict())), whole(optimizer.state_dict())


def restore(
    model: nn.Module, optimizer: Optimizer, model_state: dict[str, Any], optimizer_state: dict[str, Any]
) -> None:
    """Put both back, into shards where there are some; every process takes part."""
    present = model.state_dict()
    model.load_state_dict({name: like(present[name], value) for name, value in model_state.items()})
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    of_each = {
        index: {name: like(parameters[index], value) for name, value in of_one.items()}
        for index, of_one in optimizer_state["state"].items()
    }
    optimizer.load_state_dict({**optimizer_state, "state": of_each})


def whole(value: Any) -> Any:
    if isinstance(value, DTensor):
        return value.full_tensor()
    return {key: whole(of) for key, of in value.items()} if isinstance(value, dict) else value


def like(present: Tensor, value: Any) -> Any:
    """The value in shards, if what it belongs to is."""
    if isinstance(present, DTensor) and isinstance(value, Tensor) and value.shape == present.shape:
        return distribute_tensor(value.to(present.device), present.device_mesh, present.placements)
    return value


def random_state(device: torch.device) -> list[Tensor]:
    """Of torch's generators, the CPU's and the device's."""
    own = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *own]


def restore_random_state(state: list[Tensor], device: torch.device) -> None:
    """Put torch's generators back."""
    torch.set_rng_state(state[0])
    if device.type == "cuda" and len(state) > 1:
        torch.cuda.set_rng_state(state[1], device)
