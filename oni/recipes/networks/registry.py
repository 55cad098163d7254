"""The networks that can be trained, by name. A new one is a class or function and a line in ``NETWORKS``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from oni.names import unknown_name
from oni.recipes.networks.dcgan import dcgan
from oni.recipes.networks.mlp import MLP
from oni.recipes.networks.patch_mix import PatchMix
from oni.recipes.networks.resnet_cifar import ResNetCIFAR
from oni.recipes.networks.resnet_gan import resnet_gan
from oni.recipes.networks.resnet_imagenet import resnet18, resnet50, resnet101
from oni.recipes.networks.vgg import VGG
from oni.recipes.networks.vgg16 import VGG16

__all__ = ["NETWORKS", "complete_options", "construct_network", "find_output_layer", "find_plain_layers"]

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "mlp": MLP,
    "patch-mix": PatchMix,
    "vgg": VGG,
    "resnet-cifar": ResNetCIFAR,
    "vgg16": VGG16,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "resnet101": resnet101,
    "dcgan": dcgan,
    "resnet-gan": resnet_gan,
}
"""From the options of a network to the plain network. Those of the task ``gan`` hold two networks."""

TOO_LARGE = re.compile("allocate memory|out of memory|overflow", re.IGNORECASE)
"""How torch reports a tensor that does not fit into memory."""
TYPES: Mapping[str, type] = {"int": int, "float": float, "bool": bool, "str": str}


def complete_options(network: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every option of a network: the given ones and the defaults of the others.

    >>> complete_options("mlp", {"depth": 4})
    {'depth': 4, 'width': 256, 'inputs': 784, 'classes': 10, 'bias': True, 'norm': 'none', 'activation': 'relu'}
    """
    signature = inspect.signature(NETWORKS[network]).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = {parameter.name: parameter for parameter in signature if parameter.kind not in variable}
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature)
    for name, value in given.items():
        if name in parameters:
            check_type(network, parameters[name], value)
        elif not takes_any:
            raise ValueError(unknown_name("option", name, parameters, of=f"network {network}"))
    options = {name: given.get(name, parameter.default) for name, parameter in parameters.items()}
    missing = [name for name, value in options.items() if value is inspect.Parameter.empty]
    if missing:
        raise ValueError(f"network {network!r} needs {', '.join(missing)}: pass network_options.{missing[0]}=...")
    return {**options, **given}


def check_type(network: str, parameter: inspect.Parameter, value: Any) -> None:
    """Refuse a value that is not of the annotated type, if that is a simple one."""
    annotation = parameter.annotation
    expected = TYPES.get(annotation if isinstance(annotation, str) else getattr(annotation, "__name__", ""))
    if expected is None or type(value) is expected or (expected is float and type(value) is int):
        return
    raise ValueError(
        f"network_options.{parameter.name} of {network!r} must be of type {expected.__name__}, got {value!r}"
    )


def construct_network(network: str, options: Mapping[str, Any]) -> nn.Module:
    """The plain network.

    Raises:
        ValueError: if it does not fit into memory, or is not a module.
    """
    try:
        module = NETWORKS[network](**options)
    except (MemoryError, RuntimeError, TypeError) as error:
        if not isinstance(error, MemoryError) and not TOO_LARGE.search(str(error)):
            raise
        sizes = ", ".join(f"{name}={value}" for name, value in options.items())
        raise ValueError(f"network {network!r} with {sizes} does not fit into memory; choose smaller sizes") from error
    if not isinstance(module, nn.Module):
        raise ValueError(f"network {network!r} must return a torch.nn.Module, got {type(module).__name__}")
    return module


def find_output_layer(network: nn.Module) -> str | None:
    """The name of the output layer: the last linear layer, if there is one."""
    linear = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    return linear[-1] if linear else None


def find_plain_layers(network: nn.Module, *, change_output: bool = False) -> list[str]:
    """The names of the layers, or patterns of them, that a method leaves alone.

    The output layer unless ``change_output``, and those that the network names in an attribute ``plain_layers``.
    """
    output = None if change_output else find_output_layer(network)
    return [*getattr(network, "plain_layers", ()), *([output] if output else [])]
