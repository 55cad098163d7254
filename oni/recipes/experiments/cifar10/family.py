"""What the CIFAR-10 tables and figures share: networks, configurations, how results are read, and cells of tables."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.errors import (
    COST_COLUMNS,
    COST_NOTE,
    about,
    errors_at,
    find_runs,
    groups_of,
    list_rates,
    mean_and_deviation,
    mean_error,
    style_rows,
    summarise_cost,
)
from oni.recipes.experiments.experiment import Quantity, Results
from oni.recipes.experiments.runs import COLOURS, Row, Training
from oni.recipes.experiments.search import Changes, format_changes
from oni.recipes.experiments.verdicts import Judgement, join_judgements

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart
    from oni.recipes.run_files.config import Config

__all__ = [
    "BATCH",
    "COLUMNS",
    "LONG",
    "NOTE",
    "SHORT",
    "SPEED_COLUMNS",
    "SPEED_NOTE",
    "TEST_IMAGES",
    "TRAINS",
    "VARIANTS",
    "chart_rates",
    "count_networks",
    "describe_differences",
    "describe_network",
    "groups_of",
    "judge_all",
    "make_cells",
    "make_config",
    "make_speed_cells",
    "mean_over_epochs",
    "name_network",
    "on_first_network",
    "read_trials",
    "row_speeds",
    "style_rows",
]

BATCH = 128
"""The paper's batch size. Learning rates of other batch sizes are scaled in proportion."""
TEST_IMAGES = 10_000
"""The size of the CIFAR-10 test set. No claim is judged on generated images."""
TRAINS = 80.0
"""A network trains if its error in percent ends below this; guessing has 90."""
LONG = {"steps": 10_000, "seeds": 2}
"""What a claim about the errors of trained networks needs: a sixth of the paper's 62,400 steps, with both drops of the
learning rate."""
SHORT = {"steps": 500, "seeds": 2}
"""What a claim about the speed of training needs."""
PAPER_EPOCHS = 160


# Networks and configurations.


