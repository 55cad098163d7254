"""The user's options for training the runs of an experiment, and what a process has loaded for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oni.recipes.data.datasets import load_dataset
from oni.recipes.experiments.texts import format_override
from oni.recipes.grid.jobs import Engine
from oni.recipes.run_files.overrides import read_changes
from oni.recipes.training.devices import Hardware

if TYPE_CHECKING:
    from oni.recipes.data.images import Dataset
    from oni.recipes.metrics.extractors import Extractor
    from oni.recipes.progress.reporters import Reporter
    from oni.recipes.run_files.config import Config

__all__ = ["Setting", "make_setting", "read_overrides"]

REFUSED = {"seed": "pass --seed", "watch": "an experiment watches what it needs"}


@dataclass
class Loaded:
    """Data sets and networks that this process has loaded for one run, and keeps for the next."""

    datasets: dict[str, Dataset] = field(default_factory=dict)
    extractors: dict[str, Extractor] = field(default_factory=dict)


@cache
def find_loaded(*sources: Path | str | None) -> Loaded:
    """What this process has loaded from these files."""
    return Loaded()


@dataclass(frozen=True)
class Setting:
    """The user's options: where runs are, what they train on, and which values of their configurations to change."""

    runs: Path
    """The folder of all runs. Experiments that need the same run share it."""
    data: Path | None = None
    hardware: Hardware = field(default_factory=Hardware)
    progress: str = "auto"
    resume: bool = True
    download: bool = False
    """Download what is missing in ``data``."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """By key of a configuration, for every run; an option of a method for the runs of that method."""
    engine: Engine = field(default_factory=Engine)
    """Where runs are trained."""
    inception: Path | None = None
    """The file of the Inception network, by which generated images are measured."""
    inception_sha256: str | None = None
    """Its digest, if it is not a known file."""
    classifier: Path | None = None
    """The run of a classifier, by which generated images are measured too."""
    reporter: Reporter | None = field(default=None, repr=False)
    """Reports the progress of runs; by default, each run makes one from ``progress``."""

    def __post_init__(self) -> None:
        for key, remedy in REFUSED.items():
            if key in self.overrides:
                raise ValueError(f"{key} can't be overridden for an experiment: {remedy}")
        if self.download and self.data is None:
            raise ValueError("--download needs a folder: pass --data DIR as well")
        if self.data is not None and not self.download and not self.data.is_dir():
            raise FileNotFoundError(f"--data {self.data}: no such folder")
        self.engine.check_hardware(self.hardware)

    @property
    def loaded(self) -> Loaded:
        """What this process has loaded for it."""
        return find_loaded(self.data, self.inception, self.inception_sha256, self.classifier)

    def prepare_elsewhere(self, names: Iterable[str]) -> Setting:
        """The setting for processes that start in other folders. Data sets are downloaded now, once for all of them."""
        if self.download:
            for name in sorted(names):
                load_dataset(name, self.data, download=True)
        paths = {name: getattr(self, name) for name in ("runs", "data", "inception", "classifier")}
        resolved = {name: path and path.resolve() for name, path in paths.items()}
        return replace(self, **resolved, download=False)

    def load_dataset(self, config: Config) -> Dataset:
        """The data set of a configuration, read once."""
        key = json.dumps([config.data, config.data_options])
        if key not in self.loaded.datasets:
            options, workers = config.data_options, self.hardware.readers
            self.loaded.datasets[key] = load_dataset(
                config.data, self.data, options=options, workers=workers, download=self.download
            )
        return self.loaded.datasets[key]

    def check_extractors(self) -> None:
        """Refuse a file or run that can't measure images, before anything is trained."""
        if self.inception_sha256 is not None and self.inception is None:
            raise ValueError("--inception-sha256 is the digest of a file: pass --inception FILE as well")
        if self.inception is not None and "inception" not in self.loaded.extractors:
            from oni.recipes.metrics.extractors import load_inception

            self.loaded.extractors["inception"] = load_inception(
                self.inception, self.inception_sha256, self.hardware.single_device
            )
        if self.classifier is not None:
            from oni.recipes.generated.classifier import read_classifier

            read_classifier(self.classifier)

    def load_extractors(self, config: Config) -> list[Extractor]:
        """The networks that measure generated images of a configuration's data set, each loaded once."""
        self.check_extractors()
        if self.classifier is not None and config.data not in self.loaded.extractors:
            from oni.recipes.generated.classifier import load_classifier

            self.loaded.extractors[config.data] = load_classifier(self.classifier, self.load_dataset(config))
        return [self.loaded.extractors[name] for name in ("inception", config.data) if name in self.loaded.extractors]

    def given_options(self) -> list[str]:
        """The given options that make no sense for experiments without training."""
        options = {
            "--data": self.data,
            "--devices, --strategy, --num-nodes, --accelerator, --workers, --compile or --share": self.hardware
            != Hardware(),
            "--engine": self.engine != Engine(),
            "--resume": self.resume,
            "--inception": self.inception,
            "--classifier": self.classifier,
            **{format_override(key, value): True for key, value in self.overrides.items()},
        }
        return [name for name, given in options.items() if given]


def make_setting(
    *,
    runs: Path,
    data: Path | None,
    download: bool,
    hardware: Hardware,
    engine: Engine,
    progress: str,
    resume: bool,
    changes: Sequence[str],
    file: Path | None,
    precision: str | None,
    inception: tuple[Path | None, str | None] = (None, None),
    classifier: Path | None = None,
) -> Setting:
    """The setting of a command line. ``KEY=VALUE`` wins over options, and options over the file."""
    words = [*(read_changes(file) if file else []), *([f"precision={precision}"] if precision else []), *changes]
    return Setting(
        runs,
        data=data,
        hardware=hardware,
        progress=progress,
        resume=resume,
        download=download,
        overrides=read_overrides(words),
        engine=engine,
        inception=inception[0],
        inception_sha256=inception[1],
        classifier=classifier,
    )


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
