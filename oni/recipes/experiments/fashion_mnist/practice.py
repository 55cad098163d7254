"""What ONI gives beside what a practitioner would choose, at each one's best learning rate: a study of our own.

Every depth, network, learning rate and seed is one run that keeps 5,000 images to choose the rate by. Networks without
orthogonalisation are then trained once more for as long as ONI took, since their steps are quicker.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Judgement, Quantity, Results
from oni.recipes.experiments.fashion_mnist.family import (
    BATCH,
    COLOURS,
    CONVERGED,
    IMAGES,
    ISOMETRIC,
    NOTABLE,
    Network,
    errors_at,
    find_runs,
    format_errors,
    is_below,
    is_orthogonalised,
    make_config,
    mean_and_deviation,
    name_network,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oni.recipes.charts.chart import Chart
    from oni.recipes.experiments.setting import Setting

__all__ = ["EXPERIMENT", "Longer", "StepTimes", "Trial"]

HE = Network(0, "he")
ORTHOGONAL = Network(0, "orth-init", {"gain": "relu"})
BATCH_NORM = Network(0, "he", network_options={"norm": "batch"})
ONI = Network(0, "oni", ISOMETRIC)
FEW_STEPS = Network(0, "oni", {**ISOMETRIC, "steps": 2, "bound": "tight"}, seeds=1)
OTHERS = (HE, ORTHOGONAL, BATCH_NORM)
NETWORKS = (*OTHERS, ONI, FEW_STEPS)
LABELS = {"ONI, Z orthogonal, not centred": "ONI", "ONI, Z orthogonal, not centred, T = 2, tight bound": "ONI, 2 steps"}
LINES = {**COLOURS, "ONI": COLOURS["ONI, Z orthogonal, not centred"], "ONI, 2 steps": "#56B4E9"}
RATES = (0.01, 0.03, 0.1, 0.3, 1.0)
CLOSE = 2.0
"""Percentage points of test error: a rate within this of the best of all networks is one that can be used."""


@dataclass(frozen=True)
class Trial:
    """A network trained with one learning rate from one seed."""

    depth: int
    method: str
    options: Mapping[str, Any]
    learning_rate: float
    seed: int
    data: str
    samples: int
    validation: int
    epochs: int
    network_options: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        images = self.samples or IMAGES[self.data] - self.validation
        return self.epochs * (images // int(self.overrides.get("batch_size", BATCH)))

    def override(self, overrides: Mapping[str, Any]) -> Trial:
        rest = {key: value for key, value in overrides.items() if key not in ("data", "samples", "epochs")}
        return replace(self, overrides=rest)


@dataclass(frozen=True)
class Longer(Trial):
    """A network trained for as long as ONI takes, with the rate that was best in the trials of its seed."""

    grid: tuple[float, ...] = ()
    select_epochs: int = 1


@dataclass(frozen=True)
class StepTimes:
    """The time of a training step of every network of one depth, measured in turns."""

    depth: int
    seed: int
    seconds: float
    """The time budget."""
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def override(self, overrides: Mapping[str, Any]) -> StepTimes:
        return self


def plan_runs(
    seed: int,
    *,
    depths: Sequence[int],
    rates: Sequence[float],
    seeds: int,
    data: str,
    samples: int,
    validation: int,
    epochs: int,
    longer: int,
    seconds: float,
) -> list[Any]:
    """The quick networks first, then ONI seed by seed, so that what is there at any time can be looked at."""

    def trials(network: Network, seed: int) -> list[Trial]:
        return [make_trial(network, depth, rate, seed) for depth in depths for rate in rates]

    def make_trial(network: Network, depth: int, rate: float, seed: int) -> Trial:
        return Trial(
            depth,
            network.method,
            network.options,
            rate,
            seed,
            data,
            samples,
            validation,
            epochs,
            network.network_options,
        )

    def make_longer(network: Network, depth: int) -> Longer:
        fields = {**vars(make_trial(network, depth, rates[0], seed)), "epochs": longer}
        return Longer(**fields, grid=tuple(rates), select_epochs=epochs)

    every_seed = range(seed, seed + seeds)
    runs: list[Any] = [trial for number in every_seed for network in OTHERS for trial in trials(network, number)]
    runs += trials(ONI, seed)
    runs += [make_longer(network, depth) for depth in depths for network in OTHERS]
    runs += [trial for number in every_seed[1:] for trial in trials(ONI, number)]
    runs += trials(FEW_STEPS, seed)
    return runs + [StepTimes(depth, seed, seconds) for depth in depths]


def measure(setting: Setting, run: Trial | StepTimes) -> dict[str, Any]:
    """Train, or time."""
    if isinstance(run, StepTimes):
        return time_steps(run)
    from oni.recipes.experiments.train_network import choose_learning_rate, train_network

    if not isinstance(run, Longer):
        return train_network(make_trial_config(run), setting)
    trial = replace(make_trial_config(run), epochs=run.select_epochs, drops=halfway(run.select_epochs))
    rate, _ = choose_learning_rate(trial, run.grid, setting)
    return train_network(replace(make_trial_config(run), learning_rate=rate), setting)


def make_trial_config(run: Trial) -> Any:
    return make_config(run, learning_rate=run.learning_rate, validation=run.validation)


def halfway(epochs: int) -> tuple[int, ...]:
    return (epochs // 2,) if epochs > 1 else ()


def time_steps(run: StepTimes) -> dict[str, Any]:
    """Forward, backward and update of every network of this depth on one batch, in turns; in milliseconds."""
    import torch
    import torch.nn.functional as F

    from oni.recipes.data.subjects import NETWORKS as BUILDERS
    from oni.recipes.data.subjects import output_layer
    from oni.recipes.methods import apply
    from oni.timing import Times, interleaved, quartiles

    torch.manual_seed(run.seed)
    images, labels = torch.randn(BATCH, 1, 28, 28), torch.randint(10, (BATCH,))

    def make_step(network: Network) -> Callable[[], object]:
        model = BUILDERS["mlp"](depth=run.depth, bias=False, **network.network_options)
        apply(network.method, model, skip=output_layer(model), **network.options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()

        return step

    steps = {name_line(network): make_step(network) for network in NETWORKS}
    for step in steps.values():
        step()  # the first is slower
    times: dict[str, Times] = {name: {} for name in steps}
    for _ in interleaved(steps, times, seconds=run.seconds, least_rounds=5):
        pass
    return {"milliseconds": {name: [1e3 * value for value in quartiles([*all.values()])] for name, all in times.items()}}


# Reading the results.


def name_line(network: Network) -> str:
    """The short name of a network, as ONI here is always the isometric one."""
    name = name_network(network)
    return LABELS.get(name, name)


def trials_of(results: Results, network: Network, depth: int) -> Results:
    trials = Results(run for run in results if type(run.parameters) is Trial)
    return find_runs(trials.where(depth=depth), network)


def longer_of(results: Results, network: Network, depth: int) -> Results:
    runs = Results(run for run in results if type(run.parameters) is Longer)
    return find_runs(runs.where(depth=depth), network)


def depths_of(results: Results) -> list[int]:
    return sorted({run.parameters.depth for run in results})


def rates_of(runs: Results) -> list[float]:
    return sorted({run.parameters.learning_rate for run in runs})


def best_trials(results: Results, network: Network, depth: int) -> Results:
    """The trials at the learning rate with the least mean error on the images that were held out."""
    trials = trials_of(results, network, depth)
    return min(
        (trials.where(learning_rate=rate) for rate in rates_of(trials)),
        key=lambda runs: statistics.fmean(errors_at(runs, "validation")),
    )


def rates_that_train(trials: Results) -> list[float]:
    """Those with which every seed ends with less than half of the training images wrong."""
    return [
        rate for rate in rates_of(trials) if max(errors_at(trials.where(learning_rate=rate), "train")) < CONVERGED
    ]


def usable_rates(results: Results, network: Network, depth: int) -> list[float]:
    """Those whose mean test error is within 2 points of the best of all networks of this depth."""
    best = min(statistics.fmean(errors_at(best_trials(results, each, depth), "test")) for each in NETWORKS)
    trials = trials_of(results, network, depth)
    return [
        rate
        for rate in rates_of(trials)
        if statistics.fmean(errors_at(trials.where(learning_rate=rate), "test")) <= best + CLOSE
    ]


def step_seconds(results: Results, network: Network, depth: int) -> float:
    (timing,) = Results(run for run in results if isinstance(run.parameters, StepTimes)).where(depth=depth)
    return float(timing.measured["milliseconds"][name_line(network)][1]) / 1e3


def seconds_per_epoch(results: Results, network: Network, depth: int) -> float:
    trial = trials_of(results, network, depth)[0].parameters
    return step_seconds(results, network, depth) * trial.steps / trial.epochs


def errors_at_equal_time(results: Results, network: Network, depth: int) -> list[float]:
    """Test errors when ONI's trials are over: of a quicker network, after as many epochs as fit into that time."""
    best = best_trials(results, network, depth)
    if is_orthogonalised(network):
        return errors_at(best, "test")
    budget = best_trials(results, ONI, depth)[0].parameters.epochs * seconds_per_epoch(results, ONI, depth)
    runs = longer_of(results, network, depth)
    fitting = int(budget / seconds_per_epoch(results, network, depth) + 1e-9)
    return errors_at(runs, "test", min(fitting, runs[0].parameters.epochs) - 1)


