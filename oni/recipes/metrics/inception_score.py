"""The Inception score, through torchmetrics: how sure a classifier is of each image, and how unsure of all."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from oni.recipes.metrics.frechet import Given

__all__ = ["SPLITS", "class_score"]

SPLITS = 10


def class_score(logits: Tensor) -> tuple[float, float]:
    r"""The score :math:`\exp E_x \operatorname{KL}(p(y | x) \,\|\, p(y))`, its mean and deviation over ten splits.

    With the class scores of the Inception network this is the Inception score (IS); with those of any other classifier
    it is a score of that classifier. From 1 to the number of classes; larger is better.

    Args:
        logits: of generated images (samples, classes).
    """
    from torchmetrics.image.inception import InceptionScore

    if logits.dim() != 2 or len(logits) < SPLITS:
        raise ValueError(f"logits must be (samples, classes) of at least {SPLITS} samples, got {tuple(logits.shape)}")
    if not torch.isfinite(logits).all():
        raise ValueError("logits contain NaN or infinity")
    extractor: Any = Given(logits.shape[1])
    with warnings.catch_warnings(), torch.random.fork_rng([]):
        # It keeps all features in memory, which are here anyway.
        warnings.simplefilter("ignore", UserWarning)
        metric = InceptionScore(feature=extractor, splits=SPLITS)
        # It shuffles.
        torch.manual_seed(0)
        metric.update(logits.double())
        mean, deviation = metric.compute()
    return float(mean), float(deviation)
