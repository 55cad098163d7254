"""Optimisers: which parameters decay, and the learning rate of each epoch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from oni.recipes.run_files.config import Config

__all__ = ["build_optimizer", "learning_rate_at", "parameter_groups", "set_learning_rate"]

SCALES = ("scale", "original0")
"""The learnable scale of ONI and OLM, and the norm in torch's weight normalisation, by their names."""


def parameter_groups(model: nn.Module, weight_decay: float, *, decay_scales: bool = False) -> list[dict[str, Any]]:
    """All parameters: those that decay, and the learnable scales of a method, which by default do not.

    >>> [len(group["params"]) for group in parameter_groups(nn.Linear(2, 3), 0.1)]
    [2]
    """
    scales: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        is_scale = "parametrizations." in name and name.rpartition(".")[2] in SCALES
        (scales if is_scale else others).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": others, "weight_decay": weight_decay},
        {"params": scales, "weight_decay": weight_decay if decay_scales else 0.0},
    ]
    return [group for group in groups if group["params"]]


def build_optimizer(config: Config, model: nn.Module, *, beta2: float = 0.999) -> Optimizer:
    """The optimiser of a configuration, for one model; ``beta2`` is adam's second."""
    groups = parameter_groups(model, config.weight_decay, decay_scales=config.decay_scales)
    if config.optimizer == "adam":
        return torch.optim.Adam(groups, lr=config.learning_rate, betas=(config.momentum, beta2))
    return torch.optim.SGD(groups, lr=config.learning_rate, momentum=config.momentum, nesterov=config.nesterov)


def learning_rate_at(config: Config, epoch: int) -> float:
    """The learning rate of an epoch, counted from 0.

    >>> [learning_rate_at(Config(learning_rate=1, drops=(1, 3)), epoch) for epoch in range(4)]
    [1.0, 0.5, 0.5, 0.25]
    """
    return config.learning_rate * config.drop_factor ** sum(epoch >= drop for drop in config.drops)


def set_learning_rate(optimizer: Any, rate: float) -> None:
    """Set the learning rate of all parameter groups."""
    for group in optimizer.param_groups:
        group["lr"] = rate
