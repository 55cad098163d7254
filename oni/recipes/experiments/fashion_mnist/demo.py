"""The demo: a part of `practice` that takes two minutes, on the embedded sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.errors import errors_at, mean_and_deviation
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Judgement, Quantity, Results
from oni.recipes.experiments.fashion_mnist.trials import (
    HE,
    ONI,
    ORTHOGONAL,
    OTHERS,
    Trial,
    best_trials,
    describe_trial,
    estimate_trial_cost,
    find_trials,
    make_curve,
    make_line,
    make_trial,
    measure_trial,
    name_line,
    rates_of,
    rates_that_train,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart

__all__ = ["EXPERIMENT"]

DEPTH = 10
RATES = (0.03, 0.1, 0.3, 1.0)
NETWORKS = (*OTHERS, ONI)
HELD_OUT = 1000


def plan(seed: int, *, seeds: int, data: str, samples: int, epochs: int) -> list[Trial]:
    sizes: dict[str, Any] = {"data": data, "samples": samples, "validation": HELD_OUT, "epochs": epochs}
    return [
        make_trial(network, DEPTH, rate, seed + index, **sizes)
        for index in range(seeds)
        for network in NETWORKS
        for rate in RATES
    ]


# Claims.


def bears_larger_rates(results: Results) -> Judgement:
    """Whether ONI trains at a rate at which neither He's nor the orthogonal start does."""
    rates = {name_line(network): rates_that_train(find_trials(results, network, DEPTH)) for network in NETWORKS}
    text = "; ".join(
        f"{name} {', '.join(f'{rate:g}' for rate in trained) or 'none'}" for name, trained in rates.items()
    )
    largest = {name: max(trained, default=0.0) for name, trained in rates.items()}
    others = max(largest[name_line(network)] for network in (HE, ORTHOGONAL))
    return largest["ONI"] > others, f"learning rates that train: {text}"


CLAIMS = [
    Claim("ONI trains at a learning rate at which a good start alone does not", bears_larger_rates, {"epochs": 4})
]


def make_table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for network in NETWORKS:
        trials = find_trials(results, network, DEPTH)
        best = best_trials(results, network, DEPTH)
        at_rates = [
            mean_and_deviation(errors_at(trials.where(learning_rate=rate), "test")) for rate in rates_of(trials)
        ]
        best_rate = Quantity(best[0].parameters.learning_rate, digits=None)
        cells.append([name_line(network), *at_rates, best_rate, mean_and_deviation(errors_at(best, "test"))])
    note = (
        "Test errors at the end in percent, by learning rate; the best rate is chosen on held-out images. 90 is what "
        "guessing gives, 100 a run that diverged."
    )
    columns = ["network", *(f"at {rate:g}" for rate in RATES), "best rate", "test error there"]
    return Comparison(columns, cells, note)


# Pictures.


def charts(results: Results) -> list[Chart]:
    from oni.recipes.charts.chart import Chart

    by_rate = []
    for network in NETWORKS:
        trials = find_trials(results, network, DEPTH)
        columns = [errors_at(trials.where(learning_rate=rate), "test") for rate in rates_of(trials)]
        by_rate.append(make_line(network, rates_of(trials), columns))
    curves = [make_curve(network, best_trials(results, network, DEPTH)) for network in NETWORKS]
    return [
        Chart("Test error over learning rate", "learning rate", "test error, %", by_rate, x_log=True, y_log=True),
        Chart("By epoch, each at its best learning rate", "epoch", "test error, %", curves, y_log=True),
    ]


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results))


EXPERIMENT = Experiment(
    id="demo",
    title="Which learning rates can four 10-layer networks bear?",
    shows="He's start, an orthogonal start times sqrt 2, batch normalisation and ONI, what a practitioner would choose "
    "from. With a good start alone, training diverges where the learning rate is too large; ONI bounds every weight "
    "while it trains, so it should bear larger rates. Batch normalisation is the usual choice where the batch may be "
    "looked at; ONI is for where it can't or shall not be.",
    choices="The embedded sample of Fashion-MNIST: 9,000 images to train on, 1,000 held out to choose the best "
    "learning rate by, 2,000 to test. 10 hidden layers of width 256, SGD without momentum, batches of 256, the "
    "learning rate halved half-way. ONI with 5 steps, a learnable scale that starts at sqrt 2, Z orthogonal at the "
    "start and not centred. All of it, with 20 and 50 layers, all images and time: oni reproduce practice.",
    presets={
        "smoke": {"seeds": 1, "data": "fashion-mnist-sample", "samples": 512, "epochs": 1},
        "laptop": {"seeds": 1, "data": "fashion-mnist-sample", "samples": 0, "epochs": 4},
    },
    parameters=(Trial,),
    plan=plan,
    measure=measure_trial,
    paper={},
    claims=CLAIMS,
    table=make_table,
    draw=draw,
    charts=charts,
    trains=True,
    sweeps={
        "learning_rate": f"trains each network with learning rates {', '.join(f'{rate:g}' for rate in RATES)}",
        "method": f"compares {', '.join(name_line(network) for network in NETWORKS)}",
        "network_options.depth": f"compares networks of {DEPTH} layers",
    },
    describe=describe_trial,
    cost=estimate_trial_cost,
)
