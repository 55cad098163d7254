"""``orthogonal``: the weight of one module, computed from a proxy at each use."""

from __future__ import annotations

import warnings
from types import FrameType
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from oni.diagnostics.operator import CONVOLUTIONS, TRANSPOSED
from oni.newton.matrix import Layout
from oni.newton.orthogonalize import orthogonalize
from oni.nn.from_proxy import FromProxy
from oni.nn.loading import SavedOptions, load_plain_weights
from oni.nn.options import Options, make_options
from oni.nn.stacked import count_stacked, is_transformers_conv1d
from oni.nn.start import check_start, describe_shortfall, make_proxy, write_proxy
from oni.torch_internals import follow_weights, get_caller_frame, has_values, is_exporting_onnx, is_shard

__all__ = [
    "Cache",
    "Orthogonal",
    "attach",
    "check_module",
    "check_weight",
    "get_layout",
    "is_zero",
    "make_orthogonal",
    "orthogonal",
    "parameter_order",
]

M = TypeVar("M", bound=nn.Module)


def orthogonal(
    module: M,
    name: str = "weight",
    *,
    steps: int | None = None,
    sigma_min: float | None = None,
    scale: float | str = 1.0,
    learn_scale: bool = False,
    center: bool | str = "auto",
    bound: str | None = None,
    groups: int | None = None,
    schedule: str | None = None,
    start: str | None = None,
) -> M:
    r"""From now on, compute ``module.weight`` from a proxy Z by :func:`oni.orthogonalize`.

    .. math:: W = \operatorname{diag}(g) \, \operatorname{orthogonalize}(Z)

    The parameter stays the same object and becomes the proxy (``module.parametrizations.weight.original``), so
    existing optimizers keep working. Rows are output filters: a convolution's weight is ``(out, in * kernel)``, that of
    a transposed convolution is permuted to this form, and each group of a grouped convolution is a separate matrix.

    Args:
        module: a linear layer, a convolution, a recurrent layer or cell, or any module whose parameter ``name`` has two
            or more dimensions, the first being its outputs.
        name: which parameter. For ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN`` it is ``"weight_hh_l0"`` (and so on, for each
            layer and direction), for a recurrent cell ``"weight_hh"``.
        steps: how far to orthogonalise, 5 by default; see :func:`oni.orthogonalize`, as for ``center``, ``bound``
            (``"compact"`` by default) and ``schedule`` (``"newton"``).
        groups: the number of groups of rows per convolution group, each orthogonalised separately. The default is the
            number of matrices that the weight stacks: one per gate of a recurrent layer, three for queries, keys and
            values of ``nn.MultiheadAttention``, otherwise 1.
        sigma_min: instead of ``steps``, a lower bound on the singular values of the orthogonalised matrix. It chooses
            the steps, bound and schedule with the fewest matrix products that certify it for the current weight. A
            ``bound`` or ``schedule`` that you pass is kept. Training moves the spectrum: ``oni.summary`` shows it,
            :func:`oni.retune` chooses again.
        scale: g, a number or the name of an activation that ``torch.nn.init.calculate_gain`` knows: ``"relu"`` is
            :math:`\sqrt 2`, which preserves the signal through ReLU layers.
        learn_scale: learn one g per output filter, initialised to ``scale``.
        start: ``"orthogonal"`` replaces the weight by its polar factor first, once: all singular values become equal,
            so fewer steps suffice, and pretrained weights are lost. ``None`` keeps the weight as the initial Z.

    Returns:
        The module itself. Assigning a tensor, ``module.weight = W0``, sets the proxy to W0. ``oni.bake`` makes the
        module plain again. Writing into ``module.weight`` (``nn.init``, ``.data``) has no effect, as with every
        parametrization of torch: the weight is recomputed.

    >>> layer = orthogonal(nn.Linear(64, 16), steps=12)
    >>> torch.allclose(layer.weight @ layer.weight.T, torch.eye(16), atol=1e-5)
    True
    >>> layer = orthogonal(nn.Linear(64, 16), sigma_min=0.9)
    >>> bool(torch.linalg.svdvals(layer.weight).min() >= 0.9)
    True
    """
    check_module(module)
    groups = count_stacked(module, name) if groups is None else groups
    options = make_options(steps, scale, learn_scale, center, bound, groups, schedule, sigma_min)
    label = type(module).__name__
    weight = check_weight(module, name, label)
    parametrization, proxy = make_orthogonal(weight, get_layout(module), options, label, check_start(start))
    attach(module, name, parametrization)
    write_proxy(weight, proxy)
    shortfall = describe_shortfall(parametrization.start)
    if shortfall:
        warnings.warn(f"{label}: {name} has {shortfall}; initialise it again", stacklevel=2)
    return module


