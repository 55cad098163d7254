"""Reading the results of the GAN figures: distances at the end, what is closer than what, and the table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from oni.recipes.experiments.experiment import Comparison, Judgement, Quantity, Results, Run, all_hold
from oni.recipes.experiments.gan.family import Player
from oni.recipes.experiments.gan.naming import NETWORKS, name_player

__all__ = [
    "DISTANCES",
    "SCORES",
    "TRAINING_DISTANCE",
    "Column",
    "are_closer",
    "at_the_end",
    "find_runs",
    "format_both",
    "is_closer",
    "judge_pairs",
    "make_table",
    "missing",
    "nobody_diverges",
]

TRAINING_DISTANCE = "random_feature_distance"
NOT_MEASURED = "not yet measured"
COLLAPSED = 0.05
"""Standard deviation of a pixel over generated images below which they are all the same; of real ones it is 0.5."""
SURE = 2.0
"""Standard errors by which two kernel distances must differ."""


@dataclass(frozen=True)
class Column:
    """A number of the table."""

    name: str
    title: str
    digits: int


DISTANCES = (
    Column("fid", "FID", 1),
    Column("kid", "KID x 1000", 1),
    Column("classifier_kernel_distance", "kernel distance, our classifier", 3),
    Column(TRAINING_DISTANCE, "random features", 2),
    Column("d_loss", "discriminator's loss", 2),
)
SCORES = (
    Column("inception_score", "Inception score", 2),
    Column("class_score", "class score, our classifier", 2),
    Column("kid", "KID x 1000", 1),
)
FACTORS = {"kid": 1000.0}
INCEPTION = ("fid", "kid", "inception_score")
OPTIONS = {"inception": "--inception FILE", "classifier": "--classifier RUN"}
REMEDIES = {"inception_score": "--inception FILE with class scores", "class_score": OPTIONS["classifier"]}


def find_runs(results: Results, player: Player) -> Results:
    """The runs of a player; overridden options do not matter."""
    names = ("method", "options", "network", "loss", "adam", "first_layer", "pooling")

    def matches(run: Run) -> bool:
        return all(getattr(run.parameters, name) == getattr(player, name) for name in names)

    return Results(filter(matches, results))


def at_the_end(runs: Results, name: str) -> list[float]:
    """A number at the end, of every seed: infinite where a run diverged, and no number where it was not measured."""
    values = []
    for run in runs:
        value = run.measured.get(name)
        last = value[-1] if isinstance(value, list) and value else value
        if run.measured["status"] == "diverged":
            values.append(math.inf)
        elif isinstance(last, int | float):
            values.append(float(last))
    return values


def missing(results: Results, players: Sequence[Player], name: str = "kid") -> str:
    """Why players can't be compared; empty if they can."""
    for player in players:
        runs = find_runs(results, player)
        if len(at_the_end(runs, name)) < max(1, len(runs)):
            return f"{name_player(player)}: {NOT_MEASURED}; pass {REMEDIES.get(name, OPTIONS['inception'])}"
    return ""


def is_closer(results: Results, player: Player, other: Player) -> bool | None:
    """Whether all seeds of a player are closer to real images, surely, than all seeds of another; by KID.

    ``None`` if only their mean is.
    """
    ours, theirs = find_runs(results, player), find_runs(results, other)
    errors = [error for run in (*ours, *theirs) if (error := run.measured.get("kid_error")) is not None]
    margin = SURE * math.sqrt(2) * max(errors, default=0.0)
    own, others = at_the_end(ours, "kid"), at_the_end(theirs, "kid")
    if max(own) + margin < min(others):
        return True
    return None if statistics.fmean(own) < statistics.fmean(others) else False


def are_closer(results: Results, pairs: Iterable[tuple[Player, Player]]) -> bool | None:
    """Whether the first of every pair is closer than the second; ``None`` if that is not sure of some."""
    return all_hold(is_closer(results, *pair) for pair in pairs)


def format_both(results: Results, players: Mapping[str, Player]) -> str:
    """KID and FID of players by name, as means over seeds."""

    def text(values: Sequence[float], factor: float = 1.0) -> str:
        if not values:
            return "-"
        mean = statistics.fmean(values)
        return f"{factor * mean:.0f}" if math.isfinite(mean) else "diverged"

    parts = [
        f"{name} {text(at_the_end(runs, 'kid'), 1000)} ({text(at_the_end(runs, 'fid'))})"
        for name, player in players.items()
        if (runs := find_runs(results, player))
    ]
    return f"KID x 1000 (FID): {', '.join(parts)}"


