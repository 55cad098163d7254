"""Figure A3: errors of a 10-layer MLP over the size of the groups that ONI orthogonalises."""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING

from oni.recipes.experiments.errors import errors_at, is_below
from oni.recipes.experiments.experiment import Claim, Experiment, Judgement, Results
from oni.recipes.experiments.fashion_mnist.family import (
    LONG,
    PRESETS,
    PRINTED,
    WIDTH,
    Network,
    Training,
    describe_choices,
    describe_sweeps,
    describe_training,
    estimate_cost,
    make_measure,
    make_plan,
)
from oni.recipes.experiments.fashion_mnist.reading import NOTABLE, find_runs, make_table, style_networks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]

RATES = {16: 0.05, 32: 0.1, 64: 0.5, 128: 1.0, 256: 1.0}
"""By the size of a group."""
BY_SIZE = {size: Network(10, "oni", {**PRINTED, "groups": WIDTH // size}, rate) for size, rate in RATES.items()}
NETWORKS = list(BY_SIZE.values())


# Claims.


def errors_by_size(results: Results, part: str) -> dict[int, list[float]]:
    return {size: errors_at(find_runs(results, network), part) for size, network in BY_SIZE.items()}


def means_by_size(results: Results, part: str) -> list[float]:
    return [statistics.fmean(values) for values in errors_by_size(results, part).values()]


def format_sizes(results: Results) -> str:
    texts = []
    for part in ("train", "test"):
        texts.append(f"{part} {', '.join(f'{value:.2f}' for value in means_by_size(results, part))} %")
    return f"16, 32, 64, 128, 256 rows: {'; '.join(texts)}"


def larger_beats_smaller(results: Results) -> Judgement:
    errors = errors_by_size(results, "train")
    return is_below(errors[256], errors[16]), format_sizes(results)


def falls_with_size(results: Results) -> Judgement:
    means = means_by_size(results, "train")
    return all(a > b for a, b in itertools.pairwise(means)), format_sizes(results)


def differs_slightly(results: Results) -> Judgement:
    means = means_by_size(results, "test")
    return max(means) - min(means) < NOTABLE, f"they reach from {min(means):.2f} to {max(means):.2f} %"


TWO_SEEDS = {**LONG, "seeds": 2}
CLAIMS = [
    Claim("The largest group ends with a lower training error than the smallest", larger_beats_smaller, TWO_SEEDS),
    Claim("The training error falls with every larger size", falls_with_size, TWO_SEEDS),
    Claim("The differences are slight: test errors within 1 point", differs_slightly, LONG),
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import error_charts

    styles = style_networks(results, NETWORKS, shades=True)
    return error_charts("10 layers, {part} error", styles)


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results))


EXPERIMENT = Experiment(
    id="figA3",
    title="Effects of groups: ONI with groups of 16 to 256 rows in a 10-layer MLP",
    shows="ONI is slightly better with larger groups, because groups can't make the whole matrix orthogonal.",
    choices=describe_choices(NETWORKS, "The learning rate is chosen for each size."),
    presets=PRESETS,
    parameters=(Training,),
    plan=make_plan(NETWORKS),
    measure=make_measure(),
    paper={"printed numbers": None},
    claims=CLAIMS,
    table=make_table(NETWORKS),
    draw=draw,
    charts=charts,
    trains=True,
    sweeps=describe_sweeps(NETWORKS),
    describe=describe_training,
    cost=estimate_cost,
    findings="The learning rates chosen in two epochs grow with the size: 0.05, 0.1, 0.5, 1, 1. At 0.5 one of the two "
    "seeds with 64 rows was thrown back in its first epoch (66 % wrong, the other 36 %) and did not catch up: it ended "
    "with 11.7 % training errors, the other with 5.1 %. Two seeds can't tell whether 64 rows are worse than 32.",
)
