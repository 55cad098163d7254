"""Train one network of an experiment: choose the learning rate, train, record curves, spectra and signal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from oni.recipes.experiments.setting import NoData, NotTrained, Setting
from oni.recipes.experiments.texts import format_override
from oni.recipes.methods import METHODS
from oni.recipes.training.config import Config
from oni.recipes.training.learning_rate import AllDiverged, select_learning_rate
from oni.recipes.training.overrides import apply_changes
from oni.recipes.training.run import find_result, train
from oni.recipes.training.watch import WATCHED, build_watchers

__all__ = ["WATCHED", "choose_by_validation", "choose_learning_rate", "override_config", "train_network"]

HELD_OUT = 5000
"""Samples by which a learning rate is chosen, where the configuration has no number of its own."""
CURVES = ("train_error", "validation_error", "test_error", "train_loss", "test_loss")
TOP5 = "test_top5_error"
"""Recorded where there are enough classes."""


def override_config(config: Config, overrides: Mapping[str, Any]) -> Config:
    """The configuration with the overrides that concern it: an option that only other methods have does not."""
    every_option = {option for method in METHODS.values() for option in method.options}

    def concerns(key: str) -> bool:
        owner, _, option = key.partition(".")
        return owner != "method_options" or option in config.method_options or option not in every_option

    return apply_changes(config, [format_override(key, value) for key, value in overrides.items() if concerns(key)])


def choose_learning_rate(
    config: Config, grid: Sequence[float], setting: Setting, *, epochs: int | None = None
) -> tuple[float, dict[float, float | None]]:
    """The learning rate of the grid with the least error on held-out samples, and all these errors.

    One rate alone is taken as it is. Where all of them diverge it is the first, as the run itself will then show.
    Without ``epochs``, the runs are as long as the configuration says.
    """
    if len(grid) == 1:
        return grid[0], {}
    if setting.dry_run:
        held_out = replace(config, validation=config.validation or HELD_OUT, epochs=epochs or config.epochs)
        for rate in grid:
            check_finished(replace(held_out, learning_rate=rate), setting)
    try:
        choice = select_learning_rate(config, grid, setting.runs, epochs=epochs, **train_options(config, setting))
    except AllDiverged:
        return grid[0], dict.fromkeys(grid)
    return choice.learning_rate, choice.errors


def choose_by_validation(configs: Sequence[Config], setting: Setting) -> tuple[int, list[float | None]]:
    """Train each configuration; which has the least error on held-out samples, and all these errors.

    The error of a run that diverged is ``None``; where all diverge the first is taken, as the run itself will show.
    """
    results = [train_network(config, setting) for config in configs]
    errors = [None if result["status"] == "diverged" else result["validation_error"][-1] for result in results]
    trained = {index: error for index, error in enumerate(errors) if error is not None}
    return min(trained, key=lambda index: trained[index], default=0), errors


def train_network(config: Config, setting: Setting) -> dict[str, Any]:
    """Train, or read what was trained: the curves by epoch, and what the configuration watches."""
    check_finished(config, setting)
    result = train(
        config,
        setting.runs,
        watch=build_watchers(config, setting.load_dataset(config)) if config.watch else None,
        **train_options(config, setting),
    )
    names = [*CURVES, *([TOP5] if TOP5 in result.metrics else [])]
    curves = {name: [row.get(name) for row in result.epochs] for name in names}
    return {
        "run": result.folder.name,
        "status": result.metrics["status"],
        "learning_rate": config.learning_rate,
        **{name: values for name, values in curves.items() if name != "validation_error" or config.validation},
        **result.watched,
    }


def check_finished(config: Config, setting: Setting) -> None:
    """In a dry run, refuse a run that is not finished, and take note of how long it took."""
    if not setting.dry_run:
        return
    try:
        sha256 = setting.load_dataset(config).sha256
    except FileNotFoundError:
        if setting.data is not None:
            raise
        raise NoData(config.name) from None
    result = find_result(config, setting.runs, sha256)
    if result is None:
        raise NotTrained(config.name)
    setting.seconds[result.folder.name] = result.metrics["seconds"]


def train_options(config: Config, setting: Setting) -> dict[str, Any]:
    return {
        "data": setting.load_dataset(config),
        "hardware": setting.hardware,
        "progress": setting.reporter or setting.progress,
        "resume": setting.resume,
    }
