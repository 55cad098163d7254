"""What the CIFAR-10 tables and figures share: their networks and rows, the runs, and how a learning rate is chosen.

For each row of a table (a method) and network, a *trial* is trained for every learning rate of the paper's grid, with
images held out. The *final* runs of all seeds then take what was best in the trials.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from oni.names import unknown_name
from oni.recipes.experiments.rows import Options, Row, format_options

__all__ = [
    "BATCH",
    "IMAGES",
    "LONG",
    "SHORT",
    "TEST_IMAGES",
    "VARIANTS",
    "Beginning",
    "Final",
    "Training",
    "Trial",
    "describe_run",
    "describe_sweeps",
    "estimate_cost",
    "find_network",
    "name_network",
    "name_trial",
]

BATCH = 128
"""The paper's, by which learning rates of other batch sizes are scaled."""
IMAGES = {"cifar10": 50_000, "generated": 160}
TEST_IMAGES = 10_000
"""Of CIFAR-10; the generated ones are too few for any claim."""
LONG = {"steps": 20_000, "seeds": 2}
"""What a claim about the errors of trained networks needs: a third of the paper's 62,400 steps."""
SHORT = {"steps": 500, "seeds": 2}
"""What a claim about the speed of training needs."""


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
        return apply_overrides(self, overrides)


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
        return apply_overrides(self, overrides)

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
        return apply_overrides(self, overrides)


Training = Trial | Final | Beginning


R = TypeVar("R", Trial, Final, Beginning)


def count_steps(run: Training) -> int:
    if run.data not in IMAGES:
        raise ValueError(unknown_name("data", run.data, IMAGES))
    held_out = 0 if isinstance(run, Beginning) else run.validation
    return run.epochs * ((run.samples or IMAGES[run.data] - held_out) // run.batch_size)


def apply_overrides(run: R, overrides: Options) -> R:
    """The run with the overrides that are not sizes of the preset; all batches then have one size."""
    rest = {key: value for key, value in overrides.items() if key not in ("data", "samples", "epochs")}
    changes: dict[str, Any] = {}
    if "batch_size" in rest:
        size = rest.pop("batch_size")
        changes = {"batch_size": size} | ({"trials_batch_size": size} if isinstance(run, Final) else {})
    return replace(run, **changes, overrides=rest)


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


# Names.


def name_network(name: str) -> str:
    """A network as the paper calls it.

    >>> name_network("g2k1"), name_network("resnet110")
    ('g = 2, k = 1', 'Res-110')
    """
    kind, options = find_network(name)
    return f"g = {options['g']}, k = {options['k']}" if kind == "vgg" else f"Res-{6 * options['blocks'] + 2}"


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


def describe_sweeps(rows: Sequence[Row]) -> dict[str, str]:
    """What a table varies, so that nobody overrides it."""
    titles = f"compares {', '.join(row.title for row in rows)}"
    keys = {key for row in rows for options in (row.options, *row.candidates) for key in options}
    # These of a row may be changed for all: they are the named variants.
    keys -= {"init_scale", "method_options.start"}
    return {
        "learning_rate": "chooses it on images held out",
        "validation": "chooses learning rates on images held out",
        "method": titles,
        "network": "has networks of its own",
        **dict.fromkeys(sorted(keys), titles),
    }


VARIANTS = (
    "Where text and released code differ, the text is the default, and these words after the command give the code's "
    "choice: nesterov=true (VGG only), reset_momentum=true and drops=79,119 for the learning rate, "
    "augment=flip-half,crop-together for one crop offset per batch from reflected images and a flip of exactly half "
    "of each batch"
)
