"""Reading the results of the GAN figures: distances at the end, the table, and the lines of a chart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.experiment import Comparison, Judgement, Quantity, Results, Run
from oni.recipes.experiments.gan.family import NETWORKS, Player, name_player

if TYPE_CHECKING:
    from oni.recipes.charts.curves import Styles

__all__ = ["NOT_MEASURED", "TRAINING_DISTANCE", "distances", "find_runs", "make_table", "outcome", "style_players"]

TRAINING_DISTANCE = "random_feature_distance"
NOT_MEASURED = "not yet measured"
COLOURS = {"SN": "#D55E00", "ONI": "#0072B2"}


def find_runs(results: Results, player: Player) -> Results:
    """The runs of a player; overridden options do not matter."""

    def matches(run: Run) -> bool:
        parameters = run.parameters
        return all(
            getattr(parameters, name) == getattr(player, name)
            for name in ("method", "options", "network", "loss", "adam", "first_layer", "pooling")
        )

    return Results(filter(matches, results))


def distances(runs: Results, name: str) -> list[float]:
    """A distance at the end, of every seed; infinite for a run that diverged, and none where it was not measured."""
    values = []
    for run in runs:
        value = run.measured.get(name)
        last = value[-1] if isinstance(value, list) and value else value
        if run.measured["status"] == "diverged":
            values.append(math.inf)
        elif isinstance(last, int | float):
            values.append(float(last))
    return values


def outcome(runs: Results) -> str:
    """How many runs ended, and how."""
    diverged = [run for run in runs if run.measured["status"] == "diverged"]
    if not diverged:
        return "trained"
    steps = ", ".join(str(run.measured["updates"][-1]) if run.measured["updates"] else "0" for run in diverged)
    return f"{len(diverged)} of {len(runs)} diverged after {steps} updates"


def mean_and_deviation(values: Sequence[float]) -> str | Quantity:
    """A cell of a table, over seeds."""
    if not values:
        return "-"
    if not all(map(math.isfinite, values)):
        return Quantity(math.inf)
    return Quantity(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


def make_table(players: Sequence[Player], columns: dict[str, str]) -> Callable[[Results], Comparison]:
    """A function that makes a table with a line for each player, and a column for each distance."""

    def table(results: Results) -> Comparison:
        cells: list[list[str | Quantity]] = []
        several = len({player.network for player in players} | {player.loss for player in players}) > 2
        for player in players:
            runs = find_runs(results, player)
            name = f"{name_player(player)}, {player.loss}" if several else name_player(player)
            if not runs:
                cells.append([name, *len(columns) * [NOT_MEASURED], "-", "0"])
                continue
            numbers = [mean_and_deviation(distances(runs, column)) for column in columns]
            cells.append([name, *numbers, outcome(runs), Quantity(len(runs), digits=0)])
        return Comparison(
            [NETWORKS[players[0].network], *columns.values(), "training", "seeds"],
            cells,
            "Distances at the end, means over seeds ± their standard deviation; smaller is better.",
        )

    return table


def style_players(results: Results, players: Sequence[Player]) -> Styles:
    """Colour and runs of each player that has runs, by its name: shades of one colour for the steps of ONI."""
    from oni.recipes.charts.curves import ramp

    steps = [player for player in players if player.method != "sn"]
    shades = ramp(COLOURS["ONI"], len(steps)) if len(steps) > 1 else [COLOURS["ONI"]]
    colours = {id(player): shade for player, shade in zip(steps, shades, strict=False)}
    styles: dict[str, tuple[str, Any]] = {
        name_player(player): (colours.get(id(player), COLOURS["SN"]), find_runs(results, player)) for player in players
    }
    return {name: (colour, runs) for name, (colour, runs) in styles.items() if runs}


def undecided(text: str) -> Judgement:
    return None, text
