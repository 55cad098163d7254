"""What a training run is: one complete, frozen description, and the name that follows from it."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from oni.names import unknown_name
from oni.recipes.data.augment import AUGMENTATIONS
from oni.recipes.data.datasets import DATASETS
from oni.recipes.methods import METHODS
from oni.recipes.networks.registry import NETWORKS, complete_options
from oni.recipes.task_registry import TASKS, default_options

__all__ = ["Config", "drop_new_defaults"]

FORMAT = 1
"""Part of every hash: raise it when the same configuration no longer trains the same."""
NEW_FIELDS: Mapping[str, Any] = {
    "task": "classification",
    "task_options": {},
    "augment": [],
    "data_options": {},
    "normalise": "mean",
    "nesterov": False,
    "reset_momentum": False,
    "init_scale": False,
    "measure_every": 1,
    "accumulate": 1,
    "decay_scales": False,
    "small_branches": False,
}
"""Fields added after runs were recorded, with their defaults: at the default they are not part of the hash."""
NEW_OPTIONS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "network": {
        "mlp": {"norm": "none", "activation": "relu"},
        "vgg": {"norm": "none", "groups": 32, "frozen_bias": False},
        "resnet-cifar": {"group_size": 0, "frozen_bias": False},
    },
    "method": {"sn": {"start": "given"}, "oni": {"sigma_min": None}, "oni-ns": {"sigma_min": None}},
    "task": {"classification": {"temperature": 1.0}, "gan": {"keep_every": 0}},
}
"""The same for options of networks, methods and tasks."""
PRECISIONS = ("32-true", "64-true", "bf16-true", "16-true", "bf16-mixed", "16-mixed")
OPTIMIZERS = ("sgd", "adam")
NORMALISATIONS = ("mean", "mean-std")
CHOICES: Mapping[str, Collection[str]] = {
    "data": DATASETS,
    "network": NETWORKS,
    "method": METHODS,
    "task": TASKS,
    "optimizer": OPTIMIZERS,
    "precision": PRECISIONS,
    "normalise": NORMALISATIONS,
}
BEYOND = 2**62
"""Whole numbers must be smaller: torch takes seeds and sizes of 64 bits."""
LEAST = {
    **dict.fromkeys(("batch_size", "epochs", "measure_every", "accumulate"), 1),
    **dict.fromkeys(("seed", "samples", "validation", "learning_rate", "momentum", "weight_decay"), 0),
}


@dataclass(frozen=True)
class Config:
    """One run. Two runs with equal configurations are the same run, and are trained once.

    The number of devices and the place of the data are not part of it, because results do not depend on them.

    >>> config = Config(method="plain", network_options={"depth": 4}, learning_rate=1)
    >>> config.learning_rate, config.method_options, config.network_options["width"]
    (1.0, {}, 256)
    """

    data: str = "fashion-mnist"
    network: str = "mlp"
    network_options: Mapping[str, Any] = field(default_factory=lambda: {"depth": 10})
    """Completed with the network's defaults."""
    method: str = "oni"
    method_options: Mapping[str, Any] = field(default_factory=dict)
    """Completed with the method's defaults."""
    change_output: bool = False
    """Whether the method is put on the output layer too."""
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.0
    """With adam: its first beta."""
    weight_decay: float = 0.0
    """On all parameters but the learnable scales of a method, unless ``decay_scales``."""
    batch_size: int = 256
    """Over all devices together. Samples that fill no whole batch are left out of an epoch."""
    epochs: int = 80
    drops: tuple[int, ...] = (40,)
    """After how many epochs the learning rate is multiplied by drop_factor."""
    drop_factor: float = 0.5
    seed: int = 0
    """Seeds the initial weights and the order of samples in every epoch."""
    samples: int = 0
    """How many samples to train on; 0 for all that are not held out."""
    validation: int = 0
    """How many training samples to hold out."""
    split_seed: int = 0
    """Seeds the choice of the samples that are held out."""
    precision: str = "32-true"
    watch: tuple[str, ...] = ()
    """The names of the functions, passed to ``train``, that record something during training."""

    task: str = "classification"
    """What to train: a classifier, a GAN."""
    task_options: Mapping[str, Any] = field(default_factory=dict)
    """Completed with the task's defaults."""
    augment: tuple[str, ...] = ()
    """Random changes to training images, in this order."""
    data_options: Mapping[str, Any] = field(default_factory=dict)
    """Completed with the data set's defaults."""
    normalise: str = "mean"
    """Pixels less their mean; ``"mean-std"``: then divided by their standard deviation, per channel."""
    nesterov: bool = False
    """Use Nesterov momentum."""
    reset_momentum: bool = False
    """Clear the momentum when the learning rate drops."""
    init_scale: bool = False
    """Start the learnable scales from a batch of training samples, with :func:`oni.init_scale`."""
    measure_every: int = 1
    """Evaluate on held-out and test samples every so many epochs, and after the last."""
    accumulate: int = 1
    """Split each batch into so many parts and add up their gradients, so that a large batch fits into memory. Batch
    normalisation sees one part at a time."""
    decay_scales: bool = False
    """Apply weight decay to the learnable scales too, as the authors' code for residual networks does."""
    small_branches: bool = False
    """With init_scale: the last layer of each of L residual branches starts with a standard deviation of L^(-1/2)."""

    def __post_init__(self) -> None:
        for item in fields(self):
            object.__setattr__(self, item.name, check_value(item.name, str(item.type), getattr(self, item.name)))
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(unknown_name(name, value, list(choices)))
        for name in self.augment:
            if name not in AUGMENTATIONS:
                raise ValueError(unknown_name("augmentation", name, AUGMENTATIONS))
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise ValueError("nesterov=true needs optimizer=sgd and a momentum above 0")
        if self.small_branches and not self.init_scale:
            raise ValueError(
                "small_branches=true only applies to scales initialised from data: pass init_scale=true as well"
            )
        options = complete_options(self.network, self.network_options)
        object.__setattr__(self, "network_options", as_json(options))
        for owner, defaults in (
            ("data", DATASETS[self.data].options),
            ("method", METHODS[self.method].options),
            ("task", default_options(self.task)),
        ):
            given = getattr(self, f"{owner}_options")
            for option in given:
                if option not in defaults:
                    label = f"{owner} {getattr(self, owner)}"
                    raise ValueError(unknown_name("option", option, list(defaults), of=label))
            object.__setattr__(self, f"{owner}_options", as_json({**defaults, **given}))

    def __hash__(self) -> int:
        return hash(self.hash)

    def as_dict(self) -> dict[str, Any]:
        """Every field, as it is in ``config.json``."""
        return as_json(asdict(self))

    @property
    def hash(self) -> str:
        """Twelve digits that stand for the whole configuration."""
        identity = {"format": FORMAT, **drop_new_defaults(self.as_dict())}
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """The name of the run's folder: what a person looks for first, then the hash."""
        network, method = (re.sub(r"[^\w.-]", "-", name) for name in (self.network, self.method))
        return f"{network}-{method}-lr{self.learning_rate:g}-seed{self.seed}-{self.hash}"


