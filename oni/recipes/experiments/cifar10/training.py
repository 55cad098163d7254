"""Training the runs of the CIFAR-10 tables: their configurations, and what is best of the trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.cifar10.family import Beginning, Training, Trial, find_network, name_trial
from oni.recipes.experiments.rows import Options, Row

if TYPE_CHECKING:
    from oni.recipes.experiments.setting import Setting
    from oni.recipes.training.config import Config

__all__ = ["drop_epochs", "make_config", "make_measure"]


def make_config(run: Training, row: Row, learning_rate: float, options: Options) -> Config:
    """The configuration of a run; what the paper's text leaves open is as in the authors' code."""
    from oni.recipes.experiments.train_network import override_config
    from oni.recipes.training.config import Config

    network, network_options = find_network(run.network)
    is_residual = network == "resnet-cifar"
    config = Config(
        data=run.data,
        network=network,
        network_options=network_options,
        method=row.method,
        learning_rate=learning_rate,
        momentum=0.9,
        weight_decay=1e-4 if is_residual else 0.0,
        batch_size=run.batch_size,
        epochs=run.epochs,
        drops=() if isinstance(run, Beginning) else drop_epochs(run.epochs),
        drop_factor=0.1 if is_residual else 0.2,
        seed=run.seed,
        samples=run.samples,
        validation=0 if isinstance(run, Beginning) else run.validation,
        normalise="mean-std",
        augment=("flip", "crop"),
        measure_every=run.epochs if isinstance(run, Beginning) else run.measure_every,
    )
    return override_config(config, {**row.options, **options, **run.overrides})


def drop_epochs(epochs: int) -> tuple[int, ...]:
    """After which epochs the learning rate drops: at a half and three quarters, as 80 and 120 of 160.

    >>> drop_epochs(160), drop_epochs(10), drop_epochs(2), drop_epochs(1)
    ((80, 120), (5, 7), (1,), ())
    """
    return tuple(sorted({epochs // 2, epochs * 3 // 4} - {0}))


def make_measure(rows: Sequence[Row]) -> Callable[[Setting, Training], dict[str, Any]]:
    """The function that trains a run of a table with these rows."""
    by_name = {row.name: row for row in rows}

    def measure(setting: Setting, run: Training) -> dict[str, Any]:
        from oni.recipes.experiments.train_network import choose_by_validation, train_network

        row = by_name[run.row]
        if isinstance(run, Beginning):
            return train_network(make_config(run, row, run.learning_rate, {}), setting)
        if isinstance(run, Trial):
            return train_network(make_config(run, row, run.learning_rate, run.options), setting)
        rate, candidate, tried = run.rates[0], run.candidates[0], {}
        if trials := run.trials():
            configs = [make_config(trial, row, trial.learning_rate, trial.options) for trial in trials]
            best, errors = choose_by_validation(configs, setting)
            rate, candidate = trials[best].learning_rate, trials[best].options
            tried = dict(zip(map(name_trial, trials), errors, strict=True))
        rate *= run.batch_size / run.trials_batch_size
        measured = train_network(make_config(run, row, rate, {**candidate, **run.options}), setting)
        return {**measured, "chosen": dict(candidate), "tried": tried}

    return measure
