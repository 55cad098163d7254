"""``share``: under data parallelism, each weight is computed by one rank instead of by all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from oni.models.cache import CACHE, Scope, can_hold, orthogonalize_in_batches
from oni.models.proxied import Member, check_model, find_orthogonal
from oni.models.roll_call import MOST_WEIGHTS, Place, RankFailed, RollCall
from oni.models.transport import Slot, Transport
from oni.newton.product_count import count_products
from oni.nn.parametrization import Orthogonal
from oni.torch_internals import get_saving_hook, get_timeout, is_shard, is_sharded_module

__all__ = ["share"]

M = TypeVar("M", bound=nn.Module)


def share(model: M, process_group: dist.ProcessGroup | None = None) -> M:
    """Share the work of orthogonalisation between the ranks that train a model together, in place.

    Without it every rank computes every weight. With it, in each forward pass in training mode with gradients, each
    rank computes its share of them, balanced by the number of matrix products, and receives the others. In the backward
    pass, the gradients with respect to a weight are summed at its owner, which backpropagates them once. This map is
    linear, so the gradients that ``DistributedDataParallel`` averages are unchanged, up to rounding.

    Everything else works as before: in evaluation, under ``torch.no_grad()``, with activation checkpointing or
    ``torch.compile``, and in parts of the model called separately, each rank computes the weights it needs. Between a
    backward pass and the averaging (in ``no_sync``), the ``.grad`` of a proxy is not this rank's own.

    All ranks must run the same training passes in the same order. If a rank fails, or ends before its part of a pass is
    done, the others raise an error that names it. If it ends later, they stop in the all-reduce of
    ``DistributedDataParallel``, whose message names no rank. ``oni.bake`` ends the sharing; a copy of the model does
    not share.

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
    check_model(model)
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
        CACHE.adopt(inner, Sharing(members, dist.get_process_group_ranks(process_group), get_timeout(process_group)))
    return model


def find_members(model: nn.Module) -> list[Member]:
    """Every orthogonal weight once, sorted by name."""
    members: dict[int, Member] = {}
    for member in find_orthogonal(model):
        members.setdefault(id(member.parametrization), member)
    return sorted(members.values(), key=lambda member: member.title)


