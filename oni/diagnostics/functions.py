"""What functions and methods in a forward pass do to distances: the steps that are no modules."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from oni.diagnostics.follow import Call, Signal, Step, norms
from oni.diagnostics.matrix_norm import gamma

__all__ = ["FUNCTIONS", "underflow"]


def unit_of(call: Call) -> float:
    """The unit roundoff of the model's numbers, 0 where rounding does not matter."""
    return torch.finfo(call.dtype).eps / 2 if call.dtype else 0.0


def underflow(call: Call, operations: int = 1) -> float:
    """What numbers too small for the dtype can add to the error."""
    entries = call.output.numel() / len(call.output)
    return operations * math.sqrt(entries) * torch.finfo(call.dtype).tiny if call.dtype else 0.0


def rearrange(call: Call) -> Step | None:
    """Entries move or are left out, within each sample."""
    return Step(1.0) if call.output.numel() <= call.signals[0].value.numel() else None


def transpose(call: Call) -> Step | None:
    axes = [axis % call.output.dim() for axis in (*call.args[1:], *call.kwargs.values())]
    return rearrange(call) if 0 not in axes else None


def permute(call: Call) -> Step | None:
    axes = (*call.args[1:], *call.kwargs.values())
    first = axes[0][0] if isinstance(axes[0], tuple | list) else axes[0]
    return rearrange(call) if first == 0 else None


def attribute(call: Call) -> Step | None:
    """``x.mT``, where it leaves the batch first."""
    return rearrange(call) if call.args[1] == "mT" and call.output.dim() > 2 else None


def index(call: Call) -> Step | None:
    """Slices, but no lists, which may name an entry twice, and every sample."""
    given = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
    plain = all(item is None or item is Ellipsis or isinstance(item, int | slice) for item in given)
    return rearrange(call) if plain and given[0] in (slice(None), Ellipsis) else None


def rectify(call: Call) -> Step | None:
    """Not in place: another name of the same tensor would change with it."""
    return Step(1.0) if len(call.args) == 1 and not any(call.kwargs.values()) else None


def pad(call: Call) -> Step | None:
    """With zeros, outside the batch."""
    names = dict(zip(("input", "pad", "mode", "value"), call.args, strict=False)) | call.kwargs
    zeros = names.get("mode", "constant") == "constant" and not names.get("value")
    # Two numbers for each axis, beginning with the last.
    return Step(1.0) if zeros and len(names["pad"]) < 2 * call.output.dim() else None


def add(call: Call) -> Step | None:
    """The sum, or difference, of two signals of one shape, or of a signal and a constant."""
    if any(signal.value.shape != call.output.shape for signal in call.signals) or call.kwargs:
        return None
    unit, absolute = unit_of(call), underflow(call)
    for constant in (arg for arg in call.args if not isinstance(arg, Signal)):
        if not isinstance(constant, int | float | Tensor):
            return None
        # A number is rounded to the dtype, too.
        absolute += 3 * unit * float(norms(torch.as_tensor(constant).expand(call.output.shape)).max())
    return Step(1.0, unit, absolute)


def scale(call: Call, factor: float) -> Step | None:
    if not math.isfinite(factor) or call.kwargs:
        return None
    # Powers of two are exact. Others are rounded to the dtype, perhaps inverted, and the product is.
    exact = factor == 0 or abs(math.frexp(factor)[0]) == 0.5
    return Step(abs(factor), 0.0 if exact else gamma(4, unit_of(call)) * abs(factor), underflow(call))


def multiply(call: Call) -> Step | None:
    numbers = [arg for arg in call.args if isinstance(arg, int | float)]
    return scale(call, float(numbers[0])) if len(numbers) == len(call.args) - 1 == 1 else None


def divide(call: Call) -> Step | None:
    by = call.args[1] if len(call.args) == 2 else None
    return scale(call, 1 / by) if isinstance(by, int | float) and by else None


def negate(call: Call) -> Step | None:
    return Step(1.0)


def reduced(call: Call) -> int | None:
    """How many entries go into each sum, if samples are not summed."""
    given = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim")
    shape = call.signals[0].value.shape
    if given is None or len(call.args) > 2 or set(call.kwargs) - {"dim", "keepdim"}:
        return None
    axes = {axis % len(shape) for axis in (given if isinstance(given, tuple | list) else (given,))}
    return None if 0 in axes else math.prod(shape[axis] for axis in axes)


def total(call: Call) -> Step | None:
    """By the inequality of Cauchy and Schwarz; equal entries reach it."""
    count = reduced(call)
    if not count:
        return None
    constant = math.sqrt(count)
    return Step(constant, gamma(count, unit_of(call)) * constant, underflow(call, count))


def mean(call: Call) -> Step | None:
    count = reduced(call)
    if not count:
        return None
    constant = 1 / math.sqrt(count)
    return Step(constant, gamma(count + 2, unit_of(call)) * constant, underflow(call, count + 2))


Rule = Callable[[Call], Step | None]

FUNCTIONS: dict[Any, Rule] = {
    **dict.fromkeys((operator.add, operator.sub, torch.add, torch.sub, "add", "sub"), add),
    **dict.fromkeys((operator.mul, torch.mul, "mul"), multiply),
    **dict.fromkeys((operator.truediv, torch.div, "div"), divide),
    **dict.fromkeys((operator.neg, torch.neg, "neg"), negate),
    **dict.fromkeys((torch.sum, "sum"), total),
    **dict.fromkeys((torch.mean, "mean"), mean),
    **dict.fromkeys((F.relu, torch.relu, "relu"), rectify),
    **dict.fromkeys(
        (torch.flatten, torch.reshape, torch.unflatten, "flatten", "reshape", "view", "unflatten"), rearrange
    ),
    **dict.fromkeys((torch.squeeze, torch.unsqueeze, "squeeze", "unsqueeze", "contiguous", "clone"), rearrange),
    **dict.fromkeys((torch.transpose, "transpose", torch.swapaxes, "swapaxes"), transpose),
    **dict.fromkeys((torch.permute, "permute"), permute),
    getattr: attribute,
    operator.getitem: index,
    F.pad: pad,
}
"""What it knows: a function, or the name of a method, with the rule for its step."""
