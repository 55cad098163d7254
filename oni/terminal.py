"""What every command prints with: one console, one kind of table, and text that can't control the terminal.

rich is imported when something is printed with it, so that an error message needs no library.
"""

from __future__ import annotations

import math
import os
import sys
import unicodedata
from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["ascii_only", "console", "format_number", "printable", "shorten_name", "table"]

PIPED_WIDTH = 120
"""Columns where no terminal is in sight and COLUMNS is not set."""

SHORTEST_WORD = 3
"""Letters that a word of a shortened name keeps: its first, its last, and the sign between them."""


def console(*, plain: bool = False, stderr: bool = False) -> Console:
    """Standard output (or error) at the terminal's own width; without colour codes if ``plain`` or not a terminal."""
    from rich.console import Console

    return Console(
        stderr=stderr,
        width=terminal_width(),
        highlight=False,
        markup=False,
        emoji=False,
        color_system=None if plain else "auto",
        force_terminal=False if plain else None,
    )


def terminal_width() -> int:
    """COLUMNS, or the width of the terminal that output, errors or input belong to: ``oni inspect x.pt | less``."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    for stream in (sys.__stdout__, sys.__stderr__, sys.__stdin__):
        with suppress(AttributeError, ValueError, OSError):  # no stream, a closed one, no terminal
            width = os.get_terminal_size(stream.fileno()).columns  # type: ignore[union-attr]
            if width > 0:
                return width
    return PIPED_WIDTH


def ascii_only(terminal: Console, *, plain: bool = False) -> bool:
    """Whether to print nothing but ASCII: as asked for, or because the terminal knows no more."""
    return plain or not terminal.encoding.startswith("utf")


def table(ascii_only: bool) -> Table:
    """A table as all commands print it."""
    from rich import box
    from rich.table import Table

    lines = None if ascii_only else box.SIMPLE_HEAD
    return Table(box=lines, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))


def printable(text: str, *, ascii_only: bool = False) -> str:
    r"""The text with control characters shown instead of sent: a name in a file must not steer the terminal.

    >>> print(printable("weight\x1b[2J\n"), printable("σ", ascii_only=True))
    weight\x1b[2J\n \u03c3
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character if is_harmless(character) and (character.isascii() or not ascii_only) else escape(character)
        for character in text
    )


def is_harmless(character: str) -> bool:
    """Whether a character is a space or is seen as itself: no control, format, surrogate or separator character."""
    return character == " " or unicodedata.category(character)[0] not in "CZ"


def escape(character: str) -> str:
    """A character as Python writes it in a string."""
    return character.encode("unicode_escape").decode("ascii")


def shorten_name(name: str, most: int, *, ascii_only: bool = False) -> str:
    """A dotted name in at most so many characters: its longest words lose their middle.

    Short words such as the numbers of layers stay, so that names that differ there still do.

    >>> shorten_name("encoder.layers.11.self_attention.out_proj", 36)
    'encoder.layers.11.self…tion.out_proj'
    >>> shorten_name("no_dots_in_it", 9)
    'no_d…n_it'
    """
    mark = "~" if ascii_only else "…"

    def cut(word: str, most: int) -> str:
        head = most // 2
        return word if len(word) <= most else word[:head] + mark + word[len(word) - (most - 1 - head) :]

    words = name.split(".")
    lengths = range(SHORTEST_WORD, max(map(len, words)) + 1)
    room = most - (len(words) - 1)
    fitting = bisect_right(lengths, room, key=lambda length: sum(min(len(word), length) for word in words))
    return ".".join(cut(word, lengths[fitting - 1]) for word in words) if fitting else cut(name, most)


def format_number(value: float) -> str:
    """Three digits, in a form that stays short.

    >>> [format_number(value) for value in (0.98765, -12.345, 1234.5, 0.01234)]
    ['0.988', '-12.3', '1234', '0.0123']
    >>> [format_number(value) for value in (123456.0, 0.00001, 0.0, math.nan)]
    ['1.2e+05', '1e-05', '0', 'nan']
    """
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    exponent = int(f"{value:.2e}".partition("e")[2])
    return f"{value:.{max(0, 2 - exponent)}f}" if -3 <= exponent < 4 else f"{value:.2g}"
