"""A linear layer or a convolution as the linear operator that it really applies, padding, stride and all."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = [
    "CONVOLUTIONS",
    "TRANSPOSED",
    "Operator",
    "OperatorNorm",
    "operator_norm",
    "operator_of",
    "schur_bound",
    "spatial_size",
]

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED)
_TRANSPOSED_MAP = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


class OperatorNorm(NamedTuple):
    """What :func:`operator_norm` found."""

    value: float
    """The norm from below: the slope of the layer along an input, so, but for rounding, never more than the norm."""
    iterations: int
    converged: bool
    """Whether the tolerance was reached; if not, ``value`` is still a lower bound."""


def operator_norm(
    layer: nn.Module,
    input_size: int | Sequence[int] | None = None,
    *,
    tolerance: float = 1e-4,
    max_iterations: int = 200,
) -> OperatorNorm:
    r"""The spectral norm of a layer as an operator on whole inputs: how much it can stretch one.

    .. math:: \|A\|_2 = \max_x \|A x\| / \|x\|, \qquad \text{layer}(x) = A x + b

    A convolution whose weight, reshaped to ``R (out, in * kernel)``, has norm 1 need *not* have norm 1 itself: each
    pixel enters several patches. With kernel k, stride s and dilation d in each dimension,

    .. math:: \|A\|_2 \le \|R\|_2 \prod \sqrt{\lceil k \gcd(s, d) / s \rceil},

    three times the norm of R for 3 x 3 at stride 1. Averaging kernels reach it except at the border. So an orthogonal R
    makes a convolution of norm 1 only if patches do not overlap (s >= k, or 1 x 1).

    The layer itself is applied, with its padding, stride, dilation and groups, and its transpose by autograd, in
    float64. The Lanczos method replaces the power iteration: the same products, but far fewer of them.

    Args:
        layer: ``nn.Linear``, ``nn.Conv1d`` to ``3d`` or ``nn.ConvTranspose1d`` to ``3d``, parametrised or not.
        input_size: height and width (length; depth, height and width), or one number for all. Not for linear layers.
        tolerance: relative residual :math:`\|A^\top A v - \sigma^2 v\| / \sigma^2` at which to stop.
        max_iterations: the maximum number of products with A and its transpose.

    Returns:
        The norm found, the number of iterations, and whether they reached the tolerance. :func:`norm_bound`
        bounds the norm from above.

    >>> layer = nn.Conv2d(1, 1, 3, padding=1)
    >>> _ = nn.init.constant_(layer.weight, 1 / 3)  # its reshaped weight has norm 1
    >>> round(operator_norm(layer, (32, 32)).value, 2)
    2.98
    """
    operator = operator_of(layer, input_size)
    if not bool(torch.isfinite(operator.weight).all()):
        return OperatorNorm(math.nan, 0, False)
    # A generator of its own: nobody's random numbers change.
    v = torch.randn(math.prod(operator.input_shape), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    v, before = (v / torch.linalg.vector_norm(v)).to(operator.weight.device), torch.zeros(())
    diagonal: list[float] = []
    beside: list[float] = []
    top, converged = 0.0, False
    # Three terms, no reorthogonalisation: what that spoils is copies of values already found, and we want the largest.
    while not converged and len(diagonal) < max_iterations:
        w = operator.gram(v)
        diagonal.append(float(v @ w))
        w = w - diagonal[-1] * v - (beside[-1] * before if beside else 0)
        ritz, S = torch.linalg.eigh(tridiagonal(diagonal, beside))
        beside.append(float(torch.linalg.vector_norm(w)))
        top = max(float(ritz[-1]), 0.0)
        # The length of A^T A x - top x, for the unit vector x that belongs to it.
        converged = beside[-1] * abs(float(S[-1, -1])) <= tolerance * top or beside[-1] == 0
        before, v = v, w / beside[-1]
    return OperatorNorm(math.sqrt(top), len(diagonal), converged)


def tridiagonal(diagonal: list[float], beside: list[float]) -> Tensor:
    T = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if beside:
        off = torch.tensor(beside, dtype=torch.float64)
        T = T + torch.diag(off, 1) + torch.diag(off, -1)
    return T


class Operator(NamedTuple):
    """A layer without its bias, in float64."""

    layer: nn.Module
    weight: Tensor
    input_shape: tuple[int, ...]
    """Without the batch."""

    def __call__(self, x: Tensor) -> Tensor:
        layer, weight = self.layer, self.weight
        if isinstance(layer, TRANSPOSED):
            run = _TRANSPOSED_MAP[weight.dim() - 2]
            return run(
                x,
                weight,
                None,
                layer.stride,
                layer.padding,  # type: ignore[arg-type]
                layer.output_padding,
                layer.groups,
                layer.dilation,
            )
        if isinstance(layer, CONVOLUTIONS):
            return layer._conv_forward(x, weight, None)
        return F.linear(x, weight)

    def gram(self, v: Tensor) -> Tensor:
        """A^T A v, for a flat v."""
        with torch.enable_grad():
            x = v.detach().requires_grad_()
            y = self(x.view(1, *self.input_shape))
            # The gradient of |A x|^2 / 2.
            return torch.autograd.grad(y.square().sum() / 2, x)[0]

    def matrix(self) -> Tensor:
        """The operator written out, ``(outputs, inputs)``: for small inputs."""
        size = math.prod(self.input_shape)
        eye = torch.eye(size, dtype=torch.float64, device=self.weight.device)
        with torch.no_grad():
            return self(eye.view(size, *self.input_shape)).flatten(1).mT


def operator_of(layer: nn.Module, input_size: int | Sequence[int] | None = None) -> Operator:
    """The operator of a layer on inputs of this height and width."""
    if not isinstance(layer, (nn.Linear, *CONVOLUTIONS)):
        raise TypeError(
            f"layer must be nn.Linear, nn.Conv1d to 3d or nn.ConvTranspose1d to 3d, got {type(layer).__name__}; "
            "oni.diagnostics.lipschitz_bound takes whole models"
        )
    weight = layer.weight
    if isinstance(weight, nn.parameter.UninitializedParameter):
        raise ValueError(f"the weight of {type(layer).__name__} is lazy and has no shape yet; run one batch through it")
    weight = weight.detach().double()
    if isinstance(layer, nn.Linear):
        return Operator(layer, weight, (layer.in_features,))
    return Operator(layer, weight, (layer.in_channels, *spatial_size(input_size, weight.dim() - 2)))


def schur_bound(apply: Callable[[Tensor], Tensor], x: Tensor) -> float:
    r"""An upper bound of the norm of a linear operator without negative entries, by Schur's test.

    .. math:: \|A\|_2 \le \sqrt{\|A \mathbf 1\|_\infty \, \|A^\top \mathbf 1\|_\infty}

    Args:
        apply: the operator.
        x: a batch of inputs; only the shape matters.

    >>> schur_bound(lambda x: 2 * x, torch.zeros(1, 3))
    2.0000
    """
    with torch.enable_grad():
        ones = torch.ones_like(x[:1], dtype=torch.float64).requires_grad_()
        rows = apply(ones)
        (columns,) = torch.autograd.grad(rows.sum(), ones)
    return math.sqrt(float(rows.detach().max()) * float(columns.max())) * (1 + 1e-9)


def spatial_size(given: int | Sequence[int] | None, dimensions: int, argument: str = "input_size") -> tuple[int, ...]:
    """One number per spatial dimension, if that is what was given."""
    sizes = (given,) * dimensions if isinstance(given, int) else tuple(given or ())
    if len(sizes) != dimensions or not all(isinstance(size, int) and size > 0 for size in sizes):
        names = ("depth", "height", "width")[-dimensions:] if dimensions > 1 else ("length",)
        raise ValueError(
            f"{argument} must be ({', '.join(names)}) as positive whole numbers, without batch and channels, or one "
            f"number for all axes; got {given!r}"
        )
    return sizes
