"""A bound that follows a model's forward pass, step by step: how far each result moves, and how far rounding moves it.

The structure is read from ``forward`` itself by ``torch.fx``, as a list of modules shows neither a residual sum nor a
factor, and what a network declares of itself may be wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

__all__ = ["Call", "Follower", "Signal", "Step", "norms", "signals_in"]


class Step(NamedTuple):
    """What one operation does to distances and sizes, in Euclidean norms of single samples."""

    constant: float
    """It stretches a distance at most so much; of several inputs, those of all together."""
    relative: float = 0.0
    """Rounding moves the result by at most ``relative`` times the size of the inputs, and ``absolute``."""
    absolute: float = 0.0


@dataclasses.dataclass(frozen=True)
class Signal:
    """A result on the way, for a batch of inputs x, and what is known of it at every x' near them."""

    value: Tensor
    """At x, with the batch first."""
    slope: float
    """It moves by at most ``slope`` times the distance of x' from x."""
    error: Tensor
    """Rounding moves it by at most ``error + drift`` times that distance; one for each sample."""
    drift: float = 0.0
    head: tuple[nn.Linear, Signal] | None = None
    """If it comes from a linear layer on the features of a sample: that, and these."""


class Call(NamedTuple):
    """One operation as it was called, and what came out."""

    args: tuple[Any, ...]
    """In which results are signals."""
    kwargs: dict[str, Any]
    output: Tensor
    dtype: torch.dtype | None
    """In which the model computes, if rounding matters."""

    @property
    def signals(self) -> list[Signal]:
        return signals_in((self.args, self.kwargs))


FunctionRule = Callable[[Call], Step | None]


