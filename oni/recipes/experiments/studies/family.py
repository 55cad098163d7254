"""The networks of the study of certificates: rows, plan, presets, and how results are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from oni.machine import find_version
from oni.recipes.exact_maps import PEERS
from oni.recipes.experiments.experiment import SKIPPED, Results, Run
from oni.recipes.experiments.runs import Row, Training, apply_changes, measure, plan_rows
from oni.recipes.experiments.search import share_at

if TYPE_CHECKING:
    from oni.recipes.experiments.setting import Setting
    from oni.recipes.run_files.config import Config

__all__ = [
    "ASKED",
    "CAYLEY",
    "CHOLESKY",
    "CIFAR",
    "COLOURS",
    "FASHION",
    "MLP",
    "ONI",
    "PRESETS",
    "ROWS",
    "SN",
    "SN_ORTHOGONAL",
    "TEMPERATURE",
    "USUAL",
    "MethodTimes",
    "certified_at",
    "clean_accuracy",
    "find_runs",
    "make_config",
    "measure_run",
    "parts_of",
    "plan",
    "rows_at",
    "step_milliseconds",
    "temperatures_of",
    "training_minutes",
]

# Rows.

RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
POWER = {"method": "sn", "method_options.n_power_iterations": 5}
NEWTON = {"method": "oni-ns", "method_options.center": False, "method_options.learn_scale": False}


def newton(steps: int, rate: float) -> Row:
    changes = {**NEWTON, "method_options.steps": steps}
    return Row(f"oni-{steps}", f"ONI, T = {steps}", changes, rates=RATES, rate=rate)


SN = Row("sn", "spectral norm", POWER, rates=RATES, rate=3e-3)
SN_ORTHOGONAL = Row(
    "sn-orthogonal",
    "spectral norm, orthogonal start",
    {**POWER, "method_options.start": "orthogonal"},
    rates=RATES,
    rate=3e-3,
)
ONI = {steps: newton(steps, 3e-3) for steps in (0, 1, 2, 3, 5)}
ASKED = {
    sigma_min: Row(
        f"oni-{sigma_min:g}",
        f"ONI, sigma_min {sigma_min:g}",
        {**NEWTON, "method_options.sigma_min": sigma_min, "method_options.start": "orthogonal"},
        rates=RATES,
        rate=1e-2,
    )
    for sigma_min in (0.9, 0.99)
}
CAYLEY = Row("cayley", "Cayley", {"method": "cayley"}, rates=RATES, rate=3e-3)
CHOLESKY = Row("cholesky", "Cholesky", {"method": "cholesky"}, rates=RATES, rate=3e-3)
OTHERS = tuple(Row(method, package, {"method": method}, rates=RATES, rate=3e-3) for method, package in PEERS.items())
"""Dense layers of other libraries: trained where these are installed."""
MAIN = (SN, SN_ORTHOGONAL, ONI[2], ONI[5], ASKED[0.99], CAYLEY)
"""Trained with every temperature; the others with one."""
ROWS = (SN, SN_ORTHOGONAL, *ONI.values(), *ASKED.values(), CAYLEY, CHOLESKY, *OTHERS)
PATCHES = (SN, ONI[2], ONI[5], ASKED[0.99], CHOLESKY)
"""Those of the patch-and-mix network, most of whose layers start orthogonal as it is built.

