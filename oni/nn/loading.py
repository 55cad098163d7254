"""Loading a ``state_dict``: plain weights become proxies, saved options are used or compared, one warning for all."""

from __future__ import annotations

import threading
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from oni.newton.matrix import Layout
from oni.newton.orthogonalize import check_options
from oni.nn.from_proxy import FromProxy
from oni.nn.options import Options, describe_options, list_unlike
from oni.nn.options_codec import MOST_STEPS, OtherVersion, decode_options, encode_options
from oni.torch_internals import find_load, has_values, is_shard

__all__ = ["SavedOptions", "load_plain_weights"]

MOST_NAMES = 5


class Remark(NamedTuple):
    """A message about a layer; layers with equal messages are named together."""

    text: str
    remedy: str = ""


UNREADABLE = Remark("")


class SavedOptions(FromProxy):
    """A parametrization that saves its options in the ``state_dict`` and compares them when one is loaded."""

    options: Options
    remark: Remark | None = None
    """The message about the saved options, until all layers are loaded."""

    def __init__(self, weight: Tensor, layout: Layout, options: Options) -> None:
        super().__init__(weight, layout, options)
        self.matrix_shape = layout.matrices(weight).shape
        # Whether the groups fit is known only now.
        check_options(self.matrix_shape, **options.of_orthogonalize())
        self.set_options(options)

    def set_options(self, options: Options) -> None:
        """Compute the weight with these options from now on; ``scale`` and ``learn_scale`` must be the same."""
        self.options = options
        self.batch_key = (self.matrix_shape, *options.of_orthogonalize().values())
        """Equal for parametrizations that can be computed in one call."""

    def get_extra_state(self) -> Tensor:
        """The options, for ``oni bake``."""
        return encode_options(self.options, self.layout)

    def set_extra_state(self, state: Any) -> None:
        """Use what was chosen for the saved weight if the target is the same; otherwise keep the model's options."""
        self.remark = take_options(self, state)

    def extra_repr(self) -> str:
        return str(self.options)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, metadata: Any, strict: bool, missing: list[str], *rest: Any
    ) -> None:
        # No checkpoint needs the options, so none without them is incomplete.
        state_dict.setdefault(prefix + "_extra_state", None)
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, *rest)
        *_, errors = rest
        finish_layer(self, prefix, missing, errors)


class Loading(threading.local):
    """The ``load_state_dict`` that runs in this thread, and the layers to look at once it has loaded all of them."""

    def __init__(self) -> None:
        self.root: nn.Module | None = None
        self.doubtful: dict[str, SavedOptions] = {}
        """By name: layers with a target, and layers with a message."""


LOADING = Loading()


