"""A recurrent network for the bench: one square weight, used at every position."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Recurrent"]


class Recurrent(nn.Module):
    """Elman's cell over a sequence, and a linear layer on its last state.

    The recurrent weight is read once for all positions, so that whatever computes it does so once in a forward pass.
    """

    def __init__(self, inputs: int = 10, width: int = 256, classes: int = 10) -> None:
        super().__init__()
        self.read = nn.Linear(inputs, width)
        self.recurrent = nn.Linear(width, width, bias=False)
        self.head = nn.Linear(width, classes)

    def forward(self, sequences: Tensor) -> Tensor:
        """From ``(batch, positions, inputs)`` to logits."""
        weight = self.recurrent.weight
        state = torch.zeros_like(weight[0]).expand(len(sequences), -1)
        for inputs in self.read(sequences).unbind(1):
            state = torch.tanh(inputs + F.linear(state, weight))
        return self.head(state)
