"""What was measured of weights at equal orthogonality, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oni.bench.result import time_interval, time_ratio
from oni.bench.shape_result import ShapeResult
from oni.timing import Interval, Quartiles

__all__ = ["ASKED", "FASTEST_OTHER", "MatrixResult"]

ASKED: Mapping[str, float] = {"0.9": 0.9, "0.99": 0.99, "exact": 1 - 1e-5}
"""How near to 1 every singular value must be. What is left of exact methods in float32 is some 1e-6."""
FASTEST_OTHER = "fastest other at "
"""And what is asked: of all but ``oni``, the fastest that reaches it, in the words of a target."""


@dataclass
class MatrixResult(ShapeResult):
    """A shape and a spectrum."""

    spectrum: str = ""
    about: str = ""

    def reaches(self, name: str) -> list[str]:
        """Which of what can be asked a contender reaches: no singular value is further from 1."""
        orthogonality = self.entries[name].orthogonality
        if orthogonality is None:
            return []
        return [asked for asked, sigma_min in ASKED.items() if orthogonality.off_by <= 1 - sigma_min]

    def fastest(self, asked: str, *, but_oni: bool = False) -> str | None:
        """The fastest of all who reach it."""
        times = {
            name: entry.seconds.median
            for name, entry in self.entries.items()
            if entry.seconds is not None and asked in self.reaches(name) and not (but_oni and name.startswith("oni "))
        }
        return min(times, key=lambda name: times[name], default=None)

    def times_fastest(self, name: str, asked: str) -> Quartiles | None:
        """The time of a contender that reaches what is asked over that of the fastest."""
        fastest = self.fastest(asked)
        return time_ratio(self.entries, name, fastest) if fastest is not None and asked in self.reaches(name) else None

    def measured(self, quantity: str, name: str, over: str) -> Interval | None:
        other = self.fastest(over.removeprefix(FASTEST_OTHER), but_oni=True)
        return None if other is None else time_interval(self.entries, name, other)
