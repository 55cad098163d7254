"""Train neural networks whose weight matrices are as orthogonal as you ask for.

Controllable orthogonalisation by Newton's iteration (Huang et al., CVPR 2020): each weight W is computed from a
proxy Z, and the number of steps decides how far its singular values are pushed towards 1.

>>> import torch, oni
>>> W = oni.orthogonalize(torch.randn(64, 256), steps=10)
>>> bool(oni.orthogonality(W).row < 1e-3)
True
"""

from importlib.metadata import version

from oni import baselines, diagnostics, nn
from oni.diagnostics import orthogonality, spectrum
from oni.models.bake import bake
from oni.models.cache import cached
from oni.models.convert import convert
from oni.models.init_scale import init_scale
from oni.models.summary import summary
from oni.newton.orthogonalize import orthogonalize
from oni.newton.schedule import certified_range, steps_for
from oni.nn.parametrization import orthogonal

__version__ = version("oni-torch")

__all__ = [
    "bake",
    "baselines",
    "cached",
    "certified_range",
    "convert",
    "diagnostics",
    "init_scale",
    "nn",
    "orthogonal",
    "orthogonality",
    "orthogonalize",
    "spectrum",
    "steps_for",
    "summary",
]
