"""The public names of :mod:`oni`, and where each is defined; nothing else belongs here."""

from importlib.metadata import version

from oni import baselines, diagnostics, nn
from oni.diagnostics import orthogonality, spectrum
from oni.models.bake import bake
from oni.models.cache import cached
from oni.models.convert import convert
from oni.models.init_scale import init_scale
from oni.models.param_groups import param_groups
from oni.models.retune import retune
from oni.models.share import share
from oni.models.summary import summary
from oni.newton.orthogonalize import orthogonalize
from oni.newton.schedule import certified_range
from oni.newton.target import steps_for
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
    "param_groups",
    "retune",
    "share",
    "spectrum",
    "steps_for",
    "summary",
]
