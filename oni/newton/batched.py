"""Many matrices of one shape in one batched call, each with a gradient and a graph of its own.

A matrix that a loss does not depend on is not part of the graph of that loss: its Z gets no gradient, and code that
follows the graph (``DistributedDataParallel``) does not wait for one. Even so, the backward passes of all matrices are
one batched call. Two nodes lead from each Z to its result. Autograd runs nodes in the reverse order of their creation,
so all the outer nodes, which collect the gradients, run before the first inner node, which pulls back all collected
gradients and returns its own. Another order would only cost time: an inner node also receives its gradient itself.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from oni.newton.bounding import Bounded
from oni.newton.evaluation import Evaluation, Spec, evaluate, pullback
from oni.newton.iteration import Trace
from oni.newton.matrix import flatten_batch, split_groups
from oni.newton.orthogonalize import check_options, disable_autocast
from oni.newton.precision import planned_before
from oni.torch_internals import get_backward_id, get_version, keeps_graph

__all__ = ["orthogonalize_each"]


def orthogonalize_each(
    Zs: Sequence[Tensor],
    steps: int = 5,
    *,
    center: bool | str = "auto",
    bound: str = "compact",
    groups: int = 1,
    schedule: str = "newton",
    lasting: bool = False,
) -> tuple[Tensor, ...]:
    """``orthogonalize`` of each, all of one shape, dtype and device, at the cost of one batched call.

    Args:
        Zs: the proxies.
        steps, center, bound, groups, schedule: as in :func:`oni.orthogonalize`.
        lasting: whether the graph may be differentiated any number of times without ``retain_graph``, so that the
            results can serve several forward and backward passes. What the backward pass needs then stays until the
            results are dropped. Otherwise it is freed by the backward pass that used it, as everywhere in torch.
    """
    first = Zs[0]
    steps, center, groups = check_options(first.shape, steps, center, bound, groups, schedule)
    dtype, specs = planned_before(schedule, steps, first.dtype, first.device.type, bound, center)
    batch = _Batch(Zs, specs, dtype, groups, lasting)
    if not (torch.is_grad_enabled() and any(Z.requires_grad for Z in Zs)):
        return tuple(batch.results)
    inner = [_Inner.apply(Z, batch, index) for index, Z in enumerate(Zs)]
    # Kept there, the results would hold the graph that holds the batch.
    batch.results = []
    outer = tuple(W.view_as(W) for W in inner)
    for index, W in enumerate(outer):
        if W.requires_grad:
            W.register_hook(partial(batch.collect, index))
    return outer


class _Batch:
    """What the graphs of several matrices share: the intermediates, and the gradients of a backward pass under way."""

    def __init__(self, Zs: Sequence[Tensor], specs: list[Spec], dtype: torch.dtype, groups: int, lasting: bool) -> None:
        self.specs, self.dtype, self.groups, self.lasting = specs, dtype, groups, lasting
        with torch.no_grad(), disable_autocast(Zs[0].device.type):
            W, self.chain = self.evaluate(_stack(Zs))
        # .data: results that share memory but no version, so that no write to one looks like a write to all.
        self.results = [result.data for result in _split(W, Zs)]
        self.rows = {index: index for index in range(len(Zs))}
        """Where each matrix stands in the batch of intermediates."""
        self.lock = threading.Lock()
        self.task = -1
        """The backward pass to which the gradients belong."""
        self.collected: dict[int, Tensor] = {}
        """Gradients with respect to the Ws that have not been pulled back."""
        self.pulled_back: dict[int, Tensor] = {}
        """Gradients with respect to the Zs that have not been returned."""

    def evaluate(self, Z: Tensor) -> tuple[Tensor, list[Evaluation]]:
        """The result and all intermediates, in plain differentiable operations."""
        A = self.flatten(Z)
        chain = []
        for spec in self.specs:
            evaluation = evaluate(A, spec)
            A = evaluation.W
            # The results are no part of what the backward pass needs, and holding them here would be a cycle.
            chain.append(evaluation._replace(W=evaluation.scale))
        return A, chain

    def flatten(self, Z: Tensor) -> Tensor:
        return flatten_batch(split_groups(Z.to(self.dtype), self.groups))

    def pull_back(self, G: Tensor, chain: list[Evaluation]) -> Tensor:
        # One gradient of several has no batch dimension of its own.
        G = self.flatten(G).reshape(chain[-1].A.shape)
        for spec, evaluation in zip(reversed(self.specs), reversed(chain), strict=True):
            G = pullback(G, evaluation, spec)
        return G

    def enter(self, task: int) -> None:
        """Forget what an earlier backward pass left behind."""
        if task != self.task:
            self.task, self.collected, self.pulled_back = task, {}, {}

    def collect(self, index: int, G: Tensor | None) -> None:
        """Keep a gradient until the first inner node runs. With ``create_graph`` each matrix goes its own way."""
        # None where another node has found that there is no gradient after all.
        if G is not None and not torch.is_grad_enabled():
            with self.lock:
                self.enter(get_backward_id())
                self.collected[index] = G

    def gradient(self, index: int, G: Tensor) -> Tensor:
        """The gradient with respect to one Z; that of all collected ones is computed with the first."""
        with self.lock:
            self.enter(get_backward_id())
            if index not in self.pulled_back:
                self.collected[index] = G
                self.pull_back_collected()
            return self.pulled_back.pop(index)

    def pull_back_collected(self) -> None:
        # In the order of the batch, of which nothing then has to be copied where all have arrived.
        indices = sorted(self.collected)
        Gs = [self.collected.pop(index) for index in indices]
        with disable_autocast(Gs[0].device.type):
            gradients = self.pull_back(_stack(Gs), self.part(indices))
        self.pulled_back.update(zip(indices, _split(gradients, Gs), strict=True))
        if not (self.lasting or keeps_graph()):
            left = [index for index in self.rows if index not in indices]
            self.chain = self.part(left) if left else []
            self.rows = {index: row for row, index in enumerate(left)}

    def part(self, indices: list[int]) -> list[Evaluation]:
        """The intermediates of these matrices, in this order."""
        rows = [self.rows[index] for index in indices]
        count = len(self.rows)
        return self.chain if rows == list(range(count)) else [_part(piece, rows, count) for piece in self.chain]


class _Inner(torch.autograd.Function):
    """From Z to its result in the batch."""

    @staticmethod
    def forward(ctx: Any, Z: Tensor, batch: _Batch, index: int) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.batch, ctx.index = batch, index
        if batch.lasting:
            # save_for_backward would be emptied by the first backward pass, so check the version by hand.
            ctx.Z, ctx.version = Z, get_version(Z)
        else:
            ctx.save_for_backward(Z)
        return batch.results[index]

    @staticmethod
    def backward(ctx: Any, G: Tensor | None) -> tuple[Tensor | None, None, None]:
        if G is None:
            return None, None, None
        batch: _Batch = ctx.batch
        if batch.lasting and get_version(ctx.Z) != ctx.version:
            raise RuntimeError(
                "one of the proxies needed for gradient computation has been modified by an inplace operation (an "
                "optimizer step, load_state_dict): call backward() first, or run the model again afterwards"
            )
        Z = ctx.Z if batch.lasting else ctx.saved_tensors[0]
        if torch.is_grad_enabled():
            # create_graph: saved intermediates are constants to autograd, so compute them again from Z.
            with disable_autocast(Z.device.type):
                gradient = batch.pull_back(G, batch.evaluate(Z)[1])
            return gradient.reshape(Z.shape).to(Z.dtype), None, None
        return batch.gradient(ctx.index, G), None, None


def _stack(Zs: Sequence[Tensor]) -> Tensor:
    return Zs[0] if len(Zs) == 1 else torch.stack(tuple(Zs))


def _split(W: Tensor, templates: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Split a batch into tensors of the templates' shape and dtype."""
    W = W.to(templates[0].dtype).reshape(len(templates), *templates[0].shape)
    return tuple(W.unbind())


def _part(evaluation: Evaluation, rows: list[int], count: int) -> Evaluation:
    """The evaluation of some of the matrices of a batch."""

    def part(tensor: Tensor | None) -> Tensor | None:
        if tensor is None:
            return None
        # Not tensor[rows]: a list of indices would be copied to the device, and waited for.
        single = tensor.unflatten(0, (count, -1)).unbind()
        return torch.cat([single[row] for row in rows])

    at = Bounded._make(map(part, evaluation.at))
    traces = [Trace._make(map(part, trace)) for trace in evaluation.traces]
    return Evaluation._make((part(evaluation.W), part(evaluation.scale), part(evaluation.A), at, traces))
