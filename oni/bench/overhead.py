"""``oni bench overhead``: what ONI adds to a step of ImageNet's networks, here and by the cost model elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.text import Text
from torch import nn

import oni
from oni.bench.record import to_dict
from oni.bench.result import BenchResult, Timed, time_ratio
from oni.bench.settings import SEED, Settings
from oni.bench.table import format_median, format_spread, show_heading
from oni.bench.targets import BenchVerdict
from oni.bench.training import TrainingStep, classification
from oni.diagnostics import cost
from oni.models.select import choose_weights
from oni.recipes.networks.registry import find_plain_layers
from oni.recipes.networks.resnet_imagenet import resnet18, resnet50, resnet101
from oni.recipes.networks.vgg16 import VGG16
from oni.terminal import ascii_only, format_number, table
from oni.timing import Quartiles, Times, Watch, interleaved, paired_difference

__all__ = ["OVERHEAD_CASES", "OverheadCase", "OverheadResult", "measure_overhead", "record_overhead", "show_overhead"]

PLAIN, ONI = "plain", "oni"
SMALL = 2
SMALL_PLAIN, SMALL_ONI = f"plain, batch {SMALL}", f"oni, batch {SMALL}"
DEVICES = 8
BACKWARD = 2
"""A layer's backward pass has twice the products of its forward pass."""
LEGEND = f"""\
s          seconds of a training step (zero_grad, forward, cross-entropy, backward, SGD), float32:
           median over rounds, quartiles
adds       seconds beyond the plain step of the same round, median; they do not depend on the batch, so
           they are taken from batches of {SMALL}, where a step's own noise does not hide them
+ here     that over the plain step of the large batch
x product  how much longer a multiply-add of ONI takes than one of the network's own layers
predicted  + with the paper's batch: the cost model's multiply-adds of ONI over the network's, times
           x product; beside it what the paper measured on its GPUs, per epoch
{DEVICES} devices  the same where {DEVICES} devices share the batch and each orthogonalises every weight; and if
           they shared that work too, without the time to exchange the weights"""


@dataclass(frozen=True)
class OverheadCase:
    """A network with the paper's number of steps, and the batches that it is trained on."""

    name: str
    about: str
    build: Callable[[], nn.Module]
    size: int
    """Of the images."""
    steps: int
    batch: int
    paper_batch: int
    paper_percent: float | None = None
    classes: int = 1000
    quick: bool = False


OVERHEAD_CASES = (
    OverheadCase("vgg16-b32", "VGG-16 at 224 x 224, batch 32, T = 5", VGG16, 224, 5, 32, 128, 7.2),
    OverheadCase("resnet50-b64", "ResNet-50 at 224 x 224, batch 64, T = 2", resnet50, 224, 2, 64, 256, 12),
    OverheadCase("resnet101-b32", "ResNet-101 at 224 x 224, batch 32, T = 2", resnet101, 224, 2, 32, 256, 18),
    OverheadCase(
        "resnet18-b8",
        "ResNet-18 of half the width at 64 x 64, batch 8, T = 2",
        partial(resnet18, width=32, classes=20),
        64,
        2,
        8,
        256,
        classes=20,
        quick=True,
    ),
)


@dataclass
class OverheadTimes(Timed):
    """Training steps."""

    times: Times = field(default_factory=dict)


@dataclass
class OverheadResult(BenchResult):
    """One network."""

    name: str
    about: str
    case: OverheadCase
    entries: dict[str, OverheadTimes] = field(default_factory=dict)
    network_products: float = 0.0
    """Multiply-adds of all layers in a training step, for one image."""
    oni_products: float = 0.0
    """Multiply-adds of ONI in a training step."""

    @property
    def added(self) -> Quartiles | None:
        """Seconds that ONI adds to a step."""
        if not {SMALL_PLAIN, SMALL_ONI} <= self.entries.keys():
            return None
        return paired_difference(self.entries[SMALL_ONI].times, self.entries[SMALL_PLAIN].times)

    @property
    def part(self) -> float | None:
        """What ONI adds over the plain step of the large batch."""
        plain = self.entries[PLAIN].seconds if PLAIN in self.entries else None
        return None if plain is None or self.added is None else self.added.median / plain.median

    def predict(self, batch: int, *, devices: int = 1, shared: bool = False) -> float | None:
        """What ONI adds to a step, over that step, with another batch.

        Args:
            batch: over all devices.
            devices: which share the batch.
            shared: whether they share the work on the weights too.
        """
        ratio = self.slowness
        if ratio is None:
            return None
        on_each = self.network_products * batch / devices
        return ratio * self.oni_products / (devices if shared else 1) / on_each

    @property
    def slowness(self) -> float | None:
        """How much longer a multiply-add of ONI takes than one of the network's own layers."""
        if self.part is None:
            return None
        return self.part * self.network_products * self.case.batch / self.oni_products


