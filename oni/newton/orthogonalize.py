"""``orthogonalize``: the one public function, and how autograd sees it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from oni.newton.bounding import BOUNDS
from oni.newton.evaluation import Spec, evaluate, packed, pullback, pushforward, unpacked
from oni.newton.matrix import check_groups, flatten_batch, split_groups
from oni.newton.precision import planned, planned_before
from oni.newton.schedule import checked_steps, get_schedule
from oni.torch_internals import has_tangents, has_transforms

__all__ = ["check_options", "disable_autocast", "orthogonalize"]


def orthogonalize(
    Z: Tensor,
    steps: int = 5,
    *,
    center: bool | str = "auto",
    bound: str = "compact",
    groups: int = 1,
    schedule: str = "newton",
) -> Tensor:
    r"""Orthogonalise the rows of a matrix (the columns, if it is tall) to the degree set by ``steps``.

    With the thin singular value decomposition :math:`Z_c = U \operatorname{diag}(\sigma) R^\top` of the (centred)
    matrix and a bound :math:`\sqrt f \ge \sigma_{\max}`,

    .. math:: W = U \operatorname{diag}\bigl(\varphi_T(\sigma / \sqrt f)\bigr) R^\top, \qquad
              \varphi_{t+1} = \tfrac32 \varphi_t - \tfrac12 \varphi_t^3, \quad \varphi_0(s) = s,

    evaluated by Newton's iteration on the Gram matrix of the short side, without any decomposition. Singular
    vectors stay; singular values move towards 1 from below, so :math:`\|W\|_2 \le 1` for every ``steps``, up to
    rounding: typically about :math:`\sqrt n` epsilons, and below :math:`(n + d) / s^2` in all we tried, where s is the
    smallest initial value that the steps take to 0.999: 0.34 for 5 Newton steps, 0.11 for 8. The Gram matrix contains
    squares, so rounding moves a value that started at s by this much, and sums of equal numbers are all rounded to the
    same side.

    Args:
        Z: the proxy, ``(n, d)`` or a batch ``(..., n, d)``; float16, bfloat16, float32 or float64. Half precision and
            autocast regions work in float32 inside.
        steps: the number T of Newton steps; 0 means only centring and bounding. 5 is the paper's usual choice, 2 for
            residual networks and GANs.
        center: subtract each row's mean first. ``"auto"`` does so if it costs no rank (n < d), ``True`` always, as in
            the paper's algorithm, ``False`` never. With n >= d a centred matrix can't be fully orthogonal.
        bound: what to divide by. ``"compact"`` is the paper's :math:`\|Z_c Z_c^\top\|_F^{1/2}`, ``"frobenius"`` its
            simpler :math:`\|Z_c\|_F`. Three go beyond the paper. ``"trace"`` is the sharpest bound that follows from
            trace and Frobenius norm of the Gram matrix, at the cost of ``"compact"``, and exact if all singular values
            are equal (:mod:`oni.newton.bounding`). ``"trace2"`` is the same for its square, at the cost of one more
            product of the short side (backward). ``"tight"``, :math:`\|(Z_c Z_c^\top)^4\|_F^{1/8}`, starts a wide
            Gaussian Z even closer to 1, for three more products (one forward, two backward).
        groups: split the n rows into this many equal consecutive groups, and orthogonalise each separately.
        schedule: ``"newton"`` is the map above. ``"minimax"`` goes beyond the paper: each pair of steps, at the same
            cost, is the best polynomial of degree 9 for singular values in [0.1, 1] under :math:`\sigma_{\max} \le 1`;
            ``"minimax:0.03"`` for [0.03, 1] (see :func:`oni.steps_for` and :func:`oni.certified_range`).

    Returns:
        W, of Z's shape and dtype. ``W(c Z) = W(Z)`` for every c > 0 that keeps Z in its dtype's range. A zero matrix,
        or constant rows if centred, give zero with zero gradient; NaN or infinity in a matrix gives NaN everywhere.
        The gradient grows as 1 / c; if it would leave the range of its dtype (Z below 1e-33 in float32 and bfloat16)
        it is cut to a finite length and keeps its direction. In float16, whose range ends at 65504, it overflows, and
        in forward mode for proxies below 1e-37.

    Differentiable twice and more, in forward mode, under ``torch.func`` and ``torch.compile``. ``backward()``
    recomputes nothing; ``create_graph=True`` recomputes the forward pass.

    Any number of steps is safe (:mod:`oni.newton.precision`): float32 stays within 1e-4 of the exact map. Exact zeros
    among the singular values stay zero up to rounding noise times the map's slope there: in float32 below 1e-4 up to 16
    steps; beyond that the work is done in float64, where the noise is :math:`2 \cdot 10^{-16} \cdot 1.5^T`
    (4e-11 at 30 steps, 1e-5 at 60), on devices that have float64.

    >>> import oni
    >>> Z = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    >>> [round(float(oni.orthogonality(oni.orthogonalize(Z, steps)).row), 2) for steps in (0, 2, 5, 8)]
    [7.12, 4.8, 0.4, 0.0]

    Reference: Huang et al., *Controllable Orthogonalization in Training DNNs*, CVPR 2020.
    """
    check_input(Z)
    steps, center, groups = check_options(Z.shape, steps, center, bound, groups, schedule)
    if Z.numel() == 0:
        return Z.clone()
    # torch.compile warns of cached functions; it traces this once anyway.
    plan = planned if torch.compiler.is_compiling() else planned_before
    dtype, specs = plan(schedule, steps, Z.dtype, Z.device.type, bound, center)
    A = flatten_batch(split_groups(Z.to(dtype), groups))
    with disable_autocast(Z.device.type):
        for spec in specs:
            A = _evaluate(A, spec)
    return A.reshape(Z.shape).to(Z.dtype)


def check_options(
    shape: Sequence[int], steps: int, center: bool | str, bound: str, groups: int, schedule: str
) -> tuple[int, bool, int]:
    """Return ``steps``, ``center`` as True or False for matrices of this shape, and ``groups``."""
    steps = checked_steps(steps)
    get_schedule(schedule)
    if not isinstance(bound, str) or bound not in BOUNDS:
        raise ValueError(f"bound must be one of {', '.join(map(repr, BOUNDS))}, got {bound!r}")
    if not (isinstance(center, bool) or (isinstance(center, str) and center == "auto")):
        raise ValueError(f'center must be True, False or "auto", got {center!r}')
    n, d = shape[-2:]
    groups = check_groups(groups, n)
    return steps, n // groups < d if center == "auto" else bool(center), groups


def check_input(Z: Tensor) -> None:
    if not isinstance(Z, Tensor):
        raise TypeError(f"Z must be a torch.Tensor, got {type(Z).__name__}; pass torch.as_tensor(Z)")
    if Z.dtype not in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        raise TypeError(
            f"Z must be float16, bfloat16, float32 or float64, got {Z.dtype}; convert it first, e.g. Z.float()"
        )
    if Z.dim() < 2:
        raise ValueError(
            f"Z must be a matrix (n, d) or a batch (..., n, d), got shape {tuple(Z.shape)}; "
            "reshape it so that each row is one filter, e.g. Z.unsqueeze(0)"
        )


def disable_autocast(device_type: str) -> AbstractContextManager[object]:
    """Disable autocast inside if it is on, or might be in a backward pass that torch.compile traces."""
    if not knows_autocast(device_type):
        return contextlib.nullcontext()
    if torch.is_autocast_enabled(device_type) or torch.compiler.is_compiling():
        return torch.autocast(device_type, enabled=False)
    return contextlib.nullcontext()


def knows_autocast(device_type: str) -> bool:
    """Whether a kind of device supports autocast; the meta device does not."""
    return torch.amp.is_autocast_available(device_type)


# torch 2.8 can't trace this question where it compiles. What the line does is explained in precision.py.
knows_autocast._dynamo_marked_constant = True  # type: ignore[attr-defined]


class _Orthogonalize(torch.autograd.Function):
    """Forward and hand-written backward.

    The intermediates are outputs, as saved tensors must be inputs or outputs for ``torch.func`` to see them.
    """

    @staticmethod
    def forward(Z: Tensor, spec: Spec) -> tuple[Tensor, ...]:
        return packed(evaluate(Z, spec))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Spec], output: tuple[Tensor, ...]) -> None:
        Z, ctx.spec = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(Z, *output[1:])

    @staticmethod
    def backward(ctx: Any, G: Tensor | None, *_: None) -> tuple[Tensor | None, None]:
        if G is None:
            return None, None
        Z, *saved = ctx.saved_tensors
        spec = ctx.spec
        with disable_autocast(Z.device.type):
            if torch.is_grad_enabled() and not torch.compiler.is_compiling():
                # create_graph: saved intermediates are constants to autograd, so compute them again from Z.
                evaluation = evaluate(Z, spec)
            else:
                evaluation = unpacked((G, *saved), spec)
            return pullback(G, evaluation, spec), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], Z: Tensor, spec: Spec) -> tuple[Any, Any]:
        Z = Z.movedim(in_dims[0], 0)
        output = _evaluate_saving(flatten_batch(Z), spec)
        if Z.dim() == 4:
            output = tuple(tensor.unflatten(0, Z.shape[:2]) for tensor in output)
        return output, (0,) * len(output)


class _OrthogonalizeEagerly(torch.autograd.Function):
    """The same for plain eager code, where intermediates need not be outputs: each output takes time."""

    @staticmethod
    def forward(ctx: Any, Z: Tensor, spec: Spec) -> Tensor:
        W, *rest = packed(evaluate(Z, spec))
        ctx.spec = spec
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(Z, *rest)
        return W

    backward = _Orthogonalize.backward


class _OrthogonalizeWithTangents(_Orthogonalize):
    """Forward mode as well, in a class of its own because ``torch.compile`` accepts no function with a jvp."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Spec], output: tuple[Tensor, ...]) -> None:
        _Orthogonalize.setup_context(ctx, inputs, output)
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def jvp(ctx: Any, dZ: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        (Z,) = ctx.saved_tensors
        evaluation = evaluate(Z, ctx.spec)
        rest = len(packed(evaluation)) - 1
        with disable_autocast(Z.device.type):
            return (None if dZ is None else pushforward(dZ, evaluation, ctx.spec), *(None,) * rest)


# torch binds the arguments of every call by signature, and reads the signature anew each time unless it finds it here.
_Orthogonalize.forward.__signature__ = inspect.signature(_Orthogonalize.forward)  # type: ignore[attr-defined]


def _evaluate_saving(Z: Tensor, spec: Spec) -> tuple[Tensor, ...]:
    kind = _Orthogonalize if torch.compiler.is_compiling() else _OrthogonalizeWithTangents
    output: tuple[Tensor, ...] = kind.apply(Z, spec)
    return output


def _evaluate(Z: Tensor, spec: Spec) -> Tensor:
    if not (Z.requires_grad and torch.is_grad_enabled()):
        return evaluate(Z, spec).W
    if torch.compiler.is_compiling() or has_transforms() or has_tangents():
        return _evaluate_saving(Z, spec)[0]
    W: Tensor = _OrthogonalizeEagerly.apply(Z, spec)
    return W
