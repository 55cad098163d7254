"""What the GAN figures share: their networks, runs and presets, and how they are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oni.recipes.experiments.setting import Setting
    from oni.recipes.training.config import Config
    from oni.recipes.training.run import Result

__all__ = [
    "ADAM",
    "LONG",
    "PAPER_LENGTH",
    "SETTINGS",
    "SHORT",
    "Adam",
    "GANRun",
    "Player",
    "estimate_cost",
    "make_config",
    "make_plan",
    "make_presets",
    "measure",
    "oni",
    "spectral",
    "train_run",
]

SMOKE = {
    "data": "fashion-mnist-sample",
    "samples": 128,
    "width": 2,
    "batch_size": 8,
    "updates": 2,
    "epochs": 2,
    "seeds": 1,
    "distance_samples": 0,
    "images": 20,
    "real_images": 20,
}
LAPTOP = {
    "data": "fashion-mnist-sample",
    "samples": 0,
    "width": 8,
    "batch_size": 32,
    "updates": 100,
    "epochs": 4,
    "seeds": 1,
    "images": 1000,
    "real_images": 2000,
}
FULL = {
    "data": "cifar10",
    "samples": 0,
    "width": 16,
    "batch_size": 32,
    "updates": 200,
    "epochs": 8,
    "seeds": 2,
    "images": 2500,
    "real_images": 5000,
    "sparing": True,
}
PAPER = {
    "data": "cifar10",
    "samples": 0,
    "width": 64,
    "batch_size": 64,
    "updates": 0,
    "epochs": 200,
    "seeds": 1,
    "images": 5000,
    "real_images": 10_000,
}


def make_presets(**changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The presets of a figure, with its changes by preset."""
    presets = {"smoke": SMOKE, "laptop": LAPTOP, "full": FULL, "paper": PAPER}
    return {name: {**sizes, **changes.get(name, {})} for name, sizes in presets.items()}


PAPER_LENGTH = {"generator_updates": 20_000}
"""What a claim of the paper about images at the end of training needs; its runs have 156,200."""
LONG = {"generator_updates": 1000}
"""What a claim about the beginning of training needs."""
SHORT = {"generator_updates": 500}
PRINTED_WIDTHS = {"dcgan": 64, "resnet-gan": 128}
IMAGES = {"cifar10": 50_000, "fashion-mnist-sample": 10_000, "fashion-mnist": 60_000}
CHANNELS = {"cifar10": 3}


@dataclass(frozen=True)
class Adam:
    """How both networks are optimised."""

    learning_rate: float
    beta1: float
    beta2: float
    n_dis: int
    """Updates of the discriminator for each of the generator."""


ADAM = Adam(2e-4, 0.0, 0.9, 5)
"""The paper's choice where it does not vary it."""
SETTINGS = {
    "A": Adam(1e-4, 0.5, 0.9, 5),
    "B": Adam(1e-4, 0.5, 0.999, 1),
    "C": Adam(2e-4, 0.5, 0.999, 1),
    "D": Adam(1e-3, 0.5, 0.9, 5),
    "E": Adam(1e-3, 0.5, 0.999, 5),
    "F": Adam(1e-3, 0.9, 0.999, 5),
}
"""The paper's six, by its letters."""


@dataclass(frozen=True)
class Player:
    """A GAN of a figure, before seeds and sizes: what is in its discriminator, and how both are trained."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    network: str = "dcgan"
    loss: str = "non-saturating"
    adam: str = ""
    """The letter of a setting; empty for the paper's usual one."""
    first_layer: str = "method"
    pooling: str = ""
    """In the discriminator of a ResNet GAN; empty for DCGAN, which has none."""
    seeds: int | None = None
    """At most so many in a sparing preset."""


def spectral(**changes: Any) -> Player:
    """A discriminator with spectral normalisation."""
    return Player("sn", **changes)


def oni(steps: int, **changes: Any) -> Player:
    """A discriminator with ONI, without a learnable scale, as in the paper."""
    return Player("oni-ns", {"steps": steps, "learn_scale": False}, **changes)


