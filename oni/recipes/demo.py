"""``oni demo``: what each Newton step does to the spectrum of the paper's example matrix."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

from oni.diagnostics.spectrum import orthogonality, spectrum
from oni.newton.bounding import BOUNDS
from oni.newton.orthogonalize import orthogonalize
from oni.recipes.style import COLOURS, PAGE_WIDTH, console, drawing, save, tint

__all__ = ["NEXT", "Trajectory", "demo", "draw", "paper_matrix", "show", "trajectories"]

STEPS = 10
CLOSE = 0.1
"""The delta that the demo calls close to orthogonal."""

NEXT = """\
import oni, torch
W = oni.orthogonalize(torch.randn(64, 256), steps=5)
print(torch.linalg.svdvals(W))
"""


@dataclass(frozen=True)
class Trajectory:
    """One way to bound a matrix, and where each number of steps takes it."""

    center: bool
    bound: str
    delta: Tensor
    r""":math:`\|W W^\top - I\|_F` after 0, 1, ... steps; shape (STEPS + 1,)."""
    sigma: Tensor
    """The singular values of W after as many steps, largest first; shape (STEPS + 1, n)."""

    @property
    def centring(self) -> str:
        return "centred" if self.center else "uncentred"

    def steps_until(self, delta: float) -> int | None:
        """The fewest steps with a distance below ``delta``; ``None`` if there are not enough."""
        return next((steps for steps, reached in enumerate(self.delta.tolist()) if reached < delta), None)


def paper_matrix(seed: int = 0) -> Tensor:
    """The matrix of the paper's Figures 2 and 3: 64 x 256 entries of N(3, 1)."""
    if not 0 <= seed < 2**63:
        raise ValueError(f"seed must be at least 0 and below 2**63, got {seed}; pass for example 0")
    return 3 + torch.randn(64, 256, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def trajectories(Z: Tensor) -> list[Trajectory]:
    """Orthogonalise Z with every number of steps, uncentred and centred, under each bound."""
    found = []
    with one_thread():
        for center in (False, True):
            for bound in BOUNDS:
                W = torch.stack([orthogonalize(Z, t, center=center, bound=bound) for t in range(STEPS + 1)])
                found.append(Trajectory(center, bound, orthogonality(W).row, spectrum(W)))
    return found


@contextmanager
def one_thread() -> Iterator[None]:
    """Matrices this small gain nothing from threads, and on a busy machine lose a minute waiting for them."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def demo(out: Path, seed: int = 0, *, plain: bool = False) -> None:
    """Compute, draw, print: in this order, so that a folder that can't be written to is told first."""
    terminal = console(plain=plain)
    Z = paper_matrix(seed)
    out.mkdir(parents=True, exist_ok=True)
    with terminal.status("Orthogonalising and drawing"):
        found = trajectories(Z)
        with drawing():
            pictures = save(draw(found), out, "demo")
    show(found, terminal, ascii_only=plain or not terminal.encoding.startswith("utf"), seed=seed)
    terminal.out("\nThe same as a picture:", *pictures, sep="\n  ")
    terminal.out("\nNext, in Python:", *NEXT.splitlines(), sep="\n  ")


def show(found: list[Trajectory], terminal: Console, *, ascii_only: bool = False, seed: int = 0) -> None:
    """Print what the trajectories show."""
    terminal.print(
        "W = oni.orthogonalize(Z, steps) keeps the singular vectors of Z and pushes its singular values "
        f"towards 1, never past it. Z is the paper's example: 64 x 256 entries of N(3, 1), seed {seed}.\n"
    )
    terminal.print("[bold]How far W is from orthonormal rows: delta = ||W W^T - I||[/bold]")
    terminal.print(delta_table(found, ascii_only))
    terminal.print()
    slow, paper = by_name(found)["uncentred", "frobenius"], by_name(found)["centred", "compact"]
    terminal.print("[bold]Where the singular values of W are, from 0 to 1: smallest, median, largest[/bold]")
    terminal.print(sigma_table([slow, paper], ascii_only))
    terminal.print()
    bullet = Table.grid(padding=(0, 1, 0, 0))
    for finding in findings(found):
        bullet.add_row("*", finding)
    terminal.print(bullet)


def by_name(found: list[Trajectory]) -> dict[tuple[str, str], Trajectory]:
    return {(trajectory.centring, trajectory.bound): trajectory for trajectory in found}


def findings(found: list[Trajectory]) -> list[str]:
    """What one sees, in sentences."""
    named = by_name(found)
    slow, compact = named["uncentred", "frobenius"], named["centred", "compact"]
    steps = {bound: count(named["centred", bound].steps_until(CLOSE)) for bound in BOUNDS}
    return [
        "Uncentred, the direction that all rows share, their mean, dominates: its singular value starts at "
        f"{slow.sigma[0, 0]:.2f}, the median at {slow.sigma[0].median():.2f}. No bound changes that.",
        "Centring removes that direction. With the compact bound, the paper's choice, the median starts at "
        f"{compact.sigma[0].median():.2f} and delta is below {CLOSE} after {steps['compact']} steps; "
        f"with frobenius after {steps['frobenius']}.",
        "The tight bound, which is not in the paper, starts about where compact is after two steps, and is "
        f"below {CLOSE} after {steps['tight']}.",
    ]


def count(steps: int | None) -> str:
    return f"over {STEPS}" if steps is None else str(steps)


def table(ascii_only: bool) -> Table:
    lines = None if ascii_only else box.SIMPLE_HEAD
    return Table(box=lines, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))


