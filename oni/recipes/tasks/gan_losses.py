"""The losses of a GAN, from the discriminator's scores, which are logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

__all__ = ["LOSSES", "Loss"]


class Loss(NamedTuple):
    """What each network minimises."""

    discriminator: Callable[[Tensor, Tensor], Tensor]
    """Of the scores of real and of generated images."""
    generator: Callable[[Tensor], Tensor]
    """Of the scores of generated images."""


LOSSES: dict[str, Loss] = {
    # -E log D(x) - E log(1 - D(G(z))) with D = sigmoid(score), and -E log D(G(z)). The paper prints the second term of
    # the first as E[1 - log D(G(z))].
    "non-saturating": Loss(
        lambda real, fake: F.softplus(-real).mean() + F.softplus(fake).mean(), lambda fake: F.softplus(-fake).mean()
    ),
    "hinge": Loss(lambda real, fake: F.relu(1 - real).mean() + F.relu(1 + fake).mean(), lambda fake: -fake.mean()),
}
"""Every loss, by name."""
