"""Reading the results of the CIFAR-10 tables: the final runs of a row, cells of a table, and the lines of a chart."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from oni.recipes.experiments.cifar10.family import LONG, TEST_IMAGES, Final, Trial, name_network
from oni.recipes.experiments.errors import errors_at, mean_and_deviation, mean_error
from oni.recipes.experiments.experiment import Judgement, Quantity, Results, join_judgements
from oni.recipes.experiments.rows import COLOURS, Row, format_options
from oni.recipes.experiments.texts import format_override

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart
    from oni.recipes.charts.curves import Styles

__all__ = [
    "COLUMNS",
    "NOTE",
    "SPEED_COLUMNS",
    "SPEED_NOTE",
    "chart_rates",
    "counted_images",
    "describe_differences",
    "describe_network",
    "final_runs",
    "find_finals",
    "judge_all",
    "make_cells",
    "make_speed_cells",
    "mean_over_epochs",
    "median_and_deviation",
    "networks_of",
    "on_first_network",
    "row_errors",
    "row_speeds",
    "style_rows",
]

PAPER_EPOCHS = 160
COLUMNS = ["network, method", "paper", "ours", "difference", "train", "learning rate", "seeds", "what differs"]
NOTE = "Errors in percent. Paper, ours and difference: of the test images, at the end; train: of the last epoch. "
SPEED_COLUMNS = ["network, method", "mean", "epoch 1", "half-way", "end", "learning rate", "seeds", "what differs"]
SPEED_NOTE = (
    "Training errors in percent, means over seeds ± their standard deviation: over all epochs, after the first, half "
    "and all of them. The paper draws this and prints no numbers."
)


def final_runs(results: Results) -> Results:
    """The runs that a table shows, without the trials."""
    return Results(run for run in results if isinstance(run.parameters, Final))


def on_first_network(results: Results) -> Results:
    """The final runs of the network that comes first."""
    finals = final_runs(results)
    return finals.where(network=finals[0].parameters.network) if finals else finals


def find_finals(results: Results, row: str, network: str, batch_size: int | None = None) -> Results:
    """The final runs of a row on a network, one of each seed."""
    finals = final_runs(results).where(row=row, network=network)
    return finals if batch_size is None else finals.where(batch_size=batch_size)


def networks_of(results: Results) -> list[str]:
    """The networks of final runs, in the order of the plan."""
    return list(dict.fromkeys(run.parameters.network for run in final_runs(results)))


def counted_images(results: Results) -> int | None:
    """The test images by which a difference has to be told; ``None`` after long training.

    The paper's own claims are judged as it does, by seeds alone.
    """
    steps = min(run.parameters.steps for run in final_runs(results))
    return TEST_IMAGES if steps < LONG["steps"] else None


def row_errors(
    results: Results, rows: Sequence[Row], network: str, batch_size: int | None = None, part: str = "test"
) -> dict[str, list[float]]:
    """The errors at the end of each row, of all seeds; none of a row without runs."""
    return {row.title: errors_at(find_finals(results, row.name, network, batch_size), part) for row in rows}


def row_speeds(
    results: Results, rows: Sequence[Row], network: str, batch_size: int | None = None
) -> dict[str, list[float]]:
    """The mean of the training errors over all epochs, of all seeds: the lower, the faster it falls."""
    return {row.title: mean_over_epochs(find_finals(results, row.name, network, batch_size)) for row in rows}


def mean_over_epochs(runs: Results) -> list[float]:
    """The mean of the training errors over all epochs, of all seeds."""
    return [
        statistics.fmean(mean_error(Results([run]), "train", epoch) for epoch in range(run.parameters.epochs))
        for run in runs
    ]


def judge_all(judge: Callable[[Results, str], Judgement]) -> Callable[[Results], Judgement]:
    """Held if a claim holds on every network; not held if it fails on one."""

    def judge_networks(results: Results) -> Judgement:
        return join_judgements({name_network(name): judge(results, name) for name in networks_of(results)})

    return judge_networks


# The table.


def make_cells(
    title: str,
    row: Row,
    runs: Results,
    printed: float | None,
    summarise: Callable[[Sequence[float]], Quantity],
    *more: str,
) -> list[str | Quantity]:
    """A line of the table: what the paper prints, the errors of all seeds in one number, and what differs."""
    test, train = (summarise(errors_at(runs, part)) for part in ("test", "train"))
    difference = None if printed is None or test.value is None else test.value - printed
    first = runs[0]
    chosen = format_options(first.measured["chosen"]) if len(row.candidates) > 1 else ""
    rate = f"{first.measured['learning_rate']:g}"
    return [
        title,
        Quantity(printed),
        test,
        Quantity(difference),
        train,
        ", ".join(filter(None, [rate, chosen])),
        Quantity(len(runs), digits=0),
        "; ".join([*more, *describe_differences(first.parameters, row)]) or "nothing",
    ]


def make_speed_cells(title: str, row: Row, runs: Results, *more: str) -> list[str | Quantity]:
    """A line of a table of training errors."""
    parameters = runs[0].parameters
    epochs = (0, max(0, parameters.epochs // 2 - 1), parameters.epochs - 1)
    return [
        title,
        mean_and_deviation(mean_over_epochs(runs)),
        *(mean_and_deviation(errors_at(runs, "train", epoch)) for epoch in epochs),
        Quantity(runs[0].measured["learning_rate"], digits=None),
        Quantity(len(runs), digits=0),
        "; ".join([*more, *describe_differences(parameters, row)]) or "nothing",
    ]


def median_and_deviation(values: Sequence[float]) -> Quantity:
    """A cell of a table, over seeds."""
    return Quantity(statistics.median(values), statistics.stdev(values) if len(values) > 1 else None)


def describe_network(network: str, paper: str) -> list[str]:
    """That a network is not the paper's, if so."""
    return [] if network == paper else [f"{network}, not {paper}"]


