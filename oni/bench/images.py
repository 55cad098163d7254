"""``oni bench images``: in which memory format convolutions train fastest, and what augmentation adds to a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from rich.console import Console
from torch import nn

import oni
from oni.bench.limit import finish
from oni.bench.record import to_dict
from oni.bench.result import BenchResult, Timed, time_interval, time_ratio
from oni.bench.settings import SEED, Settings
from oni.bench.table import format_median, format_spread, show_case, show_heading, show_targets
from oni.bench.targets import BenchTarget, BenchVerdict
from oni.bench.training import TrainingStep, classification
from oni.recipes.data.augment import augment
from oni.recipes.networks.registry import find_output_layer
from oni.recipes.networks.resnet_cifar import ResNetCIFAR
from oni.recipes.networks.vgg import VGG
from oni.terminal import ascii_only, table
from oni.timing import Interval, Times, Watch, interleaved

__all__ = [
    "IMAGE_CASES",
    "IMAGE_TARGETS",
    "ImageCase",
    "ImageResult",
    "measure_formats",
    "record_images",
    "show_images",
]

SHAPE = (3, 32, 32)
CONTIGUOUS, IMAGES_LAST, ALL_LAST = "contiguous", "images channels last", "all channels last"
FORMATS = {CONTIGUOUS: (False, False), IMAGES_LAST: (True, False), ALL_LAST: (True, True)}
"""By name: whether images, and whether weights, have their channels last."""
AUGMENTED = {f"augment {', '.join(names)}": names for names in (("flip", "crop"), ("flip-half", "crop-together"))}
LEGEND = """\
ms            milliseconds, float32: median over rounds, quartiles; of a training step (zero_grad,
              forward, cross-entropy, backward, SGD), or of augmenting one batch of bytes
x contiguous  its time over that of a step with everything contiguous, within each round
channels last of the images alone, or of the weights as well: layers pass on what they are given"""


@dataclass(frozen=True)
class ImageCase:
    """A network, and the batches that it is trained on."""

    name: str
    about: str
    build: Callable[[], nn.Module]
    converted: bool = False
    """Whether its convolutions are orthogonalised."""
    batch: int = 128
    quick: bool = False


IMAGE_CASES = (
    ImageCase("vgg-g2k1", "VGG-style g=2 k=1, batch 128", partial(VGG, 2, 1)),
    ImageCase("vgg-g2k1-oni", "the same with ONI", partial(VGG, 2, 1), converted=True),
    ImageCase("resnet20", "ResNet-20 without normalisation, batch 128", partial(ResNetCIFAR, 3)),
    ImageCase("resnet20-b8", "the same, batch 8", partial(ResNetCIFAR, 3), batch=8, quick=True),
    ImageCase("resnet20-oni", "ResNet-20 with ONI, batch 128", partial(ResNetCIFAR, 3), converted=True),
    ImageCase("resnet20-bn", "ResNet-20 with batch normalisation, batch 128", partial(ResNetCIFAR, 3, norm="batch")),
    ImageCase("resnet20-gn", "ResNet-20 with group normalisation, batch 128", partial(ResNetCIFAR, 3, norm="group")),
)
IMAGE_TARGETS = (
    *(
        BenchTarget(case, "time", names, IMAGES_LAST, at_most=0.05)
        for case in ("vgg-g2k1", "resnet20", "resnet20-b8")
        for names in AUGMENTED
    ),
    *(
        BenchTarget(case.name, "time", IMAGES_LAST, CONTIGUOUS, at_most=1.0)
        for case in IMAGE_CASES
        if case.batch == 128 and case.name != "resnet20-gn"
    ),
)


@dataclass
class ImageEntry(Timed):
    """Training steps in one format, or augmentations."""

    times: Times = field(default_factory=dict)


@dataclass
class ImageResult(BenchResult):
    """One network."""

    name: str
    about: str
    entries: dict[str, ImageEntry] = field(default_factory=dict)

    def measured(self, quantity: str, name: str, over: str) -> Interval | None:
        return time_interval(self.entries, name, over)


def measure_formats(case: ImageCase, result: ImageResult, settings: Settings, watch: Watch) -> None:
    """Time training steps in every format and augmentations, in turns; ``result`` is filled on the way."""
    calls: dict[str, Callable[[], object]] = {name: make_step(case, name, settings.device) for name in FORMATS}
    pixels = torch.randint(256, (case.batch, *SHAPE), dtype=torch.uint8, device=settings.device)
    indices = torch.arange(case.batch, device=settings.device)
    for name, names in AUGMENTED.items():
        calls[name] = partial(augment_batch, pixels, indices, names)
    for call in calls.values():
        call()
    result.entries.update({name: ImageEntry() for name in calls})
    times = {name: entry.times for name, entry in result.entries.items()}
    for done in interleaved(calls, times, seconds=settings.seconds, least_rounds=settings.least_rounds):
        watch("in turns", done)


def make_step(case: ImageCase, format: str, device: str) -> TrainingStep:
    """A training step with images and weights in a format; the same numbers in all of them."""
    torch.manual_seed(SEED)
    images_last, weights_last = FORMATS[format]
    network = case.build()
    if case.converted:
        oni.convert(network, skip=find_output_layer(network), scale="relu", learn_scale=True)
    network = network.to(device)
    if weights_last:
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    loss = classification(SHAPE, case.batch, 10, device, channels_last=images_last)
    return TrainingStep(network, loss)


def augment_batch(pixels: torch.Tensor, indices: torch.Tensor, names: Sequence[str]) -> None:
    """Augment once, to its end on the device."""
    finish(augment(pixels, indices, names, seed=0, epoch=0))


def show_images(
    results: Sequence[ImageResult], verdicts: Sequence[BenchVerdict], settings: Settings, terminal: Console
) -> None:
    """Print everything that was measured."""
    plain = ascii_only(terminal, plain=settings.plain)
    show_heading(settings, LEGEND, terminal)
    for result in results:
        show_case(result.name, result.about, result.entries, terminal)
        rows = table(plain)
        rows.add_column("what", no_wrap=True)
        for title in ("ms", "quartiles", "x contiguous", "quartiles"):
            rows.add_column(title, justify="right", no_wrap=True)
        for name, entry in result.entries.items():
            seconds, ratio = entry.seconds, time_ratio(result.entries, name, CONTIGUOUS)
            rows.add_row(
                name,
                format_median(seconds, 1e3),
                format_spread(seconds, 1e3),
                format_median(ratio),
                format_spread(ratio),
            )
        terminal.print(rows)
    show_targets(results, verdicts, plain, terminal)


def record_images(result: ImageResult) -> dict[str, Any]:
    """The same in plain values."""
    return {
        "name": result.name,
        "about": result.about,
        "contenders": [
            {
                "name": name,
                "rounds": len(entry.times),
                "milliseconds": to_dict(entry.seconds, 1e3),
                "times_contiguous": to_dict(time_ratio(result.entries, name, CONTIGUOUS)),
            }
            for name, entry in result.entries.items()
        ],
    }
