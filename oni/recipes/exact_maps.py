"""What makes weights exactly orthogonal, of torch and of other libraries, on matrices with one row per filter."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.utils import parametrizations

from oni.baselines.cholesky import orthogonalize_cholesky
from oni.machine import find_version
from oni.newton.matrix import Layout
from oni.nn.from_proxy import FromProxy

__all__ = ["PEERS", "Mapped", "make_cayley", "make_cholesky", "make_orthogonium", "make_torchlip"]

PEERS = {"torchlip": "deel-torchlip", "orthogonium": "orthogonium"}
"""Methods that need another library, and the name under which that is installed."""
Map = Callable[[Tensor], Tensor]
"""From the matrices of a proxy to those of the weight."""


@dataclass(frozen=True)
class Unscaled:
    """The options of a map that scales nothing."""

    scale: float = 1.0
    learn_scale: bool = False


class Mapped(FromProxy):
    """The parametrization by any map of matrices, which may be a module with a state of its own."""

    def __init__(self, weight: Tensor, layout: Layout, function: Map) -> None:
        super().__init__(weight, layout, Unscaled())
        self.function = function

    def unscaled(self, Z: Tensor) -> Tensor:
        return self.function(self.layout.matrices(Z))


def make_cholesky(matrices: Tensor) -> tuple[Map, Tensor]:
    """Gram and Schmidt, from what it makes of the weight: a proxy whose Gram matrix is far from singular."""
    return cholesky_or_nan, orthogonalize_cholesky(matrices.double()).to(matrices.dtype)


def cholesky_or_nan(Z: Tensor) -> Tensor:
    """Gram and Schmidt; NaN where training has taken the rank from a proxy, so that the run ends as diverged."""
    try:
        return orthogonalize_cholesky(Z)
    except ValueError:
        return math.nan * Z


def make_cayley(matrices: Tensor) -> tuple[Map, Tensor]:
    """Torch's parametrization by the Cayley map, from the orthogonal factor of the weight, and where it starts."""
    module = nn.Module()
    module.weight = nn.Parameter(matrices.clone())
    parametrizations.orthogonal(module, "weight", "cayley")
    return take_steps(module)


def make_torchlip(matrices: Tensor) -> tuple[Map, Tensor]:
    """deel-torchlip's dense layer, which starts orthogonal: spectral norm, then Björck's iteration."""
    check_peer("torchlip", matrices)
    from deel.torchlip import SpectralLinear

    return take_steps(SpectralLinear(matrices.shape[1], matrices.shape[0], bias=False))


def make_orthogonium(matrices: Tensor) -> tuple[Map, Tensor]:
    """Orthogonium's dense layer, which starts orthogonal: power iteration, then Björck's iteration."""
    check_peer("orthogonium", matrices)
    from orthogonium.layers import OrthoLinear

    return take_steps(OrthoLinear(matrices.shape[1], matrices.shape[0], bias=False))


def check_peer(method: str, matrices: Tensor) -> None:
    package = PEERS[method]
    if find_version(package) is None:
        raise ValueError(f"method {method!r} needs {package}, which is not installed; run pip install {package}")
    if matrices.dim() != 2:
        raise ValueError(f"method {method!r} takes one matrix for each layer, got {len(matrices)} groups; skip it")


def take_steps(module: nn.Module) -> tuple[Map, Tensor]:
    """The parametrization of a module's weight as a map, and the parameter that it starts from."""
    steps: nn.ModuleDict = module.get_submodule("parametrizations.weight")  # type: ignore[assignment]
    original = module.get_parameter("parametrizations.weight.original").detach().clone()
    children = list(steps.children())
    return children[0] if len(children) == 1 else nn.Sequential(*children), original
