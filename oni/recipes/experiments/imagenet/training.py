"""Training the runs of the ImageNet tables: their configurations, trials, and what they take."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.imagenet.family import CLASSES, TEST_IMAGES, Training, drop_epochs
from oni.recipes.experiments.rows import Options, Row, format_options

if TYPE_CHECKING:
    from oni.recipes.experiments.setting import Setting
    from oni.recipes.training.config import Config

__all__ = ["make_config", "make_demand", "make_measure"]


def make_config(run: Training, row: Row, rate: float, candidate: Options, *, trial: bool = False) -> Config:
    """The configuration of a run, or of one of its trials."""
    from oni.recipes.experiments.train_network import override_config
    from oni.recipes.training.config import Config

    epochs = run.trial_epochs if trial else run.epochs
    held_out = run.trial_validation if trial else 0
    config = Config(
        data=run.data,
        network=run.network,
        network_options={"classes": CLASSES[run.data]},
        method=row.method,
        learning_rate=rate,
        momentum=0.9,
        weight_decay=1e-4,
        batch_size=run.batch_size,
        epochs=epochs,
        drops=() if trial else drop_epochs(epochs, run.data),
        drop_factor=0.1,
        seed=run.trial_seed if trial else run.seed,
        samples=max(0, run.samples - held_out),
        validation=held_out,
        normalise="mean-std",
        augment=("resized-crop", "flip"),
        measure_every=epochs if trial else 1,
    )
    return override_config(config, {**row.options, **candidate, **run.options, **run.overrides})


def make_measure(rows: Sequence[Row]) -> Callable[[Setting, Training], dict[str, Any]]:
    """The function that trains a run of a table with these rows."""
    by_name = {row.name: row for row in rows}

    def measure(setting: Setting, run: Training) -> dict[str, Any]:
        from oni.recipes.experiments.train_network import choose_by_validation, train_network

        row = by_name[run.row]
        rate, candidate, tried = run.rates[0], run.candidates[0], {}
        if trials := run.trials():
            configs = [make_config(run, row, *trial, trial=True) for trial in trials]
            best, errors = choose_by_validation(configs, setting)
            rate, candidate = trials[best]
            tried = {name_trial(*trial): error for trial, error in zip(trials, errors, strict=True)}
        measured = train_network(make_config(run, row, rate, candidate), setting)
        return {**measured, "chosen": dict(candidate), "tried": tried}

    return measure


def name_trial(rate: float, candidate: Options) -> str:
    """What a trial tries.

    >>> name_trial(0.1, {"weight_decay": 2e-4})
    'learning rate 0.1, weight decay 0.0002'
    """
    return ", ".join(filter(None, [f"learning rate {rate:g}", format_options(candidate)]))


def make_demand(rows: Sequence[Row], devices: Mapping[str, str]) -> Callable[[Sequence[Training], Setting], list[str]]:
    """The function that says what the runs of a table take: trainings, images, memory of each device.

    Args:
        rows: of the table.
        devices: by network, on what the paper trained it.
    """
    by_name = {row.name: row for row in rows}

    def demand(planned: Sequence[Training], setting: Setting) -> list[str]:
        networks = list(dict.fromkeys(run.network for run in planned))
        lines = []
        for network in networks:
            runs = [run for run in planned if run.network == network]
            configs = [make_config(run, by_name[run.row], run.rates[0], run.candidates[0]) for run in runs]
            on_what = f" (the paper: {devices[network]})" if network in devices else ""
            lines.append(f"{network}: {count_images(runs)}; {describe_memory(configs, setting)}{on_what}")
        return [*lines, "For less memory: accumulate=4, --devices 8 or --precision bf16-mixed."]

    return demand


def count_images(runs: Sequence[Training]) -> str:
    """How often runs are trained and how many images they see, in words."""
    trials = {(run.row, name_trial(*trial), run.trial_seed): run for run in runs for trial in run.trials()}.values()
    epochs = sum(run.epochs for run in runs) + sum(run.trial_epochs for run in trials)
    trained = sum(run.epochs * run.images for run in runs) + sum(run.trial_epochs * run.images for run in trials)
    tested = sum(run.epochs * TEST_IMAGES[run.data] for run in runs)
    more = f" and {len(trials)} short trials" if trials else ""
    return f"{len(runs)} runs{more}, {epochs:,} epochs, {trained:,} training and {tested:,} test images"


def describe_memory(configs: Sequence[Config], setting: Setting) -> str:
    """The memory that the largest of these needs on each device, in words."""
    from oni.recipes.training.memory import estimate_memory

    devices = setting.hardware.devices * setting.hardware.num_nodes
    size = configs[0].data_options["size"]
    # Of each network once, with ONI if it is among its methods: that needs most.
    largest = {json.dumps(config.network_options): config for config in configs if config.method != "oni"}
    largest |= {json.dumps(config.network_options): config for config in configs if config.method == "oni"}
    memory = max(estimate_memory(config, (3, size, size), devices=devices) for config in largest.values())
    at_once = configs[0].batch_size // devices // configs[0].accumulate
    where = "1 device" if devices == 1 else f"each of {devices} devices"
    return f"about {memory / 1e9:.2g} GB on {where} for {at_once} images of {size} x {size} at once"
