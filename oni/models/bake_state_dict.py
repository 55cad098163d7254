"""``bake_state_dict``: what ``bake`` does to a model, done to its ``state_dict`` alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from oni.newton.matrix import Layout
from oni.nn.options import Options, make_options
from oni.nn.options_codec import decode_options
from oni.nn.parametrization import Orthogonal

__all__ = ["Proxy", "bake_state_dict", "find_proxies"]

PARAMETRIZED = re.compile(r"(?P<prefix>(?P<layer>(?:.*\.)?)parametrizations\.(?P<name>[^.]+)\.)(?P<own>.+)")
RECURRENT = re.compile(r"(^|\.)weight_[ih]h(_l\d+(_reverse)?)?$")
OWN = {"original", "0.scale", "0._extra_state"}


class Proxy(NamedTuple):
    """A weight that a ``state_dict`` holds as a proxy."""

    weight: str
    """The key of the plain weight."""
    prefix: str
    """What the keys of its parametrization begin with."""
    Z: Tensor
    saved: Options | None
    """The options that were saved with it, if any."""
    layout: Layout
    scale: Tensor | None
    """The learnt factors of its filters."""

    def options(self, given: Mapping[str, Any]) -> Options:
        """What was saved, with what is given instead where something is."""
        if "sigma_min" in given:
            raise ValueError("a proxy is baked as it was trained, so sigma_min is not an option; pass steps if needed")
        if self.saved is not None:
            return make_options(**{**self.saved.keywords(), **given})
        if "steps" not in given:
            raise ValueError(
                f"{self.weight}: no options were saved with its proxy; pass those it was trained with: steps, and "
                "scale, center, bound, groups and schedule if they differed from the defaults"
            )
        # As convert does: queries, keys and values each alone. What else is stacked, the file does not tell.
        parts = 3 if self.weight.endswith("in_proj_weight") else 1
        if RECURRENT.search(self.weight) and "groups" not in given:
            raise ValueError(
                f"{self.weight}: no options were saved with its proxy; pass groups, its number of gates: 4 for an "
                "LSTM, 3 for a GRU, 1 for a plain recurrent layer"
            )
        return make_options(
            **{**given, "groups": parts * given.get("groups", 1), "learn_scale": self.scale is not None}
        )

    def value(self, options: Options) -> Tensor:
        """The plain weight."""
        scale = self.scale
        if options.learn_scale and not isinstance(scale, Tensor):
            raise ValueError(f"{self.weight}: its learnable scale, {self.prefix}0.scale, is missing")
        try:
            parametrization = Orthogonal(self.Z, self.layout, options)
            with torch.no_grad():
                if options.learn_scale and scale is not None:
                    parametrization.scale.copy_(scale)
                return parametrization(self.Z)
        except (ValueError, TypeError, RuntimeError, ZeroDivisionError) as error:
            raise ValueError(
                f"{self.weight}: its proxy of shape {tuple(self.Z.shape)} can't be baked: {error}"
            ) from None


def find_proxies(state: Mapping[str, Any]) -> Iterator[Proxy]:
    """Every proxy of this package in a ``state_dict``; those of torch's own parametrizations are left out."""
    matches = [match for match in map(PARAMETRIZED.fullmatch, state) if match is not None]
    keys: dict[str, set[str]] = {}
    for match in matches:
        keys.setdefault(match["prefix"], set()).add(match["own"])
    for match in matches:
        Z, prefix = state[match[0]], match["prefix"]
        if match["own"] != "original" or not isinstance(Z, Tensor) or not Z.is_floating_point() or Z.dim() < 2:
            continue
        if keys[prefix] - OWN:
            if "0._extra_state" in keys[prefix]:
                raise ValueError(
                    f"{match['layer']}{match['name']} has another parametrization on top of the orthogonal one; "
                    "remove that in Python first"
                )
            continue
        saved, layout = None, Layout()
        if "0._extra_state" in keys[prefix]:
            try:
                saved, layout = decode_options(state[prefix + "0._extra_state"])
            except ValueError as error:
                raise ValueError(f"{prefix}0._extra_state: {error}") from None
        yield Proxy(match["layer"] + match["name"], prefix, Z, saved, layout, state.get(prefix + "0.scale"))


def bake_state_dict(state: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """The ``state_dict`` of the plain architecture, from that of a converted model.

    Each layer's options come from the ``state_dict`` itself, where converted models save them.

    Args:
        state: what ``model.state_dict()`` gave.
        options: of :func:`oni.orthogonal`, instead of those saved, for every layer. Where none were saved, ``steps`` at
            least is needed, and weights are taken as those of linear layers and plain convolutions, neither
            grouped nor transposed.

    >>> import oni
    >>> layer = oni.nn.Linear(8, 4, steps=3)
    >>> plain = bake_state_dict(layer.state_dict())
    >>> list(plain), torch.equal(plain["weight"], layer.weight)
    (['weight', 'bias'], True)
    """
    proxies = list(find_proxies(state))
    if not proxies:
        raise ValueError("nothing to bake: it has no proxy of an orthogonal weight (*.parametrizations.*.original)")
    made: dict[Any, Tensor] = {}
    pending: dict[str, dict[str, Tensor]] = {}
    for proxy in proxies:
        if proxy.weight in state:
            raise ValueError(f"{proxy.weight} is present both as a weight and as a proxy")
        proxy_options = proxy.options(options)
        # Shared proxies become shared weights, where all that makes the weight is the same.
        memory = get_address(proxy.Z), get_address(proxy.scale)
        same = (*memory, tuple(proxy.Z.shape), proxy_options, proxy.layout)
        if same not in made:
            made[same] = proxy.value(proxy_options)
        pending.setdefault(proxy.weight.rpartition(".")[0], {})[proxy.weight] = made[same]
    dropped = {proxy.prefix + own for proxy in proxies for own in OWN}
    baked: dict[str, Any] = {}
    for key, entry in state.items():
        # A layer's weight goes before whatever else the layer has, as in torch's own layers.
        parts = key.split(".")
        for depth in range(len(parts)):
            baked.update(pending.pop(".".join(parts[:depth]), {}))
        if key not in dropped:
            baked[key] = entry
    return baked


def get_address(tensor: Tensor | None) -> int:
    """Where the entries of a tensor are; 0 if they have no place of their own."""
    return tensor.data_ptr() if isinstance(tensor, Tensor) and tensor.layout is torch.strided else 0
