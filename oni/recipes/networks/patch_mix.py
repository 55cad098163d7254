"""A network whose Lipschitz constant depends on its weights alone: patches, and mixing of tokens and channels."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from oni.nn import GroupSort

__all__ = ["PatchMix"]


POOLINGS = ("none", "sum")


def mixing(features: int, dim: int) -> nn.Sequential:
    """Two linear layers on the last axis, and GroupSort on an axis between them.

    The second is initialised as the transpose of the first, which is orthogonal. So at first the layers sort in another
    basis, which is close to the identity, and the mean with their input keeps nearly all of it.
    """
    first, second = nn.Linear(features, features), nn.Linear(features, features)
    nn.init.orthogonal_(first.weight)
    with torch.no_grad():
        second.weight.copy_(first.weight.mT)
    return nn.Sequential(first, GroupSort(dim=dim), second)


class MixBlock(nn.Module):
    """Mix tokens, then channels; each time, return the mean of input and output."""

    def __init__(self, width: int, tokens: int) -> None:
        super().__init__()
        self.tokens = mixing(tokens, dim=1)
        self.channels = mixing(width, dim=2)

    def forward(self, x: Tensor) -> Tensor:
        x = (x + self.tokens(x)) / 2
        return (x + self.channels(x.transpose(1, 2)).transpose(1, 2)) / 2


class PatchMix(nn.Module):
    r"""Patches of an image become tokens, ``depth`` blocks mix tokens and channels, a linear layer classifies.

    A convolution with overlapping patches can stretch an image more than its weight shows. Not here:

    - the patches' convolution has its kernel as stride, so it is applied to disjoint parts of the image, and keeps
      lengths if its reshaped weight has orthonormal columns, which takes a width of at least
      ``channels * patch ** 2``; with orthonormal rows it shortens;
    - a linear layer on the tokens, or on the channels, has the norm of its matrix;
    - :class:`oni.nn.GroupSort`, over pairs of channels, permutes;
    - (x + f(x)) / 2 is 1-Lipschitz if f is;
    - the head has norm 1 if its rows are orthonormal. Then two rows are :math:`\sqrt 2` apart, so a perturbation of
      length 1 changes the difference of two logits by at most :math:`\sqrt 2`;
    - it sees all tokens side by side, because any pooling loses part of the signal. The best sum over tokens divides by
      :math:`\sqrt T`, the norm of a sum of T numbers: the mean, smaller by :math:`\sqrt T`, would shrink every margin.
      But a sum drops whatever the T tokens do not agree on, and with it most of the margin.

    So with weights of norm at most 1 (a method on all layers: ``change_output``) the network is 1-Lipschitz.

    Args:
        width: channels of a token, an even number.
        depth: blocks.
        patch: side of a patch.
        size: side of the image, a multiple of ``patch``.
        channels: of the image.
        classes: of the output.
        pooling: ``"none"``, or ``"sum"`` for the sum of all tokens over :math:`\sqrt T`.

    >>> import oni
    >>> net = oni.convert(PatchMix(width=64, depth=1, size=8), steps=3)
    >>> round(float(oni.diagnostics.lipschitz_bound(net, (3, 8, 8))), 3) <= 1
    True
    """

    def __init__(
        self,
        width: int = 128,
        depth: int = 4,
        *,
        patch: int = 4,
        size: int = 32,
        channels: int = 3,
        classes: int = 10,
        pooling: str = "none",
    ) -> None:
        super().__init__()
        names = {"width": width, "depth": depth, "patch": patch, "size": size, "channels": channels, "classes": classes}
        for name, value in names.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if width % 2:
            raise ValueError(f"width must be even, because GroupSort sorts pairs of channels, got {width}")
        if size % patch:
            raise ValueError(f"patch must divide size, got patch={patch}, size={size}")
        if pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(map(repr, POOLINGS))}, got {pooling!r}")
        self.count = (size // patch) ** 2
        self.pooling = pooling
        self.patches = nn.Conv2d(channels, width, patch, stride=patch)
        self.blocks = nn.Sequential(*(MixBlock(width, self.count) for _ in range(depth)))
        self.classifier = nn.Linear(width if pooling == "sum" else width * self.count, classes)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.blocks(self.patches(images).flatten(2))
        if self.pooling == "sum":
            return self.classifier(tokens.sum(2) / math.sqrt(self.count))
        return self.classifier(tokens.flatten(1))
