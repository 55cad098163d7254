"""``oni bench models``: what a training step of a whole network costs, and what each method adds to it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

import oni
from oni.bench.contender import measure_orthogonality
from oni.bench.limit import finish
from oni.bench.models.methods import apply_authors_form, layers_of, list_training_methods
from oni.bench.models.recurrent import Recurrent
from oni.bench.models.result import ForwardTimes, ModelResult
from oni.bench.probe import shorten_error
from oni.bench.settings import SEED, Settings
from oni.bench.training import Loss, TrainingStep, adversarial, classification
from oni.bench.training_times import STEPS, MethodTimes, TrainingMethod
from oni.recipes.networks.dcgan import Discriminator
from oni.recipes.networks.mlp import MLP
from oni.recipes.networks.resnet_cifar import resnet110
from oni.recipes.networks.resnet_imagenet import resnet18
from oni.recipes.networks.vgg import VGG
from oni.timing import Watch, interleaved

__all__ = ["MODEL_CASES", "ModelCase", "measure_model"]

TRAINING = 0.8
"""The part of the time budget that training steps get; the rest is for forward passes."""
TRIED, TRAINED = 0.25, 0.85
"""Which part of a case is over, once every method has been tried, and once the training steps are done."""


@dataclass(frozen=True)
class ModelCase:
    """A network and the batches that it is trained on."""

    name: str
    about: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    """Of one image."""
    batch: int
    classes: int = 10
    adversarial: bool = False
    """A discriminator: a batch of real and one of fake images in each step, and scores for classes."""
    compiled: bool = False
    """Beside ``torch.compile``, which takes minutes where a network is deep."""
    quick: bool = False
    """Part of a quick run."""
    only: str | None = None
    """The one layer whose weight is to be orthogonal; by default every layer's."""

    def loss(self, device: str) -> Loss:
        if self.adversarial:
            return adversarial(self.shape, self.batch, device)
        return classification(self.shape, self.batch, self.classes, device)


CIFAR = (3, 32, 32)

MODEL_CASES = (
    ModelCase(
        "mlp20-b256", "20-layer 784-256 MLP, batch 256", partial(MLP, 20), (784,), 256, compiled=True, quick=True
    ),
    ModelCase(
        "rnn256-b64",
        "recurrent cell of width 256 over 50 positions, batch 64, its recurrent weight alone",
        Recurrent,
        (50, 10),
        64,
        quick=True,
        only="recurrent",
    ),
    ModelCase("vgg-g2k1-b128", "VGG-style g=2 k=1 at 32x32, batch 128", partial(VGG, 2, 1), CIFAR, 128, compiled=True),
    # What is added does not depend on the batch; the noise of a large one's convolutions hides it.
    ModelCase("vgg-g2k1-b8", "VGG-style g=2 k=1 at 32x32, batch 8", partial(VGG, 2, 1), CIFAR, 8),
    ModelCase("resnet110-b2", "ResNet-110 without BN at 32x32, batch 2", resnet110, CIFAR, 2, quick=True),
    ModelCase("resnet110-b128", "ResNet-110 without BN at 32x32, batch 128", resnet110, CIFAR, 128),
    ModelCase("resnet18-b32", "ResNet-18 at 64x64, batch 32", partial(resnet18, classes=200), (3, 64, 64), 32, 200),
    ModelCase(
        "dcgan-b64",
        "DCGAN discriminator at 32x32, 64 real and 64 fake images",
        Discriminator,
        CIFAR,
        64,
        adversarial=True,
        compiled=True,
    ),
)


