"""Which images a folder holds: ``train/<class>/*`` and ``val/<class>/*``, found once and then read from a cache.

The cache is one file in the user's cache folder. It records when every folder was last changed: after a file is added,
removed or renamed, the folder is searched again. A file that was changed in place is noticed by its size when it is
read.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy
from numpy.typing import NDArray

from oni.files import CannotWrite, write_atomically
from oni.terminal import printable

__all__ = ["PARTS", "SUFFIXES", "Files", "Index", "load_index"]

PARTS = ("train", "val")
SUFFIXES = (b".jpg", b".jpeg", b".png")
MAGIC = "oni image folder 1"
NO_SIZE = -1
"""The size of what is not a file, such as a broken link."""
UNSETTLED = 2_000_000_000
"""Nanoseconds after a change during which another change may not alter the folder's time."""


@dataclass(frozen=True)
class Files:
    """Files by number, in arrays: reference counts would make every process copy a list of a million names."""

    names: NDArray[numpy.uint8]
    """All paths below the folder, as bytes, one after the other."""
    ends: NDArray[numpy.int64]
    """Where each of them ends."""
    labels: NDArray[numpy.int32]
    sizes: NDArray[numpy.int64]
    """In bytes."""

    def __len__(self) -> int:
        return len(self.ends)

    def path(self, number: int) -> str:
        """A path below the folder."""
        start = int(self.ends[number - 1]) if number else 0
        return os.fsdecode(self.names[start : int(self.ends[number])].tobytes())

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        return self.names, self.ends, self.labels, self.sizes


@dataclass(frozen=True)
class Index:
    """The images of a folder, in the order of their classes and paths."""

    classes: tuple[str, ...]
    train: Files
    val: Files

    @property
    def sha256(self) -> str:
        """The digest of all names, classes and sizes; contents are not read."""
        digest = hashlib.sha256(json.dumps(self.classes).encode())
        for array in (*self.train.arrays, *self.val.arrays):
            digest.update(f"{len(array)} {array.dtype.str}".encode())
            digest.update(array.data)
        return digest.hexdigest()


def load_index(folder: Path, cache: Path | None = None) -> tuple[Index, str]:
    """The images of a folder and their digest, from the cache if nothing has changed since.

    Args:
        folder: holds ``train`` and ``val``, and these a folder for each class.
        cache: the folder of cached indexes; by default, ``oni`` in the user's cache folder.

    Raises:
        FileNotFoundError: if there are no such folders, or no images in them.
        ValueError: if ``val`` has a class that ``train`` lacks.
    """
    root = os.fsencode(os.path.realpath(folder))
    name = f"images-{hashlib.sha256(root).hexdigest()[:16]}.index"
    path = (cache or default_cache()) / name
    if (cached := read_cache(path, root)) is not None:
        return cached
    started = time.time_ns()
    index, changed = build_index(folder, root)
    sha256 = index.sha256
    header = {"magic": MAGIC, "root": os.fsdecode(root), "built": started, "sha256": sha256, "changed": changed}
    with suppress(CannotWrite):  # then it is searched again the next time
        write_atomically(path, dump(header, index))
    return index, sha256


def default_cache() -> Path:
    """The folder for files that can be made again."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "oni"


# The cache: a header, then the arrays, each in numpy's own format without pickles.


def dump(header: dict[str, Any], index: Index) -> bytes:
    text = json.dumps({**header, "classes": index.classes})
    content = io.BytesIO()
    for array in (numpy.frombuffer(text.encode(), numpy.uint8), *index.train.arrays, *index.val.arrays):
        numpy.save(content, array, allow_pickle=False)
    return content.getvalue()


def read_cache(path: Path, root: bytes) -> tuple[Index, str] | None:
    """The cached index of this folder and its digest; ``None`` if it is missing, damaged or out of date."""
    try:
        with path.open("rb") as file:
            header = json.loads(load_array(file).tobytes())
            if header["magic"] != MAGIC or header["root"] != os.fsdecode(root) or has_changed(root, header):
                return None
            train, val = (Files(*(load_array(file) for _ in range(4))) for _ in PARTS)
        index = Index(tuple(header["classes"]), train, val)
        return (index, header["sha256"]) if index.sha256 == header["sha256"] else None
    except Exception:  # a damaged file fails in any way, and the folder itself is there
        return None


def load_array(file: IO[bytes]) -> NDArray[Any]:
    return numpy.load(file, allow_pickle=False)


def has_changed(root: bytes, header: dict[str, Any]) -> bool:
    """Whether a folder was changed since, or so shortly before that its time can't tell."""
    for name, changed in header["changed"]:
        now = os.stat(os.path.join(root, os.fsencode(name))).st_mtime_ns
        if now != changed or now > header["built"] - UNSETTLED:
            return True
    return False


