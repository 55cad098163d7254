"""The table of a GAN figure: the numbers of its generators over seeds, how they were measured, and their judgement."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oni.recipes.experiments.errors import (
    COST_COLUMNS,
    COST_NOTE,
    find_runs,
    groups_of,
    mean_and_deviation,
    summarise_cost,
)
from oni.recipes.experiments.experiment import Comparison, Experiment, Quantity, Results, Run
from oni.recipes.experiments.gan.family import NETWORKS, PRINTED_WIDTHS, Pairs, make_plan, make_sweeps, measure
from oni.recipes.experiments.runs import Row
from oni.recipes.experiments.verdicts import Judgement, Verdict, all_hold, is_lower

__all__ = [
    "DISTANCES",
    "KID",
    "NOT_MEASURED",
    "SCORES",
    "TRAINING_DISTANCE",
    "Column",
    "at_the_end",
    "judge_closer",
    "judge_pairs",
    "make_figure",
    "make_table",
    "missing",
    "nobody_diverges",
    "outcome",
]

TRAINING_DISTANCE = "random_feature_distance"
NOT_MEASURED = "not yet measured"
COLLAPSED = 0.05
"""A generator has collapsed if the standard deviation of a pixel over its images is below this; CIFAR-10 has 0.5."""


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    name: str
    title: str
    digits: int
    factor: float = 1.0
    """The unit of the column: how many times the measured number it shows."""


KID = Column("kid", "KID x 1000", 1, 1000.0)
DISTANCES = (
    Column("fid", "FID", 1),
    KID,
    Column("classifier_kernel_distance", "kernel distance, our classifier", 3),
    Column(TRAINING_DISTANCE, "random features", 2),
    Column("d_loss", "discriminator's loss", 2),
)
SCORES = (
    Column("inception_score", "Inception score", 2),
    Column("class_score", "class score, our classifier", 2),
)
INCEPTION = ("fid", "kid", "inception_score")
OPTIONS = {"inception": "--inception FILE", "classifier": "--classifier RUN"}
REMEDIES = {"inception_score": "--inception FILE with class scores", "class_score": OPTIONS["classifier"]}


def at_the_end(runs: Results, name: str) -> list[float]:
    """The final value of each seed: infinite if the run diverged; left out if it was not measured."""
    values = []
    for run in runs:
        value = run.measured.get(name)
        last = value[-1] if isinstance(value, list) and value else value
        if run.measured["status"] == "diverged":
            values.append(math.inf)
        elif isinstance(last, int | float):
            values.append(float(last))
    return values


def missing(results: Results, rows: Sequence[Row], name: str = "kid") -> str:
    """Why rows can't be compared; empty if they can."""
    for row in rows:
        runs = find_runs(results, row)
        if not runs:
            return f"{row.title}: {NOT_MEASURED}"
        if len(at_the_end(runs, name)) < len(runs):
            return f"{row.title}: {NOT_MEASURED}; pass {REMEDIES.get(name, OPTIONS['inception'])}"
    return ""


def judge_closer(results: Results, pairs: Sequence[tuple[Row, Row]], shown: Mapping[str, Row]) -> Judgement:
    """Whether the first of every pair is surely closer to real images than the second, by KID over seeds.

    The spread over seeds is much larger than the error of a single KID. ``shown`` are the rows whose numbers to tell.
    """
    if reason := missing(results, [row for pair in pairs for row in pair]):
        return Verdict.NOT_TESTED, reason

    def distances(row: Row) -> list[float]:
        return at_the_end(find_runs(results, row), "kid")

    compared = [(distances(own), distances(other)) for own, other in pairs]
    verdicts = [is_lower(own, other, pairs=len(pairs)) for own, other in compared]
    doubt = "one seed decides nothing; " if min(len(values) for pair in compared for values in pair) < 2 else ""
    return all_hold(verdicts), doubt + format_both(results, shown)


def format_both(results: Results, rows: Mapping[str, Row]) -> str:
    """KID and FID of rows by name, as means over seeds."""

    def text(values: Sequence[float], factor: float = 1.0) -> str:
        if not values:
            return "-"
        mean = statistics.fmean(values)
        return f"{factor * mean:.0f}" if math.isfinite(mean) else "diverged"

    parts = [
        f"{name} {text(at_the_end(runs, 'kid'), 1000)} ({text(at_the_end(runs, 'fid'))})"
        for name, row in rows.items()
        if (runs := find_runs(results, row))
    ]
    return f"KID x 1000 (FID): {', '.join(parts)}"


def judge_pairs(pairs: Pairs, names: tuple[str, str] = ("SN", "ONI")) -> Callable[[Results], Judgement]:
    """A function that says whether the second row of every pair is closer than the first."""
    shown = {f"{name} {label}": row for name, pair in pairs.items() for label, row in zip(names, pair, strict=True)}
    return lambda results: judge_closer(results, [(second, first) for first, second in pairs.values()], shown)


