"""Many matrices of one shape in one batched call, each with a gradient of its own, in a graph that lasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from oni.newton.bounding import Bounded
from oni.newton.evaluation import Evaluation, Spec, evaluate, pullback
from oni.newton.iteration import Trace
from oni.newton.matrix import flat_batch, grouped
from oni.newton.orthogonalize import checked_options, full_precision
from oni.newton.precision import planned_before

__all__ = ["orthogonalize_each"]


def orthogonalize_each(
    Zs: Sequence[Tensor],
    steps: int = 5,
    *,
    center: bool | str = "auto",
    bound: str = "compact",
    groups: int = 1,
    schedule: str = "newton",
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """``orthogonalize`` of each, all of one shape, dtype and device, at the cost of one batched call.

    Unlike a graph of ``orthogonalize``, this one may be differentiated any number of times without ``retain_graph``:
    what the backward pass needs stays until the results are dropped. So the results may serve several forward and
    backward passes. One that a loss does not depend on gives its Z no gradient, not a zero one.

    Returns:
        The Ws, and copies of the Zs as they were then.
    """
    first = Zs[0]
    steps, center, groups = checked_options(first.shape, steps, center, bound, groups, schedule)
    dtype, specs = planned_before(schedule, steps, first.dtype, first.device.type, bound, center)
    *Ws, copies = _OrthogonalizeEach.apply(specs, dtype, groups, *Zs)
    return tuple(Ws), copies.unbind()


class _OrthogonalizeEach(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, specs: list[Spec], dtype: torch.dtype, groups: int, *Zs: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.how = specs, dtype, groups
        # Not save_for_backward, which the first backward() would empty.
        ctx.Zs = Zs
        copies = torch.stack(Zs)
        ctx.mark_non_differentiable(copies)
        with full_precision(Zs[0].device.type):
            W, chain = _forward(copies if len(Zs) > 1 else copies[0], specs, dtype, groups)
        # An output kept here would be a reference cycle; the backward pass needs the Ws no more.
        ctx.chain = [of._replace(W=of.scale) for of in chain]
        return *_split(W, Zs), copies

    @staticmethod
    def backward(ctx: Any, *Gs: Tensor | None) -> tuple[Tensor | None, ...]:
        specs, dtype, groups = ctx.how
        *Gs, _ = Gs  # type: ignore[assignment]
        wanted = [i for i, G in enumerate(Gs) if G is not None]
        gradients: list[Tensor | None] = [None] * len(Gs)
        if wanted:
            given = [G for G in Gs if G is not None]
            with full_precision(given[0].device.type):
                if torch.is_grad_enabled():
                    chain = _forward(_stack([ctx.Zs[i] for i in wanted]), specs, dtype, groups)[1]
                else:
                    chain = ctx.chain if len(wanted) == len(Gs) else [_part(of, wanted, len(Gs)) for of in ctx.chain]
                G = flat_batch(grouped(_stack(given).to(dtype), groups))
                for spec, of in zip(reversed(specs), reversed(chain), strict=True):
                    G = pullback(G, of, spec)
            for i, gradient in zip(wanted, _split(G, given), strict=True):
                gradients[i] = gradient
        return (None, None, None, *gradients)


def _stack(Zs: Sequence[Tensor]) -> Tensor:
    return Zs[0] if len(Zs) == 1 else torch.stack(tuple(Zs))


def _split(W: Tensor, like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    W = W.to(like[0].dtype).reshape(len(like), *like[0].shape)
    return tuple(W.unbind())


def _forward(Z: Tensor, specs: list[Spec], dtype: torch.dtype, groups: int) -> tuple[Tensor, list[Evaluation]]:
    A = flat_batch(grouped(Z.to(dtype), groups))
    chain = []
    for spec in specs:
        of = evaluate(A, spec)
        A = of.W
        chain.append(of)
    return A, chain


def _part(of: Evaluation, wanted: list[int], count: int) -> Evaluation:
    """The evaluation of some of the matrices of a batch."""

    def part(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.unflatten(0, (count, -1))[wanted].flatten(0, 1)

    at = Bounded._make(map(part, of.at))
    return Evaluation._make(
        (part(of.W), part(of.scale), part(of.A), at, [Trace._make(map(part, trace)) for trace in of.traces])
    )
