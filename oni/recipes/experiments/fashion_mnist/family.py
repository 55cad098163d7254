"""What the Fashion-MNIST figures share: deep MLPs, their runs and presets, and how they are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from oni.recipes.experiments.setting import Setting
    from oni.recipes.training.config import Config

__all__ = [
    "BATCH",
    "IMAGES",
    "ISOMETRIC",
    "LONG",
    "PRESETS",
    "PRINTED",
    "SPECTRUM_STEP",
    "START",
    "TEST_IMAGES",
    "WIDTH",
    "Network",
    "Training",
    "TrainingSizes",
    "describe_choices",
    "describe_sweeps",
    "describe_training",
    "estimate_cost",
    "halfway",
    "is_orthogonalised",
    "make_config",
    "make_measure",
    "make_plan",
    "name_network",
]

GRID = (0.05, 0.1, 0.5, 1.0)
"""The paper's learning rates."""
PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {"data": "fashion-mnist-sample", "samples": 256, "epochs": 2, "seeds": 1},
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
"""What a claim about the end of training needs: ten epochs of the embedded sample are a sixth of that."""
IMAGES = {"fashion-mnist": 60_000, "fashion-mnist-sample": 10_000}
TEST_IMAGES = {"fashion-mnist": 10_000, "fashion-mnist-sample": 2000}
BATCH = 256
WIDTH = 256
SPECTRUM_STEP = 200
"""The step at which the paper looks at weights."""

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


class Trainable(Protocol):
    """What the configuration of a run is made from."""

    @property
    def depth(self) -> int: ...
    @property
    def method(self) -> str: ...
    @property
    def options(self) -> Mapping[str, Any]: ...
    @property
    def network_options(self) -> Mapping[str, Any]: ...
    @property
    def overrides(self) -> Mapping[str, Any]: ...
    @property
    def seed(self) -> int: ...
    @property
    def data(self) -> str: ...
    @property
    def samples(self) -> int: ...
    @property
    def epochs(self) -> int: ...


def is_orthogonalised(network: Network | Trainable) -> bool:
    """Whether its method orthogonalises weights in every step, which takes ten times as long."""
    return network.method.startswith(("oni", "olm"))


def estimate_cost(run: Training) -> float:
    """How long a run takes beside others: steps times layers, ten times that with orthogonalisation."""
    searched = len(run.grid) * run.select_epochs / run.epochs if len(run.grid) > 1 else 0
    return run.steps * run.depth * (10 if is_orthogonalised(run) else 1) * (1 + searched)


def make_config(run: Trainable, **changes: Any) -> Config:
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
        "drops": halfway(run.epochs),
        "drop_factor": 0.5,
        **changes,
    }
    return override_config(Config(**settings), run.overrides)


def halfway(epochs: int) -> tuple[int, ...]:
    """After which epoch the learning rate is halved."""
    return (epochs // 2,) if epochs > 1 else ()


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


# How networks are called.

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


def name_network(network: Network | Trainable) -> str:
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
    """A run in a few words."""
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
