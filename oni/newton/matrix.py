"""A weight as a matrix, or a batch of matrices, and back."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

__all__ = ["Layout", "check_groups", "flatten_batch", "is_tall", "split_groups"]


class Layout(NamedTuple):
    """How a weight is a matrix, or several, whose rows are the output filters.

    >>> import torch
    >>> Layout(groups=2).matrices(torch.zeros(6, 4, 3, 3)).shape  # a convolution in two groups
    torch.Size([2, 3, 36])
    >>> Layout(transposed=True).matrices(torch.zeros(4, 6, 3, 3)).shape  # a transposed one, 4 channels to 6
    torch.Size([6, 36])
    """

    groups: int = 1
    """Groups of a convolution: each is a separate matrix."""
    transposed: bool = False
    """Whether the weight is (in, out / groups, ...), as in a transposed convolution, not (out, in / groups, ...)."""

    def matrices(self, weight: Tensor) -> Tensor:
        """The weight as ``(n, d)``, or ``(groups, n, d)`` where there are several groups; a view where possible."""
        rows = self.filters(weight.shape) // self.groups
        if self.transposed:
            weight = weight.reshape(self.groups, weight.shape[0] // self.groups, weight.shape[1], -1).transpose(1, 2)
        matrices = weight.reshape(self.groups, rows, -1)
        return matrices[0] if self.groups == 1 else matrices

    def weight(self, matrices: Tensor, shape: Sequence[int]) -> Tensor:
        """The inverse of ``matrices``, for a weight of this shape."""
        if not self.transposed:
            return matrices.reshape(tuple(shape))
        inputs, outputs = shape[0] // self.groups, shape[1]
        return matrices.reshape(self.groups, outputs, inputs, -1).transpose(1, 2).reshape(tuple(shape))

    def filters(self, shape: Sequence[int]) -> int:
        """How many output filters a weight of this shape has."""
        return shape[1] * self.groups if self.transposed else shape[0]


def is_tall(n: int, d: int) -> bool:
    """Whether the columns are the short side, on which the Gram matrix is cheapest."""
    return n > d


def check_groups(groups: int, n: int) -> int:
    """Return ``groups`` as an int if it splits n rows evenly."""
    try:
        if isinstance(groups, bool):
            raise TypeError
        count = operator.index(groups)
    except TypeError:
        raise TypeError(
            f"groups must be a whole number, got {groups!r} of type {type(groups).__name__}; "
            "pass groups=1 for one group"
        ) from None
    if count < 1 or n % count:
        divisors = [k for k in range(1, n + 1) if n % k == 0]
        raise ValueError(f"groups must divide the {n} rows of Z into equal parts, got {count}; pass one of {divisors}")
    return count


def split_groups(Z: Tensor, groups: int) -> Tensor:
    """Split the rows of ``(..., n, d)`` into consecutive groups: ``(..., groups, n // groups, d)``."""
    return Z if groups == 1 else Z.unflatten(-2, (groups, Z.shape[-2] // groups))


def flatten_batch(Z: Tensor) -> Tensor:
    """Return one matrix as it is, any batch with a single leading dimension."""
    return Z if Z.dim() == 2 else Z.reshape(-1, *Z.shape[-2:])
