"""What ONI gives beside what a practitioner would choose, at each one's best learning rate: a study of our own.

Every depth, network, learning rate and seed is one run that keeps 5,000 images to choose the rate by. Networks without
orthogonalisation are then trained once more for as long as ONI took, since their steps are quicker.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.errors import errors_at, format_errors, judge_lower, mean_and_deviation, mean_error
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Judgement, Quantity, Results
from oni.recipes.experiments.fashion_mnist.family import Network, is_orthogonalised
from oni.recipes.experiments.fashion_mnist.reading import CONVERGED
from oni.recipes.experiments.fashion_mnist.step_times import StepTimes, time_steps
from oni.recipes.experiments.fashion_mnist.trials import (
    ONI,
    OTHERS,
    Longer,
    Trial,
    best_trials,
    describe_trial,
    estimate_trial_cost,
    find_longer,
    find_trials,
    largest_rise,
    make_curve,
    make_line,
    make_trial,
    measure_longer,
    measure_trial,
    name_line,
    rates_of,
    rates_that_train,
)

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

    def trials(network: Network, seed: int) -> list[Trial]:
        return [
            make_trial(network, depth, rate, seed, epochs=epochs, **sizes)
            for depth in depths
            for rate in rates or rates_for(depth)
        ]

    sizes: dict[str, Any] = {"data": data, "samples": samples, "validation": validation}

    def make_longer(network: Network, depth: int) -> Longer:
        return Longer(
            depth,
            network.method,
            network.options,
            rates or rates_for(depth),
            epochs,
            seed,
            **sizes,
            epochs=longer,
            network_options=network.network_options,
        )

    every_seed = range(seed, seed + seeds)
    runs: list[Any] = [trial for number in every_seed for network in OTHERS for trial in trials(network, number)]
    runs += trials(ONI, seed)
    runs += [make_longer(network, depth) for depth in depths for network in OTHERS]
    runs += [trial for number in every_seed[1:] for trial in trials(ONI, number)]
    return runs + [StepTimes(depth, seed, seconds) for depth in depths]


def rates_for(depth: int) -> tuple[float, ...]:
    """The learning rates that are tried: two decades."""
    return RATES if depth < DEEP else LOWER_RATES


def measure(setting: Setting, run: Trial | Longer | StepTimes) -> dict[str, Any]:
    """Train, or time."""
    if isinstance(run, StepTimes):
        if setting.dry_run:
            from oni.recipes.experiments.setting import NotTrained

            raise NotTrained("the times of steps are measured in every call")
        return time_steps(run, {name_line(network): network for network in NETWORKS})
    return measure_longer(setting, run) if isinstance(run, Longer) else measure_trial(setting, run)


# Reading the results.


def depths_of(results: Results) -> list[int]:
    return sorted({run.parameters.depth for run in results})


def usable_rates(results: Results, network: Network, depth: int) -> list[float]:
    """Those whose mean test error is within 2 points of the best of all networks of this depth."""
    best = min(mean_error(best_trials(results, other, depth), "test") for other in NETWORKS)
    trials = find_trials(results, network, depth)
    return [rate for rate in rates_of(trials) if mean_error(trials.where(learning_rate=rate), "test") <= best + CLOSE]


def step_seconds(results: Results, network: Network, depth: int) -> float:
    (timing,) = Results(run for run in results if isinstance(run.parameters, StepTimes)).where(depth=depth)
    return float(timing.measured["milliseconds"][name_line(network)][1]) / 1e3


def seconds_per_epoch(results: Results, network: Network, depth: int) -> float:
    trial = find_trials(results, network, depth)[0].parameters
    return step_seconds(results, network, depth) * trial.steps / trial.epochs


def errors_at_equal_time(results: Results, network: Network, depth: int) -> list[float]:
    """Test errors when ONI's trials are over: of a quicker network, after as many epochs as fit into that time."""
    best = best_trials(results, network, depth)
    if is_orthogonalised(network):
        return errors_at(best, "test")
    budget = best_trials(results, ONI, depth)[0].parameters.epochs * seconds_per_epoch(results, ONI, depth)
    runs = find_longer(results, network, depth)
    fitting = max(1, int(budget / seconds_per_epoch(results, network, depth) + 1e-9))
    return errors_at(runs, "test", min(fitting, runs[0].parameters.epochs) - 1)


