"""What ONI is compared with, and torch does not have: OLM, Cholesky, orthogonality penalties, centred weight norm."""

from oni.baselines.cholesky import orthogonalize_cholesky
from oni.baselines.olm import olm, orthogonalize_olm
from oni.baselines.penalty import penalty
from oni.baselines.weight_norm import centred_weight_norm

__all__ = ["centred_weight_norm", "olm", "orthogonalize_cholesky", "orthogonalize_olm", "penalty"]
