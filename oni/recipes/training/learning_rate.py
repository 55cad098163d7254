"""The learning rate as the paper chooses it: the best of a grid on held-out training samples."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oni.files import write_atomically
from oni.recipes.training.config import Config
from oni.recipes.training.run import train

__all__ = ["AllDiverged", "Selection", "select_learning_rate"]


class AllDiverged(ValueError):
    """No learning rate of the grid trains."""


@dataclass(frozen=True)
class Selection:
    """The learning rate that was chosen, and by which numbers."""

    learning_rate: float
    errors: dict[float, float | None]
    """On the held-out samples after the last epoch, for each of the grid; ``None`` where it diverged."""
    config: Config
    """The given configuration with the learning rate in it."""
    runs: list[str]
    """The folders' names."""


def select_learning_rate(
    config: Config,
    grid: Sequence[float],
    out: Path | str,
    *,
    epochs: int | None = None,
    validation: int | None = None,
    **options: Any,
) -> Selection:
    """Train with each learning rate and take the one with the least error on held-out samples, the first of equals.

    The runs are runs like all others, in the same folder: those that are there already are not trained again. The
    choice is recorded beside them as ``selection-<hash>.json``.

    Args:
        config: what to train; its own learning rate does not matter.
        grid: the learning rates.
        out: the folder of runs.
        epochs: for these runs; the configuration's otherwise.
        validation: how many to hold out: the configuration's own number, or else 5,000 as in the paper.
        options: for :func:`oni.recipes.training.run.train`.

    Raises:
        AllDiverged: if no learning rate of the grid gives a finite loss.
    """
    if not grid:
        raise ValueError("grid must hold at least one learning rate, got none")
    held_out = validation if validation is not None else config.validation or 5000
    if held_out < 1:
        raise ValueError(f"validation must be at least 1, got {held_out}")
    short = replace(config, validation=held_out, epochs=config.epochs if epochs is None else epochs)
    results = [train(replace(short, learning_rate=rate), out, **options) for rate in grid]
    errors = {result.config.learning_rate: result.metrics["validation_error"] for result in results}
    trained = {rate: error for rate, error in errors.items() if error is not None}
    best = min(trained, key=lambda rate: trained[rate]) if trained else None
    runs = [result.folder.name for result in results]
    record = {
        "chosen": best,
        "grid": [{"learning_rate": rate, "validation_error": error} for rate, error in errors.items()],
        "runs": runs,
    }
    path = Path(out) / f"selection-{hashlib.sha256(','.join(runs).encode()).hexdigest()[:12]}.json"
    content = json.dumps(record, indent=1, allow_nan=False) + "\n"
    if not path.is_file() or path.read_text(encoding="utf-8") != content:
        write_atomically(path, content)
    if best is None:
        raise AllDiverged(f"every learning rate of {list(errors)} diverges ({path}); try smaller ones")
    return Selection(best, errors, replace(config, learning_rate=best), runs)
