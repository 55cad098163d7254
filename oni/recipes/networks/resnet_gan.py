"""ResNet GAN for 32 x 32 images, as in the paper's GAN study and its authors' code."""

from __future__ import annotations

import math

from torch import Tensor, nn

from oni.recipes.networks.gan import GAN, LATENT, check_sizes
from oni.recipes.networks.normalisation import norm_layer

__all__ = ["POOLINGS", "Discriminator", "Generator", "resnet_gan"]

POOLINGS = ("sum", "average")


def convolution(inputs: int, filters: int, kernel: int = 3, gain: float = 1.0) -> nn.Conv2d:
    """A convolution that keeps the size, with Xavier's uniform initialisation."""
    layer = nn.Conv2d(inputs, filters, kernel, padding=kernel // 2)
    nn.init.xavier_uniform_(layer.weight, gain)
    return layer


def dense(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    return layer


class UpBlock(nn.Module):
    """Two convolutions at twice the size; the bypass repeats pixels."""

    def __init__(self, width: int, norm: str) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            norm_layer(norm, width),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            convolution(width, width),
            norm_layer(norm, width),
            nn.ReLU(),
            convolution(width, width),
        )
        self.bypass = nn.Upsample(scale_factor=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.residual(x) + self.bypass(x)


class Block(nn.Module):
    """Two convolutions of a discriminator, and a bypass.

    Args:
        inputs, filters: channels before and after.
        first: whether x is the image, on which there is no ReLU, and which the bypass pools before its convolution.
        down: whether the size is halved; only then does the bypass have a convolution.
    """

    def __init__(self, inputs: int, filters: int, *, first: bool = False, down: bool = False) -> None:
        super().__init__()
        pool: list[nn.Module] = [nn.AvgPool2d(2)] if down else []
        start: list[nn.Module] = [] if first else [nn.ReLU()]
        self.residual = nn.Sequential(
            *start, convolution(inputs, filters), nn.ReLU(), convolution(filters, filters), *pool
        )
        projection = [convolution(inputs, filters, 1, math.sqrt(2))] if down else []
        self.bypass = nn.Sequential(*pool, *projection) if first else nn.Sequential(*projection, *pool)

    def forward(self, x: Tensor) -> Tensor:
        return self.residual(x) + self.bypass(x)


class Generator(nn.Module):
    """From z (batch, latent) to images (batch, channels, 32, 32) in [-1, 1]: a dense layer and three blocks."""

    def __init__(self, width: int = 128, channels: int = 3, latent: int = LATENT, norm: str = "batch") -> None:
        super().__init__()
        check_sizes(width=width, channels=channels, latent=latent)
        self.layers = nn.Sequential(
            dense(latent, 4 * 4 * width),
            nn.Unflatten(1, (width, 4, 4)),
            *(UpBlock(width, norm) for _ in range(3)),
            norm_layer(norm, width),
            nn.ReLU(),
            convolution(width, channels),
            nn.Tanh(),
        )

    def forward(self, z: Tensor) -> Tensor:
        return self.layers(z)


class Discriminator(nn.Module):
    """From images (batch, channels, 32, 32) to one score each (batch,): four blocks, global pooling, a dense layer.

    Args:
        width: filters of every convolution.
        channels: of the images.
        pooling: over the last 8 x 8 positions, ``"sum"`` as printed in the paper, or ``"average"`` as in the authors'
            code, which makes all scores, apart from the bias, 64 times smaller.
    """

    def __init__(self, width: int = 128, channels: int = 3, pooling: str = "sum") -> None:
        super().__init__()
        check_sizes(width=width, channels=channels)
        if pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(map(repr, POOLINGS))}, got {pooling!r}")
        self.pooling = pooling
        self.blocks = nn.Sequential(
            Block(channels, width, first=True, down=True),
            Block(width, width, down=True),
            Block(width, width),
            Block(width, width),
            nn.ReLU(),
        )
        self.score = dense(width, 1)

    def forward(self, images: Tensor) -> Tensor:
        features = self.blocks(images)
        pooled = features.sum((2, 3)) if self.pooling == "sum" else features.mean((2, 3))
        return self.score(pooled).squeeze(1)


def resnet_gan(
    width: int = 128, channels: int = 3, latent: int = LATENT, norm: str = "batch", pooling: str = "sum"
) -> GAN:
    """Both networks; 128 is the paper's width."""
    generator = Generator(width, channels, latent, norm)
    return GAN(generator, Discriminator(width, channels, pooling), latent, channels)
