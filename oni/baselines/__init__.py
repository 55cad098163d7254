"""What the paper compares with, and torch does not have: OLM, soft orthogonality penalties, centred weight norm."""

from oni.baselines.olm import olm, orthogonalize_olm
from oni.baselines.penalty import penalty
from oni.baselines.weight_norm import centred_weight_norm

__all__ = ["centred_weight_norm", "olm", "orthogonalize_olm", "penalty"]
