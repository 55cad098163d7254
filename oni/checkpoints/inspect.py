"""``oni inspect``: the spectrum of every weight matrix in anybody's checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.text import Text
from torch import Tensor

from oni.checkpoints.files import read, state_dicts
from oni.checkpoints.matrices import LIMIT, Matrix, measure, weights_of
from oni.files import check_writable, replace_file, write_atomically
from oni.terminal import ascii_only, console, format_number, printable, table

__all__ = ["inspect", "record", "show", "sparkline"]

PICTURES = (".png", ".svg", ".pdf")


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
            f"{path}: no weight matrices: it holds {tensors} tensors, none of floating-point numbers with two or more "
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
    """Print the table, in ASCII alone if ``plain``."""
    labels = [printable(matrix.label, ascii_only=plain) for matrix in matrices]
    terminal.print(Text(f"{printable(str(path), ascii_only=plain)}: {len(matrices)} weight matrices\n"), soft_wrap=True)
    delta, sigma = ("d", "s") if plain else ("δ", "σ")
    wide = terminal.width >= 74 + min(max(map(len, labels)), 40)
    deltas = [f"{delta} row", f"{delta} col"] if wide else [f"{delta}"]
    ends = ["cond", "eff. rank"] if wide else ["cond"]
    rows = table(plain)
    rows.add_column("weight", overflow="fold")
    for heading in ("matrix", *deltas, f"{sigma} min", "median", "max", *ends):
        rows.add_column(heading, justify="right", no_wrap=True)
    rows.add_column(f"{sigma} / {sigma} max", no_wrap=True)
    for label, matrix in zip(labels, matrices, strict=True):
        style = "dim" if matrix.kind == "proxy" or matrix.sigma is None else None
        rows.add_row(Text(label), f"{matrix.size[0]} x {matrix.size[1]}", *cells(matrix, wide, plain), style=style)
    terminal.print(rows)
    terminal.print()
    for note in notes(matrices, wide, delta, sigma):
        terminal.print(Text(printable(note, ascii_only=plain)))


def cells(matrix: Matrix, wide: bool, plain: bool) -> list[str]:
    """The cells of a row beside the name and the size."""
    if matrix.sigma is None:
        return [*[""] * (7 if wide else 5), "left out"]
    deltas = [matrix.delta_row, matrix.delta_column] if wide else [matrix.delta]
    condition = ">1e7" if matrix.condition >= 1e7 else f"{matrix.condition:.2g}"
    ends = [condition, f"{matrix.rank:.1f}"] if wide else [condition]
    quantiles = [matrix.quantile(share) for share in (0, 0.5, 1)]
    return [*map(format_number, (*deltas, *quantiles)), *ends, sparkline(matrix.sigma, 12, plain)]


def notes(matrices: Sequence[Matrix], wide: bool, delta: str, sigma: str) -> Iterator[str]:
    """What the columns mean, and what was left out."""
    for matrix in matrices:
        if matrix.why:
            yield f"Left out: {matrix.label}: {matrix.why}."
    side = "of rows (row) and columns (col)" if wide else "of the short side"
    yield (
        f"{delta} is the distance from orthonormal, ||W W^T - I||, {side}; an orthogonal weight with a scale has cond "
        f"1 instead. {sigma} are singular values, at the right from the largest to the smallest. A convolution's "
        f"weight is the matrix (out, in * kernel); its {sigma} do not bound the convolution: see "
        "oni.diagnostics.operator_norm."
    )
    if any(matrix.kind == "proxy" for matrix in matrices):
        yield "A proxy is what trains; the weight in use is computed from it, and shown too if its options were saved."


def sparkline(sigma: Tensor, width: int, ascii_only: bool = False) -> str:
    """Singular values as a share of the largest, from it to the smallest.

    >>> sigma = torch.tensor([1.0, 0.9, 0.5, 0.1, 0.0])
    >>> sparkline(sigma, 5), sparkline(sigma, 5, ascii_only=True)
    ('█▇▄▁ ', '98510')
    """
    if not bool(torch.isfinite(sigma).all()):
        return "NaN"
    chosen = sigma[torch.linspace(0, len(sigma) - 1, min(width, len(sigma))).round().long()]
    shares = (chosen / chosen[0]).nan_to_num(0).tolist()
    levels = "0123456789" if ascii_only else " ▁▂▃▄▅▆▇█"
    return "".join(levels[int(share * (len(levels) - 1) + 0.5)] for share in shares)


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
            "sigma": None if matrix.sigma is None else [finite(value) for value in matrix.sigma.tolist()],
        }
        for matrix in matrices
    ]
    return {"file": path.name, "matrices": rows}
