"""``lipschitz_bound``: how much a model can stretch the distance between two inputs, at most."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from oni.diagnostics.convolution import norm_bound
from oni.diagnostics.follow import Call, Follower, Step
from oni.diagnostics.functions import FUNCTIONS
from oni.diagnostics.operator import CONVOLUTIONS, schur_bound
from oni.diagnostics.untouched import sample_input, untouched

__all__ = ["Factor", "LipschitzBound", "choose_constants", "find_by_kind", "lipschitz_bound", "of_average"]

T = TypeVar("T")


class Factor(NamedTuple):
    """One module or operation of the model, in the order in which they run."""

    layer: str
    """The module, or the one in whose forward the operation is."""
    kind: str
    constant: float
    """At most so much does it stretch a distance."""
    total: float
    """At most so much does all up to here: the product of the constants, and at a sum the sum of its terms' totals."""


@dataclass(frozen=True)
class LipschitzBound:
    """The bound, ``float(bound)``, and where it comes from."""

    value: float
    factors: tuple[Factor, ...]

    def __float__(self) -> float:
        return self.value


def lipschitz_bound(
    model: nn.Module,
    input_size: int | Sequence[int],
    *,
    constants: Mapping[str | type[nn.Module], float] | None = None,
) -> LipschitzBound:
    r"""An upper bound on the Lipschitz constant of a model in evaluation mode, in Euclidean norms.

    .. math:: \|f(x) - f(y)\| \le L \, \|x - y\|, \qquad L(g \circ h) = L(g) L(h), \quad L(g + h) = L(g) + L(h)

    Linear layers and convolutions count with an upper bound on their operator norm (:func:`norm_bound`): not with a
    power iteration, which converges from below, nor with the norm of a reshaped weight, which is another operator.
    Batch normalisation counts with its running variance, layer and group normalisation with :math:`1/\sqrt\epsilon`,
    because they do stretch that much near a constant input, pools with the overlap of their windows, activations with
    their steepest slope, dropout with 1. Between modules, sums count with the sum of their terms' bounds, so that
    ``(x + f(x)) / 2`` keeps a bound of 1, factors with their size, the sum and the mean of n entries with
    :math:`\sqrt n` and :math:`1/\sqrt n`, and whatever moves or drops entries with 1.

    The structure is read from the forward pass itself, by ``torch.fx``: a list of modules shows no residual sum, and
    a model that declared its bound could be wrong about it. Your own modules are traced too, unless they have a method
    ``lipschitz_constant(x)``, which gets an input of the right shape and returns the constant, like
    :class:`oni.nn.GroupSort`. Unknown operations are an error. Hooks are ignored.

    Args:
        model: any module whose forward ``torch.fx`` can trace, converted or plain.
        input_size: the size of one input, without the batch: ``(channels, height, width)``, or ``features``.
        constants: the Lipschitz constants of unknown modules, by qualified name or by type.

    Raises:
        ValueError: for a module or an operation that it does not know, which is named, and for constants that are
            negative or belong to no module of the model.

    >>> model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    >>> _ = [nn.init.orthogonal_(model[i].weight) for i in (0, 2)]
    >>> bound = lipschitz_bound(model, 8)
    >>> round(float(bound), 6), [factor.kind for factor in bound.factors]
    (1.0, ['Linear', 'ReLU', 'Linear'])
    """
    # Two samples: what mixes them would go unnoticed with one.
    x = sample_input(model, input_size if isinstance(input_size, int) else tuple(input_size), batch_size=2)
    with untouched(model, training=False), torch.no_grad():
        follower = Follower(model, *choose_constants(check_constants(model, constants or {})), FUNCTIONS)
        value = follower(x).slope
    return LipschitzBound(value, tuple(Factor(*row) for row in follower.rows))


