"""A table as other programs want it: LaTeX, CSV or Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

from oni.recipes.experiments.experiment import Comparison, Quantity

__all__ = ["TABLE_FORMATS", "format_csv", "format_latex", "format_markdown"]

LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
}


def format_latex(comparison: Comparison) -> str:
    """A tabular of the package booktabs, its note as a comment."""

    def line(cells: Sequence[str]) -> str:
        return " & ".join("".join(LATEX.get(character, character) for character in cell) for cell in cells) + r" \\"

    columns = "l" + "r" * (len(comparison.columns) - 1)
    rows = "\n".join(map(line, comparison.rows))
    note = f"% {comparison.note}\n" if comparison.note else ""
    return (
        f"{note}\\begin{{tabular}}{{{columns}}}\n\\toprule\n{line(comparison.columns)}\n\\midrule\n{rows}\n"
        "\\bottomrule\n\\end{tabular}\n"
    )


def format_csv(comparison: Comparison) -> str:
    """Numbers as they were measured; a column with spreads is followed by a column of them."""
    spreads = [
        any(isinstance(cell, Quantity) and cell.spread is not None for cell in column)
        for column in zip(*comparison.cells, strict=True)
    ]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    header: list[object] = []
    for column, spread in zip(comparison.columns, spreads, strict=True):
        header += [column, f"{column} ±"] if spread else [column]
    writer.writerow(header)
    for row in comparison.cells:
        cells: list[object] = []
        for cell, spread in zip(row, spreads, strict=True):
            value, own = (cell.value, cell.spread) if isinstance(cell, Quantity) else (cell, None)
            cells += [value, own] if spread else [value]
        writer.writerow(["" if cell is None else cell for cell in cells])
    return text.getvalue()


def format_markdown(comparison: Comparison) -> str:
    """A table of GitHub's Markdown, and its note below."""

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"

    rule = ["---", *("---:" if comparison.note else "---" for _ in comparison.columns[1:])]
    lines = [line(comparison.columns), line(rule), *map(line, comparison.rows), ""]
    return "\n".join([*lines, comparison.note, ""] if comparison.note else lines)


TABLE_FORMATS: dict[str, Callable[[Comparison], str]] = {
    "latex": format_latex,
    "csv": format_csv,
    "markdown": format_markdown,
}
