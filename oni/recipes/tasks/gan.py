"""GANs: a generator and a discriminator, and a method on the weights of the discriminator alone.

The options of the task, in a configuration's ``task_options``:

``loss``
    ``"non-saturating"`` or ``"hinge"``.
``n_dis``
    How often the discriminator is updated before each update of the generator.
``beta2``
    The second beta of adam; the first is the configuration's ``momentum``.
``updates``
    Updates of the generator in an epoch; 0 for as many as the training images have whole batches.
``epoch_decay``
    Factor of the learning rate after every epoch: 0.99 in the authors' code.
``reuse_batch``
    Whether the discriminator sees the same real images in all its updates between two of the generator, as in the
    authors' code, instead of fresh ones.
``first_layer``
    ``"method"``: the layers that read the image are like all others; ``"unnormalised"``: with the slip of the authors'
    code, see :mod:`oni.baselines.unnormalised`.
``ema``
    The decay of a moving average of the generator's weights, from which images are then sampled; 0 for none.
``distance_samples``
    How many images the distance of each epoch is measured on; 0 for no distance.
``keep_every``
    Keep a copy of the generator every so many epochs, if ``updates`` sets the length of an epoch; 0 for none.

The output layer of the discriminator has spectral normalisation, as in the authors' code; with the configuration's
``change_output`` it has the method.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.func import functional_call
from torch.optim import Optimizer

from oni.recipes.data.batches import seeded_generator, shuffle_indices
from oni.recipes.data.images import Dataset
from oni.recipes.metrics.features import RandomFeatures, extract
from oni.recipes.networks.gan import IMAGE_SIZE
from oni.recipes.run_files.config import Config
from oni.recipes.sheets import to_bytes, write_sheet
from oni.recipes.tasks.gan_losses import LOSSES
from oni.recipes.tasks.gan_setup import build_gan, check_fields, check_task_options, method_loss
from oni.recipes.training.optimizer import build_optimizer, learning_rate_at, set_learning_rate
from oni.recipes.training.parts import split
from oni.recipes.training.task import Task

__all__ = ["SHEET", "GANTraining", "fixed_noise", "kept_updates", "name_kept", "resize"]

SHEET = 64
"""Images on a sheet."""
GENERATE_BATCH = 100
"""Images generated at once for a measurement."""


def fixed_noise(count: int, latent: int, seed: int | str = "sheet") -> Tensor:
    """The z of sample sheets and measurements: the same in every run of a seed."""
    return torch.randn(count, latent, generator=seeded_generator("noise", seed))


def kept_updates(config: Config) -> list[int]:
    """After which updates a copy of the generator is kept, besides the end."""
    every = config.task_options["keep_every"]
    per_epoch = config.task_options["updates"]
    return [epoch * per_epoch for epoch in range(every, config.epochs, every)] if every and per_epoch else []


def name_kept(update: int) -> str:
    """The file of a generator that was kept, in the run's folder."""
    return f"generators/update-{update:07d}.pt"


def resize(images: Tensor, black: float = -1.0) -> Tensor:
    """Images padded with black to 32 x 32."""
    height, width = images.shape[-2:]
    if max(height, width) > IMAGE_SIZE:
        raise ValueError(f"images must be at most {IMAGE_SIZE} x {IMAGE_SIZE} for a GAN, got {height} x {width}")
    if (height, width) == (IMAGE_SIZE, IMAGE_SIZE):
        return images
    above, left = (IMAGE_SIZE - height) // 2, (IMAGE_SIZE - width) // 2
    return F.pad(images, (left, IMAGE_SIZE - width - left, above, IMAGE_SIZE - height - above), value=black)


