"""Other ways to an orthogonal weight: other forms of the same iteration, and other methods."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.utils import parametrizations

from oni.bench.matrices.contender import Contender, Job, make_job
from oni.machine import find_version
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


def layers_job(make_layer: Callable[[int, int], torch.nn.Module], Z: Tensor, G: Tensor) -> Job:
    """The weights of dense layers that a library brings itself, one for each matrix, in training mode."""
    jobs = []
    for matrix, gradient in zip(Z.reshape(-1, *Z.shape[-2:]), G.reshape(-1, *G.shape[-2:]), strict=True):
        layer = make_layer(*matrix.shape)
        with torch.no_grad():
            layer.get_parameter("parametrizations.weight.original").copy_(matrix)
        jobs.append(parametrized_job(layer.to(Z.device).train(), gradient))
    return Job(
        lambda: [weight for job in jobs for weight in job.forward()],
        [original for job in jobs for original in job.leaves],
        [gradient for job in jobs for gradient in job.G],
    )


def orthogonium_linear(rows: int, columns: int) -> torch.nn.Module:
    """Its dense layer: power iteration, then Björck's iteration."""
    from orthogonium.layers import OrthoLinear

    layer: torch.nn.Module = OrthoLinear(columns, rows, bias=False)
    return layer


def torchlip_linear(rows: int, columns: int) -> torch.nn.Module:
    """The same of deel-torchlip, which iterates to a tolerance."""
    from deel.torchlip import SpectralLinear

    layer: torch.nn.Module = SpectralLinear(columns, rows, bias=False)
    return layer


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
    peers: dict[str, Callable[[Tensor, Tensor], Job]] = {
        "geotorch": geotorch_orthogonal,
        "orthogonium": partial(layers_job, orthogonium_linear),
        "deel-torchlip": partial(layers_job, torchlip_linear),
    }
    contenders += [Contender(name, job, against=against) for name, job in peers.items() if find_version(name)]
    return contenders
