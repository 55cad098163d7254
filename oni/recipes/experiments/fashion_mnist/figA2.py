"""Figure A2: the size of activations and gradients in each layer of a 20-layer MLP."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from oni.recipes.experiments.errors import find_runs
from oni.recipes.experiments.experiment import Claim, Results
from oni.recipes.experiments.fashion_mnist.family import (
    LONG,
    START,
    make_figure,
    style_rows,
)
from oni.recipes.experiments.fashion_mnist.fig6 import ISOMETRIC_20, SCALED, without_rate
from oni.recipes.experiments.runs import Row
from oni.recipes.experiments.verdicts import Judgement, Kind, Verdict, all_hold, is_below_limit, mirror

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]

ONI = {"as printed": SCALED[20, "oni"], "Z orthogonal, not centred": ISOMETRIC_20[0]}
ONI_NS = {"as printed": SCALED[20, "oni-ns"], "Z orthogonal, not centred": ISOMETRIC_20[1]}
ROWS: list[Row] = [SCALED[20, "oni"], SCALED[20, "oni-ns"], *ISOMETRIC_20]
VANISHED = 1e-3
"""A signal has vanished if less than this share of it reaches the other end of the network."""


# Claims.


def signals(runs: Results, when: str) -> list[dict[str, list[float]]]:
    """Activations and gradients at the start or at the end of training, of every seed."""
    by_seed = [run.measured["signal"] for run in runs]
    return [by_step[str((min if when == "start" else max)(map(int, by_step)))] for by_step in by_seed]


def activations_left(runs: Results, when: str) -> list[float]:
    """Input of the output layer over that of the second layer: what 19 hidden layers leave."""
    return [divide(signal["input"][-1], signal["input"][1]) for signal in signals(runs, when)]


def gradients_left(runs: Results, when: str) -> list[float]:
    """Gradient at the first hidden layer over that at the last one."""
    return [divide(signal["gradient"][0], signal["gradient"][-2]) for signal in signals(runs, when)]


def divide(a: float | None, b: float | None) -> float:
    """The ratio; not a number if a run diverged."""
    return a / b if a is not None and b else math.nan


def has_vanished(*ratios: list[float]) -> list[Verdict]:
    """Whether what is left of each signal is surely below a thousandth; judged on a logarithmic scale."""
    if not all(math.isfinite(left) for row in ratios for left in row):
        return [Verdict.UNDECIDED]
    logs = [[math.log10(max(left, 1e-30)) for left in row] for row in ratios]
    return [is_below_limit(row, math.log10(VANISHED)) for row in logs]


def vanishes(when: str) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        # At the start nothing depends on the learning rate.
        if when == "end" and (reason := without_rate(results, [ONI_NS["as printed"]])):
            return Verdict.NOT_TESTED, reason
        left = {
            name: (
                activations_left(find_runs(results, network), when),
                gradients_left(find_runs(results, network), when),
            )
            for name, network in ONI_NS.items()
        }
        texts = [
            f"{name}: {max(activations):.1e} of the activation and {max(gradients):.1e} of the gradient remains"
            for name, (activations, gradients) in left.items()
        ]
        return all_hold(has_vanished(*left["as printed"])), "; ".join(texts)

    return judge


def gradient_stays(results: Results) -> Judgement:
    if reason := without_rate(results, [ONI["as printed"]]):
        return Verdict.NOT_TESTED, reason
    left = {
        name: [gradients_left(find_runs(results, network), when) for when in ("start", "end")]
        for name, network in ONI.items()
    }
    texts = [
        f"{name}: {min(start):.2g} remains at the start and {min(end):.2g} at the end"
        for name, (start, end) in left.items()
    ]
    return all_hold(map(mirror, has_vanished(*left["as printed"]))), "; ".join(texts)


CLAIMS = [
    Claim(Kind.PAPER, "ONI-NS: activations and gradients vanish at the start", vanishes("start")),
    Claim(Kind.PAPER, "ONI-NS: activations and gradients vanish at the end", vanishes("end"), LONG),
    Claim(Kind.PAPER, "ONI: the gradient does not vanish", gradient_stays, LONG),
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import signal_chart

    styles = style_rows(results, ROWS)
    return [
        signal_chart("Activations", styles, "input", "mean |x|"),
        signal_chart("Gradients", styles, "gradient", "mean |dL/dh|"),
    ]


EXPERIMENT = make_figure(
    ROWS,
    id="figA2",
    title="Activations and gradients, layer by layer, in a 20-layer MLP",
    shows="Without scaling, activations and gradients vanish exponentially with depth, at the start and at the end of "
    "training. With scaling the gradient does not vanish.",
    text="Mean absolute values over the first 256 training samples, as described in the figure's text (its formulas "
    "omit the division). Activations vanish if the value in the last layer is less than a thousandth of that in "
    f"the first hidden layer; gradients, if the reverse holds. {START}",
    keep=["signal"],
    claims=CLAIMS,
    charts=charts,
)