def measure_overhead(case: OverheadCase, result: OverheadResult, settings: Settings, watch: Watch) -> None:
    """Count products, then time steps of the plain and the converted network in turns; ``result`` is filled."""
    torch.manual_seed(SEED)
    networks = {}
    for name in (PLAIN, ONI):
        watch(f"building {name}", 0.0)
        network = case.build()
        if name == PLAIN:
            count_multiply_adds(case, result, network)
        else:
            skip = find_plain_layers(network)
            oni.convert(network, steps=case.steps, center=True, scale="relu", learn_scale=True, skip=skip)
        networks[name] = network.to(settings.device)
    for batch, names in ((SMALL, (SMALL_PLAIN, SMALL_ONI)), (case.batch, (PLAIN, ONI))):
        image = (3, case.size, case.size)
        loss = classification(image, batch, case.classes, settings.device, channels_last=True)
        calls: dict[str, Callable[[], object]] = {
            name: TrainingStep(network, loss) for name, network in zip(names, networks.values(), strict=True)
        }
        for call in calls.values():
            call()
        result.entries.update({name: OverheadTimes() for name in calls})
        times = {name: result.entries[name].times for name in calls}
        for done in interleaved(calls, times, seconds=settings.seconds, least_rounds=settings.least_rounds):
            watch(f"batches of {batch}, in turns", done)


def count_multiply_adds(case: OverheadCase, result: OverheadResult, network: nn.Module) -> None:
    """Multiply-adds of the network and of ONI, by the cost model."""
    rows = cost(network, (3, case.size, case.size), batch_size=1, steps=case.steps)
    converted = choose_weights(network, None, find_plain_layers(network))
    names = {weight.layer for weight, why in converted if not why}
    result.network_products = float(sum((1 + BACKWARD) * row.layer_itself for row in rows))
    result.oni_products = float(sum(row.oni + row.oni_backward for row in rows if row.layer in names))


def show_overhead(
    results: Sequence[OverheadResult], verdicts: Sequence[BenchVerdict], settings: Settings, terminal: Console
) -> None:
    """Print everything that was measured, and what follows from it."""
    plain = ascii_only(terminal, plain=settings.plain)
    show_heading(settings, LEGEND, terminal)
    for result in results:
        terminal.print(Text.assemble("\n", (result.name, "bold"), f": {result.about}"))
        rows = table(plain)
        for title in ("", "rounds", "s", "quartiles", "adds", "+ here", "x product"):
            rows.add_column(title, justify="right" if title else "left", no_wrap=True)
        for name, entry in result.entries.items():
            is_oni = name == SMALL_ONI
            rows.add_row(
                name,
                str(len(entry.times)),
                format_median(entry.seconds),
                format_spread(entry.seconds),
                format_median(result.added) if is_oni else "",
                format_percent(result.part if is_oni else None),
                format_number(result.slowness) if is_oni and result.slowness is not None else "",
            )
        terminal.print(rows)
        terminal.print(describe_prediction(result))


def describe_prediction(result: OverheadResult) -> str:
    """What is predicted for the paper's batch, in a sentence."""
    case = result.case
    alone, shared = (result.predict(case.paper_batch, devices=DEVICES, shared=shared) for shared in (False, True))
    paper = f"; the paper measured + {case.paper_percent:g} %" if case.paper_percent is not None else ""
    return (
        f"With {case.paper_batch} images: {format_percent(result.predict(case.paper_batch))} predicted{paper}. "
        f"On {DEVICES} devices: {format_percent(alone)}, or {format_percent(shared)} if they shared the work."
    )


def format_percent(value: float | None) -> str:
    """A part of one as percent.

    >>> format_percent(0.0721), format_percent(2.3), format_percent(None)
    ('+ 7.21 %', '+ 230 %', '')
    """
    return "" if value is None else f"+ {format_number(100 * value)} %"


def record_overhead(result: OverheadResult) -> dict[str, Any]:
    """The same in plain values."""
    case = result.case
    ratio = time_ratio(result.entries, ONI, PLAIN)
    return {
        "name": result.name,
        "about": result.about,
        "batch": case.batch,
        "steps": case.steps,
        "contenders": [
            {"name": name, "rounds": len(entry.times), "milliseconds": to_dict(entry.seconds, 1e3)}
            for name, entry in result.entries.items()
        ],
        "added_milliseconds": to_dict(result.added, 1e3),
        "times_plain": to_dict(ratio),
        "part_of_plain": result.part,
        "multiply_adds": {"network_per_image": result.network_products, "oni": result.oni_products},
        "times_longer_per_multiply_add": result.slowness,
        "predicted": {
            "batch": case.paper_batch,
            "one_device": result.predict(case.paper_batch),
            f"{DEVICES}_devices": result.predict(case.paper_batch, devices=DEVICES),
            f"{DEVICES}_devices_sharing": result.predict(case.paper_batch, devices=DEVICES, shared=True),
        },
        "paper_percent": case.paper_percent,
    }
