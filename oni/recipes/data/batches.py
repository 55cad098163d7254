"""Samples in memory as bytes, and batches of them: which ones is a function of the seed and the epoch alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from oni.recipes.data.subjects import Images
from oni.recipes.training.config import Config

__all__ = ["Part", "Parts", "order", "split"]


def order(count: int, *seeds: int) -> Tensor:
    """A shuffle of ``range(count)``, another one for every choice of seeds.

    >>> order(5, 0, 1).equal(order(5, 0, 1)), order(5, 0, 1).equal(order(5, 1, 0))
    (True, False)
    """
    digest = hashlib.sha256(",".join(map(str, seeds)).encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    return torch.randperm(count, generator=generator)


@dataclass(frozen=True)
class Part:
    """Some samples on a device, and how bytes become numbers: divided by 255, less the training samples' mean.

    The mean is per channel and over all pixels, as in the code of the authors' earlier paper.
    """

    images: Tensor
    labels: Tensor
    mean: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The samples of these indices, scaled."""
        images = self.images.index_select(0, indices).to(self.mean.dtype).div_(255).sub_(self.mean)
        return images, self.labels.index_select(0, indices).long()

    def in_turn(self, size: int, rank: int, world: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Every sample once over all processes; equally many batches in each, so the last may be empty."""
        indices = torch.arange(len(self), device=self.labels.device)
        for piece in indices.split(size):
            yield self.batch(piece.tensor_split(world)[rank])


@dataclass(frozen=True)
class Parts:
    """A data set as a run sees it."""

    train: Part
    validation: Part | None
    test: Part


def split(images: Images, config: Config, device: torch.device, dtype: torch.dtype) -> Parts:
    """Hold samples out, choose those to train on, and put all on the device."""
    available = len(images.train_labels)
    wanted = config.samples or available - config.validation
    if wanted < 1 or config.validation + wanted > available:
        raise ValueError(
            f"validation={config.validation} and samples={config.samples} ask for more than the {available} training "
            f"samples of {config.data}"
        )
    if config.batch_size > wanted:
        raise ValueError(f"batch_size={config.batch_size} is larger than the {wanted} training samples")
    # Sorted, so that without a split the data keep their order.
    shuffled = order(available, config.split_seed)
    held_out = shuffled[: config.validation].sort().values
    trained_on = shuffled[config.validation : config.validation + wanted].sort().values
    chosen = images.train_images[trained_on]
    # In pieces, because the sum copies its input into wider numbers first.
    total = torch.stack([piece.sum((0, 2, 3), dtype=torch.int64) for piece in chosen.split(4096)]).sum(0)
    mean = (total.double() / (255 * chosen[:, 0].numel()))[:, None, None].to(device, dtype)

    def part(of: Tensor, labels: Tensor) -> Part:
        return Part(of.to(device), labels.to(device), mean)

    return Parts(
        part(chosen, images.train_labels[trained_on]),
        part(images.train_images[held_out], images.train_labels[held_out]) if config.validation else None,
        part(images.test_images, images.test_labels),
    )
