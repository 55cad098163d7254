"""What this package needs of torch's internals, and nothing else: no other file names them.

Nobody promises that they stay, so each function has a test in ``tests/test_torch_internals.py`` that fails when torch
changes what it relies on.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from functools import cache, wraps
from pathlib import Path
from types import FrameType
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

__all__ = [
    "can_use_onednn",
    "collect_weights",
    "find_load",
    "find_returned",
    "follow_weights",
    "get_backward_id",
    "get_caller_frame",
    "get_saving_hook",
    "get_timeout",
    "get_version",
    "has_hooks",
    "has_pre_hook",
    "has_stand_ins",
    "has_tangents",
    "has_transforms",
    "has_values",
    "is_called_by",
    "is_exporting_onnx",
    "is_shard",
    "is_sharded_module",
    "keeps_graph",
    "may_keep_results",
    "multiply_by_onednn",
    "remove_hooks",
]

STAND_INS = (
    torch._C._TorchDispatchModeKey.FAKE,
    torch._C._TorchDispatchModeKey.PROXY,
    torch._C._TorchDispatchModeKey.FUNCTIONAL,
)


# Tensors


def get_version(tensor: Tensor) -> int:
    """How many writes to a tensor torch has counted; not those through ``.data``, numpy and fused optimizers."""
    return tensor._version


def has_values(tensor: Tensor) -> bool:
    """Whether the entries of a tensor are numbers that Python can look at: not on the meta device, not fake."""
    fake = isinstance(tensor, FakeTensor) or torch._C._get_dispatch_mode(STAND_INS[0]) is not None
    return tensor.device.type != "meta" and not fake


def is_shard(tensor: Tensor) -> bool:
    """Whether a tensor is spread over ranks (``DTensor``). By name: importing the class takes seconds."""
    return type(tensor).__name__ == "DTensor"


def is_sharded_module(module: nn.Module) -> bool:
    """Whether ``fully_shard`` was applied to a module, even where its parameters are whole at the moment."""
    return any(cls.__name__ == "FSDPModule" for cls in type(module).__mro__)


# Products by oneDNN

PLAIN = {Tensor, nn.Parameter}


def can_use_onednn(X: Tensor, Y: Tensor) -> bool:
    """Whether :func:`multiply_by_onednn` may multiply these, and is faster than ``torch.mm`` where they are large.

    To autograd, ``torch.func``, tracing and subclasses of tensors it means nothing.
    """
    if torch.is_grad_enabled() or not is_onednn_faster():
        return False
    if not (X.dtype == Y.dtype == torch.float32 and X.is_cpu and {type(X), type(Y)} <= PLAIN):
        return False
    if has_transforms() or has_tangents() or torch._C._len_torch_dispatch_stack() > 0:
        return False
    return torch._C._get_mkldnn_enabled()


@cache
def is_onednn_faster() -> bool:
    """Whether this is a processor by AMD with AVX-512, which oneDNN uses there and MKL does not.

    ``benchmarks/tried.py`` times both. The answer follows from the machine alone, so that all processes round alike.
    """
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not torch.backends.mkl.is_available():
        return False
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    with suppress(OSError):
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    return False


def multiply_by_onednn(X: Tensor, Y: Tensor) -> Tensor:
    """The product of two matrices of float32 on a CPU; torch has it for linear layers that it has compiled."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise.default(X, Y.mT, None, "none", [], "")
    return result


# Who else is at work


def has_transforms() -> bool:
    """Whether ``torch.func`` is at work: values then end with it."""
    return torch._C._are_functorch_transforms_active()


def has_tangents() -> bool:
    """Whether forward-mode differentiation is at work."""
    return torch.autograd.forward_ad._current_level >= 0


def has_stand_ins() -> bool:
    """Whether results may stand in for numbers, or must be part of a trace: fake tensors, ``make_fx``, export."""
    if torch._C._len_torch_dispatch_stack() == 0:
        return False
    return any(torch._C._get_dispatch_mode(key) is not None for key in STAND_INS)


def may_keep_results() -> bool:
    """Whether something sees every operation, and may keep its result: selective activation checkpointing does.

    Nothing may then be written to a result. torch.compile, which can't trace this question, takes care of that itself.
    """
    return not torch.compiler.is_compiling() and torch._C._len_torch_dispatch_stack() > 0


