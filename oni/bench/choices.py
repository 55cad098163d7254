"""``oni bench choices``: whether what ``sigma_min`` chooses by counted products is the fastest by the clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console
from rich.text import Text
from torch import Tensor

from oni.bench.contender import Contender
from oni.bench.inputs import draw_inputs
from oni.bench.matrices.cases import oni_contender
from oni.bench.record import to_dict
from oni.bench.result import time_interval, time_ratio
from oni.bench.settings import Settings
from oni.bench.shape_result import ContenderTimes, ShapeResult
from oni.bench.table import format_median, format_spread, show_heading, show_targets
from oni.bench.targets import BenchTarget, BenchVerdict
from oni.bench.turns import measure_contenders
from oni.newton.target import Target, list_choices
from oni.terminal import ascii_only, format_number, table
from oni.timing import Interval, Watch

__all__ = ["CHOICE_CASES", "CHOICE_TARGETS", "ChoiceResult", "measure_choices", "record_choices", "show_choices"]

OTHERS = 5
"""How many others to time: the cheapest by count."""
CHOSEN, FASTEST_OTHER = "chosen", "fastest other"
WITHIN = 1.05
"""Times the fastest other. Some choices cost the same."""
LEGEND = """\
products  multiply-adds of the counted products, over those of the choice
ms        milliseconds of one forward and backward pass, float32: median over rounds, quartiles
x chosen  its time over that of the choice, within each round: below 1, the count chose wrongly
smallest  the smallest singular value that it gives here"""


@dataclass(frozen=True)
class ChoiceCase:
    """A shape, a spectrum, and what is asked."""

    shape: tuple[int, ...]
    spectrum: str
    sigma_min: float
    quick: bool = False

    @property
    def name(self) -> str:
        return f"{'x'.join(map(str, self.shape))}/{self.spectrum}/{self.sigma_min:g}"


CHOICE_CASES = tuple(
    ChoiceCase(shape, spectrum, sigma_min, quick=shape == (256, 256))
    for shape, spectrum in (
        ((256, 256), "trained"),
        ((512, 512), "trained"),
        ((256, 256), "condition100"),
        ((256, 2304), "gaussian"),
        ((1024, 256), "gaussian"),
        ((36, 16, 144), "gaussian"),
    )
    for sigma_min in (0.9, 0.99)
)
CHOICE_TARGETS = tuple(BenchTarget(case.name, "time", CHOSEN, FASTEST_OTHER, at_most=WITHIN) for case in CHOICE_CASES)


@dataclass
class ChoiceResult(ShapeResult):
    """The choice, which is the first entry, and what it was chosen from."""

    spectrum: str = ""
    sigma_min: float = 0.0

    @property
    def chosen(self) -> str | None:
        return next(iter(self.entries), None)

    @property
    def fastest_other(self) -> str | None:
        """By the clock."""
        others = list(self.entries.items())[1:]
        seconds = {name: entry.seconds.median for name, entry in others if entry.seconds is not None}
        return min(seconds, key=lambda name: seconds[name], default=None)

    def measured(self, quantity: str, name: str, over: str) -> Interval | None:
        chosen, other = self.chosen, self.fastest_other
        return None if chosen is None or other is None else time_interval(self.entries, chosen, other)

    def counted(self, name: str) -> float:
        """The multiply-adds of a contender over those of the choice."""
        assert self.chosen is not None
        own, chosen = (self.entries[key].contender.products for key in (name, self.chosen))
        assert own is not None
        assert chosen is not None
        n, d = self.shape[-2:]
        return sum(own.multiply_adds(n, d)) / sum(chosen.multiply_adds(n, d))


def list_contenders(Z: Tensor, sigma_min: float) -> list[Contender]:
    """The choice, and the cheapest others by count."""
    return [oni_contender(str(choice), choice) for choice in list_choices(Z, Target(sigma_min))[: 1 + OTHERS]]


def measure_choices(case: ChoiceCase, result: ChoiceResult, settings: Settings, watch: Watch) -> None:
    """Time the choice and the others in turns; each must reach what is asked."""
    draw = partial(draw_inputs, spectrum=case.spectrum, device=settings.device)

    def check(entry: ContenderTimes, W: Tensor, dZ: Tensor) -> str:
        if entry.orthogonality is None or entry.orthogonality.smallest >= case.sigma_min:
            return ""
        result.disagreement = True
        return f"not timed: does not reach {case.sigma_min:g}"

    contenders = list_contenders(draw(case.shape)[0], case.sigma_min)
    measure_contenders(contenders, result, draw, settings, watch, check=check)


def show_choices(
    results: Sequence[ChoiceResult], verdicts: Sequence[BenchVerdict], settings: Settings, terminal: Console
) -> None:
    """Print every case, the choice first."""
    plain = ascii_only(terminal, plain=settings.plain)
    show_heading(settings, LEGEND, terminal)
    for result in results:
        terminal.print(Text(f"\n{result.name}", style="bold"))
        rows = table(plain)
        rows.add_column("choice", no_wrap=True)
        for title in ("products", "ms", "quartiles", "x chosen", "smallest"):
            rows.add_column(title, justify="right", no_wrap=True)
        for name, entry in result.entries.items():
            ratio = time_ratio(result.entries, name, result.chosen or "")
            rows.add_row(
                name,
                format_number(result.counted(name)),
                format_median(entry.seconds, 1e3) or entry.word,
                format_spread(entry.seconds, 1e3),
                format_median(ratio),
                "" if entry.orthogonality is None else f"{entry.orthogonality.smallest:.3f}",
                style="bold" if name == result.chosen else None,
            )
        terminal.print(rows)
    show_targets(results, verdicts, plain, terminal)


def record_choices(result: ChoiceResult) -> dict[str, Any]:
    """The same in plain values."""
    return {
        "name": result.name,
        "shape": list(result.shape),
        "spectrum": result.spectrum,
        "sigma_min": result.sigma_min,
        "chosen": result.chosen,
        "fastest_other": result.fastest_other,
        "chosen_over_fastest_other": to_dict(result.measured("time", CHOSEN, FASTEST_OTHER)),
        "contenders": [
            {
                "name": name,
                "note": entry.word or None,
                "rounds": len(entry.times),
                "products": result.counted(name),
                "milliseconds": to_dict(entry.seconds, 1e3),
                "smallest": entry.orthogonality and entry.orthogonality.smallest,
            }
            for name, entry in result.entries.items()
        ],
    }
