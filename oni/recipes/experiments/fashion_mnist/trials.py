"""One network, one learning rate, one seed, and images held out to choose the rate by: what practice and demo train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.errors import errors_at, mean_error
from oni.recipes.experiments.experiment import Results
from oni.recipes.experiments.fashion_mnist.family import (
    BATCH,
    IMAGES,
    ISOMETRIC,
    Network,
    halfway,
    is_orthogonalised,
    make_config,
    name_network,
)
from oni.recipes.experiments.fashion_mnist.reading import COLOURS, CONVERGED, find_runs

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Series
    from oni.recipes.experiments.setting import Setting
    from oni.recipes.training.config import Config

__all__ = [
    "BATCH_NORM",
    "HE",
    "ONI",
    "ORTHOGONAL",
    "OTHERS",
    "Longer",
    "Trial",
    "best_trials",
    "describe_trial",
    "estimate_trial_cost",
    "find_longer",
    "find_trials",
    "largest_rise",
    "make_curve",
    "make_line",
    "make_trial",
    "measure_longer",
    "measure_trial",
    "name_line",
    "rates_of",
    "rates_that_train",
]

HE = Network(0, "he")
ORTHOGONAL = Network(0, "orth-init", {"gain": "relu"})
BATCH_NORM = Network(0, "he", network_options={"norm": "batch"})
OTHERS = (HE, ORTHOGONAL, BATCH_NORM)
"""What a practitioner would choose, of any depth."""
ONI = Network(0, "oni", ISOMETRIC)


@dataclass(frozen=True)
class Trial:
    """A network trained with one learning rate from one seed."""

    depth: int
    method: str
    options: Mapping[str, Any]
    learning_rate: float
    seed: int
    data: str
    samples: int
    validation: int
    epochs: int
    network_options: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """How many updates it trains."""
        return count_steps(self)

    def override(self, overrides: Mapping[str, Any]) -> Trial:
        """The run with the overrides that are not sizes of the preset."""
        return replace(self, overrides=without_sizes(overrides))


@dataclass(frozen=True)
class Longer:
    """A network trained for as long as ONI takes, with the rate that was best in the trials of its seed."""

    depth: int
    method: str
    options: Mapping[str, Any]
    grid: tuple[float, ...]
    select_epochs: int
    seed: int
    data: str
    samples: int
    validation: int
    epochs: int
    network_options: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """How many updates it trains."""
        return count_steps(self)

    def override(self, overrides: Mapping[str, Any]) -> Longer:
        """The run with the overrides that are not sizes of the preset."""
        return replace(self, overrides=without_sizes(overrides))


def count_steps(run: Trial | Longer) -> int:
    images = run.samples or IMAGES[run.data] - run.validation
    return run.epochs * (images // int(run.overrides.get("batch_size", BATCH)))


def without_sizes(overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in overrides.items() if key not in ("data", "samples", "epochs")}


def make_trial(network: Network, depth: int, rate: float, seed: int, **sizes: Any) -> Trial:
    """A trial of a network; ``sizes`` are data, samples, validation and epochs."""
    return Trial(depth, network.method, network.options, rate, seed, network_options=network.network_options, **sizes)


def make_trial_config(run: Trial | Longer, **changes: Any) -> Config:
    return make_config(run, validation=run.validation, **changes)


def measure_trial(setting: Setting, run: Trial) -> dict[str, Any]:
    """Train with the learning rate of the trial."""
    from oni.recipes.experiments.train_network import train_network

    return train_network(make_trial_config(run, learning_rate=run.learning_rate), setting)


def measure_longer(setting: Setting, run: Longer) -> dict[str, Any]:
    """Train with the best rate of the trials, which are read if they are finished."""
    from oni.recipes.experiments.train_network import choose_learning_rate, train_network

    trial = make_trial_config(run, epochs=run.select_epochs, drops=halfway(run.select_epochs))
    rate, _ = choose_learning_rate(trial, run.grid, setting)
    return train_network(make_trial_config(run, learning_rate=rate), setting)


def describe_trial(run: Trial | Longer) -> str:
    """A run in a few words."""
    name = name_line(Network(run.depth, run.method, run.options, network_options=run.network_options))
    rate = f"learning rate {run.learning_rate:g}" if isinstance(run, Trial) else "best learning rate"
    return f"{run.depth}-layer MLP, {name}, {rate}, {run.epochs} epochs, seed {run.seed}"


def estimate_trial_cost(run: Trial | Longer) -> float:
    """How long a run takes beside others."""
    return run.steps * run.depth * (10.0 if is_orthogonalised(run) else 1.0)


# Reading the results.


def name_line(network: Network) -> str:
    """The short name of a network, as ONI is always started in the same way here."""
    return "ONI" if network.method == "oni" else name_network(network)


def find_trials(results: Results, network: Network, depth: int) -> Results:
    """The trials of a network of some depth."""
    trials = Results(run for run in results if isinstance(run.parameters, Trial))
    return find_runs(trials.where(depth=depth), network)


def find_longer(results: Results, network: Network, depth: int) -> Results:
    """The longer run of a network of some depth."""
    runs = Results(run for run in results if isinstance(run.parameters, Longer))
    return find_runs(runs.where(depth=depth), network)


def rates_of(trials: Results) -> list[float]:
    """The learning rates that were tried."""
    return sorted({run.parameters.learning_rate for run in trials})


def best_trials(results: Results, network: Network, depth: int) -> Results:
    """The trials at the learning rate with the least mean error on the images that were held out."""
    trials = find_trials(results, network, depth)
    return min(
        (trials.where(learning_rate=rate) for rate in rates_of(trials)),
        key=lambda runs: mean_error(runs, "validation"),
    )


def rates_that_train(trials: Results) -> list[float]:
    """Those with which every seed ends with less than half of the training images wrong."""
    return [rate for rate in rates_of(trials) if max(errors_at(trials.where(learning_rate=rate), "train")) < CONVERGED]


def largest_rise(runs: Results) -> float:
    """By how much the test error rises from one epoch to the next, in the worst seed."""
    rises = [0.0]
    for epoch in range(1, runs[0].parameters.epochs):
        before, after = errors_at(runs, "test", epoch - 1), errors_at(runs, "test", epoch)
        rises += [later - earlier for earlier, later in zip(before, after, strict=True)]
    return max(rises)


# Lines of charts.


def make_curve(network: Network, runs: Results, unit: float = 1.0) -> Series:
    """Test error by epoch; ``unit`` is how much one epoch is along the axis."""
    epochs = range(1, runs[0].parameters.epochs + 1)
    columns = [errors_at(runs, "test", epoch - 1) for epoch in epochs]
    return make_line(network, [unit * epoch for epoch in epochs], columns)


def make_line(network: Network, x: Sequence[float], columns: Sequence[Sequence[float]]) -> Series:
    """A line through the means of columns of seeds, with a band from the least to the most."""
    from oni.recipes.charts.chart import Series

    name, means = name_line(network), [sum(column) / len(column) for column in columns]
    if min(map(len, columns)) == 1:
        return Series(name, x, means, COLOURS[name])
    return Series(name, x, means, COLOURS[name], low=[*map(min, columns)], high=[*map(max, columns)])
