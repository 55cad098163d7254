"""``bake``: one line that makes a model plain again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import nn

from oni.models.cache import CACHE
from oni.models.proxied import check_model
from oni.models.select import LEFT_ALONE, Weight, find_owners, find_proxied_weights
from oni.nn.from_proxy import FromProxy
from oni.nn.layers import PLAIN
from oni.nn.parametrization import parameter_order
from oni.torch_internals import collect_weights, has_values

__all__ = ["bake", "make_plain"]

M = TypeVar("M", bound=nn.Module)


def bake(model: M) -> M:
    """Replace every orthogonal weight by its current value, in place: the result is plain modules with plain keys.

    The parameters stay the same objects and now hold the weights instead of the proxies. Shared ones stay shared,
    except where :func:`oni.orthogonal` made different weights of one parameter: then each layer gets its own. The
    model then pickles, exports and loads as if it had never been converted. A plain model is left unchanged.

    Raises:
        ValueError: if a weight has another parametrization on top of the orthogonal one; the model is untouched.

    >>> from oni.nn import Linear
    >>> layer = bake(Linear(8, 4))
    >>> type(layer).__module__, list(layer.state_dict())
    ('torch.nn.modules.linear', ['weight', 'bias'])
    """
    check_model(model)
    proxied = list(find_proxied_weights(model))
    for weight, _ in proxied:
        if len(weight.module.parametrizations[weight.name]) > 1:  # type: ignore[index]
            raise ValueError(
                f"{weight.label}: {weight.name} has another parametrization on top of the orthogonal one; "
                "remove that first"
            )
    with torch.no_grad():
        # All weights before any parameter changes: several modules may share one.
        values = [getattr(weight.module, weight.name).detach().clone() for weight, _ in proxied]
        first_users = find_other_users(model, proxied)
        for (weight, parametrization), value in zip(proxied, values, strict=True):
            parameter = weight.module.parametrizations[weight.name].original  # type: ignore[union-attr, index]
            first = first_users.setdefault(id(parameter), parametrization)
            same = first is parametrization or (first is not None and has_values(value) and parameter.equal(value))
            if not same:
                parameter = nn.Parameter(torch.empty_like(parameter), parameter.requires_grad)
            make_plain(weight.module, weight.name, parameter)
            parameter.copy_(value)
    CACHE.release(model)
    for module in model.modules():
        module.__dict__.pop(LEFT_ALONE, None)
    return model


def find_other_users(model: nn.Module, proxied: Sequence[tuple[Weight, FromProxy]]) -> dict[int, FromProxy | None]:
    """The proxies that a module also uses as they are, by id: after ``oni.orthogonal`` on one of two tied layers."""
    holders = {id(weight.module.parametrizations[weight.name]) for weight, _ in proxied}  # type: ignore[index]
    owners = find_owners(model).items()
    return {key: None for key, users in owners if any(id(module) not in holders for module, _ in users)}


def make_plain(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    """Take one parametrization off.

    Not torch's remove_parametrizations: that deletes the property from the class, which copies of the module share.
    """
    cls = type(module)
    order = parameter_order(module)
    if name not in order:  # a parametrization of torch's own, which does not tell where the parameter stood
        order.insert(0, name)
    del module.parametrizations[name]  # type: ignore[union-attr, operator]
    if len(module.parametrizations):  # type: ignore[arg-type]
        rest = {key: value for key, value in vars(cls).items() if key not in (name, "__dict__", "__weakref__")}
        module.__class__ = type(cls.__name__, cls.__bases__, rest)
    else:
        del module.parametrizations
        plain = cls.__bases__[0]
        module.__class__ = PLAIN.get(plain, plain)
    module.register_parameter(name, parameter)
    module._parameters = {other: module._parameters[other] for other in order if other in module._parameters}
    collect_weights(module)
