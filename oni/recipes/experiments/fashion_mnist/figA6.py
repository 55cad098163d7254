"""Figure A6: the spectra after 1 to 7 Newton steps, and how such networks train."""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING

from oni.recipes.experiments.errors import find_runs
from oni.recipes.experiments.experiment import Claim, Results
from oni.recipes.experiments.fashion_mnist.family import (
    SPECTRUM_STEP,
    make_figure,
    mlp,
    spectra,
    style_rows,
)
from oni.recipes.experiments.fashion_mnist.fig7a import BY_STEPS, with_steps
from oni.recipes.experiments.verdicts import Judgement, Kind, all_hold, is_lower

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]

DEEPER = {steps: mlp(10, "oni", with_steps(steps), rate=1.0, seeds=1, trial=with_steps(5)) for steps in (1, 3, 5, 7)}
BY_DEPTH = {6: BY_STEPS, 10: DEEPER}
ROWS = [*BY_STEPS.values(), *DEEPER.values()]


def nearer_to_one(results: Results) -> Judgement:
    """Whether each larger number of steps, with 6 layers, surely has the smaller mean distance from 1."""
    distances = {
        f"T = {steps}": [
            statistics.fmean(abs(1 - value) for value in later) for _, later in spectra(find_runs(results, network), 1)
        ]
        for steps, network in BY_STEPS.items()
    }
    verdict = all_hold(is_lower(more, fewer) for fewer, more in itertools.pairwise(distances.values()))
    means = ", ".join(f"{statistics.fmean(values):.3f}" for values in distances.values())
    return (
        verdict,
        f"mean distance of a singular value from 1 with 6 layers, T = {', '.join(map(str, BY_STEPS))}: {means}",
    )


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import error_charts, spectrum_chart

    step = min(SPECTRUM_STEP, max(int(step) for step in results[0].measured["spectrum"]))
    drawn = []
    for depth, rows in BY_DEPTH.items():
        styles = style_rows(results, list(rows.values()), shades=True)
        drawn += error_charts(f"{depth} layers, {{part}} error", styles)
        drawn.append(spectrum_chart(f"Layer 1 of {depth} after {step} steps", styles, 1, step))
    return drawn


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results), 3)


EXPERIMENT = make_figure(
    ROWS,
    id="figA6",
    title="Training with 1 to 7 steps, and the spectra they give",
    shows="More steps bring the singular values of the first layer closer to 1, after 200 steps of training.",
    text="The caption says 10 layers, the text of the ablation says 6. We run all numbers of steps with 6 layers (the "
    "runs of fig7a), and 1, 3, 5, 7 with 10 layers, one seed, at the learning rate chosen for 5 steps. The "
    "spectra are those of the first seed.",
    keep=["spectrum"],
    claims=[
        Claim(
            Kind.PAPER,
            "More steps bring the singular values of layer 1 closer to 1",
            nearer_to_one,
            {"steps": SPECTRUM_STEP},
        )
    ],
    draw=draw,
    charts=charts,
)
