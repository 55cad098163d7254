"""One way to compute an orthogonal weight, ready to be run forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from oni.bench.matrices.limit import Products, finish

__all__ = ["Contender", "Job", "make_job"]


class Job(NamedTuple):
    """A forward pass, what it depends on, and the gradients that flow into it."""

    forward: Callable[[], list[Tensor]]
    leaves: list[Tensor]
    G: list[Tensor]

    def run(self) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """Forward and backward: the weights, and the gradients of the leaves."""
        W = self.forward()
        dZ = torch.autograd.grad(W, self.leaves, self.G)
        finish(dZ[0])
        return W, dZ


def make_job(function: Callable[[Tensor], Tensor], Z: Tensor, G: Tensor) -> Job:
    """The job of one function of the proxy."""
    leaf = Z.clone().requires_grad_()
    return Job(lambda: [function(leaf)], [leaf], [G])


@dataclass(frozen=True)
class Contender:
    """A way to compute the weight: a row of the table."""

    name: str
    prepare: Callable[[Tensor, Tensor], Job]
    """From the proxy Z and the gradient G to what is timed."""
    steps: int | None = None
    against: str = ""
    """The contender whose time this one's is divided by."""
    same: bool = False
    """Whether it computes what that one does; checked before anything is timed."""
    patient: bool = False
    """Never skipped, however slow: a target needs it."""
    products: Products | None = None
    """The least number of matrix products, where known."""
    remark: str = ""
