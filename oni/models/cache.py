"""The only file that holds weights: each is computed once per forward pass, or once per ``oni.cached`` scope.

A converted model has two forward hooks, which open and close a scope. Inside it, the first layer that needs its weight
has the weights of all layers of the same shape computed in one batched call. The scope ends with the outermost forward
pass, and everything it holds with it. ``oni.cached`` is a scope that lasts longer.

torch does not call hooks after a KeyboardInterrupt, and other threads may use the model meanwhile. So a scope counts
only while the very call that opened it is on the stack of the thread that asks.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from oni.newton.batched import orthogonalize_each
from oni.nn.options import Options
from oni.nn.parametrization import READY, Orthogonal

__all__ = ["cached", "find_orthogonal", "hold_during_forward", "stop_holding"]

M = TypeVar("M", bound=nn.Module)


@contextmanager
def cached(model: M) -> Iterator[M]:
    """Within this scope, compute every orthogonal weight of a model once, those of equal shape in one batched call.

    However many forward and ``backward()`` calls run inside, gradients equal those without it. A weight is computed
    again when its proxy has changed: by an optimizer, ``load_state_dict``, ``.to()``, whatever torch keeps count of.
    A write through ``.data`` or numpy inside the scope is **not** seen. Outside it, a weight lives for one forward pass
    and is never stale.

    Use it around several forward passes with the same weights: both losses of a GAN's discriminator, gradient
    accumulation, a recurrent cell in a loop, an evaluation. For deployment :func:`oni.bake` the model instead.

    >>> from oni.nn import Linear
    >>> layer = Linear(8, 4)
    >>> with cached(layer), torch.no_grad():
    ...     outputs = [layer(x) for x in torch.randn(3, 8)]
    """
    scope = Scope(model, lasting=True)
    for parametrization, _ in scope.layers():
        parametrization.cache = CACHE
    # Fused optimizers write to parameters without raising their version.
    handle = register_optimizer_step_post_hook(scope.forget_updated)
    with CACHE.lock:
        CACHE.scopes = (*CACHE.scopes, scope)
    try:
        yield model
    finally:
        handle.remove()
        with CACHE.lock:
            CACHE.scopes = tuple(other for other in CACHE.scopes if other is not scope)
            scope.withdraw(scope.ready)


class Held(NamedTuple):
    """A weight, and what it takes to see that it is still right."""

    options: Options
    """With which it was computed."""
    Z: Tensor
    version: int
    memory: Tensor
    """Another tensor on the memory of Z, so that this can't be given to anything else."""
    W: Tensor
    """The orthogonalised matrices, without scale."""
    weight: Tensor | None
    """The weight itself, where it is a constant."""


class Scope:
    """The weights held for the layers of a model."""

    def __init__(self, model: nn.Module, *, lasting: bool, frame: FrameType | None = None) -> None:
        self.model, self.lasting, self.frame = model, lasting, frame
        self.saving_hook = get_saving_hook()
        self.weights: dict[int, Held] = {}
        self.members: dict[int, tuple[Orthogonal, ParametrizationList]] | None = None
        self.ready: set[int] = set()
        """Parametrizations whose weights can be had without asking them."""

    def layers(self) -> list[tuple[Orthogonal, ParametrizationList]]:
        """Every orthogonal parametrization of the model, with what holds its proxy; looked up once."""
        if self.members is None:
            self.members = {
                id(parametrization): (parametrization, proxy) for parametrization, proxy in find_orthogonal(self.model)
            }
        return list(self.members.values())

    def covers(self, parametrization: Orthogonal) -> bool:
        self.layers()
        return id(parametrization) in self.members  # type: ignore[operator]

    def find(self, parametrization: Orthogonal, Z: Tensor) -> Held:
        """The weight of one layer; if it must be computed, those of the same shape are computed with it."""
        held = self.weights.get(id(parametrization))
        return held if held is not None and is_valid(held, parametrization, Z) else self.compute(parametrization, Z)

    def forget_updated(self, optimizer: Optimizer, *_: Any) -> None:
        """Forget the weights whose proxies an optimizer has just updated."""
        updated = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        with CACHE.lock:
            self.withdraw({key for key, held in self.weights.items() if id(held.Z) in updated})
        self.weights = {key: held for key, held in self.weights.items() if id(held.Z) not in updated}

    def offer(self, parametrization: Orthogonal, held: Held) -> None:
        """Let evaluation have a constant weight straight away, if nothing but this parametrization makes it."""
        assert self.members is not None
        _, holder = self.members[id(parametrization)]
        if held.weight is None or has_hooks(parametrization, holder):
            return
        with CACHE.lock:
            # Another thread may have closed the scope meanwhile.
            if self in CACHE.scopes:
                READY[id(holder)] = partial(CACHE.find_ready, parametrization, holder, held)
                self.ready.add(id(parametrization))

    def withdraw(self, parametrizations: Set[int]) -> None:
        """Take offers back; under the lock."""
        for key in self.ready & parametrizations:
            READY.pop(id(self.members[key][1]), None)  # type: ignore[index]
        self.ready = self.ready - parametrizations

    def compute(self, parametrization: Orthogonal, Z: Tensor) -> Held:
        """Compute the weight of a layer, and hold it with those of others like it, as many as are worth a batch."""
        batch = [(parametrization, Z)]
        room = batch_size(Z)
        for other, holder in self.layers() if room > 1 else ():
            if len(batch) == room:
                break
            if other is parametrization or other.batch_key != parametrization.batch_key:
                continue
            other_Z = holder._parameters.get("original")
            if other_Z is None or not can_hold(other_Z) or not are_alike(other_Z, Z):
                continue
            held = self.weights.get(id(other))
            if held is None or not is_valid(held, other, other_Z):
                batch.append((other, other_Z))
        Ws: tuple[Tensor, ...]
        if self.saving_hook is not None and not self.lasting:
            # Whatever is saved has to go through that hook, which a batch knows nothing of.
            batch, Ws = batch[:1], (parametrization.unscaled(Z),)
        else:
            matrices = [member.layout.matrices(proxy) for member, proxy in batch]
            Ws = orthogonalize_each(matrices, **parametrization.options.of_orthogonalize(), lasting=self.lasting)
        results = []
        for (member, proxy), W in zip(batch, Ws, strict=True):
            constant = not (W.requires_grad or member.options.learn_scale)
            weight = member.weight_from(W, proxy) if constant else None
            results.append(Held(member.options, proxy, proxy._version, proxy.detach(), W, weight))
            self.weights[id(member)] = results[-1]
            self.offer(member, results[-1])
        # Not looked up again: another thread's optimizer may have had it forgotten meanwhile.
        return results[0]


