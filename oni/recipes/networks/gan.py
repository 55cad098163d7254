"""What the networks of a GAN have in common: two of them, images of 32 x 32, and the layers that read an image."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["GAN", "IMAGE_SIZE", "LATENT", "image_layers"]

LATENT = 128
"""Length of the noise vector z, as in the paper."""
IMAGE_SIZE = 32


class GAN(nn.Module):
    """A generator, from z (batch, latent) to images in [-1, 1], and a discriminator, from images to scores (batch,)."""

    def __init__(self, generator: nn.Module, discriminator: nn.Module, latent: int, channels: int) -> None:
        super().__init__()
        self.generator, self.discriminator = generator, discriminator
        self.latent, self.channels = latent, channels

    def forward(self, z: Tensor) -> Tensor:
        """The scores of generated images."""
        return self.discriminator(self.generator(z))


def image_layers(discriminator: nn.Module, channels: int) -> list[str]:
    """The names of the convolutions that read the image itself: those with as many inputs as it has channels.

    >>> image_layers(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)), 3)
    ['0']
    """
    return [
        name
        for name, module in discriminator.named_modules()
        if isinstance(module, nn.Conv2d) and module.in_channels == channels
    ]


def check_sizes(**sizes: int) -> None:
    """Refuse a size below 1."""
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
