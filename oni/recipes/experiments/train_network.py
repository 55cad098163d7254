"""Train one network of an experiment: choose the learning rate, train, record curves, spectra and signal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from oni.diagnostics.signal import signal
from oni.diagnostics.spectrum import spectrum
from oni.nn.parametrization import FromProxy
from oni.recipes.data.batches import split
from oni.recipes.data.subjects import Images
from oni.recipes.experiments.fashion_mnist.family import SPECTRUM_STEP
from oni.recipes.experiments.setting import NotTrained, Setting
from oni.recipes.experiments.texts import format_override
from oni.recipes.methods import METHODS
from oni.recipes.training.config import Config
from oni.recipes.training.learning_rate import AllDiverged, select_learning_rate
from oni.recipes.training.loop import Watch
from oni.recipes.training.overrides import overridden
from oni.recipes.training.run import finished, train

__all__ = ["WATCHED", "choose_learning_rate", "override_config", "train_network"]

WATCHED = ("signal", "spectrum")
SPECTRUM_LAYERS = (1, 5)
"""The layers that it looks at, counted from 1."""
HELD_OUT = 5000
"""Samples by which a learning rate is chosen, where the configuration has no number of its own."""
CURVES = ("train_error", "validation_error", "test_error", "train_loss", "test_loss")


def override_config(config: Config, overrides: Mapping[str, Any]) -> Config:
    """The configuration with the overrides that concern it: an option that only other methods have does not."""
    every_option = {option for method in METHODS.values() for option in method.options}

    def concerns(key: str) -> bool:
        owner, _, option = key.partition(".")
        return owner != "method_options" or option in config.method_options or option not in every_option

    return overridden(config, [format_override(key, value) for key, value in overrides.items() if concerns(key)])


def choose_learning_rate(
    config: Config, grid: Sequence[float], setting: Setting, *, epochs: int | None = None
) -> tuple[float, dict[float, float | None]]:
    """The learning rate of the grid with the least error on held-out samples, and all these errors.

    One rate alone is taken as it is. Where all of them diverge it is the first, as the run itself will then show.
    Without ``epochs``, the runs are as long as the configuration says.
    """
    if len(grid) == 1:
        return grid[0], {}
    if setting.dry_run:
        held_out = replace(config, validation=config.validation or HELD_OUT, epochs=epochs or config.epochs)
        for rate in grid:
            check_finished(replace(held_out, learning_rate=rate), setting)
    try:
        choice = select_learning_rate(config, grid, setting.runs, epochs=epochs, **train_options(config, setting))
    except AllDiverged:
        return grid[0], dict.fromkeys(grid)
    return choice.learning_rate, choice.errors


def train_network(config: Config, setting: Setting) -> dict[str, Any]:
    """Train, or read what was trained: the curves by epoch, and what the configuration watches."""
    check_finished(config, setting)
    images = setting.load_images(config.data)
    result = train(
        config,
        setting.runs,
        watch=make_watchers(config, images) if config.watch else None,
        **train_options(config, setting),
    )
    curves = {name: [row.get(name) for row in result.epochs] for name in CURVES}
    return {
        "run": result.folder.name,
        "status": result.metrics["status"],
        "learning_rate": config.learning_rate,
        **{name: values for name, values in curves.items() if name != "validation_error" or config.validation},
        **result.watched,
    }


def check_finished(config: Config, setting: Setting) -> None:
    """In a dry run, refuse a run that is not finished."""
    if setting.dry_run and finished(config, setting.runs) is None:
        raise NotTrained(config.name)


def train_options(config: Config, setting: Setting) -> dict[str, Any]:
    return {
        "data": setting.load_images(config.data),
        "hardware": setting.hardware,
        "progress": setting.reporter(),
        "resume": setting.resume,
    }


def make_watchers(config: Config, images: Images) -> dict[str, Watch]:
    """What is looked at in every run: signal at the start and at the end, spectra also after 200 steps."""
    parts = split(
        images,
        replace(config, watch=()),
        images.train_labels.device,
        torch.float64 if config.precision == "64-true" else torch.float32,
    )
    last = config.epochs * (len(parts.train) // config.batch_size)
    first_batch = parts.train.batch(torch.arange(config.batch_size))

    def measure_signal(step: int, model: nn.Module) -> Any:
        if step not in (0, last):
            return None
        device = next(model.parameters()).device
        inputs, labels = (tensor.to(device) for tensor in first_batch)
        rows = signal(model, inputs, lambda logits: F.cross_entropy(logits, labels))
        return {
            "input": [round_digits(row.input) for row in rows],
            "gradient": [round_digits(row.gradient) for row in rows],
        }

    def measure_spectrum(step: int, model: nn.Module) -> Any:
        if step not in (0, min(SPECTRUM_STEP, last), last):
            return None
        layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
        return {
            str(number): [round_digits(value) for value in spectrum(unscaled_weight(layer)).tolist()]
            for number, layer in enumerate(layers, 1)
            if number in SPECTRUM_LAYERS
        }

    return {"signal": measure_signal, "spectrum": measure_spectrum}


def unscaled_weight(layer: nn.Linear) -> Tensor:
    """The weight; of a method that scales what it orthogonalises, before the scale."""
    if parametrize.is_parametrized(layer, "weight"):
        steps: Any = layer.parametrizations["weight"]  # type: ignore[index]
        if isinstance(steps[0], FromProxy):
            return steps[0].unscaled(steps.original).detach()
    return layer.weight.detach()


def round_digits(value: float) -> float:
    """Four digits: enough for a picture, and the file stays small."""
    return float(f"{value:.4g}")