def check_module(module: nn.Module) -> None:
    """Raise an error unless this is a module."""
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"module must be a torch.nn.Module, got {type(module).__name__}; pass the layer, not its weight"
        )


def get_layout(module: nn.Module) -> Layout:
    """Return how the weight of this module is a matrix."""
    if isinstance(module, CONVOLUTIONS):
        return Layout(module.groups, isinstance(module, TRANSPOSED))
    return Layout(transposed=is_transformers_conv1d(module))


def is_zero(weight: Tensor) -> bool:
    """Whether all entries are zero: such a proxy gives a zero weight with zero gradient, and never trains."""
    return has_values(weight) and not bool(weight.detach().any())


def check_weight(module: nn.Module, name: str, label: str) -> nn.Parameter:
    """Return the parameter if it can be orthogonalised; errors call the module by this label."""
    if parametrize.is_parametrized(module, name):
        present = list(module.parametrizations[name])  # type: ignore[index]
        kinds = ", ".join(type(parametrization).__name__ for parametrization in present)
        baking = ", or oni.bake" if isinstance(present[0], FromProxy) else ""
        raise ValueError(
            f"{label}: {name} is already parametrised by {kinds}; remove that first, with "
            f"torch.nn.utils.parametrize.remove_parametrizations(module, {name!r}){baking}"
        )
    weight = module._parameters.get(name)
    if weight is None:
        matrices = [n for n, p in module._parameters.items() if p is not None and p.dim() > 1]
        hint = (
            "an old-style spectral_norm or weight_norm hides it: remove that first"
            if name + "_orig" in matrices
            else (f"pass name= one of {matrices}" if matrices else "it has no matrix to orthogonalise")
        )
        raise ValueError(f"{label}: {type(module).__name__} has no parameter {name!r}; {hint}")
    if isinstance(weight, nn.parameter.UninitializedParameter):
        raise ValueError(f"{label}: {name} is lazy and has no shape yet; run one batch through the model first")
    if is_shard(weight):
        raise ValueError(f"{label}: {name} is already sharded; convert the model before fully_shard")
    if not weight.is_floating_point():
        raise TypeError(f"{label}: {name} must hold real floating-point numbers, got {weight.dtype}")
    if weight.dim() < 2:
        raise ValueError(f"{label}: {name} has shape {tuple(weight.shape)} and no rows to orthogonalise; skip it")
    if weight.numel() == 0:
        raise ValueError(f"{label}: {name} has shape {tuple(weight.shape)} and no entries to orthogonalise; skip it")
    if has_values(weight) and not bool(torch.isfinite(weight.detach()).all()):
        raise ValueError(f"{label}: {name} contains NaN or infinity; initialise or load it first")
    return weight


def attach(module: nn.Module, name: str, parametrization: FromProxy) -> None:
    """Compute a parameter by a parametrization from now on."""
    position = parameter_order(module).index(name)
    # unsafe only skips computing the weight once more to see that its shape and dtype stay, which they do.
    parametrize.register_parametrization(module, name, parametrization, unsafe=True)
    parametrization.position = position
    # Every parametrised module has a class of its own, made by torch.
    cls = type(module)
    cls.__setattr__ = _refuse_parameters  # type: ignore[method-assign, assignment]
    cls._load_from_state_dict = load_plain_weights  # type: ignore[method-assign, assignment]
    setattr(cls, name, _ask_cache_first(name, vars(cls)[name]))
    follow_weights(module)


def _ask_cache_first(name: str, computed: property) -> property:
    """Make a property that asks the cache first: the one that torch computes calls two modules.

    After a convolution has swept the cache of the CPU, those calls take 0.1 ms per layer.
    """

    def get_weight(module: nn.Module) -> Tensor:
        # torch.compile would compile anew whenever a scope opens.
        if not torch.compiler.is_compiling():
            warn_of_merging(get_caller_frame())
            holder: Any = module._modules["parametrizations"]._modules[name]  # type: ignore[union-attr]
            first = holder._modules["0"]
            cache: Cache | None = first.__dict__.get("cache")
            weight = None if cache is None else cache.find_ready(first, holder)
            if weight is not None:
                return weight
        assert computed.fget is not None
        return computed.fget(module)

    return property(get_weight, computed.fset, computed.fdel)


