"""The methods that the paper compares, each under one name.

>>> from torch import nn
>>> net = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
>>> net = apply("olm", net, skip="2", group_size=32)
>>> print(METHODS["olm"].description)
OLM: orthogonal by eigendecomposition in groups of 64 rows, scaled by sqrt 2
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from oni.baselines.olm import OLM, check_olm_options
from oni.baselines.penalty import penalty
from oni.baselines.unnormalised import Unnormalised, check_unnormalised_options
from oni.baselines.weight_norm import CentredWeightNorm, check_norm_options
from oni.diagnostics.operator import TRANSPOSED
from oni.models.bake import bake, make_plain
from oni.models.convert import convert
from oni.models.select import Selector, Weight, choose_weights
from oni.names import unknown_name
from oni.newton.matrix import Layout
from oni.nn.from_proxy import FromProxy
from oni.nn.options import check_scale
from oni.nn.parametrization import attach, check_weight, get_layout
from oni.recipes.exact_maps import Map, Mapped, make_cayley, make_cholesky, make_orthogonium, make_torchlip

__all__ = ["METHODS", "Method", "apply", "extra_loss", "plain"]

M = TypeVar("M", bound=nn.Module)
Extra = Callable[[nn.Module], Tensor]
MakeMap = Callable[[Tensor], tuple[Map, Tensor]]
"""From the matrices of a weight to a map, and the matrices that its proxy starts from."""


@dataclass(frozen=True)
class Method:
    """A method: its name, what it does and its options."""

    name: str
    description: str
    change: Callable[..., None]
    """Called with (model, only, skip) and all options."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Every option with its default, the paper's or its code's."""
    in_loss: tuple[str, ...] = ()
    """The options of the extra loss; a method without any has none."""


def apply(method: str, model: M, *, only: Selector = None, skip: Selector = None, **options: Any) -> M:
    """Apply a method to the linear and convolutional layers of a model, in place.

    Args:
        method: a name of ``METHODS``.
        model: a plain model.
        only, skip: which layers, as in :func:`oni.convert`. The paper leaves the output layer of a classifier plain:
            pass ``skip`` with its name.
        options: instead of the method's defaults; see ``METHODS[method].options``.

    Returns:
        The model itself. If an error is raised, it is unchanged.
    """
    entry = find_method(method)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    entry.change(model, only, skip, **complete_options(entry, options))
    return model


def extra_loss(method: str, *, only: Selector = None, skip: Selector = None, **options: Any) -> Extra | None:
    """The term that a method adds to the loss, as a function of the model; ``None`` for most.

    Pass the same ``only``, ``skip`` and options as to :func:`apply`.
    """
    entry = find_method(method)
    values = complete_options(entry, options)
    if not entry.in_loss:
        return None
    return partial(penalty, only=only, skip=skip, **{name: values[name] for name in entry.in_loss})


def plain(model: M) -> M:
    """Make a model plain again, whichever method changed it: the same keys as before, the effective weights.

    ``oni.bake`` for all that this package does, and the same for torch's own parametrizations.
    """
    bake(model)
    with torch.no_grad():
        for module in [module for module in model.modules() if parametrize.is_parametrized(module)]:
            for name, steps in list(module.parametrizations.items()):  # type: ignore[union-attr, operator]
                # In training mode, reading a spectrally normalised weight changes it.
                steps.eval()
                value = getattr(module, name).detach().clone()
                parameter = steps.original if hasattr(steps, "original") else nn.Parameter(value)
                make_plain(module, name, parameter)
                parameter.copy_(value)
    return model


def find_method(name: str) -> Method:
    """The method of this name."""
    if name not in METHODS:
        raise ValueError(unknown_name("method", name, list(METHODS)))
    return METHODS[name]


def complete_options(method: Method, options: dict[str, Any]) -> dict[str, Any]:
    """The given options and the defaults of the others."""
    for name in options:
        if name not in method.options:
            takes = ", ".join(method.options) or "none"
            raise TypeError(f"method {method.name!r} has no option {name!r}; its options are: {takes}")
    return {**method.options, **options}


def choose_layers(model: nn.Module, only: Selector, skip: Selector) -> list[tuple[Weight, nn.Parameter]]:
    """The chosen weights, all of which are plain and can be changed."""
    todo = [weight for weight, why in choose_weights(model, only, skip) if not why]
    return [(weight, check_weight(weight.module, weight.name, weight.label)) for weight in todo]


def check_untied(weights: list[tuple[Weight, nn.Parameter]]) -> list[tuple[Weight, nn.Parameter]]:
    """The same, if no two share a parameter: each would get a scale of its own."""
    first: dict[int, Weight] = {}
    for weight, parameter in weights:
        other = first.setdefault(id(parameter), weight)
        if other is not weight:
            raise ValueError(f"{weight.label} shares its parameter with {other.label}; skip both")
    return weights


