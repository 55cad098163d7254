"""Dynamical isometry: the singular values of a model's input-output Jacobian."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from oni.diagnostics.spectrum import spectrum
from oni.diagnostics.untouched import untouched

__all__ = ["JacobianSpectrum", "jacobian_spectrum"]


@dataclass(frozen=True)
class JacobianSpectrum:
    """The singular values for each input of a batch, largest first, and what one asks of them."""

    sigma: Tensor
    """``(batch, min(inputs, outputs))``, float64."""

    @property
    def mean(self) -> float:
        return float(self.sigma.mean())

    @property
    def smallest(self) -> float:
        return float(self.sigma.min())

    @property
    def largest(self) -> float:
        return float(self.sigma.max())

    @property
    def mean_square(self) -> float:
        r"""The mean of :math:`\sigma^2`: of the diagonal of :math:`J J^\top`, if outputs are the fewer."""
        return float(self.sigma.square().mean())


def jacobian_spectrum(model: nn.Module, x: Tensor, *, chunk_size: int | None = None) -> JacobianSpectrum:
    r"""The singular values of :math:`J = \partial f(x) / \partial x` at each input of a batch, in evaluation.

    A model is dynamically isometric if all of them are near 1: signals and gradients keep their length. A ReLU layer
    with orthogonal rows of norm :math:`\sqrt 2` is isometric only on average: its J has singular values 0 and
    :math:`\sqrt 2`, and :math:`E[J J^\top] = I`.

    Args:
        model: maps ``(batch, ...)`` to ``(batch, ...)``. It runs in evaluation mode and is left unchanged.
        x: the inputs, with the batch first.
        chunk_size: how many inputs to differentiate at once; all, unless that takes too much memory.

    >>> W = nn.Linear(4, 3)
    >>> _ = nn.init.orthogonal_(W.weight)
    >>> jacobian_spectrum(W, torch.randn(5, 4)).mean
    1.0000
    """
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.dim() < 2 or len(x) == 0:
        raise ValueError(
            "x must be a batch of inputs (batch, ...) of floating-point numbers, got "
            f"{tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__}; for one input pass x.unsqueeze(0)"
        )
    with untouched(model, training=False):
        x = x.detach()
        with torch.no_grad():
            outputs = model(x[:1])
        if not isinstance(outputs, Tensor):
            raise TypeError(f"the model must return a tensor, got {type(outputs).__name__}; wrap it in one that does")

        # As constants, parameters stay out of the transforms, and so does whatever computes weights from them.
        constants = {name: parameter.detach() for name, parameter in model.named_parameters()}

        def flat(one: Tensor) -> Tensor:
            return torch.func.functional_call(model, constants, (one.unsqueeze(0),)).flatten()

        # Backwards though outputs may be the more: not every operation can be differentiated forwards.
        J = torch.func.vmap(torch.func.jacrev(flat), chunk_size=chunk_size)(x)
    return JacobianSpectrum(spectrum(J.reshape(len(x), outputs.numel(), -1)))
