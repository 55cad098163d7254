"""Classification: one network, cross-entropy, and what a method adds to the loss."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from oni.models.cache import cached
from oni.models.init_scale import init_scale
from oni.recipes.data.batches import Part, shuffle_indices
from oni.recipes.data.images import Dataset, InMemory
from oni.recipes.methods import apply, extra_loss
from oni.recipes.networks.registry import construct_network, find_plain_layers
from oni.recipes.own import is_own
from oni.recipes.run_files.config import Config
from oni.recipes.training.optimizer import build_optimizer, learning_rate_at, set_learning_rate
from oni.recipes.training.parts import split
from oni.recipes.training.task import Task
from oni.recipes.training.totals import Totals

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Classification", "build_network", "input_dtype"]

EVALUATION_BATCH = 1000
"""Samples at once in a measurement, at least."""
CPU_IMAGES = 200
"""The same for convolutions on a CPU, which slow down once a layer's feature maps no longer fit into its cache."""
SCALE_BATCH = 128
"""Number of samples that learnable scales are initialised from, whatever the batch size."""
TRIED = 64
"""Number of samples that a user's own network is tried on, enough to see most classes."""
TOP = 5
"""If the data have more classes than this, the top-5 error is measured as well."""
NAMED_AT_ONCE = 20
"""The largest number of unreadable samples that are named after an epoch."""


def build_network(config: Config) -> nn.Module:
    """The network as it starts, with the method on it."""
    torch.manual_seed(config.seed)
    network = construct_network(config.network, config.network_options)
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


def choose_memory_format(network: nn.Module, device: torch.device, precision: str = "") -> torch.memory_format:
    """The memory format of the images: channels last where that makes training faster, see ``oni bench images``.

    On a CPU it is faster for convolutions, most of all with plain weights, but not with GroupNorm. On a GPU, torch
    recommends it for 16-bit precision.
    """
    is_quick = device.type == "cpu" or (device.type == "cuda" and "16" in precision)
    last = is_quick and contains(network, nn.Conv2d) and not contains(network, nn.GroupNorm)
    last = last and not any(map(overruns_memory, network.modules()))
    return torch.channels_last if last else torch.contiguous_format


def overruns_memory(module: nn.Module) -> bool:
    """Whether the gradient of a convolution's weight, channels last, is written beyond its end.

    oneDNN's kernel for AVX2 (``jit_1x1:avx2``, torch 2.13) does so with one thread for strided 1 x 1 kernels that read
    fewer than 8 channels, and the process crashes.
    """
    if not isinstance(module, nn.Conv2d):
        return False
    return math.prod(module.kernel_size) == 1 and max(module.stride) > 1 and module.in_channels < 8


