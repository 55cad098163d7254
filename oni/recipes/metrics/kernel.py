"""The kernel distance of two sets of features, through torchmetrics."""

from __future__ import annotations

import statistics

from torch import Tensor

from oni.recipes.metrics.frechet import check_features

__all__ = ["BLOCKS", "kernel_distance"]

BLOCKS = 10
"""Into how many parts the samples are divided to see how much the distance varies."""


def kernel_distance(real: Tensor, generated: Tensor) -> tuple[float, float]:
    r"""The squared maximum mean discrepancy with the kernel :math:`(x \cdot y / d + 1)^3`, and its standard error.

    On the 2048 pooled features of the Inception network this is KID. The estimate has no bias, whatever the number of
    samples, and may be below 0. Of the larger set, only as many samples as the smaller has are used. The standard error
    is that of the mean over ten blocks of samples.

    Args:
        real, generated: features (samples, features).
    """
    from torchmetrics.image.kid import poly_mmd

    check_features(real, generated)
    count = min(len(real), len(generated))
    if count < 2 * BLOCKS:
        raise ValueError(f"the kernel distance needs at least {2 * BLOCKS} real and generated samples, got {count}")
    real, generated = real[:count].double(), generated[:count].double()
    pairs = zip(real.tensor_split(BLOCKS), generated.tensor_split(BLOCKS), strict=True)
    # torchmetrics' formula is for as many samples of the one as of the other.
    blocks = [float(poly_mmd(some, others)) for some, others in pairs]
    return float(poly_mmd(real, generated)), statistics.stdev(blocks) / BLOCKS**0.5
