"""``oni demo``: what Newton steps do to one weight, and what that gives a network that certifies its classes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.errors import mean_and_deviation
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Quantity, Results
from oni.recipes.experiments.runs import Training, plan_rows
from oni.recipes.experiments.studies.attacked import attack_network, draw_attack
from oni.recipes.experiments.studies.family import (
    ASKED,
    CHOLESKY,
    COLOURS,
    ONI,
    SN,
    certified_at,
    clean_accuracy,
    make_config,
    measure_run,
    training_minutes,
)
from oni.recipes.experiments.verdicts import Judgement, Kind, Verdict, judge_lower

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart
    from oni.recipes.experiments.setting import Setting

__all__ = ["EXPERIMENT", "STEPS", "Weight", "find_spectra"]

RATES = ((SN, 3e-3), (ONI[2], 1e-3), (ONI[5], 3e-3), (ASKED[0.99], 1e-2), (CHOLESKY, 1e-2))
"""The best of 0.001, 0.003 and 0.01 for each: it certifies most of 1,000 held-out images at 0.5."""
ROWS = tuple(replace(row, rate=rate) for row, rate in RATES)
ATTACKED = ONI[5].name
RADIUS = 0.5
RADII = (0.25, RADIUS, 1.0)
TEMPERATURE = 16.0
STEPS = (0, 1, 2, 3, 5, 8)
IMAGES = {"smoke": 20, "laptop": 100}
SIDE = 256


@dataclass(frozen=True)
class Weight:
    """A square weight with the initialisation of torch's linear layer."""

    side: int
    seed: int

    def override(self, overrides: Mapping[str, Any]) -> Weight:
        return self

    def describe(self) -> str:
        return "the spectrum of one weight"


def find_spectra(weight: Weight) -> dict[int, list[float]]:
    """The singular values after so many steps, the largest first."""
    import torch

    import oni

    torch.manual_seed(weight.seed)
    Z = torch.nn.Linear(weight.side, weight.side).weight.detach()
    return {steps: oni.spectrum(oni.orthogonalize(Z, steps, center=False)).tolist() for steps in STEPS}


def plan(seed: int, *, seeds: int, side: int, width: int, samples: int, epochs: int) -> list[Any]:
    """One weight, then every network with every seed."""
    config = make_config(
        data="fashion-mnist-sample",
        samples=samples,
        network="mlp",
        network_options={"depth": 4, "width": width, "activation": "groupsort"},
        batch_size=256,
        epochs=epochs,
        task_options={"temperature": TEMPERATURE},
    )
    return [Weight(side, seed), *plan_rows(ROWS, config, range(seed, seed + seeds))]


def measure_any(run: Weight | Training, setting: Setting) -> dict[str, Any]:
    """A spectrum, or a trained network with its certificate; for one row, also what an attack finds."""
    if isinstance(run, Weight):
        return {"spectra": find_spectra(run)}
    measured = measure_run(run, setting)
    if run.row == ATTACKED and measured["status"] == "finished":
        count = IMAGES["smoke"] if run.config.samples else IMAGES["laptop"]
        measured["attack"] = attack_network(setting.runs / measured["run"], setting.load_dataset(run.config), count)
    return measured


# Reading the results.


def rows_of(results: Results) -> dict[str, Results]:
    """The runs of each row, by its title."""
    return {row.title: runs for row in ROWS if (runs := results.where(row=row.name))}


show_percent = partial(mean_and_deviation, digits=1)


def make_table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for title, runs in rows_of(results).items():
        bounds = [run.measured["certified"]["bound"] for run in runs if "certified" in run.measured]
        cells.append(
            [
                title,
                show_percent([clean_accuracy(run) for run in runs]),
                *(show_percent([certified_at(run, radius) for run in runs]) for radius in RADII),
                Quantity(max(bounds, default=None), digits=3),
                Quantity(60 * statistics.median(map(training_minutes, runs)), digits=1),
            ]
        )
    certified = [f"at {radius:g}" for radius in RADII]
    note = (
        "Percent of the 2,000 test images, means over seeds ± their standard deviation. At r: certified, so that no "
        "change of the pixels (0 to 1) by a Euclidean length of r can change the class, which is right. Bound: of the "
        "Lipschitz constant, proved from the weights; spectral norm estimates norms, so it may be above 1. Seconds: of "
        "training."
    )
    return Comparison(["network", "accuracy", *certified, "bound", "seconds"], cells, note)


# Claims: two that are theorems, and one that is judged over seeds.


def attacks_of(results: Results) -> list[dict[str, Any]]:
    return [run.measured["attack"] for run in results if "attack" in run.measured]


def judge_attacks(results: Results) -> Judgement:
    """Whether no attack within a certificate succeeds; an attack that fails at three times the radius is no test."""
    attacks = attacks_of(results)
    images, inside, outside = (sum(one[name] for one in attacks) for name in ("images", "inside", "outside"))
    text = f"{images} images attacked: {inside} change within the certified radius, {outside} at three times of it"
    return (Verdict.NOT_TESTED if not outside else inside == 0), text


