"""``FromProxy``: the base of every parametrization that computes a weight from a proxy."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from oni.newton.matrix import Layout

__all__ = ["FromProxy"]


class Scaling(Protocol):
    """The options that every such parametrization has."""

    @property
    def scale(self) -> float: ...
    @property
    def learn_scale(self) -> bool: ...


class FromProxy(nn.Module):
    """A parametrization from a proxy Z to the weight, by way of matrices: layout, scale, assignment."""

    orthogonal = True
    """Whether its matrices are meant to be orthogonal."""
    start = ""
    """How the proxy started, if not as the given weight; forgotten when a proxy is loaded or assigned.

    Not an option, as a checkpoint contains the proxy itself."""

    def __init__(self, weight: Tensor, layout: Layout, options: Scaling) -> None:
        super().__init__()
        self.layout = layout
        self.options = options
        self.shape = tuple(weight.shape)
        self.position = 0
        """Where the parameter stood among the module's own."""
        if options.learn_scale:
            self.scale = nn.Parameter(
                torch.full((layout.filters(self.shape),), options.scale, dtype=weight.dtype, device=weight.device)
            )

    def forward(self, Z: Tensor) -> Tensor:
        return self.weight_from(self.unscaled(Z), Z)

    def unscaled(self, Z: Tensor) -> Tensor:
        """The matrices of the weight, without scale."""
        raise NotImplementedError

    def blocks(self, W: Tensor) -> list[Tensor]:
        """Split the matrices into the blocks of rows that are orthogonalised separately."""
        return [W]

    def right_inverse(self, W0: Tensor) -> Tensor:
        if tuple(W0.shape) != self.shape:
            raise ValueError(f"the weight must have shape {self.shape}, got {tuple(W0.shape)}")
        return W0.detach().clone()

    def weight_from(self, W: Tensor, Z: Tensor) -> Tensor:
        """From matrices to the weight: scaled, in the proxy's shape and memory format."""
        if self.options.learn_scale:
            W = self.scale.to(W.dtype).view(*W.shape[:-1], 1) * W
        elif self.options.scale != 1.0:
            W = self.options.scale * W
        weight = self.layout.weight(W, self.shape)
        # Under torch.func the two may differ in their number of dimensions. Strides only matter for speed.
        if weight.stride() != Z.stride() and weight.shape == Z.shape:
            channels_last = Z.dim() == 4 and Z.is_contiguous(memory_format=torch.channels_last)
            weight = weight.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
        return weight

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in vars(self.options).items())
