"""The polar factor: the nearest matrix whose singular values are all 1, by a decomposition."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oni.newton.bounding import centred
from oni.newton.matrix import split_groups
from oni.newton.start import work_dtype
from oni.torch_internals import has_values

__all__ = ["Polar", "find_polar_factor"]


class Polar(NamedTuple):
    """A polar factor, and how much of the matrix had a direction."""

    factor: Tensor
    rank: int
    """The smallest of all matrices; 0 where one of them is zero."""
    possible: int
    """What it could be: the short side, or one less of the columns where rows are centred."""


def find_polar_factor(Z: Tensor, *, center: bool, groups: int) -> Polar:
    r"""The polar factor :math:`U R^\top` of each matrix in ``Z (..., n, d)``, by singular values in float64.

    Where rows are to be centred it is that of the centred matrix. Its rows sum to zero, so ``orthogonalize`` finds all
    singular values equal. The polar factor of Z itself would not do: centring takes from its rows what they have along
    the ones, and lowers a singular value by up to all of it, the more the nearer n is to d.

    Zero singular values stay zero, as they have no direction; a matrix that has no others stays as it is.

    >>> polar = find_polar_factor(torch.tensor([[3.0, 0.0], [0.0, -0.5]]), center=False, groups=1)
    >>> polar.factor
    tensor([[ 1.,  0.],
            [ 0., -1.]])
    >>> polar.rank, polar.possible
    (2, 2)
    """
    if not has_values(Z):
        raise ValueError("it has no values yet (device meta, or a fake tensor); load or initialise it first")
    given = split_groups(Z.detach().double(), groups)
    A = centred(given.clone()) if center else given
    U, sigma, Rh = torch.linalg.svd(A, full_matrices=False)
    present = sigma > torch.finfo(work_dtype(Z.dtype)).eps * sigma[..., :1]
    factor = (U * present.unsqueeze(-2)) @ Rh
    factor = torch.where(present[..., :1, None], factor, given)
    n, d = A.shape[-2:]
    possible = min(n, max(1, d - 1) if center else d)
    return Polar(factor.reshape(Z.shape).to(Z.dtype), int(present.sum(-1).min()), possible)