class Classification(Task):
    """Train a network to tell classes apart; measure loss and error on training, held-out and test samples."""

    metrics: tuple[str, ...] = (
        "learning_rate",
        "train_loss",
        "train_error",
        "validation_loss",
        "validation_error",
        "test_loss",
        "test_error",
    )

    def __init__(self, config: Config, fabric: Fabric, dataset: Dataset) -> None:
        pieces = fabric.world_size * config.accumulate
        if config.batch_size % pieces:
            raise ValueError(
                f"batch_size={config.batch_size} can't be split equally over {fabric.world_size} processes"
                f"{f' in {config.accumulate} parts each' if config.accumulate > 1 else ''}; use a multiple of {pieces}"
            )
        self.share = config.batch_size // pieces
        """Samples that one process computes at once."""
        self.temperature = check_temperature(config)
        check_classes(config, dataset)
        self.parts = split(dataset, config, fabric.device, input_dtype(config))
        super().__init__(config, fabric, dataset)
        network = self.models["network"]
        self.parts = self.parts.in_format(choose_memory_format(network, fabric.device, config.precision))
        self.with_top = len(getattr(dataset, "classes", ())) > TOP
        if not isinstance(self.parts.train.samples, InMemory):
            self.evaluation_batch = config.batch_size // config.accumulate
            self.metrics = (*self.metrics, "unreadable")
        else:
            on_cpu = fabric.device.type == "cpu" and contains(network, nn.Conv2d)
            self.evaluation_batch = max(config.batch_size, CPU_IMAGES if on_cpu else EVALUATION_BATCH)
        if self.with_top:
            self.metrics = (*self.metrics, "validation_top5_error", "test_top5_error")
        self.named: set[str] = set()
        """Unreadable samples that were already named."""
        skip = find_plain_layers(network, change_output=config.change_output)
        self.extra_loss = extra_loss(config.method, skip=skip, **config.method_options)
        if self.extra_loss and self.sharded:
            raise ValueError(
                f"method {config.method!r} adds a function of whole weights to the loss, but fsdp2 shards weights; "
                "pass --strategy ddp"
            )

    @property
    def steps_per_epoch(self) -> int:
        return len(self.parts.train) // self.config.batch_size

    def build_models(self) -> dict[str, nn.Module]:
        network = build_network(self.config)
        # Here the model is whole, and the same in every process; a checkpoint is loaded over it later.
        if is_own(self.config.network):
            images, labels = self.parts.train.batch(torch.arange(min(TRIED, len(self.parts.train))))
            check_logits(self.config.network, network, images.cpu(), labels.cpu())
        if self.config.init_scale:
            images, _ = self.parts.train.batch(torch.arange(min(SCALE_BATCH, len(self.parts.train))))
            init_scale(network, images.cpu(), std=branch_stds(network) if self.config.small_branches else 1.0)
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
        # All processes together compute one part of a batch after the other, so that what is normalised over a part
        # does not depend on their number.
        self.batches: Iterator[tuple[Tensor, Tensor]] = self.parts.train.batches(
            order,
            config.batch_size // config.accumulate,
            rank=rank,
            world=world,
            first=first * config.accumulate,
            epoch=epoch,
        )

    def train_step(self) -> None:
        network, optimizer = self.wrapped["network"], self.optimizers["network"]
        optimizer.zero_grad()
        with self.hold_weights(self.config.accumulate > 1):
            for number in range(1, self.config.accumulate + 1):
                is_last = number == self.config.accumulate
                with self.fabric.no_backward_sync(network, enabled=not is_last):
                    self.add_gradients(network, is_last=is_last)
        optimizer.step()

    def hold_weights(self, worth: bool) -> Any:
        """Compute orthogonal weights once for several forward passes, where no process has only a part of them."""
        return cached(self.models["network"]) if worth and not self.sharded else nullcontext()

    def add_gradients(self, network: Any, *, is_last: bool) -> None:
        """Add the gradients of one part of a batch; with the last, also those of what the method adds to the loss."""
        images, labels = next(self.batches)
        logits = network(images)
        if len(labels) == self.share:
            loss = F.cross_entropy(self.temper(logits), labels)
        else:
            # A sample that is missing counts for nothing, whichever process it would have been in.
            loss = F.cross_entropy(self.temper(logits), labels, reduction="sum") / self.share
        total = loss if self.config.accumulate == 1 else loss / self.config.accumulate
        if self.extra_loss and is_last:
            total = total + self.extra_loss(self.models["network"])
        self.fabric.backward(total)
        wrong = (logits.detach().argmax(1) != labels).sum()
        self.totals.add(len(labels), loss=loss.detach() * self.share, error=wrong)

    def temper(self, logits: Tensor) -> Tensor:
        """The logits as the loss sees them; their order, and so the error, is the same."""
        return logits if self.temperature == 1 else self.temperature * logits

    def measure(self) -> dict[str, float]:
        train = self.totals.means()
        missing = self.steps_per_epoch * self.config.batch_size - self.totals.total()
        measured = {"learning_rate": self.learning_rate, "train_loss": train["loss"], "train_error": train["error"]}
        for name, part in (("validation", self.parts.validation), ("test", self.parts.test)):
            if part is not None and self.is_measured:
                totals = self.evaluate(part)
                missing += len(part) - totals.total()
                measured |= {f"{name}_{metric}": value for metric, value in totals.means().items()}
        return {**measured, "unreadable": float(missing)} if missing else measured

    @torch.no_grad()
    def evaluate(self, part: Part) -> Totals:
        """Loss and errors over all samples of a part."""
        network = self.wrapped["network"]
        network.eval()
        totals = Totals(self.fabric)
        rank, world = self.fabric.global_rank, self.fabric.world_size
        with self.hold_weights(len(part) > self.evaluation_batch):
            for images, labels in part.batches(torch.arange(len(part)), self.evaluation_batch, rank=rank, world=world):
                logits = network(images)
                sums = {"loss": F.cross_entropy(self.temper(logits), labels, reduction="sum")}
                sums["error"] = (logits.argmax(1) != labels).sum()
                if self.with_top:
                    among = (logits.topk(TOP).indices == labels[:, None]).any(1)
                    sums["top5_error"] = (~among).sum()
                totals.add(len(labels), **sums)
        return totals

    def warnings(self) -> list[str]:
        parts = [self.parts.train, self.parts.test, *([self.parts.validation] if self.parts.validation else [])]
        unread = [message for part in parts for message in part.unread if message not in self.named]
        if self.fabric.world_size > 1 and not isinstance(self.parts.train.samples, InMemory):
            everywhere: list[Any] = [None] * self.fabric.world_size
            torch.distributed.all_gather_object(everywhere, unread)
            unread = [message for messages in everywhere for message in messages]
        unread = [message for message in dict.fromkeys(unread) if message not in self.named]
        self.named.update(unread)
        more = len(unread) - NAMED_AT_ONCE
        return [f"left out: {message}" for message in unread[:NAMED_AT_ONCE]] + (
            [f"left out: {more} more that can't be read"] if more > 0 else []
        )


def branch_stds(network: nn.Module) -> dict[str, float]:
    """Initial standard deviations for the ends of residual branches, so that the variance of their sum is near 1."""
    ends: list[str] | None = getattr(network, "branch_ends", None)
    if not ends:
        raise ValueError(f"small_branches=true needs a network with branch_ends; {type(network).__name__} has none")
    return dict.fromkeys(ends, len(ends) ** -0.5)


def check_temperature(config: Config) -> float:
    """The factor by which the loss multiplies logits; refused unless it is a number above 0."""
    value = config.task_options["temperature"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f"task_options.temperature must be a number above 0, got {value!r}")
    return float(value)


def check_classes(config: Config, dataset: Dataset) -> None:
    """Refuse a network whose number of outputs is not the number of classes in the data."""
    classes, outputs = len(getattr(dataset, "classes", ())), config.network_options.get("classes")
    if classes and isinstance(outputs, int) and outputs != classes:
        raise ValueError(
            f"the data have {classes} classes, but the network has {outputs}; pass network_options.classes={classes}"
        )


@torch.no_grad()
def check_logits(name: str, network: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Refuse a user's own network that does not return a row of logits for each image. It is not changed."""
    training = network.training
    with torch.random.fork_rng():
        logits = network.eval()(images)
    network.train(training)
    fewest = int(labels.max()) + 1
    expected = f"logits of shape ({len(labels)}, classes) for {len(labels)} images, with {fewest} classes or more"
    if not isinstance(logits, Tensor):
        raise ValueError(f"network {name!r} must return {expected}; got {type(logits).__name__}")
    if logits.dim() != 2 or len(logits) != len(labels) or logits.shape[1] < fewest:
        raise ValueError(f"network {name!r} must return {expected}; got shape {tuple(logits.shape)}")
