"""How well conditioned the proxies stay in training, and how orthogonal the weights computed from them are."""

from __future__ import annotations

import copy
import time
from typing import Any

import torch
from torch import Tensor, nn

from oni.diagnostics.spectrum import condition_number
from oni.models.retune import has_targets, retune
from oni.models.select import find_proxied_weights
from oni.models.summary import summary
from oni.newton.bounding import centred
from oni.newton.matrix import split_groups
from oni.newton.orthogonalize import check_options
from oni.nn.parametrization import Orthogonal

__all__ = ["CONDITIONING", "watch_conditioning"]

CONDITIONING = "conditioning"
"""At the end of every epoch: condition numbers of the proxies, and how orthogonal the weights are."""


def watch_conditioning(model: nn.Module) -> dict[str, Any]:
    """For every orthogonal weight: the condition number of its proxy, its smallest singular value, delta and steps.

    If weights have a target, also how many of them :func:`oni.retune` would change, and how many seconds that takes.
    """
    rows = [row for row in summary(model).rows if row.sigma is not None and row.delta is not None]
    measured: dict[str, Any] = {
        "condition": [round(value, 4) for value in proxy_conditions(model)],
        "smallest": [round(row.sigma[0], 4) for row in rows if row.sigma is not None],
        "delta": [round(row.delta, 4) for row in rows if row.delta is not None],
        "steps": [row.steps for row in rows],
    }
    if not has_targets(model):
        return measured
    own = copy.deepcopy(model)
    since = time.perf_counter()
    changes = retune(own)
    return {**measured, "retuned": len(changes), "retune_seconds": round(time.perf_counter() - since, 4)}


@torch.no_grad()
def proxy_conditions(model: nn.Module) -> list[float]:
    """The condition number of every proxy as it is orthogonalised: centred or not, the worst of its groups."""
    conditions = []
    for weight, parametrization in find_proxied_weights(model):
        if isinstance(parametrization, Orthogonal):
            Z: Tensor = weight.module.parametrizations[weight.name].original  # type: ignore[union-attr, index]
            matrices = parametrization.layout.matrices(Z)
            _, center, groups = check_options(matrices.shape, **parametrization.options.of_orthogonalize())
            matrices = split_groups(matrices.double(), groups)
            conditions.append(float(condition_number(centred(matrices.clone()) if center else matrices).max()))
    return conditions
