"""What a training run is: one complete, frozen description, and the name that follows from it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from oni.recipes.data.subjects import DATASETS, NETWORKS, network_options, unknown
from oni.recipes.methods import METHODS

__all__ = ["Config"]

FORMAT = 1
"""Part of every hash: raise it when the same configuration no longer trains the same."""
NEW_OPTIONS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {"network": {"mlp": {"norm": "none"}}}
"""Options added after runs were recorded, with their defaults: at the default they are not part of the hash."""
PRECISIONS = ("32-true", "64-true", "bf16-true", "16-true", "bf16-mixed", "16-mixed")
OPTIMIZERS = ("sgd", "adam")


@dataclass(frozen=True)
class Config:
    """One run. Two runs with equal configurations are the same run, and are trained once.

    On how many devices it trains, and where its data lie, is not part of it: the results do not depend on that.

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
    """For adam its first beta."""
    weight_decay: float = 0.0
    """On all parameters but the learnable scales of a method."""
    batch_size: int = 256
    """Over all devices together. Samples that fill no whole batch are left out of an epoch."""
    epochs: int = 80
    drops: tuple[int, ...] = (40,)
    """After how many epochs the learning rate is multiplied by drop_factor."""
    drop_factor: float = 0.5
    seed: int = 0
    """Of the first weights, and of the order of samples in every epoch."""
    samples: int = 0
    """Train on so many; 0 for all that are not held out."""
    validation: int = 0
    """Hold so many training samples out."""
    split_seed: int = 0
    """Of which samples are held out."""
    precision: str = "32-true"
    watch: tuple[str, ...] = ()
    """What is recorded on the way, by the names of the functions that are given to train."""

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, checked(each.name, str(each.type), getattr(self, each.name)))
        for name, known in (
            ("data", DATASETS),
            ("network", NETWORKS),
            ("method", METHODS),
            ("optimizer", OPTIMIZERS),
            ("precision", PRECISIONS),
        ):
            value = getattr(self, name)
            if value not in known:
                raise ValueError(f"{name} {value!r} is not known; {unknown(value, list(known))}")
        for name in (
            "batch_size",
            "epochs",
            "seed",
            "samples",
            "validation",
            "learning_rate",
            "momentum",
            "weight_decay",
        ):
            least = 1 if name in ("batch_size", "epochs") else 0
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        object.__setattr__(self, "network_options", plain(network_options(self.network, self.network_options)))
        defaults = METHODS[self.method].options
        for option in self.method_options:
            if option not in defaults:
                raise ValueError(f"method {self.method!r} has no option {option!r}; {unknown(option, list(defaults))}")
        object.__setattr__(self, "method_options", plain({**defaults, **self.method_options}))

    def __hash__(self) -> int:
        return hash(self.hash)

    def as_dict(self) -> dict[str, Any]:
        """Every field as JSON has it."""
        return plain(asdict(self))

    @property
    def hash(self) -> str:
        """Twelve digits that stand for the whole configuration."""
        fields = {"format": FORMAT, **drop_new_defaults(self.as_dict())}
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """The name of the run's folder: what a person looks for first, then the hash."""
        return f"{self.network}-{self.method}-lr{self.learning_rate:g}-seed{self.seed}-{self.hash}"

    def learning_rate_in(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0.

        >>> [Config(learning_rate=1, drops=(1, 3)).learning_rate_in(epoch) for epoch in range(4)]
        [1.0, 0.5, 0.5, 0.25]
        """
        return self.learning_rate * self.drop_factor ** sum(epoch >= drop for drop in self.drops)


def drop_new_defaults(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a configuration without what was added later and has its default.

    >>> drop_new_defaults({"network": "mlp", "network_options": {"depth": 2, "norm": "none"}})
    {'network': 'mlp', 'network_options': {'depth': 2}}
    """
    values = dict(values)
    for owner, added in NEW_OPTIONS.items():
        if f"{owner}_options" not in values:
            continue
        defaults = added.get(values.get(owner, ""), {})
        options = values[f"{owner}_options"]
        values[f"{owner}_options"] = {
            name: value for name, value in options.items() if name not in defaults or value != defaults[name]
        }
    return values


def plain(options: dict[str, Any]) -> dict[str, Any]:
    """As JSON gives it back."""
    return json.loads(json.dumps(options, allow_nan=False))


def checked(name: str, kind: str, value: Any) -> Any:
    """The value as the field's type, so that 1 and 1.0, or a list and a tuple, are one configuration."""

    def wrong(expected: str) -> TypeError:
        return TypeError(f"{name} must be {expected}, got {value!r}")

    if kind == "bool" and not isinstance(value, bool):
        raise wrong("true or false")
    if kind == "int" and (isinstance(value, bool) or not isinstance(value, int)):
        raise wrong("a whole number")
    if kind == "float":
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise wrong("a finite number")
        return float(value)
    if kind == "str" and not isinstance(value, str):
        raise wrong("a word")
    if kind.startswith("tuple"):
        item = int if "int" in kind else str
        if isinstance(value, str) or not all(isinstance(one, item) and not isinstance(one, bool) for one in value):
            raise wrong(f"a list of {'whole numbers' if item is int else 'words'}")
        return tuple(value)
    if kind.startswith("Mapping"):
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise wrong("options by name")
        return dict(value)
    return value