def drop_new_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a configuration without the fields and options that were added later and have their default.

    >>> drop_new_defaults({"network": "mlp", "network_options": {"depth": 2, "norm": "none"}})
    {'network': 'mlp', 'network_options': {'depth': 2}}
    """
    values = dict(values)
    for owner, added in NEW_OPTIONS.items():
        defaults = added.get(values.get(owner, ""), {})
        if f"{owner}_options" in values:
            options = values[f"{owner}_options"]
            values[f"{owner}_options"] = {
                name: value for name, value in options.items() if name not in defaults or value != defaults[name]
            }
    return {name: value for name, value in values.items() if name not in NEW_FIELDS or value != NEW_FIELDS[name]}


def as_json(options: dict[str, Any]) -> dict[str, Any]:
    """The options after a round trip through JSON."""
    return json.loads(json.dumps(options, allow_nan=False))


def check_value(name: str, kind: str, value: Any) -> Any:
    """The value as the field's type, so that 1 and 1.0, or a list and a tuple, are the same configuration."""

    def type_error(expected: str) -> TypeError:
        return TypeError(f"{name} must be {expected}, got {value!r}")

    if kind == "bool" and not isinstance(value, bool):
        raise type_error("true or false")
    if kind == "int":
        if isinstance(value, bool) or not isinstance(value, int):
            raise type_error("a whole number")
        if value >= BEYOND:
            raise ValueError(f"{name} must be below 2**{BEYOND.bit_length() - 1}, got {value}")
    if kind == "float":
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise type_error("a finite number")
        return float(value)
    if kind == "str" and not isinstance(value, str):
        raise type_error("a string")
    if kind.startswith("tuple"):
        item_type = int if "int" in kind else str
        if isinstance(value, str) or not all(
            isinstance(item, item_type) and not isinstance(item, bool) for item in value
        ):
            raise type_error(f"a list of {'whole numbers' if item_type is int else 'strings'}")
        return tuple(value)
    if kind.startswith("Mapping"):
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise type_error("options by name")
        return dict(value)
    return value
