"""The methods that the paper compares, each under one word.

>>> from torch import nn
>>> net = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
>>> net = apply("olm", net, skip="2", group_size=32)
>>> print(METHODS["olm"].description)
OLM: orthogonal by eigendecomposition in groups of 64 rows, scaled by sqrt 2
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from oni.baselines.olm import OLM, check_olm_options
from oni.baselines.penalty import penalty
from oni.baselines.weight_norm import CentredWeightNorm, check_norm_options
from oni.models.bake import bake, make_plain
from oni.models.convert import convert
from oni.models.select import Selector, Weight, choose_weights
from oni.newton.matrix import Layout
from oni.nn.options import check_scale
from oni.nn.parametrization import TRANSPOSED, FromProxy, attach, check_weight, get_layout

__all__ = ["METHODS", "Method", "apply", "extra_loss", "plain"]

M = TypeVar("M", bound=nn.Module)
Extra = Callable[[nn.Module], Tensor]


@dataclass(frozen=True)
class Method:
    """What a word stands for."""

    name: str
    description: str
    change: Callable[..., None]
    """Called with (model, only, skip) and all options."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Every option with its default, the paper's or its code's."""
    in_loss: tuple[str, ...] = ()
    """Which options belong to the extra loss; there is one if any does."""


def apply(method: str, model: M, *, only: Selector = None, skip: Selector = None, **options: Any) -> M:
    """Do to the linear and convolutional layers of a model what a method does, in place.

    Args:
        method: a word of ``METHODS``.
        model: a plain model.
        only, skip: which layers, as in :func:`oni.convert`. The paper leaves the output layer of a classifier plain:
            pass ``skip`` with its name.
        options: instead of the method's defaults; see ``METHODS[method].options``.

    Returns:
        The model itself. If an error is raised, it is unchanged.
    """
    found = known(method)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    found.change(model, only, skip, **merged(found, options))
    return model


def extra_loss(method: str, *, only: Selector = None, skip: Selector = None, **options: Any) -> Extra | None:
    """What a training loop adds to the loss for a method, as a function of the model; ``None`` for most.

    Pass the same ``only``, ``skip`` and options as to :func:`apply`.
    """
    found = known(method)
    both = merged(found, options)
    if not found.in_loss:
        return None
    return partial(penalty, only=only, skip=skip, **{name: both[name] for name in found.in_loss})


def plain(model: M) -> M:
    """Make a model plain again, whichever method changed it: the same keys as before, the effective weights.

    ``oni.bake`` for all that this package does, and the same for torch's own parametrizations.
    """
    bake(model)
    with torch.no_grad():
        for module in [module for module in model.modules() if parametrize.is_parametrized(module)]:
            for name, steps in list(module.parametrizations.items()):  # type: ignore[union-attr, operator]
                # In training mode, to look at a spectrally normalised weight is to change it.
                steps.eval()
                value = getattr(module, name).detach().clone()
                parameter = steps.original if hasattr(steps, "original") else nn.Parameter(value)
                make_plain(module, name, parameter)
                parameter.copy_(value)
    return model


def known(method: str) -> Method:
    if method in METHODS:
        return METHODS[method]
    near = difflib.get_close_matches(str(method), METHODS, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"method {method!r} is not known; {hint}The methods are: {', '.join(METHODS)}")


def merged(method: Method, options: dict[str, Any]) -> dict[str, Any]:
    for name in options:
        if name not in method.options:
            takes = ", ".join(method.options) or "none"
            raise TypeError(f"method {method.name!r} has no option {name!r}; its options are: {takes}")
    return {**method.options, **options}


def layers(model: nn.Module, only: Selector, skip: Selector) -> list[tuple[Weight, nn.Parameter]]:
    """The chosen weights, all of them plain and sound."""
    todo = [weight for weight, why in choose_weights(model, only, skip) if not why]
    return [(weight, check_weight(weight.module, weight.name, weight.label)) for weight in todo]


def untied(found: list[tuple[Weight, nn.Parameter]]) -> list[tuple[Weight, nn.Parameter]]:
    """The same, if no two share a parameter: each would get a scale of its own."""
    first: dict[int, Weight] = {}
    for weight, parameter in found:
        other = first.setdefault(id(parameter), weight)
        if other is not weight:
            raise ValueError(f"{weight.label} shares its parameter with {other.label}; skip both")
    return found


def matrices(weight: Weight) -> Layout:
    """How the weight is a matrix, the queries, keys and values of attention each alone."""
    return Layout(weight.groups) if weight.groups > 1 else get_layout(weight.module)


def nothing(model: nn.Module, only: Selector, skip: Selector) -> None:
    layers(model, only, skip)


def lecun(model: nn.Module, only: Selector, skip: Selector, *, gain: float | str) -> None:
    factor = check_scale(gain)
    for _, parameter in layers(model, only, skip):
        nn.init.kaiming_normal_(parameter, nonlinearity="linear")
        with torch.no_grad():
            parameter.mul_(factor)


def he(model: nn.Module, only: Selector, skip: Selector, *, gain: float | str) -> None:
    """Variance gain^2 / inputs: with gain sqrt 2 a ReLU layer keeps the signal's mean square (He et al., 2015)."""
    lecun(model, only, skip, gain=gain)


def xavier(model: nn.Module, only: Selector, skip: Selector, *, gain: float | str) -> None:
    factor = check_scale(gain)
    for _, parameter in layers(model, only, skip):
        nn.init.xavier_uniform_(parameter, factor)