def get_saving_hook() -> Callable[[Tensor], Any] | None:
    """What torch calls for each tensor that it saves for the backward pass, if anything."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
    return hooks[0] if hooks else None


def is_exporting_onnx() -> bool:
    """Whether ``torch.onnx.export`` is at work, by either of its two ways.

    Not torch.onnx.is_in_onnx_export: it imports both, and inside torch.compile, which the newer way tries too, it is
    always False.
    """
    if torch.compiler.is_compiling() and not torch.compiler.is_exporting():
        return False
    newer = sys.modules.get("torch.onnx._internal.exporter._flags")
    if newer is not None and newer._is_onnx_exporting:
        return True
    # The older way never compiles, which could not trace this.
    older = sys.modules.get("torch.onnx._internal.torchscript_exporter._globals")
    return not torch.compiler.is_compiling() and older is not None and older.GLOBALS.in_onnx_export


# The backward pass that runs in this thread


def get_backward_id() -> int:
    """Which one it is; -1 for none."""
    return torch._C._current_graph_task_id()


def keeps_graph() -> bool:
    """Whether it was started with ``retain_graph``."""
    return torch._C._autograd._get_current_graph_task_keep_graph()


# Hooks of modules, and the calls that they are called in


def find_returned(frames: Iterable[FrameType | None]) -> set[int]:
    """The ids of those of these frames that are not on the stack of this thread, because their calls are over.

    torch does not call a module's forward hooks after a KeyboardInterrupt, so this is how to see that its call is over:
    the frame that calls the pre-hooks lasts exactly as long.
    """
    missing = set(map(id, frames))
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and missing:
        missing.discard(id(frame))
        frame = frame.f_back
    return missing


def get_caller_frame() -> FrameType:
    """The frame that called the function which asks."""
    return sys._getframe(2)


def is_called_by(name: str) -> bool:
    """Whether a function of this name is on the stack of this thread."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame is not None


def find_load() -> tuple[nn.Module, int] | None:
    """The module whose ``load_state_dict`` is at work, the outermost, and how far up the stack it was called.

    As the ``stacklevel`` of a warning in the function which asks; ``None`` outside of ``load_state_dict``.
    """
    found, level = None, 1
    frame = sys._getframe(1)
    while frame.f_back is not None:
        level += 1
        if frame.f_code is nn.Module.load_state_dict.__code__:
            found = frame.f_locals["self"], level
        frame = frame.f_back
    return found


def has_hooks(module: nn.Module) -> bool:
    """Whether something wants to know of the calls of a module."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def has_pre_hook(module: nn.Module, hook: Callable[..., Any]) -> bool:
    """Whether this very function is called before the forward pass of a module."""
    return any(other is hook for other in module._forward_pre_hooks.values())


def remove_hooks(module: nn.Module, is_ours: Callable[[Any], bool]) -> None:
    """Remove some of the hooks around calls and around saving, without the handles, which copies do not have."""
    for hooks in (module._forward_pre_hooks, module._forward_hooks, module._state_dict_pre_hooks):
        for key in [key for key, hook in hooks.items() if is_ours(hook)]:
            del hooks[key]
            module._forward_hooks_always_called.pop(key, None)


# Recurrent layers: nn.RNN, nn.GRU, nn.LSTM


class _Running(threading.local):
    """The weights of the recurrent layers whose forward passes run in this thread, by the ids of the layers."""

    def __init__(self) -> None:
        self.weights: dict[int, list[Tensor]] = {}


RUNNING = _Running()


def follow_weights(module: nn.Module) -> None:
    """Have a parametrised recurrent layer use its weights as they are at each forward pass; others do that anyway.

    torch hands its fused forward a list of the weights, ``_flat_weights``, and makes a new one where it sees that a
    weight is another tensor. One that is computed always is: torch computes it four times for each forward pass, and
    keeps the last one with its graph, so that the layer can't be copied. Here the list is computed, once in each pass.
    """
    if not isinstance(module, nn.RNNBase):
        return
    cls: Any = type(module)  # which parametrize made for this module and its copies alone
    plain = cls.__bases__[0]

    def read_weights(module: Any) -> list[Tensor]:
        held = RUNNING.weights.get(id(module))
        return [getattr(module, name) for name in module._flat_weights_names] if held is None else held

    @wraps(plain.forward)
    def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
        weights = read_weights(module)
        try:
            RUNNING.weights[id(module)] = weights
            return plain.forward(module, *args, **kwargs)
        finally:
            RUNNING.weights.pop(id(module), None)

    def forget_weights(module: Any) -> None:
        # None of these is a weight, so whoever makes the layer plain again has torch make the list at the next pass.
        module._flat_weight_refs = [weakref.ref(nn.Parameter)] * len(module._flat_weights_names)

    cls._flat_weights = property(read_weights, lambda module, weights: None)
    cls.forward = forward
    cls._init_flat_weights = forget_weights
    cls._update_flat_weights = cls.flatten_parameters = lambda module: None
    module.__dict__.pop("_flat_weights", None)
    forget_weights(module)


def collect_weights(module: nn.Module) -> None:
    """Have a recurrent layer that is plain again hand its own parameters to the fused forward."""
    if isinstance(module, nn.RNNBase):
        module._init_flat_weights()


# Processes


def get_timeout(group: dist.ProcessGroup | None) -> timedelta:
    """How long the operations of a group may wait; 30 minutes, torch's default for gloo, if it does not tell."""
    for device in ("cpu", "cuda"):
        with suppress(RuntimeError, AttributeError):
            backend = cast(dist.ProcessGroup, group or dist.group.WORLD)._get_backend(torch.device(device))
            return backend.options._timeout
    return timedelta(minutes=30)
