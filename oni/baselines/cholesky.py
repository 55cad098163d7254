r"""Orthogonalisation by a Cholesky factor: the cheapest exact way, and the one to beat.

With :math:`Z Z^\top = L L^\top`, L lower triangular, :math:`W = L^{-1} Z` has orthonormal rows: those of Gram and
Schmidt, one after the other. It is not the polar factor: W depends on the order of the rows, and is not the orthogonal
matrix next to Z.

**The gradient.** From :math:`L^{-1} dS L^{-\top} = L^{-1} dL + (L^{-1} dL)^\top` follows :math:`L^{-1} dL = \Phi(L^{-1}
dS L^{-\top})`, where :math:`\Phi` keeps the lower triangle and halves the diagonal. So with :math:`X = L^{-1} dZ`

.. math:: dW = X - \Phi(X W^\top + W X^\top) W,

and for the gradient G of a loss by W, its gradient by Z is

.. math:: L^{-\top} \bigl( G - T W \bigr), \qquad T_{ij} = \begin{cases} (G W^\top)_{ij} & i \ge j \\
          (G W^\top)_{ji} & i < j. \end{cases}

That is two products and one triangular solve: no derivative of the factor itself, whose two solves and three products
autograd would add. Where rows are long, the inverse of L and a product take less time than a solve, though it does half
the arithmetic.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from oni.newton.bounding import centred
from oni.newton.matrix import flatten_batch, is_tall
from oni.newton.orthogonalize import check_input, disable_autocast
from oni.newton.product import product

__all__ = ["orthogonalize_cholesky"]


def orthogonalize_cholesky(Z: Tensor, *, center: bool = False) -> Tensor:
    r"""Make the rows of Z (the columns, if it is tall) orthonormal, one after the other (Gram-Schmidt).

    .. math:: W = L^{-1} Z_c, \qquad Z_c Z_c^\top = L L^\top

    Args:
        Z: the proxy, ``(n, d)`` or a batch ``(..., n, d)``; float16, bfloat16, float32 or float64. It needs full rank,
            and a Gram matrix within the range of its dtype.
        center: subtract each row's mean first. That costs a rank unless n < d.

    Returns:
        W, of Z's shape and dtype, orthogonal up to about :math:`\kappa^2` epsilons: the Gram matrix squares the
        condition number :math:`\kappa` of Z. Differentiable any number of times, in reverse mode.

    Raises:
        ValueError: if a matrix does not have full rank in this precision, or is not finite.

    >>> W = orthogonalize_cholesky(torch.tensor([[3.0, 4.0, 0.0], [3.0, 4.0, 2.0]]))
    >>> W
    tensor([[0.6000, 0.8000, 0.0000],
            [0.0000, 0.0000, 1.0000]])
    """
    check_input(Z)
    if center and Z.shape[-2] >= Z.shape[-1]:
        raise ValueError(f"with center=True, shape {tuple(Z.shape)} does not have full rank; pass center=False")
    if Z.numel() == 0:
        return Z.clone()
    A = Z.float() if Z.dtype in (torch.float16, torch.bfloat16) else Z
    with disable_autocast(Z.device.type):
        if center:
            A = centred(A if A.requires_grad else A.clone())
        tall = is_tall(*A.shape[-2:])
        W: Tensor = _Cholesky.apply(A.mT if tall else A)[0]
    return (W.mT if tall else W).to(Z.dtype)


class _Cholesky(torch.autograd.Function):
    @staticmethod
    def forward(A: Tensor) -> tuple[Tensor, Tensor]:
        S = multiply(A, A.mT)
        L, failures = torch.linalg.cholesky_ex(S)
        check_factor(L, failures, S)
        if not has_long_rows(A):
            return torch.linalg.solve_triangular(L, A, upper=False), L
        identity = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device)
        inverse = torch.linalg.solve_triangular(L, identity, upper=False)
        return multiply(inverse, A), inverse

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, G: Tensor | None, _: None) -> Tensor | None:
        if G is None:
            return None
        A, W, factor = ctx.saved_tensors
        T = multiply(G, W.mT).tril()
        rest = G - multiply(T + T.tril(-1).mT, W)
        if torch.is_grad_enabled():
            # L in terms of A and W, of which autograd knows how they depend on each other: to it, what was saved is a
            # constant.
            return torch.linalg.solve_triangular((A @ W.mT).tril().mT, rest, upper=True)
        if has_long_rows(A):
            return multiply(factor.mT, rest)
        return torch.linalg.solve_triangular(factor.mT, rest, upper=True)


def multiply(X: Tensor, Y: Tensor) -> Tensor:
    """The product of matrices, or of batches of any shape."""
    return product(flatten_batch(X), flatten_batch(Y)).reshape(*X.shape[:-1], Y.shape[-1])


def has_long_rows(A: Tensor) -> bool:
    """Whether to multiply by the inverse of the factor instead of solving."""
    return A.shape[-1] >= 2 * A.shape[-2]


def check_factor(L: Tensor, failures: Tensor, S: Tensor) -> None:
    r"""Raise an error that says which matrix has no factor, or one made of rounding noise, if any.

    The square of a pivot is what the rows before leave of a row's square, up to a rounding of about
    :math:`\sqrt n` epsilons of that.
    """
    pivots, squares = L.diagonal(dim1=-2, dim2=-1).square(), S.diagonal(dim1=-2, dim2=-1)
    noise = 2 * math.sqrt(S.shape[-1]) * torch.finfo(S.dtype).eps
    bad = (failures != 0) | ~(pivots > noise * squares).all(-1)
    if bad.any():
        where = ", ".join(map(str, bad.nonzero()[0].tolist()))
        raise ValueError(
            f"Z must have full rank and be finite, but the Gram matrix of {f'Z[{where}]' if where else 'Z'} is not "
            f"positive definite in {S.dtype}; pass linearly independent rows, or use oni.orthogonalize or "
            "orthogonalize_olm, which take any rank"
        )
