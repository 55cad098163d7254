"""What the project promises of its speed and memory, as data, and whether this run kept it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oni.bench.matrices.peers import MAPS
from oni.bench.matrices.result import Result

__all__ = ["MODEL_TARGETS", "PROCESSES_TARGETS", "TARGETS", "Target", "Verdict", "judge"]


@dataclass(frozen=True)
class Target:
    """One quantity of a contender over that of another, and what the ratio must come to."""

    case: str
    quantity: str
    """``time``, ``memory`` or ``delta`` of a matrix; ``added time``, ``step time`` or ``forward time`` of a model."""
    contender: str | tuple[str, ...]
    """A contender, or several of which the best counts."""
    over: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.contender,) if isinstance(self.contender, str) else self.contender


def _faster(case: str, contender: str | tuple[str, ...], steps: int, times: float) -> Target:
    return Target(case, "time", contender, f"oni T={steps}", at_least=times)


_WIDE = ("256x784", "256x2304", "512x4608")

TARGETS = (
    _faster("256x256", "literal T=2", 2, 2.0),
    _faster("256x256", "literal T=5", 5, 1.4),
    _faster("256x2304", "literal T=2", 2, 1.5),
    _faster("256x2304", "literal T=5", 5, 1.4),
    _faster("512x4608", "literal T=2", 2, 1.5),
    _faster("512x4608", "literal T=5", 5, 1.4),
    _faster("1024x256", "literal T=5", 5, 10),
    _faster("2048x512", "literal T=5", 5, 10),
    *(
        _faster(case, f"authors T={steps}", steps, 1)
        for case in ("256x256", "256x2304", "512x4608", "36x16x144")
        for steps in (2, 5)
    ),
    _faster("36x16x144", "36 single calls T=2", 2, 4),
    _faster("36x16x144", "36 single calls T=5", 5, 4),
    _faster("256x2304", tuple(f"torch {name}" for name in MAPS), 5, 10),
    *(Target(case, "time", "oni tight T=3", "oni T=5", at_most=0.75) for case in _WIDE),
    *(Target(case, "delta", "oni tight T=3", "oni T=5", at_most=1) for case in _WIDE),
    *(
        Target(case, "memory", f"oni T={steps}", f"literal T={steps}", at_most=1)
        for case in ("256x256", *_WIDE, "36x16x144")
        for steps in (2, 5)
    ),
    *(Target(case, "memory", "oni T=5", "literal T=5", at_most=1) for case in ("1024x256", "2048x512")),
)

_SHARES = {
    "mlp20-b256": 0.55,
    "vgg-g2k1-b128": 0.75,
    "resnet110-b2": 1 / 3,
    "resnet110-b128": 1 / 3,
    "resnet18-b32": 0.75,
    "dcgan-b64": 0.75,
}

MODEL_TARGETS = (
    *(
        Target(case, "added time", f"oni T={steps}", f"authors T={steps}", at_most=share)
        for case, share in _SHARES.items()
        for steps in (2, 5)
    ),
    *(
        Target(case, "step time", f"oni T={steps} compiled", f"oni T={steps}", at_most=1)
        for case in ("mlp20-b256", "vgg-g2k1-b128", "dcgan-b64")
        for steps in (2, 5)
    ),
    # A baked model is a plain one: what this finds between them is noise.
    *(
        Target(case, "forward time", f"oni T=5 {state}", "plain", at_most=1.03)
        for case in _SHARES
        for state in ("cached", "baked")
    ),
)


PROCESSES_TARGETS = tuple(
    Target(case, "added time", "oni T=5 shared", "oni T=5", at_most=0.65) for case in ("mlp20-b256", "resnet18-b32")
)


class Verdict(NamedTuple):
    """A target beside what was measured."""

    target: Target
    measured: float | None
    reached: bool | None
    """``None`` where nothing was measured."""
    is_lower_bound: bool = False
    """Whether the contender was skipped for taking at least so long."""


def judge(results: Sequence[Result], targets: Sequence[Target] = TARGETS) -> list[Verdict]:
    """Hold every target against the results of its case."""
    by_name = {result.name: result for result in results}
    return [_judge(target, by_name.get(target.case)) for target in targets]


def _judge(target: Target, result: Result | None) -> Verdict:
    if result is None:
        return Verdict(target, None, None)
    values = [
        value for name in target.names if (value := result.measured(target.quantity, name, target.over)) is not None
    ]
    if values:
        return Verdict(target, min(values), _holds(target, min(values)))
    # A skipped contender still shows that oni is at least so much faster, but never that it is not.
    floors = [result.at_least(target.quantity, name, target.over) for name in target.names]
    if target.at_least is not None and None not in floors:
        floor = min(floor for floor in floors if floor is not None)
        return Verdict(target, floor, True if _holds(target, floor) else None, is_lower_bound=True)
    return Verdict(target, None, None)


def _holds(target: Target, value: float) -> bool:
    if target.at_least is not None:
        return value >= target.at_least
    assert target.at_most is not None
    return value <= target.at_most
