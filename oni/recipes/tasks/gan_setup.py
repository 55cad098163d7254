"""The networks of a GAN as they start, and what a configuration may ask of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from oni.names import unknown_name
from oni.recipes.methods import METHODS, apply, extra_loss
from oni.recipes.metrics.features import RandomFeatures
from oni.recipes.networks.gan import GAN, image_layers
from oni.recipes.networks.registry import construct_network, find_output_layer
from oni.recipes.run_files.config import Config
from oni.recipes.tasks.gan_losses import LOSSES

__all__ = ["build_gan", "check_fields", "check_task_options", "method_loss"]


def build_gan(config: Config) -> GAN:
    """Both networks as they start, with the method on the discriminator."""
    torch.manual_seed(config.seed)
    gan = construct_network(config.network, config.network_options)
    if not isinstance(gan, GAN):
        raise ValueError(
            f"task 'gan' needs a generator and a discriminator, such as network=dcgan, got {config.network!r}"
        )
    constrain(gan.discriminator, config, gan.channels)
    gan = gan.double() if config.precision == "64-true" else gan
    # A third faster on CPUs, and on GPUs with tensor cores.
    return gan.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def constrain(discriminator: nn.Module, config: Config, channels: int) -> None:
    """Put the method on the discriminator, and on its first and last layer what the configuration says."""
    options = dict(config.method_options)
    first, output = special_layers(discriminator, config, channels)
    if first and "steps" not in options:
        raise ValueError(f"task_options.first_layer=unnormalised needs method oni, got method={config.method!r}")
    try:
        apply(config.method, discriminator, skip=[*first, *output] or None, **options)
        if first:
            shared = {name: options[name] for name in METHODS["oni-columns"].options}
            apply("oni-columns", discriminator, only=first, **shared)
    except TypeError as error:
        raise ValueError(f"method_options: {error}") from error
    if output:
        apply("sn", discriminator, only=output)


def special_layers(discriminator: nn.Module, config: Config, channels: int) -> tuple[list[str], list[str]]:
    """The layers that do not get the method: the first, with the slip, and the last, with spectral normalisation."""
    slip = config.task_options["first_layer"] == "unnormalised"
    output = None if config.change_output else find_output_layer(discriminator)
    return image_layers(discriminator, channels) if slip else [], [output] if output else []


def method_loss(discriminator: nn.Module, config: Config, channels: int) -> Callable[[nn.Module], Tensor] | None:
    """What the method adds to the discriminator's loss, as a function of it; ``None`` for most."""
    first, output = special_layers(discriminator, config, channels)
    return extra_loss(config.method, skip=[*first, *output] or None, **config.method_options)


def check_fields(config: Config) -> None:
    """Refuse what a GAN would not do."""
    unused = {"normalise": "mean", "accumulate": 1, "init_scale": False, "reset_momentum": False}
    for name, default in unused.items():
        if getattr(config, name) != default:
            raise ValueError(f"task 'gan' does not support {name}={getattr(config, name)!r}; leave it at {default!r}")


def check_task_options(options: dict[str, Any]) -> None:
    """Refuse options of a wrong kind or value."""
    choices = {"loss": list(LOSSES), "first_layer": ["method", "unnormalised"]}
    for name, allowed in choices.items():
        if options[name] not in allowed:
            raise ValueError(unknown_name(f"task_options.{name}", options[name], allowed))
    for name, least in {"n_dis": 1, "updates": 0, "distance_samples": 0, "keep_every": 0}.items():
        value = options[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"task_options.{name} must be a whole number of at least {least}, got {value!r}")
    if 0 < options["distance_samples"] <= RandomFeatures.num_features:
        raise ValueError(
            f"task_options.distance_samples must be 0 or exceed the {RandomFeatures.num_features} random features, "
            f"got {options['distance_samples']}"
        )
    for name, below in {"beta2": 1.0, "ema": 1.0, "epoch_decay": 10.0}.items():
        value = options[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < below:
            raise ValueError(f"task_options.{name} must be at least 0 and below {below:g}, got {value!r}")
    if not isinstance(options["reuse_batch"], bool):
        raise ValueError(f"task_options.reuse_batch must be true or false, got {options['reuse_batch']!r}")
