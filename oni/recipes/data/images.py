"""Data sets: samples by index, held in memory or streamed from wherever they are."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from torch import Tensor

__all__ = ["Dataset", "Images", "InMemory", "Samples", "Source"]


class Samples(NamedTuple):
    """The samples that were read for a batch."""

    images: Tensor
    """Bytes (n, channels, height, width), on the CPU."""
    labels: Tensor
    """Whole numbers (n,)."""
    unread: Mapping[int, str] = {}
    """Samples that are missing because they can't be read: by position in the batch, which and why."""


class Source(Protocol):
    """Samples that are read on demand.

    ``workers`` is how many processes read ahead; with 0 the training process reads. Such processes get a copy of the
    source, so it must be picklable. ``mean`` is subtracted from pixels in [0, 1]: one number per channel. A source may
    also have a ``deviation``, by which pixels are divided if a run asks for ``normalise=mean-std``. ``skips`` says
    whether samples that can't be read are left out; otherwise the first one ends the run.
    """

    @property
    def workers(self) -> int: ...

    @property
    def mean(self) -> Tensor: ...

    @property
    def skips(self) -> bool: ...

    def __len__(self) -> int: ...

    def read(self, indices: Tensor, key: tuple[int, int] | None = None) -> Samples:
        """The samples of these indices, at least one.

        Args:
            indices: each below ``len(self)``.
            key: seed and epoch, if a run asks for random crops (``augment=resized-crop``): a crop is a function of the
                key and the index alone.
        """
        ...


@dataclass(frozen=True)
class InMemory:
    """Images (n, channels, height, width) and labels (n,), all bytes."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


class Dataset(Protocol):
    """What a run trains and tests on."""

    @property
    def train(self) -> InMemory | Source: ...

    @property
    def test(self) -> InMemory | Source: ...

    @property
    def sha256(self) -> str:
        """The digest of the data: equal for equal data, and different for others."""
        ...


@dataclass(frozen=True)
class Images:
    """A data set in memory: images (n, channels, height, width) and labels (n,), all bytes."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    @property
    def train(self) -> InMemory:
        return InMemory(self.train_images, self.train_labels)

    @property
    def test(self) -> InMemory:
        return InMemory(self.test_images, self.test_labels)

    @cached_property
    def sha256(self) -> str:
        """The digest of all shapes and values."""
        digest = hashlib.sha256()
        for part in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            digest.update(f"{tuple(part.shape)} {part.dtype}".encode())
            digest.update(part.contiguous().numpy().data)
        return digest.hexdigest()
