"""The distances of a run's images at its end: measured by what the setting has, or read from what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.gan.family import GANRun, make_config
from oni.recipes.generated.measure import NAMES, Protocol, measure_run, read_measured
from oni.recipes.training.devices import is_first_process
from oni.recipes.training.mailbox import Messenger
from oni.recipes.training.overall import OneRun
from oni.recipes.training.progress import Reporter, make_reporter

if TYPE_CHECKING:
    from oni.recipes.experiments.setting import Setting

__all__ = ["measure_images"]

PROVENANCE = ("samples", "real_samples", "mode", "extractor", "extractor_sha256", "preparation", "weights", "biased")


def measure_images(setting: Setting, run: GANRun, folder: Path) -> dict[str, Any]:
    """The numbers by name, and for each kind of extractor (``by_inception``, ``by_classifier``) how they came about."""
    protocol = Protocol(run.images, run.real_images)
    config = make_config(run)
    dataset = setting.load_dataset(config)
    measured = read_measured(folder, dataset, protocol)
    # Of several processes, the first measures for all.
    idle = setting.dry_run or not is_first_process()
    for extractor in [] if idle else setting.load_extractors(config):
        progress = Progress(setting, folder.name)
        try:
            measured[extractor.kind] = measure_run(folder, dataset, extractor, protocol, progress.watch)
        finally:
            progress.end()
    numbers: dict[str, Any] = {}
    for kind, values in measured.items():
        names = tuple(NAMES[kind].values())
        numbers |= {name: value for name, value in values.items() if name.startswith(names)}
        numbers[f"by_{kind}"] = {name: values[name] for name in PROVENANCE if name in values}
    return numbers


class Progress:
    """Shows how many images are done, once there is something to do."""

    def __init__(self, setting: Setting, name: str) -> None:
        self.setting, self.name = setting, name
        self.what, self.reporter = "", None  # type: tuple[str, Reporter | None]

    def watch(self, what: str, done: int, total: int) -> None:
        if self.reporter is None or what != self.what:
            self.end()
            self.what, self.reporter = what, self.make_reporter()
            self.reporter.start(f"{self.name}: features of {total} {what} images", total, 0)
        self.reporter.step(done, what, {})

    def make_reporter(self) -> Reporter:
        reporter = self.setting.reporter
        if isinstance(reporter, OneRun | Messenger):
            return reporter.for_other_work()
        return reporter or make_reporter(self.setting.progress)

    def end(self) -> None:
        if self.reporter is not None:
            self.reporter.end("measured")
        self.reporter = None