Its output layer is 10 x 4096, for which torch's Cayley map inverts a matrix of 4096 x 4096: seconds a step.
"""
FASHION, CIFAR = "fashion-mnist", "cifar10"
USUAL = {FASHION: 0.5, CIFAR: 36 / 255}
"""The radius that claims are about, in pixels from 0 to 1."""
TEMPERATURE = {FASHION: 8.0, CIFAR: 16.0}
"""At which learning rates are chosen, and every row is trained."""

COLOURS = {
    "sn": "#D55E00",
    "sn-orthogonal": "#E69F00",
    "oni-0": "#B9D9EE",
    "oni-1": "#8BBEE0",
    "oni-2": "#56B4E9",
    "oni-3": "#2F8FC9",
    "oni-5": "#0072B2",
    "oni-0.9": "#009E73",
    "oni-0.99": "#4B0082",
    "cayley": "#666666",
    "cholesky": "#8B5A2B",
    "torchlip": "#CC79A7",
    "orthogonium": "#7A5195",
}
"""Of the lines in charts, by the name of the row."""

# From rows to runs.


@dataclass(frozen=True)
class MethodTimes:
    """The time of a training step with every method, measured in turns and apart from training."""

    group: str
    """Which network."""
    seed: int
    seconds: float
    """The time budget."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """The user's changes to the networks that are trained, and so to those that are timed."""

    def override(self, overrides: Mapping[str, Any]) -> MethodTimes:
        """The times with the user's changes."""
        return replace(self, overrides=dict(overrides))

    def describe(self) -> str:
        """As on the command line."""
        return f"{self.group}/times, time of a step"

    def measure(self) -> dict[str, Any]:
        """The quartiles in milliseconds, by row; nothing of libraries that are not installed."""
        from oni.recipes.experiments.studies.step_times import time_networks

        sizes = PRESETS["full"]["parts"][self.group]
        base = make_base(self.group, **{name: sizes[name] for name in ("data", "network", "batch_size", "epochs")})
        rows = ROWS if self.group == FASHION else PATCHES
        configs = {
            row.name: apply_changes(base, {**row.changes, **self.overrides}) for row in rows if is_installed(row.name)
        }
        return time_networks(configs, seed=self.seed, seconds=self.seconds)


def is_installed(method: str) -> bool:
    """Whether the library that a method needs, if any, is there."""
    return method not in PEERS or find_version(PEERS[method]) is not None


def make_base(name: str, *, network: Mapping[str, Any], **sizes: Any) -> Config:
    """The network of a data set, as it is built."""
    return make_config(network_options=network, network="mlp" if name == FASHION else "patch-mix", **sizes)


def make_config(*, batch_size: int, epochs: int, **sizes: Any) -> Config:
    """What all rows share, but for the network."""
    from oni.recipes.run_files.config import Config
    from oni.recipes.training.watch import CERTIFIED

    return Config(
        method="plain",
        change_output=True,
        optimizer="adam",
        momentum=0.9,
        batch_size=batch_size,
        epochs=epochs,
        drops=(epochs - 2, epochs - 1) if epochs > 2 else (),
        drop_factor=0.3,
        watch=(CERTIFIED,),
        **sizes,
    )


def plan(
    seed: int,
    *,
    seeds: int,
    parts: Mapping[str, Mapping[str, Any]],
    seconds: float = 0.0,
    samples: int | None = None,
    epochs: int | None = None,
) -> list[Training | MethodTimes]:
    """Both networks, one after the other: every row with one temperature, then the main ones with all; then times."""
    given: dict[str, Any] = {
        name: value for name, value in (("samples", samples), ("epochs", epochs)) if value is not None
    }
    seeds_of = range(seed, seed + seeds)
    runs = [run for name, sizes in parts.items() for run in plan_part(name, seeds_of, **sizes, **given)]
    return [*runs, *(MethodTimes(name, seed, seconds) for name in parts if seconds)]


def plan_part(
    name: str,
    seeds: Sequence[int],
    *,
    network: Mapping[str, Any],
    temperatures: Sequence[float],
    trial: Mapping[str, Any] | None,
    every_row: bool = True,
    **sizes: Any,
) -> list[Training]:
    first = TEMPERATURE[name]
    base = make_base(name, network=network, **sizes)
    main = MAIN if name == FASHION else PATCHES
    searched = trial and {**trial, "task_options.temperature": first, "seed": seeds[0]}
    rows = [row for row in ROWS if every_row and name == FASHION and row not in main]
    order: list[tuple[float, Sequence[Row]]] = [
        (temperature, main) for temperature in sorted(temperatures, key=lambda value: value != first)
    ]
    order.insert(1, (first, rows))
    return [
        run
        for temperature, chosen in order
        for run in plan_rows(
            chosen,
            replace(base, task_options={"temperature": temperature}),
            seeds,
            group=f"{name}, temperature {temperature:g}",
            trial=searched,
            radius=USUAL[name],
        )
    ]


def measure_run(training: Training | MethodTimes, setting: Setting) -> dict[str, Any]:
    """What a run gave, with its certificate; the time for that is no part of training."""
    from oni.recipes.training.watch import CERTIFIED

    if isinstance(training, MethodTimes):
        return training.measure()
    if not is_installed(training.config.method):
        return {"status": SKIPPED, "reason": f"{PEERS[training.config.method]} is not installed"}
    measured = measure(training, setting, keep=[CERTIFIED])
    certificates = measured.pop(CERTIFIED, {})
    if not certificates:
        return measured
    (certificate,) = certificates.values()
    cost = measured["cost"]
    seconds = cost["seconds"] - certificate.pop("seconds")
    return {**measured, CERTIFIED: certificate, "cost": {**cost, "seconds": seconds}}


