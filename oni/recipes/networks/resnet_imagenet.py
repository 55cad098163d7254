"""Residual networks for ImageNet, and for images of any other size: ResNet-18, 50 and 101, and the paper's ResNetVar.

Parameters have the names and shapes of torchvision's networks, so that a checkpoint of those loads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from oni.recipes.networks.normalisation import norm_layer

__all__ = ["ResNet", "resnet18", "resnet50", "resnet101"]


def make_convolution(fan_in: int, width: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias."""
    return nn.Conv2d(fan_in, width, kernel, stride, padding=kernel // 2, bias=False)


class Block(nn.Module):
    """Convolutions with ReLU between them, and a shortcut: the identity, or a 1x1 convolution if shapes differ.

    A normalisation follows each convolution; in ResNetVar (``first``) it comes before, and so after the ReLU.
    """

    def __init__(self, shapes: Sequence[tuple[int, int, int, int]], norm: str, *, first: bool) -> None:
        super().__init__()
        for number, (fan_in, width, kernel, stride) in enumerate(shapes, 1):
            self.add_module(f"conv{number}", make_convolution(fan_in, width, kernel, stride))
            self.add_module(f"bn{number}", norm_layer(norm, fan_in if first else width))
        self.count, self.first = len(shapes), first
        inputs, outputs, stride = shapes[0][0], shapes[-1][1], max(shape[3] for shape in shapes)
        self.downsample: nn.Module | None = None
        if inputs != outputs or stride != 1:
            self.downsample = nn.Sequential(make_convolution(inputs, outputs, 1, stride), norm_layer(norm, outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for number in range(1, self.count + 1):
            conv, norm = getattr(self, f"conv{number}"), getattr(self, f"bn{number}")
            out = conv(norm(out)) if self.first else norm(conv(out))
            if number < self.count:
                out = F.relu(out)
        return F.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """A 7x7 stem, four stages with 64, 128, 256 and 512 filters, the mean over all positions, a linear layer.

    Bottlenecks have their stride in the 3x3 convolution. He initialisation by fan-out.

    Args:
        blocks: how many per stage.
        bottleneck: 1x1, 3x3, and a 1x1 convolution to four times as many channels, instead of two 3x3.
        norm: ``"none"``, ``"batch"`` or ``"group"``, after each convolution.
        variant: the paper's ResNetVar: normalisations come before convolutions, that is after the ReLU, none in the
            stem, and one more after the last stage. Its shortcuts are the same, and no method changes them.
        width: filters of the first stage.
        classes: of the output.
    """

    def __init__(
        self,
        blocks: Sequence[int],
        *,
        bottleneck: bool = False,
        norm: str = "batch",
        variant: bool = False,
        width: int = 64,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width must be at least 1, got {width}")
        if variant and norm == "none":
            raise ValueError('variant=True moves normalisation layers, so it needs norm="batch" or "group", got "none"')
        self.conv1 = make_convolution(3, width, 7, 2)
        self.bn1 = nn.Identity() if variant else norm_layer(norm, width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = width
        for stage, count in enumerate(blocks):
            filters = width * 2**stage
            layers: list[nn.Module] = []
            for number in range(count):
                stride = 2 if stage > 0 and number == 0 else 1
                if bottleneck:
                    shapes = [(channels, filters, 1, 1), (filters, filters, 3, stride), (filters, 4 * filters, 1, 1)]
                else:
                    shapes = [(channels, filters, 3, stride), (filters, filters, 3, 1)]
                layers.append(Block(shapes, norm, first=variant))
                channels = shapes[-1][1]
            self.add_module(f"layer{stage + 1}", nn.Sequential(*layers))
        self.last_norm = norm_layer(norm, channels) if variant else nn.Identity()
        self.fc = nn.Linear(channels, classes)
        self.stages = len(blocks)
        self.plain_layers = ("*.downsample.0",) if variant else ()
        """Layers that a method leaves alone, besides the output layer, as in the authors' code."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        out = self.maxpool(F.relu(self.bn1(self.conv1(images))))
        for stage in range(1, self.stages + 1):
            out = getattr(self, f"layer{stage}")(out)
        return self.fc(self.last_norm(out).mean((2, 3)))


def resnet18(*, norm: str = "batch", variant: bool = False, width: int = 64, classes: int = 1000) -> ResNet:
    """Eight blocks of two convolutions."""
    return ResNet((2, 2, 2, 2), norm=norm, variant=variant, width=width, classes=classes)


def resnet50(*, norm: str = "batch", variant: bool = False, width: int = 64, classes: int = 1000) -> ResNet:
    """Sixteen bottlenecks."""
    return ResNet((3, 4, 6, 3), bottleneck=True, norm=norm, variant=variant, width=width, classes=classes)


def resnet101(*, norm: str = "batch", variant: bool = False, width: int = 64, classes: int = 1000) -> ResNet:
    """Thirty-three bottlenecks."""
    return ResNet((3, 4, 23, 3), bottleneck=True, norm=norm, variant=variant, width=width, classes=classes)