def make_table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for depth in depths_of(results):
        for network in NETWORKS:
            trials, best = trials_of(results, network, depth), best_trials(results, network, depth)
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


def judge_lower(results: Results, depth: int, errors: Callable[[Network], list[float]]) -> Judgement:
    """Held if every seed of ONI is below every seed of each other; undecided if only its mean is."""
    own, others = errors(ONI), {name_line(network): errors(network) for network in OTHERS}
    text = f"ONI {format_errors(own)}; " + "; ".join(f"{name} {format_errors(all)}" for name, all in others.items())
    if all(is_below(own, values) for values in others.values()):
        return True, text
    if statistics.fmean(own) < min(map(statistics.fmean, others.values())):
        return None, f"undecided: ONI's mean is the lowest, but the seeds overlap; {text}"
    return False, text


def lower_test_error(depth: int) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        return judge_lower(results, depth, lambda network: errors_at(best_trials(results, network, depth), "test"))

    return judge


def lower_at_equal_time(depth: int) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        return judge_lower(results, depth, lambda network: errors_at_equal_time(results, network, depth))

    return judge


def more_usable_rates(depth: int) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        rates = {name_line(network): usable_rates(results, network, depth) for network in (*OTHERS, ONI)}
        text = "; ".join(f"{name} {', '.join(f'{rate:g}' for rate in all) or 'none'}" for name, all in rates.items())
        return len(rates.pop("ONI")) > max(map(len, rates.values())), f"rates within {CLOSE:g} points: {text}"

    return judge


