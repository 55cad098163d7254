r"""Before the iteration: bring a matrix to a safe scale, centre its rows, bound its spectrum.

Newton's iteration needs singular values in :math:`[0, 1]`, and is faster the closer to 1 they start. With
:math:`M = A A^\top`, dividing :math:`A` by :math:`\sqrt f` guarantees that for every :math:`f \ge \lambda_{\max}(M)`:

============== ============================================== ======================================
bound          :math:`f`                                      start of m equal singular values
============== ============================================== ======================================
``frobenius``  :math:`\operatorname{tr} M = \|A\|_F^2`        :math:`m^{-1/2}`
``compact``    :math:`\|M\|_F` (the paper's Algorithm 2)      :math:`m^{-1/4}`
``tight``      :math:`\|M^4\|_F^{1/4}` (beyond the paper)     :math:`m^{-1/16}`
============== ============================================== ======================================

All three are Schatten norms of :math:`M` (of order 1, 2 and 8), so each is exact for a matrix of rank 1.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from oni.newton.iteration import product

__all__ = [
    "BOUNDS",
    "SCHATTEN_ORDER",
    "Bounded",
    "bounded",
    "centred",
    "power_of_two_scale",
    "slope_of_log_bound",
    "trace",
]

BOUNDS = ("frobenius", "compact", "tight")
SCHATTEN_ORDER = {"frobenius": 2, "compact": 4, "tight": 16}
"""Of the bounds as norms of the matrix itself: twice those of its Gram matrix."""


def power_of_two_scale(Z: Tensor) -> Tensor:
    """A power of two per matrix that brings its largest entry to [0.5, 1), so that no Gram matrix over- or underflows.

    A power of two rounds nothing. A matrix that holds NaN or infinity gets NaN, so that none of it looks finite.
    """
    if Z.dim() == 2:
        low, high = torch.aminmax(Z)
        largest = torch.maximum(high, -low).reshape(1, 1)
    else:
        largest = torch.maximum(Z.amax((-2, -1), keepdim=True), -Z.amin((-2, -1), keepdim=True))
    largest = largest.clamp_min(torch.finfo(Z.dtype).tiny)
    # largest = mantissa * 2^exponent, so the quotient is 2^-exponent without rounding; infinity / infinity is NaN.
    return torch.frexp(largest).mantissa / largest


def centred(Z: Tensor) -> Tensor:
    """Subtract each row's mean, in place where no graph is recorded: Z must be a fresh tensor.

    Subtracting the first column beforehand makes constant rows exactly zero (a rounded mean would leave noise, which
    the scale-free bound would blow up to a full-sized answer) and keeps precision where the mean dwarfs the spread.
    """
    if torch.is_grad_enabled():
        Z = Z - Z[..., :1]
        return Z - Z.mean(-1, keepdim=True)
    Z = Z.sub_(Z[..., :1].clone())
    return Z.sub_(Z.mean(-1, keepdim=True))


class Bounded(NamedTuple):
    """A Gram matrix divided by its bound f."""

    S: Tensor
    root: Tensor
    """The factor 1 / sqrt(f) for the matrix itself, 0 where that is zero; shape (..., 1, 1)."""
    S2: Tensor | None = None
    """S squared, where the bound had to compute it anyway."""
    S4: Tensor | None = None


def bounded(M: Tensor, bound: str | None) -> Bounded:
    """Divide the Gram matrix M, a fresh tensor, by its bound; ``None`` leaves it as it is."""
    if bound is None:
        return Bounded(M, torch.ones_like(M[..., :1, :1]))
    f = trace(M) if bound == "frobenius" else frobenius_norm(M)
    # Zero matrices, and those whose norm underflows: S = M / infinity, and the factor 0 keeps both the result and its
    # gradient at zero. Between 0 and tiny, f has lost digits, and might be less than it bounds.
    zero = f == 0
    f = f.clamp_min(torch.finfo(f.dtype).tiny).masked_fill(zero, torch.inf)
    root = f.rsqrt()
    S = M / f if torch.is_grad_enabled() else M.div_(f)
    if bound != "tight":
        return Bounded(S, root)
    # S has Frobenius norm 1 here, so its powers neither over- nor underflow.
    S2 = product(S, S)
    S4 = product(S2, S2)
    g = frobenius_norm(S4).masked_fill(zero, 1.0) ** 0.25
    return Bounded(S / g, root * g.rsqrt(), S2 / g**2, S4 / g**4)


def slope_of_log_bound(at: Bounded, bound: str | None) -> Tensor | None:
    r"""The symmetric N with :math:`\delta f / f = \langle N, \delta M \rangle / f`; ``None`` for none."""
    if bound is None:
        return None
    if bound == "frobenius":
        return torch.eye(at.S.shape[-1], dtype=at.S.dtype, device=at.S.device)
    if bound == "compact":
        return at.S
    assert at.S2 is not None
    assert at.S4 is not None
    # f = (tr M^8)^(1/8), and tr S^8 = 1.
    return product(at.S4, product(at.S2, at.S))


def trace(M: Tensor) -> Tensor:
    """The trace of each matrix, shape (..., 1, 1)."""
    return M.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]


def frobenius_norm(M: Tensor) -> Tensor:
    return torch.linalg.vector_norm(M, dim=(-2, -1), keepdim=True)
