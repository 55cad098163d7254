"""``share``: under data parallelism, each weight is computed by one rank instead of by all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from oni.models.cache import (
    CACHE,
    SHARED,
    Held,
    Scope,
    batch_size,
    can_hold,
    get_saving_hook,
    hold_during_forward,
    is_valid,
)
from oni.models.roll_call import MOST_WEIGHTS, Place, RankFailed, RollCall
from oni.models.transport import Slot, Transport
from oni.newton.batched import orthogonalize_each
from oni.newton.product_count import count_products
from oni.nn.parametrization import Orthogonal

__all__ = ["share"]

M = TypeVar("M", bound=nn.Module)
TIMEOUT = timedelta(minutes=30)
"""As torch has it for gloo."""


def share(model: M, process_group: dist.ProcessGroup | None = None) -> M:
    """Share the work of orthogonalisation between the ranks that train a model together, in place.

    Without it every rank computes every weight. With it, in each forward pass in training mode with gradients, each
    rank computes its share of them, balanced by counted products, and gets the others; in the backward pass the
    gradients with respect to a weight are added up at its owner, who pulls them back once. As that is linear, the
    gradients which ``DistributedDataParallel`` averages are the same as without it, up to rounding.

    Everything else stays as it is: evaluation, ``torch.no_grad()`` and parts of the model called by themselves compute
    what they need alone, as do parts under activation checkpointing or ``torch.compile``. Between a backward pass and
    the averaging (in ``no_sync``), the ``.grad`` of a proxy is not this rank's own.

    All ranks must run the same training passes in the same order. If a rank fails, the others raise an error that names
    it. ``oni.bake`` ends the sharing; a copy of the model does not share.

    Args:
        model: converted, the same on every rank; before or after it is wrapped in ``DistributedDataParallel``. With
            one process this does nothing.
        process_group: the ranks that share, those of ``DistributedDataParallel`` or a part of them, such as those of
            one machine; all by default. Each of them calls this function.

    Returns:
        The model itself.

    Raises:
        ValueError: if there is nothing to share, or the weights are sharded (``fully_shard``).

    >>> import oni
    >>> model = oni.convert(nn.Sequential(nn.Linear(8, 4)))
    >>> share(model) is model  # one process
    True
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if process_group is not None and not isinstance(process_group, dist.ProcessGroup):
        raise TypeError(
            f"process_group must be what torch.distributed.new_group returns, got {type(process_group).__name__}; "
            "only the ranks of a group call oni.share"
        )
    inner = model
    if isinstance(model, nn.parallel.DistributedDataParallel):
        inner, process_group = model.module, process_group or model.process_group
    members = find_members(inner)
    check_members(members)
    refuse_shards(inner, members)
    if dist.is_available() and dist.is_initialized() and dist.get_world_size(process_group) > 1:
        SHARED[inner] = Sharing(members, dist.get_process_group_ranks(process_group), get_timeout(process_group))
        hold_during_forward(inner)
    return model


