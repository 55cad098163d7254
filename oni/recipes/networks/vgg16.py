"""VGG-16 (Simonyan and Zisserman, 2014) of Table 3, for ImageNet and smaller images.

Parameters have the names and shapes of torchvision's network, so that a checkpoint of that loads.
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from oni.recipes.networks.normalisation import norm_layer

__all__ = ["VGG16"]

BLOCKS = ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3))
"""Filters, as a multiple of the width, and convolutions of each block."""


class VGG16(nn.Module):
    """Thirteen 3x3 convolutions in five blocks, 2x2 max pooling after each block, three linear layers.

    He initialisation of convolutions by fan-out; biases start at zero. Linear layers start with a standard deviation of
    0.01, rescaled at other sizes so that they pass on as much of the signal. Methods change the convolutions alone, as
    in the authors' code.

    Args:
        width: filters of the first block.
        hidden: width of the two hidden linear layers.
        places: rows and columns that average pooling leaves before the linear layers.
        norm: ``"none"``, ``"batch"`` or ``"group"``, between each convolution and its ReLU.
        dropout: the probability that a hidden unit is dropped in training.
        classes: of the output.
    """

    def __init__(
        self,
        *,
        width: int = 64,
        hidden: int = 4096,
        places: int = 7,
        norm: str = "none",
        dropout: float = 0.5,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        for name, value in (("width", width), ("hidden", hidden), ("places", places), ("classes", classes)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        layers: list[nn.Module] = []
        channels = 3
        for factor, count in BLOCKS:
            for _ in range(count):
                layers.append(nn.Conv2d(channels, factor * width, 3, padding=1))
                layers += [nn.ReLU()] if norm == "none" else [norm_layer(norm, factor * width), nn.ReLU()]
                channels = factor * width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(places)
        self.classifier = nn.Sequential(
            nn.Linear(channels * places**2, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, classes),
        )
        self.plain_layers = ("classifier.0", "classifier.3")
        """Layers that a method leaves alone, besides the output layer."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

        for layer, inputs in ((0, 25088), (3, 4096), (6, 4096)):
            linear: Any = self.classifier[layer]
            nn.init.normal_(linear.weight, std=0.01 * math.sqrt(inputs / linear.in_features))

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(images)).flatten(1))
