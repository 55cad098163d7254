"""``convert``: one line that makes a model orthogonal."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

from oni.models.cache import batch_at_each_forward
from oni.models.select import LEFT_ALONE, Selector, Weight, chosen
from oni.nn.parametrization import Options, Orthogonal, attach, checked_weight, layout_of, settled

__all__ = ["convert"]

M = TypeVar("M", bound=nn.Module)


def convert(
    model: M,
    *,
    only: Selector = None,
    skip: Selector = None,
    steps: int = 5,
    scale: float | str = 1.0,
    learn_scale: bool = False,
    center: bool | str = "auto",
    bound: str = "compact",
    groups: int = 1,
    schedule: str = "newton",
) -> M:
    """Make the linear and convolutional layers of a model orthogonal, in place.

    Attention's input projection is converted too, its queries, keys and values each alone. ``oni.summary`` then lists
    every layer, what was done, and why a layer was left alone. A converted model computes the weights of equal shape
    in one batched call at the start of each forward pass, and those that have not changed since, not at all.

    A depthwise convolution is as many matrices of one row: each filter gets norm 1 and, centred as ``"auto"`` has it,
    sum 0, so it no longer sees a constant. ``skip`` such layers, or pass ``center=False``, where that matters.

    Args:
        model: any module. Its parameters stay the same objects, shared ones stay shared, optimizers go on working.
        only: convert these alone: a module type, a glob pattern on qualified names (``"features.*"``), a function of
            (name, module), or a list of such.
        skip: leave these out; the same kinds.
        steps, scale, learn_scale, center, bound, groups, schedule: as in :func:`oni.orthogonal`.

    Returns:
        The model itself. Layers that are orthogonal already with these options stay as they are.

    Raises:
        ValueError: if a chosen layer can't be converted; it is named, and the model is untouched.

    >>> model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    >>> model = convert(model, skip="2", steps=5, scale="relu")
    >>> [name for name, _ in model.named_parameters()]
    ['0.bias', '0.parametrizations.weight.original', '2.weight', '2.bias']
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    options = settled(steps, scale, learn_scale, center, bound, groups, schedule)
    made: dict[int, Orthogonal] = {}
    todo: list[tuple[Weight, Orthogonal]] = []
    left_alone: dict[str, str] = {}
    for weight, why in chosen(model, only, skip):
        if why:
            left_alone[weight.shown] = why
            continue
        present = weight.parametrization
        own = Options(**{**options.__dict__, "groups": options.groups * weight.groups})
        if isinstance(present, Orthogonal):
            if present.options != own:
                raise ValueError(
                    f"{weight.called} is orthogonal already, with other options: {present.extra_repr()}; "
                    "oni.bake the model first, or skip the layer"
                )
            continue
        parameter = checked_weight(weight.module, weight.name, weight.called)
        # Modules that share a parameter share all of the parametrization, so that they still have one weight.
        if id(parameter) not in made:
            try:
                made[id(parameter)] = Orthogonal(parameter, layout_of(weight.module), own)
            except ValueError as error:
                raise ValueError(f"{weight.called}: {error}") from None
        todo.append((weight, made[id(parameter)]))
    with torch.no_grad():
        for weight, parametrization in todo:
            attach(weight.module, weight.name, parametrization)
    batch_at_each_forward(model)
    # For summary; no parameter, no buffer, so no part of any checkpoint.
    object.__setattr__(model, LEFT_ALONE, left_alone)
    return model
