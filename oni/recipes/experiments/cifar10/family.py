"""What the CIFAR-10 tables and figures share: their networks and rows, the runs, and how a learning rate is chosen.

For each row of a table (a method) and network, a *trial* is trained for every learning rate of the paper's grid, with
images held out. The *final* runs of all seeds then take what was best in the trials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oni.recipes.experiments.setting import Setting
    from oni.recipes.training.config import Config

__all__ = [
    "BATCH",
    "IMAGES",
    "Beginning",
    "Final",
    "Row",
    "Trial",
    "describe_run",
    "estimate_cost",
    "find_network",
    "make_measure",
]

BATCH = 128
"""The paper's, by which learning rates of other batch sizes are scaled."""
IMAGES = {"cifar10": 50_000, "generated": 160}
Options = Mapping[str, Any]
"""Keys of a configuration, such as ``method_options.steps``, and their values."""


@dataclass(frozen=True)
class Row:
    """A row of a table: a method as it is trained there."""

    name: str
    """On the command line."""
    title: str
    method: str
    options: Options = field(default_factory=dict)
    candidates: tuple[Options, ...] = ({},)
    """The best of these is reported; presets that spare time take the first."""
    rates: tuple[float, ...] = ()
    """The learning rates to choose from, for batches of 128."""
    rate: float = 0.0
    """The one for presets that do not choose."""
    ours: bool = False
    """Whether the paper lacks it."""


@dataclass(frozen=True)
class Trial:
    """A network trained with one learning rate, to see how good that is."""

    row: str
    network: str
    """As ``g2k1`` or ``resnet20``."""
    batch_size: int
    learning_rate: float
    """For batches of this size."""
    options: Options
    """The candidate of the row."""
    seed: int
    data: str
    samples: int
    validation: int
    epochs: int
    measure_every: int
    overrides: Options = field(default_factory=dict)
    """What the user changed of its configuration."""

    @property
    def steps(self) -> int:
        """How many updates it trains."""
        return count_steps(self)

    def override(self, overrides: Options) -> Trial:
        """The run with the overrides that are not sizes of the preset."""
        return replace(self, overrides=without_sizes(overrides))


@dataclass(frozen=True)
class Final:
    """A network trained with what is best of some trials."""

    row: str
    network: str
    batch_size: int
    options: Options
    """Beside those of the chosen candidate, over them."""
    seed: int
    data: str
    samples: int
    validation: int
    epochs: int
    measure_every: int
    rates: tuple[float, ...]
    """To choose from; scaled by the batch size where the trials have another. One alone is taken as it is."""
    candidates: tuple[Options, ...]
    trials_network: str
    trials_batch_size: int
    trials_seed: int
    trials_validation: int
    overrides: Options = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """How many updates it trains."""
        return count_steps(self)

    def override(self, overrides: Options) -> Final:
        """The run with the overrides that are not sizes of the preset."""
        return replace(self, overrides=without_sizes(overrides))

    def trials(self) -> list[Trial]:
        """The trials that it takes the best of; none if there is nothing to choose."""
        if len(self.rates) * len(self.candidates) == 1:
            return []
        return [
            Trial(
                row=self.row,
                network=self.trials_network,
                batch_size=self.trials_batch_size,
                learning_rate=rate,
                options=candidate,
                seed=self.trials_seed,
                data=self.data,
                samples=self.samples,
                validation=self.trials_validation,
                epochs=self.epochs,
                measure_every=self.measure_every,
                overrides=self.overrides,
            )
            for candidate in self.candidates
            for rate in self.rates
        ]


@dataclass(frozen=True)
class Beginning:
    """The first steps of a network at a constant learning rate: does it train?"""

    row: str
    network: str
    batch_size: int
    learning_rate: float
    seed: int
    data: str
    samples: int
    epochs: int
    overrides: Options = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """How many updates it trains."""
        return count_steps(self)

    def override(self, overrides: Options) -> Beginning:
        """The run with the overrides that are not sizes of the preset."""
        return replace(self, overrides=without_sizes(overrides))


Training = Trial | Final | Beginning


