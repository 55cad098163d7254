"""Augmentation: random changes to training images, each a function of (seed, epoch, index of the sample) alone.

So an image is changed in the same way whichever batch and process it is in, and after an interruption. All of it works
on whole batches of bytes on their device, without waiting for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from oni.names import unknown_name

__all__ = ["AUGMENTATIONS", "RESIZED_CROP", "augment", "random_integers"]

PADDING = 4
"""Pixels of black on each side before a crop to the old size."""
MASK = 0xFFFFFFFF


def random_integers(indices: Tensor, *key: int | str) -> Tensor:
    """A number in [0, 2^32) for each index, another one for every key; on the indices' device.

    Two rounds of a 32-bit mixing function (multiply, shift, xor), whose low bits are as good as its high ones.

    >>> random_integers(torch.arange(3), 0, "flip").equal(random_integers(torch.arange(3), 0, "flip"))
    True
    """
    digest = hashlib.sha256(",".join(map(str, key)).encode()).digest()
    numbers = indices.long()
    for start in (0, 4):
        numbers = (numbers ^ int.from_bytes(digest[start : start + 4], "big")) & MASK
        for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
            # The product wraps at 64 bits; its lower 32 are right all the same.
            numbers = ((numbers ^ (numbers >> shift)) * factor) & MASK
        numbers = numbers ^ (numbers >> 15)
    return numbers


def flip(images: Tensor, indices: Tensor, *key: int | str) -> Tensor:
    """Mirror every second image, on average, from left to right."""
    mirrored = (random_integers(indices, *key, "flip") & 1).bool()
    return torch.where(mirrored[:, None, None, None], images.flip(-1), images)


def crop(images: Tensor, indices: Tensor, *key: int | str) -> Tensor:
    """Move each image by up to ``PADDING`` pixels each way; black comes in."""
    count, channels, height, width = images.shape
    padded = F.pad(images, (PADDING, PADDING, PADDING, PADDING))
    offsets = random_integers(indices, *key, "crop")
    choices = 2 * PADDING + 1
    device = images.device
    rows = (offsets % choices)[:, None] + torch.arange(height, device=device)
    columns = (offsets // choices % choices)[:, None] + torch.arange(width, device=device)
    samples = torch.arange(count, device=device)[:, None, None, None]
    planes = torch.arange(channels, device=device)[None, :, None, None]
    return padded[samples, planes, rows[:, None, :, None], columns[:, None, None, :]]


def keep(images: Tensor, indices: Tensor, *key: int | str) -> Tensor:
    """What was changed already, while the images were decoded."""
    return images


RESIZED_CROP = "resized-crop"
"""A random part of random size and shape, see `oni.recipes.data.decode.random_box`."""
AUGMENTATIONS: dict[str, Callable[..., Tensor]] = {"flip": flip, "crop": crop, RESIZED_CROP: keep}
"""Every augmentation, by name."""


def augment(images: Tensor, indices: Tensor, names: Sequence[str], seed: int, epoch: int) -> Tensor:
    """Apply augmentations, one after the other.

    Args:
        images: bytes (n, channels, height, width).
        indices: which samples these are (n,).
        names: of ``AUGMENTATIONS``.
        seed, epoch: other numbers, other changes.
    """
    for name in names:
        if name not in AUGMENTATIONS:
            raise ValueError(unknown_name("augmentation", name, AUGMENTATIONS))
        images = AUGMENTATIONS[name](images, indices, seed, epoch)
    return images
