"""``signal``: how large activations and gradients are, layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from oni.diagnostics.operator import CONVOLUTIONS
from oni.diagnostics.untouched import untouched

__all__ = ["LayerSignal", "signal"]


class LayerSignal(NamedTuple):
    """Mean absolute values at one layer, in one call of it."""

    layer: str
    kind: str
    input: float
    """Of the input x: the activations of the layer before."""
    output: float
    """Of the output h, before any activation."""
    gradient: float
    """Of the loss by h; NaN where the loss does not depend on h."""


def signal(
    model: nn.Module,
    x: Any,
    loss: Callable[[Any], Tensor],
    *,
    layers: tuple[type[nn.Module], ...] = (nn.Linear, *CONVOLUTIONS),
) -> list[LayerSignal]:
    r"""The mean absolute activation and gradient of every layer, in the order in which they run.

    .. math:: \frac{1}{m d} \sum_{i=1}^{m} \sum_{j=1}^{d} |x_{ij}|, \qquad
              \frac{1}{m n} \sum_{i=1}^{m} \sum_{j=1}^{n} \Bigl|\frac{\partial L}{\partial h_{ij}}\Bigr|

    If they fall or rise exponentially with depth, a network is hard to train.

    Args:
        model: any module. It runs in its current mode; modes, gradients, buffers, hooks and random numbers are left
            unchanged, also after an error.
        x: what the model is called with; a tuple is several arguments.
        loss: a function from the model's output to a scalar.
        layers: the types of modules to look at.

    Returns:
        One row for each call of such a layer that returns a tensor.

    >>> model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> rows = signal(model, torch.randn(64, 8), lambda y: y.sum())
    >>> [(row.layer, row.input > 0, row.gradient) for row in rows][1]
    ('2', True, 1.0)
    """
    seen: list[tuple[str, nn.Module, float, float]] = []
    probes: list[Tensor] = []
    handles = []

    def watched(name: str) -> Callable[..., Tensor | None]:
        def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Tensor | None:
            if not isinstance(output, Tensor):
                return None
            before = next((value for value in inputs if isinstance(value, Tensor)), None)
            # Zeros added to the output have its gradient, though what follows may write over it in place.
            probe = torch.zeros_like(output, requires_grad=True)
            probes.append(probe)
            seen.append((name, module, mean_absolute(before), mean_absolute(output)))
            return output + probe

        return hook

    with untouched(model), torch.enable_grad():
        try:
            for name, module in model.named_modules():
                if isinstance(module, layers):
                    handles.append(module.register_forward_hook(watched(name)))
            value = loss(model(*x) if isinstance(x, tuple) else model(x))
        finally:
            for handle in handles:
                handle.remove()
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"loss must return a scalar tensor, got {got}; take its mean()")
        gradients: tuple[Tensor | None, ...] = (None,) * len(probes)
        if probes and value.requires_grad:
            gradients = torch.autograd.grad(value, probes, allow_unused=True)
    return [
        LayerSignal(name, type(module).__name__.removeprefix("Parametrized"), before, after, mean_absolute(gradient))
        for (name, module, before, after), gradient in zip(seen, gradients, strict=True)
    ]


def mean_absolute(values: Tensor | None) -> float:
    return float("nan") if values is None else float(values.detach().abs().double().mean())
