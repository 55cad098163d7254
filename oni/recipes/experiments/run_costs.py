"""The relative cost of runs, from which the time left is estimated."""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

from oni.recipes.experiments.runs import Training, count_steps

if TYPE_CHECKING:
    from oni.recipes.run_files.config import Config

__all__ = ["estimate_cost", "estimate_training"]


def estimate_cost(training: Training) -> float:
    """The multiplications and additions of a run and its trials."""
    return sum(map(estimate_training, [training.config, *training.trials()]))


def estimate_training(config: Config) -> float:
    """Forward and backward passes and orthogonalisation, in all steps. Small batches use the machine less well."""
    forward, orthogonal = count_products(config.network, json.dumps(config.network_options), config.data)
    updates = 1 + int(config.task_options.get("n_dis", 0))
    return count_steps(config) * updates * (3 * (config.batch_size + 8) * forward + count_passes(config) * orthogonal)


def count_passes(config: Config) -> float:
    """The cost of a method for all weights, in units of five Newton steps."""
    steps = config.method_options.get("steps")
    if config.method.startswith("oni"):
        # Other types are refused when the run is trained.
        return 0.4 if config.method_options.get("sigma_min") or not isinstance(steps, int) else (1 + steps) / 6
    others = {"cayley": 1.8, "cholesky": 0.4, "torchlip": 1.5, "orthogonium": 1.5, "olm": 1.0, "olm-ns": 1.0}
    return others.get(config.method, 0.0)


@cache
def count_products(network: str, options: str, data: str) -> tuple[float, float]:
    """Operations of a network for the forward pass of one image, and for orthogonalising all weights with gradient.

    Five Newton steps for n x d, n <= d, take 24 products of n x n and 5 of n x d.
    """
    import torch
    from torch import nn
    from torch.utils.flop_counter import FlopCounterMode

    from oni.recipes.data.datasets import DATASETS
    from oni.recipes.networks.gan import GAN
    from oni.recipes.networks.registry import NETWORKS

    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model = NETWORKS[network](**json.loads(options))
        if isinstance(model, GAN):
            model.discriminator(model.generator(torch.empty(2, model.latent)))
        else:
            model.eval()(torch.empty(1, *DATASETS[data].shape))
    products = 0.0
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            short, long = sorted((module.weight.shape[0], module.weight[0].numel()))
            products += 2 * (24 * short**3 + 5 * short**2 * long)
    return float(counter.get_total_flops()), products
