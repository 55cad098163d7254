"""``param_groups``: weight decay for what it has an effect on."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from oni.models.proxied import check_model, walk_proxied

__all__ = ["param_groups"]


def param_groups(model: nn.Module, *, weight_decay: float) -> list[dict[str, Any]]:
    """Group the parameters of a model for an optimizer: proxies without weight decay, the rest with it.

    A weight does not depend on the scale of its proxy, so decay would only shrink the proxy and raise its effective
    learning rate. The learnable scale of such a weight does not decay either.

    Args:
        model: any module, converted or not.
        weight_decay: for all other parameters, including biases, as with ``model.parameters()``.

    Returns:
        One or two groups, each parameter once.

    >>> import torch, oni
    >>> model = oni.convert(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)), skip="1")
    >>> groups = param_groups(model, weight_decay=0.01)
    >>> [(len(group["params"]), group["weight_decay"]) for group in groups]
    [(3, 0.01), (1, 0.0)]
    >>> optimizer = torch.optim.AdamW(groups, lr=1e-3)
    """
    check_model(model)
    is_number = isinstance(weight_decay, int | float) and not isinstance(weight_decay, bool)
    if not is_number or not 0 <= weight_decay < math.inf:
        raise ValueError(f"weight_decay must be a number of at least 0, got {weight_decay!r}; pass for example 1e-4")
    computed = {id(parameter) for _, _, _, holder in walk_proxied(model) for parameter in holder.parameters()}
    groups: list[dict[str, Any]] = [
        {"params": [], "weight_decay": float(weight_decay)},
        {"params": [], "weight_decay": 0.0},
    ]
    for parameter in model.parameters():
        groups[id(parameter) in computed]["params"].append(parameter)
    return [group for group in groups if group["params"]]
