r"""How far a matrix is from orthogonal.

Everything here takes ``W (..., n, d)``, one matrix or a batch, and gives NaN for a matrix that has NaN or infinity. The
weight of a convolution is a matrix as ``W.flatten(1)``; that matrix is *not* the operator that the convolution
applies to a picture: see :func:`oni.diagnostics.convolution_spectrum` and :func:`oni.diagnostics.operator_norm`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Orthogonality", "condition_number", "effective_rank", "effective_rank_of", "orthogonality", "spectrum"]


def spectrum(W: Tensor) -> Tensor:
    """The singular values of ``W (..., n, d)``, largest first, computed in float64.

    The leading dimensions are a batch: pass the weight of a convolution as ``W.flatten(1)``.

    >>> spectrum(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    tensor([4., 3.], dtype=torch.float64)
    """
    W = checked_matrix(W)
    # LAPACK raises, or loops, on NaN and infinity.
    good = torch.isfinite(W).flatten(-2).all(-1)
    sigma = torch.linalg.svdvals(torch.where(good[..., None, None], W, torch.zeros_like(W)))
    return torch.where(good[..., None], sigma, torch.nan)


class Orthogonality(NamedTuple):
    r"""The paper's deltas: 0 if the rows, or columns, are orthonormal."""

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


def condition_number(W: Tensor) -> Tensor:
    r"""Largest over smallest singular value of ``W (..., n, d)``, in float64: 1 if orthogonal, infinite if singular.

    .. math:: \kappa = \sigma_{\max} / \sigma_{\min}

    For a zero matrix it is NaN.

    >>> condition_number(torch.tensor([[3.0, 0.0], [0.0, 4.0]])).item()
    1.3333
    """
    sigma = spectrum(W)
    if sigma.shape[-1] == 0:
        return sigma.new_full(sigma.shape[:-1], torch.nan)
    return sigma[..., 0] / sigma[..., -1]


def effective_rank(W: Tensor) -> Tensor:
    r"""How many singular values of ``W (..., n, d)`` matter, by the entropy of their shares, in float64.

    .. math:: \operatorname{erank} = \exp\Bigl(-\sum_i p_i \log p_i\Bigr), \qquad p_i = \sigma_i / \sum_j \sigma_j

    It lies between 1 and min(n, d), which it reaches if all singular values are equal. For a zero matrix it is NaN.

    >>> effective_rank(torch.eye(8, 16)).item(), round(effective_rank(torch.diag(torch.tensor([1.0, 0.1]))).item(), 3)
    (8.0, 1.356)

    Reference: Roy and Vetterli, *The effective rank: a measure of effective dimensionality*, EUSIPCO 2007.
    """
    return effective_rank_of(spectrum(W))


def effective_rank_of(sigma: Tensor) -> Tensor:
    """The effective rank of a matrix with these singular values ``(..., k)``."""
    share = sigma / sigma.sum(-1, keepdim=True)
    return torch.special.entr(share).sum(-1).exp()


def _distance_from_identity(M: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(M - torch.eye(M.shape[-1], dtype=M.dtype, device=M.device))


def checked_matrix(W: Tensor) -> Tensor:
    if not isinstance(W, Tensor) or not W.is_floating_point():
        raise TypeError(
            f"W must be a tensor of real floating-point numbers, got {getattr(W, 'dtype', type(W).__name__)}"
        )
    if W.dim() < 2:
        raise ValueError(f"W must have shape (..., n, d), got {tuple(W.shape)}; for a vector pass W.unsqueeze(0)")
    return W.detach().double()
