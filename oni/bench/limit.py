r"""How fast ``orthogonalize`` could be at best: its matrix products alone, at this machine's rate of multiplying.

:mod:`oni.newton.product_count` counts them. Everything else (bounds, sums, transposes) counts as waste.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from oni.newton.matrix import is_tall
from oni.newton.product import product
from oni.newton.product_count import Products, count_products

__all__ = ["REPEATS", "Products", "count_products", "finish", "operations", "product_calls"]


REPEATS = {"short": 4, "long": 5}
"""How many products one timed call makes."""


def product_calls(Z: Tensor) -> dict[str, Callable[[], object]]:
    """Calls that make :data:`REPEATS` products of each kind, in the layout that Z has, and nothing else."""
    A = Z.detach()
    m = min(A.shape[-2:])
    B = A.new_empty((*A.shape[:-2], m, m)).normal_()
    gram, applied = ((A.mT, A), (A, B)) if is_tall(*A.shape[-2:]) else ((A, A.mT), (B, A))

    @torch.no_grad()
    def short() -> None:
        for _ in range(REPEATS["short"]):
            product(B, B)
        finish(A)

    @torch.no_grad()
    def long() -> None:
        # The mix of one forward and backward pass.
        for _ in range(2):
            product(*gram)
        for _ in range(3):
            product(*applied)
        finish(A)

    return {"short": short, "long": long}


def operations(shape: tuple[int, ...], kind: str) -> int:
    """Floating point operations of one product."""
    *batch, n, d = shape
    m, p = sorted((n, d))
    return 2 * m * m * (m if kind == "short" else p) * (batch[0] if batch else 1)


def finish(tensor: Tensor) -> None:
    """Wait until everything has run on the tensor's device."""
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
