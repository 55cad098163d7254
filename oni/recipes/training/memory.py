"""How much memory a run needs on each device, computed without training: on tensors that have shapes only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oni.recipes.tasks.classification import build_network
from oni.recipes.training.config import Config

__all__ = ["estimate_memory"]


def estimate_memory(config: Config, shape: Sequence[int], *, devices: int = 1) -> int:
    """Bytes for weights, gradients, momentum and all that a training step keeps for its backward pass.

    What the backward pass itself needs beside these, and what libraries reserve, is not in it.

    Args:
        config: of a classification.
        shape: of one image.
        devices: that share a batch; each has the whole model.

    >>> config = Config(network_options={"depth": 1, "width": 8}, method="plain", batch_size=100)
    >>> estimate_memory(config, (1, 28, 28))  # 4 bytes for 100 x (784 + 8 + 10) numbers and 2 x 6,370, and labels
    372564
    """
    share = max(1, config.batch_size // devices // config.accumulate)
    with torch.device("meta"):
        network: Any = build_network(config)
        images = torch.empty(share, *shape, dtype=next(network.parameters()).dtype)
        labels = torch.zeros(share, dtype=torch.long)
    parameters = {parameter.untyped_storage()._cdata: parameter for parameter in network.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in parameters:
            # Held, or another could get the same address.
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        F.cross_entropy(network(images), labels)
    weights = sum(parameter.untyped_storage().nbytes() for parameter in parameters.values())
    activations = sum(storage.nbytes() for storage in kept.values())
    if config.precision.endswith("16-mixed"):
        activations //= 2
    has_momentum = config.optimizer == "adam" or config.momentum > 0
    return weights * (2 + has_momentum) + activations
