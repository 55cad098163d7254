"""Table 2: a residual network without batch normalisation, with large and small batches."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING

from oni.recipes.experiments.cifar10.family import (
    LONG,
    SHORT,
    VARIANTS,
    Beginning,
    Final,
    Trial,
    describe_run,
    describe_sweeps,
    estimate_cost,
    name_network,
)
from oni.recipes.experiments.cifar10.reading import (
    COLUMNS,
    NOTE,
    counted_images,
    describe_network,
    final_runs,
    find_finals,
    make_cells,
    median_and_deviation,
    networks_of,
    row_errors,
    style_rows,
)
from oni.recipes.experiments.cifar10.residual import (
    BATCH_NORM,
    EVERY_ROW,
    GROUP_NORM,
    ONI,
    PRESETS,
    RATE,
    RELEASED_ONI,
    ROWS,
    SEARCHED,
    XAVIER,
    plan,
)
from oni.recipes.experiments.cifar10.training import make_measure
from oni.recipes.experiments.errors import errors_at, format_errors, judge_lower, mean_and_deviation
from oni.recipes.experiments.experiment import (
    Claim,
    Comparison,
    Experiment,
    Judgement,
    Quantity,
    Results,
    join_judgements,
)
from oni.recipes.experiments.rows import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = ["CHOICES", "DEEP", "EXPERIMENT", "batch_sizes_of", "find_beginnings", "on_deep", "on_shallow"]

DEEP = "resnet110"
"""The paper's network."""
PAPER_BATCHES = (128, 2)
PAPER = {"bn": (6.82, 7.24), "xavier": (8.43, 9.74), "gn": (7.33, 7.36), "oni": (6.56, 6.67)}
"""Test errors in percent, by row, for batches of 128 and 2."""
QUOTED = {"with BN": 6.61, "Xavier": 7.78, "Fixup": 7.24}
"""What it quotes from others, for batches of 128."""
CLOSE = 0.5
"""Percentage points that are called no change: the paper's ONI changes by 0.11, its batch normalisation by 0.42."""
TRAINS = 80.0
"""Percent of training errors below which a network trains: guessing has 90, and 10,000 images a spread of 0.3."""


# Reading the results.


def batch_sizes_of(results: Results) -> list[int]:
    """The large one first."""
    return sorted({run.parameters.batch_size for run in final_runs(results)}, reverse=True)


def find_beginnings(results: Results) -> Results:
    """The first steps of a deep network."""
    return Results(run for run in results if isinstance(run.parameters, Beginning))


def on_deep(results: Results) -> Results:
    """The final runs of the paper's network."""
    return final_runs(results).where(network=DEEP)


def on_shallow(results: Results) -> Results:
    """The final runs of other networks."""
    return Results(run for run in final_runs(results) if run.parameters.network != DEEP)


def table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for network in networks_of(results):
        for index, batch_size in enumerate(batch_sizes_of(results)):
            for row in EVERY_ROW:
                if not (runs := find_finals(results, row.name, network, batch_size)):
                    continue
                differences = describe_network(network, DEEP)
                if batch_size != PAPER_BATCHES[index]:
                    differences.append(f"batches of {batch_size}, not {PAPER_BATCHES[index]}")
                title = f"{network}, batch {batch_size}, {row.title}"
                paper = PAPER.get(row.name.removesuffix("-released"))
                printed = paper[index] if paper else None
                cells.append(make_cells(title, row, runs, printed, median_and_deviation, *differences))
    titles = {row.name: row.title for row in EVERY_ROW}
    for run in find_beginnings(results):
        parameters, alone = run.parameters, Results([run])
        cells.append(
            [
                f"{parameters.network}, {titles[parameters.row]} at {parameters.learning_rate:g}, first "
                f"{parameters.steps} steps",
                Quantity(None),
                *(mean_and_deviation(errors_at(alone, "test")), Quantity(None)),
                mean_and_deviation(errors_at(alone, "train")),
                f"{parameters.learning_rate:g}",
                Quantity(1, digits=0),
                "not in the paper: does it train?",
            ]
        )
    return Comparison(COLUMNS, cells, NOTE + "Medians over seeds, as in the paper, ± their standard deviation.")


