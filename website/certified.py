"""Tables of what is known without measuring: how many steps a range of singular values needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import oni
from oni.recipes.experiments.experiment import Comparison
from oni.recipes.experiments.table_formats import format_markdown

__all__ = ["CERTIFIED"]


def steps_needed(results: Path, lower: Sequence[float], targets: Sequence[float]) -> str:
    """Steps of Newton's and of the minimax schedule made for the lower end, for every target."""
    columns = ["from"]
    for target in targets:
        columns += [f"to {target:g}: newton", "minimax"]
    rows = []
    for end in lower:
        row = [f"{end:g}"]
        for target in targets:
            for schedule in ("newton", f"minimax:{end:g}"):
                row.append(str(oni.steps_for((end, 1.0), target, schedule=schedule)))
        rows.append(row)
    return format_markdown(Comparison(columns, rows, note=" ")).rstrip()


CERTIFIED: Mapping[str, Callable[..., str]] = {"steps-needed": steps_needed}
