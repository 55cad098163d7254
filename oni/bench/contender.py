"""One way to compute an orthogonal weight, ready to be run forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from oni.bench.limit import Products, finish
from oni.newton.matrix import is_tall

__all__ = ["Contender", "Gives", "Reached", "WeightJob", "join", "make_job", "measure_orthogonality"]


class WeightJob(NamedTuple):
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


def make_job(function: Callable[[Tensor], Tensor], Z: Tensor, G: Tensor) -> WeightJob:
    """The job of one function of the proxy."""
    leaf = Z.clone().requires_grad_()
    return WeightJob(lambda: [function(leaf)], [leaf], [G])


class Gives(NamedTuple):
    """What kind of orthogonal weight a method gives."""

    polar: bool
    """Whether the singular vectors stay those of Z, so that W is the orthogonal matrix next to Z, or on its way."""
    partial: bool
    """Whether it can stop on the way."""
    full_rank: bool
    """Whether it needs full rank."""

    def __str__(self) -> str:
        words = {"partial": self.partial, "needs full rank": self.full_rank}
        return ", ".join(["polar" if self.polar else "not polar", *(word for word, holds in words.items() if holds)])


@dataclass(frozen=True)
class Contender:
    """A way to compute the weight: a row of the table."""

    name: str
    prepare: Callable[[Tensor, Tensor], WeightJob]
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
    gives: Gives | None = None


def join(tensors: Sequence[Tensor]) -> Tensor:
    """A batch as one tensor, whether it was computed at once or one by one."""
    return torch.stack(list(tensors)) if len(tensors) > 1 else tensors[0]


class Reached(NamedTuple):
    """What a weight is like; the worst of a batch."""

    smallest: float
    """The smallest singular value."""
    largest: float
    delta: float
    r""":math:`\|W W^\top - I\|_F` on the short side."""

    @property
    def off_by(self) -> float:
        """How far the singular values are from 1 at most."""
        return max(1 - self.smallest, self.largest - 1)


def measure_orthogonality(W: Tensor) -> Reached:
    """Of the short side, in float64.

    >>> measure_orthogonality(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.5, 0.0]]))
    Reached(smallest=0.5, largest=1.0, delta=0.75)
    """
    W = W.double()
    squares = torch.linalg.eigvalsh(W.mT @ W if is_tall(*W.shape[-2:]) else W @ W.mT).clamp_min(0.0)
    smallest, largest = float(squares.amin().sqrt()), float(squares.amax().sqrt())
    return Reached(smallest, largest, float((squares - 1).norm(dim=-1).max()))
