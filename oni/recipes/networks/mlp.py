"""The multi-layer perceptron of the Fashion-MNIST experiments."""

from __future__ import annotations

from torch import Tensor, nn

__all__ = ["MLP"]


class MLP(nn.Module):
    """``depth`` hidden layers with ReLU, then a linear one to the classes.

    The paper does not say whether its "20-layer" counts the output layer; here, as in the authors' earlier code, it
    counts hidden layers. Images of any shape are flattened.

    >>> net = MLP(depth=2)
    >>> [layer.out_features for layer in net.layers if isinstance(layer, nn.Linear)]
    [256, 256, 10]
    """

    def __init__(
        self, depth: int, *, width: int = 256, inputs: int = 784, classes: int = 10, bias: bool = True
    ) -> None:
        super().__init__()
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        layers: list[nn.Module] = [nn.Flatten()]
        for fan_in in [inputs] + (depth - 1) * [width]:
            layers += [nn.Linear(fan_in, width, bias=bias), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(width, classes))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)
