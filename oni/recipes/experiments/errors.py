"""The errors and costs of the runs of a row, over seeds, as numbers and as cells of a table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from oni.recipes.experiments.experiment import Quantity, Results
from oni.recipes.experiments.runs import COLOURS, Row
from oni.recipes.run_files.recorded import percent

if TYPE_CHECKING:
    from oni.recipes.charts.curves import Styles

__all__ = [
    "COST_COLUMNS",
    "COST_NOTE",
    "about",
    "count_test_images",
    "errors_at",
    "find_runs",
    "groups_of",
    "list_rates",
    "mean_and_deviation",
    "mean_error",
    "row_errors",
    "style_rows",
    "summarise_cost",
]

COST_COLUMNS = ["ms per step", "core-hours"]
COST_NOTE = (
    "Core-hours: of all seeds together, measurements on the way included. Milliseconds are those of the training runs, "
    "which shared the machine with others; they do not rank methods."
)


def find_runs(results: Results, row: Row, group: str | None = None) -> Results:
    """The runs of a row, one for each seed; those of one group, if it is given."""
    return results.where(row=row.name, **({} if group is None else {"group": group}))


def about(*rows: Row) -> Callable[[Results], Results]:
    """Selects the runs of rows, for a claim about these alone."""
    names = {row.name for row in rows}
    return lambda results: Results(run for run in results if run.parameters.row in names)


def groups_of(results: Results) -> list[str]:
    """The groups of the runs, such as networks, in the order of the plan."""
    return list(dict.fromkeys(run.parameters.group for run in results))


def style_rows(
    results: Results,
    rows: Sequence[Row],
    group: str | None = None,
    *,
    colours: Sequence[str] = (),
    find: Callable[[Results, Row, str | None], Results] = find_runs,
) -> Styles:
    """Colour and runs of each row, by its title; rows without runs are left out.

    Args:
        results, rows, group: which runs, see `find_runs`.
        colours: of the rows; by default, by their names.
        find: finds the runs of a row.
    """
    colours = colours or [COLOURS[row.name] for row in rows]
    styles = {row.title: (colour, find(results, row, group)) for row, colour in zip(rows, colours, strict=True)}
    return {title: (colour, runs) for title, (colour, runs) in styles.items() if runs}


def row_errors(
    results: Results, rows: Sequence[Row], part: str = "test", *, group: str | None = None
) -> dict[str, list[float]]:
    """The final errors of all seeds, by the title of the row; an empty list for a row without runs."""
    return {row.title: errors_at(find_runs(results, row, group), part) for row in rows}


def count_test_images(results: Results) -> int:
    """How many images the networks were tested on."""
    from oni.recipes.data.datasets import DATASETS

    return DATASETS[next(run.parameters.data for run in results if hasattr(run.parameters, "data"))].test_images


def mean_and_deviation(
    values: Sequence[float], digits: int = 2, middle: Callable[[Sequence[float]], float] = statistics.fmean
) -> Quantity | str:
    """Mean (or another ``middle``) and standard deviation over seeds, as a cell of a table."""
    if diverged := sum(math.isinf(value) for value in values):
        return "diverged" if diverged == len(values) else f"{diverged} of {len(values)} diverged"
    return Quantity(middle(values), statistics.stdev(values) if len(values) > 1 else None, digits)


def errors_at(runs: Results, part: str = "train", epoch: int = -1) -> list[float]:
    """The error in percent after an epoch, for each seed; infinite once a run has diverged."""
    errors = []
    for run in runs:
        error = percent(run.measured[f"{part}_error"], run.parameters.epochs, diverged=math.inf)[epoch]
        if error is None:
            raise ValueError(f"the {part} error was not measured after that epoch ({epoch})")
        # Where the loss is not finite at the end of the last epoch, an error was still counted.
        is_last = epoch in (-1, run.parameters.epochs - 1)
        errors.append(math.inf if is_last and run.measured.get("status") == "diverged" else error)
    return errors


def mean_error(runs: Results, part: str = "train", epoch: int = -1) -> float:
    """The mean of `errors_at` over seeds."""
    return statistics.fmean(errors_at(runs, part, epoch))


def list_rates(runs: Results) -> str | Quantity:
    """The learning rates of a row, and those at which seeds diverged and were trained again at a lower one."""
    rates = sorted({run.measured["learning_rate"] for run in runs})
    diverged = sorted({rate for run in runs for rate in run.measured.get("diverged", ())})
    if len(rates) == 1 and not diverged:
        return Quantity(rates[0], digits=None)
    listed = (", ".join(f"{rate:g}" for rate in some) for some in (rates, diverged))
    return "; diverged at ".join(filter(None, listed))


def summarise_cost(runs: Results) -> list[str | Quantity]:
    """The median milliseconds per step and the core-hours of all seeds; "-" if they were not recorded."""
    costs = [run.measured["cost"] for run in runs if run.measured.get("cost", {}).get("steps")]
    if len(costs) < len(runs) or not costs:
        return ["-", "-"]
    milliseconds = statistics.median(1e3 * cost["seconds"] / cost["steps"] for cost in costs)
    hours = sum(cost["seconds"] * cost["threads"] for cost in costs) / 3600
    return [Quantity(milliseconds, digits=0), Quantity(hours, digits=2)]
