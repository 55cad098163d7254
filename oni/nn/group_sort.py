"""``GroupSort``: an activation that sorts, and so keeps the length of signal and gradient."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["GroupSort"]


class GroupSort(nn.Module):
    r"""Sort each group of neighbouring channels in ascending order; MaxMin with groups of two, the default.

    .. math:: y_{g k + 1} \le \dots \le y_{g k + k}, \quad \text{a permutation of } x_{g k + 1}, \dots, x_{g k + k}

    for group size k. Its Jacobian is a permutation matrix, even if entries are equal. So it is 1-Lipschitz like ReLU,
    but preserves the length of signals and gradients. With orthogonal weights it makes networks that preserve
    gradients, which ReLU can't (:func:`oni.diagnostics.certified_radius`).

    Args:
        group_size: channels per group; it must divide the number of channels.
        dim: the axis of the channels: 1 for features and images, -1 for tokens with features last.

    >>> GroupSort()(torch.tensor([[3.0, 1.0, -2.0, 5.0]]))
    tensor([[ 1.,  3., -2.,  5.]])

    Reference: Anil, Lucas and Grosse, *Sorting out Lipschitz function approximation*, ICML 2019.
    """

    def __init__(self, group_size: int = 2, dim: int = 1) -> None:
        super().__init__()
        if isinstance(group_size, bool) or not isinstance(group_size, int) or group_size < 2:
            raise ValueError(f"group_size must be a whole number of at least 2, got {group_size!r}")
        if isinstance(dim, bool) or not isinstance(dim, int):
            raise TypeError(f"dim must be a whole number, the axis of the channels, got {dim!r}")
        self.group_size = group_size
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        if not -x.dim() <= self.dim < x.dim():
            raise ValueError(f"dim must be an axis of the input, got dim={self.dim} for shape {tuple(x.shape)}")
        dim = self.dim % x.dim()
        if x.shape[dim] % self.group_size:
            raise ValueError(
                f"group_size must divide the {x.shape[dim]} channels on axis {self.dim}, got {self.group_size}; "
                "change the width of the layer, or pass dim"
            )
        groups = x.unflatten(dim, (-1, self.group_size))
        if self.group_size != 2:
            return groups.sort(dim + 1).values.flatten(dim, dim + 1)
        first, second = groups.unbind(dim + 1)
        # Not minimum and maximum: between equal entries they halve the gradient.
        swap = first > second
        pair = torch.where(swap, second, first), torch.where(swap, first, second)
        return torch.stack(pair, dim + 1).flatten(dim, dim + 1)

    def extra_repr(self) -> str:
        return f"group_size={self.group_size}, dim={self.dim}"

    def lipschitz_constant(self, x: Tensor) -> float:
        """Return 1, for :func:`oni.diagnostics.lipschitz_bound`."""
        if self.dim % x.dim() == 0:
            raise ValueError(f"dim={self.dim} is the batch axis; pass the axis of the channels")
        return 1.0

    def rounding_error(self, x: Tensor, dtype: torch.dtype) -> tuple[float, float]:
        """Return zeros, for :func:`oni.diagnostics.certified_radius`: sorting does not round."""
        return 0.0, 0.0
