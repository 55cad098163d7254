"""Convolutions on a torus, where they are diagonal up to blocks, and what that bounds elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oni.diagnostics.matrix_norm import gamma, matrix_norm_bound
from oni.diagnostics.operator import CONVOLUTIONS, TRANSPOSED, operator_of, spatial_size

__all__ = ["convolution_spectrum", "norm_bound", "reshaped_bound"]

DENSE = 1024
"""Layers with no more inputs and outputs than this are written out and decomposed."""
SAMPLES = 16
"""Frequencies per degree of the kernel's polynomial, where an input has more: 2 % too much a dimension."""
ROUNDING = 1 + 1e-12


def convolution_spectrum(
    layer: nn.Module | Tensor,
    input_size: int | Sequence[int],
    *,
    stride: int | Sequence[int] = 1,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    r"""All singular values of a convolution with circular padding, largest first: exact, in float64.

    The Fourier transform turns it into one small matrix per frequency :math:`\omega` of the input,

    .. math:: \hat K(\omega) = \sum_t W_{:, :, t} \, e^{-i \omega \cdot t},

    and the singular values of all these matrices are those of the operator. A stride s, which must divide the input,
    makes it a convolution of stride 1 with s times the channels in each dimension.

    Args:
        layer: a convolution, transposed or not, taken as if its padding were circular; or a weight
            ``(out, in / groups, *kernel)`` with the options below.
        input_size: height and width (length; depth, height and width), or one number for all.
        stride, dilation, groups: for a weight; a layer has its own.

    >>> W = torch.zeros(1, 1, 1, 3)
    >>> W[..., 0], W[..., 2] = 0.5, 0.5  # the mean of two neighbours but one
    >>> convolution_spectrum(W, (1, 4))
    tensor([1., 1., 0., 0.], dtype=torch.float64)

    Reference: Sedghi, Gupta and Long, *The singular values of convolutional layers*, ICLR 2019.
    """
    if isinstance(layer, nn.Module):
        if not isinstance(layer, CONVOLUTIONS):
            raise TypeError(f"layer must be a convolution or its weight, got {type(layer).__name__}")
        weight, groups = operator_of(layer, 1).weight, layer.groups
        stride, dilation = layer.stride, layer.dilation
    else:
        weight = layer
    if not isinstance(weight, Tensor) or not weight.is_floating_point() or not 3 <= weight.dim() <= 5:
        raise ValueError(f"the weight must be (out, in / groups, *kernel), got {getattr(weight, 'shape', weight)}")
    if groups < 1 or weight.shape[0] % groups:
        raise ValueError(f"groups must divide the {weight.shape[0]} filters, got {groups}")
    dimensions = weight.dim() - 2
    strides = spatial_size(stride, dimensions, "stride")
    dilations = spatial_size(dilation, dimensions, "dilation")
    sizes = spatial_size(input_size, dimensions)
    if not isinstance(layer, TRANSPOSED):
        if any(size % s for size, s in zip(sizes, strides, strict=True)):
            raise ValueError(f"stride must divide input_size on a torus, got stride {strides} and input_size {sizes}")
        sizes = tuple(size // s for size, s in zip(sizes, strides, strict=True))
    kernel = polyphase(weight.detach().double(), strides, dilations, groups)
    symbols = symbols_at(kernel, sizes)
    if bool(torch.isfinite(kernel).all()):
        sigma = torch.linalg.svdvals(symbols)
    else:
        sigma = kernel.new_full((*symbols.shape[:-2], min(symbols.shape[-2:])), torch.nan)
    # The frequencies left out are the conjugates of those with a partner.
    last = sizes[-1]
    twice = sigma[..., 1 : (last + 1) // 2, :]
    return torch.cat([sigma.flatten(), twice.flatten()]).sort(descending=True).values


def polyphase(weight: Tensor, stride: Sequence[int], dilation: Sequence[int], groups: int) -> Tensor:
    """A strided, dilated kernel as one of stride 1 on s times the channels: ``(groups, out, in * s..., *kernel)``."""
    kernel = weight.unflatten(0, (groups, -1))
    for s, d in zip(stride, dilation, strict=True):
        taps = kernel.shape[3]
        length = (taps - 1) * d + 1
        spread = kernel.new_zeros(*kernel.shape[:3], *kernel.shape[4:], -(-length // s) * s)
        spread[..., torch.arange(taps, device=kernel.device) * d] = kernel.movedim(3, -1)
        # Each phase of the input becomes channels of its own; the axis goes last, so the next one is at 3 again.
        kernel = spread.unflatten(-1, (-1, s)).movedim(-1, 3).flatten(2, 3)
    return kernel


def symbols_at(kernel: Tensor, grid: Sequence[int]) -> Tensor:
    """A matrix per group and frequency, ``(groups, *grid, out, in)``; the last axis of the grid is half of it."""
    dims = tuple(range(3, 3 + len(grid)))
    for dim, size in zip(dims, grid, strict=True):
        shape = [*kernel.shape]
        shape[dim] = size
        taps = torch.arange(kernel.shape[dim], device=kernel.device)
        # A kernel longer than the torus wraps around.
        kernel = kernel.new_zeros(shape).index_add_(dim, taps % size, kernel)
    return torch.fft.rfftn(kernel, dim=dims).movedim((1, 2), (-2, -1))


def norm_bound(layer: nn.Module, input_size: int | Sequence[int] | None = None) -> float:
    r"""A close upper bound on a layer's operator norm, for every kind of padding.

    Linear layers, convolutions whose patches do not overlap (their stride is the kernel, or more) and small layers,
    which are written out, have the norm of a matrix, which is bounded with a proof, and exactly but for about 1e-11
    (:mod:`oni.diagnostics.matrix_norm`). A convolution with zero padding is a part of the one on a torus that has the
    padding once more as room, whose norm is the maximum of
    :math:`\|\hat K(\omega)\|` over its frequencies (:func:`convolution_spectrum`). On large inputs only N
    frequencies in each dimension are looked at; as :math:`\hat K` is a trigonometric polynomial of degree r,

    .. math:: \max_\omega \|\hat K(\omega)\| \le \max_{j} \|\hat K(2 \pi j / N)\| \prod \frac{1}{\cos(\pi r / N)}.

    Padding by reflection, replication or wrapping counts each pixel as often as it is copied. The smaller of this
    and :func:`reshaped_bound` is returned.

    Args:
        layer: as for :func:`oni.diagnostics.operator_norm`, which bounds the norm from below.
        input_size: height and width (length; depth, height and width), or one number for all. Not for linear layers.

    >>> from oni.diagnostics.operator import operator_norm
    >>> layer = nn.Conv2d(16, 32, 3, padding=1)
    >>> below, above = operator_norm(layer, 64).value, norm_bound(layer, 64)
    >>> below <= above <= 1.1 * below
    True

    Reference: Pfister and Bresler, *Bounding multivariate trigonometric polynomials*, IEEE TSP 2019.
    """
    operator = operator_of(layer, input_size)
    if isinstance(layer, nn.Linear):
        return matrix_norm_bound(operator.weight)
    if not bool(torch.isfinite(operator.weight).all()):
        return math.nan
    if overlap(layer) == 1 and not any(layer._reversed_padding_repeated_twice):  # type: ignore[arg-type]
        return reshaped_bound(layer)
    with torch.no_grad():
        output = operator(torch.zeros(1, *operator.input_shape, dtype=torch.float64, device=operator.weight.device))
    if max(math.prod(operator.input_shape), output.numel()) <= DENSE:
        return matrix_norm_bound(operator.matrix())
    stride, dilation, padding = layer.stride, layer.dilation, layer._reversed_padding_repeated_twice
    pairs = [*zip(padding[::2], padding[1::2], strict=True)][::-1]  # type: ignore[index]
    # A transposed convolution is the transpose of a convolution of its output.
    inputs, outputs = operator.input_shape[1:], tuple(output.shape[2:])
    if isinstance(layer, TRANSPOSED):
        inputs, outputs = outputs, inputs
    copies, torus = 1, []
    for size, out, (left, right), s in zip(inputs, outputs, pairs, stride, strict=True):  # type: ignore[arg-type]
        room = size + max(left, right)
        if layer.padding_mode != "zeros":
            if layer.padding_mode == "circular" and size % s == 0 and out * s <= size:
                room = size
            else:
                room = size + left + right
                copies *= most_copies(size, left, right, str(layer.padding_mode))
        torus.append(-(-room // s))
    kernel = polyphase(operator.weight, stride, dilation, layer.groups)  # type: ignore[arg-type]
    bound = min(sampled_bound(kernel, torus), reshaped_bound(layer))
    return bound * math.sqrt(copies) * ROUNDING


def sampled_bound(kernel: Tensor, torus: Sequence[int]) -> float:
    """The largest norm over all frequencies of a torus, from no more of them than it takes."""
    factor, grid = 1.0, []
    for taps, size in zip(kernel.shape[3:], torus, strict=True):
        degree = taps // 2
        samples = max(1, SAMPLES * degree)
        if samples < size and degree:
            factor /= math.cos(math.pi * degree / samples)
        grid.append(min(size, samples))
    # A Fourier transform of N numbers rounds by a few log2 N units of their sum; a hundred times that is safe.
    passes = sum(100 * (1 + math.ceil(math.log2(size))) for size in grid)
    sums = kernel.abs().flatten(3).sum(-1)
    rounding = gamma(passes) * float(torch.linalg.vector_norm(sums.flatten(1), dim=1).max())
    return (matrix_norm_bound(symbols_at(kernel, grid)) + rounding) * factor


def reshaped_bound(layer: nn.Module) -> float:
    r"""The bound of a convolution's operator norm by its reshaped weight; see :func:`oni.diagnostics.operator_norm`.

    .. math:: \|A\|_2 \le \|R\|_2 \prod \sqrt{\lceil k \gcd(s, d) / s \rceil}

    It holds for zero padding, whatever the input's size. A transposed convolution's R is ``(in, out * kernel)``, of
    the convolution that it transposes.

    >>> layer = nn.Conv2d(8, 8, 4, stride=2)
    >>> _ = nn.init.orthogonal_(layer.weight)
    >>> round(reshaped_bound(layer), 4)  # each pixel is in 2 x 2 patches
    2.0
    """
    if not isinstance(layer, CONVOLUTIONS):
        raise TypeError(f"layer must be a convolution, got {type(layer).__name__}")
    R = layer.weight.detach().flatten(1).unflatten(0, (layer.groups, -1))
    return matrix_norm_bound(R) * math.sqrt(overlap(layer)) * ROUNDING


def overlap(layer: Any) -> int:
    """In how many patches a pixel is, at most."""
    sizes = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
    return math.prod(-(-k * math.gcd(s, d) // s) for k, s, d in sizes)


def most_copies(size: int, left: int, right: int, mode: str) -> int:
    """How often padding repeats the most repeated of the entries in a row."""
    row = F.pad(torch.arange(size, dtype=torch.float64).view(1, 1, size), (left, right), mode=mode)
    return int(torch.bincount(row.flatten().long()).max())
