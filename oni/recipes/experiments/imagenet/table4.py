"""Table 4: ResNet-18 without batch normalisation, with it, and with it before the convolutions."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.errors import errors_at, format_errors, judge_lower, mean_and_deviation, sampling_margin
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Judgement, Quantity, Results
from oni.recipes.experiments.imagenet.family import (
    AGAIN,
    LONG,
    PRESETS,
    SHORT,
    Training,
    describe_run,
    describe_sweeps,
    estimate_cost,
    make_runs,
)
from oni.recipes.experiments.imagenet.reading import (
    NOTE,
    counted_images,
    describe_choice,
    describe_differences,
    find_best,
    make_error_cells,
    name_row,
    row_errors,
    style_rows,
)
from oni.recipes.experiments.imagenet.residual import BATCH, CELLS, RELEASED
from oni.recipes.experiments.imagenet.training import make_demand, make_measure

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT", "SMALL", "TINY"]

NETWORK = "resnet18"
ROWS = (*CELLS.values(), *RELEASED)
PAPER = {
    "none/plain": {"train": 31.76, "test": 33.84},
    "none/oni": {"train": 27.05, "test": 31.17},
    "bn/plain": {"train": 29.33, "test": 29.64},
    "bn/oni": {"train": 29.28, "test": 29.57},
    "var/plain": {"train": 28.82, "test": 29.56},
    "var/oni": {"train": 28.12, "test": 28.92},
}
PAPER |= {f"none/{method}-released": PAPER[f"none/{method}"] for method in ("plain", "oni")}
SMALL = {"network_options.width": 32}
TINY = {"network_options.width": 2}
RATES = (0.01, 0.1)
"""To choose from in short training: the released code's for plain networks without BN, and that of all others."""
NOTABLE = 1.0
"""Percentage points that are called a notable difference, where seeds do not say otherwise."""


def plan(seed: int, *, seeds: int, released: bool = False, batch_size: int = BATCH, **sizes: Any) -> list[Training]:
    """All six cells with each seed; the values of the released code after them, if asked for."""
    every_seed = range(seed, seed + seeds)
    return [
        run
        for rows in (tuple(CELLS.values()), RELEASED if released else ())
        for run in make_runs(rows, NETWORK, every_seed, batch_size=batch_size, **sizes)
    ]


# The table and the claims.


def table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for row in ROWS:
        if runs := find_best(results, row.name):
            printed = PAPER[row.name]
            train = mean_and_deviation(errors_at(runs, "train"))
            difference = None if train.value is None else train.value - printed["train"]
            cells.append(
                [
                    name_row(row),
                    Quantity(printed["train"]),
                    train,
                    Quantity(difference),
                    *make_error_cells(runs, printed["test"]),
                    describe_choice(runs),
                    Quantity(len(runs), digits=0),
                ]
            )
    columns = ["paper, train", "last, train", "difference, train"]
    columns += ["paper, test", "lowest, test", "difference, test", "last, test"]
    note = NOTE + " Train: over the last epoch, on the crops that were trained on." + describe_differences(results)
    return Comparison(["network, method", *columns, "learning rate", "seeds"], cells, note)


def judge_help(kind: str) -> Callable[[Results], Judgement]:
    """Whether ONI has the lower test error on an architecture."""

    def judge(results: Results) -> Judgement:
        own, other = (row_errors(results, [CELLS[kind, method]]) for method in ("oni", "plain"))
        return judge_lower(own, other, counted_images(results))

    return judge


def judge_train(results: Results) -> Judgement:
    """Whether ONI without BN has the lowest training error of all six."""
    best = CELLS["none", "oni"]
    others = [row for row in CELLS.values() if row is not best]
    return judge_lower(row_errors(results, [best], part="train"), row_errors(results, others, part="train"))


