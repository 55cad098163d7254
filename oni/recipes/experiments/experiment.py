"""An experiment as data: its runs, its presets, the paper's numbers, and the claims about its results.

Nothing here imports a plotting library or the training engine, so that listing all experiments stays quick.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from oni.names import unknown_name
from oni.recipes.experiments.runs import Training, measure
from oni.recipes.experiments.verdicts import Judgement, Kind, Verdict, as_verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = [
    "SKIPPED",
    "Claim",
    "Comparison",
    "Experiment",
    "Quantity",
    "Results",
    "Run",
    "read_parameters",
    "round_numbers",
]

DIGITS = 6
SKIPPED = "skipped"
"""The status of a run that needs a package that is not installed."""


@dataclass(frozen=True)
class Run:
    """A run and its measurements."""

    parameters: Any
    """A frozen dataclass of the experiment's family."""
    measured: dict[str, Any]
    """Numbers, lists and objects of them; ``None`` stands for a number that is not finite. Empty before the run."""


class Results(tuple[Run, ...]):
    """All runs of an experiment, or some of them.

    >>> from types import SimpleNamespace as Parameters
    >>> runs = [Run(Parameters(seed=0), {"delta": [2.0, 1.0]}), Run(Parameters(seed=1), {"delta": [4.0, 2.0]})]
    >>> Results(runs).where(seed=1).values("delta"), Results(runs).mean("delta")
    ([[4.0, 2.0]], [3.0, 1.5])
    """

    def find(self, parameters: Any) -> Run | None:
        """The first run with exactly these parameters."""
        return next((run for run in self if run.parameters == parameters), None)

    def where(self, **parameters: Any) -> Results:
        """The runs with these parameters; a run that lacks one of them is left out."""

        def matches(run: Run) -> bool:
            return all(getattr(run.parameters, name, None) == value for name, value in parameters.items())

        return Results(filter(matches, self))

    def values(self, name: str) -> list[Any]:
        """A measured quantity of every run."""
        return [run.measured[name] for run in self]

    def mean(self, name: str) -> Any:
        """The mean over runs of a number, or of each number of a list; infinite if one is not finite."""
        return self._aggregate(name, statistics.fmean)

    def deviation(self, name: str) -> Any:
        """The standard deviation over runs of a number, or of each number of a list."""
        return self._aggregate(name, lambda values: statistics.stdev(values) if len(values) > 1 else 0.0)

    def size(self, name: str) -> float:
        """The number of ``"seeds"``, or the smallest value of a parameter over all runs."""
        values = [getattr(run.parameters, name) for run in self if hasattr(run.parameters, name)]
        seeds = {run.parameters.seed for run in self if hasattr(run.parameters, "seed")}
        return len(seeds) if name == "seeds" else min(values, default=0)

    def _aggregate(self, name: str, function: Callable[[list[float]], float]) -> Any:
        def aggregate(values: Iterable[float | None]) -> float:
            numbers = list(values)
            return math.inf if None in numbers else function([value for value in numbers if value is not None])

        values = self.values(name)
        if isinstance(values[0], list):
            return [aggregate(column) for column in zip(*values, strict=True)]
        return aggregate(values)


@dataclass(frozen=True)
class Claim:
    """A statement about the results, and the function that judges it."""

    kind: Kind
    text: str
    judge: Callable[[Results], Judgement]
    needs: Mapping[str, float] = field(default_factory=dict)
    """The least sizes of its runs, see `Results.size`. With less, it is not tested."""
    of: Callable[[Results], Results] = Results
    """Selects the runs that it is about."""

    def record(self, results: Results, preset: str) -> dict[str, str]:
        """The claim and its verdict as ``results.json`` holds them.

        Args:
            results: all runs that are planned. The claim is not decided while one that it is about is not measured.
            preset: of the runs.
        """
        runs = self.of(results)
        measured = Results(run for run in runs if run.measured)
        verdict, detail = self.decide(measured, preset, partial=len(measured) < len(runs))
        if missing := len(runs) - len(measured):
            verdict = Verdict.NOT_TESTED
            detail = f"{missing} {'runs are' if missing > 1 else 'run is'} not yet measured; so far: {detail}"
        return {"kind": self.kind.value, "text": self.text, "verdict": as_verdict(verdict).value, "detail": detail}

    def decide(self, results: Results, preset: str, *, partial: bool) -> Judgement:
        """The verdict on measured runs; a part of them may lack what the claim is about."""
        if reason := self.untestable(results, preset):
            return Verdict.NOT_TESTED, reason
        try:
            return self.judge(results)
        except (ArithmeticError, LookupError, ValueError):
            if not partial:
                raise
            return Verdict.NOT_TESTED, "not enough to judge"

    def untestable(self, results: Results, preset: str) -> str:
        """Why these runs can't test the claim; empty if they can."""
        if preset == "smoke":
            return "the preset smoke only shows that everything runs"
        if not results:
            return "not yet measured"
        for name, least in self.needs.items():
            size = results.size(name)
            if size < least:
                return f"the runs have {name} = {size:g}, and this needs at least {least:g}"
        return ""


