"""What is looked at while a network trains: the signal through its layers, and the spectra of its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from oni.diagnostics.signal import signal
from oni.diagnostics.spectrum import spectrum
from oni.nn.parametrization import FromProxy
from oni.recipes.data.batches import split
from oni.recipes.data.images import Dataset
from oni.recipes.training.config import Config

__all__ = ["SPECTRUM_AT", "SPECTRUM_OF", "WATCHED", "Watch", "Watcher", "build_watchers"]

Watch = Callable[[int, nn.Module], Any]
"""Called with the number of steps done and the model."""
WATCHED = ("signal", "spectrum")
SPECTRUM_AT = 200
"""The step at which the paper looks at weights."""
SPECTRUM_OF = (1, 5)
"""Which layers it looks at, counted from 1."""


@dataclass(frozen=True)
class Watcher:
    """A function that looks at a model after some steps only: for the others nothing is gathered or copied."""

    function: Callable[[nn.Module], Any]
    steps: frozenset[int]

    def __call__(self, step: int, model: nn.Module) -> Any:
        return self.function(model) if step in self.steps else None


def build_watchers(config: Config, dataset: Dataset) -> dict[str, Watch]:
    """The watchers of every run: signal at the start and at the end, spectra also after 200 steps."""
    dtype = torch.float64 if config.precision == "64-true" else torch.float32
    train = split(dataset, replace(config, watch=()), torch.device("cpu"), dtype).train
    last = config.epochs * (len(train) // config.batch_size)
    batch = train.batch(torch.arange(config.batch_size))

    def watch_signal(model: nn.Module) -> Any:
        device = next(model.parameters()).device
        inputs, labels = (tensor.to(device) for tensor in batch)
        rows = signal(model, inputs, lambda logits: F.cross_entropy(logits, labels))
        return {
            "input": [round_digits(row.input) for row in rows],
            "gradient": [round_digits(row.gradient) for row in rows],
        }

    def watch_spectrum(model: nn.Module) -> Any:
        layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
        return {
            str(number): [round_digits(value) for value in spectrum(unscaled_weight(layer)).tolist()]
            for number, layer in enumerate(layers, 1)
            if number in SPECTRUM_OF
        }

    return {
        "signal": Watcher(watch_signal, frozenset({0, last})),
        "spectrum": Watcher(watch_spectrum, frozenset({0, min(SPECTRUM_AT, last), last})),
    }


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
