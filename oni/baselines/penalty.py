"""Soft orthogonality: a term for the loss that pulls weights towards orthogonal rows, and guarantees nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from oni.models.select import Selector, choose_weights
from oni.newton.matrix import is_tall
from oni.newton.orthogonalize import disable_autocast
from oni.nn.parametrization import get_layout

__all__ = ["KINDS", "penalty"]

KINDS = ("soft", "double", "srip")
POWER_ITERATIONS = 2


def penalty(
    model: nn.Module,
    coefficient: float = 1e-4,
    *,
    kind: str = "soft",
    only: Selector = None,
    skip: Selector = None,
) -> Tensor:
    r"""How far the weights of a model are from orthogonal, times a coefficient: add it to the loss.

    With each chosen weight as a matrix W whose rows are output filters, and the sum over all of them,

    =========== ====================================================================================================
    ``soft``    :math:`c \sum \|W W^\top - I\|_F^2`. Its least value for a tall W (n > d) is n - d, not zero.
    ``double``  :math:`c \sum \|W W^\top - I\|_F^2 + \|W^\top W - I\|_F^2`
    ``srip``    :math:`c \sum \|W W^\top - I\|_2`, :math:`W^\top W` for a tall W, the norm estimated from below by two
                power iterations from a random vector of torch's global generator (Bansal et al.'s restricted isometry)
    =========== ====================================================================================================

    The coefficient is exactly this factor: no 1/2, no mean over layers or entries. The gradient of ``soft`` is
    :math:`4 c (W W^\top - I) W`, which the optimizer then multiplies by its learning rate. The ONI authors' code
    differs: before each step it subtracts :math:`\lambda (W W^\top - I) W` from W, without the learning rate, and
    decays all weights by the same :math:`\lambda` as well. For SGD at learning rate :math:`\eta` without momentum the
    first is :math:`c = \lambda / 4 \eta` here.

    Args:
        model: any module; for parametrised layers the effective weight counts.
        coefficient: c.
        kind: ``"soft"``, ``"double"`` or ``"srip"``.
        only, skip: which layers, as in :func:`oni.convert`; by default all linear and convolutional ones. Each group of
            a grouped convolution is a separate matrix. A shared weight counts once.

    Returns:
        A scalar with a graph, in float32 or float64.

    >>> model = nn.Linear(8, 4)
    >>> _ = nn.init.orthogonal_(model.weight)
    >>> bool(penalty(model) < 1e-12)
    True

    References: Xie et al., *All You Need is Beyond a Good Init*, CVPR 2017; Bansal et al., *Can We Gain More from
    Orthogonality Regularizations in Training Deep CNNs?*, NeurIPS 2018.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if isinstance(coefficient, bool) or not isinstance(coefficient, int | float) or not math.isfinite(coefficient):
        raise ValueError(f"coefficient must be a finite number, got {coefficient!r}; pass for example 1e-4")
    if coefficient < 0:
        raise ValueError(f"coefficient must not be negative, got {coefficient!r}, which rewards non-orthogonal W")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r}")
    terms = []
    for W in matrices(model, only, skip):
        with disable_autocast(W.device.type):
            terms.append(distance(W if W.dtype == torch.float64 else W.float(), kind))
    if not terms:
        raise ValueError("model has no layer to penalise: it has no linear or convolutional layer, or all are skipped")
    device = terms[0].device
    return coefficient * torch.stack([term.to(device) for term in terms]).sum()


def matrices(model: nn.Module, only: Selector, skip: Selector) -> Iterator[Tensor]:
    """The chosen weights as matrices of output filters, ``(n, d)`` or ``(groups, n, d)``."""
    seen: set[int] = set()
    for weight, why in choose_weights(model, only, skip):
        if why:
            continue
        own = weight.parametrization
        shared = weight.module._parameters[weight.name] if own is None else own
        if id(shared) in seen:
            continue
        seen.add(id(shared))
        W = get_layout(weight.module).matrices(getattr(weight.module, weight.name))
        yield W if weight.groups == 1 else W.unflatten(-2, (weight.groups, -1))


def distance(W: Tensor, kind: str) -> Tensor:
    if kind == "srip":
        return spectral_norm(W.mT if is_tall(*W.shape[-2:]) else W).sum()
    total = gap(W).square().sum()
    return total if kind == "soft" else total + gap(W.mT).square().sum()


def gap(W: Tensor) -> Tensor:
    return W @ W.mT - torch.eye(W.shape[-2], dtype=W.dtype, device=W.device)


def spectral_norm(W: Tensor) -> Tensor:
    """About the norm of W W^T - I: that of its image of a vector found by power iteration."""

    def image(v: Tensor) -> Tensor:
        return W @ (W.mT @ v) - v

    with torch.no_grad():
        v = torch.randn(*W.shape[:-1], 1, dtype=W.dtype, device=W.device)
        for _ in range(POWER_ITERATIONS):
            v = nn.functional.normalize(image(v), dim=-2)
    return torch.linalg.vector_norm(image(v), dim=(-2, -1))
