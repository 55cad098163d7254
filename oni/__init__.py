"""Train neural networks whose weight matrices are as orthogonal as you ask for.

Controllable orthogonalisation by Newton's iteration (Huang et al., CVPR 2020): each weight W is computed from a
proxy Z, and the number of steps decides how far its singular values are pushed towards 1.

>>> import torch, oni
>>> W = oni.orthogonalize(torch.randn(64, 256), steps=10)
>>> bool(oni.orthogonality(W).row < 1e-3)
True
"""

from importlib.metadata import version

from oni.diagnostics.spectrum import Orthogonality, orthogonality, spectrum
from oni.newton.orthogonalize import orthogonalize
from oni.newton.schedule import certified_range, steps_for

__version__ = version("oni-torch")

__all__ = [
    "Orthogonality",
    "certified_range",
    "orthogonality",
    "orthogonalize",
    "spectrum",
    "steps_for",
]
