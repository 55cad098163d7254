"""Any tree of images, ``train/<class>/*`` and ``val/<class>/*``, read and decoded when a batch needs them.

Memory does not grow with the number of images, but for about 50 bytes each in the index.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from torch import Tensor

from oni.recipes.data.decode import CannotDecode, decode
from oni.recipes.data.folder_index import Files, load_index
from oni.recipes.data.images import Samples
from oni.terminal import printable

__all__ = ["OPTIONS", "ImageFolder", "ImageSource", "load"]

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's pixels, per channel: what networks for photographs are trained with."""
LARGEST_FILE = 256 << 20
UNREADABLE = ("error", "skip")
OPTIONS = {"size": 224, "resize": 256, "unreadable": "error"}
"""Side of the images; length of the shorter side before the centre crop for testing; whether an image that can't be
decoded ends the run (``"error"``) or is left out (``"skip"``)."""


@dataclass(frozen=True)
class ImageSource:
    """The images of one part."""

    folder: Path
    files: Files
    size: int
    resize: int
    workers: int
    skips: bool
    mean = torch.tensor(MEAN)
    deviation = torch.tensor(DEVIATION)

    def __len__(self) -> int:
        return len(self.files)

    def read(self, indices: Tensor, key: tuple[int, int] | None = None) -> Samples:
        """Decode images: the centre of each, or a random crop that is a function of key and index alone."""
        numbers: list[int] = indices.tolist()
        pixels = numpy.empty((len(numbers), self.size, self.size, 3), numpy.uint8)
        unread: dict[int, str] = {}
        for position, number in enumerate(numbers):
            try:
                content = self.read_file(number)
                pixels[position] = decode(content, self.size, self.resize, key and (*key, number))
            except (CannotDecode, OSError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                unread[position] = f"{self.show(number)}: {reason}"
        labels = torch.from_numpy(self.files.labels[numbers].astype(numpy.int64))
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
        if unread:
            kept = [position for position in range(len(numbers)) if position not in unread]
            images, labels = images[kept], labels[kept]
        return Samples(images, labels, unread)

    def read_file(self, number: int) -> bytes:
        expected = int(self.files.sizes[number])
        if not 0 <= expected <= LARGEST_FILE:
            raise CannotDecode("not a file" if expected < 0 else f"has {expected:,} bytes, more than {LARGEST_FILE:,}")
        with open(self.folder / self.files.path(number), "rb") as file:
            content = file.read(expected + 1)
        if len(content) != expected:
            raise CannotDecode("has changed its size since the folder was indexed; touch its folder")
        return content

    def show(self, number: int) -> str:
        return printable(str(self.folder / self.files.path(number)))


@dataclass(frozen=True)
class ImageFolder:
    """A folder of images as a run trains and tests on it."""

    train: ImageSource
    test: ImageSource
    classes: tuple[str, ...]
    """Their names, in the order of the labels; control characters are shown as Python writes them."""
    sha256: str
    """Of all names and sizes: contents are not read for it."""


def load(
    folder: Path | None,
    *,
    size: int = 224,
    resize: int = 256,
    unreadable: str = "error",
    workers: int | None = 0,
    cache: Path | None = None,
) -> ImageFolder:
    """Open a folder of images. Its index is made once and kept in the user's cache folder.

    Args:
        folder: holds ``train`` and ``val``, and these a folder for each class.
        size, resize, unreadable: see ``OPTIONS``.
        workers: how many processes decode; with 0 or ``None``, the training process does.
        cache: where to keep the index instead.
    """
    if folder is None:
        raise FileNotFoundError(
            "a folder of images is not part of this package: pass one as --data DIR, with DIR/train/CLASS/*.jpg "
            "and DIR/val/CLASS/*.jpg"
        )
    for name, value in (("size", size), ("resize", resize)):
        if type(value) is not int or value < 1:
            raise ValueError(f"data_options.{name} must be a whole number of at least 1, got {value!r}")
    if size > resize:
        raise ValueError(f"data_options.size={size} must not be larger than data_options.resize={resize}")
    if unreadable not in UNREADABLE:
        raise ValueError(f"data_options.unreadable must be one of {', '.join(UNREADABLE)}, got {unreadable!r}")
    index, sha256 = load_index(folder, cache)
    train, test = (
        ImageSource(folder, files, size, resize, workers or 0, unreadable == "skip")
        for files in (index.train, index.val)
    )
    return ImageFolder(train, test, tuple(map(printable, index.classes)), sha256)
