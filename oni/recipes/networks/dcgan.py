"""DCGAN for 32 x 32 images, as in the paper's GAN study."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["LATENT", "Discriminator", "Generator"]

LATENT = 128
"""Length of the noise vector z."""


class Generator(nn.Module):
    """From z (batch, 128) to images (batch, 3, 32, 32) in [-1, 1]; the last layer is a transposed convolution too."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Unflatten(1, (LATENT, 1, 1))]
        channels = LATENT
        for width, stride, padding in ((512, 1, 0), (256, 2, 1), (128, 2, 1), (64, 2, 1)):
            layers += [
                nn.ConvTranspose2d(channels, width, 4, stride, padding),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
            channels = width
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(channels, 3, 3, 1, 1), nn.Tanh())

    def forward(self, z: Tensor) -> Tensor:
        return self.layers(z)


class Discriminator(nn.Module):
    """From images (batch, 3, 32, 32) to one score each (batch,): seven convolutions and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for width, kernel, stride in (
            (64, 3, 1),
            (64, 4, 2),
            (128, 3, 1),
            (128, 4, 2),
            (256, 3, 1),
            (256, 4, 2),
            (512, 3, 1),
        ):
            layers += [nn.Conv2d(channels, width, kernel, stride, padding=1), nn.LeakyReLU(0.1)]
            channels = width
        self.features = nn.Sequential(*layers)
        self.score = nn.Linear(4 * 4 * channels, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.score(self.features(images).flatten(1)).squeeze(1)
