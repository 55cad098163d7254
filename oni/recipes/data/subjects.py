"""What can be trained on what: data sets and networks, each under one word. A new one is a function and a line."""

from __future__ import annotations

import difflib
import hashlib
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from oni.recipes.data import fashion_mnist
from oni.recipes.networks.mlp import MLP
from oni.recipes.networks.resnet_cifar import ResNetCIFAR
from oni.recipes.networks.vgg import VGG

__all__ = ["DATASETS", "NETWORKS", "Images", "network_options", "output_layer", "unknown"]


@dataclass(frozen=True)
class Images:
    """A data set in memory: images (n, channels, height, width) and labels (n,), all bytes."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def sha256(self) -> str:
        """Which data these are."""
        digest = hashlib.sha256()
        for part in (self.train_images, self.train_labels, self.test_images, self.test_labels):
            digest.update(f"{tuple(part.shape)} {part.dtype}".encode())
            digest.update(part.contiguous().numpy().data)
        return digest.hexdigest()


def full_fashion_mnist(folder: Path | None) -> Images:
    found = fashion_mnist.load(folder)
    if found.source != "full":
        raise FileNotFoundError(
            "the full Fashion-MNIST is not on this machine: pass the folder of its four files as --data (with "
            "--download to fetch them there), or train on data=fashion-mnist-sample"
        )
    return grey(found)


def grey(found: fashion_mnist.FashionMNIST) -> Images:
    return Images(found.train_images[:, None], found.train_labels, found.test_images[:, None], found.test_labels)


DATASETS: dict[str, Callable[[Path | None], Images]] = {
    "fashion-mnist": full_fashion_mnist,
    "fashion-mnist-sample": lambda folder: grey(fashion_mnist.load("sample")),
}
"""From the folder that the user names, if any, to the data."""

NETWORKS: dict[str, Callable[..., nn.Module]] = {"mlp": MLP, "vgg": VGG, "resnet-cifar": ResNetCIFAR}
"""From the options of a network to the plain network."""


def network_options(network: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every option of a network: the given ones and the defaults of the others.

    >>> network_options("mlp", {"depth": 4})
    {'depth': 4, 'width': 256, 'inputs': 784, 'classes': 10, 'bias': True, 'norm': 'none'}
    """
    known = inspect.signature(NETWORKS[network]).parameters
    for name in given:
        if name not in known:
            raise ValueError(f"network {network!r} has no option {name!r}; {unknown(name, known)}")
    options = {name: given.get(name, parameter.default) for name, parameter in known.items()}
    missing = [name for name, value in options.items() if value is inspect.Parameter.empty]
    if missing:
        raise ValueError(f"network {network!r} needs {', '.join(missing)}: pass network_options.{missing[0]}=...")
    return options


def output_layer(network: nn.Module) -> str:
    """The name of the layer that gives the classes: the last linear one."""
    return [name for name, module in network.named_modules() if isinstance(module, nn.Linear)][-1]


def unknown(name: str, known: Collection[str]) -> str:
    """What to say of a name that is not known.

    >>> unknown("sead", ["seed", "data"])
    "the nearest is 'seed', and all are: seed, data"
    """
    if not known:
        return "there is none"
    (close,) = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return f"the nearest is {close!r}, and all are: {', '.join(known)}"
