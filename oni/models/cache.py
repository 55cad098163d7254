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
    inside = [parametrization for parametrization, _ in proxies(model)]
    for parametrization in inside:
        parametrization.keeping += 1
    try:
        prepare(model)
        yield model
    finally:
        for parametrization in inside:
            parametrization.keeping -= 1


def proxies(model: nn.Module) -> Iterator[tuple[Orthogonal, Tensor]]:
    """Every orthogonal parametrization below a module, with its proxy."""
    for module in model.modules():
        if isinstance(module, ParametrizationList) and isinstance(module[0], Orthogonal):
            yield module[0], module.original


def prepare(model: nn.Module) -> list[Orthogonal]:
    """Bring all that is held up to date; the parametrizations that now hold the right weight."""
    pairs = {id(p): (p, Z) for p, Z in proxies(model) if p.may_hold(Z)}
    alike: dict[Any, list[tuple[Orthogonal, Tensor]]] = {}
    for parametrization, Z in pairs.values():
        if parametrization.fresh(Z) is None:
            parametrization.held = None
            shape = parametrization.layout.matrices(Z.detach()).shape
            map_options = tuple(parametrization.options.of_the_map().items())
            alike.setdefault((shape, Z.dtype, Z.device, Z.requires_grad, map_options), []).append((parametrization, Z))
    for together in alike.values():
        size = batch_size(together[0][1])
        for start in range(0, len(together), size):
            hold_together(together[start : start + size])
    return [parametrization for parametrization, _ in pairs.values()]


def batch_size(Z: Tensor) -> int:
    """How many weights like this one to compute in one call.

    A batch saves the overhead of calls, which is nothing beside the products of large matrices; on a CPU a batch of
    those only drives each other out of the cache.
    """
    return max(1, (1 << 21) // max(1, Z.numel())) if Z.device.type == "cpu" else 1 << 16


def batch_at_each_forward(model: nn.Module) -> None:
    """Have a model prepare its weights at the start of each forward pass, once and for all."""
    if not any(hook is _before for hook in model._forward_pre_hooks.values()):
        model.register_forward_pre_hook(_before)
        model.register_forward_hook(_after, always_call=True)


def stop_batching(model: nn.Module) -> None:
    """Undo ``batch_at_each_forward`` in a model and its parts."""
    for module in model.modules():
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            for key in [key for key, hook in hooks.items() if hook in (_before, _after)]:
                del hooks[key]
                module._forward_hooks_always_called.pop(key, None)


def _before(module: nn.Module, _: Any) -> None:
    if torch.compiler.is_compiling():
        return
    for parametrization in prepare(module):
        parametrization.trusted += 1


def _after(module: nn.Module, _: Any, __: Any) -> None:
    if torch.compiler.is_compiling():
        return
    for parametrization, _Z in proxies(module):
        parametrization.trusted = max(0, parametrization.trusted - 1)
