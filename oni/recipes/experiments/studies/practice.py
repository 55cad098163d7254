"""ONI compared with what a practitioner would choose, at each one's best learning rate: a study of our own.

Every depth, network, learning rate and seed is one run that keeps 5,000 images to choose the rate by. Networks without
orthogonalisation are then trained once more for as long as ONI took, since their steps are quicker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.errors import count_test_images, errors_at, mean_and_deviation, mean_error
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Quantity, Results
from oni.recipes.experiments.fashion_mnist.family import TRAINS
from oni.recipes.experiments.runs import Training, measure
from oni.recipes.experiments.search import HELD_OUT
from oni.recipes.experiments.studies.step_times import StepTimes, time_steps
from oni.recipes.experiments.studies.trials import (
    HE,
    ONI,
    OTHERS,
    best_trials,
    find_longer,
    find_trials,
    make_curve,
    make_line,
    make_longer,
    make_rows,
    make_trials,
    rates_of,
    rates_that_train,
)
from oni.recipes.experiments.verdicts import Judgement, Kind, judge_lower, judge_trains

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart
    from oni.recipes.experiments.setting import Setting

__all__ = ["EXPERIMENT", "chart_over_rates"]

NETWORKS = (*OTHERS, ONI)
DEPTHS = (10, 20, 50)
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
LOWER_RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
DEEP = 50
"""From this depth on the lower rates are tried: at 1 none of the networks trains."""
CLOSE = 2.0
"""Percentage points of test error: a rate within this of the best of all networks is one that can be used."""


def plan_runs(
    seed: int,
    *,
    depths: Sequence[int],
    seeds: int,
    data: str,
    samples: int,
    validation: int,
    epochs: int,
    longer: int,
    seconds: float,
    rates: tuple[float, ...] = (),
) -> list[Any]:
    """The quick networks first, then ONI seed by seed, so that what is there at any time can be looked at."""
    sizes: dict[str, Any] = {"data": data, "samples": samples, "validation": validation, "epochs": epochs}
    every_seed = range(seed, seed + seeds)

    def trials(name: str, number: int) -> list[Any]:
        return [run for depth in depths for run in make_trials(name, depth, rates or rates_for(depth), number, **sizes)]

    runs = [run for number in every_seed for name in OTHERS for run in trials(name, number)]
    runs += trials(ONI, seed)
    for depth in depths:
        for name in OTHERS:
            runs += make_longer(name, depth, rates or rates_for(depth), seed, longer, **sizes)
    runs += [run for number in every_seed[1:] for run in trials(ONI, number)]
    return runs + [StepTimes(depth, seed, seconds) for depth in depths]


def rates_for(depth: int) -> tuple[float, ...]:
    """The learning rates that are tried: two decades."""
    return RATES if depth < DEEP else LOWER_RATES


def measure_run(run: Training | StepTimes, setting: Setting) -> dict[str, Any]:
    """Train, or time."""
    return time_steps(run, make_rows(run.depth)) if isinstance(run, StepTimes) else measure(run, setting)


# Reading the results.


def depths_of(results: Results) -> list[int]:
    return sorted({run.parameters.depth for run in results if isinstance(run.parameters, StepTimes)})


def usable_rates(results: Results, name: str, depth: int) -> list[float]:
    """Those whose mean test error is within 2 points of the best of all networks of this depth."""
    best = min(mean_error(best_trials(results, other, depth), "test") for other in NETWORKS)
    trials = find_trials(results, name, depth)
    return [rate for rate in rates_of(trials) if mean_error(trials.where(learning_rate=rate), "test") <= best + CLOSE]


def step_seconds(results: Results, name: str, depth: int) -> float:
    (timing,) = Results(run for run in results if isinstance(run.parameters, StepTimes)).where(depth=depth)
    return float(timing.measured["milliseconds"][name][1]) / 1e3


def seconds_per_epoch(results: Results, name: str, depth: int) -> float:
    trial: Training = find_trials(results, name, depth)[0].parameters
    return step_seconds(results, name, depth) * trial.steps / trial.epochs


def errors_at_equal_time(results: Results, name: str, depth: int) -> list[float]:
    """Test errors when ONI's trials are over: of a quicker network, after as many epochs as fit into that time."""
    best = best_trials(results, name, depth)
    if name == ONI:
        return errors_at(best, "test")
    budget = best_trials(results, ONI, depth)[0].parameters.epochs * seconds_per_epoch(results, ONI, depth)
    runs = find_longer(results, name, depth)
    fitting = max(1, int(budget / seconds_per_epoch(results, name, depth) + 1e-9))
    return errors_at(runs, "test", min(fitting, runs[0].parameters.epochs) - 1)


