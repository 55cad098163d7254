"""What the ONI authors' code computes for layers with more filters than inputs: a slip in it, kept to be measured."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oni.nn.from_proxy import FromProxy
from oni.nn.options import make_options

__all__ = ["Unnormalised", "UnnormalisedOptions", "check_unnormalised_options", "orthogonalize_unnormalised"]

EPSILON = 1e-5
"""On the diagonal of S, as in the authors' code."""


def orthogonalize_unnormalised(Z: Tensor, steps: int = 5) -> Tensor:
    r"""Orthogonalise the columns without bounding S inside the iteration.

    .. math:: S = Z_c^T Z_c + 10^{-5} I, \quad B_{t+1} = \tfrac32 B_t - \tfrac12 B_t^3 S, \quad
        W = Z_c B_T \, \|S\|_F^{-1/2}

    The paper divides S by its norm. Without that, singular values :math:`\sigma` of the centred Z that are below
    :math:`\sqrt 3` go to :math:`\|S\|_F^{-1/2}` and not to 1, the result depends on the scale of Z, and above
    :math:`\sqrt 5` the iteration diverges. Without steps it is :func:`oni.orthogonalize` but for rounding and epsilon.

    >>> [round(value, 3) for value in torch.linalg.svdvals(orthogonalize_unnormalised(torch.eye(4, 3))).tolist()]
    [0.841, 0.841, 0.0]
    """
    Zc = Z - Z.mean(-1, keepdim=True)
    eye = torch.eye(Z.shape[-1], dtype=Z.dtype, device=Z.device)
    S = Zc.mT @ Zc + EPSILON * eye
    B = eye
    for _ in range(steps):
        B = 1.5 * B - 0.5 * (B @ B @ B) @ S
    return Zc @ B / torch.linalg.matrix_norm(S, keepdim=True).sqrt()


@dataclass(frozen=True)
class UnnormalisedOptions:
    """The options of the method, ``scale`` as a number."""

    steps: int
    scale: float
    learn_scale: bool


def check_unnormalised_options(
    steps: int = 5, scale: float | str = 1.0, learn_scale: bool = False
) -> UnnormalisedOptions:
    """The options of the method, if all are good."""
    checked = make_options(steps, scale, learn_scale)
    return UnnormalisedOptions(checked.steps, checked.scale, checked.learn_scale)


class Unnormalised(FromProxy):
    """The parametrization by ``orthogonalize_unnormalised``."""

    orthogonal = False
    options: UnnormalisedOptions

    def unscaled(self, Z: Tensor) -> Tensor:
        return orthogonalize_unnormalised(self.layout.matrices(Z), self.options.steps)