def count_multiply_adds(parametrization: Orthogonal) -> int:
    """Those of a weight's forward and backward pass."""
    options, (*batch, n, d) = parametrization.options, parametrization.matrix_shape
    products = count_products(options.steps, bound=options.bound, schedule=options.schedule)
    matrices = torch.Size(batch).numel() * options.groups
    return matrices * sum(products.multiply_adds(n // options.groups, d))


def check_members(members: Sequence[Member]) -> None:
    if not members:
        raise ValueError("the model has no orthogonal weights to share; oni.convert it first")
    if len(members) > MOST_WEIGHTS:
        raise ValueError(f"the model has {len(members)} orthogonal weights, but at most {MOST_WEIGHTS} can be shared")


def refuse_shards(model: nn.Module, members: Sequence[Member]) -> None:
    """Refuse what ``fully_shard`` was applied to."""
    sharded = [member.title for member in members if is_shard(member.Z)]
    # Its own parameters are whole by now, for the time of its forward pass.
    if is_sharded_module(model):
        sharded.insert(0, "the model")
    if sharded:
        raise ValueError(
            f"{sharded[0]} is sharded by fully_shard, so no rank holds all of it; oni.share is for "
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
        costs = [count_multiply_adds(member.parametrization) for member in members]
        self.owners = assign_owners(costs, len(self.transport.ranks))
        self.keys = {make_key(member.parametrization) for member in members}
        same = [(member.title, member.Z.dtype, member.parametrization.batch_key) for member in members]
        self.digest = hashlib.sha256(repr(same).encode()).digest()

    def prepare(self, model: nn.Module, scope: Scope) -> None:
        """At the start of a forward pass: compute together what it will need, and hold it."""
        if not (model.training and torch.is_grad_enabled()):
            return
        if self.keys != {make_key(member.parametrization) for member in scope.members.values()}:
            self.plan(find_members(model))
        refuse_shards(model, self.members)
        scope = CACHE.find_scope({id(member.parametrization) for member in self.members}) or scope
        # Under saved-tensor hooks every layer saves what it needs by itself.
        if scope.saving_hook is not get_saving_hook() or (scope.saving_hook is not None and not scope.lasting):
            return
        missing = [index for index, member in enumerate(self.members) if is_missing(member, scope)]
        if missing:
            for index, W in zip(missing, self.compute(missing, lasting=scope.lasting), strict=True):
                scope.hold(self.members[index].parametrization, self.members[index].Z, W)

    def compute(self, indices: Sequence[int], *, lasting: bool) -> Sequence[Tensor]:
        """Compute these weights together, with a graph."""
        self.passes += 1
        own = {index: self.members[index] for index in indices if self.owners[index] == self.rank}
        inputs = {index: self.members[index].Z for index in indices}
        failure: Exception | None = None
        try:
            pairs = [(member.parametrization, member.Z) for member in own.values()]
            inputs |= zip(own, orthogonalize_in_batches(pairs, lasting=lasting), strict=True)
        except Exception as error:
            failure = error
        place = Place("forward pass", self.passes, self.digest, as_bits(indices), format_error(failure))
        try:
            places = self.roll_call.meet(place)
        except RankFailed as error:
            raise error from failure
        check_equal_sets(self.roll_call, places)
        return Exchange.apply(self, self.passes, self.make_slots(indices), *inputs.values())

    def make_slots(self, indices: Iterable[int]) -> dict[int, Slot]:
        """Who owns each of these weights, and what its matrices are like."""
        slots = {}
        for index in indices:
            shape, Z = self.members[index].parametrization.matrix_shape, self.members[index].Z
            slots[index] = Slot(self.owners[index], shape, Z.dtype, Z.device)
        return slots

    def name_lost_rank(self, error: RuntimeError) -> RuntimeError:
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
            raise sharing.name_lost_rank(error) from None
        return tuple(values[index] for index in slots)

    @staticmethod
    def backward(ctx: Any, *Gs: Tensor | None) -> tuple[Any, ...]:
        sharing: Sharing = ctx.sharing
        gradients = {index: G for index, G in zip(ctx.slots, Gs, strict=True) if G is not None}
        failure = "create_graph=True does not work with oni.share" if torch.is_grad_enabled() else ""
        place = Place("backward of pass", ctx.number, sharing.digest, as_bits(gradients), failure)
        places = sharing.roll_call.meet(place).values()
        used = {index: slot for index, slot in ctx.slots.items() if any(at.weights >> index & 1 for at in places)}
        try:
            sums = sharing.transport.reduce(gradients, used)
        except RuntimeError as error:
            raise sharing.name_lost_rank(error) from None

        def gradient(index: int, shape: torch.Size) -> Tensor | None:
            if index in sums:
                return sums[index]
            # None, not zero, for a weight that no rank has used: optimizers then leave its proxy alone.
            slot = ctx.slots[index]
            return torch.zeros(shape, dtype=slot.dtype, device=slot.device) if index in used else None

        return (None, None, None, *map(gradient, ctx.slots, ctx.shapes))


def make_key(parametrization: Orthogonal) -> tuple[int, Any]:
    """Changes when a layer is another one, or has other options."""
    return id(parametrization), parametrization.batch_key


def is_missing(member: Member, scope: Scope) -> bool:
    """Whether the scope has to get a weight with a graph."""
    Z = member.Z
    return Z.requires_grad and can_hold(Z) and scope.find(member.parametrization, Z) is None


def as_bits(indices: Iterable[int]) -> int:
    bits = 0
    for index in indices:
        bits |= 1 << index
    return bits


def format_error(error: BaseException | None) -> str:
    return "" if error is None else " ".join(f"{type(error).__name__}: {error}".split())


def check_equal_sets(roll_call: RollCall, places: dict[int, Place]) -> None:
    """Refuse to go on where ranks want different weights: their proxies have changed on some of them only."""
    first = min(places)
    others = [str(rank) for rank, place in sorted(places.items()) if place.weights != places[first].weights]
    if others:
        roll_call.fail(
            f"rank {', '.join(others)} needs other weights than rank {first}: proxies were changed, frozen or held on "
            "some ranks only"
        )
