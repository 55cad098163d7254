"""Figures 5, 6, 7a, A2, A3 and A6: deep MLPs on Fashion-MNIST."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from oni.recipes.config import Config
from oni.recipes.trained import Setting, trained

__all__ = ["PRESETS", "measure"]

GRID = [0.05, 0.1, 0.5, 1.0]
"""The paper's learning rates."""

PRINTED = {"start": "given", "center": True}
"""As the paper has it: entries of Z independent and random, rows centred."""
ISOMETRIC = {"start": "orthogonal", "center": False}
"""What keeps the signal best: Z starts orthogonal, rows are not centred."""
MIXED = [{"start": "given", "center": False}, {"start": "orthogonal", "center": True}]

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "smoke": {"data": "fashion-mnist-sample", "samples": 512, "epochs": 2, "seeds": 1},
    "laptop": {"data": "fashion-mnist-sample", "samples": 0, "epochs": 10, "seeds": 1},
    "full": {"data": "fashion-mnist", "samples": 0, "epochs": 10, "seeds": 2, "grid": GRID},
    "paper": {"data": "fashion-mnist", "samples": 0, "epochs": 80, "seeds": 5, "grid": GRID},
}


def measure(
    setting: Setting,
    *,
    depth: int,
    method: str,
    options: Mapping[str, Any],
    data: str,
    samples: int,
    epochs: int,
    grid: list[float],
    select_epochs: int,
    first_seed: int,
    seed: int,
) -> dict[str, Any]:
    """One network, trained."""
    config = Config(
        data=data,
        network="mlp",
        network_options={"depth": depth, "width": 256, "bias": False},
        method=method,
        method_options=options,
        samples=samples,
        epochs=epochs,
        # As far along as in the code of the authors' earlier paper.
        drops=(epochs // 2,) if epochs > 1 else (),
        drop_factor=0.5,
        seed=first_seed,
    )
    return trained(config, setting, grid=grid, select_epochs=select_epochs, seed=seed)


def network(depth: int, method: str, options: Mapping[str, Any], seeds: int | None = None) -> dict[str, Any]:
    """What is trained, and with how many seeds at most."""
    return {"depth": depth, "method": method, "options": dict(options), "seeds": seeds}


def runs_of(networks: list[dict[str, Any]]) -> Callable[..., list[dict[str, Any]]]:
    """From a preset's sizes to the runs: every network with every seed."""

    def runs(seed: int, **sizes: Any) -> list[dict[str, Any]]:
        return [
            parameters(each, seed, count, **sizes)
            for each in networks
            for count in range(min(sizes["seeds"], each["seeds"] or sizes["seeds"]))
        ]

    return runs


def parameters(
    of: dict[str, Any],
    first: int,
    count: int,
    *,
    data: str,
    samples: int,
    epochs: int,
    seeds: int,
    grid: list[float] | None = None,
) -> dict[str, Any]:
    select_epochs = epochs if epochs > 10 else 2 if of["depth"] > 10 else 1
    return {
        "depth": of["depth"],
        "method": of["method"],
        "options": of["options"],
        "data": data,
        "samples": samples,
        "epochs": epochs,
        "grid": grid or [0.1],
        "select_epochs": select_epochs,
        "first_seed": first,
        "seed": first + count,
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
FIGA6 = [network(10, "oni", steps(T), seeds=1) for T in (1, 7, 3, 2, 4, 6, 5)]
ORDER = [*FIG5, *FIG6_20[:2], *FIG6_6[:4], *FIG7A, *FIG6_20[2:], *FIGA3, *FIG6_6[4:], *FIG5_MIXED, *FIGA6]
