"""What the Fashion-MNIST figures share: deep MLPs, their runs and presets, and how they are named, tabled and drawn."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.experiment import Comparison, Judgement, Quantity, Results, Run

if TYPE_CHECKING:
    from oni.recipes.charts.curves import Styles
    from oni.recipes.experiments.setting import Setting
    from oni.recipes.training.config import Config

__all__ = [
    "CONVERGED",
    "ISOMETRIC",
    "LONG",
    "NOTABLE",
    "PRESETS",
    "PRINTED",
    "SPECTRUM_STEP",
    "START",
    "Network",
    "Training",
    "TrainingSizes",
    "describe_choices",
    "describe_sweeps",
    "describe_training",
    "errors_at",
    "estimate_cost",
    "find_runs",
    "format_errors",
    "is_below",
    "make_measure",
    "make_plan",
    "make_table",
    "mean_error",
    "name_network",
    "spectra",
    "style_networks",
]

GRID = (0.05, 0.1, 0.5, 1.0)
"""The paper's learning rates."""
PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {"data": "fashion-mnist-sample", "samples": 512, "epochs": 2, "seeds": 1},
    "laptop": {"data": "fashion-mnist-sample", "samples": 0, "epochs": 10, "seeds": 1},
    "full": {
        "data": "fashion-mnist",
        "samples": 0,
        "epochs": 10,
        "seeds": 2,
        "grid": GRID,
        "select_epochs": 2,
        "sparing": True,
    },
    "paper": {"data": "fashion-mnist", "samples": 0, "epochs": 80, "seeds": 5, "grid": GRID, "select_epochs": 80},
}
LONG = {"steps": 2000}
"""What a claim about the end of training needs: five minutes of the sample do not show where a network ends."""
IMAGES = {"fashion-mnist": 60_000, "fashion-mnist-sample": 10_000}
BATCH = 256
WIDTH = 256
SPECTRUM_STEP = 200
"""The step at which the paper looks at weights."""
NOTABLE = 1.0
"""Percentage points that are called a notable difference here: a few times the spread over seeds."""
CONVERGED = 50.0
"""Percent of training errors below which a run has converged."""

PRINTED = {"start": "given", "center": True}
"""ONI as the paper has it: the entries of Z independent and random, rows centred."""
ISOMETRIC = {"start": "orthogonal", "center": False}
"""What keeps the signal best: Z starts orthogonal, rows are not centred."""


@dataclass(frozen=True)
class Network:
    """A network of a figure, before seeds and sizes."""

    depth: int
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    rate: float | None = None
    """The learning rate that was chosen on the full data: presets without a grid train with it."""
    network_options: Mapping[str, Any] = field(default_factory=dict)
    seeds: int | None = None
    """At most so many in a sparing preset."""
    select_options: Mapping[str, Any] | None = None
    """The method's options with which a sparing preset chooses the learning rate, if not its own."""


@dataclass(frozen=True)
class Training:
    """One run: a network trained from one seed, after its learning rate was chosen."""

    depth: int
    method: str
    options: Mapping[str, Any]
    select_options: Mapping[str, Any]
    seed: int
    grid: tuple[float, ...]
    """The learning rates to choose from; one alone is taken as it is."""
    select_epochs: int
    """How long the runs are by which it is chosen."""
    select_seed: int
    data: str
    samples: int
    epochs: int
    network_options: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What the user changed of its configuration."""

    @property
    def steps(self) -> int:
        """How many updates it trains."""
        return self.epochs * ((self.samples or IMAGES[self.data]) // int(self.overrides.get("batch_size", BATCH)))

    def override(self, overrides: Mapping[str, Any]) -> Training:
        """The run with the overrides that are not sizes of the preset."""
        changes: dict[str, Any] = {}
        rest = {key: value for key, value in overrides.items() if key not in ("data", "samples", "epochs")}
        if "learning_rate" in rest:
            changes["grid"] = (float(rest.pop("learning_rate")),)
        if "network_options.depth" in rest:
            changes["depth"] = rest.pop("network_options.depth")
        own = {key.partition(".")[2]: value for key, value in rest.items() if key.startswith("method_options.")}
        for name in ("options", "select_options"):
            options = getattr(self, name)
            changes[name] = {**options, **{option: own[option] for option in options.keys() & own.keys()}}
        return replace(self, **changes, overrides=rest)


@dataclass(frozen=True)
class TrainingSizes:
    """What a preset says of the runs."""

    data: str
    samples: int
    epochs: int
    seeds: int
    grid: tuple[float, ...] = ()
    """Empty: each network has its own learning rate."""
    select_epochs: int = 0
    sparing: bool = False


# From networks to runs.


def make_plan(networks: Sequence[Network]) -> Callable[..., list[Training]]:
    """From a preset's sizes to the runs: every network with every seed."""

    def plan(seed: int, **sizes: Any) -> list[Training]:
        preset = TrainingSizes(**sizes)
        runs = []
        for network in networks:
            count = min(preset.seeds, network.seeds or preset.seeds) if preset.sparing else preset.seeds
            runs += [make_run(network, preset, first_seed=seed, seed=seed + index) for index in range(count)]
        return runs

    return plan


