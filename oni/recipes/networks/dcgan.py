"""DCGAN for 32 x 32 images, as in the paper's GAN study."""

from __future__ import annotations

from torch import Tensor, nn

from oni.recipes.networks.gan import GAN, LATENT, check_sizes
from oni.recipes.networks.normalisation import norm_layer

__all__ = ["LATENT", "Discriminator", "Generator", "dcgan"]


class Generator(nn.Module):
    """From z (batch, latent) to images (batch, channels, 32, 32) in [-1, 1]; the last layer is transposed too.

    Args:
        width: filters of the last layer but one; those before it have 2, 4 and 8 times as many.
        channels: of the images.
        latent: length of z.
        norm: after every transposed convolution but the last; see :func:`norm_layer`.
    """

    def __init__(self, width: int = 64, channels: int = 3, latent: int = LATENT, norm: str = "batch") -> None:
        super().__init__()
        check_sizes(width=width, channels=channels, latent=latent)
        layers: list[nn.Module] = [nn.Unflatten(1, (latent, 1, 1))]
        inputs = latent
        for filters, stride, padding in ((8 * width, 1, 0), (4 * width, 2, 1), (2 * width, 2, 1), (width, 2, 1)):
            layers += [nn.ConvTranspose2d(inputs, filters, 4, stride, padding), norm_layer(norm, filters), nn.ReLU()]
            inputs = filters
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(inputs, channels, 3, 1, 1), nn.Tanh())

    def forward(self, z: Tensor) -> Tensor:
        return self.layers(z)


class Discriminator(nn.Module):
    """From images (batch, channels, 32, 32) to one score each (batch,): seven convolutions and a dense layer.

    Args:
        width: filters of the first two convolutions; the others have 2, 4 and 8 times as many.
        channels: of the images.
    """

    def __init__(self, width: int = 64, channels: int = 3) -> None:
        super().__init__()
        check_sizes(width=width, channels=channels)
        layers: list[nn.Module] = []
        inputs = channels
        for filters, kernel, stride in (
            (width, 3, 1),
            (width, 4, 2),
            (2 * width, 3, 1),
            (2 * width, 4, 2),
            (4 * width, 3, 1),
            (4 * width, 4, 2),
            (8 * width, 3, 1),
        ):
            layers += [nn.Conv2d(inputs, filters, kernel, stride, padding=1), nn.LeakyReLU(0.1)]
            inputs = filters
        self.features = nn.Sequential(*layers)
        self.score = nn.Linear(4 * 4 * inputs, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.score(self.features(images).flatten(1)).squeeze(1)


def dcgan(width: int = 64, channels: int = 3, latent: int = LATENT, norm: str = "batch") -> GAN:
    """Both networks; 64 is the paper's width."""
    return GAN(Generator(width, channels, latent, norm), Discriminator(width, channels), latent, channels)
