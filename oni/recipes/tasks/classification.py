"""Classification: one network, cross-entropy, and what a method adds to the loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from oni.models.init_scale import init_scale
from oni.recipes.data.batches import Part, shuffle_indices, split
from oni.recipes.data.images import Dataset
from oni.recipes.methods import apply, extra_loss
from oni.recipes.networks.registry import NETWORKS, find_plain_layers
from oni.recipes.training.config import Config
from oni.recipes.training.optimizer import build_optimizer, learning_rate_at, set_learning_rate
from oni.recipes.training.task import Task
from oni.recipes.training.totals import Totals

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Classification", "build_network", "input_dtype"]

EVALUATION_BATCH = 1000
"""Samples at once in a measurement, at least."""
CPU_IMAGES = 200
"""The same for convolutions on a CPU, which are slower where a layer's maps do not fit into its cache."""
SCALE_BATCH = 128
"""Samples by which learnable scales start, whatever the batch size."""


def build_network(config: Config) -> nn.Module:
    """The network as it starts, with the method on it."""
    torch.manual_seed(config.seed)
    network = NETWORKS[config.network](**config.network_options)
    try:
        skip = find_plain_layers(network, change_output=config.change_output)
        apply(config.method, network, skip=skip, **config.method_options)
    except TypeError as error:
        raise ValueError(f"method_options: {error}") from error
    return network.double() if config.precision == "64-true" else network


def input_dtype(config: Config) -> torch.dtype:
    """The dtype of images as the network gets them."""
    return torch.float64 if config.precision == "64-true" else torch.float32


def contains(network: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a network has a layer of a kind."""
    return any(isinstance(module, kind) for module in network.modules())


def choose_memory_format(network: nn.Module, device: torch.device) -> torch.memory_format:
    """Of the images: channels last where that makes training quicker, as ``oni bench images`` measures.

    On a CPU it does for convolutions, most where the weights stay as they are, but not with GroupNorm.
    """
    last = device.type == "cpu" and contains(network, nn.Conv2d) and not contains(network, nn.GroupNorm)
    return torch.channels_last if last else torch.contiguous_format


class Classification(Task):
    """Train a network to tell classes apart; measure loss and error on training, held-out and test samples."""

    metrics: ClassVar[tuple[str, ...]] = (
        "learning_rate",
        "train_loss",
        "train_error",
        "validation_loss",
        "validation_error",
        "test_loss",
        "test_error",
    )

    def __init__(self, config: Config, fabric: Fabric, dataset: Dataset) -> None:
        if config.batch_size % fabric.world_size:
            raise ValueError(
                f"batch_size={config.batch_size} can't be shared equally by {fabric.world_size} processes; "
                "take a multiple of that"
            )
        self.parts = split(dataset, config, fabric.device, input_dtype(config))
        super().__init__(config, fabric, dataset)
        network = self.models["network"]
        self.parts = self.parts.in_format(choose_memory_format(network, fabric.device))
        on_cpu = fabric.device.type == "cpu" and contains(network, nn.Conv2d)
        self.evaluation_batch = max(config.batch_size, CPU_IMAGES if on_cpu else EVALUATION_BATCH)
        skip = find_plain_layers(network, change_output=config.change_output)
        self.extra_loss = extra_loss(config.method, skip=skip, **config.method_options)
        if self.extra_loss and self.sharded:
            raise ValueError(
                f"method {config.method!r} adds a function of whole weights to the loss, which fsdp2 shards; "
                "pass --strategy ddp"
            )

    @property
    def steps_per_epoch(self) -> int:
        return len(self.parts.train) // self.config.batch_size

    def build_models(self) -> dict[str, nn.Module]:
        network = build_network(self.config)
        if self.config.init_scale:
            # Here the model is whole, and the same in every process; a checkpoint is loaded over it later.
            images, _ = self.parts.train.batch(torch.arange(min(SCALE_BATCH, len(self.parts.train))))
            init_scale(network, images.cpu())
        return {"network": network}

    def build_optimizers(self) -> dict[str, Optimizer]:
        return {"network": build_optimizer(self.config, self.models["network"])}

    def start_epoch(self, epoch: int, first: int) -> None:
        config = self.config
        self.is_measured = (epoch + 1) % config.measure_every == 0 or epoch + 1 == config.epochs
        self.learning_rate = learning_rate_at(config, epoch)
        if config.reset_momentum and epoch in config.drops and first == 0:
            self.optimizers["network"].optimizer.state.clear()
        set_learning_rate(self.optimizers["network"], self.learning_rate)
        self.wrapped["network"].train()
        order = shuffle_indices(len(self.parts.train), config.seed, epoch)
        # Samples that fill no whole batch are left out.
        order = order[: self.steps_per_epoch * config.batch_size]
        rank, world = self.fabric.global_rank, self.fabric.world_size
        self.batches: Iterator[tuple[Tensor, Tensor]] = self.parts.train.batches(
            order, config.batch_size, rank=rank, world=world, first=first, epoch=epoch
        )

    def train_step(self) -> None:
        images, labels = next(self.batches)
        network, optimizer = self.wrapped["network"], self.optimizers["network"]
        logits = network(images)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        self.fabric.backward(loss + self.extra_loss(self.models["network"]) if self.extra_loss else loss)
        optimizer.step()
        wrong = (logits.detach().argmax(1) != labels).sum()
        self.totals.add(len(labels), loss=loss.detach() * len(labels), error=wrong)

    def measure(self) -> dict[str, float]:
        train = self.totals.means()
        measured = {"learning_rate": self.learning_rate, "train_loss": train["loss"], "train_error": train["error"]}
        for name, part in (("validation", self.parts.validation), ("test", self.parts.test)):
            if part is not None and self.is_measured:
                means = self.evaluate(part)
                measured |= {f"{name}_loss": means["loss"], f"{name}_error": means["error"]}
        return measured

    @torch.no_grad()
    def evaluate(self, part: Part) -> dict[str, float]:
        """Loss and error on every sample once."""
        network = self.wrapped["network"]
        network.eval()
        totals = Totals(self.fabric)
        rank, world = self.fabric.global_rank, self.fabric.world_size
        for images, labels in part.batches(torch.arange(len(part)), self.evaluation_batch, rank=rank, world=world):
            logits = network(images)
            loss = F.cross_entropy(logits, labels, reduction="sum")
            totals.add(len(labels), loss=loss, error=(logits.argmax(1) != labels).sum())
        return totals.means()
