"""A small folder of images made of random numbers, to check that everything runs without photographs."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy
import torch
from PIL import Image

from oni.recipes.data.augment import random_integers
from oni.recipes.data.image_folder import OPTIONS as FOLDER_OPTIONS
from oni.recipes.data.image_folder import ImageFolder
from oni.recipes.data.image_folder import load as load_folder

__all__ = ["CLASSES", "OPTIONS", "load", "write_folder"]

CLASSES = 8
SIDE = 40
COUNTS = {"train": 10, "val": 4}
"""Images of each class."""
OPTIONS = {**FOLDER_OPTIONS, "size": 32, "resize": 36}


def load(folder: Path | None = None, **options: Any) -> ImageFolder:
    """The images, in a temporary folder."""
    place = make_folder()
    return load_folder(place, **options, cache=place)


@functools.cache
def make_folder() -> Path:
    """Write the images once; they are deleted when this process ends."""
    place = Path(tempfile.mkdtemp(prefix="oni-images-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    write_folder(place)
    return place


def write_folder(folder: Path) -> None:
    """Write every image: a pattern of its class with noise on it.

    The files are the same on every machine: nothing in them is compressed.
    """
    pixels = SIDE * SIDE * 3
    patterns = random_integers(torch.arange(CLASSES * pixels), "pattern") % 128
    for part, count in COUNTS.items():
        noise = (random_integers(torch.arange(CLASSES * count * pixels), part) % 128).view(CLASSES, count, pixels)
        images = (patterns.view(CLASSES, 1, pixels) + noise).to(torch.uint8).numpy()
        for label in range(CLASSES):
            place = folder / part / f"class-{label}"
            place.mkdir(parents=True)
            for number in range(count):
                image = numpy.ascontiguousarray(images[label, number].reshape(SIDE, SIDE, 3))
                Image.fromarray(image).save(place / f"{number}.png", compress_level=0)
