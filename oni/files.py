"""Files that are whole or not there, written under another name and then renamed; and JSON that others wrote."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = [
    "CannotWrite",
    "check_writable",
    "make_folder",
    "read_json",
    "replace_file",
    "sync_folder",
    "write_atomically",
]

DEEPEST = 50
"""How many lists and objects within each other a file may hold: far more than any file of ours, far from what makes
Python's own functions run out of stack."""


class CannotWrite(OSError):
    """A file or folder can't be written; what was there before still is."""

    exit_code = 74  # EX_IOERR of sysexits.h


def write_atomically(path: Path, content: bytes | memoryview | str) -> Path:
    """Write a file under another name, flush it to the disk, then rename it. Missing folders are made.

    Raises:
        CannotWrite: naming ``path``, whichever step failed; no partial file is left.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = write_atomically(Path(folder) / "a" / "b.txt", "whole")
    ...     path.read_text(), [file.name for file in path.parent.iterdir()]
    ('whole', ['b.txt'])
    """
    with replace_file(path) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield another path to write to; on leaving, that file takes the place of ``path``. Missing folders are made.

    A symbolic link stays one: its target is replaced. A device or a pipe, such as ``/dev/stdout``, is written to
    directly. The yielded path need not have the suffix of ``path``.

    Raises:
        CannotWrite: naming ``path``, whichever step failed, also where the writing itself raises ``OSError``.
    """
    with _naming(path):
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file() and not target.is_dir():
            yield target
            return
        make_folder(target.parent)
        partial = _partial(target)
        try:
            yield partial
            _sync(partial)
            os.replace(partial, target)
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
        sync_folder(target.parent)


def check_writable(path: Path) -> None:
    """Tell now, rather than after minutes of work, that a file can't be written; what is there stays as it is.

    A file that a user names must be in a folder that exists: a missing one is a slip more often than a wish.

    Raises:
        CannotWrite: naming ``path``.
    """
    with _naming(path):
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if target.is_file() or not target.exists():
            if not target.parent.exists():
                raise FileNotFoundError(errno.ENOENT, f"there is no folder {target.parent}; create it first")
            trial = _partial(target)
            trial.touch()
            trial.unlink()


def make_folder(path: Path) -> None:
    """Make a folder and those above it."""
    with _naming(path):
        path.mkdir(parents=True, exist_ok=True)


def sync_folder(path: Path) -> None:
    """Flush the names in a folder to the disk, where the system can."""
    with suppress(PermissionError):  # Windows opens no folders
        _sync(path)


def read_json(path: Path, *, remedy: str) -> Any:
    """What a JSON file holds; NaN, infinities and deep nesting are refused.

    Raises:
        ValueError: naming ``path``, what is wrong in it, and ``remedy``.
    """

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not a JSON number")

    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
        check_depth(content)
    except RecursionError:
        raise ValueError(f"{path}: not JSON (nested too deeply); {remedy}") from None
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error}); {remedy}") from None
    return content


def check_depth(content: Any) -> None:
    """Refuse lists and objects nested so deeply that looking at them would fail."""
    level = [content]
    for _ in range(DEEPEST + 1):
        containers = [item for item in level if isinstance(item, dict | list)]
        if not containers:
            return
        level = [item for part in containers for item in (part.values() if isinstance(part, dict) else part)]
    raise ValueError(f"nested more than {DEEPEST} deep")


def _partial(target: Path) -> Path:
    """The name to write under; the process's number keeps two writers of one file apart."""
    return target.with_name(f".{target.name}.{os.getpid()}.part")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn any OSError into one that names ``path``, not the temporary file or the folder that it is about."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if not isinstance(error, CannotWrite):
            reason = f"can't be written: {reason}"
        raise CannotWrite(error.errno, reason, str(path)) from error