def orthogonal_start(model: nn.Module, only: Selector, skip: Selector, *, gain: float | str, **_: Any) -> None:
    make_orthogonal(layers(model, only, skip), check_scale(gain))


@torch.no_grad()
def make_orthogonal(found: list[tuple[Weight, nn.Parameter]], factor: float = 1.0) -> None:
    for weight, parameter in found:
        layout = matrices(weight)
        values = torch.empty_like(layout.matrices(parameter))
        for matrix in values.reshape(-1, *values.shape[-2:]):
            nn.init.orthogonal_(matrix, factor)
        parameter.copy_(layout.weight(values, parameter.shape))


def weight_norm(model: nn.Module, only: Selector, skip: Selector, *, scale: float | str | None) -> None:
    factor = None if scale is None else check_scale(scale)
    for weight, _ in untied(layers(model, only, skip)):
        # Where the output filters are; those of a transposed convolution in groups would share a norm.
        dim = 1 if isinstance(weight.module, TRANSPOSED) else 0
        parametrizations.weight_norm(weight.module, weight.name, dim=dim)
        if factor is not None:
            with torch.no_grad():
                weight.module.parametrizations[weight.name].original0.fill_(factor)  # type: ignore[union-attr, index]


def spectral_norm(model: nn.Module, only: Selector, skip: Selector, *, n_power_iterations: int) -> None:
    for weight, _ in untied(layers(model, only, skip)):
        parametrizations.spectral_norm(weight.module, weight.name, n_power_iterations=n_power_iterations)


def centred_weight_norm(model: nn.Module, only: Selector, skip: Selector, **options: Any) -> None:
    settled = check_norm_options(**options)
    attach_all(model, only, skip, lambda weight, layout: CentredWeightNorm(weight, layout, settled))


def by_eigendecomposition(model: nn.Module, only: Selector, skip: Selector, **options: Any) -> None:
    settled = check_olm_options(**options)
    attach_all(model, only, skip, lambda weight, layout: OLM(weight, layout, settled))


def attach_all(
    model: nn.Module, only: Selector, skip: Selector, make: Callable[[nn.Parameter, Layout], FromProxy]
) -> None:
    """Parametrise every chosen weight, once it is known that all of them can be."""
    made: list[tuple[Weight, FromProxy]] = []
    for weight, parameter in untied(layers(model, only, skip)):
        try:
            made.append((weight, make(parameter, matrices(weight))))
        except ValueError as error:
            raise ValueError(f"{weight.label}: {error}") from None
    with torch.no_grad():
        for weight, parametrization in made:
            attach(weight.module, weight.name, parametrization)


def by_newton(model: nn.Module, only: Selector, skip: Selector, *, start: str, **options: Any) -> None:
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}, got {start!r}")
    found = layers(model, only, skip)
    convert(model, only=only, skip=skip, **options)
    if start == "orthogonal":
        make_orthogonal(found)  # the weights of before are the proxies of now


SCALED = {"scale": "relu", "learn_scale": True}
UNSCALED = {"scale": 1.0, "learn_scale": True}
# To the letter of the paper, which centres whatever the shape.
NEWTON = {"steps": 5, "center": True, "bound": "compact", "groups": 1, "schedule": "newton", "start": "given"}
STARTS = ("given", "orthogonal")
"""Of the proxy: as the network is built, or an orthogonal matrix, as the authors' code for convolutions has it."""
# OLM's own code has no learnable scale, and the paper says only that it scales the start.
EIGEN = {"group_size": 64, "center": True, "gradient": "stable", "learn_scale": False}


def registered() -> Iterator[Method]:
    yield Method("plain", "as the network is built; a torch layer starts at LeCun's uniform", nothing)
    yield Method("lecun", "weights start normal, of variance 1 / inputs", lecun, {"gain": 1.0})
    yield Method("he", "weights start normal, of variance 2 / inputs, for ReLU", he, {"gain": "relu"})
    yield Method("xavier", "weights start at Xavier's uniform", xavier, {"gain": 1.0})
    yield Method("orth-init", "weights start orthogonal, and are free to leave", orthogonal_start, {"gain": 1.0})
    yield Method("wn", "weight normalisation: filters of learnable norm", weight_norm, {"scale": "relu"})
    yield Method("centred-wn", "weight normalisation of centred filters", centred_weight_norm, SCALED)
    yield Method("sn", "spectral normalisation: largest singular value 1", spectral_norm, {"n_power_iterations": 1})
    yield Method(
        "orth-reg",
        "weights start orthogonal, and the loss has a penalty for leaving",
        orthogonal_start,
        {"gain": 1.0, "coefficient": 1e-4, "kind": "soft"},
        in_loss=("coefficient", "kind"),
    )
    eigen = "OLM: orthogonal by eigendecomposition in groups of 64 rows, "
    yield Method("olm", eigen + "scaled by sqrt 2", by_eigendecomposition, {**EIGEN, "scale": "relu"})
    yield Method("olm-ns", eigen + "not scaled at the start", by_eigendecomposition, {**EIGEN, "scale": 1.0})
    newton = "ONI: orthogonal by 5 Newton steps, "
    yield Method("oni", newton + "scaled by sqrt 2", by_newton, {**NEWTON, **SCALED})
    yield Method("oni-ns", newton + "not scaled at the start", by_newton, {**NEWTON, **UNSCALED})


METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in registered()})
"""Every method, by its word."""
