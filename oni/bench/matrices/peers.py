"""Other ways to an orthogonal weight: other forms of the same iteration, and other methods."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn.utils import parametrizations

from oni.bench.matrices.contender import Contender, Job, make_job
from oni.newton.matrix import is_tall
from oni.newton.reference import authors

__all__ = ["MAPS", "authors", "list_peers", "olm", "polar_factor", "torch_orthogonal"]

MAPS = ("cayley", "matrix_exp", "householder")


def polar_factor(Z: Tensor, *, center: bool) -> Tensor:
    """U R^T of the singular value decomposition: what infinitely many Newton steps lead to."""
    if center:
        Z = Z - Z.mean(-1, keepdim=True)
    U, _, Rh = torch.linalg.svd(Z, full_matrices=False)
    return U @ Rh


def olm(Z: Tensor, *, center: bool) -> Tensor:
    """The same by an eigendecomposition of the Gram matrix, D Lambda^(-1/2) D^T Z; on the short side, as is fair."""
    if center:
        Z = Z - Z.mean(-1, keepdim=True)
    if is_tall(*Z.shape[-2:]):
        return olm(Z.mT, center=False).mT
    eigenvalues, D = torch.linalg.eigh(Z @ Z.mT)
    return (D * eigenvalues.rsqrt()[..., None, :]) @ (D.mT @ Z)


def torch_orthogonal(Z: Tensor, G: Tensor, map_name: str, *, trivialization: bool = True) -> Job:
    """The weight of a module under torch's own parametrization, as its forward would compute it."""
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(Z.clone())
    parametrizations.orthogonal(module, "weight", orthogonal_map=map_name, use_trivialization=trivialization)
    return parametrized_job(module, G)


def geotorch_orthogonal(Z: Tensor, G: Tensor) -> Job:
    """The same under geotorch's parametrization."""
    import geotorch

    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(Z.clone())
    geotorch.orthogonal(module, "weight")
    return parametrized_job(module, G)


def parametrized_job(module: torch.nn.Module, G: Tensor) -> Job:
    """Compute the weight of a module from its parameter."""
    original = module.get_parameter("parametrizations.weight.original")

    def forward() -> list[Tensor]:
        weight = module.weight
        assert isinstance(weight, Tensor)
        return [weight]

    return Job(forward, [original], [G])


def list_peers(*, center: bool, against: str) -> list[Contender]:
    """Every other method, those of the ``peers`` extra where they are installed."""
    contenders = [
        Contender("svd", lambda Z, G: make_job(lambda Z: polar_factor(Z, center=center), Z, G), against=against),
        Contender("eigh (OLM)", lambda Z, G: make_job(lambda Z: olm(Z, center=center), Z, G), against=against),
    ]
    for name in MAPS:
        contenders.append(
            Contender(f"torch {name}", lambda Z, G, name=name: torch_orthogonal(Z, G, name), against=against)  # type: ignore[misc]
        )
    if find_spec("geotorch"):
        contenders.append(Contender("geotorch", geotorch_orthogonal, against=against))
    return contenders