def make_table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for depth in depths_of(results):
        for name in NETWORKS:
            trials, best = find_trials(results, name, depth), best_trials(results, name, depth)
            cells.append(
                [
                    f"{depth} layers, {name}",
                    Quantity(best[0].parameters.learning_rate, digits=None),
                    mean_and_deviation(errors_at(best, "train")),
                    mean_and_deviation(errors_at(best, "test")),
                    f"{len(rates_that_train(trials))} of {len(rates_of(trials))}",
                    f"{len(usable_rates(results, name, depth))} of {len(rates_of(trials))}",
                    Quantity(1e3 * step_seconds(results, name, depth), digits=1),
                    mean_and_deviation(errors_at_equal_time(results, name, depth)),
                    Quantity(len(best), digits=0),
                ]
            )
    columns = ["network", "best rate", "train", "test", "rates that train", f"within {CLOSE:g} points", "ms per step"]
    note = (
        "Errors in percent at the end, means over seeds ± their standard deviation, at the best learning rate on "
        "held-out images. Rates that train: less than half of the training images wrong at the end, in every seed. "
        f"Within {CLOSE:g} points: rates whose test error is that close to the best network of the same depth. Equal "
        "time: the test error after the duration of ONI's run, in which the faster networks train for more epochs "
        "(first seed)."
    )
    return Comparison([*columns, "test at equal time", "seeds"], cells, note)


# Claims, all of our own.


def lower_test_error(depth: int) -> Callable[[Results], Judgement]:
    """Whether ONI's errors are below those of all others."""

    def judge(results: Results) -> Judgement:
        errors = {name: errors_at(best_trials(results, name, depth), "test") for name in NETWORKS}
        return judge_lower({"ONI": errors.pop(ONI)}, errors, images=count_test_images(results))

    return judge


def trains_at(depth: int) -> Callable[[Results], Judgement]:
    """Whether ONI trains so deep a network; one with He initialisation has to."""

    def judge(results: Results) -> Judgement:
        own, control = ({name: errors_at(best_trials(results, name, depth), "train")} for name in (ONI, HE))
        return judge_trains(own, control, TRAINS)

    return judge


NEEDS = {"epochs": 3, "seeds": 3, "steps": 600}
CLAIMS = [
    Claim(Kind.OURS, "ONI trains 50 layers", trains_at(50), NEEDS),
    *(
        Claim(Kind.OURS, f"{depth} layers: ONI has the lowest test error", lower_test_error(depth), NEEDS)
        for depth in DEPTHS
    ),
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    kinds = (chart_over_rates, chart_by_epoch, chart_by_time)
    return [make_chart(results, depth) for make_chart in kinds for depth in depths_of(results)]


def chart_over_rates(results: Results, depth: int) -> Chart:
    """The test error of each network over its learning rate."""
    from oni.recipes.charts.chart import Chart

    series = []
    for name in NETWORKS:
        trials = find_trials(results, name, depth)
        rates = rates_of(trials)
        series.append(make_line(name, rates, [errors_at(trials.where(learning_rate=rate), "test") for rate in rates]))
    title = f"{depth} layers: every rate"
    return Chart(title, "learning rate", "test error, %", series, x_log=True, y_log=True)


def chart_by_epoch(results: Results, depth: int) -> Chart:
    from oni.recipes.charts.chart import Chart

    series = [make_curve(name, best_trials(results, name, depth)) for name in NETWORKS]
    return Chart(f"{depth} layers: best rate, by epoch", "epoch", "test error, %", series, y_log=True)


def chart_by_time(results: Results, depth: int) -> Chart:
    from oni.recipes.charts.chart import Chart

    series = []
    for name in NETWORKS:
        runs = best_trials(results, name, depth)
        if name != ONI:
            runs = find_longer(results, name, depth)
        series.append(make_curve(name, runs, seconds_per_epoch(results, name, depth)))
    title = f"{depth} layers: best rate, by time"
    return Chart(title, "seconds", "test error, %", series, x_log=True, y_log=True)


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results), len(depths_of(results)))