def check_constants(
    model: nn.Module, constants: Mapping[str | type[nn.Module], float]
) -> Mapping[str | type[nn.Module], float]:
    """Return the constants if each is a number of at least 0 and belongs to a module of the model."""
    modules = dict(model.named_modules())
    for key, constant in constants.items():
        if isinstance(constant, bool) or not isinstance(constant, Real) or not constant >= 0:
            raise ValueError(f"constants[{key!r}] must be a number of at least 0, got {constant!r}")
        if not (key in modules if isinstance(key, str) else any(isinstance(part, key) for part in modules.values())):
            raise ValueError(f"constants[{key!r}] matches no module; the model has {[*modules][1:9]}")
    return constants


def choose_constants(
    given: Mapping[str | type[nn.Module], float],
) -> tuple[Callable[[str, nn.Module], bool], Callable[[str, nn.Module, Call], Step]]:
    """Whether a module has a constant, and the step that it is: the given ones first, then its own, then the known."""

    def find_given(name: str, module: nn.Module) -> float | None:
        return given.get(name, next((given[kind] for kind in type(module).__mro__ if kind in given), None))

    def has_constant(name: str, module: nn.Module) -> bool:
        is_known = hasattr(module, "lipschitz_constant") or find_known(module) is not None
        return is_known or find_given(name, module) is not None

    def of_module(name: str, module: nn.Module, call: Call) -> Step:
        own = find_given(name, module)
        constant = own if own is not None else constant_of(module, call.signals[0].value)
        if constant is None:
            kind = type(module).__name__.removeprefix("Parametrized")
            raise ValueError(
                f"{name or 'the model'}: the Lipschitz constant of {kind} is not known; pass it as "
                f"constants={{{(name or kind)!r}: ...}}, or give the module a method lipschitz_constant(x)"
            )
        return Step(float(constant))

    return has_constant, of_module


def find_known(module: nn.Module) -> Constant | None:
    """What the table says of its kind."""
    return find_by_kind(module, KNOWN)


def find_by_kind(module: nn.Module, table: Mapping[type[nn.Module], T]) -> T | None:
    """The entry of a module's class, or of the class whose forward it has."""
    # A subclass with a forward of its own may do anything, and so may a module that was given another.
    if "forward" in vars(module):
        return None
    bases: tuple[Any, ...] = type(module).__mro__
    return next((table[base] for base in bases if base in table and type(module).forward is base.forward), None)


def constant_of(module: Any, x: Tensor) -> float | None:
    """A bound for one module at an input of this shape; ``None`` if it is of no known kind."""
    if hasattr(module, "lipschitz_constant"):
        return module.lipschitz_constant(x)
    known = find_known(module)
    return known(module, x) if callable(known) else known


def of_layer(layer: Any, x: Tensor) -> float:
    return norm_bound(layer, None if isinstance(layer, nn.Linear) else tuple(x.shape[2:]))


def of_average(pool: Any, x: Tensor) -> float:
    """The norm of an average pool, by Schur's test, in one channel as in all."""
    count_dimensions(pool, x)
    return schur_bound(pool, x[:, :1])


