"""Reading the results of the CIFAR-10 tables: the final runs of a row, the table, and the lines of a chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from oni.recipes.experiments.cifar10.family import Final, Row
from oni.recipes.experiments.errors import errors_at, mean_and_deviation
from oni.recipes.experiments.experiment import Comparison, Quantity, Results

if TYPE_CHECKING:
    from oni.recipes.charts.curves import Styles

__all__ = ["COLOURS", "find_finals", "make_table", "style_rows"]

COLOURS = {
    "plain": "#666666",
    "xavier": "#666666",
    "wn": "#8B5A2B",
    "orth-init": "#E69F00",
    "orth-init-sqrt2": "#B8860B",
    "orth-reg": "#7A5195",
    "olm-1": "#D55E00",
    "olm-sqrt2": "#CC79A7",
    "bn": "#56B4E9",
    "gn": "#E69F00",
    "oni": "#0072B2",
}
"""Of the lines, by row."""


def find_finals(results: Results, row: str, network: str, batch_size: int | None = None) -> Results:
    """The final runs of a row on a network, one of each seed."""
    finals = Results(run for run in results if isinstance(run.parameters, Final)).where(row=row, network=network)
    return finals if batch_size is None else finals.where(batch_size=batch_size)


def style_rows(results: Results, rows: Sequence[Row]) -> Styles:
    """Colour and final runs of each row that has some, by its title."""
    finals = Results(run for run in results if isinstance(run.parameters, Final))
    styles = {row.title: (COLOURS[row.name], finals.where(row=row.name)) for row in rows}
    return {name: (colour, runs) for name, (colour, runs) in styles.items() if runs}


def make_table(rows: Sequence[Row], paper: Mapping[str, Mapping[str, float]]) -> Callable[[Results], Comparison]:
    """A function that makes a table with a line for each row and network."""

    def table(results: Results) -> Comparison:
        cells: list[list[str | Quantity]] = []
        networks = list(dict.fromkeys(run.parameters.network for run in results))
        for network in networks:
            for row in rows:
                runs = find_finals(results, row.name, network)
                if not runs:
                    continue
                printed = paper.get(row.name, {}).get(network)
                errors = errors_at(runs, "test")
                ours = mean_and_deviation(errors)
                difference = None if printed is None or ours.value is None else ours.value - printed
                cells.append(
                    [
                        f"{network}, {row.title}",
                        Quantity(printed),
                        ours,
                        Quantity(difference),
                        Quantity(runs[0].measured["learning_rate"], digits=None),
                        Quantity(len(runs), digits=0),
                    ]
                )
        return Comparison(["network, method", "paper", "ours", "difference", "learning rate", "seeds"], cells, "")

    return table
