r"""One run of bounding and iteration on a batch of matrices: its value, its gradient, its directional derivative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from oni.newton.bounding import TRACE_POWER, Bounded, bounded, centred, power_of_two_scale, slope_of_log_bound, trace
from oni.newton.iteration import Trace, inverse_root, inverse_root_tangent, twice_symmetric_part
from oni.newton.matrix import is_tall
from oni.newton.product import accumulated, product
from oni.newton.stage import Stage

__all__ = ["Evaluation", "Spec", "evaluate", "packed", "pullback", "pushforward", "unpacked"]


class Spec(NamedTuple):
    """What to do with a batch of matrices, in plain values."""

    plan: list[Stage]
    bound: str | None
    center: bool
    largest: float = torch.finfo(torch.float32).max
    """The largest number in the dtype of the gradient, which may be narrower than the working dtype."""


class Evaluation(NamedTuple):
    """Everything that the forward pass computes and the backward pass needs."""

    W: Tensor
    scale: Tensor
    A: Tensor
    at: Bounded
    traces: list[Trace]


def evaluate(Z: Tensor, spec: Spec) -> Evaluation:
    """The forward pass in plain differentiable operations; Z is (n, d) or (batch, n, d)."""
    tall = is_tall(*Z.shape[-2:])
    scale = power_of_two_scale(Z.detach()) if spec.bound else torch.ones_like(Z[..., :1, :1])
    A = scale * Z
    if spec.center:
        A = centred(A)
    at = bounded(product(A.mT, A) if tall else product(A, A.mT), spec.bound)
    if not spec.plan:
        return Evaluation(at.root * A, scale, A, at, [])
    traces = inverse_root(at.S, spec.plan, at.S2)
    factor = at.root * traces[-1].B
    return Evaluation(product(A, factor) if tall else product(factor, A), scale, A, at, traces)


def pullback(G: Tensor, of: Evaluation, spec: Spec) -> Tensor:
    r"""The gradient with respect to Z, given the gradient G with respect to W.

    With :math:`E = \operatorname{sym}(G A^\top)`, D = dB[E] and :math:`\delta f / f = \langle N, \delta M \rangle / f`,

    .. math:: dA = f^{-1/2} B G + f^{-3/2} (2 D - \kappa N) A, \qquad
              \kappa = \langle E, B \rangle + 2 \langle D, S \rangle,

    written for wide A; a tall one has the same on its other side.
    """
    _, scale, A, at, traces = of
    tall = is_tall(*A.shape[-2:])
    # Twice E, so twice D: the recurrence is linear, and the factors are cheapest applied to the small result.
    E2 = twice_symmetric_part(product(A.mT, G) if tall else product(G, A.mT))
    N = slope_of_log_bound(at, spec.bound)
    # A proxy so small that its gradient would overflow gets it shortened: its direction, without infinity and NaN.
    # 2^16 is room for slopes, sums, and the size of G itself.
    largest = spec.largest / 65536 / at.root.clamp_min(1)
    factor = scale * at.root
    # Not torch.minimum, whose forward derivative adds and subtracts that of the larger one.
    factor = torch.where(factor > largest, largest, factor)
    if traces:
        B = traces[-1].B
        inside = D2 = inverse_root_tangent(E2, spec.plan, traces)
        if N is not None:
            kappa = 0.5 * inner(E2, B) + inner(D2, at.S)
            inside = D2 - kappa * N if torch.is_grad_enabled() else D2.addcmul_(N, kappa, value=-1)
        outside = factor * B
        dZ = product(G, outside) if tall else product(outside, G)
    else:
        assert N is not None, "without steps there is always a bound"
        inside = -0.5 * trace(E2) * N
        dZ = factor * G
    # One after the other: the cube of the root may be out of range.
    if torch.is_grad_enabled():
        inside = at.root * inside * (at.root * factor)
    else:
        inside.mul_(at.root).mul_(at.root * factor)
    dZ = accumulated(dZ, A, inside) if tall else accumulated(dZ, inside, A)
    if not spec.center:
        return dZ
    mean = dZ.mean(-1, keepdim=True)
    return dZ - mean if torch.is_grad_enabled() else dZ.sub_(mean)


def pushforward(dZ: Tensor, of: Evaluation, spec: Spec) -> Tensor:
    """The directional derivative of W in the direction dZ."""
    W, scale, A, at, traces = of
    tall = is_tall(*A.shape[-2:])
    dA = scale * dZ
    if spec.center:
        dA = dA - dA.mean(-1, keepdim=True)
    dM = at.root**2 * twice_symmetric_part(product(A.mT, dA) if tall else product(dA, A.mT))
    N = slope_of_log_bound(at, spec.bound)
    dlogf = torch.zeros_like(at.root) if N is None else inner(N, dM)
    if not traces:
        return at.root * dA - 0.5 * dlogf * W
    dB = inverse_root_tangent(dM - dlogf * at.S, spec.plan, traces)
    B = traces[-1].B
    moved = accumulated(product(dA, B), A, dB) if tall else accumulated(product(B, dA), dB, A)
    return at.root * moved - 0.5 * dlogf * W


def inner(X: Tensor, Y: Tensor) -> Tensor:
    """The inner product of two matrices, shape (..., 1, 1)."""
    if X.dim() == 2:
        return torch.dot(X.reshape(-1), Y.reshape(-1)).reshape(1, 1)
    return (X * Y).sum((-2, -1), keepdim=True)


def packed(of: Evaluation) -> tuple[Tensor, ...]:
    """The evaluation as distinct tensors, W first."""
    tensors = [of.W, of.scale, of.A, of.at.S, of.at.root]
    tensors += [tensor for tensor in (of.at.S2, of.at.S4, of.at.spread) if tensor is not None]
    for index, (P, X, Q, R, B) in enumerate(of.traces):
        # The first stage's P is S and its B is Q.
        own = (P, X, Q, R, B) if index else (X, Q, R)
        tensors += [tensor for tensor in own if tensor is not None]
    return tuple(tensors)


def unpacked(tensors: Sequence[Tensor], spec: Spec) -> Evaluation:
    """The inverse of ``packed``."""
    rest = iter(tensors)
    W, scale, A, S, root = (next(rest) for _ in range(5))
    S2 = next(rest) if spec.bound in ("trace2", "tight") else None
    S4 = next(rest) if spec.bound == "tight" else None
    spread = next(rest) if spec.bound in TRACE_POWER else None
    traces: list[Trace] = []
    for index, stage in enumerate(spec.plan):
        P = next(rest) if index else S
        X = next(rest) if stage.l else None
        Q = next(rest)
        R = next(rest) if index < len(spec.plan) - 1 else None
        traces.append(Trace(P, X, Q, R, next(rest) if index else Q))
    return Evaluation(W, scale, A, Bounded(S, root, S2, S4, spread), traces)
