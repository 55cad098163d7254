r"""How many matrix products ``orthogonalize`` makes.

With m the short side and p the long one, *short* products are m x m x m and *long* ones m x m x p. Forward and
backward, Newton's schedule, compact or trace bound:

===== ============== =============
steps short products long products
===== ============== =============
2     2 + 2          2 + 3
3     5 + 7          2 + 3
5     10 + 14        2 + 3
===== ============== =============

The bound ``trace2`` adds 0 + 1 short ones, ``tight`` 1 + 2.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from oni.newton.evaluation import Spec
from oni.newton.precision import planned
from oni.newton.schedule import checked_steps

__all__ = ["Products", "count_products"]


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

    def multiply_adds(self, n: int, d: int) -> tuple[int, int]:
        """Return the multiply-adds of these products for an n x d matrix, forward and backward."""
        short, long = sorted((n, d))
        return (
            self.short_forward * short**3 + self.long_forward * short * short * long,
            self.short_backward * short**3 + self.long_backward * short * short * long,
        )


def count_products(steps: int, *, bound: str = "compact", schedule: str = "newton") -> Products:
    """Count the products of ``steps`` steps on a float32 matrix on the CPU.

    >>> count_products(5)
    Products(short_forward=10, short_backward=14, long_forward=2, long_backward=3)
    """
    _, parts = planned(schedule, checked_steps(steps), torch.float32, "cpu", bound, True)
    return Products(*map(sum, zip(*map(_count_part, parts), strict=True)))


def _count_part(part: Spec) -> Products:
    quartic = sum(stage.l != 0 for stage in part.plan)
    joints = max(0, len(part.plan) - 1)
    # A quartic stage squares twice. Each joint between two stages multiplies B by Q, squares Q and multiplies P
    # by that; on tangents, a product is two and a square one.
    forward, backward = 2 * quartic + 3 * joints, 2 * quartic + 5 * joints
    if part.bound in ("trace2", "tight"):
        # S^2; the first stage then has it for its own square, unless it is a lone linear one.
        forward += 1 - bool(quartic)
        backward += 1
    if part.bound == "tight":
        # S^4.
        forward += 1
        backward += 1
    # The Gram matrix and W; G A^T and the two terms of the gradient. Without steps B is the identity.
    return Products(forward, backward, *((2, 3) if part.plan else (1, 2)))
