"""A data set as a run sees it: samples to train on, to hold out and to test on, and how their pixels are scaled."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from oni.recipes.data.augment import RESIZED_CROP
from oni.recipes.data.batches import Part, shuffle_indices
from oni.recipes.data.images import Dataset, InMemory, Source
from oni.recipes.run_files.config import Config

__all__ = ["Parts", "split"]


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
                f"augment={RESIZED_CROP} is for images decoded from files, but data={config.data} is in "
                "memory; use crop"
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