@dataclass(frozen=True)
class Quantity:
    """A number in a table.

    >>> print(Quantity(12.3456, 0.2), Quantity(0.1, digits=None), Quantity(None))
    12.35 ± 0.20 0.1 -
    """

    value: float | None
    spread: float | None = None
    """The standard deviation over seeds, or half of an interval."""
    digits: int | None = 2
    """Digits after the point; ``None`` for as many as needed."""

    def __str__(self) -> str:
        if self.value is None:
            return "-"
        if not math.isfinite(self.value):
            return "inf"
        if self.digits is None:
            return f"{self.value:g}"
        if abs(self.value) >= 1000 and self.digits:
            return f"{self.value:.0e}"
        spread = "" if self.spread is None else f" ± {self.spread:.{self.digits}f}"
        return f"{self.value:.{self.digits}f}{spread}"

    def as_json(self) -> Any:
        """The number alone, or an object with its spread."""
        value, spread = round_numbers([self.value, self.spread])
        return value if self.spread is None else {"value": value, "spread": spread}


Cell = str | Quantity


@dataclass(frozen=True)
class Comparison:
    """A table of the measured numbers, and of the paper's where it prints some."""

    columns: Sequence[str]
    cells: Sequence[Sequence[Cell]]
    note: str = ""

    @property
    def rows(self) -> list[list[str]]:
        """The cells as text."""
        return [[str(cell) for cell in row] for row in self.cells]

    def as_json(self) -> dict[str, Any]:
        """The table with its numbers as numbers."""
        rows = [[cell.as_json() if isinstance(cell, Quantity) else cell for cell in row] for row in self.cells]
        return {"columns": list(self.columns), "rows": rows, "note": self.note}


