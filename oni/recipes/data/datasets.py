"""The data sets that can be trained on, by name. A new one is a function and a line in ``DATASETS``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oni.names import unknown_name
from oni.recipes.data import cifar10, fashion_mnist, image_folder, tiny_folder, tiny_images
from oni.recipes.data.images import Dataset, Images

__all__ = ["DATASETS", "RegisteredDataset", "is_official", "load_dataset"]


@dataclass(frozen=True)
class RegisteredDataset:
    """How a data set is loaded, and what is known about it."""

    load: Callable[..., Dataset]
    """Loads the data from the folder that the user names, if any; called with its options by name."""
    sha256: str | None = None
    """The digest of the official data, if there are any. Runs on other data under this name are kept apart."""
    download: Callable[[Path], object] | None = None
    """Downloads what a folder lacks."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Every option with its default."""
    streamed: bool = False
    """Whether samples are read on demand; ``load`` is then told how many processes read them."""
    train_images: int = 0
    """Number of training images; 0 if it depends on the user's folder."""
    test_images: int = 0
    shape: tuple[int, int, int] = (3, 32, 32)
    """Of an image as the network gets it: channels, height, width."""
    classes: int = 10


def load_full_fashion_mnist(folder: Path | None) -> Images:
    data = fashion_mnist.load(folder)
    if data.source != "full":
        raise FileNotFoundError(
            "the full Fashion-MNIST is not on this machine: pass the folder of its four files as --data (with "
            "--download to download them there), or train on data=fashion-mnist-sample"
        )
    return add_channel(data)


def load_fashion_mnist_sample(folder: Path | None) -> Images:
    return add_channel(fashion_mnist.load("sample"))


def add_channel(data: fashion_mnist.FashionMNIST) -> Images:
    """Images (n, 28, 28) as (n, 1, 28, 28)."""
    return Images(data.train_images[:, None], data.train_labels, data.test_images[:, None], data.test_labels)


DATASETS: dict[str, RegisteredDataset] = {
    "fashion-mnist": RegisteredDataset(
        load_full_fashion_mnist,
        "42013cf03e12df2279c099d44a0f1f0615bb6439ca74b27c534f6bf8ca4c7fdf",
        fashion_mnist.download,
        train_images=60_000,
        test_images=10_000,
        shape=(1, 28, 28),
    ),
    "fashion-mnist-sample": RegisteredDataset(
        load_fashion_mnist_sample,
        "da0b4c52346b9317b577e67c79b089242eb89467350e5e1b2558dc8b6f1c765d",
        train_images=10_000,
        test_images=2000,
        shape=(1, 28, 28),
    ),
    "cifar10": RegisteredDataset(
        cifar10.load,
        "150ab830e79d0adfe60de7d09f4204e8b5ffd2e8eb1083956a75e459eb885d28",
        cifar10.download,
        train_images=50_000,
        test_images=10_000,
    ),
    "imagenet": RegisteredDataset(
        image_folder.load,
        options=image_folder.OPTIONS,
        streamed=True,
        train_images=1_281_167,
        test_images=50_000,
        shape=(3, 224, 224),
        classes=1000,
    ),
    "image-folder": RegisteredDataset(image_folder.load, options=image_folder.OPTIONS, streamed=True),
    "tiny-imagenet-20": RegisteredDataset(
        image_folder.load,
        "91529590566d9e1096688fca713132ceb8470ba28c2d03f4b92d6f1c122e55d9",
        # The same parts of an image as with 256 and 224.
        options={**image_folder.OPTIONS, "size": 64, "resize": 73},
        streamed=True,
        train_images=5000,
        test_images=1000,
        shape=(3, 64, 64),
        classes=20,
    ),
    "generated-folder": RegisteredDataset(
        tiny_folder.load,
        options=tiny_folder.OPTIONS,
        streamed=True,
        train_images=80,
        test_images=32,
        classes=8,
    ),
    "generated": RegisteredDataset(
        lambda folder: tiny_images.make_images(), train_images=160, test_images=80, shape=(3, 8, 8)
    ),
}
"""Every data set, by name."""


def load_dataset(
    name: str,
    folder: Path | None = None,
    *,
    options: Mapping[str, Any] | None = None,
    workers: int | None = None,
    download: bool = False,
) -> Dataset:
    """Load a data set.

    Args:
        name: one of ``DATASETS``.
        folder: where its files are; by default, the usual places.
        options: instead of its defaults.
        workers: how many processes read samples that are not in memory; by default, as the data set chooses.
        download: fetch what the folder lacks, if that is possible.

    >>> len(load_dataset("fashion-mnist-sample").train)
    10000
    """
    if name not in DATASETS:
        raise ValueError(unknown_name("data", name, DATASETS))
    entry = DATASETS[name]
    if download and folder and entry.download:
        entry.download(folder)
    if folder is not None and not folder.is_dir():
        raise FileNotFoundError(f"--data {folder}: no such folder; pass the folder of the data set's files")
    reading = {"workers": workers} if entry.streamed else {}
    return entry.load(folder, **{**entry.options, **(options or {})}, **reading)


def is_official(name: str, sha256: str) -> bool:
    """Whether the data of this digest are the official ones of that name."""
    official = DATASETS[name].sha256
    return official is None or official == sha256