class Member(NamedTuple):
    """A weight of the model."""

    name: str
    parametrization: Orthogonal
    holder: ParametrizationList

    @property
    def Z(self) -> Tensor:
        return self.holder.original

    @property
    def cost(self) -> int:
        """Multiplications of its forward and backward pass."""
        options, (*batch, n, d) = self.parametrization.options, self.parametrization.matrix_shape
        products = count_products(options.steps, bound=options.bound, schedule=options.schedule)
        matrices = torch.Size(batch).numel() * options.groups
        return matrices * sum(products.multiply_adds(n // options.groups, d))


def find_members(model: nn.Module) -> list[Member]:
    """Every weight once, by name."""
    members: dict[int, Member] = {}
    for name, module in model.named_modules():
        if isinstance(module, ParametrizationList) and isinstance(module[0], Orthogonal):
            members.setdefault(id(module[0]), Member(name, module[0], module))
    return sorted(members.values(), key=lambda member: member.name)


def check_members(members: Sequence[Member]) -> None:
    if not members:
        raise ValueError("the model has no orthogonal weights to share; oni.convert it first")
    if len(members) > MOST_WEIGHTS:
        raise ValueError(f"the model has {len(members)} orthogonal weights, and at most {MOST_WEIGHTS} can be shared")


def refuse_shards(model: nn.Module, members: Sequence[Member]) -> None:
    """Refuse what ``fully_shard`` was applied to; importing its classes takes seconds."""
    sharded = [member.name for member in members if type(member.Z).__name__ == "DTensor"]
    # Its own parameters are whole by now, for the time of its forward pass.
    if any(cls.__name__ == "FSDPModule" for cls in type(model).__mro__):
        sharded.insert(0, "the model")
    if sharded:
        raise ValueError(
            f"{sharded[0]} is sharded by fully_shard, so that no rank has the whole of it; oni.share is for "
            "DistributedDataParallel"
        )


def assign_owners(costs: Sequence[int], ranks: int) -> list[int]:
    """The rank that computes each weight: the dearest first, each to the rank that has least to do.

    >>> assign_owners([1, 4, 1, 2], 2)
    [1, 0, 1, 1]
    """
    loads, owners = [0] * ranks, [0] * len(costs)
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += costs[index]
    return owners


class Sharing:
    """How the ranks share the weights of one model."""

    def __init__(self, members: Sequence[Member], ranks: list[int], timeout: timedelta) -> None:
        # Groups of our own, so that nothing comes between with what DistributedDataParallel sends meanwhile.
        data = dist.new_group(ranks, timeout, use_local_synchronization=True)
        control = dist.new_group(ranks, timeout, "gloo", use_local_synchronization=True)
        self.transport, self.roll_call = Transport(data, ranks), RollCall(control, timeout)
        self.rank = self.transport.rank
        self.passes = 0
        self.plan(members)
        self.roll_call.meet(Place("share", 0, self.digest))

    def plan(self, members: Sequence[Member]) -> None:
        """Say who computes what."""
        check_members(members)
        self.members = list(members)
        self.owners = assign_owners([member.cost for member in members], len(self.transport.ranks))
        self.keys = list(map(make_key, (member.parametrization for member in members)))
        same = [(member.name, member.Z.dtype, member.parametrization.batch_key) for member in members]
        self.digest = hashlib.sha256(repr(same).encode()).digest()

    def prepare(self, model: nn.Module, scope: Scope) -> None:
        """At the start of a forward pass: compute together what it will need, and hold it."""
        if not (model.training and torch.is_grad_enabled()) or torch._C._are_functorch_transforms_active():
            return
        if set(self.keys) != {make_key(parametrization) for parametrization, _ in scope.layers()}:
            self.plan(find_members(model))
        refuse_shards(model, self.members)
        scope = CACHE.find_common_scope([member.parametrization for member in self.members], scope)
        # Under saved-tensor hooks every layer saves what it needs by itself.
        if scope.saving_hook is not get_saving_hook() or (scope.saving_hook is not None and not scope.lasting):
            return
        missing = [index for index, member in enumerate(self.members) if is_missing(member, scope)]
        if missing:
            for index, W in zip(missing, self.compute(missing, lasting=scope.lasting), strict=True):
                parametrization, Z = self.members[index].parametrization, self.members[index].Z
                held = Held(parametrization.options, Z, Z._version, Z.detach(), W, None)
                scope.weights[id(parametrization)] = held

    def compute(self, indices: Sequence[int], *, lasting: bool) -> Sequence[Tensor]:
        """Compute these weights together, with a graph."""
        self.passes += 1
        own = [index for index in indices if self.owners[index] == self.rank]
        computed: dict[int, Tensor] = {}
        failure: Exception | None = None
        try:
            computed = self.compute_alone(own, lasting=lasting)
        except Exception as error:
            failure = error
        place = Place("forward pass", self.passes, self.digest, as_bits(indices), describe(failure))
        try:
            said = self.roll_call.meet(place)
        except RankFailed as error:
            raise error from failure
        check_equal_sets(self.roll_call, said)
        inputs = [computed[index] if index in computed else self.members[index].Z for index in indices]
        return Exchange.apply(self, self.passes, self.make_slots(indices), *inputs)

    def compute_alone(self, indices: Sequence[int], *, lasting: bool) -> dict[int, Tensor]:
        """The weights of this rank, those of equal shape in one batched call."""
        batches: dict[Any, list[int]] = {}
        for index in indices:
            member = self.members[index]
            batches.setdefault((member.parametrization.batch_key, member.Z.dtype, member.Z.device), []).append(index)
        computed: dict[int, Tensor] = {}
        for batch in batches.values():
            options = self.members[batch[0]].parametrization.options.of_orthogonalize()
            room = batch_size(self.members[batch[0]].Z)
            for start in range(0, len(batch), room):
                part = batch[start : start + room]
                matrices = [
                    self.members[index].parametrization.layout.matrices(self.members[index].Z) for index in part
                ]
                computed |= zip(part, orthogonalize_each(matrices, **options, lasting=lasting), strict=True)
        return computed

    def make_slots(self, indices: Iterable[int]) -> dict[int, Slot]:
        """Who owns each of these weights, and what its matrices are like."""
        slots = {}
        for index in indices:
            shape, Z = self.members[index].parametrization.matrix_shape, self.members[index].Z
            slots[index] = Slot(self.owners[index], shape, Z.dtype, Z.device)
        return slots

    def lost(self, error: RuntimeError) -> RuntimeError:
        """The error to raise when a collective operation fails: one that names the rank, if that can be found out."""
        try:
            self.roll_call.meet(Place("lost a rank", self.passes, self.digest))
        except RankFailed as named:
            return named
        return error


class Exchange(torch.autograd.Function):
    """From this rank's own weights to those of all; the backward pass adds up gradients at the owners.

    One node for all weights: autograd runs it once in each backward pass, after all gradients have arrived. Its other
    inputs are the proxies of the weights that other ranks own, so that these get a gradient, too: zero, as the owner's
    is already the sum of all.
    """

    @staticmethod
    def forward(ctx: Any, sharing: Sharing, number: int, slots: dict[int, Slot], *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.sharing, ctx.number, ctx.slots = sharing, number, slots
        ctx.shapes = [tensor.shape for tensor in inputs]
        try:
            values = sharing.transport.broadcast(dict(zip(slots, inputs, strict=True)), slots)
        except RuntimeError as error:
            raise sharing.lost(error) from None
        return tuple(values[index] for index in slots)

    @staticmethod
    def backward(ctx: Any, *Gs: Tensor | None) -> tuple[Any, ...]:
        sharing: Sharing = ctx.sharing
        gradients = {index: G for index, G in zip(ctx.slots, Gs, strict=True) if G is not None}
        failure = "create_graph=True does not work with oni.share" if torch.is_grad_enabled() else ""
        said = sharing.roll_call.meet(
            Place("backward of pass", ctx.number, sharing.digest, as_bits(gradients), failure)
        )
        used = {
            index: slot
            for index, slot in ctx.slots.items()
            if any(place.weights >> index & 1 for place in said.values())
        }
        try:
            sums = sharing.transport.reduce(gradients, used)
        except RuntimeError as error:
            raise sharing.lost(error) from None

        def gradient(index: int, shape: torch.Size) -> Tensor | None:
            if index in sums:
                return sums[index]
            # None, not zero, for a weight that no rank has used: optimizers then leave its proxy alone.
            slot = ctx.slots[index]
            return torch.zeros(shape, dtype=slot.dtype, device=slot.device) if index in used else None

        return (None, None, None, *map(gradient, ctx.slots, ctx.shapes))


def get_timeout(group: dist.ProcessGroup | None) -> timedelta:
    """How long the operations of a group may wait; torch keeps it to itself."""
    for device in ("cpu", "cuda"):
        with suppress(RuntimeError, AttributeError):
            backend = cast(dist.ProcessGroup, group or dist.group.WORLD)._get_backend(torch.device(device))
            return backend.options._timeout
    return TIMEOUT


def make_key(parametrization: Orthogonal) -> tuple[int, Any]:
    """Changes when a layer is another one, or has other options."""
    return id(parametrization), parametrization.batch_key


def is_missing(member: Member, scope: Scope) -> bool:
    """Whether the scope has to get a weight with a graph."""
    Z = member.Z
    if not Z.requires_grad or not can_hold(Z):
        return False
    held = scope.weights.get(id(member.parametrization))
    return held is None or not is_valid(held, member.parametrization, Z)


def as_bits(indices: Iterable[int]) -> int:
    bits = 0
    for index in indices:
        bits |= 1 << index
    return bits


def describe(error: BaseException | None) -> str:
    return "" if error is None else " ".join(f"{type(error).__name__}: {error}".split())


def check_equal_sets(roll_call: RollCall, said: dict[int, Place]) -> None:
    """Refuse to go on where ranks want different weights: their proxies have changed on some of them only."""
    first = min(said)
    others = [str(rank) for rank, place in sorted(said.items()) if place.weights != said[first].weights]
    if others:
        roll_call.fail(
            f"rank {', '.join(others)} needs other weights than rank {first}: proxies were changed, frozen or held on "
            "some ranks only"
        )