class WeightCache:
    """Where layers ask for their weights: the open ``oni.cached`` scopes, and the forward passes of each thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.scopes: tuple[Scope, ...] = ()
        self.threads = threading.local()

    def __reduce__(self) -> str:
        # There is one, and copies of a model share it.
        return "CACHE"

    def find_weight(self, parametrization: Orthogonal, Z: Tensor) -> Tensor | None:
        """The weight of a layer, computed now if needed; ``None`` where it can't be held."""
        if not can_hold(Z):
            return None
        scope = next((scope for scope in self.scopes if scope.covers(parametrization)), None)
        if scope is None:
            scope = next((scope for scope in self.running_passes() if scope.covers(parametrization)), None)
        # Under checkpointing what is saved must be the same when the block runs again in the backward pass.
        if scope is None or scope.saving_hook is not get_saving_hook():
            return None
        held = scope.find(parametrization, Z)
        weight = parametrization.weight_from(held.W, Z) if held.weight is None else held.weight
        # A forward pass only reads it; whoever else asks may write to it, and gets a copy.
        shares_memory = held.weight is not None or weight.data_ptr() == held.W.data_ptr()
        return weight.clone() if shares_memory and not self.running_passes() else weight

    def find_ready(self, parametrization: Orthogonal, holder: ParametrizationList, held: Held) -> Tensor | None:
        """A weight that was offered, if it is right for a forward pass that runs now and needs no graph."""
        Z = holder._parameters.get("original")
        if torch.is_grad_enabled() or len(holder._modules) > 1 or Z is None:
            return None
        return held.weight if is_valid(held, parametrization, Z) and self.running_passes() else None

    def find_common_scope(self, parametrizations: Sequence[Orthogonal], own: Scope) -> Scope:
        """The scope in which all these layers will look for their weights; the given one if they have no common one."""
        scopes = (*self.scopes, *self.running_passes())
        return next((scope for scope in scopes if all(map(scope.covers, parametrizations))), own)

    def running_passes(self) -> list[Scope]:
        """The forward passes whose calls are on the stack of this thread; others were interrupted, and are dropped."""
        passes: list[Scope] = getattr(self.threads, "passes", [])
        if not passes:
            return passes
        frame: FrameType | None = sys._getframe(1)
        missing = {id(scope.frame) for scope in passes}
        while frame is not None and missing:
            missing.discard(id(frame))
            frame = frame.f_back
        if missing:
            passes[:] = [scope for scope in passes if id(scope.frame) not in missing]
        return passes

    def start(self, model: nn.Module, frame: FrameType) -> Scope:
        """Open a scope for the forward pass that runs in this frame."""
        if not hasattr(self.threads, "passes"):
            self.threads.passes = []
        scope = Scope(model, lasting=False, frame=frame)
        self.running_passes().append(scope)
        return scope

    def end(self, model: nn.Module) -> None:
        """Close the scope of the innermost forward pass of a model."""
        passes: list[Scope] = getattr(self.threads, "passes", [])
        last = next((index for index in reversed(range(len(passes))) if passes[index].model is model), len(passes))
        del passes[last:]


