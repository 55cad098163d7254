"""Trials of a network with several learning rates, and held-out images to choose by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.errors import errors_at, find_runs, mean_error
from oni.recipes.experiments.experiment import Results
from oni.recipes.experiments.fashion_mnist.family import (
    COLOURS,
    ISOMETRIC,
    TRAINS,
    make_config,
    mlp,
)
from oni.recipes.experiments.runs import Row, Training, plan_rows

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Series

__all__ = [
    "HE",
    "ONI",
    "ORTHOGONAL",
    "OTHERS",
    "best_trials",
    "find_longer",
    "find_trials",
    "make_curve",
    "make_line",
    "make_longer",
    "make_rows",
    "make_trials",
    "rates_of",
    "rates_that_train",
]

HE, ORTHOGONAL, BATCH_NORM, ONI = "He initialisation", "OrthInit x sqrt 2", "batch norm", "ONI"
OTHERS = (HE, ORTHOGONAL, BATCH_NORM)
"""What a practitioner would choose, of any depth."""
TRIAL, LONGER = "learning rate", "longer"


def make_rows(depth: int) -> dict[str, Row]:
    """The networks of some depth, by name; ONI always starts from an orthogonal Z."""
    rows = {
        HE: mlp(depth, "he"),
        ORTHOGONAL: mlp(depth, "orth-init", {"gain": "relu"}),
        BATCH_NORM: mlp(depth, "he", network_options={"norm": "batch"}),
        ONI: mlp(depth, "oni", ISOMETRIC),
    }
    return {name: replace(row, name=f"{depth} layers, {name}", title=name) for name, row in rows.items()}


def make_trials(name: str, depth: int, rates: Sequence[float], seed: int, **sizes: Any) -> list[Training]:
    """A network with every learning rate; ``sizes`` are data, samples, validation and epochs."""
    row, config = make_rows(depth)[name], make_config(**sizes)
    return [
        run for rate in rates for run in plan_rows([replace(row, rate=rate)], config, [seed], group=f"{TRIAL} {rate:g}")
    ]


def make_longer(name: str, depth: int, rates: Sequence[float], seed: int, longer: int, **sizes: Any) -> list[Training]:
    """A network trained for ``longer`` epochs, with the rate that was best in the trials of its seed."""
    trial, config = make_config(**sizes), make_config(**{**sizes, "epochs": longer})
    shorter = {"epochs": trial.epochs, "drops": trial.drops}
    return plan_rows([make_rows(depth)[name]], config, [seed], group=LONGER, trial=shorter, rates=rates)


# Reading the results.


def find_trials(results: Results, name: str, depth: int) -> Results:
    """The trials of a network of some depth."""
    trials = Results(run for run in results if getattr(run.parameters, "group", "").startswith(TRIAL))
    return find_runs(trials, make_rows(depth)[name])


def find_longer(results: Results, name: str, depth: int) -> Results:
    """The longer run of a network of some depth."""
    return find_runs(results.where(group=LONGER), make_rows(depth)[name])


def rates_of(trials: Results) -> list[float]:
    """The learning rates that were tried."""
    return sorted({run.parameters.learning_rate for run in trials})


def best_trials(results: Results, name: str, depth: int) -> Results:
    """The trials at the learning rate with the least mean error on the images that were held out."""
    trials = find_trials(results, name, depth)
    return min(
        (trials.where(learning_rate=rate) for rate in rates_of(trials)),
        key=lambda runs: mean_error(runs, "validation"),
    )


def rates_that_train(trials: Results) -> list[float]:
    """The rates at which every seed ends with a training error below one half."""
    return [rate for rate in rates_of(trials) if max(errors_at(trials.where(learning_rate=rate), "train")) < TRAINS]


# Lines of charts.


def make_curve(name: str, runs: Results, unit: float = 1.0) -> Series:
    """Test error by epoch; ``unit`` is how much one epoch is along the axis."""
    epochs = range(1, runs[0].parameters.epochs + 1)
    columns = [errors_at(runs, "test", epoch - 1) for epoch in epochs]
    return make_line(name, [unit * epoch for epoch in epochs], columns)


def make_line(name: str, x: Sequence[float], columns: Sequence[Sequence[float]]) -> Series:
    """A line through the means over seeds, with a band from the smallest to the largest; 100 where a run diverged."""
    from oni.recipes.charts.chart import Series

    columns = [[min(100.0, error) for error in column] for column in columns]
    means = [sum(column) / len(column) for column in columns]
    if min(map(len, columns)) == 1:
        return Series(name, x, means, COLOURS[name])
    return Series(name, x, means, COLOURS[name], low=[*map(min, columns)], high=[*map(max, columns)])
