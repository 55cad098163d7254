"""What the GAN figures share: their rows, presets and texts, and how images are measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.runs import Row, Training, describe_sweeps, plan_rows, read_cost, train

if TYPE_CHECKING:
    from oni.recipes.experiments.setting import Setting

__all__ = [
    "LONG",
    "NETWORKS",
    "PAPER_ADAMS",
    "PAPER_LENGTH",
    "PRINTED_WIDTHS",
    "SHORT",
    "Pairs",
    "describe_choices",
    "make_plan",
    "make_presets",
    "make_sweeps",
    "measure",
    "oni",
    "spectral",
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


LONG = {"steps": 1000}
"""What a claim about the beginning of training needs."""
SHORT = {"steps": 500}
PRINTED_WIDTHS = {"dcgan": 64, "resnet-gan": 128}
PAPER_LENGTH = {
    network: {"steps": 20_000, "width": width // 4, "seeds": 2} for network, width in PRINTED_WIDTHS.items()
}
"""What a claim about final images needs, by network: updates of the generator, of which the paper has 156,200, and a
quarter of its width."""
NETWORKS = {"dcgan": "DCGAN", "resnet-gan": "ResNet GAN"}


# Rows.


@dataclass(frozen=True)
class Adam:
    """The optimiser of both networks."""

    learning_rate: float
    beta1: float
    beta2: float
    n_dis: int
    """Updates of the discriminator per update of the generator."""


ADAM = Adam(2e-4, 0.0, 0.9, 5)
"""The paper's usual choice."""
PAPER_ADAMS = {
    "A": Adam(1e-4, 0.5, 0.9, 5),
    "B": Adam(1e-4, 0.5, 0.999, 1),
    "C": Adam(2e-4, 0.5, 0.999, 1),
    "D": Adam(1e-3, 0.5, 0.9, 5),
    "E": Adam(1e-3, 0.5, 0.999, 5),
    "F": Adam(1e-3, 0.9, 0.999, 5),
}
"""The paper's six, by its letters."""


Pairs = Mapping[str, tuple[Row, Row]]
"""Pairs of SN and ONI, by what they have in common."""


def spectral(**changes: Any) -> Row:
    """A discriminator with spectral normalisation; see `make_row`."""
    return make_row("SN", {"method": "sn"}, **changes)


def oni(steps: int, **changes: Any) -> Row:
    """A discriminator with ONI, without a learnable scale, as in the paper; see `make_row`."""
    options = {"method": "oni-ns", "method_options.steps": steps, "method_options.learn_scale": False}
    return make_row(f"ONI, T = {steps}", options, **changes)


def make_row(
    name: str,
    method: Mapping[str, Any],
    *,
    network: str = "dcgan",
    loss: str = "non-saturating",
    adam: str = "",
    first_layer: str = "method",
    pooling: str = "",
    seeds: int | None = None,
) -> Row:
    """A GAN of a figure.

    >>> oni(2).name, spectral(adam="A").name, oni(3, first_layer="unnormalised").name
    ('ONI, T = 2', 'SN, setting A', 'ONI, T = 3, first layer unnormalised')

    Args:
        name: of the method.
        method: its options.
        network: both networks.
        loss: of both.
        adam: the letter of one of the paper's six optimisers; empty for its usual one.
        first_layer: of the discriminator, if it is special.
        pooling: in the discriminator of a ResNet GAN.
        seeds: the largest number in a sparing preset.
    """
    optimiser = PAPER_ADAMS.get(adam, ADAM)
    words = [name, *([f"setting {adam}"] if adam else [])]
    words += [f"first layer {first_layer}"] if first_layer != "method" else []
    words += [f"{pooling} pooling"] if pooling else []
    words += [f"{loss} loss"] if loss != "non-saturating" or pooling else []
    changes = {
        **method,
        "network": network,
        "momentum": optimiser.beta1,
        "task_options.loss": loss,
        "task_options.n_dis": optimiser.n_dis,
        "task_options.beta2": optimiser.beta2,
        "task_options.first_layer": first_layer,
        **({"network_options.pooling": pooling} if pooling else {}),
    }
    title = ", ".join(words)
    return Row(title, title, changes, rate=optimiser.learning_rate, seeds=seeds)


