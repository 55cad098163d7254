"""Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017): 28 x 28 grey images of ten kinds of clothes."""

from __future__ import annotations

import gzip
import hashlib
import urllib.request
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from oni.files import write_atomically
from oni.recipes.data.idx import read_idx

__all__ = ["CLASSES", "FashionMNIST", "download", "load"]

CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
SAMPLE = Path(__file__).with_name("fashion_mnist_sample")
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
ORIGIN = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
# SHA-256 of the uncompressed files: mirrors compress them differently.
CHECKSUMS = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}


@dataclass(frozen=True)
class FashionMNIST:
    """Images (n, 28, 28) and labels (n,) as bytes, and where they come from."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    source: str


def load(source: Path | str | None = None) -> FashionMNIST:
    """Load the official files, raw or gzipped, or the sample that comes with this package.

    Args:
        source: a folder that holds the four files, or holds a folder that does (``fashion-mnist``,
            ``FashionMNIST/raw``); ``"sample"`` for the 10,000 training and 2,000 test images embedded here, 1,000 and
            200 of each class, the first of each in the official files; ``None`` for the full set as Debian's
            ``dataset-fashion-mnist`` installs it, or else the sample.

    Raises:
        FileNotFoundError: if the folder lacks a file; the message says which and how to get it.
        ValueError: if a file is not what it should be.
    """
    if source is None:
        source = DEBIAN if DEBIAN.is_dir() else "sample"
    if source == "sample":
        return read_files(SAMPLE, "sample (10,000 + 2,000 images)")
    return read_files(find_folder(Path(source)), "full")


def read_files(folder: Path, source: str) -> FashionMNIST:
    tensors: list[Tensor] = []
    for part in ("train", "t10k"):
        labels_file = find_file(folder, f"{part}-labels-idx1-ubyte")
        labels = read_idx(labels_file, (None,))
        images = read_idx(find_file(folder, f"{part}-images-idx3-ubyte"), (len(labels), 28, 28))
        if len(labels) == 0 or int(labels.max()) >= len(CLASSES):
            raise ValueError(f"{labels_file}: labels must be 0 to {len(CLASSES) - 1}; this is another data set")
        tensors += [images, labels]
    train_images, train_labels, test_images, test_labels = tensors
    return FashionMNIST(train_images, train_labels, test_images, test_labels, source)


def possible_folders(folder: Path) -> Iterator[Path]:
    yield folder
    yield folder / "fashion-mnist"
    yield folder / "FashionMNIST" / "raw"


def find_folder(folder: Path) -> Path:
    for candidate in possible_folders(folder):
        if any((candidate / ("train-labels-idx1-ubyte" + suffix)).is_file() for suffix in ("", ".gz")):
            return candidate
    raise FileNotFoundError(
        f"{folder}: no Fashion-MNIST here (train-labels-idx1-ubyte or .gz); pass the folder of the four official "
        "files, or --download to download them there"
    )


def find_file(folder: Path, name: str) -> Path:
    for suffix in ("", ".gz"):
        if (folder / (name + suffix)).is_file():
            return folder / (name + suffix)
    raise FileNotFoundError(
        f"{folder / name}: missing, both raw and .gz, although other files of Fashion-MNIST are there"
    )


def download(folder: Path) -> Path:
    """Fetch the official files that a folder lacks; each is checked before it is written."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, checksum in CHECKSUMS.items():
        target = folder / f"{name}.gz"
        if target.is_file():
            continue
        write_atomically(target, fetch(f"{ORIGIN}{name}.gz", checksum))
    return folder


def fetch(address: str, checksum: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=60) as response:
            content = response.read(1 << 26)
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise OSError(
            f"{address} can't be downloaded ({reason}); get the four files elsewhere and pass their folder as --data"
        ) from None
    try:
        is_official = hashlib.sha256(gzip.decompress(content)).hexdigest() == checksum
    except (OSError, EOFError, zlib.error):
        is_official = False
    if not is_official:
        raise ValueError(f"{address} is not the official file (wrong checksum); try another source")
    return content
