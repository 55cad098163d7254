"""Small images made of random numbers, to check that everything runs without any files."""

from __future__ import annotations

import torch

from oni.recipes.data.augment import random_integers
from oni.recipes.data.images import Images

__all__ = ["make_images"]

CLASSES = 10
SHAPE = (3, 8, 8)


def make_images(train: int = 160, test: int = 80) -> Images:
    """Colour images of ten classes, each a pattern of its own with noise on it; the same on every machine.

    >>> images = make_images()
    >>> images.train_images.shape, images.test_labels[:3].tolist()
    (torch.Size([160, 3, 8, 8]), [0, 1, 2])
    """
    count = train + test
    pixels = SHAPE[0] * SHAPE[1] * SHAPE[2]
    patterns = random_integers(torch.arange(CLASSES * pixels), "pattern") % 128
    noise = random_integers(torch.arange(count * pixels), "noise") % 128
    labels = torch.arange(count) % CLASSES
    images = (patterns.view(CLASSES, *SHAPE)[labels] + noise.view(count, *SHAPE)).to(torch.uint8)
    labels = labels.to(torch.uint8)
    return Images(images[:train], labels[:train], images[train:], labels[train:])
