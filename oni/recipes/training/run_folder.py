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
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from oni.recipes.training.config import Config, drop_new_defaults

with suppress(ModuleNotFoundError):  # not on Windows, where nothing keeps a second process out
    import fcntl

__all__ = ["Busy", "NotSaved", "RunFolder", "Unfinished"]

CHECKPOINT = re.compile(r"checkpoint-(\d{9})-([0-9a-f]{16})\.pt")
KEPT = 2


class NotSaved(OSError):
    """The folder could not be written to, for example because the disk is full. What was in it before still is."""

    exit_code = 74  # EX_IOERR of sysexits.h


class Unfinished(ValueError):
    """The run was interrupted, and it was not said that it shall continue."""


class Busy(OSError):
    """Another process is training this run."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h


class RunFolder:
    """The files of one run below ``out``.

    A checkpoint has the digest of its content in its name, so that one file is both, and a damaged one is noticed.
    """

    def __init__(self, out: Path, config: Config) -> None:
        self.path = out / config.name
        self.config = config

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make the folder, and keep other processes out while inside."""
        with self.saving(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("w")
        with lock:
            try:
                if "fcntl" in globals():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(errno.EAGAIN, "another process is training this run", str(self.path)) from None
            for left_over in self.path.glob(".*.part"):
                left_over.unlink()
            known = self.read("config.json")
            if known is None:
                self.write_json("config.json", self.config.as_dict())
            elif drop_new_defaults(known) != drop_new_defaults(self.config.as_dict()):
                raise ValueError(f"{self.path}: config.json is of another run; move this folder away")
            yield

    @contextmanager
    def saving(self, path: Path) -> Iterator[None]:
        """Say of a failed write what is left."""
        try:
            yield
        except OSError as error:
            kept = [name for name, _, _ in self.checkpoints()]
            left = f"kept: {kept[0]}" if kept else "there was no checkpoint yet"
            raise NotSaved(error.errno, f"{error.strerror} ({left})", str(path)) from error

    def write(self, name: str, content: bytes) -> Path:
        """Write a file under another name, see it to the disk, then let it take its name."""
        path, partial = self.path / name, self.path / f".{name}.part"
        with self.saving(path):
            try:
                with partial.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(partial, path)
            except OSError:
                with suppress(OSError):
                    partial.unlink(missing_ok=True)
                raise
            self.sync()
        return path

    def sync(self) -> None:
        """See the names themselves to the disk, where the system can."""
        with suppress(PermissionError):  # Windows opens no folders
            handle = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def write_json(self, name: str, value: Any) -> None:
        self.write(name, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())

    def write_csv(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        text = io.StringIO()
        if rows:
            writer = csv.DictWriter(text, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        self.write(name, text.getvalue().encode())

    def read(self, name: str) -> Any | None:
        """What a JSON file of this folder holds; ``None`` if there is none."""
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            raise ValueError(f"{self.path / name}: not JSON ({error}); delete it to train this run again") from None

    def started(self) -> float:
        """When its first session began, in seconds since 1970."""
        return datetime.fromisoformat(self.read("run.json")["sessions"][0]["started"]).timestamp()  # type: ignore[index]

    def checkpoints(self) -> list[tuple[str, int, str]]:
        """Name, step and digest of every checkpoint, the newest first."""
        try:
            names = os.listdir(self.path)
        except OSError:
            return []
        found = [(name, int(match[1]), match[2]) for name in names if (match := CHECKPOINT.fullmatch(name))]
        return sorted(found, key=lambda each: each[1], reverse=True)

    def save_checkpoint(self, step: int, state: dict[str, Any]) -> Path:
        """Write a checkpoint; the one before it is kept, older ones go."""
        content = io.BytesIO()
        torch.save(state, content)
        payload = content.getvalue()
        path = self.write(f"checkpoint-{step:09d}-{digest(payload)}.pt", payload)
        others = [name for name, _, _ in self.checkpoints() if name != path.name]
        for name in others[KEPT - 1 :]:
            (self.path / name).unlink(missing_ok=True)
        return path

    def load_checkpoint(self, warn: Callable[[str], None]) -> dict[str, Any] | None:
        """The newest checkpoint that is whole; ``None`` if there is none. Damaged ones are named and put aside."""
        for name, _, expected in self.checkpoints():
            path = self.path / name
            payload = path.read_bytes()
            if digest(payload) == expected:
                return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
            warn(f"{path} is damaged (its content is not what was written) and is not used")
            with self.saving(path):
                os.replace(path, path.with_name(f"{name}.damaged"))
        return None


def digest(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()[:16]
