"""Reading the results of the Fashion-MNIST figures: errors, spectra, the table, and the lines of a chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.errors import errors_at, format_errors, is_below, mean_and_deviation
from oni.recipes.experiments.experiment import Comparison, Judgement, Quantity, Results, Run
from oni.recipes.experiments.fashion_mnist.family import SPECTRUM_STEP, Network, name_network

if TYPE_CHECKING:
    from oni.recipes.charts.curves import Styles

__all__ = [
    "COLOURS",
    "CONVERGED",
    "NOTABLE",
    "find_runs",
    "judge_practice",
    "make_table",
    "spectra",
    "style_networks",
]

NOTABLE = 1.0
"""Percentage points that are called a notable difference here: a few times the spread over seeds."""
CONVERGED = 50.0
"""Percent of training errors below which a run has converged."""
COLOURS = {
    "plain, torch's start": "#999999",
    "plain": "#666666",
    "He's start": "#8B5A2B",
    "OrthInit": "#E69F00",
    "OrthInit x sqrt 2": "#D55E00",
    "batch norm": "#CC79A7",
    "ONI": "#0072B2",
    "ONI-NS": "#56B4E9",
    "OLM": "#CC79A7",
    "OLM-NS": "#D55E00",
    "ONI, Z orthogonal, not centred": "#009E73",
    "ONI-NS, Z orthogonal, not centred": "#8ED1B8",
    "ONI, Z random, not centred": "#7A5195",
    "ONI, Z orthogonal, centred": "#B07AA1",
}
"""Of the lines, by name; variants of a method that are not here are drawn in shades of one colour."""


def find_runs(results: Results, network: Network) -> Results:
    """The runs of a network. Its depth matters only where there are several; overridden options do not matter."""
    if len({run.parameters.depth for run in results}) > 1:
        results = results.where(depth=network.depth)

    def matches(run: Run) -> bool:
        overridden = {key.partition(".")[2] for key in run.parameters.overrides}

        def fixed(options: Mapping[str, Any]) -> dict[str, Any]:
            return {key: value for key, value in options.items() if key not in overridden}

        return (
            run.parameters.method == network.method
            and fixed(run.parameters.options) == fixed(network.options)
            and fixed(run.parameters.network_options) == fixed(network.network_options)
        )

    return Results(filter(matches, results))


def style_networks(results: Results, networks: Sequence[Network], *, shades: bool = False) -> Styles:
    """Colour and runs of each network that has runs, by its name; ``shades`` of one colour for a sweep."""
    from oni.recipes.charts.curves import ramp

    colours = (
        ramp(COLOURS["ONI"], len(networks)) if shades else [COLOURS[name_network(network)] for network in networks]
    )
    styles = {
        name_network(network): (colour, find_runs(results, network))
        for network, colour in zip(networks, colours, strict=True)
    }
    return {name: (colour, runs) for name, (colour, runs) in styles.items() if runs}


def make_table(networks: Sequence[Network]) -> Callable[[Results], Comparison]:
    """A function that makes a table with a line for each network."""

    def table(results: Results) -> Comparison:
        cells: list[list[str | Quantity]] = []
        for network in networks:
            runs = find_runs(results, network)
            depth = runs[0].parameters.depth if runs else network.depth
            name = f"{depth} layers, {name_network(network)}"
            if not runs:
                cells.append([name, *4 * ["not yet measured"], "0"])
                continue
            errors = [errors_at(runs, "train", 0), errors_at(runs), errors_at(runs, "test")]
            rate = Quantity(runs[0].measured["learning_rate"], digits=None)
            cells.append([name, rate, *map(mean_and_deviation, errors), Quantity(len(runs), digits=0)])
        return Comparison(
            ["network", "learning rate", "train, epoch 1", "train, end", "test, end", "seeds"],
            cells,
            "Errors in percent, means over seeds ± their standard deviation. The paper draws this and prints no "
            "numbers.",
        )

    return table


def spectra(runs: Results, layer: int) -> list[tuple[list[float], list[float]]]:
    """At the start and after 200 steps (or at the end, if there are fewer), of every seed."""
    pairs = []
    for run in runs:
        by_step = run.measured["spectrum"]
        later = min(SPECTRUM_STEP, max(map(int, by_step)))
        pairs.append((by_step["0"][str(layer)], by_step[str(later)][str(layer)]))
    return pairs


def judge_practice(networks: Sequence[Network], ours: Network) -> Callable[[Results], Judgement]:
    """Whether our network ends with a lower test error than each of the practitioners' networks."""

    def judge(results: Results) -> Judgement:
        missing = [name_network(network) for network in networks if not find_runs(results, network)]
        if missing:
            return None, f"not yet measured: {', '.join(missing)}"
        own = errors_at(find_runs(results, ours), "test")
        others = {name_network(network): errors_at(find_runs(results, network), "test") for network in networks}
        text = "; ".join(f"{name} {format_errors(values)}" for name, values in others.items())
        return all(is_below(own, values) for values in others.values()), (
            f"test error at the end: {format_errors(own)}; {text}"
        )

    return judge
