"""From images to features: any module that maps bytes (n, channels, height, width) to numbers (n, features)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["BATCH", "RandomFeatures", "extract"]

BATCH = 100
"""Images at once."""


class RandomFeatures(nn.Module):
    """Means over all positions of three convolutions with fixed random weights: 160 features in milliseconds.

    A distance on them sees colours, contrast and simple textures, and no objects. It shows how training goes; it is
    neither FID nor comparable with it.
    """

    num_features = 160

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        inputs = channels
        for number, filters in enumerate((32, 64, 64)):
            weight = torch.randn(filters, inputs, 3, 3, generator=generator) * (2 / (9 * inputs)) ** 0.5
            self.register_buffer(f"weight{number}", weight)
            inputs = filters

    def forward(self, images: Tensor) -> Tensor:
        x = images.float() / 127.5 - 1
        features = []
        for number in range(3):
            x = F.relu(F.conv2d(x, getattr(self, f"weight{number}"), padding=1))
            features.append(x.mean((2, 3)))
            x = F.avg_pool2d(x, 2)
        return torch.cat(features, 1)


@torch.no_grad()
def extract(extractor: nn.Module, images: Tensor, batch: int = BATCH) -> Tensor:
    """The features (n, features) of images, which are bytes (n, channels, height, width), in float64 on the CPU."""
    if images.dtype != torch.uint8 or images.dim() != 4:
        raise ValueError(
            f"images must be bytes (n, channels, height, width), got {images.dtype} of shape {tuple(images.shape)}; "
            "see oni.recipes.sheets.to_bytes"
        )
    return torch.cat([extractor(piece).double().cpu() for piece in images.split(batch)])
