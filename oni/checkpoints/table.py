"""The table of ``oni inspect``: as many columns as fit beside names that can be told apart.

rich's own table takes about a millisecond a row, minutes for a checkpoint of many keys, so lines are put together here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

from oni.checkpoints.matrices import Matrix
from oni.terminal import format_number, printable, shorten_name

__all__ = ["TableLayout", "fit_columns", "show_table", "sparkline"]

GAP = "  "
READABLE = 36
"""Columns that names get before numbers do."""
NARROWEST = 8
PROXY = " *"
"""Behind the name of a proxy where names are short; " (proxy)" otherwise."""
SPARKLINE = "σ / σ max"
BARS = 12
BOTH_SIDES = ("δ row", "δ col")
SHED: tuple[tuple[str, ...], ...] = ((SPARKLINE,), ("median",), ("eff. rank",), BOTH_SIDES, ("cond",), ("matrix",))
"""What is left out where there is no room for everything, the first of these first. δ takes the place of both sides."""
CELLS: Mapping[str, Callable[[Matrix], str]] = {
    "matrix": lambda matrix: f"{matrix.size[0]} x {matrix.size[1]}",
    "δ row": lambda matrix: format_number(matrix.delta_row),
    "δ col": lambda matrix: format_number(matrix.delta_column),
    "δ": lambda matrix: format_number(matrix.delta),
    "σ min": lambda matrix: format_number(matrix.quantile(0)),
    "median": lambda matrix: format_number(matrix.quantile(0.5)),
    "max": lambda matrix: format_number(matrix.quantile(1)),
    "cond": lambda matrix: ">1e7" if matrix.condition >= 1e7 else f"{matrix.condition:.2g}",
    "eff. rank": lambda matrix: f"{matrix.rank:.1f}",
}


@dataclass(frozen=True)
class TableLayout:
    """What there is room for: a name for each matrix, and columns of cells by heading."""

    names: list[str]
    columns: dict[str, list[str]]

    @property
    def missing(self) -> list[str]:
        """The headings that there was no room for."""
        return [heading for group in SHED for heading in group if heading not in self.columns]


def show_table(matrices: Sequence[Matrix], terminal: Console, *, ascii: bool = False) -> TableLayout:
    """Print a line for each matrix, none wider than the terminal."""
    layout = fit_columns(matrices, terminal.width, ascii=ascii)
    terminal.print(Segments(draw_lines(matrices, layout, ascii=ascii)), soft_wrap=True)
    return layout


def fit_columns(matrices: Sequence[Matrix], width: int, *, ascii: bool = False) -> TableLayout:
    """Leave out columns until names are whole, or at least readable and different from each other."""
    columns = fill_columns(matrices, ascii=ascii)
    full = [printable(matrix.label, ascii_only=ascii) for matrix in matrices]
    short = shorten_labels(matrices, ascii=ascii)
    longest = max(map(cell_len, short))
    for shed in range(len(SHED) + 1):
        without = {heading for group in SHED[:shed] for heading in group}
        without |= set() if BOTH_SIDES[0] in without else {"δ"}
        chosen = {heading: cells for heading, cells in columns.items() if heading not in without}
        room = width - sum(len(GAP) + column_width(*column) for column in chosen.items())
        if shed == 0 and max(map(cell_len, full)) <= room:
            return TableLayout(full, chosen)
        if room < min(READABLE, longest) and shed < len(SHED):
            continue
        names = [fit_name(name, max(NARROWEST, room), ascii=ascii) for name in short]
        if names == short or (room >= READABLE and len(set(names)) == len(set(full))):
            break
    return TableLayout(names, chosen)


def fill_columns(matrices: Sequence[Matrix], *, ascii: bool) -> dict[str, list[str]]:
    """All columns; of a matrix that was left out, the size alone."""
    fill = {**CELLS, SPARKLINE: lambda matrix: sparkline(matrix.values, BARS, ascii_only=ascii)}
    return {
        heading: ["-" if matrix.sigma is None and heading != "matrix" else cell(matrix) for matrix in matrices]
        for heading, cell in fill.items()
    }


def shorten_labels(matrices: Sequence[Matrix], *, ascii: bool) -> list[str]:
    """Names without the ``.weight`` that most end in, if they still differ from each other, and a star for a proxy."""
    names = [printable(matrix.name, ascii_only=ascii) for matrix in matrices]
    short = [name.removesuffix(".weight") for name in names]
    unique = len(set(short)) == len(set(names))
    return [
        name + (PROXY if matrix.kind == "proxy" else "")
        for name, matrix in zip(short if unique else names, matrices, strict=True)
    ]


def fit_name(label: str, room: int, *, ascii: bool) -> str:
    """A label in so many columns of the terminal, of which those of the star are kept free."""
    if cell_len(label) <= room:
        return label
    name, star = (label.removesuffix(PROXY), PROXY) if label.endswith(PROXY) else (label, "")
    most = room - len(PROXY)
    while cell_len(fitted := shorten_name(name, most, ascii_only=ascii) + star) > room and most > 1:
        most -= 1  # some characters take two columns
    return fitted


def column_width(heading: str, cells: Sequence[str]) -> int:
    return max(len(heading), *map(len, cells))


def draw_lines(matrices: Sequence[Matrix], layout: TableLayout, *, ascii: bool) -> Iterator[Segment]:
    """The heading, a rule below it, and every matrix; proxies and what was left out are dim."""
    width = max(map(cell_len, ["weight", *layout.names]))
    columns = [(heading, column_width(heading, cells), cells) for heading, cells in layout.columns.items()]

    def join(name: str, cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(wide) if heading == SPARKLINE else cell.rjust(wide)
            for (heading, wide, _), cell in zip(columns, cells, strict=True)
        ]
        return GAP.join([name + " " * (width - cell_len(name)), *padded]).rstrip() + "\n"

    headings = join("weight", [heading for heading, _, _ in columns])
    yield Segment(to_ascii(headings) if ascii else headings, Style(bold=True))
    if not ascii:
        yield Segment("─" * (width + sum(len(GAP) + wide for _, wide, _ in columns)) + "\n")
    dim = Style(dim=True)
    for name, matrix, *cells in zip(layout.names, matrices, *layout.columns.values(), strict=True):
        yield Segment(join(name, cells), dim if matrix.kind == "proxy" or matrix.sigma is None else None)


def to_ascii(heading: str) -> str:
    """A heading in letters that every terminal has."""
    return heading.replace("δ", "d").replace("σ", "s")


def sparkline(values: Sequence[float], width: int, *, ascii_only: bool = False) -> str:
    """Singular values, largest first, as a share of the largest.

    >>> values = [1.0, 0.9, 0.5, 0.1, 0.0]
    >>> sparkline(values, 5), sparkline(values, 5, ascii_only=True)
    ('█▇▄▁ ', '98510')
    """
    count, last = min(width, len(values)), len(values) - 1
    chosen = [values[round(index * last / max(1, count - 1))] for index in range(count)]
    if not math.isfinite(chosen[0]):  # NaN is sorted before all numbers
        return "NaN"
    levels = "0123456789" if ascii_only else " ▁▂▃▄▅▆▇█"
    shares = [value / chosen[0] if chosen[0] else 0.0 for value in chosen]
    return "".join(levels[int(share * (len(levels) - 1) + 0.5)] for share in shares)
