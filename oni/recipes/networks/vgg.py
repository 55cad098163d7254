"""The VGG-style networks of Table 1, for 32 x 32 images."""

from __future__ import annotations

from torch import Tensor, nn

from oni.recipes.networks.normalisation import norm_layer

__all__ = ["VGG"]


class VGG(nn.Module):
    """A 3x3 convolution, three blocks of ``g`` more, the mean over all positions, a linear layer: 3g + 2 layers.

    There are 32k filters, then 32k, 64k and 128k per block. The second and third block begin with stride 2. The paper
    says this of every block, but its map sizes of 32, 16 and 8 agree with its code. He initialisation by fan-out.

    Args:
        g: convolutions per block.
        k: width.
        classes: of the output.
        bias: of the convolutions, initialised to zero. The paper does not say; its code has one for OrthReg.
        norm: ``"none"``, ``"batch"`` or ``"group"``, between each convolution and its ReLU.
        groups: of GroupNorm, at most the number of channels.
        frozen_bias: a bias that is initialised uniformly by fan-in and never trained, as in the authors' code for ONI.
    """

    def __init__(
        self,
        g: int,
        k: int,
        *,
        classes: int = 10,
        bias: bool = False,
        norm: str = "none",
        groups: int = 32,
        frozen_bias: bool = False,
    ) -> None:
        super().__init__()
        if g < 1 or k < 1:
            raise ValueError(f"g and k must be at least 1, got g={g}, k={k}")
        if bias and frozen_bias:
            raise ValueError("bias=True and frozen_bias=True exclude each other; pass only one")
        layers: list[nn.Module] = []
        channels = 3
        for width, stride, count in ((32 * k, 1, 1), (32 * k, 1, g), (64 * k, 2, g), (128 * k, 2, g)):
            for number in range(count):
                layers += [
                    nn.Conv2d(channels, width, 3, stride if number == 0 else 1, padding=1, bias=bias or frozen_bias),
                    *([] if norm == "none" else [norm_layer(norm, width, groups)]),
                    nn.ReLU(),
                ]
                channels = width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, classes)
        for layer in layers:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                if frozen_bias and layer.bias is not None:
                    layer.bias.requires_grad_(False)
                elif layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.features(images).mean((2, 3)))
