"""What mypy --strict checks against the installed wheel: that its types reach a project which uses it."""

import torch
from torch import Tensor, nn

import oni

weight: Tensor = oni.orthogonalize(torch.randn(8, 16), steps=5)
model: nn.Module = oni.convert(nn.Sequential(nn.Linear(16, 8)), steps=5)
layer: nn.Module = oni.nn.Linear(16, 8, steps=5)
steps: int = oni.steps_for((0.1, 1.0), 0.9)
oni.orthogonalize("not a tensor")  # type: ignore[arg-type]
