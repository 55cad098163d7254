"""How much memory a run needs on each device, computed on the meta device, without training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oni.models.select import choose_weights
from oni.recipes.networks.registry import NETWORKS, find_plain_layers
from oni.recipes.run_files.config import Config
from oni.recipes.training.devices import Hardware

__all__ = ["describe_memory", "estimate_memory"]

KEPT = {"oni": 5, "oni-ns": 5, "olm": 5, "olm-ns": 5, "wn": 1, "centred-wn": 1, "sn": 1}
"""What a method keeps of each weight that it computes, in sizes of that weight: 4.5 to 5.6 for ONI of 2 to 5 steps."""


def estimate_memory(config: Config, shape: Sequence[int], *, devices: int = 1) -> int:
    """Bytes for weights, gradients, momentum and all that a training step keeps for its backward pass.

    It does not include what the backward pass itself needs, nor what libraries reserve.

    Args:
        config: of a classification.
        shape: of one image.
        devices: that share a batch; each has the whole model.

    >>> config = Config(network_options={"depth": 1, "width": 8}, method="plain", batch_size=100)
    >>> estimate_memory(config, (1, 28, 28))  # 4 bytes for 100 x (784 + 8 + 10) numbers and 2 x 6,370, and labels
    372564
    """
    with torch.device("meta"):
        network = NETWORKS[config.network](**config.network_options)
        share = max(1, config.batch_size // devices // config.accumulate)
        activations = count_kept(network, torch.empty(share, *shape), torch.zeros(share, dtype=torch.long))
    if config.precision.endswith("16-mixed"):
        activations //= 2
    skip = find_plain_layers(network, change_output=config.change_output)
    changed = [weight for weight, why in choose_weights(network, None, skip) if not why]
    computed = sum(getattr(weight.module, weight.name).nbytes for weight in changed)
    has_momentum = config.optimizer == "adam" or config.momentum > 0
    weights = sum(parameter.nbytes for parameter in network.parameters())
    return weights * (2 + has_momentum) + activations + KEPT.get(config.method, 0) * computed


def count_kept(network: nn.Module, images: Tensor, labels: Tensor) -> int:
    """Bytes that a forward pass keeps for the backward pass, without the parameters."""
    parameters = {parameter.untyped_storage()._cdata for parameter in network.parameters()}
    kept: dict[int, Any] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in parameters:
            # Held, or another could get the same address.
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        F.cross_entropy(network(images), labels)
    return sum(storage.nbytes() for storage in kept.values())


def describe_memory(configs: Sequence[Config], hardware: Hardware) -> str:
    """The memory that the largest of these needs on each device, in words."""
    devices = hardware.devices * hardware.num_nodes
    size = configs[0].data_options["size"]
    # Each network once, with ONI if that is among its methods, because it needs most.
    largest = {json.dumps(config.network_options): config for config in configs if config.method != "oni"}
    largest |= {json.dumps(config.network_options): config for config in configs if config.method == "oni"}
    memory = max(estimate_memory(config, (3, size, size), devices=devices) for config in largest.values())
    at_once = configs[0].batch_size // devices // configs[0].accumulate
    where = "1 device" if devices == 1 else f"each of {devices} devices"
    return f"about {memory / 1e9:.2g} GB on {where} for {at_once} images of {size} x {size} at once"