def measure_model(case: ModelCase, result: ModelResult, settings: Settings, watch: Watch) -> None:
    """Try every method, then time training steps, then forward passes; ``result`` is filled on the way."""
    torch.manual_seed(SEED)
    plain = case.build().to(settings.device)
    loss = case.loss(settings.device)
    steps = first_steps(case, plain, loss, result, settings, watch)
    times = {name: result.entries[name].times for name in steps}
    rounds = settings.least_rounds
    for done in interleaved(steps, times, seconds=TRAINING * settings.seconds, least_rounds=rounds):
        watch("training in turns", TRIED + (TRAINED - TRIED) * done)
    steps.clear()
    images = torch.randn(case.batch, *case.shape, device=settings.device)
    with evaluation_copies(plain, case.only) as nets:
        calls = {name: partial(run_forward, net, images) for name, net in nets.items()}
        for call in calls.values():
            call()
        result.forward.update({name: ForwardTimes() for name in nets})
        times = {name: entry.times for name, entry in result.forward.items()}
        for done in interleaved(calls, times, seconds=(1 - TRAINING) * settings.seconds, least_rounds=rounds):
            watch("evaluating in turns", TRAINED + (1 - TRAINED) * done)


def first_steps(
    case: ModelCase, plain: nn.Module, loss: Loss, result: ModelResult, settings: Settings, watch: Watch
) -> dict[str, TrainingStep]:
    """A copy of the network for each method, one step done; the result says why a method is left out."""
    steps: dict[str, TrainingStep] = {}
    compiled = case.compiled and not settings.quick
    methods = list_training_methods(only=case.only, cached=case.adversarial, compiled=compiled)
    for number, method in enumerate(methods):
        watch(f"trying {method.name}", TRIED * number / len(methods))
        entry = result.entries[method.name] = MethodTimes(method)
        entry.word = why_skip(method, plain, 1 + case.adversarial, settings.patience)
        if entry.word:
            continue
        try:
            net = deepcopy(plain)
            method.apply(net)
            if method.orthogonal and not (method.cached or method.compiled):
                entry.delta = measure_delta(net, case.only)
            step = TrainingStep(net, loss, cached=method.cached)
            if method.compiled:
                net.compile()
                step()
            before = time.perf_counter()
            finite = bool(torch.isfinite(step()))
            entry.first = time.perf_counter() - before
        except (RuntimeError, ValueError, MemoryError) as error:
            entry.word = f"failed: {shorten_error(error)}"
            continue
        if not finite:
            entry.word = "failed: not finite"
        elif not method.patient and entry.first > settings.patience:
            entry.word = f"skipped: one step took {entry.first:.2g} s"
        else:
            steps[method.name] = step
    return steps


@torch.no_grad()
def measure_delta(net: nn.Module, only: str | None = None) -> float:
    """How far from orthogonal all weights together are, or that of ``only``: the root of the sum of squared deltas."""
    weights = [layer.weight.flatten(1) for layer in layers_of(net, only)]
    return math.hypot(*(measure_orthogonality(weight).delta for weight in weights))


def why_skip(method: TrainingMethod, plain: nn.Module, forwards: int, patience: float) -> str:
    """Why not even to try one step, which can't be stopped once it runs; empty if it may run."""
    seconds = 0.0 if method.predict is None else forwards * method.predict(plain)
    return f"skipped: one step would take about {seconds:.0f} s" if seconds > patience else ""


@contextmanager
def evaluation_copies(plain: nn.Module, only: str | None = None) -> Iterator[dict[str, nn.Module]]:
    """Copies that are done with training: plain, converted, cached (while this lasts), baked, and the authors'."""
    steps = STEPS[-1]
    nets = {"plain": deepcopy(plain)}
    for suffix in ("", " cached", " baked"):
        nets[f"oni T={steps}{suffix}"] = oni.convert(deepcopy(plain), only=only, steps=steps)
    oni.bake(nets[f"oni T={steps} baked"])
    nets[f"authors T={steps}"] = deepcopy(plain)
    apply_authors_form(nets[f"authors T={steps}"], steps, only)
    for net in nets.values():
        net.eval()
    with torch.no_grad(), ExitStack() as stack:
        stack.enter_context(oni.cached(nets[f"oni T={steps} cached"]))
        yield nets


def run_forward(net: nn.Module, images: torch.Tensor) -> None:
    """One forward pass, to its end on the device."""
    finish(net(images))
