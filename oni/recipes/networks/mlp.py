"""The multi-layer perceptron of the Fashion-MNIST experiments."""

from __future__ import annotations

from torch import Tensor, nn

from oni.nn import GroupSort

__all__ = ["MLP"]

NORMS = ("none", "batch")
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "groupsort": GroupSort}


class MLP(nn.Module):
    """``depth`` hidden layers with an activation each, then a linear layer to the classes.

    The paper does not say whether its "20-layer" counts the output layer; here, as in the authors' earlier code, it
    counts hidden layers. Images of any shape are flattened.

    Args:
        depth: number of hidden layers.
        width: of each hidden layer.
        inputs: pixels times channels of an image.
        classes: of the output.
        bias: of the hidden layers; the output layer always has one.
        norm: ``"none"``, or ``"batch"`` for batch normalisation between each hidden layer and its activation.
        activation: ``"relu"``, or ``"groupsort"`` for :class:`oni.nn.GroupSort` on pairs, which keeps lengths.

    >>> net = MLP(depth=2)
    >>> [layer.out_features for layer in net.layers if isinstance(layer, nn.Linear)]
    [256, 256, 10]
    """

    def __init__(
        self,
        depth: int,
        *,
        width: int = 256,
        inputs: int = 784,
        classes: int = 10,
        bias: bool = True,
        norm: str = "none",
        activation: str = "relu",
    ) -> None:
        super().__init__()
        for name, value in (("depth", depth), ("width", width), ("inputs", inputs), ("classes", classes)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if norm not in NORMS:
            raise ValueError(f"norm must be one of {', '.join(map(repr, NORMS))}, got {norm!r}")
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(map(repr, ACTIVATIONS))}, got {activation!r}")
        if activation == "groupsort" and width % 2:
            raise ValueError(f"width must be even, because groupsort sorts pairs of channels, got {width}")
        layers: list[nn.Module] = [nn.Flatten()]
        for fan_in in [inputs] + (depth - 1) * [width]:
            layers.append(nn.Linear(fan_in, width, bias=bias))
            if norm == "batch":
                layers.append(nn.BatchNorm1d(width))
            layers.append(ACTIVATIONS[activation]())
        self.layers = nn.Sequential(*layers, nn.Linear(width, classes))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)
