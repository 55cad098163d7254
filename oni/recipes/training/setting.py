"""What an experiment measures by training: a learning rate from a grid, then a run, its curves, spectra and signal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oni.recipes.data.datasets import load_dataset
from oni.recipes.data.images import Dataset
from oni.recipes.methods import METHODS
from oni.recipes.training.config import Config
from oni.recipes.training.devices import Hardware
from oni.recipes.training.learning_rate import AllDiverged, select_learning_rate
from oni.recipes.training.overrides import apply_changes, read_changes
from oni.recipes.training.run import train
from oni.recipes.training.watch import SPECTRUM_AT, WATCHED, build_watchers

__all__ = ["SPECTRUM_AT", "WATCHED", "Setting", "setting_from", "trained"]


@dataclass
class Setting:
    """Where and on what the runs of an experiment are trained. None of it is part of what a run is."""

    runs: Path
    """The folder of all runs: experiments that need the same run share it."""
    data: Path | None = None
    hardware: Hardware = field(default_factory=Hardware)
    progress: str = "auto"
    resume: bool = True
    download: bool = False
    """Fetch what ``data`` lacks."""
    changes: Sequence[str] = ()
    """``key=value`` for every configuration; an option of a method for those of that method."""
    loaded: dict[str, Dataset] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for key, why in (("seed", "pass --seed"), ("watch", "an experiment watches what it needs")):
            if key in self.changed_keys():
                raise ValueError(f"{key} can't be changed for an experiment: {why}")
        if self.download and self.data is None:
            raise ValueError("--download needs to know where to: pass --data DIR as well")

    def images(self, name: str) -> Dataset:
        """A data set, read once."""
        if name not in self.loaded:
            self.loaded[name] = load_dataset(name, self.data, download=self.download)
        return self.loaded[name]

    def asked_for(self) -> list[str]:
        """What is of use only where something is trained."""
        asked = {
            "--data": self.data,
            "--devices, --strategy, --num-nodes or --accelerator": self.hardware != Hardware(),
            "--resume": self.resume,
            **dict.fromkeys(self.changes, True),
        }
        return [name for name, given in asked.items() if given]

    def changed_keys(self) -> list[str]:
        return [change.partition("=")[0].strip() for change in self.changes]

    def changed(self, config: Config) -> Config:
        """The configuration with the changes that concern it."""
        known = {option for method in METHODS.values() for option in method.options}
        own = METHODS[config.method].options

        def concerns(key: str) -> bool:
            owner, _, option = key.partition(".")
            return owner != "method_options" or option in own or option not in known

        keys = self.changed_keys()
        return apply_changes(config, [change for key, change in zip(keys, self.changes, strict=True) if concerns(key)])


def setting_from(
    *,
    runs: Path,
    data: Path | None,
    download: bool,
    hardware: tuple[str, int, str, int],
    progress: str,
    resume: bool,
    changes: Sequence[str],
    file: Path | None,
    precision: str | None,
) -> Setting:
    """A setting as the command line has it. ``KEY=VALUE`` wins over the option, and that over the file."""
    words = [*(read_changes(file) if file else []), *([f"precision={precision}"] if precision else []), *changes]
    return Setting(runs, data, Hardware(*hardware), progress, resume, download, words)


def trained(
    config: Config,
    setting: Setting,
    *,
    grid: Sequence[float],
    select_epochs: int,
    selected_for: Config | None = None,
) -> dict[str, Any]:
    """Choose the learning rate, then train.

    Args:
        config: what to train; its learning rate does not matter.
        setting: where, and on what.
        grid: the learning rates to choose from. One alone is taken as it is.
        select_epochs: how long the runs are by which it is chosen.
        selected_for: what they train, if not the same.
    """
    config, chosen_for = (setting.changed(each) for each in (config, selected_for or config))
    images = setting.images(config.data)
    options: dict[str, Any] = {
        "data": images,
        "hardware": setting.hardware,
        "progress": setting.progress,
        "resume": setting.resume,
    }
    rate = grid[0]
    errors: dict[float, float | None] = {}
    if "learning_rate" in setting.changed_keys():
        rate = config.learning_rate
    elif len(grid) > 1:
        try:
            found = select_learning_rate(chosen_for, grid, setting.runs, epochs=select_epochs, **options)
        except AllDiverged:
            errors = dict.fromkeys(grid)  # as the run itself will, and the experiment goes on with others
        else:
            rate, errors = found.learning_rate, found.errors
    config = replace(config, learning_rate=rate, watch=WATCHED)
    result = train(config, setting.runs, watch=build_watchers(config, images), **options)
    return {
        "run": result.folder.name,
        "status": result.metrics["status"],
        "learning_rate": config.learning_rate,
        "validation_error": {f"{rate:g}": error for rate, error in errors.items()},
        **{
            name: [row[name] for row in result.epochs]
            for name in ("train_error", "test_error", "train_loss", "test_loss")
        },
        **result.watched,
    }
