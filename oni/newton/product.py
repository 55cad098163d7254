"""Products of matrices: the one place that decides who multiplies."""

from __future__ import annotations

import torch
from torch import Tensor

from oni.torch_internals import can_use_onednn, multiply_by_onednn

__all__ = ["accumulated", "product"]

LARGE = 1 << 22
"""With fewer multiplications, as for matrices of 128 x 128, the call of oneDNN costs more than it saves."""
LONG = 1024
"""From so many columns of Y on, oneDNN may copy X first to have its rows contiguous."""


def product(X: Tensor, Y: Tensor, *, plus: Tensor | None = None, alpha: float = 1, beta: float = 1) -> Tensor:
    """``alpha X Y + beta plus`` in one pass, for matrices and batches of them."""
    # The defaults are ints: torch.compile(dynamic=True) makes an input of a float, which a second call then misses.
    if prefers_onednn(X, Y):
        XY = multiply_by_onednn(X, Y) if X.dim() == 2 else torch.stack(list(map(multiply_by_onednn, X, Y)))
        if alpha != 1:
            XY.mul_(alpha)
        return XY if plus is None else XY.add_(plus, alpha=beta)
    # Not torch.matmul, which takes as long to find out that it is one of these as to multiply small matrices.
    if X.dim() == 2:
        return torch.mm(X, Y) if plus is None else torch.addmm(plus, X, Y, alpha=alpha, beta=beta)
    return torch.bmm(X, Y) if plus is None else torch.baddbmm(plus, X, Y, alpha=alpha, beta=beta)


def accumulated(onto: Tensor, X: Tensor, Y: Tensor) -> Tensor:
    """``onto + X Y``, in place where no graph is recorded: ``onto`` must be a fresh tensor."""
    if torch.is_grad_enabled():
        return product(X, Y, plus=onto)
    if prefers_onednn(X, Y):
        return onto.add_(product(X, Y))
    return onto.addmm_(X, Y) if onto.dim() == 2 else onto.baddbmm_(X, Y)


def prefers_onednn(X: Tensor, Y: Tensor) -> bool:
    """Whether oneDNN multiplies these matrices faster than torch does by itself, which leaves it to MKL."""
    if torch.compiler.is_compiling():
        return False
    # Their size first: to look further takes as long as to multiply small ones.
    columns = Y.shape[-1]
    if X.shape[-2] * X.shape[-1] * columns < LARGE:
        return False
    return can_use_onednn(X, Y) and (X.is_contiguous() or columns >= LONG)