SAMPLE = {
    "depths": DEPTHS,
    "seeds": 1,
    "data": "fashion-mnist-sample",
    "samples": 0,
    "validation": HELD_OUT,
    "epochs": 3,
    "longer": 30,
    "seconds": 20.0,
}
"""The sizes of presets, on the embedded sample."""
COMPARED = ", ".join(name for name in NETWORKS)
EXPERIMENT = Experiment(
    id="practice",
    title="ONI compared with common practice, in 10, 20 and 50 layers",
    shows="He initialisation, orthogonal initialisation times sqrt 2, batch normalisation and ONI, each at its own "
    "best learning rate: how low the error is by epoch and by time, how many learning rates are usable, and "
    "whether 50 layers train.",
    choices="MLPs of width 256 with ReLU on Fashion-MNIST as in Figure 5: SGD without momentum, batches of 256, the "
    "learning rate halved halfway. Learning rates 0.01 to 1 (50 layers: 0.003 to 0.3); the best is chosen on "
    "5,000 held-out training images. Batch normalisation is placed before each ReLU of a network with He "
    "initialisation. ONI in its best configuration here: Z initialised orthogonal, rows not centred, 5 steps, "
    "a learnable scale initialised to sqrt 2. Preset full: all images, 3 epochs, 3 seeds; for the comparison "
    "by time the others train for 30 epochs (one seed). The time per step is measured separately from "
    "training, in interleaved rounds.",
    presets={
        "smoke": {
            **SAMPLE,
            "depths": (2,),
            "samples": 512,
            "validation": 256,
            "epochs": 1,
            "longer": 2,
            "seconds": 0.1,
            "rates": (0.1, 0.3),
        },
        "laptop": {**SAMPLE, "depths": (20,), "validation": 1000},
        "full": {**SAMPLE, "data": "fashion-mnist", "seeds": 3},
    },
    parameters=(StepTimes,),
    plan=plan_runs,
    measure=measure_run,
    paper={},
    claims=CLAIMS,
    table=make_table,
    draw=draw,
    charts=charts,
    trains=True,
    sweeps={
        "learning_rate": "trains each network with several learning rates",
        "method": f"compares {COMPARED}",
        "network_options.depth": "compares networks of 10, 20 and 50 layers",
        "network_options.norm": f"compares {COMPARED}",
        **dict.fromkeys(
            (f"method_options.{option}" for option in ("gain", "steps", "bound", "start", "center")),
            f"compares {COMPARED}",
        ),
        "validation": "chooses learning rates on images held out",
    },
    findings="Up to 20 layers and by epochs, ONI lies between networks without normalisation and batch normalisation. "
    "It tolerates higher learning rates than the former: with 10 layers it is best at 1, where both diverge, and with "
    "20 it still trains at 0.3. At each network's best rate, its mean test error is slightly below theirs, and that "
    "of batch normalisation is lower still, by 1.5 points in both: at 10 layers barely significant as a pair, and not "
    "after correction for three; none of the other differences to ONI is significant. With 50 "
    "layers ONI trains at one rate only, about as well as networks without normalisation, and batch normalisation has "
    "the highest mean after 3 epochs; these differences are not significant either. At equal time, in the one seed of "
    "the others, ONI has the highest error at every depth: its step took 7 to 13 times as long, and in that time the "
    "others trained for many more epochs. Its steps were timed before they became faster: today, with five Newton "
    "steps, a step of the 20 layers takes about 7 times as long as a plain one, with sigma_min=0.9 half of that.",
)