def matrix_layout(weight: Weight) -> Layout:
    """How the weight is seen as a matrix; the queries, keys and values of attention are one each."""
    return Layout(weight.groups) if weight.groups > 1 else get_layout(weight.module)


def leave_alone(model: nn.Module, only: Selector, skip: Selector) -> None:
    choose_layers(model, only, skip)


def start_normal(model: nn.Module, only: Selector, skip: Selector, *, gain: float | str) -> None:
    """Variance gain^2 / inputs: with gain sqrt 2 a ReLU layer keeps the signal's mean square (He et al., 2015)."""
    factor = check_scale(gain)
    for _, parameter in choose_layers(model, only, skip):
        nn.init.kaiming_normal_(parameter, nonlinearity="linear")
        with torch.no_grad():
            parameter.mul_(factor)


def start_xavier(model: nn.Module, only: Selector, skip: Selector, *, gain: float | str) -> None:
    factor = check_scale(gain)
    for _, parameter in choose_layers(model, only, skip):
        nn.init.xavier_uniform_(parameter, factor)


def start_orthogonal(model: nn.Module, only: Selector, skip: Selector, *, gain: float | str, **_: Any) -> None:
    make_orthogonal(choose_layers(model, only, skip), check_scale(gain))


@torch.no_grad()
def make_orthogonal(weights: list[tuple[Weight, nn.Parameter]], factor: float = 1.0) -> None:
    for weight, parameter in weights:
        layout = matrix_layout(weight)
        values = torch.empty_like(layout.matrices(parameter))
        for matrix in values.reshape(-1, *values.shape[-2:]):
            nn.init.orthogonal_(matrix, factor)
        parameter.copy_(layout.weight(values, parameter.shape))


def apply_weight_norm(model: nn.Module, only: Selector, skip: Selector, *, scale: float | str | None) -> None:
    factor = None if scale is None else check_scale(scale)
    for weight, _ in check_untied(choose_layers(model, only, skip)):
        # Where the output filters are; those of a transposed convolution in groups would share a norm.
        dim = 1 if isinstance(weight.module, TRANSPOSED) else 0
        parametrizations.weight_norm(weight.module, weight.name, dim=dim)
        if factor is not None:
            with torch.no_grad():
                weight.module.parametrizations[weight.name].original0.fill_(factor)  # type: ignore[union-attr, index]


def apply_spectral_norm(
    model: nn.Module, only: Selector, skip: Selector, *, n_power_iterations: int, start: str
) -> None:
    check_start(start, STARTS)
    weights = check_untied(choose_layers(model, only, skip))
    if start == "orthogonal":
        make_orthogonal(weights)
    for weight, _ in weights:
        parametrizations.spectral_norm(weight.module, weight.name, n_power_iterations=n_power_iterations)


def apply_centred_weight_norm(model: nn.Module, only: Selector, skip: Selector, **options: Any) -> None:
    checked = check_norm_options(**options)
    attach_all(model, only, skip, lambda weight, layout: CentredWeightNorm(weight, layout, checked))


def apply_olm(model: nn.Module, only: Selector, skip: Selector, **options: Any) -> None:
    checked = check_olm_options(**options)
    attach_all(model, only, skip, lambda weight, layout: OLM(weight, layout, checked))


def apply_unnormalised(model: nn.Module, only: Selector, skip: Selector, **options: Any) -> None:
    checked = check_unnormalised_options(**options)
    attach_all(model, only, skip, lambda weight, layout: Unnormalised(weight, layout, checked))


def attach_all(
    model: nn.Module, only: Selector, skip: Selector, make: Callable[[nn.Parameter, Layout], FromProxy]
) -> None:
    """Parametrise every chosen weight, once it is known that all of them can be."""
    pairs: list[tuple[Weight, FromProxy]] = []
    for weight, parameter in check_untied(choose_layers(model, only, skip)):
        try:
            pairs.append((weight, make(parameter, matrix_layout(weight))))
        except ValueError as error:
            raise ValueError(f"{weight.label}: {error}") from None
    with torch.no_grad():
        for weight, parametrization in pairs:
            attach(weight.module, weight.name, parametrization)


def apply_oni(
    model: nn.Module, only: Selector, skip: Selector, *, start: str, sigma_min: float | None, **options: Any
) -> None:
    check_start(start, (*STARTS, POLAR))
    weights = choose_layers(model, only, skip)
    if sigma_min is not None:
        # Steps, bound and schedule follow from it and from the start.
        options = {name: value for name, value in options.items() if name not in ("steps", "bound", "schedule")}
        options["sigma_min"] = sigma_min
        start = POLAR if start == "orthogonal" else start
    convert(model, only=only, skip=skip, start="orthogonal" if start == POLAR else None, **options)
    if start == "orthogonal":
        make_orthogonal(weights)  # they have become the proxies


