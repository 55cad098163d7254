r"""Before the iteration: bring a matrix to a safe scale, centre its rows, bound its spectrum.

Newton's iteration needs singular values in :math:`[0, 1]`, and is faster the closer to 1 they start. With
:math:`M = A A^\top`, dividing :math:`A` by :math:`\sqrt f` guarantees that for every :math:`f \ge \lambda_{\max}(M)`:

============== ======================================================== ======================================
bound          :math:`f`                                                start of k equal singular values
============== ======================================================== ======================================
``frobenius``  :math:`\operatorname{tr} M = \|A\|_F^2`                  :math:`k^{-1/2}`
``compact``    :math:`\|M\|_F` (the paper's Algorithm 2)                :math:`k^{-1/4}`
``trace``      :math:`m + \sqrt{(k-1)/k}\,\|M - m I\|_F` (beyond it)     1
``trace2``     the root of the same for :math:`M^2` (beyond it)         1
``tight``      :math:`\|M^4\|_F^{1/4}` (beyond it)                      :math:`k^{-1/16}`
============== ======================================================== ======================================

Three are Schatten norms of :math:`M` (of order 1, 2 and 8). ``trace``, with k the size of M and m the mean of its
eigenvalues, is Samuelson's inequality: none of k numbers is further from their mean than :math:`\sqrt{k-1}` times their
standard deviation. No sharper bound follows from trace and Frobenius norm. ``trace2`` applies it to the squares of the
eigenvalues, which is sharper still. All five are exact for a matrix of rank 1.

**The trace bound in floating point.** With :math:`D = M / m - I` and :math:`r = \|D\|_F` it is evaluated as

.. math:: f = (1 + \mu)\, m\, \bigl(1 + \sqrt{(k-1)/k}\; \rho\bigr), \qquad \rho = \sqrt{r^2 + \tau^2},

with :math:`\mu = (k + 16) \epsilon` and :math:`\tau = 256 k \epsilon` (:func:`trace_factors`). Both only enlarge it.

* *It is never below the largest eigenvalue of M as computed.* Let :math:`u = \epsilon / 2`. Whatever the order of its
  terms, a sum of k positive numbers is off by at most (k - 1) u of itself, so the computed m is at least (1 - k u) m.
  An error of m does not lower the norm, as :math:`\|M - t I\|_F \ge \|M - m I\|_F` for *every* number t. Entries of D
  are off by 2 u of themselves, and on the diagonal by another u. Squares are summed over rows and then over columns, k
  terms each, so r is at least (1 - (k + 4) u) times its value, less :math:`\sqrt k\, u`. What remains is a handful of
  operations on numbers. Together that is less than :math:`(k + \sqrt k + 16) u` to first order; :math:`\mu` is more.
  For ``trace2``, :math:`m k^2 u` is added: the product :math:`M M` is off by at most k u of its trace.
* *It is smooth.* The norm itself has a kink at D = 0, where its slope is D / r: for an orthogonal matrix that is
  rounding noise, of length 1. The noise in r is about k u; :math:`\tau` is 512 times that, so no more than 1/512 of
  such a slope is left, and where D is zero only the slope of m is left. The price is that an orthogonal matrix starts
  at :math:`1 - \tau / 2`: in float32 0.996 for k = 256, 0.985 for 1024, 0.943 for 4096 (``trace2``, to which
  :math:`k^2 u` is added: 0.997, 0.978, 0.828). Training moves it further away.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from oni.newton.iteration import plus_identity
from oni.newton.product import product
from oni.torch_internals import may_keep_results

__all__ = [
    "BOUNDS",
    "SCHATTEN_ORDER",
    "TRACE_POWER",
    "Bounded",
    "bounded",
    "centred",
    "power_of_two_scale",
    "slope_of_log_bound",
    "trace",
    "trace_factors",
]

BOUNDS = ("frobenius", "compact", "trace", "trace2", "tight")
TRACE_POWER = {"trace": 1, "trace2": 2}
"""The power of M to which a bound applies Samuelson's inequality."""
SCHATTEN_ORDER = {"frobenius": 2, "compact": 4, "tight": 16}
"""The order of a bound that is a Schatten norm of the matrix itself: twice that of the Gram matrix."""


def power_of_two_scale(Z: Tensor) -> Tensor:
    """A power of two per matrix that brings its largest entry to [0.5, 1), so that no Gram matrix over- or underflows.

    Multiplying by a power of two is exact. A matrix with NaN or infinity gets NaN, so that no part of it looks finite.
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
    """Subtract each row's mean, in place where nothing keeps Z, which must be a fresh tensor.

    Subtracting the first column beforehand makes constant rows exactly zero (a rounded mean would leave noise, which
    the scale-free bound would blow up to a full-sized answer) and keeps precision where the mean dwarfs the spread.
    """
    if torch.is_grad_enabled() or may_keep_results():
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
    spread: Tensor | None = None
    """The trace bound's rho, how far the eigenvalues are from equal; shape (..., 1, 1)."""


