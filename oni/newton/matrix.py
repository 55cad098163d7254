"""A weight as a matrix, or a batch of matrices, and back."""

from __future__ import annotations

from torch import Tensor

__all__ = ["checked_groups", "flat_batch", "grouped", "is_tall"]


def is_tall(n: int, d: int) -> bool:
    """Whether the columns are the short side, on which the Gram matrix is cheapest."""
    return n > d


def checked_groups(groups: int, n: int) -> int:
    """``groups`` itself, if it splits n rows evenly."""
    if isinstance(groups, bool) or not isinstance(groups, int):
        raise TypeError(
            f"groups must be a whole number, got {groups!r} of type {type(groups).__name__}; "
            "pass groups=1 for one group"
        )
    if groups < 1 or n % groups:
        divisors = [k for k in range(1, n + 1) if n % k == 0]
        raise ValueError(f"groups must divide the {n} rows of Z into equal parts, got {groups}; pass one of {divisors}")
    return groups


def grouped(Z: Tensor, groups: int) -> Tensor:
    """Split the rows of ``(..., n, d)`` into consecutive groups: ``(..., groups, n // groups, d)``."""
    return Z if groups == 1 else Z.unflatten(-2, (groups, Z.shape[-2] // groups))


def flat_batch(Z: Tensor) -> Tensor:
    """One matrix as it is, any batch as a single leading dimension."""
    return Z if Z.dim() == 2 else Z.reshape(-1, *Z.shape[-2:])
