"""``oni report``: one HTML file of what experiments and runs recorded, to open anywhere and to send to anyone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from oni.recipes.report.page import page
from oni.recipes.report.sources import read_sources

__all__ = ["write_report"]


def write_report(sources: Sequence[Path], to: Path) -> Path:
    """Write a report, all or nothing. The same sources give the same file, byte for byte.

    Args:
        sources: folders of experiments (made by ``oni reproduce``), of runs, or folders that hold such, up to two
            folders below.
        to: the file to write, over what is there; its folder is made.

    Returns:
        The path of the file.

    Raises:
        FileNotFoundError, ValueError: if a source is not there, holds neither, or has a file that is not what was
            recorded. The message names it and says what to do.
    """
    if to.is_dir():
        raise ValueError(f"{to}: is a folder, expected the name of a file; pass for example {to / 'report.html'}")
    # Strings of JSON may hold half of a surrogate pair, which no file can.
    text = page(*read_sources(sources)).encode("utf-8", "replace")
    to.parent.mkdir(parents=True, exist_ok=True)
    unfinished = to.with_name(f".{to.name}.{os.getpid()}.part")
    try:
        unfinished.write_bytes(text)
        os.replace(unfinished, to)
    except OSError:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    return to
