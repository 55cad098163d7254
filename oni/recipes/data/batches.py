"""Batches of samples, whose order is a function of the seed and the epoch alone."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from oni.recipes.data.augment import RESIZED_CROP, Share, augment
from oni.recipes.data.images import InMemory, Source

__all__ = ["Part", "Unreadable", "seeded_generator", "shuffle_indices"]

Batch = tuple[Tensor, Tensor]


class Unreadable(ValueError):
    """A sample can't be read, and the run must not go on without it. Perhaps only one of several processes sees it."""


def shuffle_indices(count: int, *seeds: int) -> Tensor:
    """A shuffle of ``range(count)``, different for every choice of seeds.

    >>> shuffle_indices(5, 0, 1).equal(shuffle_indices(5, 0, 1)), shuffle_indices(5, 0, 1).equal(shuffle_indices(5, 1))
    (True, False)
    """
    return torch.randperm(count, generator=seeded_generator(*seeds))


def seeded_generator(*seeds: int | str) -> torch.Generator:
    """A generator of random numbers on the CPU, different for every choice of seeds."""
    digest = hashlib.sha256(",".join(map(str, seeds)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


@dataclass(frozen=True)
class Part:
    """Some samples, and how bytes become numbers: divided by 255, minus the mean of the training samples.

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
    """How often each sample that can't be read was left out, by a message that names it and the reason."""

    def __len__(self) -> int:
        return len(self.samples if self.chosen is None else self.chosen)

    def batch(self, indices: Tensor) -> Batch:
        """The samples of these indices, scaled, without augmentation."""
        return next(self.batches(indices, max(1, len(indices))))

    def batches(
        self, order: Tensor, size: int, *, rank: int = 0, world: int = 1, first: int = 0, epoch: int | None = None
    ) -> Iterator[Batch]:
        """Go through the samples in a given order, in batches; each process gets its share of every batch.

        Args:
            order: indices of samples, each below ``len(self)``.
            size: of a batch over all processes. The last batch may be smaller, and shares may be empty, so that every
                process makes equally many steps.
            rank, world: which process this is, and how many there are.
            first: how many batches to skip at the beginning.
            epoch: of training, which decides the augmentations; without it, none are applied.
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
                # As tensor_split does: if a batch can't be shared equally, the first processes get one more.
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
                raise Unreadable(f"{message}; repair it, or pass data_options.unreadable=skip to leave it out")
            for message in unread.values():
                self.unread[message] = self.unread.get(message, 0) + 1
            images, labels, indices = (value.to(device, non_blocking=True) for value in batch)
            yield images, labels, indices


@dataclass(frozen=True)
class Reader:
    """A source as torch's DataLoader expects it: a batch for a tensor of indices."""

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
