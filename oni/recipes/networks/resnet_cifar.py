"""Residual networks for 32 x 32 images: ResNet-110 of Table 2."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from oni.recipes.networks.normalisation import norm_layer

__all__ = ["ResNetCIFAR", "resnet110"]

WIDTHS = (16, 32, 64)


class Block(nn.Module):
    """Two 3x3 convolutions, and a shortcut without weights (option A)."""

    def __init__(self, fan_in: int, width: int, stride: int, norm: str, groups: int, group_size: int) -> None:
        super().__init__()
        bias = norm == "none"
        self.conv1 = nn.Conv2d(fan_in, width, 3, stride, padding=1, bias=bias)
        self.norm1 = norm_layer(norm, width, groups, group_size)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=bias)
        self.norm2 = norm_layer(norm, width, groups, group_size)
        self.stride = stride
        self.more = width - fan_in

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(out)) + self.shortcut(x))

    def shortcut(self, x: Tensor) -> Tensor:
        """Every stride-th position, and zeros for the channels that x lacks."""
        if self.stride == 1 and self.more == 0:
            return x
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))


class ResNetCIFAR(nn.Module):
    """A convolution, three stages of ``blocks`` basic blocks with 16, 32 and 64 filters, a linear layer: 6 blocks + 2.

    Without normalisation, convolutions have a bias and torch's initialisation, uniform by fan-in. With it they have no
    bias, and He initialisation by fan-out.

    Args:
        blocks: per stage.
        norm: ``"none"``, ``"batch"`` or ``"group"``, after each convolution.
        groups: of GroupNorm, at most the number of channels.
        classes: of the output.
        group_size: channels in each group of GroupNorm, at most all of them; 0 to use ``groups`` instead.
        frozen_bias: never train the biases of convolutions: the authors' code leaves them out of its parameters.
    """

    def __init__(
        self,
        blocks: int,
        *,
        norm: str = "none",
        groups: int = 32,
        classes: int = 10,
        group_size: int = 0,
        frozen_bias: bool = False,
    ) -> None:
        super().__init__()
        if blocks < 1:
            raise ValueError(f"blocks must be at least 1, got {blocks}")
        if frozen_bias and norm != "none":
            raise ValueError(f'frozen_bias=True needs norm="none", got norm={norm!r}, which leaves no bias')
        self.conv = nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=norm == "none")
        self.norm = norm_layer(norm, WIDTHS[0], groups, group_size)
        stages: list[nn.Module] = []
        channels = WIDTHS[0]
        for width in WIDTHS:
            for number in range(blocks):
                stride = 2 if number == 0 and width != WIDTHS[0] else 1
                stages.append(Block(channels, width, stride, norm, groups, group_size))
                channels = width
        self.blocks = nn.Sequential(*stages)
        self.classifier = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                if norm != "none":
                    nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                elif frozen_bias and module.bias is not None:
                    module.bias.requires_grad_(False)

    @property
    def branch_ends(self) -> list[str]:
        """The names of the last convolutions of all residual branches."""
        return [f"blocks.{number}.conv2" for number in range(len(self.blocks))]

    def forward(self, images: Tensor) -> Tensor:
        out = self.blocks(F.relu(self.norm(self.conv(images))))
        return self.classifier(out.mean((2, 3)))


def resnet110(*, norm: str = "none", groups: int = 32, classes: int = 10) -> ResNetCIFAR:
    """Eighteen blocks per stage."""
    return ResNetCIFAR(18, norm=norm, groups=groups, classes=classes)