def make_table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for depth in depths_of(results):
        for network in NETWORKS:
            trials, best = find_trials(results, network, depth), best_trials(results, network, depth)
            cells.append(
                [
                    f"{depth} layers, {name_line(network)}",
                    Quantity(best[0].parameters.learning_rate, digits=None),
                    mean_and_deviation(errors_at(best, "train")),
                    mean_and_deviation(errors_at(best, "test")),
                    f"{len(rates_that_train(trials))} of {len(rates_of(trials))}",
                    f"{len(usable_rates(results, network, depth))} of {len(rates_of(trials))}",
                    Quantity(1e3 * step_seconds(results, network, depth), digits=1),
                    mean_and_deviation(errors_at_equal_time(results, network, depth)),
                    Quantity(len(best), digits=0),
                ]
            )
    columns = ["network", "best rate", "train", "test", "rates that train", f"within {CLOSE:g} points", "ms per step"]
    note = (
        "Errors in percent at the end, means over seeds ± their standard deviation, at the learning rate that is best "
        "on held-out images. Rates that train: less than half of the training images wrong at the end, in every seed. "
        f"Within {CLOSE:g} points: rates whose test error is that near to the best network of the depth. Equal time: "
        "the test error when ONI's run is over, the quicker networks having trained for more epochs (first seed)."
    )
    return Comparison([*columns, "test at equal time", "seeds"], cells, note)


# Claims, all of our own.


def judge_oni(errors: Callable[[Network], list[float]]) -> Judgement:
    """Whether ONI's errors are below those of all others."""
    return judge_lower({"ONI": errors(ONI)}, {name_line(network): errors(network) for network in OTHERS})


def lower_test_error(depth: int) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        return judge_oni(lambda network: errors_at(best_trials(results, network, depth), "test"))

    return judge


def lower_at_equal_time(depth: int) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        return judge_oni(lambda network: errors_at_equal_time(results, network, depth))

    return judge


def more_usable_rates(depth: int) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        rates = {name_line(network): usable_rates(results, network, depth) for network in NETWORKS}
        text = "; ".join(
            f"{name} {', '.join(f'{rate:g}' for rate in usable) or 'none'}" for name, usable in rates.items()
        )
        return len(rates.pop("ONI")) > max(map(len, rates.values())), f"rates within {CLOSE:g} points: {text}"

    return judge


def steadier(depth: int) -> Callable[[Results], Judgement]:
    """Whether ONI's test error at the best rate neither jumps more nor differs more between seeds than others'."""

    def judge(results: Results) -> Judgement:
        runs = {name_line(network): best_trials(results, network, depth) for network in NETWORKS}
        errors = {name: errors_at(best, "test") for name, best in runs.items()}
        spread = {name: max(values) - min(values) for name, values in errors.items()}
        jump = {name: largest_rise(best) for name, best in runs.items()}
        text = "; ".join(f"{name} {spread[name]:.2f} and {jump[name]:.2f}" for name in runs)
        held = all(measure["ONI"] <= min(measure.values()) for measure in (spread, jump))
        return held, f"range over seeds, and largest rise between epochs, in points: {text}"

    return judge


def trains_at(depth: int) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        ends = {name_line(network): errors_at(best_trials(results, network, depth), "train") for network in NETWORKS}
        text = "; ".join(f"{name} {format_errors(values)}" for name, values in ends.items())
        return max(ends["ONI"]) < CONVERGED, f"training error at the end: {text}"

    return judge


