"""Batches of samples: which ones is a function of the seed and the epoch alone."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from oni.recipes.data.augment import RESIZED_CROP, Share, augment
from oni.recipes.data.images import Dataset, InMemory, Source
from oni.recipes.training.config import Config

__all__ = ["Part", "Parts", "Unreadable", "seeded_generator", "shuffle_indices", "split"]

Batch = tuple[Tensor, Tensor]


class Unreadable(ValueError):
    """A sample can't be read, and the run is not to go on without it. Only one of several processes may meet it."""


def shuffle_indices(count: int, *seeds: int) -> Tensor:
    """A shuffle of ``range(count)``, another one for every choice of seeds.

    >>> shuffle_indices(5, 0, 1).equal(shuffle_indices(5, 0, 1)), shuffle_indices(5, 0, 1).equal(shuffle_indices(5, 1))
    (True, False)
    """
    return torch.randperm(count, generator=seeded_generator(*seeds))


def seeded_generator(*seeds: int | str) -> torch.Generator:
    """A generator of random numbers on the CPU, another one for every choice of seeds."""
    digest = hashlib.sha256(",".join(map(str, seeds)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@dataclass(frozen=True)
class Part:
    """Some samples, and how bytes become numbers: divided by 255, less the training samples' mean.

    The mean is per channel and over all pixels, as in the code of the authors' earlier paper. With ``deviation``, the
    result is divided by the standard deviation, also per channel.
    """

    samples: InMemory | Source
    """In memory: on the device, exactly these samples. Streamed: all of the source's."""
    mean: Tensor
    """On the device, in the dtype of the network's inputs."""
    chosen: Tensor | None = None
    """Which samples of a source these are."""
    augmentations: Sequence[str] = ()
    seed: int = 0
    """Of the augmentations."""
    deviation: Tensor | None = None
    memory_format: torch.memory_format = torch.contiguous_format
    """Of the images that a network gets."""
    unread: dict[str, int] = field(default_factory=dict)
    """Which samples were left out because they can't be read, and why, with how often that was."""

    def __len__(self) -> int:
        return len(self.samples if self.chosen is None else self.chosen)

    def batch(self, indices: Tensor) -> Batch:
        """The samples of these indices, scaled, without augmentation."""
        return next(self.batches(indices, max(1, len(indices))))

    def batches(
        self, order: Tensor, size: int, *, rank: int = 0, world: int = 1, first: int = 0, epoch: int | None = None
    ) -> Iterator[Batch]:
        """Go through the samples in an order, in batches of which each process gets its share.

        Args:
            order: indices of samples, each below ``len(self)``.
            size: of a batch over all processes. The last one may be smaller, and shares may be empty: every process
                makes equally many steps.
            rank, world: which process this is, and how many there are.
            first: how many batches to leave out at the beginning.
            epoch: of training, which decides the augmentations; without it there are none.
        """
        if isinstance(self.samples, InMemory):
            # Once per epoch, not per step.
            order = order.to(self.mean.device)
        pieces = order.split(size)[first:] if len(order) else (order,)
        shares = [piece.tensor_split(world)[rank] for piece in pieces]
        key = (self.seed, epoch) if epoch is not None and RESIZED_CROP in self.augmentations else None
        for number, (images, labels, indices) in enumerate(self.read_all(shares, key), first):
            if epoch is not None and self.augmentations:
                whole = len(pieces[number - first])
                # As tensor_split does: the first processes have one more where it can't be shared equally.
                share = Share(number, whole, rank * (whole // world) + min(rank, whole % world))
                images = augment(images, indices, self.augmentations, self.seed, epoch, share)
            yield self.scale(images), labels.long()

    def scale(self, images: Tensor) -> Tensor:
        """Bytes as the network gets them."""
        scaled = images.to(self.mean.dtype, memory_format=self.memory_format).div_(255).sub_(self.mean)
        return scaled if self.deviation is None else scaled.div_(self.deviation)

    def read_all(
        self, shares: Sequence[Tensor], key: tuple[int, int] | None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Bytes, labels and indices of each share, on the device."""
        if isinstance(self.samples, InMemory):
            for indices in shares:
                yield (
                    self.samples.images.index_select(0, indices),
                    self.samples.labels.index_select(0, indices),
                    indices,
                )
            return
        device = self.mean.device
        loader: Any = DataLoader(
            cast(Any, Reader(self.samples, self.chosen, key)),
            sampler=cast(Any, shares),
            batch_size=None,
            num_workers=self.samples.workers,
            pin_memory=device.type == "cuda",
            worker_init_fn=ignore_interrupts,
            # Its own, or it would draw from the generator that training uses.
            generator=torch.Generator(),
        )
        for *batch, unread in loader:
            if unread and not self.samples.skips:
                message = next(iter(unread.values()))
                raise Unreadable(f"{message}; mend it, or pass data_options.unreadable=skip to go on without it")
            for message in unread.values():
                self.unread[message] = self.unread.get(message, 0) + 1
            images, labels, indices = (value.to(device, non_blocking=True) for value in batch)
            yield images, labels, indices


@dataclass(frozen=True)
class Reader:
    """A source as torch's DataLoader wants it: a batch for a tensor of indices."""

    source: Source
    chosen: Tensor | None
    key: tuple[int, int] | None
    """Of random crops."""

    def __getitem__(self, indices: Tensor) -> tuple[Tensor, Tensor, Tensor, Mapping[int, str]]:
        wanted = indices if self.chosen is None else self.chosen[indices]
        if not len(wanted):
            # An empty batch still has the shape of an image.
            images, labels, _ = self.source.read(torch.zeros(1, dtype=torch.long))
            return images[:0], labels[:0], indices, {}
        images, labels, unread = self.source.read(wanted, self.key)
        if unread:
            indices = indices[[place for place in range(len(indices)) if place not in unread]]
        return images, labels, indices, unread


def ignore_interrupts(worker: int) -> None:
    """Leave Ctrl-C to the training process, which saves first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass(frozen=True)
class Parts:
    """A data set as a run sees it."""

    train: Part
    validation: Part | None
    test: Part

    def in_format(self, memory_format: torch.memory_format) -> Parts:
        """The same, with images in a memory format."""
        train, test = (replace(part, memory_format=memory_format) for part in (self.train, self.test))
        held_out = self.validation and replace(self.validation, memory_format=memory_format)
        return Parts(train, held_out, test)


def split(dataset: Dataset, config: Config, device: torch.device, dtype: torch.dtype) -> Parts:
    """Hold samples out, choose those to train on, and put what is in memory on the device."""
    available = len(dataset.train)
    wanted = config.samples or available - config.validation
    if wanted < 1 or config.validation + wanted > available:
        raise ValueError(
            f"validation={config.validation} and samples={config.samples} ask for more than the {available} training "
            f"samples of {config.data}"
        )
    if config.batch_size > wanted:
        raise ValueError(f"batch_size={config.batch_size} is larger than the {wanted} training samples")
    # Sorted, so that without a split the data keep their order.
    shuffled = shuffle_indices(available, config.split_seed)
    held_out = shuffled[: config.validation].sort().values
    trained_on = shuffled[config.validation : config.validation + wanted].sort().values
    source = dataset.train
    with_deviation = config.normalise == "mean-std"
    deviation: Tensor | None = None
    if isinstance(source, InMemory):
        if RESIZED_CROP in config.augment:
            raise ValueError(
                f"augment={RESIZED_CROP} is for images that are decoded from files, and data={config.data} are in "
                "memory; take crop"
            )
        mean = mean_pixel(source.images[trained_on])
        if with_deviation:
            deviation = pixel_deviation(source.images[trained_on])
    else:
        mean = source.mean.double().reshape(-1, 1, 1)
        if with_deviation:
            if not hasattr(source, "deviation"):
                raise ValueError(f"data {config.data} has no standard deviation of its pixels; pass normalise=mean")
            deviation = source.deviation.double().reshape(-1, 1, 1)
    mean = mean.to(device, dtype)
    deviation = None if deviation is None else deviation.to(device, dtype)

    def choose(source: InMemory | Source, chosen: Tensor | None) -> tuple[InMemory | Source, Tensor, Tensor | None]:
        if not isinstance(source, InMemory):
            return source, mean, chosen
        images, labels = source.images, source.labels
        if chosen is not None:
            images, labels = images[chosen], labels[chosen]
        return InMemory(images.to(device), labels.to(device)), mean, None

    return Parts(
        Part(*choose(source, trained_on), config.augment, config.seed, deviation),
        Part(*choose(source, held_out), deviation=deviation) if config.validation else None,
        Part(*choose(dataset.test, None), deviation=deviation),
    )


def mean_pixel(images: Tensor) -> Tensor:
    """The mean of each channel, as (channels, 1, 1), of pixels divided by 255."""
    # In pieces, because the sum copies its input into wider numbers first.
    total = torch.stack([piece.sum((0, 2, 3), dtype=torch.int64) for piece in images.split(4096)]).sum(0)
    return (total.double() / (255 * images[:, 0].numel()))[:, None, None]


def pixel_deviation(images: Tensor) -> Tensor:
    """The standard deviation of each channel over all pixels, as (channels, 1, 1), of pixels divided by 255.

    1 where a channel does not vary.
    """
    counts = torch.stack([channel.flatten().bincount(minlength=256) for channel in images.unbind(1)]).double()
    values = torch.arange(256, dtype=torch.float64, device=images.device)
    total = counts.sum(1)
    mean = (counts @ values) / total
    variance = (counts @ values.square()) / total - mean.square()
    deviation = variance.clamp(min=0).sqrt() / 255
    return torch.where(deviation > 0, deviation, 1.0)[:, None, None]
