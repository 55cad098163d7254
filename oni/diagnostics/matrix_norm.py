"""``matrix_norm_bound``: the largest singular value, from above, with a proof instead of a margin."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["UNIT", "gamma", "matrix_norm_bound"]

UNIT = 2.0**-53
"""The unit roundoff of float64."""
ATTEMPTS = 8


def gamma(roundings: int, unit: float = UNIT) -> float:
    r"""The relative error of so many roundings in a row, :math:`\gamma_k = k u / (1 - k u)`.

    A sum of k products has it, in whatever order it is computed (Higham, *Accuracy and stability of numerical
    algorithms*, 2nd edition, section 3.1). It is infinite where k u is no small number.

    >>> gamma(3, 0.1)
    0.4286
    """
    return roundings * unit / (1 - roundings * unit) if roundings * unit < 0.5 else math.inf


def matrix_norm_bound(W: Tensor) -> float:
    r"""An upper bound of the largest singular value of ``W (..., n, d)``, over the whole batch, real or complex.

    A float64 Cholesky factorisation that runs to its end proves its matrix to be positive semidefinite, up to a
    rounding error that is known beforehand. Here the matrix is :math:`s^2 I - W W^*`, with s a little above the norm
    that a decomposition finds:

    .. math:: \|W\|_2^2 \le s^2 + \gamma_{4 (d + 2)} \|W\|_F^2 + 2 \gamma_{4 (m + 2)} \, m \, s^2

    for the m x m Gram matrix of the short side (the 4 covers complex products). What is added is about 1e-11 of it.

    >>> 5.0 <= matrix_norm_bound(torch.tensor([[3.0, 0.0], [4.0, 0.0]])) < 5.0 + 1e-9
    True

    Reference: Rump, *Verification of positive definiteness*, BIT 46, 2006.
    """
    W = W.detach().to(torch.complex128 if W.is_complex() else torch.float64)
    if W.numel() == 0:
        return 0.0
    largest = float(W.abs().max())
    if not math.isfinite(largest) or largest == 0:
        return math.nan if largest else 0.0
    # By a power of two, exactly, so that no square overflows or is lost.
    scale = 2.0 ** math.frexp(largest)[1]
    W = W / scale if W.shape[-2] <= W.shape[-1] else W.mT / scale
    m, d = W.shape[-2:]
    frobenius = float(W.abs().square().sum((-2, -1)).max()) * (1 + 1e-9)
    of_gram, of_factor = gamma(4 * (d + 2)) * frobenius, 2 * gamma(4 * (m + 2)) * m
    M = W @ W.mH
    eye = torch.eye(m, dtype=W.dtype, device=W.device)
    top = float(torch.linalg.svdvals(W)[..., 0].max()) ** 2
    for attempt in range(ATTEMPTS):
        square = top + 4.0**attempt * (of_gram + of_factor * top)
        if square >= frobenius:
            break
        if not bool(torch.linalg.cholesky_ex(square * eye - M).info.any()):
            return math.sqrt(square + of_gram + of_factor * square) * scale * (1 + 8 * UNIT)
    return math.sqrt(frobenius) * scale * (1 + 8 * UNIT)
