"""Projected gradient ascent: the strongest usual attack on a classifier, within a ball around each image."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["Attacked", "attack"]

INSIDE = 0.999
"""Of a radius: float32 rounds the moved image, which is to stay within the ball."""


class Attacked(NamedTuple):
    """What an attack found for each image."""

    fooled: Tensor
    """Whether some image within the ball gets another class."""
    images: Tensor
    """The worst image found: where another class is ahead by most, or the right one by least."""
    margins: Tensor
    """There: the logit of the right class less the largest of the others."""


def attack(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    radius: Tensor,
    *,
    steps: int = 50,
    restarts: int = 3,
    generator: torch.Generator | None = None,
) -> Attacked:
    """Look for an image of another class within a Euclidean ball around each image, by projected gradient ascent.

    Args:
        network: in evaluation mode, from images to logits.
        images, labels: a batch that it classifies rightly.
        radius: of each image's ball.
        steps: along the normalised gradient, each a tenth of the radius.
        restarts: so often, each from another point on the sphere.
        generator: of these points.

    >>> line = nn.Linear(1, 2, bias=False)
    >>> _ = line.weight.data.copy_(torch.tensor([[1.0], [-1.0]]))
    >>> x, label = torch.tensor([[1.0]]), torch.tensor([0])
    >>> [bool(attack(line, x, label, torch.tensor([radius])).fooled) for radius in (0.9, 1.1)]
    [False, True]

    Reference: Madry et al., *Towards deep learning models resistant to adversarial attacks*, ICLR 2018.
    """

    def per_image(values: Tensor) -> Tensor:
        return values.view(-1, *[1] * (images.dim() - 1))

    def lengths(moves: Tensor) -> Tensor:
        return per_image(torch.linalg.vector_norm(moves.flatten(1), dim=1).clamp(min=1e-30))

    reach = per_image(INSIDE * radius.to(images.dtype))
    worst = Attacked(torch.zeros_like(labels, dtype=torch.bool), images.clone(), torch.full_like(radius, math.inf))
    for _ in range(restarts):
        delta = torch.randn(images.shape, dtype=images.dtype, generator=generator)
        for step in range(steps + 1):
            delta = delta * (reach / lengths(delta)).clamp(max=1)
            moved = (images + delta).requires_grad_()
            logits = network(moved)
            own = labels[:, None]
            margin = logits.gather(1, own)[:, 0] - logits.scatter(1, own, -math.inf).max(1).values
            # The images as they are in memory: rounding may have put one outside of a very small ball.
            inside = (moved.detach().double() - images.double()).flatten(1).norm(dim=1) <= radius
            better = inside & (margin.detach() < worst.margins)
            worst = Attacked(
                worst.fooled | (inside & (logits.argmax(1) != labels)),
                torch.where(per_image(better), moved.detach(), worst.images),
                torch.where(better, margin.detach().to(worst.margins.dtype), worst.margins),
            )
            if step < steps:
                (gradient,) = torch.autograd.grad(margin.sum(), moved)
                delta = delta - 0.1 * reach * gradient / lengths(gradient)
    return worst