def start_like_oni(model: nn.Module, only: Selector, skip: Selector, **options: Any) -> None:
    chosen = choose_layers(model, only, skip)
    apply_oni(model, only, skip, learn_scale=False, **options)
    # Those alone, as a skipped layer may be orthogonal; and all before any changes, as some may share a parameter.
    values = [getattr(weight.module, weight.name).detach().clone() for weight, _ in chosen]
    with torch.no_grad():
        for (weight, parameter), value in zip(chosen, values, strict=True):
            make_plain(weight.module, weight.name, parameter)
            parameter.copy_(value)


def check_start(start: str, starts: tuple[str, ...]) -> None:
    if start not in starts:
        raise ValueError(f"start must be one of {', '.join(starts)}, got {start!r}")


def apply_map(make: MakeMap, model: nn.Module, only: Selector, skip: Selector) -> None:
    """Compute every chosen weight by a map, whose proxy starts where the map says."""
    plans = []
    for weight, parameter in check_untied(choose_layers(model, only, skip)):
        layout = matrix_layout(weight)
        try:
            function, original = make(layout.matrices(parameter.detach()))
        except ValueError as error:
            raise ValueError(f"{weight.label}: {error}") from None
        plans.append((weight, parameter, Mapped(parameter, layout, function), layout.weight(original, parameter.shape)))
    with torch.no_grad():
        for weight, parameter, parametrization, proxy in plans:
            attach(weight.module, weight.name, parametrization)
            parameter.copy_(proxy)


SCALED = {"scale": "relu", "learn_scale": True}
UNSCALED = {"scale": 1.0, "learn_scale": True}
# To the letter of the paper, which centres whatever the shape.
NEWTON = {
    "steps": 5,
    "center": True,
    "bound": "compact",
    "groups": 1,
    "schedule": "newton",
    "start": "given",
    "sigma_min": None,  # a number: steps, bound and schedule are chosen for it
}
STARTS = ("given", "orthogonal")
"""As the network is built, or an orthogonal matrix, as the authors' code for convolutions has the proxy."""
POLAR = "polar"
"""The polar factor of the weight as it is built: what ``start="orthogonal"`` of :func:`oni.convert` makes."""
# OLM's own code has no learnable scale, and the paper says only that it scales the start.
EIGEN = {"group_size": 64, "center": True, "gradient": "stable", "learn_scale": False}


def list_methods() -> Iterator[Method]:
    yield Method("plain", "as the network is built; a torch layer starts at LeCun's uniform", leave_alone)
    yield Method("lecun", "weights start normal, of variance 1 / inputs", start_normal, {"gain": 1.0})
    yield Method("he", "weights start normal, of variance 2 / inputs, for ReLU", start_normal, {"gain": "relu"})
    yield Method("xavier", "weights start at Xavier's uniform", start_xavier, {"gain": 1.0})
    yield Method("orth-init", "weights start orthogonal, and are free to leave", start_orthogonal, {"gain": 1.0})
    yield Method("wn", "weight normalisation: filters of learnable norm", apply_weight_norm, {"scale": "relu"})
    yield Method("centred-wn", "weight normalisation of centred filters", apply_centred_weight_norm, SCALED)
    yield Method(
        "sn",
        "spectral normalisation: largest singular value 1",
        apply_spectral_norm,
        {"n_power_iterations": 1, "start": "given"},
    )
    yield Method(
        "orth-reg",
        "weights start orthogonal, and the loss has a penalty for leaving",
        start_orthogonal,
        {"gain": 1.0, "coefficient": 1e-4, "kind": "soft"},
        in_loss=("coefficient", "kind"),
    )
    eigen = "OLM: orthogonal by eigendecomposition in groups of 64 rows, "
    yield Method("olm", eigen + "scaled by sqrt 2", apply_olm, {**EIGEN, "scale": "relu"})
    yield Method("olm-ns", eigen + "not scaled at the start", apply_olm, {**EIGEN, "scale": 1.0})
    newton = "ONI: orthogonal by 5 Newton steps, "
    yield Method("oni", newton + "scaled by sqrt 2", apply_oni, {**NEWTON, **SCALED})
    yield Method("oni-ns", newton + "not scaled at the start", apply_oni, {**NEWTON, **UNSCALED})
    yield Method(
        "oni-start",
        "weights start where those of ONI do, and are free to leave",
        start_like_oni,
        {**NEWTON, "scale": "relu"},
    )
    yield Method(
        "oni-columns",
        "ONI without bounding in its iteration, a slip of the authors' column form",
        apply_unnormalised,
        {"steps": 5, "scale": 1.0, "learn_scale": False},
    )
    yield Method("cayley", "exactly orthogonal, by torch's Cayley map", partial(apply_map, make_cayley))
    yield Method("cholesky", "exactly orthogonal, by Gram and Schmidt", partial(apply_map, make_cholesky))
    yield Method("torchlip", "deel-torchlip's dense layer: Björck's iteration", partial(apply_map, make_torchlip))
    yield Method("orthogonium", "orthogonium's dense layer: Björck's iteration", partial(apply_map, make_orthogonium))


METHODS: dict[str, Method] = {method.name: method for method in list_methods()}
"""Every method, by its name."""
