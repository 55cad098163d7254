"""Where, on what and with which overrides the runs of an experiment are trained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oni.recipes.data.datasets import load_dataset
from oni.recipes.experiments.texts import format_override
from oni.recipes.training.devices import Hardware
from oni.recipes.training.overrides import read_changes

if TYPE_CHECKING:
    from oni.recipes.data.images import Dataset
    from oni.recipes.experiments.experiment import Experiment
    from oni.recipes.training.config import Config
    from oni.recipes.training.progress import Reporter

__all__ = ["NotTrained", "Setting", "check_overrides", "make_setting", "read_overrides"]

REFUSED = {"seed": "pass --seed", "watch": "an experiment watches what it needs"}


class NotTrained(Exception):
    """A run is not finished, and nothing is trained in a dry run."""


@dataclass
class Setting:
    """What the runs of an experiment share and what is not part of a run, but for the overrides."""

    runs: Path
    """The folder of all runs: experiments that need the same run share it."""
    data: Path | None = None
    hardware: Hardware = field(default_factory=Hardware)
    progress: str = "auto"
    resume: bool = True
    download: bool = False
    """Fetch what ``data`` lacks."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """By key of a configuration, for every run; an option of a method for the runs of that method."""
    dry_run: bool = False
    """Read what is finished; what is not raises `NotTrained`."""
    reporter: Reporter | None = field(default=None, repr=False)
    """Shows how runs go; made from ``progress`` for each of them otherwise."""
    datasets: dict[str, Dataset] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for key, remedy in REFUSED.items():
            if key in self.overrides:
                raise ValueError(f"{key} can't be overridden for an experiment: {remedy}")
        if self.download and self.data is None:
            raise ValueError("--download needs to know where to: pass --data DIR as well")
        if self.data is not None and not self.download and not self.data.is_dir():
            raise FileNotFoundError(f"--data {self.data}: there is no such folder")

    def load_dataset(self, config: Config) -> Dataset:
        """The data set of a configuration, read once."""
        key = json.dumps([config.data, config.data_options])
        if key not in self.datasets:
            options, workers = config.data_options, self.hardware.readers
            self.datasets[key] = load_dataset(
                config.data, self.data, options=options, workers=workers, download=self.download
            )
        return self.datasets[key]

    def given_options(self) -> list[str]:
        """The options that are of use only where something is trained."""
        options = {
            "--data": self.data,
            "--devices, --strategy, --num-nodes, --accelerator, --workers or --compile": self.hardware != Hardware(),
            "--resume": self.resume,
            **{format_override(key, value): True for key, value in self.overrides.items()},
        }
        return [name for name, given in options.items() if given]


def make_setting(
    *,
    runs: Path,
    data: Path | None,
    download: bool,
    hardware: Hardware,
    progress: str,
    resume: bool,
    changes: Sequence[str],
    file: Path | None,
    precision: str | None,
) -> Setting:
    """A setting as the command line has it. ``KEY=VALUE`` wins over the option, and that over the file."""
    words = [*(read_changes(file) if file else []), *([f"precision={precision}"] if precision else []), *changes]
    return Setting(runs, data, hardware, progress, resume, download, read_overrides(words))


def read_overrides(words: Sequence[str]) -> dict[str, Any]:
    """Overrides by key, later ones winning; a value is a number, true, false or null if it reads as one.

    >>> read_overrides(["epochs=3", "drops=80,120", "method_options.bound=tight"])
    {'epochs': 3, 'drops': '80,120', 'method_options.bound': 'tight'}
    """
    overrides: dict[str, Any] = {}
    for word in words:
        key, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not key:
            raise ValueError(f"{word!r} is not key=value; write for example learning_rate=0.5")
        try:
            overrides[key] = json.loads(text)
        except ValueError:
            overrides[key] = text
    return overrides


def check_overrides(experiment: Experiment, overrides: Mapping[str, Any]) -> None:
    """Refuse to override what the experiment itself varies."""
    for key in overrides:
        if key in experiment.sweeps:
            raise ValueError(f"{key} can't be overridden for {experiment.id}, which {experiment.sweeps[key]}")
