"""The only file that holds weights: each is computed once per forward pass, or once per ``oni.cached`` scope.

A converted model has two forward hooks, which open and close a scope. Inside it, the first layer that needs its weight
has the weights of all layers of the same shape computed in one batched call, and on a CPU the other small ones as well.
The scope ends with the outermost forward pass, and everything it holds with it. ``oni.cached`` is a scope that lasts
longer. :class:`WeightCache` shows who knows what, and for how long.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from functools import cached_property
from types import FrameType
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from oni.models.proxied import Member, check_model, find_orthogonal
from oni.newton.batched import orthogonalize_each
from oni.nn.options import Options
from oni.nn.parametrization import Orthogonal
from oni.torch_internals import (
    find_returned,
    get_caller_frame,
    get_saving_hook,
    get_version,
    has_hooks,
    has_pre_hook,
    has_stand_ins,
    has_transforms,
    remove_hooks,
)

__all__ = ["CACHE", "Scope", "cached", "can_hold", "orthogonalize_in_batches"]

M = TypeVar("M", bound=nn.Module)


@contextmanager
def cached(model: M) -> Iterator[M]:
    """Within this scope, compute every orthogonal weight of a model once, with one batched call per shape.

    However many forward and ``backward()`` calls run inside, gradients equal those without it. A weight is computed
    again when torch records a change of its proxy: by an optimizer, ``load_state_dict``, ``.to()``. A write through
    ``.data`` or numpy inside the scope goes **unnoticed**. Outside it, a weight lives for one forward pass and is never
    stale.

    Use it around several forward passes with the same weights: both losses of a GAN's discriminator, gradient
    accumulation, a recurrent cell in a loop, an evaluation. For deployment :func:`oni.bake` the model instead.

    >>> from oni.nn import Linear
    >>> layer = Linear(8, 4)
    >>> with cached(layer), torch.no_grad():
    ...     outputs = [layer(x) for x in torch.randn(3, 8)]
    """
    check_model(model)
    scope = Scope(model, lasting=True)
    CACHE.open(scope)
    try:
        yield model
    finally:
        CACHE.close(scope)


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

    def is_valid(self, parametrization: Orthogonal, Z: Tensor) -> bool:
        """Whether it is right for Z now, with a graph if one is wanted."""
        # oni.retune changes the options.
        if self.options is not parametrization.options or self.Z is not Z or self.version != get_version(Z):
            return False
        # model.to() and .data = ... put other memory behind the same parameter.
        if self.memory.data_ptr() != Z.data_ptr() or self.memory.dtype != Z.dtype:
            return False
        if torch.is_grad_enabled() and self.W.requires_grad != Z.requires_grad:
            return False
        return torch.is_inference_mode_enabled() or not self.W.is_inference()


class Scope:
    """The weights held for the layers of a model, for one forward pass or, if lasting, for an ``oni.cached`` block."""

    def __init__(self, model: nn.Module, *, lasting: bool, frame: FrameType | None = None) -> None:
        self.model, self.lasting, self.frame = model, lasting, frame
        self.saving_hook = get_saving_hook()
        self.weights: dict[int, Held] = {}
        """By the id of the parametrization; replaced or added to under the lock of the cache, read without it."""

    @cached_property
    def members(self) -> dict[int, Member]:
        """The orthogonal weights of the model by the ids of their parametrizations; looked up once."""
        return {id(member.parametrization): member for member in find_orthogonal(self.model)}

    def find(self, parametrization: Orthogonal, Z: Tensor) -> Held | None:
        """What is held for a layer, if it is right."""
        held = self.weights.get(id(parametrization))
        return held if held is not None and held.is_valid(parametrization, Z) else None

    def compute(self, parametrization: Orthogonal, Z: Tensor) -> Held:
        """Compute the weight of a layer, and hold it with those of others that had better be computed now."""
        if self.saving_hook is not None and not self.lasting:
            # Whatever is saved has to go through that hook, which a batch knows nothing of.
            return self.hold(parametrization, Z, parametrization.unscaled(Z))
        pairs = [(parametrization, Z), *self.find_others(parametrization, Z)]
        Ws = orthogonalize_in_batches(pairs, lasting=self.lasting)
        held, *_ = [self.hold(*pair, W) for pair, W in zip(pairs, Ws, strict=True)]
        # Not looked up again: another thread's optimizer may have had it forgotten meanwhile.
        return held

    def find_others(self, parametrization: Orthogonal, Z: Tensor) -> list[tuple[Orthogonal, Tensor]]:
        """Other layers to compute now, if not held: as many like this one as are worth a batch, and small ones.

        Calls take longer after a convolution has swept the caches of the CPU. If all small weights are computed before
        the first layer, one after the other, that happens once, and once in the backward pass, where they come last.
        """
        others: list[tuple[Orthogonal, Tensor]] = []
        room, kind, small = count_batch(Z) - 1, get_kind(parametrization, Z), is_small(Z)
        for member in self.members.values() if room or small else ():
            other = member.parametrization
            if other is parametrization or other.can_wait or not can_hold(member.Z):
                continue
            if self.find(other, member.Z) is not None:
                continue
            if get_kind(other, member.Z) == kind:
                if room:
                    others.append((other, member.Z))
                    room -= 1
            elif small and is_small(member.Z):
                others.append((other, member.Z))
        return others

    def hold(self, parametrization: Orthogonal, Z: Tensor, W: Tensor) -> Held:
        """Hold what was computed for a layer."""
        constant = not (W.requires_grad or parametrization.options.learn_scale)
        weight = parametrization.weight_from(W, Z) if constant else None
        held = Held(parametrization.options, Z, get_version(Z), Z.detach(), W, weight)
        with CACHE.lock:
            self.weights[id(parametrization)] = held
        return held


class SharedWork(Protocol):
    """How ranks compute the weights of a model together: see ``oni/models/share.py``."""

    def prepare(self, model: nn.Module, scope: Scope) -> None:
        """At the start of a forward pass: compute together what it will need, and hold it."""


class WeightCache:
    """Where layers ask for their weights. There is one, ``CACHE``.

    What it knows, and for how long::

        oni.convert(model)         models: model -> None       until oni.bake, or until nobody has the model
        oni.share(model)           models: model -> Sharing    the same
        a copy's first pass        models: copy -> None        the same

        with oni.cached(model):    + scope, for all threads    until the block ends
          model(x)                   + pass, of this thread    until the call returns
            Sharing.prepare            the ranks fill one of these together, if they share the model
            layer.weight               1. find_ready: a constant that a scope holds
                                       2. find_weight: what the first scope or pass with this layer
                                          holds, or computes and holds now    until its proxy changes
                                       3. computed for this use alone

    A pass holds weights in a scope of its own. torch does not call hooks after a KeyboardInterrupt, and other threads
    may use the model meanwhile: a pass counts only while the very call that opened it is on the stack of the thread
    that asks.
    """

    def __init__(self) -> None:
        # The garbage collector may close a forgotten scope at any moment, in a thread that has the lock.
        self.lock = threading.RLock()
        """Held where something changes that all threads see: models, scopes, and what a scope holds."""
        self.models: WeakKeyDictionary[nn.Module, SharedWork | None] = WeakKeyDictionary()
        """Those with hooks, and how ranks share the work of a model, if they do."""
        self.scopes: tuple[Scope, ...] = ()
        """Of the ``oni.cached`` blocks that are open."""
        self.threads = threading.local()
        """The ``passes`` of each thread, the outermost first."""

    def __reduce__(self) -> str:
        # Copies of a model share it.
        return "CACHE"

    # Models

    def adopt(self, model: nn.Module, sharing: SharedWork | None = None) -> None:
        """Have a model compute each weight once in each of its forward passes, together with other ranks if given."""
        self.connect(model)
        with self.lock:
            self.models[model] = sharing or self.models.get(model)
        if not has_pre_hook(model, _start):
            model.register_forward_pre_hook(_start)
            model.register_forward_hook(_end, always_call=True)

    def release(self, model: nn.Module) -> None:
        """Undo ``adopt`` in all parts of a model, and in the models around it that have no proxies left."""
        for module in model.modules():
            self.forget_model(module)
        with self.lock:
            others = list(self.models)
        for other in others:
            if next(find_orthogonal(other), None) is None:
                self.forget_model(other)

    def forget_model(self, model: nn.Module) -> None:
        """Remove the hooks that this package has put on a module, those for saving included."""
        with self.lock:
            self.models.pop(model, None)
        remove_hooks(model, lambda hook: getattr(hook, "__module__", "").startswith("oni.models."))

    def connect(self, model: nn.Module) -> None:
        """Have the layers of a model ask here."""
        for member in find_orthogonal(model):
            member.parametrization.cache = self

    # Scopes

    def open(self, scope: Scope) -> None:
        """Start an ``oni.cached`` block."""
        self.connect(scope.model)
        with self.lock:
            self.scopes = (*self.scopes, scope)

    def close(self, scope: Scope) -> None:
        """End it."""
        with self.lock:
            self.scopes = tuple(other for other in self.scopes if other is not scope)

    def forget_updated(self, optimizer: Optimizer, *_: Any) -> None:
        """Forget the weights whose proxies an optimizer has just updated: a fused one raises no version."""
        if not self.scopes:
            return
        updated = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        with self.lock:
            for scope in self.scopes:
                scope.weights = {key: held for key, held in scope.weights.items() if id(held.Z) not in updated}

    # Passes

    def start_pass(self, model: nn.Module, frame: FrameType) -> None:
        """Open a scope for the forward pass that runs in this frame."""
        if not hasattr(self.threads, "passes"):
            self.threads.passes = []
        scope = Scope(model, lasting=False, frame=frame)
        self.running_passes().append(scope)
        if model not in self.models:  # a copy, which has brought its hooks along
            with self.lock:
                self.models[model] = None
        sharing = self.models.get(model)
        if sharing is not None:
            sharing.prepare(model, scope)

    def end_pass(self, model: nn.Module) -> None:
        """Close the scope of the innermost forward pass of a model."""
        passes: list[Scope] = getattr(self.threads, "passes", [])
        last = next((index for index in reversed(range(len(passes))) if passes[index].model is model), len(passes))
        del passes[last:]

    def running_passes(self) -> list[Scope]:
        """The forward passes whose calls are on the stack of this thread; others were interrupted, and are dropped."""
        passes: list[Scope] = getattr(self.threads, "passes", [])
        returned = find_returned([scope.frame for scope in passes]) if passes else ()
        if returned:
            passes[:] = [scope for scope in passes if id(scope.frame) not in returned]
        return passes

    # Weights

    def find_ready(self, parametrization: Orthogonal, holder: ParametrizationList) -> Tensor | None:
        """A constant weight that is held, for a forward pass that runs now and needs no graph.

        Only if nothing else has a say in it: no parametrization on top, no hook.
        """
        if torch.is_grad_enabled():
            return None
        for scope in self.scopes:
            held = scope.weights.get(id(parametrization))
            if held is not None:
                break
        else:
            return None
        if held.weight is None or len(holder._modules) > 1 or has_stand_ins():
            return None
        if has_hooks(parametrization) or has_hooks(holder):
            return None
        Z = holder._parameters.get("original")
        valid = Z is not None and held.is_valid(parametrization, Z) and self.running_passes()
        return held.weight if valid else None

    def find_weight(self, parametrization: Orthogonal, Z: Tensor) -> Tensor | None:
        """The weight of a layer, computed now if needed; ``None`` where it can't be held."""
        if not can_hold(Z):
            return None
        scope = self.find_scope({id(parametrization)})
        if scope is None:
            return None
        # Under checkpointing what is saved must be the same when the block runs again in the backward pass.
        parametrization.can_wait = scope.saving_hook is not get_saving_hook()
        if parametrization.can_wait:
            return None
        held = scope.find(parametrization, Z) or scope.compute(parametrization, Z)
        weight = parametrization.weight_from(held.W, Z) if held.weight is None else held.weight
        # A forward pass only reads it; whoever else asks may write to it, and gets a copy.
        shares_memory = held.weight is not None or weight.data_ptr() == held.W.data_ptr()
        return weight.clone() if shares_memory and not self.running_passes() else weight

    def find_scope(self, parametrizations: Set[int]) -> Scope | None:
        """The scope in which all these layers, named by the ids of their parametrizations, look for their weights."""
        return find_covering(self.scopes, parametrizations) or find_covering(self.running_passes(), parametrizations)


