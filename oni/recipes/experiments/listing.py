"""``oni list``: every experiment, without importing any of them, and torch with it.

What it prints is written in ``catalogue.py`` by ``python -m oni.recipes.experiments.listing``; a test says when to.
"""

from __future__ import annotations

from pathlib import Path

from oni.recipes.experiments.catalogue import CATALOGUE
from oni.terminal import ascii_only, console, table

__all__ = ["RESULTS_FOLDER", "format_catalogue", "show_list"]

RESULTS_FOLDER = Path("oni-results")
"""Where ``oni reproduce`` writes unless told otherwise: not ``results``, where the repository keeps its own."""
OF_THE_REPOSITORY = Path("results")

HEADING = '''\
"""What ``oni list`` prints: id, title and presets of every experiment.

Written by ``python -m oni.recipes.experiments.listing``.
"""

from __future__ import annotations

__all__ = ["CATALOGUE"]

'''


def show_list(out: Path | None = None, *, plain: bool = False) -> None:
    """Print every experiment, its presets, and where its results are: in ``out``, or the user's own before others."""
    from rich.text import Text

    terminal = console(plain=plain)
    rows = table(ascii_only(terminal, plain=plain))
    for column in ("id", "title", "presets", "results in"):
        rows.add_column(column, overflow="fold", no_wrap=column in ("id", "results in"))
    for id, (title, presets) in CATALOGUE.items():
        folders = [RESULTS_FOLDER, OF_THE_REPOSITORY] if out is None else [out]
        # The name is RESULTS of record.py, which loads torch.
        where = next((str(folder) for folder in folders if (folder / id / "results.json").exists()), "-")
        rows.add_row(id, Text(title), presets, Text(where))
    terminal.print(rows)
    terminal.out("\nNext: oni reproduce fig2 --preset smoke")


def format_catalogue() -> str:
    """The text of ``catalogue.py``, from the experiments themselves."""
    from oni.recipes.experiments.registry import load_all

    lines = [
        f'    "{id}": ("{experiment.title}", "{" ".join(experiment.presets)}"),\n'
        for id, experiment in load_all().items()
    ]
    return f"{HEADING}CATALOGUE = {{\n{''.join(lines)}}}\n"


if __name__ == "__main__":
    Path(__file__).with_name("catalogue.py").write_text(format_catalogue(), encoding="utf-8")
