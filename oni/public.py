"""The public names of :mod:`oni`, and where each is defined; nothing else belongs here."""

from importlib.metadata import version

from oni import baselines, nn
from oni.diagnostics.convolution import convolution_spectrum, norm_bound
from oni.diagnostics.cost import cost
from oni.diagnostics.isometry import jacobian_spectrum
from oni.diagnostics.lipschitz import lipschitz_bound
from oni.diagnostics.operator import operator_norm
from oni.diagnostics.signal import signal
from oni.diagnostics.spectrum import Orthogonality, condition_number, effective_rank, orthogonality, spectrum
from oni.models.bake import bake
from oni.models.bake_state_dict import bake_state_dict
from oni.models.cache import cached
from oni.models.convert import convert
from oni.models.init_scale import init_scale
from oni.models.summary import summary
from oni.newton.orthogonalize import orthogonalize
from oni.newton.schedule import certified_range, steps_for
from oni.nn.parametrization import orthogonal

__version__ = version("oni-torch")

__all__ = [
    "Orthogonality",
    "bake",
    "bake_state_dict",
    "baselines",
    "cached",
    "certified_range",
    "condition_number",
    "convert",
    "convolution_spectrum",
    "cost",
    "effective_rank",
    "init_scale",
    "jacobian_spectrum",
    "lipschitz_bound",
    "nn",
    "norm_bound",
    "operator_norm",
    "orthogonal",
    "orthogonality",
    "orthogonalize",
    "signal",
    "spectrum",
    "steps_for",
    "summary",
]
