"""Reading the results of the ImageNet tables: the best candidate of a row, lowest and last errors, cells, lines."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from oni.recipes.charts.record import percent
from oni.recipes.experiments.errors import errors_at, mean_and_deviation
from oni.recipes.experiments.experiment import Quantity, Results
from oni.recipes.experiments.imagenet.family import IMAGES, TEST_IMAGES, Training
from oni.recipes.experiments.rows import COLOURS, Row, format_options

if TYPE_CHECKING:
    from oni.recipes.charts.curves import Styles

__all__ = [
    "NOTE",
    "counted_images",
    "describe_choice",
    "describe_differences",
    "find_best",
    "lowest_errors",
    "make_error_cells",
    "name_row",
    "row_errors",
    "style_rows",
]

PAPER_EPOCHS = 100
PAPER_DATA = "imagenet"
NOTE = (
    "Errors in percent, means over seeds ± their standard deviation. Lowest: of the epoch with the lowest test error, "
    "which the released code reports, so the paper's numbers stand beside it; last: of the last epoch."
)
MORE_COLOURS = ("#666666", "#0072B2", "#E69F00", "#D55E00", "#CC79A7", "#009E73", "#56B4E9", "#8B5A2B", "#7A5195")


def find_best(results: Results, row: str, network: str | None = None) -> Results:
    """The runs of a row, one of each seed; where the paper trains each candidate, those of the best one.

    The best has the lowest test error at the end, as in the paper: there are no other images to choose by.
    """
    runs = results.where(row=row) if network is None else results.where(row=row, network=network)
    groups: dict[str, list[int]] = {}
    for index, run in enumerate(runs):
        groups.setdefault(repr((run.parameters.rates, run.parameters.candidates)), []).append(index)
    candidates = [Results(runs[index] for index in indices) for indices in groups.values()]
    return min(candidates, key=lambda group: statistics.fmean(errors_at(group, "test")), default=Results())


def lowest_errors(runs: Results, part: str = "test") -> list[float]:
    """The lowest error in percent of any epoch, of every seed."""
    return [
        min(error for error in percent(run.measured[f"{part}_error"], run.parameters.epochs) if error is not None)
        for run in runs
    ]


def row_errors(
    results: Results, rows: Sequence[Row], network: str | None = None, part: str = "test"
) -> dict[str, list[float]]:
    """The errors at the end of each row, of all seeds; none of a row without runs."""
    return {row.title: errors_at(find_best(results, row.name, network), part) for row in rows}


def counted_images(results: Results) -> int | None:
    """The test images by which a difference has to be told; ``None`` on all of ImageNet.

    The paper's own claims are judged as it does, by seeds alone.
    """
    data = results[0].parameters.data
    return None if data == PAPER_DATA else TEST_IMAGES[data]


def make_error_cells(runs: Results, printed: float | None, part: str = "test") -> list[str | Quantity]:
    """What the paper prints, ours at its lowest, the difference, ours at the end."""
    lowest, last = mean_and_deviation(lowest_errors(runs, part)), mean_and_deviation(errors_at(runs, part))
    difference = None if printed is None or lowest.value is None else lowest.value - printed
    return [Quantity(printed), lowest, Quantity(difference), last]


def describe_choice(runs: Results) -> str:
    """The learning rate and what else was chosen."""
    measured = runs[0].measured
    return ", ".join(filter(None, [f"{measured['learning_rate']:g}", format_options(measured["chosen"])]))


def name_row(row: Row) -> str:
    """The title of a row, with a word if the paper lacks it."""
    return f"{row.title} (not in the paper)" if row.ours else row.title


def describe_differences(results: Results) -> str:
    """How runs differ from what the paper says of them, as a sentence; empty if they do not."""
    if not results:
        return ""
    run: Training = results[0].parameters
    words = []
    if run.data != PAPER_DATA:
        words.append(f"{run.images:,} images of {run.data} instead of {IMAGES[PAPER_DATA]:,}")
    elif run.samples:
        words.append(f"{run.samples:,} of {IMAGES[PAPER_DATA]:,} images")
    if run.epochs != PAPER_EPOCHS:
        words.append(f"{run.epochs} epochs instead of {PAPER_EPOCHS}")
    sizes = {key: value for key, value in run.options.items() if key.startswith("network_options.")}
    words += [f"the network's {format_options(sizes)}"] if sizes else []
    return f" Unlike the paper: {', '.join(words)}, batches of {run.batch_size}." if words else ""


def style_rows(results: Results, rows: Mapping[str, Row], network: str | None = None) -> Styles:
    """Colour and runs of each row that has some, by the name in the legend."""
    styles = {
        name: (COLOURS.get(row.name, colour), find_best(results, row.name, network))
        for colour, (name, row) in zip(MORE_COLOURS, rows.items(), strict=False)
    }
    return {name: (colour, runs) for name, (colour, runs) in styles.items() if runs}
