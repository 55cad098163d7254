r"""The inverse square root of positive semidefinite matrices by eigendecomposition, with a gradient that stays finite.

Of :math:`S = D \Lambda D^\top`, :math:`r = \sqrt\lambda`, this is :math:`Q = D \Lambda^{-1/2} D^\top` on the range of S
and zero on its null space. With the gradient E of a loss by Q, made symmetric, the gradient by S is

.. math:: D \bigl[ K \circ (D^\top E D) \bigr] D^\top, \qquad K_{ij} = \begin{cases}
          -1 / (r_i r_j (r_i + r_j)) & \text{both in the range} \\
          1 / r_i^3 & \text{i in the range, j not} \\ 0 & \text{neither,} \end{cases}

which has no :math:`1 / (\lambda_i - \lambda_j)`: that arises only where D and :math:`\Lambda` are differentiated apart,
and cancels. The last two cases are the derivative along matrices of the same rank.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["exact_inverse_root"]


def exact_inverse_root(S: Tensor, cutoff: float) -> Tensor:
    r""":math:`S^{-1/2}` of symmetric matrices ``(..., n, n)``; eigenvalues up to ``cutoff`` of the largest are zero.

    A matrix that holds NaN or infinity gives NaN. Differentiable twice and more.

    >>> exact_inverse_root(torch.diag(torch.tensor([4.0, 0.25, 0.0])), 1e-6).diagonal()
    tensor([0.5000, 2.0000, 0.0000])
    """
    Q: Tensor = _InverseRoot.apply(S, cutoff)[0]
    return Q


class _InverseRoot(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(S: Tensor, cutoff: float) -> tuple[Tensor, Tensor, Tensor]:
        finite = S.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)
        # eigh raises an error for a whole batch if one matrix of it is not finite.
        eigenvalues, D = torch.linalg.eigh(torch.where(finite, S, 0.0))
        largest = eigenvalues[..., -1:].clamp_min(0.0)
        r = torch.where(eigenvalues > cutoff * largest, eigenvalues, 0.0).sqrt()
        Q = D * reciprocal(r)[..., None, :] @ D.mT
        return torch.where(finite, Q, torch.nan), D, r

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(inputs[0], *output)

    @staticmethod
    def backward(ctx: Any, G: Tensor | None, *_: None) -> tuple[Tensor | None, None]:
        if G is None:
            return None, None
        S, Q, D, r = ctx.saved_tensors
        E = 0.5 * (G + G.mT)
        if not torch.is_grad_enabled():
            return in_eigenbasis(E, slopes(r), D), None
        # The same in terms of Q and S, of which autograd knows how they depend on each other: to it, D and r are
        # constants. P projects on the null space.
        R = S @ Q
        P = torch.eye(S.shape[-1], dtype=S.dtype, device=S.device) - R @ Q
        outer = Q @ Q @ Q @ E @ P
        return outer + outer.mT - Q @ _Lyapunov.apply(R, E - P @ E @ P, D, r) @ Q, None


class _Lyapunov(torch.autograd.Function):
    """The Y with R Y + Y R = E, for R = D diag(r) D^T; symmetric, and zero on the null space of R."""

    generate_vmap_rule = True

    @staticmethod
    def forward(R: Tensor, E: Tensor, D: Tensor, r: Tensor) -> Tensor:
        return in_eigenbasis(E, reciprocal(r[..., :, None] + r[..., None, :]), D)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        R, _, D, r = inputs
        ctx.save_for_backward(R, D, r, output)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor, Tensor, None, None]:
        R, D, r, Y = ctx.saved_tensors
        # From dR Y + Y dR + R dY + dY R = dE, and the solution operator is its own adjoint.
        dE = _Lyapunov.apply(R, 0.5 * (G + G.mT), D, r)
        dR = dE @ Y
        return -(dR + dR.mT), dE, None, None


def slopes(r: Tensor) -> Tensor:
    """K: the derivative of the inverse root in the basis of eigenvectors."""
    q = reciprocal(r)
    both = -q[..., :, None] * q[..., None, :] * reciprocal(r[..., :, None] + r[..., None, :])
    null = (r == 0).to(r.dtype)
    one = (q**3)[..., :, None] * null[..., None, :]
    return both + one + one.mT


def in_eigenbasis(E: Tensor, K: Tensor, D: Tensor) -> Tensor:
    return D @ (K * (D.mT @ E @ D)) @ D.mT


def reciprocal(x: Tensor) -> Tensor:
    """1 / x, and 0 where x is 0."""
    return torch.where(x == 0, 0.0, 1 / torch.where(x == 0, 1.0, x))
