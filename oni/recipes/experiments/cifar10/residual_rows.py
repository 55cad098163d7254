"""The residual networks of Table 2 and Figure A5: their rows, presets and texts, and how their runs are told apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from oni.recipes.experiments.cifar10.family import VARIANTS, make_config
from oni.recipes.experiments.errors import about
from oni.recipes.experiments.experiment import Results
from oni.recipes.experiments.runs import Row, Training, plan_rows
from oni.recipes.experiments.search import HELD_OUT

__all__ = [
    "BATCH_NORM",
    "BEGINNINGS",
    "CHOICES",
    "DEEP",
    "EVERY_ROW",
    "FIRST_STEPS",
    "FREE",
    "FREE_UNCENTRED",
    "GROUP_NORM",
    "ONI",
    "PARTS",
    "PRESETS",
    "RATE",
    "RELEASED_ONI",
    "RELEASED_XAVIER",
    "ROWS",
    "SEARCHED",
    "SMALL_BRANCHES",
    "SMALL_RATE",
    "UNCENTRED",
    "XAVIER",
    "at_large_rate",
    "find_beginnings",
    "find_finals",
    "name_beginning",
    "on_deep",
    "on_shallow",
    "plan",
]

DEEP = "resnet110"
"""The paper's network."""
FIRST_STEPS = {"steps": 1000, "seeds": 2}
"""What a claim about the beginning of training needs."""
PARTS = ("beginning", "slow_beginning")
"""Where a preset has the sizes of runs that are the beginning of training."""
RATE, SMALL_RATE = 0.1, 0.01
GROUPS = (16, 32, 64)
BATCH_NORM = Row("bn", "batch norm", {"network_options.norm": "batch"}, rates=(RATE,), rate=RATE)
GROUP_NORM = Row(
    "gn",
    "group norm",
    {"network_options.norm": "group"},
    candidates=tuple({"network_options.group_size": size} for size in GROUPS),
    rates=(RATE,),
    rate=RATE,
)
XAVIER = Row("xavier", "Xavier", {"method": "xavier"}, rates=(0.1, 0.01, 0.001), rate=0.01)
ONI = Row(
    "oni",
    "ONI",
    {"method": "oni", "method_options.start": "orthogonal", "init_scale": True},
    rates=(RATE,),
    rate=RATE,
)
ROWS = (BATCH_NORM, GROUP_NORM, XAVIER, ONI)
"""The paper's."""
SEARCHED = replace(
    ONI, name="oni-searched", title="ONI, best of three rates", rates=XAVIER.rates, rate=SMALL_RATE, ours=True
)
RELEASED_ONI = replace(
    ONI,
    name="oni-released",
    title="ONI, released code",
    changes={
        "method": "oni",
        "method_options.start": "orthogonal",
        "method_options.scale": 0.8,
        "network_options.frozen_bias": True,
        "decay_scales": True,
    },
)
"""Scales that start at a constant and decay, and random biases that are never trained."""
SMALL_BRANCHES = replace(
    ONI,
    name="oni-small-branches",
    title="ONI, small branches",
    changes={**ONI.changes, "small_branches": True},
    ours=True,
)
"""Scales start from data, as in the text, but residual branches start so small that their sum has a variance near 1."""
RELEASED_GROUP_NORM = replace(
    GROUP_NORM,
    name="gn-released",
    title="group norm, released code",
    candidates=tuple({"network_options.groups": number} for number in GROUPS),
)
"""The released code uses these sizes as numbers of groups: most layers then have a group per channel."""
RELEASED_XAVIER = replace(XAVIER, name="xavier-released", title="Xavier, released code", changes={"method": "plain"})
"""Torch's uniform initialisation, of a third of the variance, which the released code calls so."""
UNCENTRED = replace(
    RELEASED_ONI,
    name="oni-released-uncentred",
    title="ONI, released code, not centred",
    changes={**RELEASED_ONI.changes, "method_options.center": False},
    ours=True,
)
FREE = Row(
    "oni-start-released",
    "start of the released ONI, free weights",
    {
        "method": "oni-start",
        "method_options.start": "orthogonal",
        "method_options.scale": 0.8,
        "network_options.frozen_bias": True,
    },
    rate=RATE,
    ours=True,
)
"""Starts from the same function as the released ONI, with weights that are free to leave."""
FREE_UNCENTRED = Row(
    "orth-init-released",
    "OrthInit x 0.8, frozen biases",
    {"method": "orth-init", "method_options.gain": 0.8, "network_options.frozen_bias": True},
    rate=RATE,
    ours=True,
)
"""Starts from nearly the same function as ``UNCENTRED``, with weights that are free to leave."""
EVERY_ROW = (*ROWS, RELEASED_GROUP_NORM, SEARCHED, RELEASED_ONI, SMALL_BRANCHES)
AT_BOTH_SIZES = tuple(row for row in EVERY_ROW if row is not SEARCHED)
BEGINNINGS = (
    RELEASED_ONI,
    BATCH_NORM,
    ONI,
    XAVIER,
    SMALL_BRANCHES,
    FREE,
    UNCENTRED,
    FREE_UNCENTRED,
    RELEASED_XAVIER,
)
"""The rows whose first steps at the large rate show whether they train."""
SLOW_BEGINNINGS = (ONI, XAVIER, BATCH_NORM)
PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {
        "network": "resnet8",
        "batch_sizes": (8, 4),
        "data": "generated",
        "samples": 16,
        "epochs": 1,
        "seeds": 1,
        "trial": {"validation": 16},
        "beginning": {"network": "resnet14", "samples": 16, "epochs": 1},
        "slow_beginning": {"epochs": 1},
    },
    "laptop": {
        "network": "resnet20",
        "batch_sizes": (128, 8),
        "data": "cifar10",
        "samples": 3000,
        "epochs": 8,
        "measure_every": 8,
        "seeds": 1,
        "beginning": {"network": "resnet110", "samples": 3000, "epochs": 1},
        "slow_beginning": {"epochs": 1},
    },
    "full": {
        "network": "resnet20",
        "batch_sizes": (128, 8),
        "data": "cifar10",
        "samples": 10_000,
        "validation": HELD_OUT,
        "epochs": 8,
        "measure_every": 4,
        "seeds": 2,
        "trial": {},
        "every_candidate": False,
        "precision": "bf16-mixed",
        "beginning": {"network": "resnet110", "samples": 0, "epochs": 3},
        "slow_beginning": {"samples": 10_000, "epochs": 4, "precision": "bf16-mixed"},
    },
    "paper": {
        "network": "resnet110",
        "batch_sizes": (128, 2),
        "data": "cifar10",
        "samples": 0,
        "epochs": 160,
        "seeds": 5,
        "trial": {"validation": HELD_OUT},
    },
}


