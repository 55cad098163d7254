"""Looking at weights and models: how orthogonal they are, and what that does."""

from oni.diagnostics.certified import certified_radius
from oni.diagnostics.convolution import convolution_spectrum, norm_bound
from oni.diagnostics.cost import cost
from oni.diagnostics.isometry import jacobian_spectrum
from oni.diagnostics.lipschitz import lipschitz_bound
from oni.diagnostics.operator import operator_norm
from oni.diagnostics.signal import signal
from oni.diagnostics.spectrum import Orthogonality, condition_number, effective_rank, orthogonality, spectrum

__all__ = [
    "Orthogonality",
    "certified_radius",
    "condition_number",
    "convolution_spectrum",
    "cost",
    "effective_rank",
    "jacobian_spectrum",
    "lipschitz_bound",
    "norm_bound",
    "operator_norm",
    "orthogonality",
    "signal",
    "spectrum",
]
