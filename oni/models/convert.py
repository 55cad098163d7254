"""``convert``: one line that makes a model orthogonal."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from oni.models.bake import make_plain
from oni.models.cache import CACHE
from oni.models.proxied import check_model, find_orthogonal
from oni.models.select import LEFT_ALONE, NOT_RECURRENT, Selector, Weight, choose_weights
from oni.nn.options import Options, make_options
from oni.nn.parametrization import Orthogonal, attach, check_weight, get_layout, is_zero, make_orthogonal
from oni.nn.start import check_start, describe_shortfall, write_proxy
from oni.torch_internals import is_called_by

__all__ = ["convert"]

M = TypeVar("M", bound=nn.Module)


def convert(
    model: M,
    *,
    only: Selector = None,
    skip: Selector = None,
    steps: int | None = None,
    sigma_min: float | None = None,
    scale: float | str = 1.0,
    learn_scale: bool = False,
    center: bool | str = "auto",
    bound: str | None = None,
    groups: int = 1,
    schedule: str | None = None,
    start: str | None = None,
) -> M:
    """Make the linear, convolutional and recurrent layers of a model orthogonal, in place.

    The input projection of attention is converted too, with queries, keys and values as separate matrices (also in a
    linear layer called ``qkv``), and so is ``Conv1D`` of the transformers library. In recurrent layers and cells, the
    recurrent weights are converted, each gate as a separate matrix; input weights are left free. ``oni.summary`` lists
    every layer, its options, and why a layer was left alone. A converted model computes each weight once per forward
    pass, with one batched call per shape.

    A depthwise convolution is a batch of one-row matrices: each filter gets norm 1 and, with ``center="auto"``, sum 0,
    so it no longer responds to a constant input. If that matters, ``skip`` such layers or pass ``center=False``.

    Args:
        model: any module. Its parameters stay the same objects, shared ones stay shared, optimizers keep working.
            Convert before wrapping it in ``DistributedDataParallel`` or ``fully_shard``.
        only: convert only these: a module type, a name or a glob pattern on qualified names (``"features.*"``), a
            function of (name, module), or a list of these.
        skip: leave these out; accepts the same kinds.
        steps, sigma_min, scale, learn_scale, center, bound, groups, schedule: as in :func:`oni.orthogonal`. Equal
            steps do not mean equal orthogonality: after 5 steps, a 16 x 144 weight is at a distance of 0.01, a 256 x
            256 weight at 8. With ``sigma_min`` each weight gets what it needs.
        start: ``"orthogonal"`` replaces every weight by its polar factor first, once. A square Gaussian weight then
            needs two steps instead of eight, and a deep ReLU network keeps its signal with
            ``convert(model, sigma_min=0.9, start="orthogonal", scale="relu", center=False)``. Pretrained weights are
            lost: leave it out for them.

    Returns:
        The model itself. Layers that are already orthogonal with these options are left unchanged.

    Raises:
        ValueError: if a chosen layer can't be converted, or can't reach ``sigma_min``; it is named, and the model is
            untouched.

    >>> model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    >>> model = convert(model, skip="2", steps=5, scale="relu")
    >>> [name for name, _ in model.named_parameters()]
    ['0.bias', '0.parametrizations.weight.original', '2.weight', '2.bias']

    A weight does not depend on the scale of its proxy, so weight decay would only shrink the proxy;
    :func:`oni.param_groups` leaves proxies out:

    >>> import oni
    >>> optimizer = torch.optim.SGD(oni.param_groups(model, weight_decay=1e-4), lr=0.1)
    """
    check_model(model)
    refuse_wrapped(model)
    options = make_options(steps, scale, learn_scale, center, bound, groups, schedule, sigma_min)
    plans, left_alone = plan_conversion(model, only, skip, options, check_start(start))
    attached: list[tuple[Weight, nn.Parameter]] = []
    with torch.no_grad():
        try:
            for weight, parametrization, parameter, _ in plans:
                attach(weight.module, weight.name, parametrization)
                attached.append((weight, parameter))
        except BaseException:
            for weight, parameter in attached:
                make_plain(weight.module, weight.name, parameter)
            raise
    for _, _, parameter, proxy in plans:
        write_proxy(parameter, proxy)
    CACHE.adopt(model)
    if hasattr(model, "save_pretrained"):
        model.register_state_dict_pre_hook(warn_in_save_pretrained)
    # For summary; no parameter, no buffer, so no part of any checkpoint.
    object.__setattr__(model, LEFT_ALONE, {weight.title: why for weight, why in left_alone})
    warn_of_surprises(model, plans, left_alone)
    return model


def refuse_wrapped(model: nn.Module) -> None:
    """Refuse what is inside ``DistributedDataParallel`` already."""
    for name, module in model.named_modules():
        if isinstance(module, nn.parallel.DistributedDataParallel):
            raise ValueError(
                f"{name or 'the model'} is already inside DistributedDataParallel, which would miss new parameters; "
                "convert the model first, then wrap it"
            )


class Plan(NamedTuple):
    """What will become of a weight."""

    weight: Weight
    parametrization: Orthogonal
    parameter: nn.Parameter
    proxy: Tensor
    """What the parameter will hold."""


def plan_conversion(
    model: nn.Module, only: Selector, skip: Selector, options: Options, start: str | None
) -> tuple[list[Plan], list[tuple[Weight, str]]]:
    """Decide on every weight, and check those that will be converted, without a change to the model."""
    by_parameter: dict[int, tuple[Orthogonal, Tensor]] = {}
    plans: list[Plan] = []
    left_alone: list[tuple[Weight, str]] = []
    unstarted: list[str] = []
    for weight, why in choose_weights(model, only, skip):
        if why:
            left_alone.append((weight, why))
            continue
        present = weight.parametrization
        own_options = replace(options, groups=options.groups * weight.groups)
        if isinstance(present, Orthogonal):
            if not present.options.wants_the_same(own_options):
                raise ValueError(
                    f"{weight.label} is already orthogonal, with other options: {present.extra_repr()}; "
                    "oni.bake the model first, or skip the layer"
                )
            if start is not None and not present.start:
                unstarted.append(weight.label)
            continue
        parameter = check_weight(weight.module, weight.name, weight.label)
        # Modules that share a parameter share all of the parametrization, so that they still have one weight.
        if id(parameter) not in by_parameter:
            layout = get_layout(weight.module)
            by_parameter[id(parameter)] = make_orthogonal(parameter, layout, own_options, weight.label, start)
        parametrization, proxy = by_parameter[id(parameter)]
        plans.append(Plan(weight, parametrization, parameter, proxy))
    if unstarted:
        warn(
            f"start={start!r} does not change layers that are orthogonal already: {shorten(unstarted)}; oni.bake the "
            "model first, then convert it, or skip them"
        )
    return plans, left_alone


def warn_of_surprises(model: nn.Module, plans: list[Plan], left_alone: list[tuple[Weight, str]]) -> None:
    """Warn of what a user would not expect of a converted model."""
    zero = [plan.weight.label for plan in plans if is_zero(plan.parameter)]
    if zero:
        warn(
            f"{shorten(zero)}: all weights are zero. Zero has no direction to orthogonalise, so they would never "
            "train; initialise them before oni.convert, or skip them"
        )
    short = [(plan, describe_shortfall(plan.parametrization.start)) for plan in plans]
    deficient = [f"{plan.weight.title} ({why})" for plan, why in short if why and not is_zero(plan.parameter)]
    if deficient:
        warn(
            f'{shorten(deficient)}: start="orthogonal" makes only the other singular values equal; initialise such '
            "weights again (duplicate or dead filters?) before oni.convert, or skip them"
        )
    if next(find_orthogonal(model), None) is None:
        reasons = shorten([f"{weight.title} ({why})" for weight, why in left_alone]) or "it has no weight matrix"
        warn(f"oni.convert found nothing to convert: {reasons}")
        return
    unfit = {weight.title: count_entries(weight) for weight, why in left_alone if why == weight.unfit}
    expected = {
        weight.title
        for weight, why in left_alone
        if isinstance(weight.module, nn.Embedding | nn.EmbeddingBag) or why == NOT_RECURRENT
    }
    missed = {title: count for title, count in unfit.items() if title not in expected}
    present = sum(member.Z.numel() for member in find_orthogonal(model))
    if sum(missed.values()) > present:
        warn(
            f"oni.convert left most matrix parameters alone, {sum(missed.values()):,} of "
            f"{sum(missed.values()) + present:,}: {shorten(list(missed))}; oni.summary(model) says why"
        )


def count_entries(weight: Weight) -> int:
    parameter = weight.module._parameters.get(weight.name)
    return 0 if parameter is None or isinstance(parameter, nn.parameter.UninitializedParameter) else parameter.numel()


def shorten(names: list[str], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def warn(message: str) -> None:
    # At the line that called convert.
    warnings.warn(message, UserWarning, stacklevel=4)


def warn_in_save_pretrained(module: nn.Module, *_: Any) -> None:
    """Warn where transformers would save proxies that ``from_pretrained`` does not know."""
    if is_called_by("save_pretrained"):
        warnings.warn(
            "save_pretrained saves the proxies of a converted model, but from_pretrained would ignore them and "
            "reinitialise those layers; save oni.bake(copy.deepcopy(model)) instead",
            UserWarning,
            stacklevel=2,
        )