def make_run(network: Network, preset: TrainingSizes, *, first_seed: int, seed: int) -> Training:
    if not preset.grid and network.rate is None:
        raise ValueError(f"{name_network(network)} of {network.depth} layers has no learning rate: give its rate")
    select_options = network.select_options if preset.sparing and network.select_options else network.options
    return Training(
        depth=network.depth,
        method=network.method,
        options=network.options,
        select_options=select_options,
        seed=seed,
        grid=preset.grid or (network.rate or 0.0,),
        # Networks without orthogonalisation take a tenth of the time, so their rates are chosen on whole runs.
        select_epochs=preset.select_epochs if is_orthogonalised(network) else preset.epochs,
        select_seed=first_seed,
        data=preset.data,
        samples=preset.samples,
        epochs=preset.epochs,
        network_options=network.network_options,
    )


def is_orthogonalised(network: Network | Training) -> bool:
    return network.method.startswith(("oni", "olm"))


def estimate_cost(run: Training) -> float:
    """How long a run takes beside others: steps times layers, ten times that with orthogonalisation."""
    searched = len(run.grid) * run.select_epochs / run.epochs if len(run.grid) > 1 else 0
    return run.steps * run.depth * (10 if is_orthogonalised(run) else 1) * (1 + searched)


def make_config(run: Training, **changes: Any) -> Config:
    """The configuration of a run; its learning rate is still to be chosen."""
    from oni.recipes.experiments.train_network import override_config
    from oni.recipes.training.config import Config

    settings = {
        "network": "mlp",
        "network_options": {"depth": run.depth, "width": WIDTH, "bias": False, **run.network_options},
        "method": run.method,
        "method_options": run.options,
        "seed": run.seed,
        "data": run.data,
        "samples": run.samples,
        "epochs": run.epochs,
        # As far along as in the code of the authors' earlier paper.
        "drops": (run.epochs // 2,) if run.epochs > 1 else (),
        "drop_factor": 0.5,
        **changes,
    }
    return override_config(Config(**settings), run.overrides)


def make_measure(keep: Sequence[str] = ()) -> Callable[[Setting, Training], dict[str, Any]]:
    """The function that trains a run; of what was watched only ``keep`` is recorded."""

    def measure(setting: Setting, run: Training) -> dict[str, Any]:
        from oni.recipes.experiments.train_network import WATCHED, choose_learning_rate, train_network

        select = make_config(run, method_options=run.select_options, seed=run.select_seed)
        rate, errors = choose_learning_rate(select, run.grid, setting, epochs=run.select_epochs)
        measured = train_network(replace(make_config(run), learning_rate=rate, watch=WATCHED), setting)
        measured["validation_error"] = {f"{rate:g}": error for rate, error in errors.items()}
        return {name: value for name, value in measured.items() if name not in WATCHED or name in keep}

    return measure


# How networks are called, found and drawn.

NAMES = {
    "plain": "plain, torch's start",
    "lecun": "plain",
    "he": "He's start",
    "orth-init": "OrthInit",
    "oni": "ONI",
    "oni-ns": "ONI-NS",
    "olm": "OLM",
    "olm-ns": "OLM-NS",
}
STARTS = {"given": "Z random", "orthogonal": "Z orthogonal"}
COLOURS = {
    "plain, torch's start": "#999999",
    "plain": "#666666",
    "He's start": "#8B5A2B",
    "OrthInit": "#E69F00",
    "OrthInit x sqrt 2": "#D55E00",
    "batch norm": "#CC79A7",
    "ONI": "#0072B2",
    "ONI-NS": "#56B4E9",
    "OLM": "#CC79A7",
    "OLM-NS": "#D55E00",
    "ONI, Z orthogonal, not centred": "#009E73",
    "ONI-NS, Z orthogonal, not centred": "#8ED1B8",
    "ONI, Z random, not centred": "#7A5195",
    "ONI, Z orthogonal, centred": "#B07AA1",
}
"""Of the lines, by name; variants of a method that are not here are drawn in shades of one colour."""


def name_network(network: Network | Training) -> str:
    """The name for legends and tables, without the depth.

    >>> name_network(Network(20, "oni", {**ISOMETRIC, "steps": 3}))
    'ONI, Z orthogonal, not centred, T = 3'
    >>> name_network(Network(20, "he", network_options={"norm": "batch"}))
    'batch norm'
    """
    options = network.options
    if network.network_options.get("norm") == "batch":
        return "batch norm"
    words = [NAMES[network.method]]
    if options.get("gain") == "relu":
        words[0] += " x sqrt 2"
    if "start" in options and {key: options[key] for key in PRINTED} != PRINTED:
        words.append(f"{STARTS[options['start']]}, {'centred' if options['center'] else 'not centred'}")
    if "steps" in options:
        words.append(f"T = {options['steps']}")
    if "groups" in options:
        words.append(f"G = {WIDTH // options['groups']}")
    if "bound" in options:
        words.append(f"{options['bound']} bound")
    return ", ".join(words)


def describe_training(run: Training) -> str:
    return f"{run.depth}-layer MLP, {name_network(run)}, seed {run.seed}"


def describe_sweeps(networks: Sequence[Network]) -> dict[str, str]:
    """What a figure varies, so that nobody overrides it."""
    names = list(dict.fromkeys(name_network(network) for network in networks))
    sweeps = {"method": f"compares {', '.join(names)}"}
    keys = {
        **{f"method_options.{option}": option for network in networks for option in network.options},
        **{f"network_options.{option}": option for network in networks for option in network.network_options},
        "network_options.depth": "depth",
    }
    for key, option in keys.items():
        values = [
            {**network.options, **network.network_options, "depth": network.depth}.get(option) for network in networks
        ]
        values = [value for index, value in enumerate(values) if value not in values[:index]]
        if len(values) > 1:
            shown = ", ".join(str(value) for value in values if value is not None)
            sweeps[key] = f"compares networks with {option} = {shown}"
    return sweeps


def find_runs(results: Results, network: Network) -> Results:
    """The runs of a network. Its depth matters only where there are several; overridden options do not matter."""
    if len({run.parameters.depth for run in results}) > 1:
        results = results.where(depth=network.depth)

    def matches(run: Run) -> bool:
        overridden = {key.partition(".")[2] for key in run.parameters.overrides}

        def fixed(options: Mapping[str, Any]) -> dict[str, Any]:
            return {key: value for key, value in options.items() if key not in overridden}

        return (
            run.parameters.method == network.method
            and fixed(run.parameters.options) == fixed(network.options)
            and fixed(run.parameters.network_options) == fixed(network.network_options)
        )

    return Results(filter(matches, results))


def style_networks(results: Results, networks: Sequence[Network], *, shades: bool = False) -> Styles:
    """Colour and runs of each network that has runs, by its name; ``shades`` of one colour for a sweep."""
    from oni.recipes.charts.curves import ramp

    colours = ramp(COLOURS["ONI"], len(networks)) if shades else [COLOURS[name_network(each)] for each in networks]
    styles = {
        name_network(network): (colour, find_runs(results, network))
        for network, colour in zip(networks, colours, strict=True)
    }
    return {name: (colour, runs) for name, (colour, runs) in styles.items() if runs}


def make_table(networks: Sequence[Network]) -> Callable[[Results], Comparison]:
    """A function that makes a table with a line for each network."""

    def table(results: Results) -> Comparison:
        cells: list[list[str | Quantity]] = []
        for network in networks:
            runs = find_runs(results, network)
            depth = runs[0].parameters.depth if runs else network.depth
            name = f"{depth} layers, {name_network(network)}"
            if not runs:
                cells.append([name, *4 * ["not yet measured"], "0"])
                continue
            errors = [errors_at(runs, "train", 0), errors_at(runs), errors_at(runs, "test")]
            rate = Quantity(runs[0].measured["learning_rate"], digits=None)
            cells.append([name, rate, *map(mean_and_deviation, errors), Quantity(len(runs), digits=0)])
        return Comparison(
            ["network", "learning rate", "train, epoch 1", "train, end", "test, end", "seeds"],
            cells,
            "Errors in percent, means over seeds ± their standard deviation. The paper draws this and prints no "
            "numbers.",
        )

    return table


def mean_and_deviation(values: Sequence[float]) -> Quantity:
    return Quantity(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


# What claims are judged by.


def errors_at(runs: Results, part: str = "train", epoch: int = -1) -> list[float]:
    """The error in percent after an epoch, of every seed; a run that diverged has 100 from there on."""
    errors = []
    for run in runs:
        known = [100.0 if error is None else 100 * error for error in run.measured[f"{part}_error"]]
        errors.append([*known, *[100.0] * (run.parameters.epochs - len(known))][epoch])
    return errors


def mean_error(runs: Results, part: str = "train", epoch: int = -1) -> float:
    return statistics.fmean(errors_at(runs, part, epoch))


def is_below(lower: Sequence[float], higher: Sequence[float]) -> bool:
    """Whether every seed of the one is below every seed of the other."""
    return max(lower) < min(higher)


def format_errors(values: Sequence[float]) -> str:
    """
    >>> format_errors([1.0, 2.5])
    '1.00 % and 2.50 %'
    """
    return " and ".join(f"{value:.2f} %" for value in values)


def spectra(runs: Results, layer: int) -> list[tuple[list[float], list[float]]]:
    """At the start and after 200 steps (or at the end, if there are fewer), of every seed."""
    pairs = []
    for run in runs:
        by_step = run.measured["spectrum"]
        later = min(SPECTRUM_STEP, max(map(int, by_step)))
        pairs.append((by_step["0"][str(layer)], by_step[str(later)][str(layer)]))
    return pairs


def judge_practice(networks: Sequence[Network], ours: Network) -> Callable[[Results], Judgement]:
    """Whether our network ends with a lower test error than each of the practitioners' networks."""

    def judge(results: Results) -> Judgement:
        missing = [name_network(network) for network in networks if not find_runs(results, network)]
        if missing:
            return None, f"not yet measured: {', '.join(missing)}"
        own = errors_at(find_runs(results, ours), "test")
        others = {name_network(network): errors_at(find_runs(results, network), "test") for network in networks}
        text = "; ".join(f"{name} {format_errors(values)}" for name, values in others.items())
        return all(is_below(own, values) for values in others.values()), (
            f"test error at the end: {format_errors(own)}; {text}"
        )

    return judge


# Texts.


def describe_choices(networks: Sequence[Network], text: str) -> str:
    """What the paper leaves open, with what is said of one figure at the end."""
    depths = " or ".join(map(str, sorted({network.depth for network in networks})))
    return SHARED.format(depths=depths) + text


SHARED = (
    "{depths} hidden layers of width 256 with ReLU and an ordinary output layer, as in the code of the authors' "
    "earlier paper, which also has: no biases in hidden layers, SGD without momentum or weight decay, pixels divided "
    "by 255 less their mean, the learning rate halved half-way, incomplete batches left out. The learning rate is the "
    "best of {{.05, .1, .5, 1}} on 5,000 held-out samples with the first seed, in runs of 2 epochs (in whole runs for "
    "networks without orthogonalisation, which are quick; preset paper: whole runs for all); then all samples are "
    "trained on. Presets: full is all 60,000 images, 10 epochs, 2 seeds; paper 80 epochs, 5 seeds; smoke and laptop "
    "use the embedded sample and the learning rates chosen on the full data. ONI with 5 steps, centred, compact bound, "
    "a learnable scale per row that starts at sqrt 2 (NS: 1). "
)
START = (
    "The paper starts from LeCun's random weights. For ONI that leaves the spectrum of Z wide, so that 5 steps do not "
    "make W orthogonal, and centring takes away a third of the signal's mean square in each layer. So ONI is also run "
    "with Z started orthogonal and rows not centred."
)
