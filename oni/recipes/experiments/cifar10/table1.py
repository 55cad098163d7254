"""Table 1: seven methods on nine VGG-style networks; its rows and plan, which Figures 7b and A4 share."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.cifar10.family import (
    BATCH,
    COLUMNS,
    LONG,
    NOTE,
    TEST_IMAGES,
    VARIANTS,
    chart_rates,
    count_networks,
    groups_of,
    judge_all,
    make_cells,
    make_config,
    name_network,
    on_first_network,
    style_rows,
)
from oni.recipes.experiments.errors import about, find_runs, mean_and_deviation, row_errors
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Quantity, Results
from oni.recipes.experiments.runs import Row, Training, describe_sweeps, plan_rows
from oni.recipes.experiments.search import HELD_OUT
from oni.recipes.experiments.verdicts import Judgement, Kind, judge_lower

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart

__all__ = [
    "BATCH_NORM",
    "BEST",
    "CENTRED_WN",
    "CHOICES",
    "EXPERIMENT",
    "ONI",
    "OTHERS",
    "PAPER_ROWS",
    "PLAIN",
    "PRESET_CHOICES",
    "ROWS",
    "SCALED",
    "UNCENTRED",
    "plan",
    "plan_network",
]

RATES = (0.01, 0.02, 0.05)
PLAIN = Row("plain", "plain", rates=RATES, rate=0.02)
WN = Row("wn", "WN", {"method": "wn"}, rates=RATES, rate=0.02)
ORTH_INIT = Row("orth-init", "OrthInit", {"method": "orth-init"}, rates=RATES, rate=0.02, seeds=2)
ORTH_REG = Row(
    "orth-reg",
    "OrthReg",
    {"method": "orth-reg"},
    candidates=({"method_options.coefficient": 1e-4}, {"method_options.coefficient": 5e-4}),
    rates=RATES,
    rate=0.02,
    seeds=2,
)
GROUPS = ({"method_options.group_size": 64}, {"method_options.group_size": None})
OLM_1 = Row("olm-1", "OLM-1", {"method": "olm-ns"}, candidates=GROUPS, rates=RATES, rate=0.05, seeds=2)
OLM_SQRT2 = Row("olm-sqrt2", "OLM-sqrt2", {"method": "olm"}, candidates=GROUPS, rates=RATES, rate=0.05)
ONI = Row("oni", "ONI", {"method": "oni", "method_options.start": "orthogonal"}, rates=RATES, rate=0.05)
SCALED = Row(
    "orth-init-sqrt2",
    "OrthInit x sqrt 2",
    {"method": "orth-init", "method_options.gain": "relu"},
    rates=RATES,
    rate=0.02,
    ours=True,
    seeds=2,
)
UNCENTRED = Row(
    "oni-uncentred",
    "ONI, not centred, fixed scale",
    {**ONI.changes, "method_options.center": False, "method_options.learn_scale": False},
    rates=RATES,
    rate=0.05,
    ours=True,
    seeds=2,
)
"""Starts from nearly the same function as ``SCALED``, whose weights are free: what keeping them orthogonal does."""
CENTRED_WN = Row("centred-wn", "centred WN", {"method": "centred-wn"}, rates=RATES, rate=0.02, ours=True, seeds=2)
"""Centred rows of learnable norm that need not be orthogonal: what centring does."""
BATCH_NORM = Row("bn", "batch norm", {"network_options.norm": "batch"}, rates=(*RATES, 0.1, 0.2), rate=0.05, ours=True)
"""With larger rates to choose from: the paper's largest is its best."""
PAPER_ROWS = (PLAIN, WN, ORTH_INIT, ORTH_REG, OLM_1, OLM_SQRT2, ONI)
BEST = (OLM_SQRT2, ONI)
"""Those that the paper finds best."""
OTHERS = tuple(row for row in PAPER_ROWS if row not in BEST)
OUR_ROWS = (SCALED, UNCENTRED, CENTRED_WN, BATCH_NORM)
"""What a practitioner would choose, and what tells which part of ONI helps; not in the paper."""
ROWS = (*PAPER_ROWS, *OUR_ROWS)
NETWORKS = tuple(f"g{g}k{k}" for g in (2, 3, 4) for k in (1, 2, 3))
PRINTED = {
    "plain": (11.34, 9.84, 9.47, 10.32, 8.73, 8.55, 10.66, 9.00, 8.43),
    "wn": (11.19, 9.55, 9.49, 10.26, 9.26, 8.19, 9.90, 9.33, 8.90),
    "orth-init": (10.57, 9.49, 9.33, 10.34, 8.94, 8.28, 10.35, 10.6, 9.39),
    "orth-reg": (12.01, 10.33, 10.31, 9.78, 8.69, 8.61, 9.39, 7.92, 7.24),
    "olm-1": (10.65, 8.98, 8.32, 9.23, 8.05, 7.23, 9.38, 7.45, 7.04),
    "olm-sqrt2": (10.15, 8.32, 7.80, 8.74, 7.23, 6.87, 8.02, 6.79, 6.56),
    "oni": (9.95, 8.20, 7.73, 8.64, 7.16, 6.70, 8.27, 6.72, 6.52),
}
"""Test errors in percent, by row, in the order of ``NETWORKS``."""
PAPER = {row: dict(zip(NETWORKS, errors, strict=True)) for row, errors in PRINTED.items()}
PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {
        "networks": ("g1k1",),
        "data": "generated",
        "samples": 32,
        "epochs": 1,
        "seeds": 1,
        "trial": {"validation": 16},
        "rates": (0.01, 0.05),
        "batch_size": 16,
    },
    "laptop": {
        "networks": ("g2k1",),
        "data": "cifar10",
        "samples": 5000,
        "epochs": 8,
        "measure_every": 4,
        "seeds": 2,
        "ours": False,
    },
    "full": {
        "networks": ("g2k1",),
        "data": "cifar10",
        "samples": 0,
        "epochs": 30,
        "measure_every": 2,
        "seeds": 3,
        "trial": {
            "samples": 10_000,
            "validation": HELD_OUT,
            "epochs": 8,
            "drops": (4, 6),
            "measure_every": 8,
        },
        "precision": "bf16-mixed",
        "sparing": True,
    },
    "paper": {
        "networks": NETWORKS,
        "data": "cifar10",
        "samples": 0,
        "epochs": 160,
        "seeds": 3,
        "trial": {"validation": HELD_OUT},
    },
}


