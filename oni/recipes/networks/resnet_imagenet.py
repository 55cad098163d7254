"""Residual networks for ImageNet, and for images of any other size: ResNet-18, 50 and 101."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from oni.recipes.networks.normalisation import norm_layer

__all__ = ["ResNet", "resnet18", "resnet50", "resnet101"]


def conv_with_norm(fan_in: int, width: int, kernel: int, stride: int, norm: str) -> nn.Sequential:
    """A convolution without bias, and its normalisation."""
    conv = nn.Conv2d(fan_in, width, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, norm_layer(norm, width))


class Block(nn.Module):
    """Convolutions with ReLU between them, beside a shortcut: the identity, or a 1x1 convolution if shapes differ."""

    def __init__(self, convs: Sequence[nn.Module], shortcut: nn.Module) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for conv in self.convs[:-1]:
            out = F.relu(conv(out))
        return F.relu(self.convs[-1](out) + self.shortcut(x))


class ResNet(nn.Module):
    """A 7x7 stem, four stages with 64, 128, 256 and 512 filters, the mean over all places, a linear layer.

    Bottlenecks have their stride in the 3x3 convolution. Weights start as He's, by fan-out.

    Args:
        blocks: how many per stage.
        bottleneck: 1x1, 3x3, and a 1x1 convolution to four times as many channels, instead of two 3x3.
        norm: ``"none"``, ``"batch"`` or ``"group"``, after each convolution.
        classes: of the output.
    """

    def __init__(
        self, blocks: Sequence[int], *, bottleneck: bool = False, norm: str = "batch", classes: int = 1000
    ) -> None:
        super().__init__()
        self.stem = conv_with_norm(3, 64, 7, 2, norm)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        layers: list[nn.Module] = []
        channels = 64
        for stage, count in enumerate(blocks):
            width = 64 * 2**stage
            for number in range(count):
                stride = 2 if stage > 0 and number == 0 else 1
                layers.append(make_block(channels, width, stride, norm, bottleneck))
                channels = 4 * width if bottleneck else width
        self.blocks = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        out = self.blocks(self.pool(F.relu(self.stem(images))))
        return self.classifier(out.mean((2, 3)))


def make_block(fan_in: int, width: int, stride: int, norm: str, bottleneck: bool) -> Block:
    """One residual block; ``width`` is that of its 3x3 convolutions."""
    if bottleneck:
        fan_out = 4 * width
        shapes = [(fan_in, width, 1, 1), (width, width, 3, stride), (width, fan_out, 1, 1)]
    else:
        fan_out = width
        shapes = [(fan_in, width, 3, stride), (width, width, 3, 1)]
    same = fan_in == fan_out and stride == 1
    shortcut = nn.Identity() if same else conv_with_norm(fan_in, fan_out, 1, stride, norm)
    return Block([conv_with_norm(*shape, norm) for shape in shapes], shortcut)


def resnet18(*, norm: str = "batch", classes: int = 1000) -> ResNet:
    """Eight blocks of two convolutions."""
    return ResNet((2, 2, 2, 2), norm=norm, classes=classes)


def resnet50(*, norm: str = "batch", classes: int = 1000) -> ResNet:
    """Sixteen bottlenecks."""
    return ResNet((3, 4, 6, 3), bottleneck=True, norm=norm, classes=classes)


def resnet101(*, norm: str = "batch", classes: int = 1000) -> ResNet:
    """Thirty-three bottlenecks."""
    return ResNet((3, 4, 23, 3), bottleneck=True, norm=norm, classes=classes)