def nobody_diverges(rows: Sequence[Row]) -> Callable[[Results], Judgement]:
    """A function that says whether all runs trained to their end."""

    def judge(results: Results) -> Judgement:
        failed = []
        for row in rows:
            diverged = [run for run in find_runs(results, row) if run.measured["status"] == "diverged"]
            failed += [f"{row.title}: {outcome(run)}" for run in diverged]
        return not failed, "; ".join(failed) or f"all {len(results)} runs trained to the end"

    return judge


def outcome(run: Run) -> str:
    """How a run ended."""
    if run.measured["status"] == "diverged":
        updates = run.measured["updates"]
        return f"diverged after {updates[-1] if updates else 0} updates"
    spread = run.measured["pixel_deviation"][-1]
    return "collapsed: all images alike" if spread is not None and spread < COLLAPSED else "trained"


def make_table(rows: Sequence[Row], measures: Sequence[Column]) -> Callable[[Results], Comparison]:
    """A function that makes a table with a line for each row; columns that nobody measured are left out."""

    def table(results: Results) -> Comparison:
        shown = [column for column in measures if any(column.name in run.measured for run in results)]
        shown = [column for column in shown if at_the_end(results, column.name)]
        cells: list[list[str | Quantity]] = []
        for index, group in enumerate(groups_of(results)):
            for row in rows:
                runs = find_runs(results, row, group)
                if not runs and index:
                    continue
                title = ", ".join(filter(None, [row.title, group.partition(", ")[2]]))
                if not runs:
                    cells.append([title, *len(shown) * [NOT_MEASURED], NOT_MEASURED, "0", *2 * ["-"]])
                    continue
                numbers = [summarise(at_the_end(runs, column.name), column) for column in shown]
                outcomes = ", ".join(dict.fromkeys(outcome(run) for run in runs))
                cells.append([title, *numbers, outcomes, Quantity(len(runs), digits=0), *summarise_cost(runs)])
        columns = [NETWORKS[str(rows[0].changes["network"])], *(column.title for column in shown), "training", "seeds"]
        return Comparison([*columns, *COST_COLUMNS], cells, describe_columns(results, shown))

    return table


def summarise(values: Sequence[float], column: Column) -> str | Quantity:
    """Mean and spread over seeds, as a cell of the table."""
    if not values:
        return "-"
    return mean_and_deviation([column.factor * value for value in values], column.digits)


def describe_columns(results: Results, columns: Sequence[Column]) -> str:
    """How the numbers in these columns were measured."""
    names = {column.name for column in columns}
    words = [f"At the end of training, means over seeds \u00b1 their standard deviation. {describe_protocol(results)}"]
    for kind, numbers in {
        "inception": " and ".join(
            column.title.removesuffix(" x 1000") for column in columns if column.name in INCEPTION
        ),
        "classifier": "Those of our classifier",
    }.items():
        by = next((run.measured[f"by_{kind}"] for run in results if f"by_{kind}" in run.measured), None)
        if by is None or not numbers:
            continue
        words.append(
            f"{numbers}: {by['samples']:,} generated and {by['real_samples']:,} test images, {by['preparation']}, "
            f"generator in {by['mode']} mode, {by['extractor']} (sha256 {by['extractor_sha256'][:8]}), given to the "
            f"command with {OPTIONS[kind]}."
        )
        if by.get("biased") and "fid" in names and kind == "inception":
            words.append("With fewer samples than the 2048 features need, FID is too large; KID is unbiased.")
    if TRAINING_DISTANCE in names:
        words.append(
            "Random features: the Frechet distance on features of a small network with random weights, on 1,000 "
            "images; it is not FID."
        )
    if "d_loss" in names:
        words.append(
            "The discriminator's loss is its mean over the last epoch: the smaller the loss, the better it tells "
            "generated images from real ones."
        )
    return " ".join([*words, COST_NOTE])


def describe_protocol(results: Results) -> str:
    """How runs differ from the paper's: updates, width, learning rate, precision."""
    config = results[0].parameters.config
    printed, width = PRINTED_WIDTHS[config.network], config.network_options["width"]
    lengths = " or ".join(f"{steps:,}" for steps in sorted({run.parameters.steps for run in results}))
    words = [f"{lengths} of the paper's 156,200 updates"]
    if width != printed:
        words.append(f"width {width} instead of {printed}, at {printed / width:g} times the learning rate")
    if config.precision != "32-true":
        words.append(config.precision)
    return f"{', '.join(words)}.".capitalize()


def make_figure(rows: Sequence[Row], measures: Sequence[Column], **fields: Any) -> Experiment:
    """A figure of these rows, with these columns; ``fields`` of the experiment are what only this figure knows."""
    shared: dict[str, Any] = {"plan": make_plan(rows), "table": make_table(rows, measures), "sweeps": make_sweeps(rows)}
    return Experiment(measure=measure, trains=True, generates=True, **{**shared, **fields})
