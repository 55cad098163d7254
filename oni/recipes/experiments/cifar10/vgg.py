"""The rows of Table 1, its runs and presets, which Figures 7b and A4 share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oni.recipes.experiments.cifar10.family import BATCH, Final, Trial
from oni.recipes.experiments.rows import Row

__all__ = ["BEST", "OLM_1", "OLM_SQRT2", "ONI", "OTHERS", "OUR_ROWS", "PAPER", "PRESETS", "ROWS", "make_finals", "plan"]

RATES = (0.01, 0.02, 0.05)
PLAIN = Row("plain", "plain", "plain", rates=RATES, rate=0.02)
WN = Row("wn", "WN", "wn", rates=RATES, rate=0.02)
ORTH_INIT = Row("orth-init", "OrthInit", "orth-init", rates=RATES, rate=0.02)
ORTH_REG = Row(
    "orth-reg",
    "OrthReg",
    "orth-reg",
    candidates=({"method_options.coefficient": 1e-4}, {"method_options.coefficient": 5e-4}),
    rates=RATES,
    rate=0.02,
)
GROUPS = ({"method_options.group_size": 64}, {"method_options.group_size": None})
OLM_1 = Row("olm-1", "OLM-1", "olm-ns", candidates=GROUPS, rates=RATES, rate=0.05)
OLM_SQRT2 = Row("olm-sqrt2", "OLM-sqrt2", "olm", candidates=GROUPS, rates=RATES, rate=0.05)
ONI = Row("oni", "ONI", "oni", {"method_options.start": "orthogonal"}, rates=RATES, rate=0.05)
SCALED = Row(
    "orth-init-sqrt2",
    "OrthInit x sqrt 2",
    "orth-init",
    {"method_options.gain": "relu"},
    rates=RATES,
    rate=0.02,
    ours=True,
)
BATCH_NORM = Row("bn", "batch norm", "plain", {"network_options.norm": "batch"}, rates=RATES, rate=0.05, ours=True)
PAPER_ROWS = (PLAIN, WN, ORTH_INIT, ORTH_REG, OLM_1, OLM_SQRT2, ONI)
BEST = (OLM_SQRT2, ONI)
"""Those that the paper finds best."""
OTHERS = tuple(row for row in PAPER_ROWS if row not in BEST)
OUR_ROWS = (SCALED, BATCH_NORM)
"""What a practitioner would choose; not in the paper."""
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
        "validation": 16,
        "epochs": 1,
        "measure_every": 1,
        "seeds": 1,
        "rates": (0.01, 0.05),
        "batch_size": 16,
    },
    "laptop": {
        "networks": ("g2k1",),
        "data": "cifar10",
        "samples": 5000,
        "validation": 0,
        "epochs": 8,
        "measure_every": 4,
        "seeds": 2,
        "search": "none",
        "ours": False,
    },
    "full": {
        "networks": ("g2k1", "g4k1"),
        "data": "cifar10",
        "samples": 10_000,
        "validation": 5000,
        "epochs": 8,
        "measure_every": 4,
        "seeds": 2,
    },
    "paper": {
        "networks": NETWORKS,
        "data": "cifar10",
        "samples": 0,
        "validation": 5000,
        "epochs": 160,
        "measure_every": 1,
        "seeds": 3,
        "search": "each",
    },
}


def make_finals(
    rows: Sequence[Row],
    network: str,
    seeds: Sequence[int],
    *,
    searched: str,
    first_seed: int,
    data: str,
    samples: int,
    validation: int,
    epochs: int,
    measure_every: int,
    search: str,
    rates: tuple[float, ...] = (),
    batch_size: int = BATCH,
    options: Mapping[str, Any] | None = None,
) -> list[Final]:
    """The final runs of rows on a network, with what is best on the network ``searched``."""
    every_candidate = search == "each"
    return [
        Final(
            row=row.name,
            network=network,
            batch_size=batch_size,
            options=options or {},
            seed=seed,
            data=data,
            samples=samples,
            # As printed, all images are trained on once the learning rate is known.
            validation=0 if every_candidate else validation,
            epochs=epochs,
            measure_every=measure_every,
            rates=(row.rate,) if search == "none" else rates or row.rates,
            candidates=row.candidates
            if every_candidate or (row is ORTH_REG and search != "none")
            else row.candidates[:1],
            trials_network=searched,
            trials_batch_size=batch_size,
            trials_seed=first_seed,
            trials_validation=validation,
        )
        for seed in seeds
        for row in rows
    ]


def plan(
    seed: int, *, networks: Sequence[str], seeds: int, search: str = "first", ours: bool = True, **sizes: Any
) -> list[Trial | Final]:
    """The first network with the first seed comes first, with all methods; our own rows come last.

    Args:
        seed: the first.
        networks: the columns.
        seeds: how many, on the first network; one on the others unless each is searched.
        search: ``"each"`` network for its learning rates, the ``"first"`` one for all, or ``"none"``.
        ours: whether to add the rows that the paper lacks, on the first network.
        sizes: of every run.
    """
    runs: list[Trial | Final] = []

    def add(rows: Sequence[Row], network: str, seeds: Sequence[int]) -> None:
        searched = network if search == "each" else networks[0]
        finals = make_finals(rows, network, seeds, searched=searched, first_seed=seed, search=search, **sizes)
        for final in finals:
            runs.extend(trial for trial in final.trials() if trial not in runs)
            runs.append(final)

    every_seed = range(seed, seed + seeds)
    add(PAPER_ROWS, networks[0], every_seed[:1])
    add(PAPER_ROWS, networks[0], every_seed[1:])
    for network in networks[1:]:
        add(PAPER_ROWS, network, every_seed if search == "each" else every_seed[:1])
    if ours:
        add(OUR_ROWS, networks[0], every_seed)
    return runs