def of_maximum(pool: Any, x: Tensor) -> float:
    # A pixel counts once for every window that has it.
    dimensions = count_dimensions(pool, x)
    k, s, d = (each(value, dimensions) for value in (pool.kernel_size, pool.stride, pool.dilation))
    windows = (-(-a * math.gcd(b, c) // b) for a, b, c in zip(k, s, d, strict=True))
    return math.sqrt(math.prod(windows))


def of_adaptive_maximum(pool: Any, x: Tensor) -> float:
    out = each(pool.output_size, count_dimensions(pool, x))
    pairs = [(size, to if to is not None else size) for size, to in zip(x.shape[2:], out, strict=True)]
    return math.sqrt(math.prod(1 if size % to == 0 else -(-to // size) + 1 for size, to in pairs))


def count_dimensions(pool: nn.Module, x: Tensor) -> int:
    """Return the number of spatial axes of a pool's input.

    Without an axis of channels torch takes the batch for it, and the first of these axes would be missed here.
    """
    dimensions = next(count for count, kinds in enumerate(POOLS, 1) if isinstance(pool, kinds))
    if x.dim() != dimensions + 2:
        raise ValueError(
            f"{type(pool).__name__} must get a batch with one axis of channels and {dimensions} of pixels, got shape "
            f"{tuple(x.shape)}; add the axis of channels, for example with x.unsqueeze(1)"
        )
    return dimensions


def each(value: Any, dimensions: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * dimensions


def of_running_statistics(norm: Any, _: Tensor) -> float | None:
    if norm.running_var is None:
        return of_own_statistics(norm, _) if isinstance(norm, INSTANCE) else None
    gain = (norm.running_var.double() + norm.eps).rsqrt()
    return float((gain * (1 if norm.weight is None else norm.weight.detach().double().abs())).max())


def of_own_statistics(norm: Any, _: Tensor) -> float:
    gain = 1.0 if norm.weight is None else float(norm.weight.detach().double().abs().max())
    return gain / math.sqrt(norm.eps)


def steepest(*slopes: float) -> float:
    return max(abs(slope) for slope in slopes)


POOLS = (
    (nn.MaxPool1d, nn.AvgPool1d, nn.AdaptiveMaxPool1d, nn.AdaptiveAvgPool1d),
    (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool2d),
    (nn.MaxPool3d, nn.AvgPool3d, nn.AdaptiveMaxPool3d, nn.AdaptiveAvgPool3d),
)
"""By their number of spatial axes."""
INSTANCE = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
Constant = float | Callable[[Any, Tensor], float | None]

KNOWN: dict[type[nn.Module], Constant] = {
    **dict.fromkeys((nn.Linear, *CONVOLUTIONS), of_layer),
    **dict.fromkeys((nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d), of_average),
    **dict.fromkeys((nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d), of_average),
    **dict.fromkeys((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), of_maximum),
    **dict.fromkeys((nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d), of_adaptive_maximum),
    **dict.fromkeys(
        (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm, *INSTANCE), of_running_statistics
    ),
    **dict.fromkeys((nn.LayerNorm, nn.GroupNorm), of_own_statistics),
    **dict.fromkeys((nn.Identity, nn.Flatten, nn.Unflatten, nn.PixelShuffle, nn.PixelUnshuffle), 1.0),
    **dict.fromkeys((nn.ChannelShuffle, nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d), 1.0),
    **dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout), 1.0),
    **dict.fromkeys((nn.ReLU, nn.ReLU6, nn.Tanh, nn.Hardtanh, nn.Softplus, nn.Softsign, nn.LogSigmoid), 1.0),
    **dict.fromkeys((nn.CELU, nn.Softshrink, nn.Tanhshrink), 1.0),
    nn.LeakyReLU: lambda module, _: steepest(1, module.negative_slope),
    nn.PReLU: lambda module, _: steepest(1, *module.weight.detach().double().tolist()),
    nn.RReLU: lambda module, _: steepest(1, (module.lower + module.upper) / 2),
    nn.ELU: lambda module, _: steepest(1, module.alpha),
    # scale * alpha, its slope just below zero.
    nn.SELU: 1.0507009873554805 * 1.6732632423543772,
    # The steepest slopes of these smooth ones, rounded up: 1.12891 (1.12984 by tanh), 1.09984, 1.08850.
    nn.GELU: 1.13,
    nn.SiLU: 1.09985,
    nn.Mish: 1.0886,
    nn.Hardswish: 1.5,
    nn.Sigmoid: 0.25,
    # 1/6 as torch has it, to float32.
    nn.Hardsigmoid: 0.1666667,
    # The covariance of a one-hot variable has norm 1/2 at most.
    nn.Softmax: 0.5,
}
"""What it knows: a constant, or a function of the module and its input."""
