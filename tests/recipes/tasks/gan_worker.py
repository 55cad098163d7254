"""A toy GAN, and a process that trains it, or the task gan with REAL=1: python gan_worker.py OUT ENDING...

Each ENDING is a training, one after the other: "whole" into OUT/whole, "resume" into OUT/cut, "kill:N" into OUT/cut
with kill -9 by itself after step N. Under torchrun, all processes do the same.
"""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from oni.recipes.data.batches import shuffle_indices
from oni.recipes.data.images import Images
from oni.recipes.run_files.config import Config
from oni.recipes.task_registry import TASKS, RegisteredTask
from oni.recipes.training.devices import Hardware
from oni.recipes.training.parts import split
from oni.recipes.training.run import train
from oni.recipes.training.task import Task

PIXELS, NOISE = 12, 4


class ToyGAN(Task):
    """Two networks, two optimisers, several steps of the discriminator for each of the generator."""

    metrics = ("d_loss", "g_loss", "fake_mean")

    def __init__(self, config, fabric, dataset):
        self.part = split(dataset, config, fabric.device, torch.float64).train
        super().__init__(config, fabric, dataset)

    def build_models(self):
        generator = nn.Sequential(nn.Linear(NOISE, 8), nn.ReLU(), nn.Linear(8, PIXELS), nn.Tanh())
        drop = nn.Dropout(self.config.task_options["dropout"])
        discriminator = nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, 8), nn.LeakyReLU(0.1), drop, nn.Linear(8, 1))
        return {"generator": generator.double(), "discriminator": discriminator.double()}

    def build_optimizers(self):
        # With betas as GANs have them; Adam's moments are state of another kind than the weights.
        return {
            name: torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.0, 0.9)) for name, model in self.models.items()
        }

    @property
    def d_steps(self):
        return self.config.task_options["d_steps"]

    @property
    def steps_per_epoch(self):
        return len(self.part) // (self.config.batch_size * self.d_steps)

    def start_epoch(self, epoch, first):
        order = shuffle_indices(len(self.part), self.config.seed, epoch)
        rank, world = self.fabric.global_rank, self.fabric.world_size
        self.batches = self.part.batches(
            order, self.config.batch_size, rank=rank, world=world, first=first * self.d_steps, epoch=epoch
        )
        self.step = epoch * self.steps_per_epoch + first
        for model in self.wrapped.values():
            model.train()

    def noise(self, number):
        """For the whole batch, then this process's share: the same over any number of processes."""
        generator = torch.Generator().manual_seed(1000 * self.step + number)
        values = torch.randn(self.config.batch_size, NOISE, generator=generator, dtype=torch.float64)
        return values.chunk(self.fabric.world_size)[self.fabric.global_rank]

    def train_step(self):
        generator, discriminator = self.wrapped["generator"], self.wrapped["discriminator"]
        for number in range(self.d_steps):
            real, _ = next(self.batches)
            with torch.no_grad():
                fake = generator(self.noise(number))
            scores = discriminator(torch.cat([real.flatten(1), fake]))
            real_scores, fake_scores = scores.chunk(2)
            d_loss = F.relu(1 - real_scores).mean() + F.relu(1 + fake_scores).mean()
            self.optimizers["discriminator"].zero_grad()
            self.fabric.backward(d_loss)
            self.optimizers["discriminator"].step()
        g_loss = -discriminator(generator(self.noise(self.d_steps))).mean()
        self.optimizers["generator"].zero_grad()
        self.fabric.backward(g_loss)
        self.optimizers["generator"].step()
        count = len(real)
        self.totals.add(count, d_loss=d_loss.detach() * count, g_loss=g_loss.detach() * count)
        self.step += 1

    @torch.no_grad()
    def measure(self):
        noise = torch.randn(64, NOISE, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        fake = self.wrapped["generator"](noise)
        return {**self.totals.means(), "fake_mean": float(fake.mean())}


TASKS["toy-gan"] = RegisteredTask(ToyGAN, {"d_steps": 2, "dropout": 0.5})


def make_images():
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (100, 1, 3, 4), dtype=torch.uint8, generator=generator)
    labels = torch.zeros(100, dtype=torch.uint8)
    return Images(pixels[:80], labels[:80], pixels[80:], labels[80:])


IMAGES = make_images()


def make_config():
    return Config(data="fashion-mnist-sample", task="toy-gan", batch_size=8, epochs=3, watch=("end",))


def make_real_config():
    """A GAN without batch normalisation, which torch can't compute over processes on CPUs."""
    return Config(
        data="fashion-mnist-sample",
        task="gan",
        task_options={"n_dis": 2, "updates": 5, "ema": 0.9, "distance_samples": 0},
        network="dcgan",
        network_options={"width": 2, "channels": 1, "norm": "none"},
        method="oni-ns",
        method_options={"steps": 2, "learn_scale": False},
        optimizer="adam",
        learning_rate=0.002,
        batch_size=8,
        epochs=2,
        drops=(),
        precision="64-true",
        watch=("end",),
    )


def kill_at(step):
    def look(done, models):
        if done == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return look


def run(out, ending, config=None):
    """One training; 5 steps an epoch, a checkpoint every 3."""
    kind, _, step = ending.partition(":")
    folder = Path(out) / ("whole" if kind == "whole" else "cut")
    watch = {"end": kill_at(int(step) if kind == "kill" else -1)}
    devices = int(os.environ.get("WORLD_SIZE", 1))
    hardware = Hardware("cpu", devices)
    return train(
        config or make_config(),
        folder,
        data=IMAGES,
        hardware=hardware,
        watch=watch,
        progress="none",
        checkpoint_steps=3,
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    out, *endings = sys.argv[1:]
    for ending in endings:
        run(out, ending, make_real_config() if "REAL" in os.environ else make_config())
    # gloo's threads race with the interpreter's own exit, and now and then abort it.
    os._exit(0)
