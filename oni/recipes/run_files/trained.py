"""A run that has been trained, read from its folder: its configuration and its final models."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from torch import Tensor

from oni.files import read_json
from oni.recipes.run_files.config import Config
from oni.recipes.run_files.run_folder import RunFolder

__all__ = ["TrainedRun", "digest_weights"]


class TrainedRun:
    """The folder of a run, whatever its name. No code that it names is imported, and nothing of it is run.

    Raises:
        ValueError: if there is no run in the folder, or it has no checkpoint.
    """

    def __init__(self, path: Path) -> None:
        try:
            values = read_json(path / "config.json", remedy="name the folder of another run")
        except (FileNotFoundError, NotADirectoryError):
            raise ValueError(f"{path}: not a run folder: it has no config.json") from None
        try:
            self.config = Config(**values)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}/config.json: not the configuration of a run ({error})") from None
        self.folder = RunFolder(path.parent, self.config)
        self.folder.path = path
        self.path = path
        self.data_sha256: str | None = (self.folder.read("run.json") or {}).get("data_sha256")
        record = self.folder.read("metrics.json") or {}
        self.metrics: dict[str, Any] = record.get("metrics") or {}
        """The metrics at the end; empty if the run has not ended."""
        self.warnings: list[str] = []
        """Of checkpoints that are damaged."""

    @property
    def state(self) -> dict[str, Any]:
        """The newest whole checkpoint."""
        if not hasattr(self, "_state"):
            state = self.folder.load_checkpoint(self.warnings.append)
            if state is None:
                raise ValueError(f"{self.path}: has no checkpoint and therefore no weights; train it again")
            self._state = state
        return self._state

    @property
    def steps(self) -> int:
        """After how many steps the weights were saved."""
        return int(self.state["step"])

    def models(self) -> dict[str, dict[str, Tensor]]:
        """The states of its models, by name; what a task adds to them has a name of its own."""
        task = self.state["task"]
        own = {name: value for name, value in task.items() if name not in ("models", "optimizers")}
        return {**task["models"], **own}


def digest_weights(state: dict[str, Any]) -> str:
    """The digest of the names, shapes and values of a state.

    >>> import torch
    >>> digest_weights({"a": torch.ones(2)}) == digest_weights({"a": torch.ones(2).double()})
    False
    """
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        if isinstance(value, Tensor):
            digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
