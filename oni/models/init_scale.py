"""``init_scale``: learnable scales from one batch of data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from oni.diagnostics.operator import CONVOLUTIONS
from oni.models.proxied import check_model
from oni.models.select import Weight, find_proxied_weights
from oni.nn.from_proxy import FromProxy

__all__ = ["init_scale"]

M = TypeVar("M", bound=nn.Module)


def init_scale(model: M, batch: Any, *, std: float | Mapping[str, float] = 1.0) -> M:
    r"""Initialise the learnable scales so that each layer's pre-activations have unit variance on a batch.

    The paper's data-dependent initialisation (after Salimans and Kingma, 2016): in one forward pass, layer by layer,

    .. math:: g_i \leftarrow g_i\, r / s_i, \qquad b_i \leftarrow -m_i\, r / s_i,

    where :math:`m_i` and :math:`s_i` are the mean and standard deviation of filter i's output without its bias, over
    the batch and all positions, and r is ``std``. Each layer sees the outputs of the previous layers *after* their
    own initialisation. A filter whose output does not vary keeps its scale.

    In a residual network without normalisation, unit variance in every layer lets the sum grow with each of its L
    branches, and large learning rates fail. Give the last layer of each branch a ``std`` of :math:`L^{-1/2}`.

    Args:
        model: a model with linear or convolutional layers made orthogonal with ``learn_scale=True``.
        batch: what the model is called with: a tensor, a tuple of arguments, or a dict of keyword arguments.
        std: the target standard deviation, for all layers or by glob patterns on their names; 1 for the rest.

    Returns:
        The model itself. Only scales and biases of those layers change; running statistics are unchanged.

    >>> from oni.nn import Linear
    >>> layer = Linear(8, 4, learn_scale=True)
    >>> x = torch.randn(1000, 8)
    >>> init_scale(layer, x)(x).std(0).round(decimals=3)
    tensor([1., 1., 1., 1.], grad_fn=<RoundBackward1>)
    """
    check_model(model)
    targets = check_targets(std)
    layers = [
        (weight, parametrization)
        for weight, parametrization in find_proxied_weights(model)
        if parametrization.options.learn_scale
        and weight.name == "weight"
        and isinstance(weight.module, (nn.Linear, *CONVOLUTIONS))
    ]
    if not layers:
        raise ValueError(
            "model has no linear or convolutional layer with a learnable scale; pass learn_scale=True to oni.convert"
        )
    names = {module: name for name, module in model.named_modules()}
    for pattern in targets:
        if not any(fnmatchcase(names[weight.module], pattern) for weight, _ in layers):
            known = ", ".join(repr(names[weight.module]) for weight, _ in layers[:3])
            raise ValueError(f"the pattern {pattern!r} in std matches none of {known}, ...")
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    handles = []
    for weight, parametrization in layers:
        matching = [target for pattern, target in targets.items() if fnmatchcase(names[weight.module], pattern)]
        hook = _Normalise(weight, parametrization, matching[-1] if matching else 1.0)
        handles.append(weight.module.register_forward_hook(hook))
    try:
        with torch.no_grad():
            if isinstance(batch, Mapping):
                model(**batch)
            else:
                model(*(batch if isinstance(batch, tuple) else (batch,)))
    finally:
        for handle in handles:
            handle.remove()
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(before[name])
    return model


def check_targets(std: float | Mapping[str, float]) -> dict[str, float]:
    """The standard deviations by pattern."""
    targets = dict(std) if isinstance(std, Mapping) else {"*": std}
    for pattern, target in targets.items():
        if isinstance(target, bool) or not isinstance(target, int | float) or not 0 < target < math.inf:
            name = f"std[{pattern!r}]" if isinstance(std, Mapping) else "std"
            raise ValueError(f"{name} must be a positive number, got {target!r}; pass for example 0.1")
    return targets


class _Normalise:
    """A forward hook that sets one layer's scale and bias at its first call, and passes on what they give."""

    def __init__(self, weight: Weight, parametrization: FromProxy, target: float) -> None:
        self.weight, self.parametrization, self.target, self.done = weight, parametrization, target, False

    def __call__(self, module: nn.Module, _: Any, output: Tensor) -> Tensor | None:
        if self.done:
            return None
        self.done = True
        # Channels are last in a linear layer's output, and where the kernel's dimensions begin in a convolution's.
        channel = -1 if isinstance(module, nn.Linear) else -(len(self.parametrization.shape) - 1)
        y = output.movedim(channel, -1)
        bias: Tensor | None = module.bias  # type: ignore[assignment]
        if bias is not None:
            y = y - bias
        samples = y.reshape(-1, y.shape[-1]).double()
        mean, std = samples.mean(0), samples.std(0, correction=0)
        if not bool(torch.isfinite(std).all()):
            raise ValueError(
                f"{self.weight.label} gives NaN or infinity on this batch, so its scale can't be initialised from it"
            )
        # Of a filter that does not vary there is only rounding noise to divide by.
        std = torch.where(std > 1e-6 * samples.square().mean(0).sqrt(), std / self.target, 1.0)
        self.parametrization.scale.div_(std)
        y = y / std.to(y.dtype)
        if bias is not None:
            bias.copy_(-mean / std)
            y = y + bias
        return y.movedim(-1, channel).to(output.dtype)
