"""CIFAR-10 (Krizhevsky, 2009): 32 x 32 colour images of ten kinds of things, in both official layouts."""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from oni.files import write_atomically
from oni.recipes.data.images import Images

__all__ = ["CLASSES", "download", "load"]

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = "test_batch"
BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
PIXELS = 3 * 32 * 32
RECORD = 1 + PIXELS
"""Bytes of an image in the binary layout: its label, then red, green and blue."""
LARGEST = 64 << 20
"""No official file is larger than 31 MB."""
ORIGIN = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
# MD5 of the files in the binary archive; the archive's own is on the data set's page.
CHECKSUMS = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}


def load(folder: Path | None = None) -> Images:
    """Load the official files, in the binary or the python layout.

    Args:
        folder: the folder that holds the six files, or holds ``cifar-10-batches-bin`` or ``cifar-10-batches-py``.

    Raises:
        FileNotFoundError: if a file is missing; the message says which and how to get it.
        ValueError: if a file is not what it should be. Nothing in a pickle is executed.
    """
    if folder is None:
        raise FileNotFoundError(
            "CIFAR-10 is not part of this package: pass the folder of its files as --data (with --download to "
            "download them there)"
        )
    where, read, suffix = find_layout(folder)
    parts = [read(find_file(where, name + suffix)) for name in (*TRAIN, TEST)]
    images, labels = zip(*parts, strict=True)
    return Images(torch.cat(images[:-1]), torch.cat(labels[:-1]), images[-1], labels[-1])


def find_layout(folder: Path) -> tuple[Path, Callable[[Path], tuple[Tensor, Tensor]], str]:
    """The folder of the files, how to read one, and how their names end."""
    for candidate in (folder, folder / BINARY, folder / PYTHON):
        if (candidate / f"{TEST}.bin").is_file():
            return candidate, read_binary, ".bin"
        if (candidate / TEST).is_file():
            return candidate, read_pickle, ""
    raise FileNotFoundError(
        f"{folder}: no CIFAR-10 here ({TEST}.bin or {TEST}); pass the folder of {BINARY} or {PYTHON}, or --download to "
        "download it there"
    )


def find_file(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise FileNotFoundError(f"{folder / name}: missing, although other files of CIFAR-10 are there")
    return folder / name


def read_bytes(path: Path) -> bytes:
    size = path.stat().st_size
    if size > LARGEST:
        raise ValueError(f"{path}: {size:,} bytes, but no file of CIFAR-10 is larger than {LARGEST:,}")
    return path.read_bytes()


def read_binary(path: Path) -> tuple[Tensor, Tensor]:
    """A file of the binary layout."""
    content = read_bytes(path)
    if not content or len(content) % RECORD:
        raise ValueError(
            f"{path}: {len(content):,} bytes, expected a multiple of {RECORD:,} (label and image); it is truncated "
            "or another file"
        )
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(-1, RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32).contiguous(), check_labels(path, records[:, 0].contiguous())


def read_pickle(path: Path) -> tuple[Tensor, Tensor]:
    """A file of the python layout: a pickled dict of an array of bytes and a list of labels."""
    content = read_bytes(path)
    try:
        batch = BatchUnpickler(io.BytesIO(content), encoding="bytes").load()
    except Refused as error:
        raise ValueError(f"{path}: {error}; nothing was executed") from None
    except Exception as error:  # a damaged pickle fails in any way
        reason = type(error).__name__
        raise ValueError(f"{path}: not a batch of CIFAR-10 ({reason}); it is truncated or damaged") from None
    pixels: Any = batch.get(b"data") if isinstance(batch, dict) else None
    labels: Any = batch.get(b"labels") if isinstance(batch, dict) else None
    is_array = isinstance(pixels, numpy.ndarray) and pixels.dtype == numpy.uint8 and pixels.shape[1:] == (PIXELS,)
    is_list = isinstance(labels, list) and all(type(label) is int and 0 <= label < 256 for label in labels)
    if not (is_array and is_list) or len(pixels) != len(labels) or not len(labels):
        raise ValueError(f"{path}: expected a dict of data, bytes (n, {PIXELS}), and labels, a list of n whole numbers")
    images = torch.from_numpy(numpy.ascontiguousarray(pixels)).view(-1, 3, 32, 32).clone()
    return images, check_labels(path, torch.tensor(labels, dtype=torch.uint8))


def check_labels(path: Path, labels: Tensor) -> Tensor:
    largest = int(labels.max())
    if largest >= len(CLASSES):
        raise ValueError(f"{path}: has the label {largest}, expected 0 to {len(CLASSES) - 1}; this is another data set")
    return labels


class Refused(Exception):
    """A pickle asks for something that no file of CIFAR-10 contains."""


class BatchUnpickler(pickle.Unpickler):
    """Reads plain values and arrays of numpy, and refuses everything else before it is imported."""

    def find_class(self, module: str, name: str) -> Any:
        # The official files name numpy as it was; newer versions moved its core.
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return rebuild_array
        if (module, name) == ("numpy", "ndarray"):
            return numpy.ndarray
        if (module, name) == ("numpy", "dtype"):
            return make_dtype
        if (module, name) == ("_codecs", "encode"):
            return encode
        raise Refused(f"refers to {module}.{name}, expected only arrays and plain values")

    def persistent_load(self, pid: Any) -> Any:
        raise Refused("refers to objects outside the file, expected only arrays and plain values")


def rebuild_array(cls: Any, shape: Any, kind: Any) -> Any:
    if cls is not numpy.ndarray:
        raise Refused("builds an array of another class")
    return numpy.ndarray((0,), numpy.uint8)


def make_dtype(name: Any, *_: Any) -> numpy.dtype[Any]:
    """The dtype of bytes, which is the only one here: one of objects could hold anything."""
    if name not in (b"u1", "u1"):
        raise Refused(f"has an array of {name!r}, expected bytes (u1)")
    return numpy.dtype("u1", copy=True)  # its own, because the pickle goes on to set its state


def encode(text: Any, encoding: Any = "latin1") -> bytes:
    """How Python 3 writes bytes in an old protocol."""
    if not isinstance(text, str) or encoding != "latin1":
        raise Refused(f"uses the encoding {encoding!r}, expected latin1")
    return text.encode("latin1")


def download(folder: Path) -> Path:
    """Fetch the binary layout into a folder that has no CIFAR-10; every file is checked before it is written."""
    try:
        find_layout(folder)
    except FileNotFoundError:
        for name, content in unpack(fetch(ORIGIN)):
            write_atomically(folder / BINARY / name, content)
    return folder


def fetch(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=60) as response:
            return response.read(256 << 20)
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise OSError(
            f"{address} can't be downloaded ({reason}); get {BINARY} elsewhere and pass its folder as --data"
        ) from None


def unpack(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """The six files of the archive, by name; whatever else is in it is left alone."""
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as files:
            for member in files:
                name = Path(member.name).name
                stream = files.extractfile(member) if member.isfile() and member.size <= LARGEST else None
                if name in CHECKSUMS and stream is not None:
                    contents[name] = stream.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise ValueError(f"{ORIGIN} is not an archive ({type(error).__name__}); try another source") from None
    for name, checksum in CHECKSUMS.items():
        digest = hashlib.md5(contents.get(name, b""), usedforsecurity=False).hexdigest()
        if digest != checksum:
            raise ValueError(f"{ORIGIN}: {name} has the MD5 {digest}, expected {checksum}; try another source")
    yield from contents.items()
