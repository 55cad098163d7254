"""Centred weight normalisation (Huang et al., 2017): each filter alone has zero mean and unit norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor, nn

from oni.baselines.olm import checked_columns
from oni.newton.matrix import Layout
from oni.newton.orthogonalize import orthogonalize
from oni.nn.from_proxy import FromProxy
from oni.nn.options import check_learn_scale, check_scale
from oni.nn.parametrization import attach, check_module, check_weight, get_layout

__all__ = ["CentredWeightNorm", "NormOptions", "centred_weight_norm", "check_norm_options"]

M = TypeVar("M", bound=nn.Module)


def centred_weight_norm(module: M, name: str = "weight", *, scale: float | str = 1.0, learn_scale: bool = True) -> M:
    r"""From now on, compute ``module.weight`` from a proxy Z by centring and normalising each output filter.

    .. math:: W_i = g_i \frac{Z_i - \bar Z_i}{\|Z_i - \bar Z_i\|}

    Orthogonalisation in groups of one row. As with :func:`oni.orthogonal`, ``oni.bake`` makes the module plain again
    and ``oni.init_scale`` initialises its scale from data. A filter whose entries are all equal gives zero with zero
    gradient.

    Args:
        module, name: the layer, and which of its parameters.
        scale: the initial g, a number or the name of an activation, such as ``"relu"`` for :math:`\sqrt 2`.
        learn_scale: learn one g per output filter.

    Returns:
        The module itself.

    >>> layer = centred_weight_norm(nn.Linear(8, 4), scale="relu")
    >>> layer.weight.norm(dim=1)
    tensor([1.4142, 1.4142, 1.4142, 1.4142], grad_fn=<LinalgVectorNormBackward0>)

    Reference: Huang et al., *Centered Weight Normalization in Accelerating Training of Deep Neural Networks*, ICCV
    2017. Weight normalisation without centring is ``torch.nn.utils.parametrizations.weight_norm``.
    """
    check_module(module)
    options = check_norm_options(scale, learn_scale)
    weight = check_weight(module, name, type(module).__name__)
    attach(module, name, CentredWeightNorm(weight, get_layout(module), options))
    return module


@dataclass(frozen=True)
class NormOptions:
    """The options of ``centred_weight_norm``, ``scale`` as a number."""

    scale: float
    learn_scale: bool


def check_norm_options(scale: float | str = 1.0, learn_scale: bool = True) -> NormOptions:
    """The options of ``centred_weight_norm``, if all are good."""
    return NormOptions(check_scale(scale), check_learn_scale(learn_scale))


class CentredWeightNorm(FromProxy):
    """The parametrization by centring and normalising rows."""

    orthogonal = False

    def __init__(self, weight: Tensor, layout: Layout, options: NormOptions) -> None:
        super().__init__(weight, layout, options)
        checked_columns(layout.matrices(weight).shape[-1], center=True)

    def unscaled(self, Z: Tensor) -> Tensor:
        matrices = self.layout.matrices(Z)
        return orthogonalize(matrices, steps=0, center=True, groups=matrices.shape[-2])
