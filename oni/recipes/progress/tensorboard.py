"""The metrics of a run for TensorBoard, where it is installed; otherwise nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oni.recipes.run_files.run_folder import RunFolder

__all__ = ["EventWriter", "tag"]

PARTS = ("train", "validation", "test")


def tag(metric: str) -> str:
    """The name of a metric's chart; charts of one kind are grouped.

    >>> tag("test_error"), tag("learning_rate")
    ('error/test', 'learning_rate')
    """
    part, _, kind = metric.partition("_")
    return f"{kind}/{part}" if part in PARTS else metric


class EventWriter:
    """One event file for a run. A session that continues a run writes all of it anew, so no step is shown twice."""

    def __init__(self, folder: RunFolder, metrics: Sequence[str]) -> None:
        self.folder, self.metrics = folder, metrics
        self.writer: Any = None

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add the last row to every chart; the first time, all rows."""
        new = rows[-1:]
        if self.writer is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                return
            new = rows
            with self.folder.saving(self.folder.path):
                for earlier in self.folder.path.glob("events.out.tfevents.*"):
                    earlier.unlink()
                self.writer = SummaryWriter(str(self.folder.path))
        with self.folder.saving(self.folder.path):
            for row in new:
                for metric in self.metrics:
                    if row[metric] is not None:
                        self.writer.add_scalar(tag(metric), row[metric], row["steps"])
            self.writer.flush()

    def close(self) -> None:
        """End the file."""
        if self.writer is not None:
            with self.folder.saving(self.folder.path):
                self.writer.close()