def load_plain_weights(module: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Load a layer; a plain weight in the checkpoint becomes the proxy, as in ``oni.convert`` and in assignment."""
    for name, holder in module.parametrizations.items():  # type: ignore[union-attr, operator]
        plain, proxy = prefix + name, f"{prefix}parametrizations.{name}.original"
        if plain in state and proxy not in state and isinstance(holder[0], FromProxy):
            state[proxy] = state.pop(plain)
    # The class that holds this function; a module may be of a class derived from it.
    owner = next(cls for cls in type(module).__mro__ if vars(cls).get("_load_from_state_dict") is load_plain_weights)
    super(owner, module)._load_from_state_dict(state, prefix, *rest)  # type: ignore[arg-type]


def take_options(parametrization: SavedOptions, state: Any) -> Remark | None:
    """Use the saved options if the target is the same; otherwise keep the model's options.

    Returns:
        What to tell the user; ``UNREADABLE`` if the options could not be read, ``None`` if all is well.
    """
    options = parametrization.options
    try:
        saved, layout = decode_options(state)
    except OtherVersion as error:
        return Remark(f"the weights may differ from those of the checkpoint: {error}")
    except (ValueError, RuntimeError):
        # None were saved, or they were averaged or drawn with all other entries, or are on the meta device.
        return UNREADABLE
    if saved.learn_scale and options.learn_scale:
        saved = replace(saved, scale=options.scale)  # where it started does not matter
    if options.target is not None and saved.wants_the_same(options):
        if saved.steps > MOST_STEPS:
            return UNREADABLE
        parametrization.set_options(saved)
        return None
    theirs = describe_options(saved, layout, parametrization.matrix_shape)
    ours = describe_options(options, parametrization.layout, parametrization.matrix_shape)
    if theirs == ours:
        return None
    return Remark(
        f"the checkpoint was saved with {list_unlike(theirs, ours)}, and the model has {list_unlike(ours, theirs)}",
        "the model's options are used, so its weights differ from the saved ones; to restore those, convert the model "
        "with the options of the checkpoint",
    )


def finish_layer(parametrization: SavedOptions, prefix: str, missing: list[str], errors: list[str]) -> None:
    """Take note of a loaded layer; after the last one, check all targets and give one warning for all layers."""
    root, depth = find_load() or (None, 1)
    if root is not LOADING.root:
        LOADING.root, LOADING.doubtful = root, {}
    holder = prefix.removesuffix("0.")
    key = holder + "original"
    loaded = key not in missing and not any(f"for {key}:" in error or f'"{key}"' in error for error in errors)
    if loaded:
        parametrization.start = ""
    doubtful = parametrization.remark is not None or parametrization.options.target is not None
    # Where no proxy was loaded, nothing has changed.
    if doubtful and loaded:
        LOADING.doubtful[name_layer(holder)] = parametrization
    if not LOADING.doubtful:
        return
    holders = {} if root is None else find_holders(root)
    last = next(reversed(holders.values()), None)
    if last is None or last[0] is parametrization:
        layers, LOADING.root, LOADING.doubtful = LOADING.doubtful, None, {}
        message = describe_remarks({name: list_remarks(layer, holders) for name, layer in layers.items()})
        if message:
            warnings.warn(message, stacklevel=depth)


def name_layer(holder: str) -> str:
    """Return the name of a weight, as in ``oni.summary``, from the prefix of its parametrization's keys.

    >>> name_layer("features.0.parametrizations.weight."), name_layer("parametrizations.weight.")
    ('features.0', 'weight')
    """
    layer, _, name = f".{holder}".rpartition(".parametrizations.")
    layer, name = layer[1:], name[:-1]
    return layer if layer and name == "weight" else f"{layer}.{name}".lstrip(".")


def find_holders(root: nn.Module) -> dict[int, ParametrizationList]:
    """Find the modules that hold the proxies, in the order of loading, by the ids of the parametrizations."""
    holders = (module for module in root.modules() if isinstance(module, ParametrizationList))
    return {id(holder[0]): holder for holder in holders if isinstance(holder[0], SavedOptions)}


def list_remarks(parametrization: SavedOptions, holders: dict[int, ParametrizationList]) -> list[Remark]:
    """List the messages about a layer that is loaded completely."""
    remark, holder = parametrization.remark, holders.get(id(parametrization))
    parametrization.remark = None
    missed = None
    if parametrization.options.target is not None and holder is not None:
        missed = check_target_met(parametrization, holder.original, chosen_for_it=remark is None)
    return [message for message in (remark, missed) if message not in (None, UNREADABLE)]


def check_target_met(parametrization: SavedOptions, Z: Tensor, *, chosen_for_it: bool) -> Remark | None:
    """Check that a weight reaches its target; if not, choose again, unless its options came with the proxy."""
    options = parametrization.options
    assert options.target is not None
    if not has_values(Z):
        return None
    target = f"sigma_min={options.target.sigma_min:g}"
    if is_shard(Z):
        remedy = "call unshard() and oni.retune(model)"
        return None if chosen_for_it else Remark(f"a shard does not show whether {target} is reached", remedy)
    with torch.no_grad():
        blocks = parametrization.blocks(parametrization.unscaled(Z))
        lowest = min(float(torch.linalg.svdvals(W.double()).min()) for W in blocks)
        if lowest >= options.target.sigma_min:
            return None
        if chosen_for_it:
            return Remark(f"below {target} with the saved options", "oni.retune(model) chooses again")
        try:
            parametrization.set_options(options.choose_for(parametrization.layout.matrices(Z)))
        except ValueError as error:
            return Remark(str(error))
    return Remark(
        f"the checkpoint has no options that give {target}",
        "they were chosen again, so the weights may differ from the saved ones",
    )


def describe_remarks(remarks: dict[str, list[Remark]]) -> str:
    """Join all messages in one text, each once, with the layers that it is about."""
    names: dict[Remark, list[str]] = {}
    for name, several in remarks.items():
        for remark in several:
            names.setdefault(remark, []).append(name)
    sentences = []
    for remark, layers in names.items():
        more = f" and {len(layers) - MOST_NAMES} more" if len(layers) > MOST_NAMES else ""
        where = ", ".join(layers[:MOST_NAMES]) + more
        sentences.append(f"{where}: {remark.text}" + (f": {remark.remedy}" if remark.remedy else ""))
    return "; ".join(sentences)