@dataclass(frozen=True)
class Experiment:
    """A figure, table or theorem of the paper, or a study of our own, as something that can be run."""

    id: str
    title: str
    shows: str
    """What the paper says it shows."""
    choices: str
    """What the paper leaves open, and what was chosen."""
    presets: Mapping[str, Mapping[str, Any]]
    """Sizes, as arguments for ``plan``."""
    plan: Callable[..., Sequence[Any]]
    """Takes the first seed and a preset's sizes; returns the parameters of every run."""
    claims: Sequence[Claim]
    table: Callable[[Results], Comparison]
    paper: Mapping[str, Any] = field(default_factory=lambda: {"printed numbers": None})
    """The numbers that the paper prints; by default, none."""
    measure: Callable[[Any, Any], dict[str, Any]] = measure
    """Takes the parameters of a run, and a `Setting` if it trains; returns its measurements."""
    parameters: tuple[type, ...] = ()
    """The frozen dataclasses of runs other than `Training`."""
    draw: Callable[[Results], Figure] | None = None
    """Draws its picture; by default, the charts side by side."""
    findings: str = ""
    """Why claims do not hold in the committed results, as far as we found out."""
    charts: Callable[[Results], list[Chart]] | None = None
    """The charts of the report; by default, it shows the picture."""
    images: Callable[[Results], dict[str, bytes]] | None = None
    """PNG files that the report shows below the charts, by their captions."""
    trains: bool = False
    """Whether it trains networks."""
    photographs: bool = False
    """Whether its picture shows images, whose colours must stay the same on a dark page."""
    generates: bool = False
    """Whether it measures the images of generators."""
    sweeps: Mapping[str, str] = field(default_factory=dict)
    """Keys of a configuration that can't be overridden, each with the reason."""
    parts: tuple[str, ...] = ()
    """Where a preset nests the sizes of some of its runs; ``epochs=2`` and the like replace those as well."""
    demand: Callable[[Sequence[Any], Any], list[str]] | None = None
    """Takes all runs and a `Setting`; returns lines that say what they need: epochs, images, memory."""

    @property
    def file_name(self) -> str:
        """The name of its folder and pictures: the id, without characters that file names can't have."""
        return self.id.replace(":", "-")

    def planned(self, preset: str, seed: int = 0, seeds: int | None = None, **sizes: Any) -> list[Any]:
        """The parameters of every run.

        Args:
            preset: one of ``presets``.
            seed: the first seed.
            seeds: how many, instead of what the preset has.
            sizes: instead of the preset's own.
        """
        if preset not in self.presets:
            raise ValueError(unknown_name("preset", preset, self.presets, of=self.id))
        if not 0 <= seed < 2**62:
            raise ValueError(f"seed must be at least 0 and below 2**62, got {seed}; pass for example 0")
        asked, sizes = sizes, {**self.presets[preset], **sizes}
        for part in self.parts:
            if sizes.get(part) is not None:
                sizes[part] = {**sizes[part], **asked}
        if seeds is not None:
            if "seeds" not in sizes:
                raise ValueError(f"--seeds has no effect: {self.id} uses one seed; leave it out")
            if seeds < 1:
                raise ValueError(f"seeds must be at least 1, got {seeds}; pass for example 3")
            sizes["seeds"] = seeds
            if "sparing" in sizes:
                # The number that the user asks for applies to every row.
                sizes["sparing"] = False
        return list(self.plan(seed=seed, **sizes))

    def check_overrides(self, overrides: Mapping[str, Any]) -> None:
        """Refuse to override what the experiment itself varies."""
        for key in overrides:
            if key in self.sweeps:
                raise ValueError(f"{key} can't be overridden for {self.id}, which {self.sweeps[key]}")

    def run(self, parameters: Any, setting: Any = None) -> Run:
        """Measure one run."""
        return Run(parameters, round_numbers(self.measure(parameters, setting)))

    def describe(self, parameters: Any) -> str:
        """A run in a few words, by its parameters."""
        return str(parameters.describe() if hasattr(parameters, "describe") else parameters)

    def picture(self, results: Results) -> Figure:
        """The picture of the results."""
        if self.draw is not None:
            return self.draw(results)
        from oni.recipes.charts.matplotlib import draw_charts

        return draw_charts(self.charts(results) if self.charts else [])

    def judge(self, results: Results, preset: str, planned: Sequence[Any] = ()) -> list[dict[str, str]]:
        """Every claim with its verdict, as ``results.json`` holds them.

        Args:
            results: what was measured.
            preset: of the runs.
            planned: the parameters of every run, if some are not yet measured.
        """
        if planned:
            results = Results(results.find(parameters) or Run(parameters, {}) for parameters in planned)
        return [claim.record(results, preset) for claim in self.claims]


def as_record(run: Run) -> dict[str, Any]:
    """A run as ``results.json`` holds it; fields that are ``None`` or empty by default are left out."""
    if isinstance(run.parameters, Training):
        return {"parameters": round_trip(run.parameters.as_record()), "measured": run.measured}
    defaults = {item.name: item.default_factory() for item in fields(run.parameters) if callable(item.default_factory)}
    values = {name: value for name, value in asdict(run.parameters).items() if value or name not in defaults}
    return {"parameters": values, "measured": run.measured}


def round_trip(record: dict[str, Any]) -> dict[str, Any]:
    """The record as it is after a round trip through JSON."""
    return json.loads(json.dumps(record))


def read_parameters(experiment: Experiment, record: Mapping[str, Any]) -> Any:
    """The parameters of a run from a ``results.json``: the dataclass whose fields they are, lists as tuples."""
    if "config" in record:
        return Training.from_record(record)
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in record.items()}
    for parameters in experiment.parameters:
        names = {item.name for item in fields(parameters)}
        required = {item.name for item in fields(parameters) if not callable(item.default_factory)}
        if required <= values.keys() <= names:
            return parameters(**values)
    raise ValueError(f"no run of {experiment.id} has the parameters {', '.join(sorted(values))}")


def round_numbers(value: Any, digits: int = DIGITS) -> Any:
    """Plain values as they are recorded and judged: floats to so many digits, ``None`` for those not finite.

    >>> round_numbers({"delta": [7.92583123456, float("nan")], "steps": 3})
    {'delta': [7.92583, None], 'steps': 3}
    """
    if isinstance(value, Mapping):
        return {str(key): round_numbers(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [round_numbers(item, digits) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value