NEEDS = {"epochs": 3, "seeds": 3, "steps": 600}
CLAIMS = [
    Claim("ONI trains 50 layers", trains_at(50), NEEDS),
    *(Claim(f"{depth} layers: ONI has the lowest test error", lower_test_error(depth), NEEDS) for depth in DEPTHS),
    *(Claim(f"{depth} layers: more learning rates are usable", more_usable_rates(depth), NEEDS) for depth in DEPTHS),
    *(Claim(f"{depth} layers: ONI is steadier", steadier(depth), NEEDS) for depth in DEPTHS),
    *(
        Claim(f"{depth} layers: at equal time ONI has the lowest test error", lower_at_equal_time(depth), NEEDS)
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
    for network in NETWORKS:
        trials = find_trials(results, network, depth)
        rates = rates_of(trials)
        series.append(
            make_line(network, rates, [errors_at(trials.where(learning_rate=rate), "test") for rate in rates])
        )
    title = f"{depth} layers: every rate"
    return Chart(title, "learning rate", "test error, %", series, x_log=True, y_log=True)


def chart_by_epoch(results: Results, depth: int) -> Chart:
    from oni.recipes.charts.chart import Chart

    series = [make_curve(network, best_trials(results, network, depth)) for network in NETWORKS]
    return Chart(f"{depth} layers: best rate, by epoch", "epoch", "test error, %", series, y_log=True)


def chart_by_time(results: Results, depth: int) -> Chart:
    from oni.recipes.charts.chart import Chart

    series = []
    for network in NETWORKS:
        runs = best_trials(results, network, depth)
        if not is_orthogonalised(network):
            runs = find_longer(results, network, depth)
        series.append(make_curve(network, runs, seconds_per_epoch(results, network, depth)))
    title = f"{depth} layers: best rate, by time"
    return Chart(title, "seconds", "test error, %", series, x_log=True, y_log=True)


def draw(results: Results) -> Figure:
    from oni.recipes.charts.matplotlib import draw_charts

    return draw_charts(charts(results), len(depths_of(results)))


def describe(run: Trial | Longer | StepTimes) -> str:
    return f"{run.depth}-layer MLP, time of a step" if isinstance(run, StepTimes) else describe_trial(run)


def estimate_cost(run: Trial | Longer | StepTimes) -> float:
    return 50.0 * run.depth if isinstance(run, StepTimes) else estimate_trial_cost(run)


SAMPLE = {
    "depths": DEPTHS,
    "seeds": 1,
    "data": "fashion-mnist-sample",
    "samples": 0,
    "validation": 5000,
    "epochs": 3,
    "longer": 30,
    "seconds": 20.0,
}
"""The sizes of presets, on the embedded sample."""
COMPARED = ", ".join(name_line(network) for network in NETWORKS)
EXPERIMENT = Experiment(
    id="practice",
    title="ONI beside what a practitioner would choose, in 10, 20 and 50 layers",
    shows="He's start, an orthogonal start times sqrt 2, batch normalisation and ONI, each at its "
    "own best learning rate: how low the error is by epoch and by time, how many learning rates can be used, how "
    "steady training is, and whether 50 layers train.",
    choices="MLPs of width 256 with ReLU on Fashion-MNIST as in Figure 5: SGD without momentum, batches of 256, the "
    "learning rate halved half-way. Learning rates 0.01 to 1 (50 layers: 0.003 to 0.3); the best is chosen on 5,000 "
    "held-out training images. "
    "Batch normalisation stands before each ReLU of a network with He's start. ONI as it is best here: Z starts "
    "orthogonal, rows not centred, 5 steps, a learnable scale that starts at sqrt 2. Preset full: all images, 3 "
    "epochs, 3 seeds; for the comparison by time the others train 30 epochs (one seed). Times of a step are measured "
    "apart from training, in turns.",
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
    parameters=(Trial, Longer, StepTimes),
    plan=plan_runs,
    measure=measure,
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
    describe=describe,
    cost=estimate_cost,
    findings="Up to 20 layers and by epochs, ONI stands between networks without normalisation and batch "
    "normalisation. It bears larger learning rates than the former: with 10 layers it is best at 1, where both "
    "diverge, and with 20 it still trains at 0.3. At each one's best rate its mean test error is a little below "
    "theirs, though seeds overlap. Batch normalisation is better than ONI there, at more rates. With 50 layers ONI "
    "gives nothing: it trains at one rate only, as well as networks without normalisation do, while batch "
    "normalisation is behind all of them after 3 epochs. By time ONI gives nothing at any depth: its step takes 7 to "
    "13 times as long, and in that time the others train for many epochs more and end lower. At the best rate it is "
    "not steadier, neither between seeds nor between epochs; what it steadies is training at rates that are too "
    "large. In 30 epochs the error of He's start jumps once or twice for an epoch; ONI was not trained that long.",
)
