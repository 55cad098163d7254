"""The polar factor: the nearest matrix whose singular values are all 1, by a decomposition."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oni.newton.bounding import centred, power_of_two_scale
from oni.newton.matrix import split_groups
from oni.newton.start import work_dtype
from oni.torch_internals import has_values

__all__ = ["Polar", "find_polar_factor"]


class Polar(NamedTuple):
    """A polar factor, and the rank of what it was computed from."""

    factor: Tensor
    rank: int
    """The smallest rank among all matrices; 0 if one of them is zero."""
    possible: int
    """The largest possible rank: the short side, with one column less if rows are centred."""


def find_polar_factor(Z: Tensor, *, center: bool, groups: int) -> Polar:
    r"""The polar factor :math:`U R^\top` of each matrix in ``Z (..., n, d)``, by singular values in float64.

    With ``center`` it is the polar factor of the centred matrix. Its rows already sum to zero, so ``orthogonalize``
    finds all singular values equal. The polar factor of Z itself would not do: centring removes the mean of its rows,
    which lowers singular values, possibly to zero, and most if n is close to d.

    Zero singular values have no direction and stay zero; a matrix without any others is returned unchanged.

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
    scaled = power_of_two_scale(given) * given  # so that centring does not overflow
    A = centred(scaled) if center else scaled
    U, sigma, Rh = torch.linalg.svd(A, full_matrices=False)
    present = sigma > torch.finfo(work_dtype(Z.dtype)).eps * sigma[..., :1]
    factor = (U * present.unsqueeze(-2)) @ Rh
    factor = torch.where(present[..., :1, None], factor, given)
    n, d = A.shape[-2:]
    possible = min(n, max(1, d - 1) if center else d)
    return Polar(factor.reshape(Z.shape).to(Z.dtype), int(present.sum(-1).min()), possible)