def largest_jump(runs: Results) -> float:
    """By how much the test error rises from one epoch to the next, in the worst seed."""
    jumps = [0.0]
    for epoch in range(1, runs[0].parameters.epochs):
        before, after = errors_at(runs, "test", epoch - 1), errors_at(runs, "test", epoch)
        jumps += [later - earlier for earlier, later in zip(before, after, strict=True)]
    return max(jumps)


def steadier(depth: int) -> Callable[[Results], Judgement]:
    """Whether ONI's test error at the best rate neither jumps more nor differs more between seeds than others'."""

    def judge(results: Results) -> Judgement:
        runs = {name_line(network): best_trials(results, network, depth) for network in (*OTHERS, ONI)}
        spread = {name: max(values) - min(values) for name, all in runs.items() for values in [errors_at(all, "test")]}
        jump = {name: largest_jump(all) for name, all in runs.items()}
        text = "; ".join(f"{name} {spread[name]:.2f} and {jump[name]:.2f}" for name in runs)
        held = all(measure["ONI"] <= min(measure.values()) for measure in (spread, jump))
        return held, f"range over seeds, and largest rise between epochs, in points: {text}"

    return judge


def trains_at(depth: int) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        ends = {
            name_line(network): errors_at(best_trials(results, network, depth), "train") for network in (*OTHERS, ONI)
        }
        text = "; ".join(f"{name} {format_errors(values)}" for name, values in ends.items())
        return max(ends["ONI"]) < CONVERGED, f"training error at the end: {text}"

    return judge


def few_steps_do(results: Results) -> Judgement:
    apart, texts = [], []
    for depth in depths_of(results):
        few, five = (
            statistics.fmean(errors_at(best_trials(results, network, depth), "test")) for network in (FEW_STEPS, ONI)
        )
        apart.append(few - five)
        texts.append(f"{depth} layers {few:.2f} % and {five:.2f} %")
    return max(apart) < NOTABLE, f"test error with 2 and with 5 steps: {'; '.join(texts)}"