# The search.


@dataclass
class FolderSearch:
    """A search for images below a folder."""

    root: bytes
    changed: dict[bytes, int] = field(default_factory=dict)
    """When each folder was last changed, by its path."""

    def list_folder(self, path: bytes) -> list[os.DirEntry[bytes]]:
        """The entries of a folder, sorted by name."""
        full = os.path.join(self.root, path)
        self.changed[path] = os.stat(full).st_mtime_ns
        with os.scandir(full) as entries:
            return sorted(entries, key=lambda entry: entry.name)

    def classes(self, part: bytes) -> list[bytes]:
        """The folders of a part, without hidden ones."""
        return [entry.name for entry in self.list_folder(part) if not entry.name.startswith(b".") and entry.is_dir()]

    def images(self, path: bytes) -> list[tuple[bytes, int]]:
        """Paths and sizes of all images in a folder and below it; each folder once, however many links lead to it."""
        images: list[tuple[bytes, int]] = []
        seen: set[tuple[int, int]] = set()
        waiting = [path]
        while waiting:
            path = waiting.pop()
            status = os.stat(os.path.join(self.root, path))
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            folders = []
            for entry in self.list_folder(path):
                name = path + b"/" + entry.name
                if entry.is_dir():
                    folders.append(name)
                elif entry.name.lower().endswith(SUFFIXES):
                    images.append((name, entry.stat().st_size if entry.is_file() else NO_SIZE))
            waiting += reversed(folders)
        return sorted(images)


def build_index(folder: Path, root: bytes) -> tuple[Index, list[tuple[str, int]]]:
    """The images of the folder, and when each folder in it was last changed."""
    for name in PARTS:
        if not (folder / name).is_dir():
            raise FileNotFoundError(
                f"{folder / name}: no such folder; a folder of images contains train/CLASS/*.jpg and val/CLASS/*.jpg"
            )
    search = FolderSearch(root)
    classes = search.classes(b"train")
    numbers = {name: number for number, name in enumerate(classes)}
    parts = []
    for part in (b"train", b"val"):
        files: list[tuple[bytes, int, int]] = []
        for label in classes if part == b"train" else search.classes(part):
            if label not in numbers:
                raise ValueError(
                    f"{folder / 'val'} has the class {show(label)}, missing from {folder / 'train'}; remove or add it"
                )
            images = search.images(part + b"/" + label)
            if not images and part == b"train":
                raise FileNotFoundError(f"{folder / 'train' / show(label)}: no images (.jpg, .jpeg or .png) in it")
            files += [(path, numbers[label], size) for path, size in images]
        if not files:
            raise FileNotFoundError(
                f"{folder / os.fsdecode(part)}: no images (.jpg, .jpeg or .png) in a folder for each class"
            )
        parts.append(as_arrays(files))
    changed = [(os.fsdecode(path), when) for path, when in search.changed.items()]
    return Index(tuple(map(os.fsdecode, classes)), *parts), changed


def show(name: bytes) -> str:
    """A name without control characters, which could steer the terminal."""
    return printable(os.fsdecode(name))


def as_arrays(files: list[tuple[bytes, int, int]]) -> Files:
    names, labels, sizes = zip(*files, strict=True)
    return Files(
        numpy.frombuffer(b"".join(names), numpy.uint8),
        numpy.cumsum([len(name) for name in names], dtype=numpy.int64),
        numpy.array(labels, numpy.int32),
        numpy.array(sizes, numpy.int64),
    )