def describe_differences(run: Final, row: Row) -> list[str]:
    """How a run differs from what the paper says of it."""
    words = ["not in the paper"] if row.ours else []
    if run.epochs != PAPER_EPOCHS:
        words.append(f"{run.epochs} of {PAPER_EPOCHS} epochs")
    if run.samples:
        words.append(f"{run.samples:,} of 50,000 images")
    if len(row.rates) > 1 and len(run.rates) == 1:
        words.append("learning rate not searched")
    elif run.trials_network != run.network:
        words.append(f"learning rate of {run.trials_network}")
    if len(run.candidates) < len(row.candidates):
        words.append(f"only {format_options(run.candidates[0])}")
    return words + [format_override(key, value) for key, value in run.overrides.items()]


# Lines of charts.


def style_rows(results: Results, rows: Sequence[Row]) -> Styles:
    """Colour and final runs of each row that has some, by its title."""
    finals = final_runs(results)
    styles = {row.title: (COLOURS[row.name], finals.where(row=row.name)) for row in rows}
    return {name: (colour, runs) for name, (colour, runs) in styles.items() if runs}


def chart_rates(results: Results, rows: Sequence[Row], network: str) -> Chart:
    """The errors on held-out images over the learning rate, of the trials on a network; the best candidate of each."""
    from oni.recipes.charts.chart import Chart, Series
    from oni.recipes.charts.curves import with_error_axis

    trials = Results(run for run in results if isinstance(run.parameters, Trial)).where(network=network)
    series = []
    for row in rows:
        own = trials.where(row=row.name)
        rates = sorted({run.parameters.learning_rate for run in own})
        best = [min(errors_at(own.where(learning_rate=rate), "validation")) for rate in rates]
        if rates:
            series.append(Series(row.title, rates, best, COLOURS[row.name]))
    title = f"{name_network(network)}: held-out error over the rate"
    return with_error_axis(Chart(title, "learning rate", "validation error, %", series, x_log=True))
