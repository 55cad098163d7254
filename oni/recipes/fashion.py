"""Figures 5, 6, 7a, A2, A3 and A6: deep MLPs on Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from oni.recipes.config import Config
from oni.recipes.trained import Setting, trained

__all__ = ["PRESETS", "measure"]

GRID = [0.05, 0.1, 0.5, 1.0]
"""The paper's learning rates."""
QUICK = ("plain", "lecun", "orth-init")

PRINTED = {"start": "given", "center": True}
"""As the paper has it: entries of Z independent and random, rows centred."""
ISOMETRIC = {"start": "orthogonal", "center": False}
"""What keeps the signal best: Z starts orthogonal, rows are not centred."""
MIXED = [{"start": "given", "center": False}, {"start": "orthogonal", "center": True}]

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"data": "fashion-mnist-sample", "samples": 512, "epochs": 2, "seeds": 1},
    "laptop": {"data": "fashion-mnist-sample", "samples": 0, "epochs": 10, "seeds": 1},
    "full": {"data": "fashion-mnist", "samples": 0, "epochs": 10, "seeds": 2, "grid": GRID, "select_epochs": 2},
    "paper": {"data": "fashion-mnist", "samples": 0, "epochs": 80, "seeds": 5, "grid": GRID, "select_epochs": 80},
}


def measure(
    setting: Setting,
    *,
    depth: int,
    method: str,
    options: Mapping[str, Any],
    seed: int,
    grid: list[float],
    select_epochs: int,
    select_seed: int,
    select_options: Mapping[str, Any],
    epochs: int,
    **others: Any,
) -> dict[str, Any]:
    """One network, trained."""
    config = Config(
        network="mlp",
        network_options={"depth": depth, "width": 256, "bias": False},
        method=method,
        method_options=options,
        seed=seed,
        epochs=epochs,
        # As far along as in the code of the authors' earlier paper.
        drops=(epochs // 2,) if epochs > 1 else (),
        drop_factor=0.5,
        **others,
    )
    selected_for = replace(config, method_options=select_options, seed=select_seed)
    return trained(config, setting, grid=grid, select_epochs=select_epochs, selected_for=selected_for)


def network(
    depth: int, method: str, options: Mapping[str, Any], seeds: int | None = None, like: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What is trained, with how many seeds at most, and with which options the learning rate is chosen."""
    select = options if like is None else like
    return {"depth": depth, "method": method, "options": dict(options), "seeds": seeds, "select_options": dict(select)}


def runs_of(networks: list[dict[str, Any]]) -> Callable[..., list[dict[str, Any]]]:
    """From a preset's sizes to the runs: every network with every seed."""

    def runs(seed: int, seeds: int, **sizes: Any) -> list[dict[str, Any]]:
        return [
            parameters(each, seed, seed + count, **sizes)
            for each in networks
            for count in range(min(seeds, each["seeds"] or seeds))
        ]

    return runs


def parameters(
    of: Mapping[str, Any],
    first: int,
    seed: int,
    *,
    grid: list[float] | None = None,
    select_epochs: int = 0,
    **sizes: Any,
) -> dict[str, Any]:
    return {
        **{key: value for key, value in of.items() if key != "seeds"},
        "seed": seed,
        "grid": grid or [0.1],
        # Those without orthogonalisation take a tenth of the time.
        "select_epochs": sizes["epochs"] if of["method"] in QUICK else select_epochs,
        "select_seed": first,
        **sizes,
    }


def steps(T: int) -> dict[str, Any]:
    return {**PRINTED, "steps": T}


FIG5 = [
    network(10, "plain", {}),
    network(10, "lecun", {}),
    network(10, "orth-init", {}),
    network(10, "oni", PRINTED),
    network(10, "oni", ISOMETRIC),
]
FIG5_MIXED = [network(10, "oni", options, seeds=1) for options in MIXED]
FIG6_20 = [
    network(20, "oni", PRINTED),
    network(20, "oni-ns", PRINTED),
    network(20, "olm", {}),
    network(20, "olm-ns", {}),
    network(20, "oni", ISOMETRIC),
    network(20, "oni-ns", ISOMETRIC, seeds=1),
]
FIG6_6 = [
    network(6, "oni", PRINTED),
    network(6, "oni-ns", PRINTED),
    network(6, "olm", {}),
    network(6, "olm-ns", {}),
    network(6, "oni", ISOMETRIC, seeds=1),
    network(6, "oni-ns", ISOMETRIC, seeds=1),
]
FIG7A = [network(6, "oni", steps(T)) for T in (1, 2, 3, 4, 5, 6, 7)]
FIGA3 = [network(10, "oni", {**PRINTED, "groups": 256 // size}) for size in (16, 32, 64, 128, 256)]
FIGA6 = [network(10, "oni", steps(T), seeds=1, like=steps(5)) for T in (1, 7, 3, 5)]
ORDER = [*FIG5, *FIG6_20[:2], *FIG6_6[:4], *FIG7A, *FIG6_20[2:], *FIGA3, *FIG6_6[4:], *FIG5_MIXED, *FIGA6]