# Claims.


def errors_of(results: Results, row: Row, batch: int) -> list[float]:
    """Test errors of a row with the first or second batch size."""
    (network,) = networks_of(results)
    sizes = batch_sizes_of(results)
    return errors_at(find_finals(results, row.name, network, sizes[batch]), "test") if batch < len(sizes) else []


def judge_rows(results: Results, own: Row, other: Row, batch: int) -> Judgement:
    """Whether the test errors of a row are below those of another."""
    ours, theirs = ({row.title: errors_of(results, row, batch)} for row in (own, other))
    return judge_lower(ours, theirs, counted_images(results))


def judge_against_batch_norm(batch: int) -> Callable[[Results], Judgement]:
    return lambda results: judge_rows(results, ONI, BATCH_NORM, batch)


def judge_change(row: Row, *, changes: bool) -> Callable[[Results], Judgement]:
    """Whether a row is worse with small batches in every seed, or within half a point on average."""

    def judge(results: Results) -> Judgement:
        large, small = errors_of(results, row, 0), errors_of(results, row, 1)
        if not large or not small:
            return None, f"not yet measured: {row.title}"
        difference = statistics.fmean(small) - statistics.fmean(large)
        held = min(small) > max(large) if changes else abs(difference) < CLOSE
        sizes = batch_sizes_of(results)
        return held, (
            f"batches of {sizes[0]} {format_errors(large)}, of {sizes[1]} {format_errors(small)}: "
            f"{difference:+.2f} points"
        )

    return judge


def judge_xavier(results: Results) -> Judgement:
    judgements = {}
    (network,) = networks_of(results)
    for batch_size in batch_sizes_of(results):
        others = row_errors(results, [row for row in ROWS if row is not XAVIER], network, batch_size)
        xavier = row_errors(results, [XAVIER], network, batch_size)
        judgements[f"batches of {batch_size}"] = judge_lower(others, xavier, counted_images(results))
    return join_judgements(judgements)


def at_large_rate(row: Row) -> Callable[[Results], Results]:
    """The runs of a row on the paper's network that were given the learning rate that ONI is said to bear."""

    def choose(results: Results) -> Results:
        runs = results.where(row=row.name, network=DEEP)
        return Results(run for run in runs if run.measured["learning_rate"] == RATE)

    return choose


def judge_searched(results: Results) -> Judgement:
    return judge_rows(results, SEARCHED, XAVIER, 0)


def judge_trains(*, trains: bool) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        errors = errors_at(results)
        steps = " and ".join(str(run.parameters.steps) for run in results)
        ended = ", ".join(run.measured["status"] for run in results)
        held = max(errors) < TRAINS if trains else min(errors) >= TRAINS
        return held, f"training error {format_errors(errors)} in the last epoch of {steps} steps ({ended})"

    return judge


JUDGED = (
    ("ONI has a lower test error than batch normalisation, with large batches", judge_against_batch_norm(0)),
    ("ONI has a lower test error than batch normalisation, with small batches", judge_against_batch_norm(1)),
    ("Xavier's start is the worst", judge_xavier),
)
# In as many epochs, small batches make more steps, which decides in short training.
CHANGES = (
    ("small batches make batch normalisation worse", judge_change(BATCH_NORM, changes=True)),
    ("small batches change ONI by less than half a point", judge_change(ONI, changes=False)),
    ("small batches change group normalisation by less than half a point", judge_change(GROUP_NORM, changes=False)),
)
CLAIMS = [
    *(Claim(f"Res-110: {text}", judge, LONG, on_deep) for text, judge in (*JUDGED, *CHANGES)),
    *(Claim(f"A shallower network, in short training: {text}", judge, SHORT, on_shallow) for text, judge in JUDGED),
    Claim(
        "ONI trains Res-110 without normalisation at a learning rate of 0.1",
        judge_trains(trains=True),
        {"steps": 300},
        at_large_rate(ONI),
    ),
    Claim(
        "Xavier's start does not train it at 0.1 (not a claim of the paper, which takes the best of three rates)",
        judge_trains(trains=False),
        {"steps": 300},
        at_large_rate(XAVIER),
    ),
    Claim(
        "With scales that start at 0.8, as in the released code, ONI trains Res-110 at 0.1",
        judge_trains(trains=True),
        {"steps": 300},
        at_large_rate(RELEASED_ONI),
    ),
    Claim(
        "A shallower network, in short training: at the best of three learning rates ONI has a lower test error than "
        "Xavier's start (not a claim of the paper)",
        judge_searched,
        SHORT,
        on_shallow,
    ),
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import error_chart

    drawn = []
    for network in networks_of(results):
        for batch_size in batch_sizes_of(results):
            styles = style_rows(results.where(network=network, batch_size=batch_size), EVERY_ROW)
            title = f"{name_network(network)}, batches of {batch_size}: test error"
            drawn.append(error_chart(title, styles, ["test"], log=False))
    return [chart for chart in drawn if chart.series]


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results))


