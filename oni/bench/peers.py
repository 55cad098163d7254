"""Other methods that give an orthogonal weight: torch's, those of other libraries, and decompositions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.utils import parametrizations

from oni.baselines.cholesky import orthogonalize_cholesky
from oni.baselines.exact_inverse_root import exact_inverse_root
from oni.bench.contender import Contender, Gives, WeightJob, make_job
from oni.machine import find_version
from oni.newton.matrix import is_tall

__all__ = ["MAPS", "by_eigenvectors", "list_peers", "polar_factor", "torch_orthogonal"]

MAPS = ("cayley", "matrix_exp", "householder")


def polar_factor(Z: Tensor, *, center: bool) -> Tensor:
    """U R^T of the singular value decomposition: what infinitely many Newton steps lead to."""
    if center:
        Z = Z - Z.mean(-1, keepdim=True)
    U, _, Rh = torch.linalg.svd(Z, full_matrices=False)
    return U @ Rh


def by_eigenvectors(Z: Tensor, *, center: bool) -> Tensor:
    """The same by an eigendecomposition of the Gram matrix of the short side, with its analytic gradient."""
    if center:
        Z = Z - Z.mean(-1, keepdim=True)
    if is_tall(*Z.shape[-2:]):
        return by_eigenvectors(Z.mT, center=False).mT
    return exact_inverse_root(Z @ Z.mT, 0.0) @ Z


def torch_orthogonal(Z: Tensor, G: Tensor, map_name: str, *, trivialization: bool = True) -> WeightJob:
    """The weight of a module under torch's own parametrization, as its forward would compute it."""
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(Z.clone())
    parametrizations.orthogonal(module, "weight", orthogonal_map=map_name, use_trivialization=trivialization)
    return parametrized_job(module, G)


def geotorch_orthogonal(Z: Tensor, G: Tensor) -> WeightJob:
    """The same under geotorch's parametrization, with the faster of its two maps: the other is the exponential."""
    import geotorch

    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(Z.clone())
    geotorch.orthogonal(module, "weight", triv="cayley")
    return parametrized_job(module, G)


def layers_job(
    make_layer: Callable[[int, int], torch.nn.Module], Z: Tensor, G: Tensor, *, wide: bool = False
) -> WeightJob:
    """The weights of dense layers that a library brings itself, one for each matrix, in training mode.

    Args:
        make_layer: from the number of rows and of columns to a layer.
        Z, G: the proxies, and the gradients of the weights.
        wide: whether the library needs the short side first; tall matrices are then transposed for it.
    """
    if wide and is_tall(*Z.shape[-2:]):
        job = layers_job(make_layer, Z.mT, G.mT)
        return WeightJob(lambda: [W.mT for W in job.forward()], job.leaves, [gradient.mT for gradient in job.G])
    jobs = []
    for matrix, gradient in zip(Z.reshape(-1, *Z.shape[-2:]), G.reshape(-1, *G.shape[-2:]), strict=True):
        layer = make_layer(*matrix.shape)
        with torch.no_grad():
            layer.get_parameter("parametrizations.weight.original").copy_(matrix)
        jobs.append(parametrized_job(layer.to(Z.device).train(), gradient))
    return WeightJob(
        lambda: [weight for job in jobs for weight in job.forward()],
        [original for job in jobs for original in job.leaves],
        [gradient for job in jobs for gradient in job.G],
    )


def orthogonium_linear(rows: int, columns: int, *, params: str = "DEFAULT_ORTHO_PARAMS") -> torch.nn.Module:
    """Its dense layer. By default: power iteration, then Björck's iteration."""
    from orthogonium import reparametrizers
    from orthogonium.layers import OrthoLinear

    layer: torch.nn.Module = OrthoLinear(columns, rows, bias=False, ortho_params=getattr(reparametrizers, params))
    return layer


def torchlip_linear(rows: int, columns: int) -> torch.nn.Module:
    """A dense layer under deel-torchlip's ``bjorck_norm``, after the spectral norm that it needs, as its own layers."""
    from deel.torchlip import SpectralLinear

    layer: torch.nn.Module = SpectralLinear(columns, rows, bias=False)
    return layer


def parametrized_job(module: torch.nn.Module, G: Tensor) -> WeightJob:
    """Compute the weight of a module from its parameter."""
    original = module.get_parameter("parametrizations.weight.original")

    def forward() -> list[Tensor]:
        weight = module.weight
        assert isinstance(weight, Tensor)
        return [weight]

    return WeightJob(forward, [original], [G])


def list_peers(*, center: bool) -> list[Contender]:
    """Every other method, those of the ``peers`` extra where they are installed."""
    exact, factor = Gives(polar=True, partial=False, full_rank=True), Gives(polar=False, partial=False, full_rank=True)
    map_, iterated = Gives(polar=False, partial=False, full_rank=False), Gives(True, True, full_rank=False)
    functions = {
        "cholesky": (partial(orthogonalize_cholesky, center=center), factor),
        "eigh": (partial(by_eigenvectors, center=center), exact),
        "svd": (partial(polar_factor, center=center), exact),
    }
    jobs: dict[str, tuple[Callable[[Tensor, Tensor], WeightJob], Gives]] = {
        name: (partial(make_job, function), gives) for name, (function, gives) in functions.items()
    }
    jobs |= {f"torch {name}": (partial(torch_orthogonal, map_name=name), map_) for name in MAPS}
    if find_version("geotorch"):
        jobs["geotorch cayley"] = geotorch_orthogonal, map_
    if find_version("orthogonium"):
        cholesky = partial(orthogonium_linear, params="CHOLESKY_ORTHO_PARAMS")
        qr = partial(orthogonium_linear, params="QR_ORTHO_PARAMS")
        jobs["orthogonium"] = partial(layers_job, orthogonium_linear), iterated
        jobs["orthogonium cholesky"] = partial(layers_job, cholesky, wide=True), factor
        jobs["orthogonium qr"] = partial(layers_job, qr), factor
    if find_version("deel-torchlip"):
        jobs["torchlip bjorck_norm"] = partial(layers_job, torchlip_linear), iterated
    return [Contender(name, prepare, gives=gives) for name, (prepare, gives) in jobs.items()]