def judge_bounds(results: Results) -> Judgement:
    runs = [run for row in (ONI[2], ONI[5], ASKED[0.99], CHOLESKY) for run in results.where(row=row.name)]
    largest = max(run.measured["certified"]["bound"] for run in runs)
    # Five layers, each off by at most a few hundred epsilons of float32.
    return largest <= 1 + 1e-3, f"at most {largest:.6f}"


def judge_certified(results: Results) -> Judgement:
    own, others = (
        {row.title: [100 - certified_at(run, RADIUS) for run in results.where(row=row.name)] for row in rows}
        for rows in ((ONI[2], ONI[5]), (SN,))
    )
    verdict, text = judge_lower(own, others, images=2000)
    return verdict, f"without a certificate: {text}"


CLAIMS = [
    Claim(Kind.OURS, "No attack within the certified radius changes a class", judge_attacks),
    Claim(Kind.OURS, "The Lipschitz bound of ONI and of exact orthogonality is at most 1.001", judge_bounds),
    Claim(
        Kind.OURS,
        f"ONI with 2 and with 5 steps certifies more images at {RADIUS:g} than spectral norm",
        judge_certified,
        {"seeds": 3},
    ),
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.chart import Chart, Series
    from oni.recipes.charts.curves import mean_and_band, ramp

    (weight,) = Results(run for run in results if isinstance(run.parameters, Weight))
    spectra: Mapping[str, Sequence[float]] = weight.measured["spectra"]
    shades = ramp(COLOURS["oni-5"], len(spectra))
    by_step = [
        Series(f"T = {steps}", list(range(1, len(values) + 1)), values, colour)
        for (steps, values), colour in zip(spectra.items(), shades, strict=True)
    ]
    curves = []
    for row in ROWS:
        certificates = [run.measured["certified"] for run in results.where(row=row.name) if "certified" in run.measured]
        if certificates:
            shares = zip(*(certificate["share"] for certificate in certificates), strict=True)
            columns = [[100 * share for share in column] for column in shares]
            shown = [at for at, radius in enumerate(certificates[0]["radius"]) if radius <= 1.5]
            radii = [certificates[0]["radius"][at] for at in shown]
            curves.append(mean_and_band(row.title, radii, [columns[at] for at in shown], COLOURS[row.name]))
    return [
        Chart(
            "Singular values of one weight, by the number of steps",
            "rank, largest first",
            "singular value",
            by_step,
            caption=f"A {weight.parameters.side} x {weight.parameters.side} weight as torch starts it. All 1: "
            "orthogonal. T = 0 is the weight divided by a bound of its norm.",
        ),
        Chart(
            "Images that are surely classified, by the radius",
            "radius, pixels from 0 to 1",
            "certified, %",
            curves,
            caption="At radius 0 this is the accuracy. Bands: from the least to the most of all seeds.",
        ),
    ]


def photographs(results: Results) -> dict[str, bytes]:
    """One image with its certificate, before and after attacks, by caption."""
    return draw_attack(attacks_of(results)[0]) if attacks_of(results) else {}


EXPERIMENT = Experiment(
    id="demo",
    title="How many images is a network sure of?",
    shows="A network of Lipschitz constant 1 certifies a radius for each image: its margin over sqrt 2. Spectral norm "
    "bounds every weight but shrinks most of what passes through it, so its margins are small. Each Newton step of ONI "
    "raises the small singular values towards 1 and never past it, so the certificate stays and margins grow.",
    choices="The embedded sample of Fashion-MNIST: 10,000 images to train on, 2,000 to test. 4 hidden layers of 128 "
    "with MaxMin, Adam, batches of 256, 8 epochs, the learning rate times 0.3 before each of the last two; "
    "cross-entropy of 16 x logits; 3 seeds. With sigma_min and with Cholesky (exact) weights start orthogonal. "
    "Attacks: 50 steps of projected gradient ascent from 2 random points, on 100 images for each seed of ONI "
    "with 5 steps. All of it on all images, with every method and several temperatures: oni reproduce "
    "certified. Beside batch normalisation: oni reproduce practice.",
    presets={
        "smoke": {"seeds": 1, "side": 16, "width": 16, "samples": 512, "epochs": 1},
        "laptop": {"seeds": 3, "side": SIDE, "width": 128, "samples": 0, "epochs": 8},
    },
    plan=plan,
    measure=measure_any,
    parameters=(Weight,),
    paper={},
    claims=CLAIMS,
    table=make_table,
    charts=charts,
    images=photographs,
    trains=True,
    sweeps={
        "method": f"compares {', '.join(row.title for row in ROWS)}",
        "learning_rate": "trains each network with its own",
        "data": "trains on the embedded sample",
        "network": "has a network of its own",
    },
)