CHOICES = (
    "Residual networks with parameter-free shortcuts (option A). As the text has it: SGD with momentum 0.9 and weight "
    "decay 1e-4, learning rate 0.1 (Xavier: the best of {.1, .01, .001} on 5,000 held-out images), a tenth of it after "
    "1/2 and 3/4 of the epochs, and in proportion to the batch size; ONI's scales start from 128 training images, so "
    "that every convolution's output has mean 0 and variance 1, with biases that do the same. From the code: 5 steps, "
    "Z orthogonal at first, biases where there is no normalisation, He's weights by fan-out where there is. Scales do "
    "not decay (in the code they do). The text searches the group size of group normalisation over {64, 32, 16}; the "
    "released code takes these for numbers of groups, of which most layers then have as many as channels: a row of its "
    "own. "
    f"{VARIANTS}, and init_scale=false method_options.scale=0.8 for scales that start at a constant, as the code has "
    "it. "
)
EXPERIMENT = Experiment(
    id="table2",
    title="A residual network without batch normalisation, CIFAR-10",
    shows="ONI trains Res-110 without batch normalisation at a learning rate of 0.1, has a slightly lower test error "
    "than batch normalisation, and keeps it with batches of 2.",
    choices=CHOICES
    + "Preset full: Res-20 instead of Res-110, batches of 128 and 8 instead of 2, 8 epochs of 10,000 images, two "
    "seeds, groups of 16 channels. That is 624 of the paper's 62,400 steps, of a network that needs normalisation "
    "less: the paper's own claims are not tested on it, and what is judged says that network and training were short. "
    "Of Res-110, the first 312 steps at a learning rate of 0.1 show whether it trains; at 0.01, and from the released "
    "code's scales, what it is that stops it. A row of our own gives ONI the choice of learning rates that Xavier's "
    "start has.",
    presets=PRESETS,
    parameters=(Trial, Final, Beginning),
    plan=plan,
    measure=make_measure(EVERY_ROW),
    paper={**{row: list(errors) for row, errors in PAPER.items()}, "quoted": QUOTED},
    claims=CLAIMS,
    table=table,
    draw=draw,
    charts=charts,
    trains=True,
    sweeps={**describe_sweeps(ROWS), "batch_size": "compares batch sizes"},
    describe=describe_run,
    cost=estimate_cost,
    findings="Res-110 without normalisation does not train at 0.1 here, in whatever way its scales start. As the "
    "text has it, every convolution's output has variance 1 at first, so that the sum grows with each of the 54 "
    "blocks, and the loss is no longer finite after 20 steps (in float32 too). From the 0.8 of the released code it "
    "leaves the start and then gives the same scores for every image. Batch normalisation hardly moves there either: "
    "He et al. begin with 0.01 in this network. At 0.01 ONI trains as fast as batch normalisation, where Xavier's "
    "start diverges. In Res-20 at 0.1 one seed of ONI is thrown back; at the best of three rates, 0.01, it comes near "
    "batch normalisation. Small batches lower the errors of all rows, because 8 epochs then have 10,000 steps and not "
    "624: so what the paper says of small beside large batches is not judged in short training. With them ONI is "
    "level with batch normalisation, and far below Xavier's start and group normalisation.",
)