class GANTraining(Task):
    """Train both networks in turns; measure losses, scores and a distance between generated and real images."""

    metrics: tuple[str, ...] = (
        "learning_rate",
        "d_loss",
        "g_loss",
        "real_score",
        "fake_score",
        "d_error",
        "pixel_deviation",
        "random_feature_distance",
    )

    def __init__(self, config: Config, fabric: Fabric, dataset: Dataset) -> None:
        self.options = dict(config.task_options)
        check_fields(config)
        check_task_options(self.options)
        if config.batch_size % fabric.world_size:
            raise ValueError(
                f"batch_size={config.batch_size} can't be split equally over {fabric.world_size} processes; "
                "use a multiple of that number"
            )
        dtype = torch.float64 if config.precision == "64-true" else torch.float32
        parts = split(dataset, config, fabric.device, dtype)
        # Pixels less a half, divided by a half: in [-1, 1].
        half = torch.full((1, 1, 1), 0.5, dtype=dtype, device=fabric.device)
        scaled: dict[str, Any] = {"mean": half, "deviation": half, "memory_format": torch.channels_last}
        self.train_part, self.test_part = replace(parts.train, **scaled), replace(parts.test, **scaled)
        channels = self.train_part.batch(torch.arange(1))[0].shape[1]
        self.loss = LOSSES[self.options["loss"]]
        super().__init__(config, fabric, dataset)
        if channels != self.channels:
            raise ValueError(
                f"the images of {config.data} have {channels} channels, but the networks have {self.channels}; pass "
                f"network_options.channels={channels}"
            )
        if self.sharded:
            raise ValueError(
                "task 'gan' needs whole weights in each process, but fsdp2 shards them; pass --strategy ddp"
            )
        self.method_loss = method_loss(self.models["discriminator"], config, channels)
        self.step = 0
        generator = self.models["generator"]
        self.average = {name: value.clone() for name, value in generator.state_dict().items()}
        """The moving average of the generator's state, if there is one."""
        self.real_features: Tensor | None = None

    # What the engine asks for.

    @property
    def steps_per_epoch(self) -> int:
        return self.options["updates"] or len(self.train_part) // self.config.batch_size

    def build_models(self) -> dict[str, nn.Module]:
        gan = build_gan(self.config)
        self.latent, self.channels = gan.latent, gan.channels
        return {"generator": gan.generator, "discriminator": gan.discriminator}

    def build_optimizers(self) -> dict[str, Optimizer]:
        beta2 = self.options["beta2"]
        return {name: build_optimizer(self.config, model, beta2=beta2) for name, model in self.models.items()}

    def start_epoch(self, epoch: int, first: int) -> None:
        self.learning_rate = learning_rate_at(self.config, epoch) * self.options["epoch_decay"] ** epoch
        for optimizer in self.optimizers.values():
            set_learning_rate(optimizer, self.learning_rate)
        for model in self.wrapped.values():
            model.train()
        self.step = epoch * self.steps_per_epoch + first
        self.is_measured = (epoch + 1) % self.config.measure_every == 0 or epoch + 1 == self.config.epochs
        self.real_images = self.read_images(self.step * (1 if self.options["reuse_batch"] else self.options["n_dis"]))

    def train_step(self) -> None:
        fresh = not self.options["reuse_batch"]
        for number in range(self.options["n_dis"]):
            if number == 0 or fresh:
                real = next(self.real_images)
            self.update_discriminator(real, number)
        self.update_generator()
        self.step += 1

    def measure(self) -> dict[str, float]:
        images = self.generate(self.options["distance_samples"] or SHEET)
        measured = {"learning_rate": self.learning_rate, **self.totals.means()}
        # How much images differ from each other: about 0.5 in CIFAR-10, and 0 if the generator has collapsed.
        measured["pixel_deviation"] = float(images.std(0).mean())
        if self.options["distance_samples"] and self.is_measured:
            finite = bool(torch.isfinite(images).all())
            measured["random_feature_distance"] = self.distance(to_bytes(images)) if finite else float("nan")
        return measured

    def files(self) -> dict[str, bytes]:
        images = self.generate(SHEET)
        if not torch.isfinite(images).all():
            return {}
        files = {f"samples/update-{self.step:07d}.png": write_sheet(to_bytes(images))}
        if self.step in kept_updates(self.config):
            state = self.average if self.options["ema"] else self.models["generator"].state_dict()
            content = io.BytesIO()
            torch.save({name: value.cpu() for name, value in state.items()}, content)
            files[name_kept(self.step)] = content.getvalue()
        return files

    def state_dict(self) -> dict[str, Any]:
        average = {"average": self.average} if self.options["ema"] else {}
        return {**super().state_dict(), **average}

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        if self.options["ema"]:
            for name, value in state["average"].items():
                self.average[name].copy_(value)

    # The two kinds of steps.

    def update_discriminator(self, real: Tensor, number: int) -> None:
        """One update. Real and generated images go through in one batch, so weights are orthogonalised once."""
        with torch.no_grad():
            fake = self.wrapped["generator"](self.noise(number))
        scores = self.wrapped["discriminator"](torch.cat([real, fake]))
        real_scores, fake_scores = scores[: len(real)], scores[len(real) :]
        loss = self.loss.discriminator(real_scores, fake_scores)
        self.optimizers["discriminator"].zero_grad()
        self.fabric.backward(loss + self.method_loss(self.models["discriminator"]) if self.method_loss else loss)
        self.optimizers["discriminator"].step()
        count = len(real)
        wrong = ((real_scores <= 0).sum() + (fake_scores >= 0).sum()) / 2
        self.totals.add(
            count,
            d_loss=loss.detach() * count,
            real_score=real_scores.detach().sum(),
            fake_score=fake_scores.detach().sum(),
            d_error=wrong,
        )

    def update_generator(self) -> None:
        """One update, through a discriminator that learns nothing from it."""
        discriminator = self.models["discriminator"]
        discriminator.requires_grad_(False)
        images = self.wrapped["generator"](self.noise(self.options["n_dis"]))
        with self.fabric.autocast():
            loss = self.loss.generator(discriminator(images))
        self.optimizers["generator"].zero_grad()
        self.fabric.backward(loss)
        self.optimizers["generator"].step()
        discriminator.requires_grad_(True)
        # Means are over the samples that the discriminator saw, which are n_dis times as many.
        self.totals.add(0, g_loss=loss.detach() * len(images) * self.options["n_dis"])
        if self.options["ema"]:
            self.update_average()

    @torch.no_grad()
    def update_average(self) -> None:
        for name, value in self.models["generator"].state_dict().items():
            if value.is_floating_point() and not name.endswith(("running_mean", "running_var")):
                self.average[name].lerp_(value, 1 - self.options["ema"])
            else:
                self.average[name].copy_(value)

    # What goes into them.

    def noise(self, number: int) -> Tensor:
        """The z of an update: drawn for the whole batch, then this process's share."""
        generator = seeded_generator("z", self.config.seed, self.step, number)
        values = torch.randn(self.config.batch_size, self.latent, generator=generator)
        share = values.tensor_split(self.fabric.world_size)[self.fabric.global_rank]
        return share.to(self.fabric.device, self.train_part.mean.dtype)

    def read_images(self, first: int) -> Iterator[Tensor]:
        """Real images without end, pass after pass; ``first`` batches are already read."""
        config, part = self.config, self.train_part
        in_pass = len(part) // config.batch_size
        passes, done = divmod(first, in_pass)
        rank, world = self.fabric.global_rank, self.fabric.world_size
        while True:
            order = shuffle_indices(len(part), config.seed, passes)[: in_pass * config.batch_size]
            batches = part.batches(order, config.batch_size, rank=rank, world=world, first=done, epoch=passes)
            for images, _ in batches:
                yield resize(images)
            passes, done = passes + 1, 0

    @torch.no_grad()
    def generate(self, count: int) -> Tensor:
        """Images from a fixed z, by the average generator where there is one, in evaluation mode."""
        generator = self.models["generator"]
        generator.eval()
        noise = fixed_noise(count, self.latent).to(self.fabric.device, self.train_part.mean.dtype)
        pieces = []
        for z in noise.split(GENERATE_BATCH):
            with self.fabric.autocast():
                if self.options["ema"]:
                    pieces.append(functional_call(generator, self.average, (z,)))
                else:
                    pieces.append(generator(z))
        generator.train()
        return torch.cat(pieces).to(self.train_part.mean.dtype).contiguous()

    def distance(self, images: Tensor) -> float:
        """The Frechet distance between generated and test images on random features."""
        from oni.recipes.metrics.frechet import frechet_distance

        extractor = RandomFeatures(self.channels).to(self.fabric.device)
        if self.real_features is None:
            count = min(len(self.test_part), self.options["distance_samples"])
            chosen = shuffle_indices(len(self.test_part), 0)[:count]
            real = self.test_part.batch(chosen)[0]
            self.real_features = extract(extractor, to_bytes(resize(real)))
        return frechet_distance(self.real_features, extract(extractor, images))
