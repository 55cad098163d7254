"""One training step, and the data it runs on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import oni
from oni.bench.limit import finish

__all__ = ["Loss", "TrainingStep", "adversarial", "classification"]

RATE = 1e-6
"""So small that no method leaves the weights it started from: the time of a step must not depend on its luck."""

Loss = Callable[[nn.Module], Tensor]


def classification(
    shape: tuple[int, ...], batch: int, classes: int, device: str, *, channels_last: bool = False
) -> Loss:
    """Cross-entropy on random images and labels, always the same."""
    images = torch.randn(batch, *shape).to(device)
    if channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(classes, (batch,)).to(device)
    return lambda net: F.cross_entropy(net(images), labels)


def adversarial(shape: tuple[int, ...], batch: int, device: str) -> Loss:
    """A discriminator's: cross-entropy on real and on fake images, in two forward passes."""
    real, fake = torch.randn(2, batch, *shape).to(device).unbind()
    return lambda net: F.softplus(-net(real)).mean() + F.softplus(net(fake)).mean()


class TrainingStep:
    """Gradients to zero, forward, loss, backward, a step of SGD."""

    def __init__(self, net: nn.Module, loss: Loss, *, cached: bool = False) -> None:
        self.net = net
        self.loss = loss
        self.cached = cached
        self.optimizer = torch.optim.SGD(net.parameters(), lr=RATE)

    def __call__(self) -> Tensor:
        self.optimizer.zero_grad()
        with oni.cached(self.net) if self.cached else nullcontext():
            loss = self.loss(self.net)
            loss.backward()
        self.optimizer.step()
        finish(loss)
        return loss.detach()