def bounded(M: Tensor, bound: str | None) -> Bounded:
    """Divide the Gram matrix M, a fresh tensor, by its bound; ``None`` leaves it as it is."""
    if bound is None:
        return Bounded(M, torch.ones_like(M[..., :1, :1]))
    spread = None
    if bound == "frobenius":
        f = trace(M)
    elif bound == "trace":
        f, spread = trace_bound(M, TRACE_POWER[bound])
    else:
        f = frobenius_norm(M)
    # Zero matrices, and those whose norm underflows: S = M / infinity, and the factor 0 keeps both the result and its
    # gradient at zero. Between 0 and tiny, f has lost digits, and might be less than it bounds.
    zero = f == 0
    f = f.clamp_min(torch.finfo(f.dtype).tiny).masked_fill(zero, torch.inf)
    root = f.rsqrt()
    S = M / f if torch.is_grad_enabled() or may_keep_results() else M.div_(f)
    if bound not in ("trace2", "tight"):
        return Bounded(S, root, spread=spread)
    # S has Frobenius norm 1 here, so its powers neither over- nor underflow.
    S2 = product(S, S)
    if bound == "trace2":
        g2, spread = trace_bound(S2, TRACE_POWER[bound])
        g2 = g2.masked_fill(zero, 1.0)
        g = g2.sqrt()
        return Bounded(S / g, root * g.rsqrt(), S2 / g2, spread=spread)
    S4 = product(S2, S2)
    g = frobenius_norm(S4).masked_fill(zero, 1.0) ** 0.25
    return Bounded(S / g, root * g.rsqrt(), S2 / g**2, S4 / g**4)


def slope_of_log_bound(at: Bounded, bound: str | None) -> Tensor | None:
    r"""The symmetric N with :math:`\delta f / f = \langle N, \delta M \rangle / f`; ``None`` without a bound."""
    if bound is None:
        return None
    if bound == "frobenius":
        return torch.eye(at.S.shape[-1], dtype=at.S.dtype, device=at.S.device)
    if bound == "compact":
        return at.S
    if bound == "trace":
        return slope_of_trace_bound(at.S, at.spread, TRACE_POWER[bound])
    assert at.S2 is not None
    if bound == "trace2":
        # 2 df / f = <N2, dM M + M dM> / f^2, and N2 commutes with M.
        return product(slope_of_trace_bound(at.S2, at.spread, TRACE_POWER[bound]), at.S)
    assert at.S4 is not None
    # f = (tr M^8)^(1/8), and tr S^8 = 1.
    return product(at.S4, product(at.S2, at.S))


def trace_factors(k: int, power: int = 1, dtype: torch.dtype | None = None) -> tuple[float, float, float]:
    r"""The a, b and :math:`\tau` of :math:`f = m (a + b \rho)`, the trace bound of this power of M.

    Those of the plain formula, or enlarged for rounding in a dtype.
    """
    eps = 0.0 if dtype is None else torch.finfo(dtype).eps
    mu = (k + 16) * eps
    product_error = k**2 * eps / 2 if power > 1 else 0.0
    return 1 + mu + product_error, (1 + mu) * math.sqrt((k - 1) / k), 256 * k * eps


def trace_bound(M: Tensor, power: int = 1) -> tuple[Tensor, Tensor]:
    """The trace bound of M, which is this power of a Gram matrix, and how far its eigenvalues are from equal."""
    k = M.shape[-1]
    a, b, tau = trace_factors(k, power, M.dtype)
    m = trace(M) / k
    D = plus_identity(M / m.masked_fill(m == 0, 1.0), -1.0)
    # Over rows, then over columns: in one sum of k^2 terms errors might add up to k^2 u.
    spread = (D.square().sum(-1, keepdim=True).sum(-2, keepdim=True) + tau**2).sqrt()
    return m * (a + b * spread), spread


def slope_of_trace_bound(S: Tensor, spread: Tensor | None, power: int) -> Tensor:
    r""":math:`N = (a + b \tau^2 / \rho) I / k + b D / \rho`; for :math:`S = M / f`, :math:`D = (a + b \rho) S - I`."""
    assert spread is not None
    k = S.shape[-1]
    a, b, tau = trace_factors(k, power, S.dtype)
    slope = b / spread
    return plus_identity(slope * (a + b * spread) * S, ((a + slope * tau**2) / k - slope)[..., 0])


def trace(M: Tensor) -> Tensor:
    """The trace of each matrix, shape (..., 1, 1)."""
    return M.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]


def frobenius_norm(M: Tensor) -> Tensor:
    """The norm of each matrix, shape (..., 1, 1)."""
    # Of its rows first: in one sum of k^2 equal terms torch's errors add up, to 2e-3 for 2048 x 2048 in float32.
    return torch.linalg.vector_norm(torch.linalg.vector_norm(M, dim=-1, keepdim=True), dim=-2, keepdim=True)