CACHE = WeightCache()
# Once and for all: torch goes through its hooks while optimizers of other threads step, and allows no change meanwhile.
register_optimizer_step_post_hook(CACHE.forget_updated)


def _start(module: nn.Module, _: Any) -> None:
    if not torch.compiler.is_compiling():
        CACHE.start_pass(module, get_caller_frame())


def _end(module: nn.Module, _: Any, __: Any) -> None:
    if not torch.compiler.is_compiling():
        CACHE.end_pass(module)


def find_covering(scopes: Sequence[Scope], parametrizations: Set[int]) -> Scope | None:
    return next((scope for scope in scopes if parametrizations <= scope.members.keys()), None)


def can_hold(Z: Tensor) -> bool:
    """Whether a change of Z can be noticed, and a result be kept.

    Not of tensors that stand in for the parameter, nor where results end with a transform or belong to a trace.
    """
    if has_transforms() or has_stand_ins():
        return False
    return type(Z) is nn.Parameter and Z.device.type != "meta" and not Z.is_inference()


def orthogonalize_in_batches(pairs: Sequence[tuple[Orthogonal, Tensor]], *, lasting: bool) -> list[Tensor]:
    """The matrices of each parametrization for its proxy, without scale; those of one kind are computed together."""
    kinds: dict[Any, list[int]] = {}
    for index, (parametrization, Z) in enumerate(pairs):
        kinds.setdefault(get_kind(parametrization, Z), []).append(index)
    Ws: dict[int, Tensor] = {}
    for indices in kinds.values():
        parametrization, Z = pairs[indices[0]]
        options, room = parametrization.options.of_orthogonalize(), count_batch(Z)
        for start in range(0, len(indices), room):
            batch = indices[start : start + room]
            matrices = [pairs[index][0].layout.matrices(pairs[index][1]) for index in batch]
            Ws |= zip(batch, orthogonalize_each(matrices, **options, lasting=lasting), strict=True)
    return [Ws[index] for index in range(len(pairs))]


def get_kind(parametrization: Orthogonal, Z: Tensor) -> tuple[Any, ...]:
    """Equal for what can be computed in one batch."""
    return parametrization.batch_key, Z.dtype, Z.device, Z.requires_grad


def count_batch(Z: Tensor) -> int:
    """How many weights like this one to compute in one call.

    A batch saves the overhead of calls, which is nothing beside the products of large matrices; on a CPU a batch of
    those only drives each other out of the cache.
    """
    return max(1, (1 << 21) // Z.numel()) if Z.device.type == "cpu" else 1 << 16


def is_small(Z: Tensor) -> bool:
    """Whether the overhead of calls takes more time than the products: on a CPU, 128 x 1024 and below."""
    return Z.device.type == "cpu" and Z.numel() <= 1 << 17
