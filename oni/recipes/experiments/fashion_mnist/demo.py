"""The demo: a part of `practice` that takes two minutes, on the embedded sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.errors import errors_at, mean_and_deviation
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Quantity, Results
from oni.recipes.experiments.runs import Training
from oni.recipes.experiments.studies.trials import (
    HE,
    ONI,
    ORTHOGONAL,
    OTHERS,
    best_trials,
    find_trials,
    make_curve,
    make_line,
    make_trials,
    rates_of,
    rates_that_train,
)
from oni.recipes.experiments.verdicts import Judgement, Kind

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]

DEPTH = 10
RATES = (0.03, 0.1, 0.3, 1.0)
NETWORKS = (*OTHERS, ONI)
HELD_OUT = 1000


def plan(seed: int, *, seeds: int, data: str, samples: int, epochs: int) -> list[Training]:
    sizes: dict[str, Any] = {"data": data, "samples": samples, "validation": HELD_OUT, "epochs": epochs}
    return [
        run
        for index in range(seeds)
        for name in NETWORKS
        for run in make_trials(name, DEPTH, RATES, seed + index, **sizes)
    ]


# Claims.


def bears_larger_rates(results: Results) -> Judgement:
    """Whether ONI trains at a rate at which neither He's nor the orthogonal start does."""
    rates = {name: rates_that_train(find_trials(results, name, DEPTH)) for name in NETWORKS}
    text = "; ".join(
        f"{name} {', '.join(f'{rate:g}' for rate in trained) or 'none'}" for name, trained in rates.items()
    )
    largest = {name: max(trained, default=0.0) for name, trained in rates.items()}
    others = max(largest[name] for name in (HE, ORTHOGONAL))
    return largest["ONI"] > others, f"learning rates that train: {text}"


CLAIMS = [
    Claim(
        Kind.OURS,
        "ONI trains at a learning rate at which a good initialisation alone does not",
        bears_larger_rates,
        {"epochs": 4},
    )
]


def make_table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for name in NETWORKS:
        trials = find_trials(results, name, DEPTH)
        best = best_trials(results, name, DEPTH)
        at_rates = [
            mean_and_deviation(errors_at(trials.where(learning_rate=rate), "test")) for rate in rates_of(trials)
        ]
        best_rate = Quantity(best[0].parameters.learning_rate, digits=None)
        cells.append([name, *at_rates, best_rate, mean_and_deviation(errors_at(best, "test"))])
    note = (
        "Test errors at the end in percent, by learning rate; the best rate is chosen on held-out images. Guessing "
        "gives 90; a diverged run counts as 100."
    )
    columns = ["network", *(f"at {rate:g}" for rate in RATES), "best rate", "test error there"]
    return Comparison(columns, cells, note)


# Pictures.


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.chart import Chart

    by_rate = []
    for name in NETWORKS:
        trials = find_trials(results, name, DEPTH)
        columns = [errors_at(trials.where(learning_rate=rate), "test") for rate in rates_of(trials)]
        by_rate.append(make_line(name, rates_of(trials), columns))
    curves = [make_curve(name, best_trials(results, name, DEPTH)) for name in NETWORKS]
    return [
        Chart("Test error over learning rate", "learning rate", "test error, %", by_rate, x_log=True, y_log=True),
        Chart("By epoch, each at its best learning rate", "epoch", "test error, %", curves, y_log=True),
    ]


EXPERIMENT = Experiment(
    id="demo",
    title="Which learning rates do four 10-layer networks tolerate?",
    shows="What a practitioner would choose from: He initialisation, orthogonal initialisation times sqrt 2, batch "
    "normalisation and ONI. With a good initialisation alone, training diverges if the learning rate is too "
    "high. ONI bounds every weight throughout training, so it should tolerate higher rates. Batch normalisation "
    "is the usual choice if layers may depend on the batch; ONI is for networks where they may not.",
    choices="The embedded sample of Fashion-MNIST: 9,000 images for training, 1,000 held out to choose the best "
    "learning rate, 2,000 for testing. 10 hidden layers of width 256, SGD without momentum, batches of 256, "
    "the learning rate halved halfway. ONI with 5 steps, a learnable scale initialised to sqrt 2, Z "
    "initialised orthogonal and not centred. The full study, with 20 and 50 layers, all images and timings: "
    "oni reproduce practice.",
    presets={
        "smoke": {"seeds": 1, "data": "fashion-mnist-sample", "samples": 512, "epochs": 1},
        "laptop": {"seeds": 1, "data": "fashion-mnist-sample", "samples": 0, "epochs": 4},
    },
    plan=plan,
    paper={},
    claims=CLAIMS,
    table=make_table,
    charts=charts,
    trains=True,
    sweeps={
        "learning_rate": f"trains each network with learning rates {', '.join(f'{rate:g}' for rate in RATES)}",
        "method": f"compares {', '.join(name for name in NETWORKS)}",
        "network_options.depth": f"compares networks of {DEPTH} layers",
    },
)
