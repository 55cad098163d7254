"""``oni report``: one HTML file of what experiments and runs recorded, to open anywhere and to send to anyone."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path

from oni.files import write_atomically
from oni.recipes.report.page import render_page
from oni.recipes.report.sources import read_sources

__all__ = ["open_report", "write_report"]


def write_report(sources: Sequence[Path], to: Path, own: Sequence[str] = ()) -> Path:
    """Write a report, all or nothing. The same sources give the same file, byte for byte.

    Args:
        sources: folders of experiments (made by ``oni reproduce``), of runs, or folders that hold such, up to two
            folders below.
        to: the file to write, over what is there; its folder is made.
        own: experiments of the user's own, ``package.module:EXPERIMENT``, whose code may be imported.

    Returns:
        The path of the file.

    Raises:
        FileNotFoundError, ValueError: if a source does not exist, holds neither, or has a file that can't be read. The
            message names it and says what to do.
        CannotWrite: if the file can't be written; it names the file, and what was there before still is.
    """
    if to.is_dir():
        raise ValueError(f"{to}: is a folder, expected the name of a file; pass for example {to / 'report.html'}")
    return write_atomically(to, render_page(*read_sources(sources, own)))


def open_report(path: Path) -> None:
    """Show the file in the user's browser."""
    if not webbrowser.open(path.resolve().as_uri()):
        raise ValueError(f"no browser found to open {path}; open it by hand")