def find_network(name: str) -> tuple[str, dict[str, int]]:
    """The network of a name, and its options.

    >>> find_network("g2k1"), find_network("resnet110")
    (('vgg', {'g': 2, 'k': 1}), ('resnet-cifar', {'blocks': 18}))
    """
    if match := re.fullmatch(r"g(\d+)k(\d+)", name):
        return "vgg", {"g": int(match[1]), "k": int(match[2])}
    match = re.fullmatch(r"resnet(\d+)", name)
    if match and (int(match[1]) - 2) % 6 == 0 and int(match[1]) > 2:
        return "resnet-cifar", {"blocks": (int(match[1]) - 2) // 6}
    raise ValueError(f"unknown network {name!r}; write for example g2k1 (VGG), or resnet20 (any depth 6n + 2)")


def name_network(group: str) -> str:
    """The network of a group of runs as the paper calls it.

    >>> name_network("g2k1"), name_network("resnet110, batch 2")
    ('g = 2, k = 1', 'Res-110')
    """
    kind, options = find_network(group.partition(",")[0].partition(" ")[0])
    return f"g = {options['g']}, k = {options['k']}" if kind == "vgg" else f"Res-{6 * options['blocks'] + 2}"


def make_config(network: str, *, epochs: int, batch_size: int = BATCH, precision: str = "", **sizes: Any) -> Config:
    """The configuration that all rows share. What the paper's text leaves open is as in the authors' code."""
    from oni.recipes.run_files.config import Config

    name, options = find_network(network)
    is_residual = name == "resnet-cifar"
    settings: dict[str, Any] = {
        "network": name,
        "network_options": options,
        "method": "plain",
        "momentum": 0.9,
        "weight_decay": 1e-4 if is_residual else 0.0,
        "batch_size": batch_size,
        "epochs": epochs,
        "drops": drop_epochs(epochs),
        "drop_factor": 0.1 if is_residual else 0.2,
        "normalise": "mean-std",
        "augment": ("flip", "crop"),
        **({"precision": precision} if precision else {}),
        **sizes,
    }
    return Config(**settings)


def drop_epochs(epochs: int) -> tuple[int, ...]:
    """After which epochs the learning rate drops: at a half and three quarters, as 80 and 120 of 160.

    >>> drop_epochs(160), drop_epochs(10), drop_epochs(2), drop_epochs(1)
    ((80, 120), (5, 7), (1,), ())
    """
    return tuple(sorted({epochs // 2, epochs * 3 // 4} - {0}))


VARIANTS = (
    "Where the text and the released code differ, we follow the text. These options select the code's choice: "
    "nesterov=true (VGG only), reset_momentum=true and drops=79,119 for the learning rate, "
    "augment=flip-half,crop-together for one crop offset per batch from reflected images and a flip of exactly half "
    "of each batch"
)


# Reading the results.


def on_first_network(*rows: Row) -> Callable[[Results], Results]:
    """Selects the runs of rows on the network that comes first."""
    return lambda results: about(*rows)(results.where(group=groups_of(results)[0])) if results else results


def row_speeds(results: Results, rows: Sequence[Row], group: str) -> dict[str, list[float]]:
    """The mean of the training errors over all epochs, for each seed of each row. Lower means faster training."""
    return {row.title: mean_over_epochs(find_runs(results, row, group)) for row in rows}


def mean_over_epochs(runs: Results) -> list[float]:
    """The mean of the training errors over all epochs, for each seed."""
    return [
        statistics.fmean(mean_error(Results([run]), "train", epoch) for epoch in range(run.parameters.epochs))
        for run in runs
    ]


def read_trials(runs: Results) -> list[tuple[Changes, float]]:
    """The candidates of a row and their held-out errors in percent; 100 if a trial diverged."""
    if not runs or runs[0].parameters.search is None:
        return []
    errors = [100.0 if error is None else 100 * error for error in runs[0].measured["tried"].values()]
    return list(zip(runs[0].parameters.search.candidates, errors, strict=True))


def judge_all(judge: Callable[[Results, str], Judgement]) -> Callable[[Results], Judgement]:
    """Held if a claim holds on every network that was trained; not held if it fails on one."""

    def judge_networks(results: Results) -> Judgement:
        verdict, text = join_judgements({name_network(name): judge(results, name) for name in groups_of(results)})
        return verdict, f"{count_networks(results)}, {text}"

    return judge_networks


def count_networks(results: Results) -> str:
    """How many of the paper's networks were trained."""
    return f"{len(groups_of(results))} of 9 networks"


# Tables.

COLUMNS = ["network, method", "paper", "ours", "train", "learning rate", "seeds", *COST_COLUMNS, "what differs"]
NOTE = f"Errors in percent. Paper and ours: on the test images, at the end; train: in the last epoch. {COST_NOTE} "
SPEED_COLUMNS = ["network, method", "mean", "epoch 1", "half-way", "end", "learning rate", "seeds", "what differs"]
SPEED_NOTE = (
    "Training errors in percent, means over seeds ± their standard deviation: over all epochs, after the first, half "
    "and all of them. The paper shows a plot and no numbers."
)


def make_cells(
    title: str,
    row: Row,
    runs: Results,
    printed: float | None,
    summarise: Callable[[Sequence[float]], str | Quantity],
    *more: str,
) -> list[str | Quantity]:
    """A line of the table: the paper's number, ours over all seeds, and the differences between both."""
    chosen = {key: value for key, value in runs[0].measured.get("chosen", {}).items() if key != "learning_rate"}
    return [
        title,
        Quantity(printed),
        *(summarise(errors_at(runs, part)) for part in ("test", "train")),
        ", ".join(filter(None, [str(list_rates(runs)), format_changes(chosen)])),
        Quantity(len(runs), digits=0),
        *summarise_cost(runs),
        "; ".join([*more, *describe_differences(runs[0].parameters, row)]) or "nothing",
    ]


def make_speed_cells(title: str, row: Row, runs: Results, *more: str) -> list[str | Quantity]:
    """A line of a table of training errors."""
    training: Training = runs[0].parameters
    epochs = (0, max(0, training.epochs // 2 - 1), training.epochs - 1)
    return [
        title,
        mean_and_deviation(mean_over_epochs(runs)),
        *(mean_and_deviation(errors_at(runs, "train", epoch)) for epoch in epochs),
        list_rates(runs),
        Quantity(len(runs), digits=0),
        "; ".join([*more, *describe_differences(training, row)]) or "nothing",
    ]


def describe_network(group: str, paper: str) -> list[str]:
    """A note if the network is not the paper's."""
    network = group.partition(",")[0]
    return [] if network == paper else [f"{network}, not {paper}"]


def describe_differences(training: Training, row: Row) -> list[str]:
    """How a run differs from the paper's."""
    config, search = training.config, training.search
    words = ["not in the paper"] if row.ours else []
    if config.epochs != PAPER_EPOCHS:
        words.append(f"{config.epochs} of {PAPER_EPOCHS} epochs")
    if config.samples:
        words.append(f"{config.samples:,} of 50,000 images")
    if config.precision != "32-true":
        words.append(config.precision)
    if len(row.rates) > 1 and search is None:
        words.append("learning rate not searched")
    elif search is not None and "epochs" in search.trial:
        words.append(f"learning rate from trials of {search.trial['epochs']} epochs")
    candidates = {format_changes(chosen) for chosen in row.candidates}
    if len(candidates) > 1 and (search is None or len(search.candidates) < len(candidates) * len(row.rates)):
        words.append(f"only {format_changes(row.candidates[0])}")
    return words


# Charts.


def chart_rates(results: Results, rows: Sequence[Row], group: str) -> Chart:
    """The held-out error over the learning rate, for the best candidate of each row."""
    from oni.recipes.charts.chart import Chart, Series
    from oni.recipes.charts.curves import with_error_axis

    series = []
    for row in rows:
        best: dict[float, float] = {}
        for candidate, error in read_trials(find_runs(results, row, group)):
            rate = candidate["learning_rate"]
            best[rate] = min(best.get(rate, 100.0), error)
        if best:
            rates = sorted(best)
            series.append(Series(row.title, rates, [best[rate] for rate in rates], COLOURS[row.name]))
    title = f"{name_network(group)}: held-out error over the rate"
    return with_error_axis(Chart(title, "learning rate", "validation error, %", series, x_log=True))
