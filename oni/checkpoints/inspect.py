"""``oni inspect``: the spectrum of every weight matrix in anybody's checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text
from torch import Tensor

from oni.checkpoints.files import read, state_dicts
from oni.diagnostics.spectrum import effective_rank_of, spectrum
from oni.models.bake_state_dict import Proxy, find_proxies
from oni.style import drawing
from oni.terminal import console

__all__ = ["Matrix", "inspect", "matrices", "named", "number", "show", "singular_values", "sparkline"]

LIMIT = 4096
DECOMPOSED = 256
"""Up to this short side by a singular value decomposition, beyond by the Gram matrix."""
BLOCK = 1 << 24
"""Entries of a large matrix that are turned into float64 at a time."""
WIDEST = 132
PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Matrix:
    """One weight as a matrix, with its singular values."""

    name: str
    kind: str
    """``weight``, ``proxy``, or ``baked``: the weight that a proxy stands for."""
    shape: tuple[int, ...]
    """Of the tensor."""
    size: tuple[int, int]
    """Of the matrix, of one of them if a weight is several."""
    sigma: Tensor | None
    """Largest first, of all its matrices; ``None`` if it was left out."""
    why: str = ""
    """Why it was left out."""

    def excess(self, side: int) -> float:
        """The square of the distance from orthonormal rows (side 0) or columns (side 1)."""
        if self.sigma is None:
            return math.nan
        several = self.sigma.numel() // min(self.size)
        return float((self.sigma.square() - 1).square().sum()) + several * (self.size[side] - min(self.size))

    @property
    def delta_row(self) -> float:
        return math.sqrt(self.excess(0))

    @property
    def delta_column(self) -> float:
        return math.sqrt(self.excess(1))

    @property
    def delta(self) -> float:
        """Of the short side."""
        return min(self.delta_row, self.delta_column)

    def at(self, share: float) -> float:
        """The singular value with this share of the others below it."""
        return math.nan if self.sigma is None else float(self.sigma.quantile(share))

    @property
    def condition(self) -> float:
        smallest, largest = self.at(0), self.at(1)
        return largest / smallest if smallest else math.inf if largest else math.nan

    @property
    def rank(self) -> float:
        return math.nan if self.sigma is None else float(effective_rank_of(self.sigma))


def inspect(
    path: Path, *, plot: Path | None = None, json_to: Path | None = None, limit: int = LIMIT, plain: bool = False
) -> None:
    """Read, compute, draw, print."""
    if limit < 1:
        raise ValueError(f"--limit must be at least 1, got {limit}")
    if plot is not None and plot.suffix not in PICTURES:
        raise ValueError(f"--plot {plot}: the name must end in {', '.join(PICTURES)}")
    terminal = console(plain=plain)
    # Written to a file, lines have room; console's own 80 columns are for prose.
    terminal.width = min(Console().width, WIDEST) if terminal.is_terminal else WIDEST
    states = state_dicts(read(path))
    jobs = [job for where, state in states.items() for job in matrices(where if len(states) > 1 else "", state)]
    if not jobs:
        tensors = sum(map(len, states.values()))
        raise ValueError(
            f"{path}: no weight matrices: it holds {tensors} tensors, none of floating-point numbers with two or more "
            "dimensions"
        )
    found = []
    with Progress(console=Console(stderr=True), transient=True, disable=plain or not terminal.is_terminal) as progress:
        for job in progress.track(jobs, description="Singular values"):
            found.append(computed(*job, limit=limit))
    if json_to is not None:
        json_to.write_text(json.dumps(record(path, found), indent=1, allow_nan=False) + "\n")
    if plot is not None:
        from oni.checkpoints.picture import draw

        with drawing():
            draw(found, path.name).savefig(plot, metadata={"Date": None} if plot.suffix == ".svg" else None)
    show(found, terminal, path, ascii_only=plain or not terminal.encoding.startswith("utf"))


def matrices(where: str, state: dict[str, Tensor]) -> Iterator[tuple[str, str, Tensor, Proxy | None]]:
    """The weights of a state dict: name, kind, tensor, and the proxy if it is one."""
    try:
        proxies = {proxy.prefix + "original": proxy for proxy in find_proxies(state)}
    except ValueError:
        # Options that can't be read keep nobody from looking at the proxies.
        proxies = {}
    for key, tensor in state.items():
        if not tensor.is_floating_point() or tensor.dim() < 2 or tensor.numel() == 0:
            continue
        name = f"{where}: {key}" if where else key
        layer, parametrized, rest = name.rpartition(".parametrizations.")
        if not parametrized and name.startswith("parametrizations."):
            parametrized, rest = "parametrizations.", name.removeprefix("parametrizations.")
        short = f"{layer}.{rest.partition('.')[0]}".lstrip(".") if parametrized else name
        if parametrized and not rest.endswith(".original"):
            yield name, "weight", tensor, None
        elif parametrized:
            proxy = proxies.get(key)
            if proxy is not None and proxy.saved is not None:
                yield short, "baked", tensor, proxy
            yield short, "proxy", tensor, proxy
        else:
            yield name, "weight", tensor, None


def computed(name: str, kind: str, tensor: Tensor, proxy: Proxy | None, *, limit: int = LIMIT) -> Matrix:
    shape = tuple(tensor.shape)
    # With sizes that no layer has, or groups that do not divide: as for any weight, one row a filter.
    layout = proxy.layout if proxy is not None else None
    rows, columns = shape[0], tensor.numel() // shape[0]
    if layout is not None and layout.filters(shape) % layout.groups == 0 and shape[0] % layout.groups == 0:
        rows = layout.filters(shape) // layout.groups
        columns = tensor.numel() // (rows * layout.groups)
    else:
        layout = None
    size = (rows, columns)
    why = ""
    if tensor.layout is not torch.strided:
        why = "sparse"
    elif tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        why = "not stored in full"
    elif min(size) > limit:
        why = f"its short side is over {limit}; --limit {min(size)} takes it in"
    if why:
        return Matrix(name, kind, shape, size, None, why)
    try:
        if kind == "baked" and proxy is not None and proxy.saved is not None:
            tensor = proxy.value(proxy.saved)
        W = layout.matrices(tensor) if layout is not None else tensor.reshape(rows, columns)
        return Matrix(name, kind, shape, size, singular_values(W))
    except (ValueError, NotImplementedError) as error:
        return Matrix(name, kind, shape, size, None, " ".join(str(error).split())[:60])


def singular_values(W: Tensor) -> Tensor:
    r"""All of them, largest first, of a matrix or of several together.

    With a short side over 256 as the roots of the eigenvalues of the Gram matrix, summed up in float64: some ten times
    faster, and a large matrix is never copied whole. Values below :math:`10^{-8} \sigma_{\max}` are noise then.
    """
    if W.dim() > 2:
        return torch.cat([singular_values(one) for one in W]).sort(descending=True).values
    W = W.detach()
    if min(W.shape) <= DECOMPOSED:
        return spectrum(W)
    if W.shape[0] > W.shape[1]:
        W = W.mT
    gram = W.new_zeros((W.shape[0], W.shape[0]), dtype=torch.float64)
    for block in W.split(max(1, BLOCK // W.shape[0]), dim=1):
        part = block.double()
        gram.addmm_(part, part.mT)
    if not bool(torch.isfinite(gram).all()):
        return gram.new_full((gram.shape[0],), math.nan)
    return torch.linalg.eigvalsh(gram).clamp(min=0).sqrt().flip(0)


def show(found: list[Matrix], terminal: Console, path: Path, *, ascii_only: bool = False) -> None:
    """Print the table."""
    terminal.out(f"{path}: {len(found)} weight matrices")
    terminal.out("")
    delta, sigma = ("d", "s") if ascii_only else ("δ", "σ")
    longest = max(len(named(one)) for one in found)
    wide = terminal.width >= 74 + min(longest, 40)
    table = Table(box=None if ascii_only else box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("weight", overflow="fold", ratio=None)
    table.add_column("matrix", justify="right", no_wrap=True)
    deltas = [f"{delta} row", f"{delta} col"] if wide else [f"{delta}"]
    ends = ["cond", "eff. rank"] if wide else ["cond"]
    for heading in (*deltas, f"{sigma} min", "median", "max", *ends):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(f"{sigma} / {sigma} max", no_wrap=True)
    for one in found:
        # As Text: names are anybody's, and no markup.
        start = (Text(named(one)), f"{one.size[0]} x {one.size[1]}")
        style = "dim" if one.kind == "proxy" or one.sigma is None else None
        if one.sigma is None:
            table.add_row(*start, *[""] * (len(deltas) + 3 + len(ends)), "left out", style=style)
            continue
        middle = [one.delta_row, one.delta_column] if wide else [one.delta]
        last = [">1e7" if one.condition >= 1e7 else f"{one.condition:.2g}", f"{one.rank:.1f}"][: len(ends)]
        cells = [*map(number, (*middle, one.at(0), one.at(0.5), one.at(1))), *last]
        table.add_row(*start, *cells, sparkline(one.sigma, 12, ascii_only), style=style)
    terminal.print(table)
    terminal.out("")
    for note in notes(found, wide, delta, sigma):
        terminal.print(Text(note))


def notes(found: list[Matrix], wide: bool, delta: str, sigma: str) -> Iterator[str]:
    """What the columns mean."""
    for one in found:
        if one.why:
            yield f"Left out: {named(one)}: {one.why}."
    whose = "of rows (row) and columns (col)" if wide else "of the short side"
    yield (
        f"{delta} is the distance from orthonormal, ||W W^T - I||, {whose}; an orthogonal weight with a scale has cond "
        f"1 instead. {sigma} are singular values, at the right from the largest to the smallest. A convolution's "
        f"weight is the matrix (out, in * kernel); its {sigma} do not bound the convolution: see oni.operator_norm."
    )
    if any(one.kind == "proxy" for one in found):
        yield "A proxy is what trains; the weight in use is computed from it, and shown too if its options were saved."


def named(one: Matrix) -> str:
    """Its name, with a word if it is a proxy."""
    return f"{one.name} (proxy)" if one.kind == "proxy" else one.name


def number(value: float) -> str:
    """Three digits.

    >>> number(0.98765), number(12.345), number(123456.0), number(0.00001)
    ('0.988', '12.3', '1.2e+05', '1e-05')
    """
    if value == 0 or math.isnan(value):
        return f"{value:g}"
    return f"{value:#.3g}".rstrip(".") if 1e-3 <= abs(value) < 1e4 else f"{value:.2g}"


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


def record(path: Path, found: list[Matrix]) -> dict[str, Any]:
    """Everything as JSON takes it; what is no finite number is null."""

    def finite(value: float) -> float | None:
        return value if math.isfinite(value) else None

    rows = []
    for one in found:
        rows.append(
            {
                "name": one.name,
                "kind": one.kind,
                "shape": one.shape,
                "matrix": one.size,
                "left_out": one.why or None,
                "delta_row": finite(one.delta_row),
                "delta_column": finite(one.delta_column),
                "sigma_min": finite(one.at(0)),
                "sigma_median": finite(one.at(0.5)),
                "sigma_max": finite(one.at(1)),
                "condition_number": finite(one.condition),
                "effective_rank": finite(one.rank),
                "sigma": None if one.sigma is None else [finite(value) for value in one.sigma.tolist()],
            }
        )
    return {"file": path.name, "matrices": rows}
