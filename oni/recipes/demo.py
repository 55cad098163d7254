"""``oni demo``: four networks a practitioner would choose from, a table, and a report to look into."""

from __future__ import annotations

from pathlib import Path

from oni.recipes.experiments.record import RUNS
from oni.recipes.experiments.setting import Setting
from oni.recipes.report.write import write_report
from oni.recipes.reproduce import Request, reproduce
from oni.terminal import console

__all__ = ["NEXT", "demo"]

NEXT = """\
import oni, torch
net = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
oni.convert(net, skip="2", scale="relu", learn_scale=True)   # train it as you always do
oni.bake(net)                                                # plain layers again
"""


def demo(out: Path, seed: int = 0, *, preset: str = "laptop", plain: bool = False) -> None:
    """Train all of them, print the table, write the report."""
    setting = Setting(out / RUNS, progress="lines" if plain else "auto")
    reproduce(Request("demo", preset, out, seed, plain=plain), setting)
    report = write_report([out / "demo"], out / "report.html")
    terminal = console(plain=plain)
    terminal.out("\nThe same to look into, in a browser:", report, sep="\n  ")
    terminal.out("\nNext, in Python:", *NEXT.splitlines(), sep="\n  ")
