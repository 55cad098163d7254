r"""How far a matrix is from orthogonal."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Orthogonality", "orthogonality", "spectrum"]


def spectrum(W: Tensor) -> Tensor:
    """The singular values of ``W (..., n, d)``, largest first, computed in float64.

    >>> spectrum(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor([4., 3.], dtype=torch.float64)
    """
    return torch.linalg.svdvals(checked_matrix(W))


class Orthogonality(NamedTuple):
    r"""The paper's deltas: 0 where rows, or columns, are orthonormal."""

    row: Tensor
    r""":math:`\|W W^\top - I\|_F`"""
    column: Tensor
    r""":math:`\|W^\top W - I\|_F`"""


def orthogonality(W: Tensor) -> Orthogonality:
    r"""The distances of ``W (..., n, d)`` from orthonormal rows and columns, computed in float64.

    .. math:: \delta_{row} = \|W W^\top - I_n\|_F, \qquad \delta_{column} = \|W^\top W - I_d\|_F.

    They are not independent: :math:`\delta_{row}^2 - \delta_{column}^2 = n - d` for every matrix.

    >>> delta = orthogonality(torch.eye(2, 3))
    >>> float(delta.row), float(delta.column)
    (0.0, 1.0)
    """
    W = checked_matrix(W)
    return Orthogonality(_distance_from_identity(W @ W.mT), _distance_from_identity(W.mT @ W))


def _distance_from_identity(M: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(M - torch.eye(M.shape[-1], dtype=M.dtype, device=M.device))


def checked_matrix(W: Tensor) -> Tensor:
    if not isinstance(W, Tensor) or not W.is_floating_point():
        raise TypeError(
            f"W must be a tensor of real floating-point numbers, got {getattr(W, 'dtype', type(W).__name__)}"
        )
    if W.dim() < 2:
        raise ValueError(f"W must have shape (..., n, d), got {tuple(W.shape)}; a vector is W.unsqueeze(0)")
    return W.detach().double()
