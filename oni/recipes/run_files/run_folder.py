"""The folder of a run: what it is, how far it got, how it ended. Every file in it is whole or not there."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from oni.files import CannotWrite, make_folder, read_json, write_atomically
from oni.recipes.data.datasets import is_official
from oni.recipes.run_files.config import Config, drop_new_defaults

with suppress(ModuleNotFoundError):  # not on Windows, where nothing keeps a second process out
    import fcntl

__all__ = ["CHECKPOINT_FORMAT", "FORMAT", "Busy", "NotSaved", "RunFolder", "Unfinished", "lock_folder"]

FORMAT = 1
"""The form of run.json and metrics.json. Files without a number are of form 1."""
CHECKPOINT_FORMAT = 2
CHECKPOINT = re.compile(r"checkpoint-(\d{9})-([0-9a-f]{16})\.pt")
KEPT = 2
"""How many checkpoints are kept."""


class NotSaved(CannotWrite):
    """The folder could not be written to, for example because the disk is full. What was in it before still is."""


class Unfinished(ValueError):
    """The run was interrupted, and the caller did not ask to continue it."""


class Busy(OSError):
    """Another process is training this run."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h


class RunFolder:
    """The files of one run below ``out``.

    The name of its folder follows from the configuration. If the data are not the official ones of the data set, the
    name says so, and their results are never mixed up with the official ones.

    A checkpoint has the digest of its content in its name, so that a damaged one is noticed.
    """

    def __init__(self, out: Path, config: Config, data_sha256: str | None = None) -> None:
        other = data_sha256 is not None and not is_official(config.data, data_sha256)
        self.path = out / (f"{config.name}-data-{data_sha256[:8]}" if other and data_sha256 else config.name)
        self.config, self.data_sha256 = config, data_sha256

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Make the folder, and keep other processes out inside this context.

        Raises:
            Busy: if another process is inside.
        """
        with self.saving(self.path):
            make_folder(self.path)
            (self.path / ".lock").touch()
        with lock_folder(self.path, "another process is training this run"):
            for left_over in self.path.glob(".*.part"):
                left_over.unlink()
            written = self.read("config.json")
            if written is None:
                self.write_json("config.json", self.config.as_dict())
            elif drop_new_defaults(written) != drop_new_defaults(self.config.as_dict()):
                raise ValueError(f"{self.path}: config.json belongs to another run; move this folder away")
            self.check_data()
            yield

    def check_data(self) -> None:
        """Refuse to go on, or to use the results, if the run was trained on other data."""
        record = self.read("run.json") or {}
        before = record.get("data_sha256")
        if before and self.data_sha256 and before != self.data_sha256:
            raise ValueError(
                f"{self.path}: was trained on other data (sha256 {before[:8]}...) than these "
                f"({self.data_sha256[:8]}...); move this folder away, or train into another --out"
            )

    @contextmanager
    def saving(self, path: Path) -> Iterator[None]:
        """If a write fails, raise an error that says what is left."""
        try:
            yield
        except OSError as error:
            kept = [name for name, _, _ in self.checkpoints()]
            left = f"kept: {kept[0]}" if kept else "there was no checkpoint yet"
            raise NotSaved(error.errno, f"{error.strerror} ({left})", error.filename or str(path)) from error

    def write(self, name: str, content: bytes | str) -> Path:
        """Write a file, whole or not at all."""
        with self.saving(self.path / name):
            return write_atomically(self.path / name, content)

    def write_json(self, name: str, value: Any) -> None:
        self.write(name, json.dumps(value, indent=1, allow_nan=False) + "\n")

    def write_csv(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        text = io.StringIO()
        if rows:
            writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        self.write(name, text.getvalue())

    def read(self, name: str) -> Any | None:
        """The content of a JSON file of this folder; ``None`` if there is none."""
        path = self.path / name
        try:
            content = read_json(path, remedy="delete it to train this run again")
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not isinstance(content, dict):
            raise ValueError(f"{path}: not written by oni; delete it to train this run again")
        check_format(path, content, FORMAT)
        return content

    def checkpoints(self) -> list[tuple[str, int, str]]:
        """Name, step and digest of every checkpoint, the newest first."""
        try:
            names = os.listdir(self.path)
        except OSError:
            return []
        checkpoints = [(name, int(match[1]), match[2]) for name in names if (match := CHECKPOINT.fullmatch(name))]
        return sorted(checkpoints, key=lambda checkpoint: checkpoint[1], reverse=True)

    def save_checkpoint(self, step: int, state: dict[str, Any]) -> Path:
        """Write a checkpoint; the one before it is kept, older ones are deleted."""
        content = io.BytesIO()
        torch.save(state, content)
        payload = content.getvalue()
        path = self.write(f"checkpoint-{step:09d}-{short_digest(payload)}.pt", payload)
        others = [(name, at) for name, at, _ in self.checkpoints() if name != path.name]
        # One of the same step was written before the epoch's measurement, and this one after it.
        kept = [name for name, at in others if at != step][: KEPT - 1]
        for name, _ in others:
            if name not in kept:
                (self.path / name).unlink(missing_ok=True)
        return path

    def load_checkpoint(self, warn: Callable[[str], None]) -> dict[str, Any] | None:
        """The newest checkpoint that is whole, or ``None``. Damaged ones are reported and renamed."""
        for name, _, expected in self.checkpoints():
            path = self.path / name
            payload = path.read_bytes()
            if short_digest(payload) == expected:
                state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
                check_format(path, state, CHECKPOINT_FORMAT)
                if state.get("format", 1) != CHECKPOINT_FORMAT:
                    raise ValueError(
                        f"{path}: written by an older version of oni; delete this folder to train the run again"
                    )
                return state
            warn(f"{path} is damaged (its content has changed) and is not used")
            with self.saving(path):
                os.replace(path, path.with_name(f"{name}.damaged"))
        return None


@contextmanager
def lock_folder(path: Path, message: str) -> Iterator[None]:
    """Keep other processes out of a folder inside this context.

    Raises:
        Busy: with this message, if another process is inside.
    """
    with (path / ".lock").open("w") as lock:
        try:
            if "fcntl" in globals():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(errno.EAGAIN, message, str(path)) from None
        yield


def check_format(path: Path, content: Mapping[str, Any], newest: int) -> None:
    """Refuse a file of a newer form."""
    number = content.get("format", 1)
    if not isinstance(number, int) or number > newest:
        raise ValueError(
            f"{path}: written in format {number} by a newer version of oni; this one reads up to {newest}; "
            "update oni, or train into another --out"
        )


def short_digest(payload: bytes) -> str:
    """Sixteen digits of the SHA-256."""
    return hashlib.sha256(payload).hexdigest()[:16]