CACHE = WeightCache()


def can_hold(Z: Tensor) -> bool:
    """Whether a change of Z can be noticed, and a result be kept.

    Not of tensors that stand in for the parameter, and not under ``torch.func``, whose values end with it.
    """
    if torch._C._are_functorch_transforms_active():
        return False
    return type(Z) is nn.Parameter and Z.device.type != "meta" and not Z.is_inference()


def is_valid(held: Held, parametrization: Orthogonal, Z: Tensor) -> bool:
    """Whether a held weight is right for Z now, with a graph if one is wanted."""
    # oni.retune changes the options.
    if held.options is not parametrization.options or held.Z is not Z or held.version != Z._version:
        return False
    # model.to() and .data = ... put other memory behind the same parameter.
    if held.memory.data_ptr() != Z.data_ptr() or held.memory.dtype != Z.dtype:
        return False
    if torch.is_grad_enabled() and held.W.requires_grad != Z.requires_grad:
        return False
    return torch.is_inference_mode_enabled() or not held.W.is_inference()


def are_alike(Z: Tensor, other: Tensor) -> bool:
    return Z.dtype == other.dtype and Z.device == other.device and Z.requires_grad == other.requires_grad


def has_hooks(*modules: nn.Module) -> bool:
    """Whether something wants to know of the calls of a module."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in modules)


def get_saving_hook() -> Any:
    """What torch calls for each tensor that it saves for the backward pass, if anything."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
    return hooks[0] if hooks else None


def find_orthogonal(model: nn.Module) -> Iterator[tuple[Orthogonal, ParametrizationList]]:
    """Every orthogonal parametrization below a module, each once. ``model.modules()`` takes several times as long."""
    seen: set[int] = set()
    waiting: list[nn.Module | None] = [model]
    while waiting:
        module = waiting.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        if isinstance(module, ParametrizationList) and isinstance(module[0], Orthogonal):
            yield module[0], module
        else:
            waiting.extend(reversed(module._modules.values()))


def batch_size(Z: Tensor) -> int:
    """How many weights like this one to compute in one call.

    A batch saves the overhead of calls, which is nothing beside the products of large matrices; on a CPU a batch of
    those only drives each other out of the cache.
    """
    return max(1, (1 << 21) // Z.numel()) if Z.device.type == "cpu" else 1 << 16


class Sharing(Protocol):
    """How ranks share the work: see ``oni/models/share.py``."""

    def prepare(self, model: nn.Module, scope: Scope) -> None:
        """Compute what a forward pass needs, at its start."""


SHARED: WeakKeyDictionary[nn.Module, Sharing] = WeakKeyDictionary()
"""The models whose weights are computed by several ranks; copies of them are not among these."""

HOOKED: WeakSet[nn.Module] = WeakSet()
"""The models with hooks, so that baking the last layer of one, wherever from, removes them."""


def hold_during_forward(model: nn.Module) -> None:
    """Have a model compute each weight once in each of its forward passes."""
    for parametrization, _ in find_orthogonal(model):
        parametrization.cache = CACHE
    HOOKED.add(model)
    if not any(hook is _start for hook in model._forward_pre_hooks.values()):
        model.register_forward_pre_hook(_start)
        model.register_forward_hook(_end, always_call=True)


def stop_holding(model: nn.Module) -> None:
    """Undo ``hold_during_forward`` in all parts of a model, and in the models around it that have no proxies left."""
    for module in model.modules():
        remove_hooks(module)
    for other in list(HOOKED):
        if next(find_orthogonal(other), None) is None:
            remove_hooks(other)


def remove_hooks(module: nn.Module) -> None:
    """Remove the hooks that this package has put on a module, those for saving included."""
    HOOKED.discard(module)
    SHARED.pop(module, None)
    for hooks in (module._forward_pre_hooks, module._forward_hooks, module._state_dict_pre_hooks):
        ours = [key for key, hook in hooks.items() if getattr(hook, "__module__", "").startswith("oni.models.")]
        for key in ours:
            del hooks[key]
            module._forward_hooks_always_called.pop(key, None)


def _start(module: nn.Module, _: Any) -> None:
    if not torch.compiler.is_compiling():
        HOOKED.add(module)  # copies bring their hooks along
        scope = CACHE.start(module, sys._getframe(1))
        if module in SHARED:
            SHARED[module].prepare(module, scope)


def _end(module: nn.Module, _: Any, __: Any) -> None:
    if not torch.compiler.is_compiling():
        CACHE.end(module)
