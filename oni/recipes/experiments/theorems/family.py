"""What the two theorems share: random orthonormal matrices, and the limit of a test at 99 %.

An expectation is tested against its estimate, with a correction for the number of entries that are tested.
"""

from __future__ import annotations

import statistics

import torch
from torch import Tensor

from oni.newton.orthogonalize import orthogonalize

__all__ = ["EXACT", "confidence_limit", "draw_orthonormal"]

STEPS = 30
"""Newton steps after which the short side is orthonormal up to rounding."""
EXACT = 1e-9
"""Bound on the rounding error of a ratio of norms."""
CONFIDENCE = 0.99
LAST: dict[tuple[tuple[int, ...], bool], tuple[Tensor, Tensor]] = {}
"""The last matrices drawn of each shape, and their orthogonalisation."""


def draw_orthonormal(
    n: int, d: int, generator: torch.Generator, *, center: bool = False, batch: int | None = None
) -> Tensor:
    """A random matrix, or a batch of them, with an orthonormal short side."""
    shape = (n, d) if batch is None else (batch, n, d)
    Z = torch.randn(shape, generator=generator, dtype=torch.float64)
    # Runs that differ in their scale alone draw the same, one after the other.
    last_Z, last_W = LAST.get((shape, center), (None, None))
    if last_Z is None or last_W is None or not torch.equal(last_Z, Z):
        last_W = orthogonalize(Z, STEPS, center=center)
        LAST[shape, center] = Z, last_W
    return last_W


def confidence_limit(count: int) -> float:
    """The size that none of so many standard normal numbers exceeds, with the confidence above."""
    return statistics.NormalDist().inv_cdf(1 - (1 - CONFIDENCE) / (2 * count))
