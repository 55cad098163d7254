"""Data sets: samples by index, held in memory or streamed from wherever they are."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from torch import Tensor

__all__ = ["Dataset", "Images", "InMemory", "Source"]


class Source(Protocol):
    """Samples that are read when they are asked for.

    ``workers`` is how many processes read ahead; with 0 the training process reads. Such processes get a copy of the
    source, so it must be picklable. ``mean`` is what is subtracted from pixels in [0, 1]: one number per channel. A
    source may have their ``deviation`` too, by which they are then divided if a run asks for ``normalise=mean-std``.
    """

    workers: int
    mean: Tensor

    def __len__(self) -> int: ...

    def read(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """The images (n, channels, height, width) and labels (n,) of these indices, all bytes, on the CPU."""
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
        """Which data these are: the same data have the same digest, other data another."""
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
