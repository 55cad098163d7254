"""``oni list``: every experiment, without importing what draws or trains."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from oni.recipes.experiments.record import RESULTS
from oni.recipes.experiments.registry import load_all
from oni.terminal import ascii_only, console, table

__all__ = ["show_list"]


def show_list(out: Path, *, plain: bool = False) -> None:
    """Print every experiment, its presets, and where its results are."""
    terminal = console(plain=plain)
    rows = table(ascii_only(terminal, plain=plain))
    for column in ("id", "title", "presets", "results"):
        rows.add_column(column, overflow="fold")
    for id, experiment in load_all().items():
        path = out / id / RESULTS
        where = str(path.parent) if path.exists() else "-"
        rows.add_row(id, Text(experiment.title), " ".join(experiment.presets), Text(where))
    terminal.print(rows)
    terminal.out("\nNext: oni reproduce fig2 --preset smoke")
