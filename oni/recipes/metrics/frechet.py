"""Distances between two sets of features, through torchmetrics."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["Given", "TooFewSamples", "check_features", "frechet_distance"]


class TooFewSamples(UserWarning):
    """Fewer samples than features: the covariances are singular, and the distance is biased upwards."""


class Given(nn.Module):
    """A feature extractor for what already are features."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features

    def forward(self, features: Tensor) -> Tensor:
        return features


def frechet_distance(real: Tensor, generated: Tensor) -> float:
    r"""The squared Frechet distance of two normal distributions with the means and covariances of the features.

    .. math:: \|\mu_1 - \mu_2\|^2 + \operatorname{tr}(C_1 + C_2 - 2 (C_1 C_2)^{1/2})

    On the 2048 pooled features of the Inception network this is FID.

    Args:
        real, generated: features (samples, features).

    >>> features = torch.randn(100, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    >>> round(frechet_distance(features, features + 2), 3)
    12.0
    """
    from torchmetrics.image.fid import FrechetInceptionDistance

    check_features(real, generated)
    size = real.shape[1]
    if min(len(real), len(generated)) <= size:
        warnings.warn(
            f"{len(real)} real and {len(generated)} generated samples for {size} features: the covariances are "
            "singular and the distance is biased upwards; use more samples, or the kernel distance, which is unbiased",
            TooFewSamples,
            stacklevel=2,
        )
    extractor: Any = Given(size)
    metric = FrechetInceptionDistance(feature=extractor).set_dtype(torch.float64)
    metric.update(real.double(), real=True)
    metric.update(generated.double(), real=False)
    return float(metric.compute())


def check_features(real: Tensor, generated: Tensor) -> None:
    """Refuse what is no pair of sets of features, or holds numbers that are not finite."""
    for name, features in (("real", real), ("generated", generated)):
        if features.dim() != 2 or len(features) < 2:
            raise ValueError(
                f"{name} must be features (samples, features) of at least two samples, got {tuple(features.shape)}"
            )
        bad = (~torch.isfinite(features)).any(1).nonzero().flatten().tolist()
        if bad:
            shown = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
            raise ValueError(f"{name}: the features of {len(bad)} of {len(features)} samples are not finite: {shown}")
    if real.shape[1] != generated.shape[1]:
        raise ValueError(f"real has {real.shape[1]} features and generated {generated.shape[1]}; use one extractor")