@dataclass(frozen=True)
class GANRun:
    """One run: a GAN trained from one seed."""

    network: str
    width: int
    method: str
    options: Mapping[str, Any]
    loss: str
    adam: str
    first_layer: str
    pooling: str
    seed: int
    data: str
    samples: int
    batch_size: int
    updates: int
    """Of the generator in an epoch; 0 for one for each batch of the data."""
    epochs: int
    distance_samples: int
    images: int
    """Generated to be measured at the end."""
    real_images: int
    """That they are compared with."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """What the user changed of its configuration."""

    @property
    def generator_updates(self) -> int:
        """How many updates of the generator it makes."""
        updates = int(self.overrides.get("task_options.updates", self.updates))
        batch = int(self.overrides.get("batch_size", self.batch_size))
        return self.epochs * (updates or (self.samples or IMAGES[self.data]) // batch)

    def override(self, overrides: Mapping[str, Any]) -> GANRun:
        """The run with the overrides that are not sizes of the preset."""
        rest = {key: value for key, value in overrides.items() if key not in ("data", "samples", "epochs")}
        return replace(self, overrides=rest)


@dataclass(frozen=True)
class Sizes:
    """What a preset says of the runs."""

    data: str
    samples: int
    width: int
    batch_size: int
    updates: int
    epochs: int
    seeds: int
    images: int
    real_images: int
    distance_samples: int = 1000
    sparing: bool = False


def make_plan(players: Sequence[Player]) -> Callable[..., list[GANRun]]:
    """From a preset's sizes to the runs: every player with every seed."""

    def plan(seed: int, **given: Any) -> list[GANRun]:
        sizes = Sizes(**given)
        runs = []
        for player in players:
            count = min(sizes.seeds, player.seeds or sizes.seeds) if sizes.sparing else sizes.seeds
            runs += [make_run(player, sizes, seed + index) for index in range(count)]
        return runs

    return plan


def make_run(player: Player, sizes: Sizes, seed: int) -> GANRun:
    return GANRun(
        network=player.network,
        width=sizes.width,
        method=player.method,
        options=player.options,
        loss=player.loss,
        adam=player.adam,
        first_layer=player.first_layer,
        pooling=player.pooling,
        seed=seed,
        data=sizes.data,
        samples=sizes.samples,
        batch_size=sizes.batch_size,
        updates=sizes.updates,
        epochs=sizes.epochs,
        distance_samples=sizes.distance_samples,
        images=sizes.images,
        real_images=sizes.real_images,
    )


def make_config(run: GANRun) -> Config:
    """The configuration of a run."""
    from oni.recipes.experiments.train_network import override_config
    from oni.recipes.training.config import Config

    adam = SETTINGS.get(run.adam, ADAM)
    pooling = {"pooling": run.pooling} if run.pooling else {}
    config = Config(
        task="gan",
        task_options={
            "loss": run.loss,
            "n_dis": adam.n_dis,
            "beta2": adam.beta2,
            "updates": run.updates,
            "first_layer": run.first_layer,
            "distance_samples": run.distance_samples,
        },
        data=run.data,
        samples=run.samples,
        network=run.network,
        network_options={"width": run.width, "channels": CHANNELS.get(run.data, 1), **pooling},
        method=run.method,
        method_options=run.options,
        optimizer="adam",
        # Adam changes every weight by about the learning rate, and an output by the sum over a filter's inputs: in
        # narrower networks as much less.
        learning_rate=adam.learning_rate * PRINTED_WIDTHS[run.network] / run.width,
        momentum=adam.beta1,
        batch_size=run.batch_size,
        epochs=run.epochs,
        drops=(),
        seed=run.seed,
    )
    return override_config(config, run.overrides)


CURVES = ("d_loss", "g_loss", "real_score", "fake_score", "d_error", "pixel_deviation", "random_feature_distance")


def measure(setting: Setting, run: GANRun) -> dict[str, Any]:
    """Train and measure, or read what was: the curves by epoch, the distances at the end."""
    from oni.recipes.experiments.gan.measuring import measure_images

    result = train_run(setting, run)
    measured = {
        "run": result.folder.name,
        "status": result.metrics["status"],
        "updates": [row["steps"] for row in result.epochs],
        **{name: [row.get(name) for row in result.epochs] for name in CURVES},
    }
    return measured if result.diverged else {**measured, **measure_images(setting, run, result.folder)}


def train_run(setting: Setting, run: GANRun) -> Result:
    """Train, or read what was trained."""
    from oni.recipes.experiments.train_network import check_finished, train_options
    from oni.recipes.training.run import train

    config = make_config(run)
    check_finished(config, setting)
    return train(config, setting.runs, **train_options(config, setting))


def estimate_cost(run: GANRun) -> float:
    """How long a run takes beside others: updates of both networks, by filters."""
    n_dis = SETTINGS.get(run.adam, ADAM).n_dis
    return run.generator_updates * run.batch_size * (1 + n_dis) * run.width**2
