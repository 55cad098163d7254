"""The rows of Table 2, its runs and presets, which Figure A5 shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from oni.recipes.experiments.cifar10.family import Beginning, Final
from oni.recipes.experiments.rows import Row

__all__ = [
    "BATCH_NORM",
    "EVERY_ROW",
    "GROUP_NORM",
    "ONI",
    "PRESETS",
    "RATE",
    "RELEASED_ONI",
    "ROWS",
    "SEARCHED",
    "SMALL_RATE",
    "XAVIER",
    "plan",
]

RATE, SMALL_RATE = 0.1, 0.01
GROUPS = (16, 32, 64)
BATCH_NORM = Row("bn", "batch norm", "plain", {"network_options.norm": "batch"}, rates=(RATE,), rate=RATE)
GROUP_NORM = Row(
    "gn",
    "group norm",
    "plain",
    {"network_options.norm": "group"},
    candidates=tuple({"network_options.group_size": size} for size in GROUPS),
    rates=(RATE,),
    rate=RATE,
)
XAVIER = Row("xavier", "Xavier", "xavier", rates=(0.1, 0.01, 0.001), rate=0.01)
ONI = Row("oni", "ONI", "oni", {"method_options.start": "orthogonal", "init_scale": True}, rates=(RATE,), rate=RATE)
ROWS = (BATCH_NORM, GROUP_NORM, XAVIER, ONI)
"""The paper's."""
SEARCHED = replace(
    ONI, name="oni-searched", title="ONI, best of three rates", rates=XAVIER.rates, rate=SMALL_RATE, ours=True
)
RELEASED_ONI = replace(
    ONI,
    name="oni-released",
    title="ONI, released code",
    options={"method_options.start": "orthogonal", "method_options.scale": 0.8},
)
RELEASED_GROUP_NORM = replace(
    GROUP_NORM,
    name="gn-released",
    title="group norm, released code",
    candidates=tuple({"network_options.groups": number} for number in GROUPS),
)
"""Which takes the sizes for numbers of groups: most layers then have as many as channels."""
EVERY_ROW = (*ROWS, RELEASED_GROUP_NORM, SEARCHED, RELEASED_ONI)
BEGINNINGS = ((ONI, RATE), (XAVIER, RATE), (BATCH_NORM, RATE))
MORE_BEGINNINGS = ((ONI, SMALL_RATE), (RELEASED_ONI, RATE), (XAVIER, SMALL_RATE), (BATCH_NORM, SMALL_RATE))
"""To find out why a network does not train at the large rate."""
PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {
        "network": "resnet8",
        "batch_sizes": (8, 4),
        "data": "generated",
        "samples": 16,
        "validation": 16,
        "epochs": 1,
        "measure_every": 1,
        "seeds": 1,
        "beginning": "resnet14",
        "beginning_epochs": 1,
    },
    "laptop": {
        "network": "resnet20",
        "batch_sizes": (128, 8),
        "data": "cifar10",
        "samples": 3000,
        "validation": 0,
        "epochs": 8,
        "measure_every": 8,
        "seeds": 1,
        "search": "none",
        "beginning": "resnet110",
        "beginning_epochs": 1,
    },
    "full": {
        "network": "resnet20",
        "batch_sizes": (128, 8),
        "data": "cifar10",
        "samples": 10_000,
        "validation": 5000,
        "epochs": 8,
        "measure_every": 4,
        "seeds": 2,
        "beginning": "resnet110",
        "beginning_epochs": 4,
    },
    "paper": {
        "network": "resnet110",
        "batch_sizes": (128, 2),
        "data": "cifar10",
        "samples": 0,
        "validation": 5000,
        "epochs": 160,
        "measure_every": 1,
        "seeds": 5,
        "search": "each",
    },
}


def plan(
    seed: int,
    *,
    network: str,
    batch_sizes: Sequence[int],
    seeds: int,
    data: str,
    samples: int,
    validation: int,
    epochs: int,
    measure_every: int,
    search: str = "first",
    beginning: str = "",
    beginning_epochs: int = 0,
) -> list[Any]:
    """All rows with the first seed and the large batch first, then the first steps of the deep network.

    Rows that the paper's text lacks come last; the search of our own has large batches only.

    Args:
        seed: the first.
        network: the one that is trained to the end.
        batch_sizes: the first one is searched for learning rates, which are scaled for the others.
        seeds: how many.
        data, samples, validation, epochs, measure_every: of every run.
        search: ``"none"``; ``"each"`` for every candidate of a row; ``"first"`` for its first one.
        beginning: a network of which only the first steps are trained, at the rate that ONI is said to bear.
        beginning_epochs: for how long.
    """
    runs: list[Any] = []

    def add(number: int, batch_size: int, rows: Sequence[Row] = ROWS) -> None:
        for row in rows:
            final = Final(
                row=row.name,
                network=network,
                batch_size=batch_size,
                options={},
                seed=number,
                data=data,
                samples=samples,
                validation=0 if search == "each" else validation,
                epochs=epochs,
                measure_every=measure_every,
                rates=(row.rate,) if search == "none" else row.rates,
                candidates=row.candidates if search == "each" else row.candidates[:1],
                trials_network=network,
                trials_batch_size=batch_sizes[0],
                trials_seed=seed,
                trials_validation=validation,
            )
            runs.extend(trial for trial in final.trials() if trial not in runs)
            runs.append(final)

    def add_beginnings(chosen: Sequence[tuple[Row, float]]) -> None:
        runs.extend(
            Beginning(row.name, beginning, batch_sizes[0], rate, seed, data, samples, beginning_epochs)
            for row, rate in chosen
            if beginning
        )

    add(seed, batch_sizes[0])
    add_beginnings(BEGINNINGS)
    for batch_size in batch_sizes[1:]:
        add(seed, batch_size)
    for number in range(seed + 1, seed + seeds):
        for batch_size in batch_sizes:
            add(number, batch_size)
    add_beginnings(MORE_BEGINNINGS)
    for number in range(seed, seed + seeds):
        add(number, batch_sizes[0], [SEARCHED])
        for batch_size in batch_sizes:
            add(number, batch_size, [RELEASED_GROUP_NORM])
    return runs
