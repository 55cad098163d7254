"""A classifier that ``oni`` trained as a source of features and class scores."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from oni.recipes.data.batches import Part
from oni.recipes.data.images import Dataset
from oni.recipes.metrics.extractors import Extractor
from oni.recipes.networks.registry import find_output_layer
from oni.recipes.run_files.trained import TrainedRun, digest_weights
from oni.recipes.tasks.classification import build_network, input_dtype
from oni.recipes.training.parts import split

__all__ = ["load_classifier", "read_classifier"]


def load_classifier(folder: Path, dataset: Dataset) -> Extractor:
    """A classifier that ``oni`` trained, from its run's folder: its features are the inputs of its output layer.

    Args:
        folder: of a finished run of the task ``classification``.
        dataset: the one it was trained on, for the scale of its inputs.
    """
    run = read_classifier(folder)
    config = run.config
    if run.data_sha256 != dataset.sha256:
        raise ValueError(f"{folder}: was trained on other data than these images; pass another classifier")
    network = build_network(config)
    network.load_state_dict(run.models()["network"])
    part = split(dataset, config, torch.device("cpu"), input_dtype(config)).test
    error = run.metrics.get("test_error")
    label = f"{config.network} by oni" + ("" if error is None else f", test error {100 * error:.1f} %")
    height, width = part.batch(torch.arange(1))[0].shape[-2:]
    module = Classifier(network.eval(), part, (height, width))
    return Extractor("classifier", label, digest_weights(run.models()["network"]), f"{height} x {width} pixels", module)


def read_classifier(folder: Path) -> TrainedRun:
    """The run of a classifier, if it is one."""
    run = TrainedRun(folder)
    if run.config.task != "classification":
        raise ValueError(f"{folder}: a run of the task {run.config.task!r}; pass the folder of a classifier")
    return run


class Classifier(nn.Module):
    """From bytes to the inputs of a classifier's output layer, and its class scores."""

    def __init__(self, network: nn.Module, part: Part, size: tuple[int, int]) -> None:
        super().__init__()
        self.network, self.part, self.size = network, part, size
        name = find_output_layer(network)
        if name is None:
            raise ValueError("the classifier has no linear output layer, whose inputs would be its features")
        network.get_submodule(name).register_forward_pre_hook(self.keep)

    def keep(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.features = inputs[0].flatten(1)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        # Without the black that the GAN's images have around them where the data's own are smaller.
        top, left = ((image - own) // 2 for image, own in zip(images.shape[-2:], self.size, strict=True))
        height, width = self.size
        logits = self.network(self.part.scale(images[..., top : top + height, left : left + width]))
        return self.features, logits