def warn_of_merging(reader: FrameType) -> None:
    """Warn where peft reads a weight in order to write into it."""
    if reader.f_code.co_name == "merge" and reader.f_globals.get("__name__", "").startswith("peft."):
        warnings.warn(
            "peft merges an adapter by writing into a weight that is computed from a proxy, so the adapter is lost; "
            "oni.bake the model first, then merge",
            UserWarning,
            stacklevel=3,
        )


def parameter_order(module: nn.Module) -> list[str]:
    """The names of a module's parameters in their first order, those with a proxy included."""
    names = list(module._parameters)
    if parametrize.is_parametrized(module):
        own = [(name, steps[0]) for name, steps in module.parametrizations.items()]  # type: ignore[union-attr, operator]
        positions = sorted((first.position, name) for name, first in own if isinstance(first, FromProxy))
        for position, name in positions:
            names.insert(position, name)
    return names


def _refuse_parameters(module: nn.Module, name: str, value: Any) -> None:
    """Set an attribute, but refuse a parameter where a weight is computed: it would look tied, and be copied."""
    tied = isinstance(value, nn.Parameter) or (isinstance(value, Tensor) and value.requires_grad)
    if tied and parametrize.is_parametrized(module, name):
        raise ValueError(
            f"{name} is computed from a proxy, so it can't be tied to a parameter by assignment; to start it from "
            "these values, assign value.detach(); to share one weight, assign before oni.convert or oni.orthogonal"
        )
    # The class that holds this function; a module may be of a class derived from it.
    owner = next(cls for cls in type(module).__mro__ if vars(cls).get("__setattr__") is _refuse_parameters)
    super(owner, module).__setattr__(name, value)  # type: ignore[arg-type]
    if parametrize.is_parametrized(module, name):
        first = module.parametrizations[name][0]  # type: ignore[index]
        if isinstance(first, FromProxy):
            first.start = ""


def make_orthogonal(
    weight: Tensor, layout: Layout, options: Options, label: str, start: str | None
) -> tuple[Orthogonal, Tensor]:
    """Make the parametrization of a weight, with options chosen for a target, and its proxy; errors name the label."""
    try:
        parametrization = Orthogonal(weight, layout, options)
        proxy, parametrization.start = make_proxy(weight, layout, options, start)
        parametrization.set_options(options.choose_for(layout.matrices(proxy)))
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from None
    return parametrization, proxy


class Cache(Protocol):
    """Holds weights for a while: see ``oni/models/cache.py``."""

    def find_ready(self, parametrization: Orthogonal, holder: parametrize.ParametrizationList) -> Tensor | None:
        """Return the weight if it is held and the parametrization need not be called; ``None`` to have it called."""

    def find_weight(self, parametrization: Orthogonal, Z: Tensor) -> Tensor | None:
        """Return the weight, computed now if needed; ``None`` to have it computed for this use alone."""


def refuse_onnx() -> None:
    """Refuse export to ONNX, which can't express the iteration; its own error would not say what to do."""
    if is_exporting_onnx():
        raise ValueError(
            "an orthogonal weight can't be exported to ONNX; bake first, with oni.bake(model), or a copy of the model"
        )


class Orthogonal(SavedOptions):
    """The parametrization by ``orthogonalize``."""

    cache: Cache | None = None
    can_wait = False
    """Whether to compute it only when it is asked for: under activation checkpointing no weight can be held."""

    def forward(self, Z: Tensor) -> Tensor:
        refuse_onnx()
        if self.cache is not None and not torch.compiler.is_compiling():
            weight = self.cache.find_weight(self, Z)
            if weight is not None:
                return weight
        return self.weight_from(self.unscaled(Z), Z)

    def unscaled(self, Z: Tensor) -> Tensor:
        return orthogonalize(self.layout.matrices(Z), **self.options.of_orthogonalize())

    def blocks(self, W: Tensor) -> list[Tensor]:
        return [W.unflatten(-2, (self.options.groups, -1))]
