"""Each weight once: same shapes in one batched call, and no call at all for what has not changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from oni.nn.parametrization import Orthogonal, hold_together

__all__ = ["batch_at_each_forward", "cached", "stop_batching"]

M = TypeVar("M", bound=nn.Module)


@contextmanager
def cached(model: M) -> Iterator[M]:
    """Within this scope, compute every orthogonal weight of a model once, those of equal shape in one batched call.

    However many forward and ``backward()`` calls run inside, gradients equal those without it. A weight is computed
    again when its proxy has changed in any way: by an optimizer, ``load_state_dict``, ``.data``, ``.to()``. A converted
    model does most of this by itself in its ``forward``; the scope adds parts of a model that are called on their own,
    and layers made orthogonal one by one.

    >>> from oni.nn import Linear
    >>> layer = Linear(8, 4)
    >>> with cached(layer):
    ...     layer.weight.data_ptr() == layer.weight.data_ptr()
    True
    """
    inside = proxies(model)
    for parametrization, _ in inside:
        parametrization.memory.keeping += 1
    try:
        prepare(inside)
        yield model
    finally:
        for parametrization, _ in inside:
            parametrization.memory.keeping -= 1


def proxies(model: nn.Module) -> list[tuple[Orthogonal, ParametrizationList]]:
    """Every orthogonal parametrization below a module, with what holds its proxy."""
    found = [module for module in model.modules() if isinstance(module, ParametrizationList)]
    return [(module[0], module) for module in found if isinstance(module[0], Orthogonal)]


def prepare(those: list[tuple[Orthogonal, ParametrizationList]]) -> None:
    """Bring all that is held up to date."""
    alike: dict[Any, dict[int, tuple[Orthogonal, Tensor]]] = {}
    for parametrization, holder in those:
        Z = holder.original
        if parametrization.may_hold(Z) and parametrization.fresh(Z) is None:
            parametrization.memory.held = None
            kind = (*parametrization.alike, Z.dtype, Z.device, Z.requires_grad)
            # By identity: modules may share a parametrization.
            alike.setdefault(kind, {})[id(parametrization)] = (parametrization, Z)
    for together in map(list, map(dict.values, alike.values())):
        size = batch_size(together[0][1])
        for start in range(0, len(together), size):
            hold_together(together[start : start + size])


def batch_size(Z: Tensor) -> int:
    """How many weights like this one to compute in one call.

    A batch saves the overhead of calls, which is nothing beside the products of large matrices; on a CPU a batch of
    those only drives each other out of the cache.
    """
    return max(1, (1 << 21) // max(1, Z.numel())) if Z.device.type == "cpu" else 1 << 16


# Where a converted model keeps the list of its proxies: walking all modules takes longer than a small forward pass. A
# list that misses a later change of the model costs time, never correctness: who is not prepared computes alone.
LISTED = "_oni_proxies"


def batch_at_each_forward(model: nn.Module) -> None:
    """Have a model prepare its weights at the start of each forward pass, once and for all."""
    for module in model.modules():
        module.__dict__.pop(LISTED, None)
    if not any(hook is _before for hook in model._forward_pre_hooks.values()):
        model.register_forward_pre_hook(_before)
        model.register_forward_hook(_after, always_call=True)


def stop_batching(model: nn.Module) -> None:
    """Undo ``batch_at_each_forward`` in a model and its parts."""
    for module in model.modules():
        module.__dict__.pop(LISTED, None)
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key in [key for key, hook in hooks.items() if hook in (_before, _after)]:
                del hooks[key]
                module._forward_hooks_always_called.pop(key, None)


def _before(module: nn.Module, _: Any) -> None:
    if torch.compiler.is_compiling():
        return
    those = module.__dict__.get(LISTED)
    if those is None:
        those = module.__dict__[LISTED] = proxies(module)
    prepare(those)
    for parametrization, _holder in those:
        parametrization.memory.trusted += 1


def _after(module: nn.Module, _: Any, __: Any) -> None:
    if torch.compiler.is_compiling():
        return
    for parametrization, _holder in module.__dict__.get(LISTED, ()):
        memory = parametrization.memory
        memory.trusted = max(0, memory.trusted - 1)