def make_plan(rows: Sequence[Row], variant: str = "") -> Callable[..., list[Training]]:
    """The plan of a figure: every row with every seed, in the sizes of a preset; sparing presets have fewer seeds.

    ``variant`` tells the runs from others of the same rows.
    """

    def plan(
        seed: int,
        *,
        data: str,
        samples: int,
        width: int,
        batch_size: int,
        updates: int,
        epochs: int,
        seeds: int,
        images: int,
        real_images: int,
        distance_samples: int = 1000,
        keep_every: int = 0,
        sparing: bool = False,
    ) -> list[Training]:
        from oni.recipes.data.datasets import DATASETS
        from oni.recipes.run_files.config import Config

        chosen = rows if sparing else [replace(row, seeds=None) for row in rows]
        network = str(rows[0].changes["network"])
        config = Config(
            task="gan",
            task_options={
                "updates": updates,
                "distance_samples": distance_samples,
                "keep_every": keep_every,
            },
            data=data,
            samples=samples,
            network=network,
            network_options={"width": width, "channels": DATASETS[data].shape[0]},
            method="plain",
            optimizer="adam",
            batch_size=batch_size,
            epochs=epochs,
            drops=(),
        )
        # Adam changes every weight by about the learning rate, and an output by the sum over a filter's inputs. So the
        # learning rate grows as the network gets narrower.
        factor = PRINTED_WIDTHS[network] / width
        group, every_seed = ", ".join(filter(None, [NETWORKS[network], variant])), range(seed, seed + seeds)
        return plan_rows(chosen, config, every_seed, group=group, rate_factor=factor, images=(images, real_images))

    return plan


def make_sweeps(rows: Sequence[Row]) -> dict[str, str]:
    """The keys that a figure varies, each with the reason why it can't be overridden."""
    names = f"compares {', '.join(row.title for row in rows)}"
    several = len({row.rate for row in rows}) > 1
    optimisers = dict.fromkeys(("learning_rate", "momentum"), names) if several else {}
    return describe_sweeps(rows, task="trains GANs", **optimisers)


SHARED = (
    "As printed: {network}, z of 128 normal numbers, Adam, one orthogonalisation for each discriminator update, no "
    "learnable scale in the discriminator; rows are centred. As in the authors' code, the last, dense layer of the "
    "discriminator keeps spectral normalisation with ONI too, images are in [-1, 1] and not mirrored. Unlike there, "
    "each discriminator update uses fresh real images, and the learning rate is constant (there it falls by 1 % per "
    "epoch): task_options.reuse_batch=true and task_options.epoch_decay=0.99 select the code's behaviour. An epoch "
    "has as many generator updates as the data has batches of 64, as in their code; so 200 epochs are 156,200 "
    "updates. This is preset paper. Preset full, for a CPU: {full}, batches of 32. laptop and smoke: the embedded "
    "Fashion-MNIST sample padded with black, and smaller still. The learning rate is inversely proportional to the "
    "width of the network (for a DCGAN of width 16 8e-4 instead of 2e-4): Adam changes every weight by about the "
    "learning rate, so outputs change less if a filter has fewer inputs. "
)


def describe_choices(network: str, full: str, text: str) -> str:
    """What the paper leaves open: the text that all figures share, and that of one figure."""
    return SHARED.format(network=network, full=full) + text


# Measuring.

CURVES = ("d_loss", "g_loss", "real_score", "fake_score", "d_error", "pixel_deviation", "random_feature_distance")
ON_THE_WAY = 1000
"""The largest number of images for measuring a generator from before the end of training."""
PROVENANCE = ("samples", "real_samples", "mode", "extractor", "extractor_sha256", "preparation", "weights", "biased")


def measure(training: Training, setting: Setting) -> dict[str, Any]:
    """Train and measure, or read the results: the curves by epoch, and the distances at the end."""
    result = train(training.config, setting)
    measured = {
        "run": result.folder.name,
        "status": result.metrics["status"],
        "cost": read_cost(result),
        "updates": [row["steps"] for row in result.epochs],
        **{name: [row.get(name) for row in result.epochs] for name in CURVES},
    }
    return measured if result.diverged else {**measured, **measure_images(training, setting, result.folder)}


def measure_images(training: Training, setting: Setting, folder: Path) -> dict[str, Any]:
    """The numbers by name, and how each extractor measured them (``by_inception``, ``by_classifier``)."""
    from oni.recipes.generated.measure import NAMES, Sampling, measure_run, read_measured
    from oni.recipes.generated.progress import watch_images
    from oni.recipes.progress.reporters import make_reporter
    from oni.recipes.tasks.gan import kept_updates
    from oni.recipes.training.devices import is_first_process

    dataset = setting.load_dataset(training.config)
    # Of several processes, the first measures for all.
    extractors = setting.load_extractors(training.config) if is_first_process() else []
    numbers: dict[str, Any] = {}
    for update in (*kept_updates(training.config), None):
        images = training.images if update is None else min(training.images, ON_THE_WAY)
        sampling = Sampling(images, training.real_images)
        measured = read_measured(folder, dataset, sampling, update)
        for extractor in extractors:
            with watch_images(setting.reporter or make_reporter(setting.progress), folder.name) as watch:
                measured[extractor.kind] = measure_run(folder, dataset, extractor, sampling, watch, update)
        for kind, values in measured.items():
            names = tuple(NAMES[kind].values())
            own = {name: value for name, value in values.items() if name.startswith(names)}
            if update is not None:
                numbers.setdefault("on_the_way", {}).setdefault(str(update), {}).update(own)
                continue
            numbers |= own
            numbers[f"by_{kind}"] = {name: values[name] for name in PROVENANCE if name in values}
    return numbers
