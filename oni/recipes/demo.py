"""``oni demo``: what Newton steps do to a weight, networks trained to a certificate, and a report to look into."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from oni.recipes.experiments.record import RUNS
from oni.recipes.experiments.registry import load_experiment
from oni.recipes.experiments.setting import Setting
from oni.recipes.experiments.studies.demo import find_spectra
from oni.recipes.report.write import write_report
from oni.recipes.reproduce import Request, reproduce
from oni.terminal import ascii_only, console

__all__ = ["NEXT", "demo", "draw_strip"]

NEXT = """\
import oni, torch
from oni.nn import GroupSort
net = torch.nn.Sequential(torch.nn.Linear(784, 256), GroupSort(), torch.nn.Linear(256, 10))
oni.convert(net, sigma_min=0.99, start="orthogonal", center=False)  # train it as you always do
images, labels = torch.rand(8, 784), torch.arange(8)
radii = oni.diagnostics.certified_radius(oni.bake(net).eval(), images, labels)
"""
BLOCKS, LETTERS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"
WIDEST = 64
EDGE = len("T = 8  |  smallest 0.000")


def demo(out: Path, seed: int = 0, *, preset: str = "laptop", plain: bool = False) -> None:
    """Draw the spectra of one weight, train the networks, print the table, write the report."""
    terminal = console(plain=plain)
    weight = load_experiment("demo").planned(preset, seed)[0]
    draw_spectra(find_spectra(weight), terminal, plain=plain)
    setting = Setting(out / RUNS, progress="lines" if plain else "auto")
    reproduce(Request("demo", preset, out, seed, plain=plain), setting)
    report = write_report([out / "demo"], out / "report.html")
    terminal.out("\nThe same as an interactive report, in a browser:", report, sep="\n  ")
    terminal.out("\nNext, in Python:", *NEXT.splitlines(), sep="\n  ")


def draw_spectra(spectra: dict[int, list[float]], terminal: Console, *, plain: bool) -> None:
    """A line for each number of steps: how many singular values lie where, from 0 at the left to 1 at the right."""
    ascii = ascii_only(terminal, plain=plain)
    width = max(10, min(WIDEST, terminal.width - EDGE))
    side = len(next(iter(spectra.values())))
    terminal.print(f"The singular values of a {side} x {side} weight after T Newton steps, from 0 to 1:\n")
    for steps, values in spectra.items():
        strip = draw_strip(values, width, LETTERS if ascii else BLOCKS)
        terminal.out(f"T = {steps}  {strip}|  smallest {min(values):.3f}", highlight=False)
    terminal.out("")


def draw_strip(values: Sequence[float], width: int, shades: str) -> str:
    """A histogram of one line over 0 to 1; any value in a bin shows.

    >>> draw_strip([0.1, 0.9, 0.9, 1.0], 4, " .#")
    '.  #'
    """
    counts = [0] * width
    for value in values:
        counts[min(width - 1, int(value * width))] += 1
    last, most = len(shades) - 1, max(counts)
    # The square root, so that a few beside many are seen.
    heights = [round(last * (count / most) ** 0.5) for count in counts]
    return "".join(shades[max(1, height) if count else 0] for height, count in zip(heights, counts, strict=True))
