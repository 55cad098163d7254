"""Figure A1: the eigenvalues of a square matrix after OLM in groups."""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING

from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Quantity, Results
from oni.recipes.experiments.synthetic.family import CLOSE, MANY_SEEDS, NO_NUMBERS, PRESETS
from oni.recipes.experiments.synthetic.groups import (
    GROUPED,
    Grouping,
    make_grouping_plan,
    measure_grouping,
    smaller_is_worse,
)
from oni.recipes.experiments.texts import format_range
from oni.recipes.experiments.verdicts import Judgement, Kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT"]

SQUARE = (64, 64)
METHODS = ["OLM-G64", *GROUPED]


# Claims.


def only_full_group(results: Results) -> Judgement:
    distances = {
        method: [
            max(abs(value - 1) for value in values) for values in results.where(method=method).values("eigenvalues")
        ]
        for method in METHODS
    }
    text = "; ".join(f"{method.removeprefix('OLM-')} {format_range(values, 2)}" for method, values in distances.items())
    full, *others = distances.values()
    return max(full) < CLOSE < min(map(min, others)), f"an eigenvalue is off 1 by up to: {text}"


def spread_grows(results: Results) -> Judgement:
    largest = [[max(values) for values in results.where(method=method).values("eigenvalues")] for method in METHODS]
    held = all(a < b for pair in itertools.pairwise(largest) for a, b in zip(*pair, strict=True))
    means = ", ".join(f"{statistics.fmean(values):.2f}" for values in largest)
    return held, f"in every seed; mean largest eigenvalue {means} for G64, G32, G16, G8"


CLAIMS = [
    Claim(Kind.MATHEMATICS, "Only the full group has all eigenvalues 1", only_full_group, MANY_SEEDS),
    Claim(Kind.MATHEMATICS, "The eigenvalues spread further with smaller groups", spread_grows, MANY_SEEDS),
    Claim(
        Kind.MATHEMATICS,
        "Smaller groups are less orthogonal",
        smaller_is_worse(SQUARE, METHODS, ["delta_row"]),
        MANY_SEEDS,
    ),
]


def make_table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for method in METHODS:
        runs = results.where(method=method)
        by_seed = runs.values("eigenvalues")
        extremes = [statistics.fmean(map(extreme, by_seed)) for extreme in (min, max)]
        delta = Quantity(runs.mean("delta_row"), runs.deviation("delta_row"), 3)
        cells.append([method, delta, *(Quantity(value, digits=3) for value in extremes)])
    return Comparison(["method", "row delta", "smallest eigenvalue", "largest eigenvalue"], cells, NO_NUMBERS)


def draw(results: Results) -> Figure:
    """Eigenvalues by rank, one line for each seed."""
    from matplotlib.figure import Figure

    from oni.recipes.experiments.synthetic.drawing import HEIGHT
    from oni.style import COLOURS, PAGE_WIDTH, tint

    figure = Figure(figsize=(PAGE_WIDTH, HEIGHT - 0.3))
    panels = figure.subplots(1, len(METHODS), sharey=True)
    for axes, method in zip(panels, METHODS, strict=True):
        by_seed = results.where(method=method).values("eigenvalues")
        for values in by_seed:
            axes.plot(range(1, len(values) + 1), values, color=tint(COLOURS["olm"], 0.35), linewidth=0.7)
        mean = [statistics.fmean(values) for values in zip(*by_seed, strict=True)]
        axes.plot(range(1, len(mean) + 1), mean, color=COLOURS["olm"])
        axes.set(xlabel="rank, largest first", xticks=[1, 16, 32, 48, 64])
        axes.set_title(f"G = {method.removeprefix('OLM-G')}")
    panels[0].set(ylabel=r"eigenvalues of $WW^\top$", ylim=(-0.1, 3.8))
    return figure


EXPERIMENT = Experiment(
    id="figA1",
    title="Eigenvalues of W W^T under OLM in groups",
    shows="On Z of 64 x 64 entries N(0, 1), only the full group of 64 makes W orthogonal; smaller groups tend to be "
    "worse.",
    choices="No centring, as in Table A2.",
    presets=PRESETS,
    parameters=(Grouping,),
    plan=make_grouping_plan((SQUARE, METHODS)),
    measure=measure_grouping,
    claims=CLAIMS,
    table=make_table,
    draw=draw,
)
