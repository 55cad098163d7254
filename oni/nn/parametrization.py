"""``orthogonal``: the weight of one module, computed from a proxy at each use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from oni.newton.batched import orthogonalize_each
from oni.newton.matrix import Layout
from oni.newton.orthogonalize import checked_options, orthogonalize

__all__ = [
    "FromProxy",
    "Options",
    "Orthogonal",
    "attach",
    "checked_learn_scale",
    "checked_module",
    "checked_scale",
    "checked_weight",
    "layout_of",
    "orthogonal",
    "settled",
]

M = TypeVar("M", bound=nn.Module)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED)


def orthogonal(
    module: M,
    name: str = "weight",
    *,
    steps: int = 5,
    scale: float | str = 1.0,
    learn_scale: bool = False,
    center: bool | str = "auto",
    bound: str = "compact",
    groups: int = 1,
    schedule: str = "newton",
) -> M:
    r"""Compute ``module.weight`` from a proxy Z by :func:`oni.orthogonalize` from now on.

    .. math:: W = \operatorname{diag}(g) \, \operatorname{orthogonalize}(Z)

    The parameter stays the same object and becomes the proxy (``module.parametrizations.weight.original``), so that
    optimizers which hold it go on working. Rows are output filters: a convolution's weight is ``(out, in * kernel)``, a
    transposed convolution's is permuted so, and each group of a grouped convolution is a matrix of its own.

    Args:
        module: a linear layer, a convolution, a recurrent cell, or any module whose parameter ``name`` has two or more
            dimensions, the first being its outputs.
        name: which parameter. A recurrent cell's is ``"weight_hh"``, with ``groups`` its number of gates.
        steps: how far to orthogonalise; see :func:`oni.orthogonalize`, as for ``center``, ``bound``, ``groups`` (of
            rows, in each convolution group) and ``schedule``.
        scale: g, a number or the name of an activation that ``torch.nn.init.calculate_gain`` knows: ``"relu"`` is
            :math:`\sqrt 2`, which keeps the signal through ReLU layers.
        learn_scale: learn one g per output filter, starting at ``scale``.

    Returns:
        The module itself. Assigning ``module.weight = W0`` starts the proxy from W0. ``oni.bake`` makes it plain again.

    >>> layer = orthogonal(nn.Linear(64, 16), steps=12)
    >>> torch.allclose(layer.weight @ layer.weight.T, torch.eye(16), atol=1e-5)
    True
    """
    checked_module(module)
    options = settled(steps, scale, learn_scale, center, bound, groups, schedule)
    weight = checked_weight(module, name, type(module).__name__)
    attach(module, name, Orthogonal(weight, layout_of(module), options))
    return module


@dataclass(frozen=True)
class Options:
    """The options of ``orthogonal``, ``scale`` as a number."""

    steps: int
    scale: float
    learn_scale: bool
    center: bool | str
    bound: str
    groups: int
    schedule: str

    def of_the_map(self) -> dict[str, Any]:
        """Those that ``orthogonalize`` takes."""
        return {name: getattr(self, name) for name in ("steps", "center", "bound", "groups", "schedule")}


def settled(
    steps: int = 5,
    scale: float | str = 1.0,
    learn_scale: bool = False,
    center: bool | str = "auto",
    bound: str = "compact",
    groups: int = 1,
    schedule: str = "newton",
) -> Options:
    """Options checked as far as that is possible without a weight."""
    # Any number of rows will do here; whether the groups divide them is seen with the weight.
    rows = groups if isinstance(groups, int) and groups > 0 else 1
    steps, _, groups = checked_options((rows, 1), steps, center, bound, groups, schedule)
    learn_scale = checked_learn_scale(learn_scale)
    return Options(steps, checked_scale(scale), learn_scale, center, bound, groups, schedule)


def checked_module(module: nn.Module) -> None:
    """Refuse anything but a module."""
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"module must be a torch.nn.Module, got {type(module).__name__}; pass the layer, not its weight"
        )


def checked_learn_scale(learn_scale: bool) -> bool:
    """``learn_scale`` itself, if it is a truth value."""
    if not isinstance(learn_scale, bool):
        raise TypeError(f"learn_scale must be True or False, got {learn_scale!r}; the factor itself is scale")
    return learn_scale


def checked_scale(scale: float | str) -> float:
    """``scale`` as a number."""
    if isinstance(scale, str):
        try:
            return float(nn.init.calculate_gain(scale))  # type: ignore[arg-type]
        except ValueError:
            raise ValueError(
                f"scale must be a number or an activation that torch.nn.init.calculate_gain knows, got {scale!r}; "
                'pass for example "relu"'
            ) from None
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not math.isfinite(scale) or scale == 0:
        raise ValueError(f"scale must be a finite nonzero number or the name of an activation, got {scale!r}")
    return float(scale)


def layout_of(module: nn.Module) -> Layout:
    """How the weight of this module is a matrix."""
    if isinstance(module, CONVOLUTIONS):
        return Layout(module.groups, isinstance(module, TRANSPOSED))
    return Layout()


def checked_weight(module: nn.Module, name: str, called: str) -> nn.Parameter:
    """The parameter, if it can be orthogonalised; errors call the module by the given name."""
    if isinstance(module, nn.RNNBase):
        cell = type(module).__name__ + "Cell"
        raise TypeError(
            f"{called}: {type(module).__name__} keeps its weights in a list of its own, where a parametrization would "
            f'go unnoticed; build it from nn.{cell} and call oni.orthogonal(cell, "weight_hh", groups=number of gates)'
        )
    if parametrize.is_parametrized(module, name):
        kinds = ", ".join(type(p).__name__ for p in module.parametrizations[name])  # type: ignore[index]
        raise ValueError(
            f"{called}: {name} is parametrised already, by {kinds}; remove that first, e.g. with "
            f"torch.nn.utils.parametrize.remove_parametrizations(module, {name!r}), or oni.bake"
        )
    weight = module._parameters.get(name)
    if weight is None:
        known = [n for n, p in module._parameters.items() if p is not None and p.dim() > 1]
        hint = (
            "an old-style spectral_norm or weight_norm hides it: remove that first"
            if name + "_orig" in known
            else (f"pass name= one of {known}" if known else "it has no matrix to orthogonalise")
        )
        raise ValueError(f"{called}: {type(module).__name__} has no parameter {name!r}; {hint}")
    if isinstance(weight, nn.parameter.UninitializedParameter):
        raise ValueError(f"{called}: {name} is lazy and has no shape yet; run one batch through the model first")
    if not weight.is_floating_point():
        raise TypeError(f"{called}: {name} must hold real floating-point numbers, got {weight.dtype}")
    if weight.dim() < 2:
        raise ValueError(f"{called}: {name} has shape {tuple(weight.shape)}, and no rows to orthogonalise; skip it")
    if weight.device.type != "meta" and not bool(torch.isfinite(weight.detach()).all()):
        raise ValueError(f"{called}: {name} holds NaN or infinity; initialise or load it first")
    return weight


def attach(module: nn.Module, name: str, parametrization: FromProxy) -> None:
    """Compute a parameter by a parametrization from now on."""
    position = list(module._parameters).index(name)
    # unsafe only skips computing the weight once more to see that its shape and dtype stay, which they do.
    parametrize.register_parametrization(module, name, parametrization, unsafe=True)
    parametrization.position = position
    accept_parameters(module)
    if isinstance(parametrization, Orthogonal):
        hasten(module, name)


def accept_parameters(module: nn.Module) -> None:
    """Let ``module.weight = nn.Parameter(...)`` start the proxy as a tensor does; torch's modules refuse it."""
    # Every parametrised module has a class of its own, made by torch.
    cls = type(module)

    def assign(self: nn.Module, name: str, value: Any) -> None:
        if isinstance(value, nn.Parameter) and parametrize.is_parametrized(self, name):
            value = value.detach()
        super(cls, self).__setattr__(name, value)

    cls.__setattr__ = assign  # type: ignore[method-assign]


