"""What every command prints with: one console, one kind of table, and text that can't control the terminal."""

from __future__ import annotations

import unicodedata

from rich import box
from rich.console import Console
from rich.table import Table

__all__ = ["ascii_only", "console", "printable", "table"]

PIPED_WIDTH = 120
"""Columns where the output is no terminal, unless COLUMNS says otherwise."""


def console(*, plain: bool = False, stderr: bool = False) -> Console:
    """Standard output (or error) at the terminal's own width; without colour codes if ``plain`` or not a terminal."""
    made = Console(
        stderr=stderr,
        highlight=False,
        markup=False,
        emoji=False,
        color_system=None if plain else "auto",
        force_terminal=False if plain else None,
    )
    if not made.is_terminal and "COLUMNS" not in made._environ:
        made.width = PIPED_WIDTH
    return made


def ascii_only(terminal: Console, *, plain: bool = False) -> bool:
    """Whether to print nothing but ASCII: as asked for, or because the terminal knows no more."""
    return plain or not terminal.encoding.startswith("utf")


def table(ascii_only: bool) -> Table:
    """A table as all commands print it."""
    lines = None if ascii_only else box.SIMPLE_HEAD
    return Table(box=lines, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))


def printable(text: str) -> str:
    r"""The text with control characters shown instead of sent: a name in a file must not steer the terminal.

    >>> print(printable("weight\x1b[2J\n"))
    weight\x1b[2J\n
    """
    return "".join(
        character if character == " " or unicodedata.category(character)[0] not in "CZ" else escaped(character)
        for character in text
    )


def escaped(character: str) -> str:
    """A character as Python writes it in a string."""
    return character.encode("unicode_escape").decode("ascii")