def plan_network(
    rows: Sequence[Row],
    network: str,
    seeds: Sequence[int],
    *,
    trial: Mapping[str, Any] | None = None,
    rates: Sequence[float] = (),
    sparing: bool = False,
    batch_size: int = BATCH,
    **sizes: Any,
) -> list[Training]:
    """The runs of rows on a network; trials have the first seed. A sparing plan has fewer seeds of some rows."""
    if not sparing:
        rows = [replace(row, seeds=None) for row in rows]
    config = make_config(network, batch_size=batch_size, **sizes)
    searched = None if trial is None else {**trial, "seed": seeds[0]}
    return plan_rows(rows, config, seeds, group=network, trial=searched, rates=rates)


def plan(seed: int, *, networks: Sequence[str], seeds: int, ours: bool = True, **sizes: Any) -> list[Training]:
    """All rows of each network, seed by seed; the rows that the paper lacks on the first one, if asked for."""
    every_seed = range(seed, seed + seeds)
    return [
        run
        for network in networks
        for run in plan_network(ROWS if ours and network == networks[0] else PAPER_ROWS, network, every_seed, **sizes)
    ]


# The table and the claims.


def table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for network in groups_of(results):
        for row in ROWS:
            if runs := find_runs(results, row, network):
                printed = PAPER.get(row.name, {}).get(network)
                cells.append(make_cells(f"{network}, {row.title}", row, runs, printed, mean_and_deviation))
    note = NOTE + "Means over seeds ± their standard deviation; the paper's are over three."
    return Comparison(COLUMNS, cells, note)


def judge_rows(results: Results, network: str, own: Sequence[Row], others: Sequence[Row]) -> Judgement:
    """Whether the test errors of rows are below those of others."""
    ours, theirs = (row_errors(results, rows, group=network) for rows in (own, others))
    return judge_lower(ours, theirs, images=TEST_IMAGES)


def judge_newton(results: Results) -> Judgement:
    """Whether ONI has a lower test error than OLM, each seed averaged over all networks."""
    networks = groups_of(results)
    by_row = [
        [row_errors(results, [row], group=network)[row.title] for network in networks] for row in (ONI, OLM_SQRT2)
    ]
    ours, theirs = ([statistics.fmean(errors) for errors in zip(*row, strict=False)] for row in by_row)
    # All networks are tested on the same images.
    verdict, text = judge_lower({ONI.title: ours}, {OLM_SQRT2.title: theirs}, images=TEST_IMAGES)
    return verdict, f"{count_networks(results)}: {text}"