def plan(
    seed: int,
    *,
    network: str,
    batch_sizes: Sequence[int],
    seeds: int,
    data: str,
    trial: Mapping[str, Any] | None = None,
    every_candidate: bool = True,
    beginning: Mapping[str, Any] | None = None,
    slow_beginning: Mapping[str, Any] | None = None,
    **sizes: Any,
) -> list[Training]:
    """All rows with each batch size, seed by seed, then the first steps of a deep network.

    Args:
        seed: the first.
        network: the network that is trained to the end.
        batch_sizes: learning rates are searched with the first, and scaled for the others.
        seeds: how many.
        data: of every run.
        trial: what differs in trials; without it, every row has its own rate.
        every_candidate: whether to choose among the candidates of a row too.
        beginning: the network and sizes of the first steps at a constant, large rate, in float32.
        slow_beginning: what differs at the small rate, with the first seed.
        sizes: of the runs to the end.
    """
    every_seed = range(seed, seed + seeds)
    searched = None if trial is None else {**trial, "seed": seed, "batch_size": batch_sizes[0]}
    runs: list[Training] = []
    for batch_size in batch_sizes:
        config = make_config(network, batch_size=batch_size, data=data, **sizes)
        runs += plan_rows(
            EVERY_ROW if batch_size == batch_sizes[0] else AT_BOTH_SIZES,
            config,
            every_seed,
            group=name_group(network, batch_size, batch_sizes),
            trial=searched,
            every_candidate=every_candidate,
            rate_factor=batch_size / batch_sizes[0],
        )
    for rate, rows, chosen, changes in (
        (RATE, BEGINNINGS, every_seed, {}),
        (SMALL_RATE, SLOW_BEGINNINGS, every_seed[:1], slow_beginning),
    ):
        if beginning is None or changes is None:
            continue
        sizes = {"data": data, **beginning, **changes}
        deep = sizes.pop("network")
        config = make_config(deep, batch_size=batch_sizes[0], drops=(), measure_every=sizes["epochs"], **sizes)
        at_rate = [replace(row, rate=rate) for row in rows]
        runs += plan_rows(at_rate, config, chosen, group=name_beginning(deep, rate))
    return runs


def name_group(network: str, batch_size: int, batch_sizes: Sequence[int]) -> str:
    return network if batch_size == batch_sizes[0] else f"{network}, batch {batch_size}"


def name_beginning(network: str, rate: float) -> str:
    """The group of first steps at a learning rate."""
    return f"{network} at {rate:g}"


# Which runs are which.


def find_finals(results: Results) -> Results:
    """The runs to the end."""
    return Results(run for run in results if " at " not in run.parameters.group)


def find_beginnings(results: Results) -> Results:
    """The first steps of a deep network."""
    return Results(run for run in results if " at " in run.parameters.group)


def on_deep(results: Results) -> Results:
    """The runs to the end of the paper's network."""
    return Results(run for run in find_finals(results) if run.parameters.group.startswith(DEEP))


def on_shallow(results: Results) -> Results:
    """The runs to the end of other networks."""
    return Results(run for run in find_finals(results) if not run.parameters.group.startswith(DEEP))


def at_large_rate(*rows: Row) -> Callable[[Results], Results]:
    """Selects the beginnings of rows on the paper's network at its learning rate."""
    return lambda results: about(*rows)(results.where(group=name_beginning(DEEP, RATE)))


# Texts.

CHOICES = (
    "Residual networks with parameter-free shortcuts (option A). From the text: SGD with momentum 0.9 and weight "
    "decay 1e-4, learning rate 0.1 (Xavier: the best of {.1, .01, .001} on 5,000 held-out images), divided by 10 "
    "after 1/2 and 3/4 of the epochs, and proportional to the batch size; ONI's scales and biases are initialised "
    "from 128 training images so that the output of every convolution has mean 0 and variance 1. The released code "
    "differs: its scales start at 0.8 and decay, and its biases are missing from the trained parameters, so they keep "
    "torch's uniform initialisation; this is a separate row. From the code: 5 steps, an orthogonal Z, biases if there "
    "is no normalisation, He initialisation by fan-out if there is. Scales do not decay (in the code they do). The "
    "text searches the group size of group normalisation over {64, 32, 16}; the released code uses these as numbers "
    f"of groups, so most layers have one group per channel: a separate row. {VARIANTS}. "
)
