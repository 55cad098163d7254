"""The metrics of a run for TensorBoard, where it is installed; otherwise nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oni.recipes.training.run_folder import RunFolder

__all__ = ["EventWriter", "tag"]

PARTS = ("train", "validation", "test")


def tag(metric: str) -> str:
    """The name of a metric's chart: those of one kind are side by side.

    >>> tag("test_error"), tag("learning_rate")
    ('error/test', 'learning_rate')
    """
    part, _, kind = metric.partition("_")
    return f"{kind}/{part}" if part in PARTS else metric


class EventWriter:
    """One event file for each session of a run; what an earlier session wrote after ``last_step`` is not shown."""

    def __init__(self, folder: RunFolder, last_step: int) -> None:
        self.folder, self.last_step = folder, last_step
        self.writer: Any = None

    def write(self, values: Mapping[str, float | None], step: int) -> None:
        """Add a point to every chart."""
        if self.writer is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                return
            with self.folder.saving(self.folder.path):
                self.writer = SummaryWriter(str(self.folder.path), purge_step=self.last_step + 1)
        with self.folder.saving(self.folder.path):
            for metric, value in values.items():
                if value is not None:
                    self.writer.add_scalar(tag(metric), value, step)
            self.writer.flush()

    def close(self) -> None:
        """End the file."""
        if self.writer is not None:
            with self.folder.saving(self.folder.path):
                self.writer.close()
