"""``oni inspect``: the spectrum of every weight matrix in anybody's checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from oni.checkpoints.files import read, state_dicts
from oni.checkpoints.matrices import LIMIT, Matrix, measure, weights_of
from oni.checkpoints.table import SPARKLINE, TableLayout, show_table, to_ascii
from oni.files import check_writable, replace_file, write_atomically
from oni.terminal import ascii_only, console, printable

__all__ = ["inspect", "record", "show"]

PICTURES = (".png", ".svg", ".pdf")
NAMED = 20
"""Matrices that were left out and are named one by one."""


def inspect(
    path: Path, *, plot: Path | None = None, json_to: Path | None = None, limit: int = LIMIT, plain: bool = False
) -> None:
    """Read, compute, draw, print."""
    if limit < 1:
        raise ValueError(f"--limit must be at least 1, got {limit}")
    if plot is not None and plot.suffix not in PICTURES:
        raise ValueError(f"--plot {plot}: the name must end in {', '.join(PICTURES)}")
    for target in (plot, json_to):
        if target is not None:
            check_writable(target)
    states = state_dicts(read(path))
    weights = [
        weight for where, state in states.items() for weight in weights_of(state, where if len(states) > 1 else "")
    ]
    if not weights:
        tensors = sum(map(len, states.values()))
        raise ValueError(
            f"{path}: no weight matrices: none of its {tensors} tensors has floating-point numbers and two or more "
            "dimensions"
        )
    errors = console(plain=plain, stderr=True)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        matrices = [measure(weight, limit=limit) for weight in progress.track(weights, description="Singular values")]
    if json_to is not None:
        write_atomically(json_to, json.dumps(record(path, matrices), indent=1, allow_nan=False) + "\n")
    if plot is not None:
        save_picture(matrices, path.name, plot)
    terminal = console(plain=plain)
    show(matrices, terminal, path, plain=ascii_only(terminal, plain=plain))


def save_picture(matrices: Sequence[Matrix], title: str, path: Path) -> None:
    """Draw all spectra into a file."""
    from oni.checkpoints.picture import draw
    from oni.style import drawing

    with drawing(), replace_file(path) as partial:
        kind = path.suffix.removeprefix(".")
        draw(matrices, title).savefig(partial, format=kind, metadata={"Date": None} if kind == "svg" else None)


def show(matrices: Sequence[Matrix], terminal: Console, path: Path, *, plain: bool = False) -> None:
    """Print the table and what is to be said about it, in ASCII alone if ``plain``."""
    terminal.print(Text(f"{printable(str(path), ascii_only=plain)}: {len(matrices)} weight matrices\n"), soft_wrap=True)
    layout = show_table(matrices, terminal, ascii=plain)
    terminal.print()
    for note in (*name_left_out(matrices), *explain_columns(matrices, layout)):
        terminal.print(Text(printable(to_ascii(note) if plain else note, ascii_only=plain)))


def name_left_out(matrices: Sequence[Matrix]) -> Iterator[str]:
    """Which matrices were left out and why; of many, the first."""
    left_out = [matrix for matrix in matrices if matrix.why]
    for matrix in left_out[:NAMED]:
        yield f"Left out: {matrix.label}: {matrix.why}."
    if len(left_out) > NAMED:
        yield f"Left out: {len(left_out) - NAMED} more; --json FILE says why each."


def explain_columns(matrices: Sequence[Matrix], layout: TableLayout) -> Iterator[str]:
    """What the columns mean."""
    side = "of the short side" if "δ" in layout.columns else "of rows (row) and columns (col)"
    spark = "" if SPARKLINE in layout.missing else ", at the right from the largest to the smallest"
    yield (
        f"δ is the distance from orthonormal, ||W W^T - I||, {side}; an orthogonal weight with a scale has cond "
        f"1 instead. σ are singular values{spark}. A convolution's weight is the matrix (out, in * kernel); its σ do "
        "not bound the convolution: see oni.diagnostics.operator_norm."
    )
    if layout.missing:
        yield f"No room for {', '.join(layout.missing)}: a wider terminal shows more, --json FILE has every number."
    if any(matrix.kind == "proxy" for matrix in matrices):
        star = "" if any(name.endswith("(proxy)") for name in layout.names) else " (*)"
        yield (
            f"A proxy{star} is what trains; the weight in use is computed from it, and shown too if its options were "
            "saved."
        )


def record(path: Path, matrices: Sequence[Matrix]) -> dict[str, Any]:
    """Everything as JSON takes it; what is no finite number is null."""

    def finite(value: float) -> float | None:
        return value if math.isfinite(value) else None

    rows = [
        {
            "name": matrix.name,
            "kind": matrix.kind,
            "shape": matrix.shape,
            "matrix": matrix.size,
            "left_out": matrix.why or None,
            "delta_row": finite(matrix.delta_row),
            "delta_column": finite(matrix.delta_column),
            "sigma_min": finite(matrix.quantile(0)),
            "sigma_median": finite(matrix.quantile(0.5)),
            "sigma_max": finite(matrix.quantile(1)),
            "condition_number": finite(matrix.condition),
            "effective_rank": finite(matrix.rank),
            "sigma": None if matrix.sigma is None else [finite(value) for value in matrix.values],
        }
        for matrix in matrices
    ]
    return {"file": path.name, "matrices": rows}
