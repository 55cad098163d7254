"""How long and how carefully to measure."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path

import torch

__all__ = ["SEED", "Settings"]

SEED = 0
QUICK_SECONDS = 0.3


@dataclass(frozen=True)
class Settings:
    """The options of the command, checked."""

    what: str = "matrices"
    seconds: float = 10.0
    """Time budget of one case, beside what very slow contenders take."""
    quick: bool = False
    cases: str | None = None
    """Glob patterns for the names of cases, separated by commas."""
    threads: int | None = None
    device: str = "cpu"
    json: Path | None = None
    plain: bool = False
    processes: int | None = None
    """Of ``processes``: so many train a network together, each with one thread unless ``threads`` says otherwise."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise ValueError(f"--seconds must be positive, got {self.seconds}; pass for example 10")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"--threads must be at least 1, got {self.threads}")
        if self.processes is not None:
            if self.what != "processes":
                raise ValueError(f"--processes is for oni bench processes, not {self.what}; leave it out")
            if self.processes < 2:
                raise ValueError(f"--processes must be at least 2, got {self.processes}; 1 is always measured too")
        if self.what == "processes":
            if self.device != "cpu":
                raise ValueError("oni bench processes runs on the CPU; leave out --device")
            object.__setattr__(self, "processes", self.processes or 2)
            object.__setattr__(self, "threads", self.threads or 1)
        try:
            kind = torch.device(self.device).type
        except RuntimeError:
            kind = ""
        if kind not in ("cpu", "cuda"):
            raise ValueError(f"--device must be cpu or cuda, got {self.device!r}")
        if kind == "cuda" and not torch.cuda.is_available():
            raise ValueError("--device cuda: torch finds no CUDA device; pass cpu")
        if self.quick:
            object.__setattr__(self, "seconds", min(self.seconds, QUICK_SECONDS))

    @property
    def patience(self) -> float:
        """A peer that needs more seconds than this for one call is skipped."""
        return (1.0 if self.quick else 20.0) if self.trains_networks else (0.25 if self.quick else 5.0)

    @property
    def least_rounds(self) -> int:
        """From fewer than 5 rounds, no interval contains the true median nine times out of ten."""
        return 3 if self.quick else 5

    @property
    def trains_networks(self) -> bool:
        """Whether a call is a training step of a whole network, which takes its time."""
        return self.what in ("models", "processes")

    def command(self) -> str:
        """The command that does the same again."""
        words = ["oni", "bench", self.what, "--quick" if self.quick else f"--seconds={self.seconds:g}"]
        words += [f"--cases={self.cases}"] if self.cases is not None else []
        words += [f"--threads={self.threads}"] if self.threads is not None else []
        words += [f"--processes={self.processes}"] if self.processes is not None else []
        words += [f"--device={self.device}"] if self.device != "cpu" else []
        words += [f"--json={self.json}"] if self.json is not None else []
        return shlex.join(words)