def count_steps(run: Training) -> int:
    held_out = 0 if isinstance(run, Beginning) else run.validation
    return run.epochs * ((run.samples or IMAGES[run.data] - held_out) // run.batch_size)


def without_sizes(overrides: Options) -> dict[str, Any]:
    return {key: value for key, value in overrides.items() if key not in ("data", "samples", "epochs")}


# Networks.


def find_network(name: str) -> tuple[str, dict[str, int]]:
    """The network of a name, and its options.

    >>> find_network("g2k1"), find_network("resnet110")
    (('vgg', {'g': 2, 'k': 1}), ('resnet-cifar', {'blocks': 18}))
    """
    if match := re.fullmatch(r"g(\d+)k(\d+)", name):
        return "vgg", {"g": int(match[1]), "k": int(match[2])}
    match = re.fullmatch(r"resnet(\d+)", name)
    if match and (int(match[1]) - 2) % 6 == 0 and int(match[1]) > 2:
        return "resnet-cifar", {"blocks": (int(match[1]) - 2) // 6}
    raise ValueError(f"unknown network {name!r}; write g2k1 for a VGG, or resnet20, of any depth 6n + 2")


def count_products(network: str) -> float:
    """Multiplications and additions for one image, in millions."""
    kind, options = find_network(network)
    if kind == "vgg":
        g, a = options["g"], 32 * options["k"]
        layers = [(32, 3 * a + g * a * a), (16, (2 + 4 * (g - 1)) * a * a), (8, (8 + 16 * (g - 1)) * a * a)]
    else:
        pairs = 2 * options["blocks"]
        layers = [
            (32, 3 * 16 + pairs * 16**2),
            (16, 16 * 32 + (pairs - 1) * 32**2),
            (8, 32 * 64 + (pairs - 1) * 64**2),
        ]
    return sum(size**2 * 9 * weights for size, weights in layers) / 1e6


def estimate_cost(run: Training) -> float:
    """How long a run takes beside others: small batches use the machine less well."""
    return run.steps * (run.batch_size + 8) * count_products(run.network)


# Training.


def make_config(run: Training, row: Row, learning_rate: float, options: Options) -> Config:
    """The configuration of a run; what the paper's text leaves open is as in the authors' code."""
    from oni.recipes.experiments.train_network import override_config
    from oni.recipes.training.config import Config

    network, network_options = find_network(run.network)
    is_residual = network == "resnet-cifar"
    config = Config(
        data=run.data,
        network=network,
        network_options=network_options,
        method=row.method,
        learning_rate=learning_rate,
        momentum=0.9,
        weight_decay=1e-4 if is_residual else 0.0,
        batch_size=run.batch_size,
        epochs=run.epochs,
        drops=() if isinstance(run, Beginning) else drop_epochs(run.epochs),
        drop_factor=0.1 if is_residual else 0.2,
        seed=run.seed,
        samples=run.samples,
        validation=0 if isinstance(run, Beginning) else run.validation,
        normalise="mean-std",
        augment=("flip", "crop"),
        measure_every=run.epochs if isinstance(run, Beginning) else run.measure_every,
    )
    return override_config(config, {**row.options, **options, **run.overrides})


def drop_epochs(epochs: int) -> tuple[int, ...]:
    """After which epochs the learning rate drops: at a half and three quarters, as 80 and 120 of 160.

    >>> drop_epochs(160), drop_epochs(10), drop_epochs(2), drop_epochs(1)
    ((80, 120), (5, 7), (1,), ())
    """
    return tuple(sorted({epochs // 2, epochs * 3 // 4} - {0}))


def make_measure(rows: Sequence[Row]) -> Any:
    """The function that trains a run of a table with these rows."""
    by_name = {row.name: row for row in rows}

    def measure(setting: Setting, run: Training) -> dict[str, Any]:
        from oni.recipes.experiments.train_network import choose_by_validation, train_network

        row = by_name[run.row]
        if isinstance(run, Beginning):
            return train_network(make_config(run, row, run.learning_rate, {}), setting)
        if isinstance(run, Trial):
            return train_network(make_config(run, row, run.learning_rate, run.options), setting)
        rate, candidate, tried = run.rates[0], run.candidates[0], {}
        if trials := run.trials():
            configs = [make_config(trial, row, trial.learning_rate, trial.options) for trial in trials]
            best, errors = choose_by_validation(configs, setting)
            rate, candidate = trials[best].learning_rate, trials[best].options
            tried = dict(zip(map(name_trial, trials), errors, strict=True))
        rate *= run.batch_size / run.trials_batch_size
        measured = train_network(make_config(run, row, rate, {**candidate, **run.options}), setting)
        return {**measured, "chosen": dict(candidate), "tried": tried}

    return measure


# Names.


def format_options(options: Options) -> str:
    """Options in a few words, without where they belong.

    >>> format_options({"method_options.coefficient": 1e-4})
    'coefficient 0.0001'
    """
    return ", ".join(
        f"{key.rpartition('.')[2].replace('_', ' ')} {value if value is not None else 'all'}"
        for key, value in options.items()
    )


def name_trial(trial: Trial) -> str:
    """What a trial tries."""
    return ", ".join(filter(None, [format_options(trial.options), f"learning rate {trial.learning_rate:g}"]))


def describe_run(run: Training) -> str:
    """A run in a few words; network and row first, which ``--only g2k1/oni`` chooses."""
    words = [f"{run.network}/{run.row}"]
    if run.batch_size != BATCH:
        words.append(f"batch {run.batch_size}")
    if isinstance(run, Trial):
        words.append(name_trial(run))
    elif isinstance(run, Beginning):
        words.append(f"first {run.steps} steps at learning rate {run.learning_rate:g}")
    else:
        words += filter(None, [format_options(run.options), "best of its trials" if run.trials() else ""])
    return ", ".join([*words, f"seed {run.seed}"])
