"""What can be put on every layer of a network to keep its weights in bounds."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import register_parametrization

import oni
from oni.baselines import orthogonalize_cholesky
from oni.bench.peers import torch_orthogonal
from oni.bench.probe import run_fastest
from oni.bench.training_times import STEPS, TrainingMethod
from oni.newton.reference import authors

__all__ = ["Unrolled", "find_fastest_map", "layers_of", "list_training_methods", "predict_seconds"]

SIGMA_MIN = 0.9
"""What is asked of every weight where a number of steps is not."""
SMALL = {"cayley": 512, "householder": 64}
"""Up to this size a map is timed as it is: of the long side, or of the short one. Both are cubic in the size."""
TRIAL_SECONDS = 0.5


def list_training_methods(
    *, only: str | None = None, cached: bool = False, compiled: bool = False
) -> list[TrainingMethod]:
    """Every method, the plain network first; ``oni`` inside its cache and compiled too, if that is asked for.

    Each is applied to the layer of the name ``only``, by default to all.
    """
    methods = [TrainingMethod("plain", lambda net: None)]
    if compiled:
        methods.append(TrainingMethod("plain compiled", lambda net: None, compiled=True))
    for steps in STEPS:
        convert, authors_form = partial(oni.convert, only=only, steps=steps), f"authors T={steps}"
        methods.append(TrainingMethod(f"oni T={steps}", convert, steps, authors_form, ours=True, orthogonal=True))
        if cached:
            methods.append(
                TrainingMethod(f"oni T={steps} cached", convert, steps, authors_form, ours=True, cached=True)
            )
        if compiled:
            methods.append(
                TrainingMethod(f"oni T={steps} compiled", convert, steps, authors_form, ours=True, compiled=True)
            )
        apply = partial(apply_authors_form, steps=steps, only=only)
        methods.append(TrainingMethod(authors_form, apply, steps, orthogonal=True))
    asked = partial(oni.convert, only=only, sigma_min=SIGMA_MIN, start="orthogonal")
    methods.append(TrainingMethod(f"oni {SIGMA_MIN}", asked, against="oni T=5", ours=True, orthogonal=True))
    exact, bounded, slow = (
        partial(apply, only=only) for apply in (apply_cholesky, add_spectral_norm, apply_torch_orthogonal)
    )
    methods.append(TrainingMethod("cholesky", exact, against="oni T=5", orthogonal=True))
    methods.append(TrainingMethod("spectral norm", bounded, against="authors T=5"))
    methods.append(
        TrainingMethod(
            "torch orthogonal",
            slow,
            against="authors T=5",
            patient=False,
            predict=partial(predict_seconds, only=only),
        )
    )
    return methods


def layers_of(net: nn.Module, only: str | None = None) -> Iterator[nn.Linear | nn.Conv2d]:
    """All that ``oni.convert`` converts in these networks, or the one of this name."""
    for name, module in list(net.named_modules()):
        if isinstance(module, nn.Linear | nn.Conv2d) and only in (None, name):
            yield module


class Unrolled(nn.Module):
    """A parametrization that computes a weight as a matrix with one row per filter, at each use."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, weight: Tensor) -> Tensor:
        return self.function(weight.flatten(1)).view_as(weight)


def apply_authors_form(net: nn.Module, steps: int, only: str | None = None) -> None:
    """As the authors' modules do it: every layer alone, always centred, always on the side of the rows."""
    for layer in layers_of(net, only):
        function = partial(authors, steps=steps, center=True)
        register_parametrization(layer, "weight", Unrolled(function), unsafe=True)


def apply_cholesky(net: nn.Module, only: str | None = None) -> None:
    """Exact orthogonalisation in every layer, from an orthogonal start: it needs full rank."""
    for layer in layers_of(net, only):
        nn.init.orthogonal_(layer.weight)
        register_parametrization(layer, "weight", Unrolled(orthogonalize_cholesky), unsafe=True)


def add_spectral_norm(net: nn.Module, only: str | None = None) -> None:
    """Torch's own, on every layer."""
    for layer in layers_of(net, only):
        parametrizations.spectral_norm(layer)


def apply_torch_orthogonal(net: nn.Module, only: str | None = None) -> None:
    """The one of torch, on unrolled weights: on the weight of a convolution itself it would act on each kernel."""
    for layer in layers_of(net, only):
        matrix = nn.Module()
        matrix.weight = nn.Parameter(layer.weight.detach().flatten(1))
        name, _ = find_fastest_map(tuple(matrix.weight.shape), str(matrix.weight.device))
        parametrizations.orthogonal(matrix, "weight", name, use_trivialization=name != "householder")
        with torch.no_grad():
            layer.weight.copy_(matrix.get_parameter("parametrizations.weight.original").view_as(layer.weight))
        register_parametrization(
            layer, "weight", Unrolled(matrix.get_submodule("parametrizations.weight.0")), unsafe=True
        )


def predict_seconds(net: nn.Module, only: str | None = None) -> float:
    """What the maps of :func:`apply_torch_orthogonal` would take on all layers, one after the other."""
    shapes = [tuple(layer.weight.flatten(1).shape) for layer in layers_of(net, only)]
    device = str(next(net.parameters()).device)
    return sum(find_fastest_map(shape, device)[1] for shape in shapes)


@functools.cache
def find_fastest_map(shape: tuple[int, int], device: str) -> tuple[str, float]:
    """The faster of torch's maps on a shape, with its seconds; predicted from a smaller shape where that is large.

    Cayley's works on a square matrix of the long side. Householder's is slower on most, but not on a few long rows;
    without the trivialization, which would need that square matrix as well. The exponential is never the fastest.
    """
    seconds = {}
    for name, side, limit in (
        ("cayley", max(shape), SMALL["cayley"]),
        ("householder", min(shape), SMALL["householder"]),
    ):
        factor = max(1.0, side / limit)
        small = [max(1, math.ceil(size / factor)) for size in shape]
        Z, G = torch.randn(2, *small, device=device).unbind()
        job = torch_orthogonal(Z, G, name, trivialization=name != "householder")
        seconds[name] = factor**3 * run_fastest(job, TRIAL_SECONDS, math.inf, time.perf_counter)[2]
    return min(seconds.items(), key=lambda item: item[1])
