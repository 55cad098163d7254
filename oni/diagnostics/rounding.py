"""How far rounding moves the result of a module: what :func:`oni.diagnostics.certified_radius` takes off a margin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import nn

from oni.diagnostics.follow import Call
from oni.diagnostics.functions import underflow, unit_of
from oni.diagnostics.lipschitz import find_by_kind, of_average
from oni.diagnostics.matrix_norm import gamma
from oni.diagnostics.operator import CONVOLUTIONS, TRANSPOSED, Operator, schur_bound

__all__ = ["rounding_of"]

Rounding = tuple[float, float]


def rounding_of(module: Any, call: Call) -> Rounding | None:
    r"""A bound for one module in arithmetic of its dtype, whatever the order of its sums.

    .. math:: \|\operatorname{fl}(f(x)) - f(x)\| \le \text{relative} \cdot \|x\| + \text{absolute}

    Returns:
        Both factors, by its own method ``rounding_error(x, dtype)`` if it has one; ``None`` if it is of no known kind.
    """
    if hasattr(module, "rounding_error"):
        return module.rounding_error(call.signals[0].value, call.dtype)
    rule = find_by_kind(module, ROUNDING)
    return rule(module, call) if rule else None


def exact(module: Any, call: Call) -> Rounding:
    """It chooses and moves entries, and computes nothing."""
    return 0.0, 0.0


def of_products(layer: Any, call: Call) -> Rounding:
    """Each output is a sum of products and a bias, so its error is at most gamma times |W| |x| + |b|."""
    x, weight = call.signals[0].value, layer.weight.detach().double()
    filters = layer.out_channels if isinstance(layer, TRANSPOSED) else len(weight)
    terms = weight.numel() // filters + 1
    factor = gamma(terms, unit_of(call))
    relative = factor * schur_bound(Operator(layer, weight.abs(), tuple(x.shape[1:])).__call__, x)
    places = call.output.numel() / len(x) / filters
    bias = 0.0 if layer.bias is None else float(layer.bias.detach().double().norm()) * math.sqrt(places)
    return relative, factor * bias + underflow(call, 2 * terms)


def of_mean(pool: Any, call: Call) -> Rounding:
    x = call.signals[0].value
    terms = math.prod(x.shape[2:]) + 2
    return gamma(terms, unit_of(call)) * of_average(pool, x), underflow(call, terms)


def of_slope(activation: Any, call: Call) -> Rounding:
    """One product, with a slope that is itself rounded to the dtype."""
    slopes = activation.weight.detach().double().abs() if isinstance(activation, nn.PReLU) else None
    slope = abs(activation.negative_slope) if slopes is None else float(slopes.max())
    return gamma(3, unit_of(call)) * slope, underflow(call)


def of_batch_norm(norm: Any, call: Call) -> Rounding | None:
    """Fewer than 16 roundings of |a x| + |a m| + |b|, as a x + (b - a m) or a (x - m) + b, a = w / sqrt(v + eps)."""
    if norm.running_var is None:
        return None
    gain = (norm.running_var.double() + norm.eps).rsqrt()
    gain = gain if norm.weight is None else gain * norm.weight.detach().double().abs()
    offset = gain * norm.running_mean.double().abs()
    offset = offset if norm.bias is None else offset + norm.bias.detach().double().abs()
    factor = gamma(16, unit_of(call))
    places = call.output.numel() / len(call.output) / len(offset)
    return factor * float(gain.max()), factor * float(offset.norm()) * math.sqrt(places) + underflow(call, 16)


ROUNDING: dict[type[nn.Module], Callable[[Any, Call], Rounding | None]] = {
    **dict.fromkeys((nn.Linear, *CONVOLUTIONS), of_products),
    **dict.fromkeys((nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d), of_mean),
    **dict.fromkeys((nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d), of_mean),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm), of_batch_norm),
    **dict.fromkeys((nn.LeakyReLU, nn.PReLU), of_slope),
    **dict.fromkeys((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), exact),
    **dict.fromkeys((nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d), exact),
    **dict.fromkeys((nn.Identity, nn.Flatten, nn.Unflatten, nn.PixelShuffle, nn.PixelUnshuffle, nn.ReLU), exact),
    **dict.fromkeys((nn.ChannelShuffle, nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d, nn.ReLU6), exact),
    **dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout), exact),
}
"""What it knows. No functions whose accuracy a library leaves open, such as tanh."""
