"""Augmentation: random changes to training images, each a function of (seed, epoch, index of the sample) alone.

So an image is changed in the same way in every process, and after an interruption. Two changes, from the authors'
code, treat a batch as a whole: they depend on the number of the batch and the position in it, which follow from the
seed, the epoch and the index, given the batch size. Everything works on whole batches of bytes on their device, without
waiting for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from oni.names import unknown_name

__all__ = ["AUGMENTATIONS", "RESIZED_CROP", "Share", "augment", "random_integers"]

PADDING = 4
"""Pixels that are added on each side before cropping to the original size."""
CHOICES = 2 * PADDING + 1
MASK = 0xFFFFFFFF


@dataclass(frozen=True)
class Share:
    """Which images of which batch a process has."""

    batch: int
    """The number of the batch in its epoch, from 0."""
    size: int
    """Of the whole batch."""
    start: int = 0
    """The position of the process's first image in it."""


def random_integers(indices: Tensor, *key: int | str) -> Tensor:
    """A number in [0, 2^32) for each index, different for every key; on the indices' device.

    Two rounds of a 32-bit mixing function (multiply, shift, xor), whose low bits are as good as its high ones.

    >>> random_integers(torch.arange(3), 0, "flip").equal(random_integers(torch.arange(3), 0, "flip"))
    True
    """
    digest = make_digest(*key)
    numbers = indices.long()
    for start in (0, 4):
        numbers = (numbers ^ int.from_bytes(digest[start : start + 4], "big")) & MASK
        for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
            # The product wraps at 64 bits, but its lower 32 bits are right.
            numbers = ((numbers ^ (numbers >> shift)) * factor) & MASK
        numbers = numbers ^ (numbers >> 15)
    return numbers


def make_digest(*key: int | str) -> bytes:
    return hashlib.sha256(",".join(map(str, key)).encode()).digest()


# Each image on its own.


def flip(images: Tensor, indices: Tensor, *key: int | str) -> Tensor:
    """Mirror each image from left to right with probability 1/2."""
    mirrored = (random_integers(indices, *key, "flip") & 1).bool()
    return torch.where(mirrored[:, None, None, None], images.flip(-1), images)


def crop(images: Tensor, indices: Tensor, *key: int | str) -> Tensor:
    """Move each image by up to ``PADDING`` pixels each way; black comes in."""
    count, channels, height, width = images.shape
    padded = F.pad(images, (PADDING, PADDING, PADDING, PADDING))
    offsets = random_integers(indices, *key, "crop")
    device = images.device
    rows = (offsets % CHOICES)[:, None] + torch.arange(height, device=device)
    columns = (offsets // CHOICES % CHOICES)[:, None] + torch.arange(width, device=device)
    samples = torch.arange(count, device=device)[:, None, None, None]
    planes = torch.arange(channels, device=device)[None, :, None, None]
    return padded[samples, planes, rows[:, None, :, None], columns[:, None, None, :]]


def keep(images: Tensor, indices: Tensor, *key: int | str) -> Tensor:
    """The images as they are: they were cropped when they were decoded."""
    return images


RESIZED_CROP = "resized-crop"
"""A random part of random size and shape, see `oni.recipes.data.decode.random_box`."""


# A batch as a whole.


def flip_half(images: Tensor, share: Share, *key: int | str) -> Tensor:
    """Mirror exactly half of the batch from left to right; which half is drawn for each batch."""
    places = torch.arange(share.size, device=images.device)
    order = random_integers(places, *key, "flip-half", share.batch).argsort(stable=True)
    mirrored = torch.zeros(share.size, dtype=torch.bool, device=images.device)
    mirrored[order[: share.size // 2]] = True
    own = mirrored[share.start : share.start + len(images)]
    return torch.where(own[:, None, None, None], images.flip(-1), images)


def crop_together(images: Tensor, share: Share, *key: int | str) -> Tensor:
    """Move all images of the batch by the same offset of up to ``PADDING`` pixels each way; their reflection comes in.

    Images must be larger than ``PADDING``.
    """
    height, width = images.shape[-2:]
    if min(height, width) <= PADDING:
        raise ValueError(f"crop-together needs images larger than {PADDING} x {PADDING}, got {height} x {width}")
    number = int.from_bytes(make_digest(*key, "crop-together", share.batch)[:8], "big")
    down, right = number % CHOICES - PADDING, number // CHOICES % CHOICES - PADDING
    rows, columns = (reflect(shift, size, images.device) for shift, size in ((down, height), (right, width)))
    return images.index_select(-2, rows).index_select(-1, columns)


def reflect(shift: int, size: int, device: torch.device) -> Tensor:
    """The positions from ``shift`` on; those outside are mirrored at the first or last position.

    >>> reflect(-2, 4, torch.device("cpu")).tolist(), reflect(2, 4, torch.device("cpu")).tolist()
    ([2, 1, 0, 1], [2, 3, 2, 1])
    """
    places = torch.arange(shift, shift + size, device=device).abs()
    return size - 1 - (size - 1 - places).abs()


ALONE: dict[str, Callable[..., Tensor]] = {"flip": flip, "crop": crop, RESIZED_CROP: keep}
TOGETHER: dict[str, Callable[..., Tensor]] = {"flip-half": flip_half, "crop-together": crop_together}
AUGMENTATIONS: dict[str, Callable[..., Tensor]] = {**ALONE, **TOGETHER}
"""Every augmentation, by name. The last two are from the authors' code."""


def augment(
    images: Tensor, indices: Tensor, names: Sequence[str], seed: int, epoch: int, share: Share | None = None
) -> Tensor:
    """Apply augmentations, one after the other.

    Args:
        images: bytes (n, channels, height, width).
        indices: which samples these are (n,).
        names: of ``AUGMENTATIONS``.
        seed, epoch: of the random numbers.
        share: which part of which batch these are; by default, the whole of the first.
    """
    share = share or Share(0, len(images))
    for name in names:
        if name not in AUGMENTATIONS:
            raise ValueError(unknown_name("augmentation", name, AUGMENTATIONS))
        images = AUGMENTATIONS[name](images, share if name in TOGETHER else indices, seed, epoch)
    return images