NEEDS = {"epochs": 3, "seeds": 3, "steps": 600}
DEPTHS = (10, 20, 50)
CLAIMS = [
    Claim("ONI trains 50 layers", trains_at(50), NEEDS),
    *(Claim(f"{depth} layers: ONI has the lowest test error", lower_test_error(depth), NEEDS) for depth in DEPTHS),
    *(Claim(f"{depth} layers: more learning rates are usable", more_usable_rates(depth), NEEDS) for depth in DEPTHS),
    *(Claim(f"{depth} layers: ONI is steadier", steadier(depth), NEEDS) for depth in DEPTHS),
    *(
        Claim(f"{depth} layers: at equal time ONI has the lowest test error", lower_at_equal_time(depth), NEEDS)
        for depth in DEPTHS
    ),
    Claim("Two steps with the tight bound do as well as five with the compact one", few_steps_do, NEEDS),
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    return [
        make(results, depth)
        for make in (chart_over_rates, chart_by_epoch, chart_by_time)
        for depth in depths_of(results)
    ]


def chart_over_rates(results: Results, depth: int) -> Chart:
    from oni.recipes.charts.chart import Chart, Series

    series = []
    for network in NETWORKS:
        trials = trials_of(results, network, depth)
        rates = rates_of(trials)
        columns = [errors_at(trials.where(learning_rate=rate), "test") for rate in rates]
        series.append(make_line(Series, network, rates, columns))
    return Chart(
        f"{depth} layers: test error over learning rate", "learning rate", "test error, %", series, x_log=True, y_log=True
    )


def chart_by_epoch(results: Results, depth: int) -> Chart:
    from oni.recipes.charts.chart import Chart, Series

    series = []
    for network in NETWORKS:
        best = best_trials(results, network, depth)
        epochs = range(1, best[0].parameters.epochs + 1)
        columns = [errors_at(best, "test", epoch - 1) for epoch in epochs]
        series.append(make_line(Series, network, list(epochs), columns))
    return Chart(f"{depth} layers: by epoch, at the best rate", "epoch", "test error, %", series, y_log=True)


def chart_by_time(results: Results, depth: int) -> Chart:
    from oni.recipes.charts.chart import Chart, Series

    series = []
    for network in NETWORKS:
        runs = best_trials(results, network, depth)
        if not is_orthogonalised(network):
            runs = longer_of(results, network, depth)
        seconds = seconds_per_epoch(results, network, depth)
        epochs = range(1, runs[0].parameters.epochs + 1)
        columns = [errors_at(runs, "test", epoch - 1) for epoch in epochs]
        series.append(make_line(Series, network, [seconds * epoch for epoch in epochs], columns))
    return Chart(
        f"{depth} layers: by time, at the best rate", "seconds", "test error, %", series, x_log=True, y_log=True
    )


def make_line(series: Any, network: Network, x: Sequence[float], columns: Sequence[Sequence[float]]) -> Any:
    """A line through the means of columns of seeds, with a band from the least to the most."""
    name = name_line(network)
    band = {}
    if min(map(len, columns)) > 1:
        band = {"low": [min(column) for column in columns], "high": [max(column) for column in columns]}
    return series(name, x, [statistics.fmean(column) for column in columns], LINES[name], **band)


def draw(results: Results) -> Figure:
    from oni.recipes.charts.curves import draw_charts

    return draw_charts(charts(results), len(depths_of(results)))


def describe(run: Trial | StepTimes) -> str:
    if isinstance(run, StepTimes):
        return f"{run.depth}-layer MLP, time of a step"
    name = name_line(Network(run.depth, run.method, run.options, network_options=run.network_options))
    rate = "best learning rate" if isinstance(run, Longer) else f"learning rate {run.learning_rate:g}"
    return f"{run.depth}-layer MLP, {name}, {rate}, {run.epochs} epochs, seed {run.seed}"


def estimate_cost(run: Trial | StepTimes) -> float:
    if isinstance(run, StepTimes):
        return 50 * run.depth
    return run.steps * run.depth * (10 if is_orthogonalised(run) else 1)


COMPARED = ", ".join(name_line(network) for network in NETWORKS)
EXPERIMENT = Experiment(
    id="practice",
    title="ONI beside what a practitioner would choose, in 10, 20 and 50 layers",
    shows="Not of the paper. He's start, an orthogonal start times sqrt 2, batch normalisation and ONI, each at its own "
    "best learning rate: how low the error is by epoch and by time, how many learning rates can be used, how steady "
    "training is, and whether 50 layers train.",
    choices="MLPs of width 256 with ReLU on Fashion-MNIST as in Figure 5: SGD without momentum, batches of 256, the "
    "learning rate halved half-way. Learning rates 0.01 to 1; the best is chosen on 5,000 held-out training images. "
    "Batch normalisation stands before each ReLU of a network with He's start. ONI as it is best here: Z starts "
    "orthogonal, rows not centred, 5 steps, a learnable scale that starts at sqrt 2; and with 2 steps under the tight "
    "bound (one seed). Preset full: all images, 3 epochs, 3 seeds; for the comparison by time the others train 30 "
    "epochs (one seed). Times of a step are measured apart from training, in turns.",
    presets={
        "smoke": {
            "depths": (2,),
            "rates": (0.1, 0.3),
            "seeds": 1,
            "data": "fashion-mnist-sample",
            "samples": 512,
            "validation": 256,
            "epochs": 1,
            "longer": 2,
            "seconds": 0.1,
        },
        "laptop": {
            "depths": (20,),
            "rates": RATES,
            "seeds": 1,
            "data": "fashion-mnist-sample",
            "samples": 0,
            "validation": 1000,
            "epochs": 3,
            "longer": 30,
            "seconds": 10.0,
        },
        "full": {
            "depths": DEPTHS,
            "rates": RATES,
            "seeds": 3,
            "data": "fashion-mnist",
            "samples": 0,
            "validation": 5000,
            "epochs": 3,
            "longer": 30,
            "seconds": 20.0,
        },
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
        "learning_rate": f"trains each network with learning rates {', '.join(f'{rate:g}' for rate in RATES)}",
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
)
