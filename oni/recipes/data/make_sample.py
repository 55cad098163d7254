"""Make the embedded sample from the official files: the first images of each class, in the files' own order.

python -m oni.recipes.data.make_sample FOLDER_OF_THE_FULL_SET
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor

from oni.recipes.data.fashion_mnist import CLASSES, SAMPLE, load
from oni.recipes.data.idx import write_idx

PER_CLASS = {"train": 1000, "t10k": 200}


def first_of_each_class(labels: Tensor, count: int) -> Tensor:
    """The positions of the first ``count`` of each class, in order."""
    chosen = [torch.nonzero(labels == label).flatten()[:count] for label in range(len(CLASSES))]
    return torch.cat(chosen).sort().values


def make_sample(full: Path, into: Path = SAMPLE) -> None:
    """Write the four files of the sample."""
    data = load(full)
    into.mkdir(exist_ok=True)
    parts = {"train": (data.train_images, data.train_labels), "t10k": (data.test_images, data.test_labels)}
    for part, (images, labels) in parts.items():
        chosen = first_of_each_class(labels, PER_CLASS[part])
        write_idx(into / f"{part}-images-idx3-ubyte.gz", images[chosen])
        write_idx(into / f"{part}-labels-idx1-ubyte.gz", labels[chosen])


if __name__ == "__main__":
    make_sample(Path(sys.argv[1]))
