"""Experiments as data: what is run, what the paper prints, and claims that the measured results hold or do not.

A family of experiments is a file with a list ``EXPERIMENTS`` and joins by one line in :data:`FAMILIES`.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from oni.recipes.charts.chart import Chart

__all__ = [
    "FAMILIES",
    "Claim",
    "Comparison",
    "Experiment",
    "Results",
    "Run",
    "everything",
    "experiment",
    "registry",
    "rounded",
]

FAMILIES = [
    "oni.recipes.experiments.synthetic.family",
    "oni.recipes.experiments.synthetic.beside_olm",
    "oni.recipes.experiments.theorems.family",
    "oni.recipes.experiments.timing.tableA1",
    "oni.recipes.experiments.fashion_mnist.family",
]
"""Every file that has experiments of the paper."""
OWN = ["oni.recipes.demo"]
"""And of our own."""

DIGITS = 6


class Run(NamedTuple):
    """One measurement."""

    parameters: dict[str, Any]
    """What `Experiment.measure` was called with; plain values."""
    measured: dict[str, Any]
    """Numbers, and lists of them; ``None`` stands for one that is not finite."""


class Results(tuple[Run, ...]):
    """All runs of an experiment, or those of some kind.

    >>> results = Results([Run({"seed": 0}, {"delta": [2.0, 1.0]}), Run({"seed": 1}, {"delta": [4.0, 2.0]})])
    >>> results.where(seed=1).every("delta"), results.mean("delta")
    ([[4.0, 2.0]], [3.0, 1.5])
    """

    def where(self, **parameters: Any) -> Results:
        """The runs with these parameters."""
        return Results(run for run in self if all(run.parameters[key] == value for key, value in parameters.items()))

    def every(self, name: str) -> list[Any]:
        """A measured quantity of every run."""
        return [run.measured[name] for run in self]

    def mean(self, name: str) -> Any:
        """The mean over runs of a number, or of each in a list; infinite where one is not finite."""
        return self._over_runs(name, statistics.fmean)

    def deviation(self, name: str) -> Any:
        """The standard deviation over runs of a number, or of each in a list."""
        return self._over_runs(name, lambda values: statistics.stdev(values) if len(values) > 1 else 0.0)

    def _over_runs(self, name: str, of: Callable[[list[float]], float]) -> Any:
        def finite(values: Sequence[float | None]) -> float:
            known = [value for value in values if value is not None]
            return of(known) if len(known) == len(values) else math.inf

        found = self.every(name)
        return [finite(values) for values in zip(*found, strict=True)] if isinstance(found[0], list) else finite(found)


class Claim(NamedTuple):
    """A statement about the results, and the function that decides it: whether it held, and by which numbers."""

    text: str
    test: Callable[[Results], tuple[bool, str]]


class Comparison(NamedTuple):
    """A table: the measured numbers, beside the paper's where it prints some."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Experiment:
    """A figure, table or theorem of the paper, as something that can be run."""

    id: str
    title: str
    shows: str
    """What the paper says it shows."""
    choices: str
    """What the paper leaves open, and what was chosen."""
    presets: Mapping[str, Mapping[str, Any]]
    """Sizes, as arguments for ``runs``."""
    runs: Callable[..., list[dict[str, Any]]]
    """From the first seed and a preset's sizes to the parameters of every run."""
    measure: Callable[..., dict[str, Any]]
    """One run: from its parameters to numbers."""
    paper: Mapping[str, Any]
    """What the paper prints."""
    claims: Sequence[Claim]
    table: Callable[[Results], Comparison]
    draw: Callable[[Results], Figure]
    found: str = ""
    """Why claims do not hold in the results that are kept with this code, as far as was found out."""
    charts: Callable[[Results], list[Chart]] | None = None
    """The same as the report shows it, to be looked into; without it, the report has the picture."""
    trains: bool = False
    """Whether it trains networks: ``measure`` is then given a `Setting` first."""
    describe: Callable[[dict[str, Any]], str] | None = None
    """From the parameters of a run to a few words."""

    def planned(self, preset: str, seed: int = 0) -> list[dict[str, Any]]:
        """The parameters of every run of a preset."""
        if preset not in self.presets:
            raise ValueError(f"--preset {preset!r} is none of {self.id}'s; {nearest(preset, self.presets)}")
        if not 0 <= seed < 2**62:
            raise ValueError(f"seed must be at least 0 and below 2**62, got {seed}; pass for example 0")
        return self.runs(seed=seed, **self.presets[preset])

    def run(self, parameters: dict[str, Any], setting: Any = None) -> Run:
        return Run(parameters, rounded(self.measure(*([setting] if self.trains else []), **parameters)))

    def judged(self, results: Results) -> list[dict[str, Any]]:
        """Every claim with its verdict."""
        verdicts = [(claim.text, *claim.test(results)) for claim in self.claims]
        return [{"text": text, "held": held, "detail": detail} for text, held, detail in verdicts]


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """Plain values as they are recorded and judged: floats to so many digits, ``None`` for those not finite.

    >>> rounded({"delta": [7.92583123456, float("nan")], "steps": 3})
    {'delta': [7.92583, None], 'steps': 3}
    """
    if isinstance(value, dict):
        return {str(key): rounded(of, digits) for key, of in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(of, digits) for of in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def registry() -> dict[str, Experiment]:
    """Every experiment by its id, in the paper's order."""
    found = [one for family in FAMILIES for one in import_module(family).EXPERIMENTS]
    return {one.id: one for one in sorted(found, key=lambda one: paper_order(one.id))}


def everything() -> dict[str, Experiment]:
    """The paper's and our own."""
    return registry() | {one.id: one for family in OWN for one in import_module(family).EXPERIMENTS}


def paper_order(id: str) -> tuple[bool, str, int, str]:
    """Figures, tables, theorems, then those of the appendix; before all what is not the paper's.

    >>> sorted(["tableA2", "table1", "figA1", "fig10", "fig7b", "theorem1", "demo"], key=paper_order)
    ['demo', 'fig7b', 'fig10', 'table1', 'theorem1', 'figA1', 'tableA2']
    """
    match = re.fullmatch(r"([a-z]+)(A?)(\d+)([a-z]?)", id)
    if match is None:
        return False, "", 0, id
    kind, appendix, number, part = match.groups()
    return bool(appendix), kind, int(number), part


def experiment(id: str) -> Experiment:
    """The experiment of this id."""
    known = everything()
    if id not in known:
        raise ValueError(f"there is no experiment {id!r}; {nearest(id, known)}")
    return known[id]


def nearest(name: str, known: Mapping[str, Any]) -> str:
    """A hint.

    >>> nearest("labtop", {"smoke": 0, "laptop": 1})
    "the nearest is 'laptop', and all are: smoke, laptop"
    """
    written = {key.lower(): key for key in known}
    (close,) = get_close_matches(name.lower(), written, n=1, cutoff=0.0)
    return f"the nearest is {written[close]!r}, and all are: {', '.join(known)}"
