"""What was measured on matrices of one shape: how near to the speed of bare matrix products it comes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from oni.bench.contender import Contender, Reached
from oni.bench.limit import REPEATS, Products, operations
from oni.bench.record import to_dict
from oni.bench.result import BenchResult, Timed
from oni.bench.table import format_median
from oni.timing import Quartiles, Times, paired_ratio, quartiles

__all__ = ["ContenderTimes", "ShapeResult", "describe_products", "record_products"]


@dataclass
class ContenderTimes(Timed):
    """What was measured of one contender."""

    contender: Contender
    times: Times = field(default_factory=dict)
    word: str = ""
    """Why there are no times."""
    at_least: float | None = None
    """Seconds that one call takes at the very least, if it was skipped for that."""
    peak: int | None = None
    """Bytes, forward and backward."""
    orthogonality: Reached | None = None

    @property
    def delta(self) -> float | None:
        return None if self.orthogonality is None else self.orthogonality.delta


@dataclass
class ShapeResult(BenchResult):
    """One shape, all who ran on it, and the bare products of that shape, which take their turns with them."""

    name: str
    shape: tuple[int, ...]
    entries: dict[str, ContenderTimes] = field(default_factory=dict)
    products: dict[str, Times] = field(default_factory=lambda: {kind: {} for kind in REPEATS})
    """Times of the bare matrix products, :data:`~oni.bench.limit.REPEATS` in each."""
    disagreement: bool = False

    def nearness_to_limit(self, count: Products | None, times: Times) -> Quartiles | None:
        """The time of so many bare products in the same round, over the time taken."""
        if count is None:
            return None
        short, long = self.products["short"], self.products["long"]
        limit = {
            number: count.short * short[number] / REPEATS["short"] + count.long * long[number] / REPEATS["long"]
            for number in short.keys() & long.keys()
        }
        return paired_ratio(limit, times)

    def product_rate(self, kind: str) -> Quartiles | None:
        """Floating point operations per second of the bare products."""
        work = operations(self.shape, kind) * REPEATS[kind]
        times = self.products[kind]
        return quartiles([work / seconds for seconds in times.values()]) if times else None


def describe_products(result: ShapeResult) -> str:
    """The rates by which the limit was computed."""
    m, p = sorted(result.shape[-2:])
    parts = []
    for kind, long_side in (("short", m), ("long", p)):
        rate = result.product_rate(kind)
        if rate is not None:
            parts.append(f"{kind} ({m} x {m} x {long_side}) {format_median(rate, 1e-9)} GFLOP/s")
    rounds = max((len(times) for times in result.products.values()), default=0)
    return f"Bare products: {', '.join(parts) or 'not measured'}; {rounds} rounds."


def record_products(result: ShapeResult) -> dict[str, Any]:
    """The same in plain values."""
    return {
        kind: {
            "flop": operations(result.shape, kind),
            "gflop_per_second": to_dict(result.product_rate(kind), 1e-9),
            "rounds": len(result.products[kind]),
        }
        for kind in result.products
    }