CLAIMS = [
    Claim(
        Kind.PAPER,
        "ONI and OLM-sqrt2 have the lowest test errors",
        judge_all(partial(judge_rows, own=BEST, others=OTHERS)),
        LONG,
        about(*PAPER_ROWS),
    ),
    Claim(
        Kind.PAPER,
        "ONI has a lower test error than the plain network",
        judge_all(partial(judge_rows, own=[ONI], others=[PLAIN])),
        LONG,
        about(ONI, PLAIN),
    ),
    Claim(
        Kind.PAPER,
        "ONI has a lower test error than OLM-sqrt2 on average over the networks",
        judge_newton,
        LONG,
        about(ONI, OLM_SQRT2),
    ),
    Claim(
        Kind.PAPER,
        "OLM-1 is worse than OLM-sqrt2",
        judge_all(partial(judge_rows, own=[OLM_SQRT2], others=[OLM_1])),
        LONG,
        about(OLM_1, OLM_SQRT2),
    ),
    *(
        Claim(
            Kind.OURS,
            f"{own} has a lower test error than {other}",
            judge_all(partial(judge_rows, own=[row], others=[compared])),
            LONG,
            on_first_network(row, compared),
        )
        for row, own, compared, other in (
            (ONI, "ONI", SCALED, SCALED.title),
            (UNCENTRED, "With the same start, neither centred nor with a learnable scale, ONI", SCALED, SCALED.title),
            (ONI, "ONI", CENTRED_WN, "centred weight normalisation"),
            (ONI, "ONI", BATCH_NORM, "batch normalisation"),
        )
    ),
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.curves import error_chart

    networks = groups_of(results)
    rates = [chart_rates(results, ROWS, network) for network in networks]
    errors = [
        error_chart(f"{name_network(network)}: test error", style_rows(results, ROWS, network), ["test"], log=False)
        for network in networks
    ]
    return [chart for chart in (*rates, *errors) if chart.series]


CHOICES = (
    "VGG-style networks with strides 1, 2 and 2, to match their map sizes. From the released code, because the text "
    "does not say: convolutions without bias, no weight decay, He initialisation by fan-out for plain and WN, "
    "orthogonal initialisation with gain 1 for OrthInit and OrthReg, an orthogonal Z for ONI with a learnable scale "
    "initialised to sqrt 2, every convolution orthogonalised but not the output layer, OLM without a learnable scale. "
    "From the text: SGD with momentum 0.9, batches of 128, the best learning rate of {.01, .02, .05} on 5,000 "
    "held-out images, divided by 5 at 1/2 and 3/4 of the epochs, pixels normalised by mean and standard deviation, "
    "flips and crops of images padded with 4 black pixels (the text does not specify the padding, nor whether each "
    "image has its own offset; here it has). OrthReg is a term of the loss, with the better of two coefficients. "
    f"{VARIANTS}, network_options.frozen_bias=true for a random bias that is never trained. "
)
PRESET_CHOICES = (
    "Preset full: g = 2, k = 1, all 50,000 images, 30 epochs (11,700 of the paper's 62,400 steps) with both drops of "
    "the learning rate, three seeds (two for OrthInit, OrthReg, OLM-1 and OrthInit x sqrt 2), convolutions in "
    "bfloat16. Five trials, one seed each, were also run in float32 (precision=32-true): ONI at .01, .02 and .05 "
    "then had 57.6, 49.5 and 39.4 % held-out error instead of 57.7, 48.8 and 40.0, batch normalisation at .01 and .02 "
    "52.1 and 45.0 instead of 51.9 and 45.1. The learning rate of each row, and any other choice, is the "
    "best in trials of 8 epochs on 10,000 images, measured on 5,000 held-out images. Batch normalisation is best at "
    "the paper's highest rate, so it may also use .1 and .2. Preset laptop: 5,000 images, 8 epochs, the learning rates "
    "found in this way."
)
EXPERIMENT = Experiment(
    id="table1",
    title="Seven methods on VGG-style networks, CIFAR-10",
    shows="ONI and OLM scaled by sqrt 2 have the lowest test errors on every network: keeping weights orthogonal "
    "during training helps.",
    choices=CHOICES + PRESET_CHOICES,
    presets=PRESETS,
    plan=plan,
    paper=PAPER,
    claims=CLAIMS,
    table=table,
    charts=charts,
    trains=True,
    sweeps=describe_sweeps(ROWS, network="has networks of its own", learning_rate="chooses it on images held out"),
    findings="ONI ends three points below the plain network and below orthogonal initialisations with gains 1 and "
    "sqrt 2, which are alike; weight normalisation is a little above these. OLM x sqrt 2 ends two points below them. "
    "What helps seems to be centring: ONI that is not centred, with a fixed scale, ends about as high "
    "as the orthogonal initialisation from which it starts, and centred weight normalisation, whose rows need not be "
    "orthogonal, as low as ONI, so far in one seed. Batch normalisation has a lower mean than ONI and OLM x sqrt 2 a "
    "higher one; neither difference is significant. All but weight normalisation and batch "
    "normalisation chose the largest of the paper's rates; only batch normalisation could choose larger ones.",
)