def judge_same(results: Results) -> Judgement:
    """Whether ONI and plain differ by less than a point on the usual network, or by less than seeds do.

    Undecided if they differ by more, but not by more than the test images explain.
    """
    plain, ours = (errors_at(find_best(results, CELLS["bn", method].name), "test") for method in ("plain", "oni"))
    if not plain or not ours:
        return None, "not yet measured"
    difference = abs(statistics.fmean(plain) - statistics.fmean(ours))
    overlap = max(min(plain), min(ours)) <= min(max(plain), max(ours)) and len(plain) > 1
    text = f"plain {format_errors(plain)}; ONI {format_errors(ours)}"
    if difference < NOTABLE or overlap:
        return True, text
    images = counted_images(results)
    if images and difference < sampling_margin(plain, ours, images):
        return None, f"undecided: within two standard errors of {images:,} test images; {text}"
    return False, text


CLAIMS = [
    Claim("Without BN, ONI lowers the test error", judge_help("none"), LONG),
    Claim("On ResNetVar, ONI lowers the test error", judge_help("var"), LONG),
    Claim("On ResNet with BN, ONI makes no significant difference", judge_same, LONG),
    Claim("ONI without BN has the lowest training error of all", judge_train, LONG),
    Claim(AGAIN + "without BN, ONI lowers the test error", judge_help("none"), SHORT),
    Claim(AGAIN + "on ResNetVar, ONI lowers the test error", judge_help("var"), SHORT),
    Claim(AGAIN + "on ResNet with BN, ONI makes no significant difference", judge_same, SHORT),
    Claim(AGAIN + "ONI without BN has the lowest training error of all", judge_train, SHORT),
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import error_charts

    return error_charts("ResNet-18: {part} error", style_rows(results, {row.title: row for row in CELLS.values()}))


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results))


CHOICES = (
    "As the text has it: SGD with momentum 0.9, weight decay 1e-4 but not on learnable scales, batches of 256, 100 "
    "epochs, a learning rate of .1 divided by 10 after 30, 60 and 90, ONI with 2 steps, which the text finds best for "
    "residual networks. From the released code: the stem, all convolutions of the blocks and, but for ResNetVar, the "
    "1x1 convolutions of shortcuts are orthogonalised, the output layer is not; convolutions have no bias; ResNetVar "
    "normalises before each convolution, not in the stem, and once more after the last stage; images as in Table 3. "
)
EXPERIMENT = Experiment(
    id="table4",
    title="ResNet-18 without BN, with BN, and with BN after the ReLU, ImageNet",
    shows="ONI lowers the errors of all three architectures; without BN its training error is the lowest of all; on "
    "the usual ResNet it makes no significant difference.",
    choices=CHOICES + "Without BN the released code has a learning rate of .01 for the plain network and 3 steps for "
    "ONI: rows of their own in preset paper. Preset full: 20 classes of ImageNet at 64 x 64, 5,000 training and 1,000 "
    "test images, ResNet-18 with half of its filters (network_options.width=64 for all), batches of 64, 12 epochs, the "
    "learning rate divided by 10 after 7 and 10, every network at the better of {.01, .1} in trials of 3 epochs on 500 "
    "held-out images. That is a five-hundredth of the paper's steps: its "
    "own claims are not tested, and what is judged says that training was short.",
    presets={
        "smoke": {**PRESETS["smoke"], "options": TINY, "released": True},
        "laptop": {**PRESETS["laptop"], "options": SMALL},
        "full": {**PRESETS["full"], "options": SMALL, "trial_epochs": 3, "rates": RATES},
        "paper": {**PRESETS["paper"], "released": True},
    },
    parameters=(Training,),
    plan=plan,
    measure=make_measure(ROWS),
    paper=PAPER,
    claims=CLAIMS,
    table=table,
    draw=draw,
    charts=charts,
    trains=True,
    sweeps=describe_sweeps(ROWS),
    describe=describe_run,
    cost=estimate_cost,
    demand=make_demand(ROWS, {NETWORK: "one GPU"}),
    findings="Without BN, ONI bears a learning rate of .1 where the plain network hardly learns. It ends below it by "
    "more than ten points, and below the plain network with BN by four; but every network had two rates to choose "
    "from, and one between them might suit BN better. On the usual ResNet ONI is lower by three points, more than "
    "seeds differ and less than 1,000 test images tell. The lowest training error is ResNetVar's with ONI, by half a "
    "point.",
)
