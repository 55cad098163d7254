"""Functions that watch a network while it trains: signals, the spectra of weights, and which radii are certified."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from oni.diagnostics.certified import certified_radius
from oni.diagnostics.lipschitz import lipschitz_bound
from oni.diagnostics.signal import signal
from oni.diagnostics.spectrum import spectrum
from oni.nn.from_proxy import FromProxy
from oni.recipes.data.batches import Part
from oni.recipes.data.images import Dataset
from oni.recipes.methods import plain
from oni.recipes.run_files.config import Config
from oni.recipes.training.conditioning import CONDITIONING, watch_conditioning
from oni.recipes.training.loop import Watch
from oni.recipes.training.parts import split

__all__ = ["CERTIFIED", "WATCHERS", "Watcher", "build_watchers"]

CERTIFIED = "certified"
"""At the end: the share of the held-out images, or else of the test images, with a certificate, over the radius."""
WATCHERS = ("signal", "spectrum", CERTIFIED, CONDITIONING)
RADII = sorted([*(step / 20 for step in range(41)), 36 / 255, 72 / 255, 108 / 255])
"""In units of pixels that go from 0 to 1: 0 to 2, and those that are usual for CIFAR-10."""


@dataclass(frozen=True)
class Watcher:
    """A function that looks at a model after some steps only: for the others nothing is gathered or copied."""

    function: Callable[[nn.Module], Any]
    steps: frozenset[int]

    def __call__(self, step: int, model: nn.Module) -> Any:
        return self.function(model) if step in self.steps else None


def build_watchers(
    config: Config, dataset: Dataset, *, step: int | None = None, layers: Collection[int] | None = None
) -> dict[str, Watch]:
    """The functions that a configuration names.

    ``signal`` is recorded at the start and at the end, ``certified`` at the end, ``conditioning`` after every epoch.

    Args:
        config, dataset: of the run.
        step: ``spectrum`` is recorded at the start and at the end, and after so many steps if there are as many.
        layers: of which linear layers, counted from 1; all by default.
    """
    dtype = torch.float64 if config.precision == "64-true" else torch.float32
    parts = split(dataset, replace(config, watch=()), torch.device("cpu"), dtype)
    train = parts.train
    per_epoch = len(train) // config.batch_size
    last = config.epochs * per_epoch
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
        linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
        return {
            str(number): [round_digits(value) for value in spectrum(unscaled_weight(layer)).tolist()]
            for number, layer in enumerate(linear, 1)
            if layers is None or number in layers
        }

    watchers: dict[str, Watch] = {
        "signal": Watcher(watch_signal, frozenset({0, last})),
        "spectrum": Watcher(watch_spectrum, frozenset({0, min(step or 0, last), last})),
        CERTIFIED: Watcher(partial(certify, part=parts.validation or parts.test), frozenset({last})),
        CONDITIONING: Watcher(watch_conditioning, frozenset(range(0, last + 1, max(1, per_epoch)))),
    }
    return {name: watchers[name] for name in config.watch}


def certify(model: nn.Module, part: Part) -> dict[str, Any] | None:
    """Of the plain network, as it would be shipped: the share of images that are certified at each radius.

    At radius 0 these are the images that it classifies rightly, by more than rounding could turn.
    """
    since = time.perf_counter()
    network = plain(copy.deepcopy(model)).cpu().eval()
    if not all(bool(torch.isfinite(parameter).all()) for parameter in network.parameters()):
        return None  # the run ends as diverged
    images, labels = part.batch(torch.arange(len(part)))
    radii = certified_radius(network, images, labels)
    if part.deviation is not None:
        radii = radii * part.deviation.min()  # back to pixels from 0 to 1
    return {
        "bound": float(lipschitz_bound(network, images.shape[1:])),
        "radius": [round_digits(radius) for radius in RADII],
        # An image with a radius of exactly r is certified within r, not at r; 0 is of those without any.
        "share": [float((radii > radius).double().mean()) for radius in RADII],
        "seconds": round_digits(time.perf_counter() - since),
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
