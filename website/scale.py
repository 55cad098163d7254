"""What the paper's experiments take at their own scale: an estimate from multiply-adds, stated with its assumptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from oni.diagnostics import cost
from oni.diagnostics.cost import LayerCost
from oni.recipes.experiments.experiment import Comparison
from oni.recipes.experiments.gan.family import ADAM
from oni.recipes.experiments.registry import MODULES, load_experiment
from oni.recipes.experiments.table_formats import format_markdown
from oni.recipes.networks.gan import GAN, LATENT
from oni.recipes.networks.registry import NETWORKS
from website.bench import show

__all__ = ["SCALE"]

RATE = 10e12
"""Floating point operations per second that a GPU is taken to sustain."""
CIFAR, FASHION, IMAGENET = 50_000, 60_000, 1_281_167


@dataclass(frozen=True)
class PaperNetwork:
    """A network as the paper trains it."""

    title: str
    network: str
    size: tuple[int, ...]
    images: int
    """Of an epoch."""
    epochs: int
    batch: int
    steps: int
    options: Mapping[str, Any] = field(default_factory=dict)


NETWORKS_OF_THE_PAPER = (
    PaperNetwork("MLP, 20 layers", "mlp", (1, 28, 28), FASHION, 80, 256, 5, {"depth": 20}),
    PaperNetwork("VGG-style g=2 k=1", "vgg", (3, 32, 32), CIFAR, 160, 128, 5, {"g": 2, "k": 1}),
    PaperNetwork("VGG-style g=4 k=3", "vgg", (3, 32, 32), CIFAR, 160, 128, 5, {"g": 4, "k": 3}),
    PaperNetwork("ResNet-110", "resnet-cifar", (3, 32, 32), CIFAR, 160, 128, 5, {"blocks": 18}),
    PaperNetwork("VGG-16", "vgg16", (3, 224, 224), IMAGENET, 100, 128, 5),
    PaperNetwork("ResNet-18", "resnet18", (3, 224, 224), IMAGENET, 100, 256, 2),
    PaperNetwork("ResNet-50", "resnet50", (3, 224, 224), IMAGENET, 100, 256, 2),
    PaperNetwork("ResNet-101", "resnet101", (3, 224, 224), IMAGENET, 100, 256, 2),
    PaperNetwork("DCGAN", "dcgan", (LATENT,), CIFAR, 200, 64, 2),
    PaperNetwork("ResNet GAN", "resnet-gan", (LATENT,), CIFAR, 200, 64, 3),
)


def networks(results: Path) -> str:
    """One run of each network: work, memory, hours."""
    rows = []
    for row in NETWORKS_OF_THE_PAPER:
        with torch.device("meta"):
            model = NETWORKS[row.network](**row.options).eval()
        plain, ours = count_work(model, cost(model, row.size, row.batch, row.steps))
        batches = row.images * row.epochs / row.batch
        hours = 2 * plain * batches / RATE / 3600
        parameters = sum(parameter.numel() for parameter in model.parameters())
        rows.append(
            [
                row.title,
                show(parameters / 1e6) + " M",
                f"{row.epochs} x {row.images:,} / {row.batch}",
                f"{show(hours)} h",
                f"+ {ours / plain:.1%}",
                f"{show((16 * parameters + 8 * row.batch * count_outputs(model, row.size)) / 2**30)} GiB",
            ]
        )
    columns = ["network", "parameters", "epochs x images / batch", "one run, plain", "ONI adds", "memory"]
    return format_markdown(Comparison(columns, rows, note=" ")).rstrip()


def count_work(model: nn.Module, layers: list[LayerCost]) -> tuple[int, int]:
    """Multiply-adds of one batch, forward and backward: of the layers, and of orthogonalising those the paper does."""
    if isinstance(model, GAN):
        return count_gan_work(layers)
    # Every convolution, or every hidden layer of a perceptron.
    changed = [layer for layer in layers if layer.kind == "Conv2d"] or layers[:-1]
    return 3 * sum(layer.layer_itself for layer in layers), sum(layer.oni + layer.oni_backward for layer in changed)


def count_gan_work(layers: list[LayerCost]) -> tuple[int, int]:
    """The same for one update of the generator and those of the discriminator before it."""
    judge = [layer for layer in layers if layer.layer.startswith("discriminator")]
    judging = sum(layer.layer_itself for layer in judge)
    generating = sum(layer.layer_itself for layer in layers) - judging
    # The discriminator learns from a batch of real and one of generated images; what it passes on to the generator has
    # no gradient of its weights.
    plain = ADAM.n_dis * (generating + 3 * 2 * judging) + 3 * generating + 2 * judging
    changed = [layer for layer in judge if layer.kind == "Conv2d"]
    forward, backward = sum(layer.oni for layer in changed), sum(layer.oni_backward for layer in changed)
    return plain, ADAM.n_dis * (forward + backward) + forward


def count_outputs(model: nn.Module, size: tuple[int, ...]) -> int:
    """How many numbers the layers of a model give for one input."""
    counts = []

    def count(module: nn.Module, inputs: Any, output: Tensor) -> None:
        counts.append(output.numel())

    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d)]
    handles = [layer.register_forward_hook(count) for layer in layers]
    with torch.no_grad():
        model(torch.zeros(1, *size, device="meta"))
    for handle in handles:
        handle.remove()
    return sum(counts)


def runs(results: Path) -> str:
    """How many runs the preset ``paper`` of each experiment has."""
    rows = []
    for id in MODULES:
        experiment = load_experiment(id)
        if experiment.trains and "paper" in experiment.presets:
            rows.append(
                [f"`oni reproduce {id} --preset paper`", experiment.title, str(len(experiment.planned("paper")))]
            )
    return format_markdown(Comparison(["", "", "runs"], rows)).rstrip()


def rate(results: Path) -> str:
    """The assumed speed, in words."""
    return f"{RATE / 1e12:g} TFLOP/s"


SCALE = {"paper-scale-networks": networks, "paper-scale-runs": runs, "paper-scale-rate": rate}
