r"""How fast ``orthogonalize`` could be at best: its matrix products alone, at this machine's rate of multiplying.

With m the short side and p the long one, *short* products are m x m x m and *long* ones m x m x p. Everything
else (bounds, sums, transposes) counts as waste. Forward and backward, Newton's schedule, compact bound:

===== ============== =============
steps short products long products
===== ============== =============
2     2 + 2          2 + 3
3     5 + 7          2 + 3
5     10 + 14        2 + 3
===== ============== =============

The tight bound adds 1 + 2 short ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from oni.newton.evaluation import Spec
from oni.newton.matrix import is_tall
from oni.newton.precision import planned

__all__ = ["REPEATS", "Products", "finish", "operations", "product_calls", "products_of"]


class Products(NamedTuple):
    """Numbers of matrix products."""

    short_forward: int
    short_backward: int
    long_forward: int
    long_backward: int

    @property
    def short(self) -> int:
        return self.short_forward + self.short_backward

    @property
    def long(self) -> int:
        return self.long_forward + self.long_backward


def products_of(steps: int, *, bound: str = "compact", schedule: str = "newton") -> Products:
    """The least number of products for ``steps`` steps on a float32 CPU matrix.

    >>> products_of(5)
    Products(short_forward=10, short_backward=14, long_forward=2, long_backward=3)
    """
    _, parts = planned(schedule, steps, torch.float32, "cpu", bound, True)
    return Products(*map(sum, zip(*map(_products_of_part, parts), strict=True)))


def _products_of_part(part: Spec) -> Products:
    quartic = sum(stage.l != 0 for stage in part.plan)
    joints = max(0, len(part.plan) - 1)
    # A quartic stage squares twice. Each joint between two stages multiplies B by Q, squares Q and multiplies P
    # by that; on tangents, a product is two and a square one.
    forward, backward = 2 * quartic + 3 * joints, 2 * quartic + 5 * joints
    if part.bound == "tight":
        # S^2 and S^4; the first stage then has S^2 for its own square, unless it is a lone linear one.
        forward += 2 - bool(quartic)
        backward += 2
    # The Gram matrix and W; G A^T and the two terms of the gradient. Without steps B is the identity.
    return Products(forward, backward, *((2, 3) if part.plan else (1, 2)))


REPEATS = {"short": 4, "long": 5}
"""How many products one timed call makes."""


def product_calls(Z: Tensor) -> dict[str, Callable[[], object]]:
    """Calls that make :data:`REPEATS` products of each kind, in the layout that Z has, and nothing else."""
    A = Z.detach()
    m = min(A.shape[-2:])
    B, C = A.new_empty((2, *A.shape[:-2], m, m)).normal_().unbind()
    D = torch.empty_like(A)
    multiply = torch.mm if A.dim() == 2 else torch.bmm
    gram, applied = ((A.mT, A), (A, B)) if is_tall(*A.shape[-2:]) else ((A, A.mT), (B, A))

    def short() -> None:
        for _ in range(REPEATS["short"]):
            multiply(B, B, out=C)
        finish(A)

    def long() -> None:
        # The mix of one forward and backward pass.
        for _ in range(2):
            multiply(*gram, out=C)
        for _ in range(3):
            multiply(*applied, out=D)
        finish(A)

    return {"short": short, "long": long}


def operations(shape: tuple[int, ...], kind: str) -> int:
    """Floating point operations of one product."""
    *batch, n, d = shape
    m, p = sorted((n, d))
    return 2 * m * m * (m if kind == "short" else p) * (batch[0] if batch else 1)


def finish(on: Tensor) -> None:
    """Wait until everything has run on the tensor's device."""
    if on.is_cuda:
        torch.cuda.synchronize(on.device)
