"""Files that are whole or not there: written under another name, then renamed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["CannotWrite", "make_folder", "sync_folder", "write_atomically"]


class CannotWrite(OSError):
    """A file or folder can't be written; what was there before still is."""

    exit_code = 74  # EX_IOERR of sysexits.h


def write_atomically(path: Path, content: bytes | str) -> Path:
    """Write a file under another name, flush it to the disk, then rename it. Missing folders are made.

    Raises:
        CannotWrite: naming ``path``, whichever step failed; no partial file is left.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = write_atomically(Path(folder) / "a" / "b.txt", "whole")
    ...     path.read_text(), [file.name for file in path.parent.iterdir()]
    ('whole', ['b.txt'])
    """
    data = content.encode() if isinstance(content, str) else content
    make_folder(path.parent)
    # The process's number keeps two writers of one file apart.
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise CannotWrite(error.errno, error.strerror, str(path)) from error
    return path


def make_folder(path: Path) -> None:
    """Make a folder and those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(error.errno, error.strerror, str(path)) from error


def sync_folder(path: Path) -> None:
    """Flush the names in a folder to the disk, where the system can."""
    with suppress(PermissionError):  # Windows opens no folders
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