def judge_pairs(
    pairs: Mapping[str, tuple[Player, Player]], names: tuple[str, str] = ("SN", "ONI")
) -> Callable[[Results], Judgement]:
    """A function that says whether the second player of every pair is closer than the first."""

    def judge(results: Results) -> Judgement:
        players = [player for pair in pairs.values() for player in pair]
        if reason := missing(results, players):
            return None, reason
        closer = [name for name, (first, second) in pairs.items() if is_closer(results, second, first)]
        farther = [name for name, (first, second) in pairs.items() if is_closer(results, first, second)]
        open_ones = [name for name in pairs if name not in closer + farther]
        counts = {f"{names[1]} closer": closer, f"{names[0]} closer": farther, "undecided": open_ones}
        text = "; ".join(f"{label}: {', '.join(found)}" for label, found in counts.items() if found)
        shown = {
            f"{name} {label}": player for name, pair in pairs.items() for label, player in zip(names, pair, strict=True)
        }
        held = are_closer(results, [(second, first) for first, second in pairs.values()])
        return held, f"{text}. {format_both(results, shown)}"

    return judge


def nobody_diverges(players: Sequence[Player]) -> Callable[[Results], Judgement]:
    """A function that says whether all runs trained to their end, with images that differ."""

    def judge(results: Results) -> Judgement:
        failed = []
        for player in players:
            outcomes = [outcome(run) for run in find_runs(results, player)]
            failed += [f"{name_player(player)}: {text}" for text in outcomes if text != "trained"]
        return not failed, "; ".join(failed) or f"all {len(results)} runs trained to their end"

    return judge


def outcome(run: Run) -> str:
    """How a run ended."""
    if run.measured["status"] == "diverged":
        updates = run.measured["updates"]
        return f"diverged after {updates[-1] if updates else 0} updates"
    spread = run.measured["pixel_deviation"][-1]
    return "collapsed: all images alike" if spread is not None and spread < COLLAPSED else "trained"


def make_table(players: Sequence[Player], columns: Sequence[Column]) -> Callable[[Results], Comparison]:
    """A function that makes a table with a line for each player; columns that nobody measured are left out."""

    def table(results: Results) -> Comparison:
        shown = [column for column in columns if any(column.name in run.measured for run in results)]
        shown = [column for column in shown if at_the_end(results, column.name)]
        cells: list[list[str | Quantity]] = []
        losses = len({player.loss for player in players}) > 1
        for player in players:
            runs = find_runs(results, player)
            name = name_player(player) + (f", {player.loss} loss" if losses else "")
            if not runs:
                cells.append([name, *len(shown) * [NOT_MEASURED], NOT_MEASURED, "0"])
                continue
            numbers = [summarise(at_the_end(runs, column.name), column) for column in shown]
            outcomes = ", ".join(dict.fromkeys(outcome(run) for run in runs))
            cells.append([name, *numbers, outcomes, Quantity(len(runs), digits=0)])
        titles = [column.title for column in shown]
        return Comparison([NETWORKS[players[0].network], *titles, "training", "seeds"], cells, describe(results, shown))

    return table


def summarise(values: Sequence[float], column: Column) -> str | Quantity:
    """A cell of the table, over seeds."""
    if not values:
        return "-"
    if not all(map(math.isfinite, values)):
        return Quantity(math.inf)
    factor = FACTORS.get(column.name, 1.0)
    scaled = [factor * value for value in values]
    return Quantity(statistics.fmean(scaled), statistics.stdev(scaled) if len(scaled) > 1 else None, column.digits)


def describe(results: Results, columns: Sequence[Column]) -> str:
    """How the numbers in these columns of a table came about."""
    names = {column.name for column in columns}
    words = ["At the end of training, means over seeds \u00b1 their standard deviation."]
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
            words.append("With fewer samples than the 2048 features would need, FID is too large; KID has no bias.")
    if TRAINING_DISTANCE in names:
        words.append(
            "Random features: the Frechet distance on features of a small network with random weights, on 1,000 "
            "images; it is no FID."
        )
    if "d_loss" in names:
        words.append("The discriminator's loss is its mean over the last epoch: the smaller, the better it tells.")
    return " ".join(words)