def hasten(module: nn.Module, name: str) -> None:
    """Find a weight that is ready without the calls of two modules, which cost a small layer more than its product."""
    cls = type(module)
    computed = vars(cls)[name]

    def get(self: nn.Module) -> Tensor:
        if not (torch.compiler.is_compiling() or torch.is_grad_enabled()):
            holder: nn.Module = self._modules["parametrizations"]._modules[name]  # type: ignore[union-attr, assignment]
            memory: Memory = holder._modules["0"].memory  # type: ignore[union-attr, assignment]
            held = memory.held
            if memory.trusted and held is not None and held.weight is not None:
                Z = holder._parameters.get("original")
                if held.Z is Z and held.version == Z._version:
                    return held.weight
        return computed.fget(self)

    setattr(cls, name, property(get, computed.fset))


class Scaling(Protocol):
    """What the options of every such parametrization have."""

    @property
    def scale(self) -> float: ...
    @property
    def learn_scale(self) -> bool: ...


class FromProxy(nn.Module):
    """A parametrization from a proxy Z to the weight, by way of matrices: layout, scale, assignment."""

    orthogonal = True
    """Whether its matrices are meant to be orthogonal."""

    def __init__(self, weight: Tensor, layout: Layout, options: Scaling) -> None:
        super().__init__()
        self.layout = layout
        self.options = options
        self.shape = tuple(weight.shape)
        self.position = 0
        """Where the parameter stood among the module's own."""
        if options.learn_scale:
            self.scale = nn.Parameter(
                torch.full((layout.filters(self.shape),), options.scale, dtype=weight.dtype, device=weight.device)
            )

    def forward(self, Z: Tensor) -> Tensor:
        return self.scaled(self.unscaled(Z))

    def unscaled(self, Z: Tensor) -> Tensor:
        """The matrices of the weight, without scale."""
        raise NotImplementedError

    def alone(self, W: Tensor) -> list[Tensor]:
        """Those matrices as the blocks of rows that were computed each on its own."""
        return [W]

    def right_inverse(self, W0: Tensor) -> Tensor:
        if tuple(W0.shape) != self.shape:
            raise ValueError(f"the weight must have shape {self.shape}, got {tuple(W0.shape)}")
        return W0.detach().clone()

    def scaled(self, W: Tensor) -> Tensor:
        """From matrices to the weight."""
        if self.options.learn_scale:
            W = self.scale.to(W.dtype).view(*W.shape[:-1], 1) * W
        elif self.options.scale != 1.0:
            W = self.options.scale * W
        return self.layout.weight(W, self.shape)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in vars(self.options).items())