# Reading the results.


def find_runs(results: Results, row: Row, name: str, temperature: float) -> Results:
    """The runs of a row on a data set at a temperature, one of each seed; none of those that were skipped."""
    runs = results.where(row=row.name, group=f"{name}, temperature {temperature:g}")
    return Results(run for run in runs if run.measured["status"] != SKIPPED)


def certified_at(run: Run, radius: float) -> float:
    """In percent; none of a run that diverged."""
    certificate = run.measured.get("certified")
    return 0.0 if certificate is None else 100 * share_at(certificate, radius)


def clean_accuracy(run: Run) -> float:
    """On the test images, in percent; guessing of a run that diverged."""
    error = run.measured["test_error"][-1] if run.measured["test_error"] else None
    return 10.0 if error is None or run.measured["status"] != "finished" else 100 * (1 - error)


def parts_of(results: Results) -> list[str]:
    """The data sets that there are trained runs on, by the names of the plan."""
    trained = (run.parameters for run in results if isinstance(run.parameters, Training))
    return list(dict.fromkeys(training.group.partition(",")[0] for training in trained))


def temperatures_of(results: Results, name: str) -> list[float]:
    """At which a data set was trained, the lowest first."""
    trained = (run.parameters for run in results if isinstance(run.parameters, Training))
    of_part = [training for training in trained if training.group.partition(",")[0] == name]
    return sorted({float(training.config.task_options["temperature"]) for training in of_part})


def rows_at(results: Results, name: str, temperature: float) -> list[tuple[Row, Results]]:
    """Every row with its runs, where it has some."""
    pairs = [(row, find_runs(results, row, name, temperature)) for row in ROWS]
    return [(row, runs) for row, runs in pairs if runs]


def step_milliseconds(results: Results, row: Row, name: str) -> float | None:
    """The median time of a training step, measured in turns; ``None`` if it is not yet measured."""
    timed = Results(run for run in results if isinstance(run.parameters, MethodTimes)).where(group=name)
    return timed[0].measured["milliseconds"].get(row.name, [None, None])[1] if timed else None


def training_minutes(run: Run) -> float:
    """How long it trained, measurements of errors included."""
    return float(run.measured["cost"]["seconds"]) / 60


# Presets.

MLP = {"depth": 4, "width": 256, "activation": "groupsort"}
SAMPLE = {"data": "fashion-mnist-sample", "samples": 0, "network": MLP, "batch_size": 256}
WHOLE = {
    "data": "fashion-mnist",
    "samples": 0,
    "network": MLP,
    "batch_size": 512,
    "epochs": 5,
    "temperatures": (8.0, 4.0, 16.0, 32.0),
    "trial": {"samples": 25_000, "epochs": 2, "drops": (1,), "validation": 5000},
}
COLOUR_IMAGES = {
    "data": "cifar10",
    "samples": 0,
    "network": {"width": 64, "depth": 4},
    "batch_size": 256,
    "epochs": 3,
    "temperatures": (16.0,),
    "trial": {"samples": 12_500, "epochs": 2, "drops": (1,), "validation": 5000},
}
PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {
        "seeds": 1,
        "parts": {
            FASHION: {
                **SAMPLE,
                "network": {**MLP, "depth": 1, "width": 16},
                "samples": 512,
                "epochs": 1,
                "temperatures": (8.0,),
                "trial": {"validation": 256},
            },
            CIFAR: {
                "data": "generated",
                "samples": 64,
                "network": {"width": 16, "depth": 1, "size": 8},
                "batch_size": 32,
                "epochs": 1,
                "temperatures": (16.0,),
                "trial": None,
            },
        },
    },
    "laptop": {
        "seeds": 1,
        "parts": {FASHION: {**SAMPLE, "epochs": 10, "temperatures": (8.0, 32.0), "trial": None, "every_row": False}},
    },
    "full": {"seeds": 3, "seconds": 60.0, "parts": {FASHION: WHOLE, CIFAR: COLOUR_IMAGES}},
}