def delta_table(found: list[Trajectory], ascii_only: bool = False) -> Table:
    """Steps by variants, with a bar for each number."""
    rows = table(ascii_only)
    rows.add_column("\nsteps", justify="right")
    for trajectory in found:
        rows.add_column(f"{trajectory.centring}\n{trajectory.bound}", style=COLOURS[trajectory.bound])
    full = max(float(trajectory.delta.max()) for trajectory in found)
    for steps in range(STEPS + 1):
        cells = [float(trajectory.delta[steps]) for trajectory in found]
        rows.add_row(str(steps), *(f"{delta:.3f} {bar(delta / full, 4, ascii_only)}" for delta in cells))
    rows.add_section()
    reached = [trajectory.steps_until(CLOSE) for trajectory in found]
    rows.add_row(f"<{CLOSE}", *("not yet" if steps is None else f"after {steps}" for steps in reached))
    return rows


def sigma_table(found: list[Trajectory], ascii_only: bool = False) -> Table:
    """Steps by smallest, median and largest singular value, with their range drawn between 0 and 1."""
    rows = table(ascii_only)
    rows.add_column("\nsteps", justify="right")
    for trajectory in found:
        title = f"{trajectory.centring}, {trajectory.bound}"
        rows.add_column(f"{title}\n  min   med   max  0{'1':>15}", style=COLOURS[trajectory.bound])
    for steps in range(STEPS + 1):
        cells = []
        for trajectory in found:
            sigma = trajectory.sigma[steps]
            low, middle, high = float(sigma.min()), float(sigma.median()), float(sigma.max())
            cells.append(f"{low:.3f} {middle:.3f} {high:.3f}  {strip(low, middle, high, 16, ascii_only)}")
        rows.add_row(str(steps), *cells)
    return rows


def bar(fraction: float, width: int, ascii_only: bool = False) -> str:
    """A horizontal bar.

    >>> bar(0.6, 4, ascii_only=True), bar(0.6, 4)
    ('##  ', '██▍ ')
    """
    if ascii_only:
        return ("#" * round(fraction * width)).ljust(width)
    full, eighths = divmod(round(fraction * width * 8), 8)
    return ("█" * full + " ▏▎▍▌▋▊▉"[eighths].strip()).ljust(width)


def strip(low: float, middle: float, high: float, width: int, ascii_only: bool = False) -> str:
    """A range and its median on an axis from 0 to 1.

    >>> strip(0.1, 0.7, 0.9, 10, ascii_only=True)
    ' -----o-- '
    """
    line, point = "-o" if ascii_only else "─●"
    first, at, last = (min(round(value * (width - 1)), width - 1) for value in (low, middle, high))
    cells = [line if first <= cell <= last else " " for cell in range(width)]
    cells[at] = point
    return "".join(cells)


def draw(found: list[Trajectory]) -> Figure:
    """The picture: delta by steps for every variant, and two spectra as the steps go on."""
    figure = Figure(figsize=(PAGE_WIDTH, 3.0))
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.2, 1, 1))
    draw_delta(left, found)
    right.sharey(middle)
    draw_spectra(middle, by_name(found)["uncentred", "frobenius"])
    draw_spectra(right, by_name(found)["centred", "compact"])
    middle.set_ylabel(r"singular values $\sigma$ of $W$")
    right.tick_params(labelleft=False)
    handles = sorted(left.lines, key=lambda line: list(COLOURS.values()).index(str(line.get_color())))
    figure.legend(handles=handles, ncols=len(BOUNDS), loc="outside lower center", handlelength=3.2)
    return figure


def draw_delta(axes: Axes, found: list[Trajectory]) -> None:
    # Uncentred, compact and tight are one curve; dashes that start apart let both colours be seen.
    dash_starts = {"frobenius": 0.0, "compact": 0.0, "tight": 2.5}
    for trajectory in found:
        axes.plot(
            trajectory.delta.tolist(),
            color=COLOURS[trajectory.bound],
            linestyle="-" if trajectory.center else (dash_starts[trajectory.bound], (2.5, 2.5)),
            marker="o" if trajectory.center else None,
            label=f"{trajectory.centring}, {trajectory.bound}",
            clip_on=False,
        )
    axes.set(xlabel="steps", xticks=range(0, STEPS + 1, 2))
    axes.set(ylabel=r"$\delta = \|WW^\top - I\|_F$", ylim=(0, 8.3))
    axes.set_title("Distance from orthogonal")


def draw_spectra(axes: Axes, trajectory: Trajectory) -> None:
    rank = range(1, trajectory.sigma.shape[1] + 1)
    labels: list[tuple[float, str]] = []
    for steps in range(0, STEPS + 1, 2):
        sigma = trajectory.sigma[steps].tolist()
        colour = tint(COLOURS[trajectory.bound], 0.3 + 0.7 * steps / STEPS)
        axes.plot(rank, sigma, color=colour, marker="o", markevery=[0])
        if labels and sigma[-1] < 1.2 * labels[-1][0]:  # too close to the line below for a label of its own
            labels[-1] = (labels[-1][0], f"{labels[-1][1]}, {steps}")
        else:
            labels.append((sigma[-1], str(steps) if steps else "0 steps"))
    for height, text in labels:
        axes.annotate(text, (rank[-1], height), (5, 0), textcoords="offset points", va="center")
    axes.set(xlabel="rank, largest first", xlim=(-2, rank[-1]), xticks=[1, 16, 32, 48, 64], yscale="log")
    axes.set_yticks([0.02, 0.05, 0.1, 0.2, 0.5, 1], ["0.02", "0.05", "0.1", "0.2", "0.5", "1"])
    axes.minorticks_off()
    axes.set_title(f"Spectrum: {trajectory.centring}, {trajectory.bound}", color=COLOURS[trajectory.bound])