class Held(NamedTuple):
    """A weight computed before, with all it takes to see that it is still right."""

    Z: Tensor
    version: int
    copy: Tensor
    """Z's values then."""
    W: Tensor
    """The orthogonalised matrices, without scale."""
    weight: Tensor | None
    """The weight itself, where it can be held."""


class Memory:
    """What a parametrization holds; apart, because setting an attribute of a module takes long."""

    __slots__ = ("held", "keeping", "trusted")

    def __init__(self) -> None:
        self.held: Held | None = None
        self.trusted = 0
        """How many forward passes under way have compared ``held`` with the proxy already."""
        self.keeping = 0
        """How many ``oni.cached`` scopes ask to hold what is computed."""


class Orthogonal(FromProxy):
    """The parametrization by ``orthogonalize``, with a memory."""

    options: Options

    def __init__(self, weight: Tensor, layout: Layout, options: Options) -> None:
        super().__init__(weight, layout, options)
        # Whether the groups fit is known only now.
        shape = layout.matrices(weight).shape
        checked_options(shape, **options.of_the_map())
        self.alike = (shape, *options.of_the_map().values())
        """What parametrizations have in common that can be computed in one call."""
        self.memory = Memory()

    def forward(self, Z: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return self.scaled(self.unscaled(Z))
        held = self.fresh(Z)
        if held is None and self.memory.keeping and self.may_hold(Z):
            (held,) = hold_together([(self, Z)])
        if held is None:
            self.memory.held = None
            return self.scaled(self.unscaled(Z))
        return self.scaled(held.W) if held.weight is None else held.weight

    def unscaled(self, Z: Tensor) -> Tensor:
        return orthogonalize(self.layout.matrices(Z), **self.options.of_the_map())

    def alone(self, W: Tensor) -> list[Tensor]:
        return [W.unflatten(-2, (self.options.groups, -1))]

    def may_hold(self, Z: Tensor) -> bool:
        """Whether a change of Z can be noticed, and a result be kept.

        Not of tensors that stand in for the parameter, and not under ``torch.func``, whose values end with it.
        """
        if torch._C._are_functorch_transforms_active():
            return False
        return type(Z) is nn.Parameter and Z.device.type != "meta" and not Z.is_inference()

    def fresh(self, Z: Tensor) -> Held | None:
        """What is held, if it is right for Z, with a graph if one is wanted."""
        held = self.memory.held
        if held is None or held.Z is not Z or held.version != Z._version:
            return None
        if torch.is_grad_enabled() and Z.requires_grad and not held.W.requires_grad:
            return None
        if held.W.is_inference() and not torch.is_inference_mode_enabled():
            return None
        if self.memory.trusted:
            return held
        # Z.data.copy_() and writes through numpy leave no other trace.
        copy = held.copy
        same = copy.device == Z.device and copy.dtype == Z.dtype and torch.equal(Z, copy)
        return held if same else None

    def get_extra_state(self) -> Tensor:
        """The options, for ``oni bake`` and ``oni inspect``."""
        from oni.nn.options_codec import encoded

        return encoded(self.options, self.layout)

    def set_extra_state(self, state: Any) -> None:
        """Nothing: a model's options are what its code says, not what a checkpoint does."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # No checkpoint needs the options, so none without them is incomplete.
        state_dict.setdefault(prefix + "_extra_state", None)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def __getstate__(self) -> dict[str, Any]:
        # What is held belongs to a graph, which can't be copied, and to this very parameter.
        return {**self.__dict__, "memory": Memory()}


def hold_together(pairs: list[tuple[Orthogonal, Tensor]]) -> list[Held]:
    """Compute the weights of parametrizations with equal options and equal shapes in one call, and hold them."""
    matrices = [parametrization.layout.matrices(Z) for parametrization, Z in pairs]
    held: list[Held] = []
    Ws, copies = orthogonalize_each(matrices, **pairs[0][0].options.of_the_map())
    for (parametrization, Z), W, copy in zip(pairs, Ws, copies, strict=True):
        # A multiplication saves tensors that the first backward() would empty, and a learnable scale changes.
        settled = not (W.requires_grad or parametrization.options.learn_scale)
        weight = parametrization.scaled(W) if settled else None
        held.append(Held(Z, Z._version, parametrization.layout.weight(copy, parametrization.shape), W, weight))
        parametrization.memory.held = held[-1]
    return held