class Holder(nn.Module):
    """A root of our own for tracing, as fx keeps constants that it meets at the root."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


class Tracer(fx.Tracer):
    """Looks into modules that have a forward of their own and no constant."""

    def __init__(self, has_constant: Callable[[str, nn.Module], bool]) -> None:
        super().__init__()
        self.has_constant = has_constant

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if self.has_constant(own_name(module_qualified_name), m):
            return True
        # The function, not the class: a parametrised module has a class of torch's own making.
        return type(m).forward.__module__.startswith("torch.") and not isinstance(m, nn.Sequential)


def own_name(qualified: str) -> str:
    """The name of a module within the model, from that within the holder."""
    return qualified.removeprefix("model").removeprefix(".")


class Follower:
    """A model whose forward pass was read; call it with inputs to follow them through.

    Args:
        model: in evaluation mode.
        has_constant: whether to take a module, by name, as one step.
        of_module: the step that a module is, if that is known.
        functions: the step that a function, or a method by its name, is.
        dtype: in which the model computes, if rounding matters.

    Raises:
        ValueError: if forward can't be read.
    """

    def __init__(
        self,
        model: nn.Module,
        has_constant: Callable[[str, nn.Module], bool],
        of_module: Callable[[str, nn.Module, Call], Step],
        functions: Mapping[Any, FunctionRule],
        dtype: torch.dtype | None = None,
    ) -> None:
        self.holder = Holder(model)
        self.of_module = of_module
        self.functions = functions
        self.dtype = dtype
        self.steps: dict[fx.Node, Step] = {}
        """Kept for further calls: they do not depend on the values."""
        self.rows: list[tuple[str, str, float, float]] = []
        """For each step its place, its kind, its constant, and the slope from the input up to here."""
        try:
            self.graph = Tracer(has_constant).trace(self.holder)
        except Exception as error:
            raise ValueError(
                f"the forward of {type(model).__name__} can't be followed: torch.fx can't trace it ({error}); pass "
                "the constant of the part that does this with constants={name: ...}, or give it a method "
                "lipschitz_constant(x)"
            ) from error

    def __call__(self, x: Tensor) -> Signal:
        """Follow a batch of inputs through the model."""
        results: dict[fx.Node, Any] = {}
        last_use = {source: node for node in self.graph.nodes for source in node.all_input_nodes}
        output: Any = None
        for node in self.graph.nodes:
            args = fx.node.map_arg(node.args, results.__getitem__)
            kwargs = fx.node.map_arg(node.kwargs, results.__getitem__)
            # From here on there are only results that later nodes use.
            for source in node.all_input_nodes:
                if last_use[source] is node:
                    del results[source]
            if node.op == "placeholder":
                results[node] = Signal(x, 1.0, x.new_zeros(len(x), dtype=torch.float64))
            elif node.op == "get_attr":
                results[node] = find_attribute(self.holder, str(node.target))
            elif node.op == "output":
                (output,) = args
            else:
                results[node] = self.run(node, args, kwargs, signals_in(results))
        if not isinstance(output, Signal):
            raise TypeError(f"the model must return a tensor, got {type(output).__name__}; wrap it in one that does")
        return output

    def run(self, node: fx.Node, args: tuple[Any, ...], kwargs: dict[str, Any], others: list[Signal]) -> Any:
        """One node: its value, and the bound of what may become of it; others are used later."""
        plain_args, plain_kwargs = without_bounds(args), without_bounds(kwargs)
        where, module = place_of(node), None
        if node.op == "call_module":
            module = self.holder.get_submodule(str(node.target))
            if getattr(module, "inplace", False):
                if {memory_of(signal) for signal in signals_in(args)} & {memory_of(signal) for signal in others}:
                    raise ValueError(f"{where}: it overwrites an input that is used elsewhere; pass inplace=False")
                plain_args = tuple(arg.clone() if isinstance(arg, Tensor) else arg for arg in plain_args)
            value = module(*plain_args, **plain_kwargs)
        elif node.op == "call_method":
            value = getattr(plain_args[0], str(node.target))(*plain_args[1:], **plain_kwargs)
        else:
            value = node.target(*plain_args, **plain_kwargs)  # type: ignore[operator]
        signals = signals_in((args, kwargs))
        if not signals or is_shape_query(node):
            return value
        if isinstance(value, Tensor) and (value.dim() == 0 or len(value) != len(signals[0].value)):
            raise ValueError(
                f"{where or 'the model'}: {kind_of(node, module)} does not keep the samples separate on the first axis"
            )
        if node not in self.steps:
            self.steps[node] = self.find_step(node, where, module, Call(args, kwargs, value, self.dtype))
            slope = self.steps[node].constant * sum(signal.slope for signal in signals)
            self.rows.append((where, kind_of(node, module), self.steps[node].constant, slope))
        result = apply_step(self.steps[node], signals, value)
        if module is not None and type(module).forward is nn.Linear.forward and value.dim() == 2:
            return dataclasses.replace(result, head=(module, signals[0]))  # type: ignore[arg-type]
        return result

    def find_step(self, node: fx.Node, where: str, module: nn.Module | None, call: Call) -> Step:
        """What this node does to distances, or an error that names it."""
        if not isinstance(call.output, Tensor):
            raise ValueError(
                f"{where or 'the model'}: {kind_of(node, module)} does not return a single tensor; it is not supported"
            )
        if module is not None:
            return self.of_module(where, module, call)
        rule = self.functions.get(node.target)
        step = rule(call) if rule else None
        if step is None:
            raise ValueError(
                f"{where or 'the model'}: no Lipschitz constant is known for {kind_of(node, module)!r} as it is called "
                "in this forward; pass the constant of the module with constants={name: ...}, or give it a method "
                "lipschitz_constant(x)"
            )
        return step


def apply_step(step: Step, signals: list[Signal], value: Tensor) -> Signal:
    r"""The signal after a step.

    What the model computes from, in its own precision, is at most :math:`\|h\| + E` long, for its input h and the error
    E of that; and ``value``, computed in float64, is off by less than E, as E grows with the unit roundoff.
    """
    slope, drift = sum(signal.slope for signal in signals), sum(signal.drift for signal in signals)
    error = torch.stack([signal.error for signal in signals]).sum(0)
    result = Signal(value, step.constant * slope, step.constant * error, step.constant * drift)
    if step.relative == step.absolute == 0:
        return result
    size = torch.stack([norms(signal.value) + 2 * signal.error for signal in signals]).sum(0)
    return dataclasses.replace(
        result,
        error=result.error + step.relative * size + step.absolute,
        drift=result.drift + step.relative * (slope + drift),
    )


def norms(batch: Tensor) -> Tensor:
    """The Euclidean norm of each sample."""
    return torch.linalg.vector_norm(batch.double().reshape(len(batch), -1), dim=1)


def memory_of(signal: Signal) -> int:
    """Where its values are: views of one tensor are in one place."""
    return signal.value.untyped_storage().data_ptr()


def signals_in(arguments: Any) -> list[Signal]:
    """All signals among arguments, which may be nested."""
    if isinstance(arguments, Signal):
        return [arguments]
    if isinstance(arguments, dict):
        arguments = tuple(arguments.values())
    return [signal for item in arguments for signal in signals_in(item)] if isinstance(arguments, tuple | list) else []


def without_bounds(arguments: Any) -> Any:
    """The same arguments with the values of signals in their place."""
    if isinstance(arguments, Signal):
        return arguments.value
    if isinstance(arguments, dict):
        return {key: without_bounds(item) for key, item in arguments.items()}
    return type(arguments)(map(without_bounds, arguments)) if type(arguments) in (tuple, list) else arguments


def is_shape_query(node: fx.Node) -> bool:
    """Whether a node asks for the shape of a tensor, which does not depend on its values."""
    if node.target is getattr:
        return node.args[1] in ("shape", "ndim", "dtype", "device")
    return node.op == "call_method" and node.target in ("size", "dim", "numel")


def find_attribute(root: Any, path: str) -> Any:
    for part in path.split("."):
        root = getattr(root, part)
    return root


def place_of(node: fx.Node) -> str:
    """The name of the module, in whose forward a node is; of a module's own node, that module."""
    if node.op == "call_module":
        return own_name(str(node.target))
    stack = list(node.meta.get("nn_module_stack") or {})
    return own_name(stack[-1].partition("@")[0]) if stack else ""


def kind_of(node: fx.Node, module: nn.Module | None) -> str:
    """What a node is, in a word."""
    if module is not None:
        return type(module).__name__.removeprefix("Parametrized")
    if node.target is getattr:
        return str(node.args[1])
    return str(getattr(node.target, "__name__", node.target))
