"""What the project promises of its speed and memory, as data, and whether this run kept it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from oni.bench.result import BenchResult, exactly
from oni.timing import Interval

__all__ = [
    "FORM_TARGETS",
    "MATRIX_TARGETS",
    "MODEL_TARGETS",
    "PROCESSES_TARGETS",
    "BenchTarget",
    "BenchVerdict",
    "judge_targets",
]


@dataclass(frozen=True)
class BenchTarget:
    """One quantity of a contender over that of another, and what the ratio must come to."""

    case: str
    quantity: str
    """``time``, ``memory`` or ``delta`` of a matrix; ``added time``, ``step time`` or ``forward time`` of a model."""
    contender: str
    over: str
    at_least: float | None = None
    at_most: float | None = None


def _faster(case: str, contender: str, steps: int, times: float) -> BenchTarget:
    return BenchTarget(case, "time", contender, f"oni T={steps}", at_least=times)


_WIDE = ("256x784", "256x2304", "512x4608")

FORM_TARGETS = (
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
    *(BenchTarget(case, "time", "oni tight T=3", "oni T=5", at_most=0.75) for case in _WIDE),
    *(BenchTarget(case, "delta", "oni tight T=3", "oni T=5", at_most=1) for case in _WIDE),
    *(
        BenchTarget(case, "memory", f"oni T={steps}", f"literal T={steps}", at_most=1)
        for case in ("256x256", *_WIDE, "36x16x144")
        for steps in (2, 5)
    ),
    *(BenchTarget(case, "memory", "oni T=5", "literal T=5", at_most=1) for case in ("1024x256", "2048x512")),
)

_SPECTRA = ("gaussian", "trained", "condition100")
_SQUARE = ("256x256", "512x512", "1024x1024", "2048x2048", "3x192x192")
_OBLONG = (*_WIDE, "1024x256", "2048x512", "36x16x144")


def _beside_fastest(case: str, asked: str, at_most: float) -> BenchTarget:
    return BenchTarget(case, "time", f"oni {asked}", f"fastest other at {asked}", at_most=at_most)


MATRIX_TARGETS = (
    *(
        _beside_fastest(f"{shape}/{spectrum}", asked, 1.0)
        for asked in ("0.9", "0.99")
        for shape in (*_SQUARE, *_OBLONG)
        for spectrum in _SPECTRA
        # No polynomial lifts the singular values near zero that a square Gaussian Z has, and stays cheap.
        if not (shape in _SQUARE and spectrum == "gaussian")
    ),
    *(_beside_fastest(f"{shape}/{spectrum}", "exact", 1.3) for shape in (*_SQUARE, *_OBLONG) for spectrum in _SPECTRA),
)

_SHARES = {
    "mlp20-b256": 0.55,
    "vgg-g2k1-b128": 0.75,
    "resnet110-b2": 1 / 3,
    "resnet110-b128": 1 / 3,
    "resnet18-b32": 0.75,
    "dcgan-b64": 0.75,
}

_SHARES_OF_FIVE = {"mlp20-b256": 0.45, "rnn256-b64": 0.45, "vgg-g2k1-b8": 0.8, "resnet18-b32": 0.8}
"""Five long products are the floor of wide weights; square ones have only short products."""

MODEL_TARGETS = (
    *(
        BenchTarget(case, "added time", f"oni T={steps}", f"authors T={steps}", at_most=share)
        for case, share in _SHARES.items()
        for steps in (2, 5)
    ),
    *(BenchTarget(case, "added time", "oni 0.9", "oni T=5", at_most=share) for case, share in _SHARES_OF_FIVE.items()),
    *(BenchTarget(case, "delta", "oni 0.9", "oni T=5", at_most=1) for case in _SHARES_OF_FIVE),
    *(
        BenchTarget(case, "step time", f"oni T={steps} compiled", f"oni T={steps}", at_most=1)
        for case in ("mlp20-b256", "vgg-g2k1-b128", "dcgan-b64")
        for steps in (2, 5)
    ),
    # A baked model is a plain one: what this finds between them is noise.
    *(
        BenchTarget(case, "forward time", f"oni T=5 {state}", "plain", at_most=1.03)
        for case in _SHARES
        for state in ("cached", "baked")
    ),
)


PROCESSES_TARGETS = tuple(
    BenchTarget(case, "added time", "oni T=5 shared", "oni T=5", at_most=0.65)
    for case in ("mlp20-b256", "resnet18-b32")
)


class BenchVerdict(NamedTuple):
    """A target beside what was measured."""

    target: BenchTarget
    measured: Interval | None
    reached: bool | None
    """``None`` where nothing was measured, or the interval does not decide."""
    is_lower_bound: bool = False
    """Whether the contender was skipped for taking at least so long."""


def judge_targets(results: Sequence[BenchResult], targets: Sequence[BenchTarget]) -> list[BenchVerdict]:
    """Hold every target against the results of its case."""
    by_name = {result.name: result for result in results}
    return [_judge(target, by_name.get(target.case)) for target in targets]


def _judge(target: BenchTarget, result: BenchResult | None) -> BenchVerdict:
    if result is None:
        return BenchVerdict(target, None, None)
    interval = result.measured(target.quantity, target.contender, target.over)
    if interval is not None:
        return BenchVerdict(target, interval, _decide(target, interval))
    # A skipped contender still shows that oni is at least so much faster, but never that it is not.
    floor = result.at_least(target.quantity, target.contender, target.over)
    if target.at_least is not None and floor is not None:
        return BenchVerdict(target, exactly(floor), _decide(target, exactly(floor)) or None, is_lower_bound=True)
    return BenchVerdict(target, None, None)


def _decide(target: BenchTarget, interval: Interval) -> bool | None:
    """Whether all of the interval is where it should be; ``False`` if none of it is, ``None`` if a part is."""
    if target.at_least is not None:
        ends = (interval.low >= target.at_least, interval.high >= target.at_least)
    else:
        assert target.at_most is not None
        ends = (interval.low <= target.at_most, interval.high <= target.at_most)
    return ends[0] if ends[0] == ends[1] else None
