"""What features are taken from, and all that a reported number has to say of it; the Inception network from a file."""

from __future__ import annotations

import hashlib
import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oni.checkpoints.files import refuse_device

__all__ = ["KNOWN", "Extractor", "load_inception", "resize_as_tensorflow"]

KNOWN = {
    "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34": "fid-helper weights",
}
"""Inception files that are known to be what they say, by their digest."""
LARGEST = 1 << 30
INCEPTION_SIZE = 299
CPU_BATCH = 5
"""Images at once on a CPU: measured on an AMD EPYC, one thread, each of 50 at once takes a third longer."""
PREPARATION = f"resized to {INCEPTION_SIZE} x {INCEPTION_SIZE}, bilinear as TensorFlow 1 did it"


@dataclass(frozen=True)
class Extractor:
    """A network whose inner values are compared, and all that a reported number has to say of it."""

    kind: str
    """``"inception"`` or ``"classifier"``: what the numbers are called."""
    label: str
    sha256: str
    """Of its weights."""
    preparation: str
    """What is done to images first."""
    module: nn.Module
    """From bytes (n, channels, height, width) to features, or to features and the scores of classes."""
    batch: int = 50
    """Images at once."""

    @torch.no_grad()
    def extract(self, images: Tensor) -> tuple[Tensor, Tensor | None]:
        """Features and class scores (or ``None``) of a batch, in float32 on the CPU."""
        output: Any = self.module(images)
        features, logits = output if isinstance(output, tuple) else (output, None)
        return features.float().cpu(), None if logits is None else logits.float().cpu()


def load_inception(path: Path, sha256: str | None = None, device: str = "cpu") -> Extractor:
    """The Inception network from a TorchScript file.

    It gets images (n, 3, 299, 299), pixels less 128 divided by 128, and returns the 2048 pooled features, or a pair of
    these and the scores of classes.

    Args:
        path: the file.
        sha256: its digest, if it is none of the ``KNOWN``: a TorchScript file is a program, so only one that the user
            vouches for is loaded.
        device: where to put it.
    """
    refuse_device(path)
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path}: larger than {LARGEST:,} bytes, so not an Inception network")
    # Read once: what is loaded is what was looked at.
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if sha256 is not None and sha256.lower() != digest:
        raise ValueError(f"{path}: has the sha256 {digest}, but --inception-sha256 is {sha256}; nothing was run")
    if sha256 is None and digest not in KNOWN:
        raise ValueError(
            f"{path}: unknown Inception weights; such a file is a program that would run here. If you trust it, "
            f"pass --inception-sha256 {digest}"
        )
    with warnings.catch_warnings():
        # torch would rather have exported programs.
        warnings.simplefilter("ignore", DeprecationWarning)
        network = torch.jit.freeze(torch.jit.load(io.BytesIO(content), map_location=device).eval())
    label = KNOWN.get(digest, f"weights {digest[:8]}")
    batch = {"batch": CPU_BATCH} if torch.device(device).type == "cpu" else {}
    return Extractor("inception", label, digest, PREPARATION, Inception(network, device), **batch)


class Inception(nn.Module):
    """From bytes to what the Inception network makes of them."""

    def __init__(self, network: Any, device: str) -> None:
        super().__init__()
        self.network, self.device = network, device

    def forward(self, images: Tensor) -> Any:
        x = images.to(self.device, torch.float32)
        x = resize_as_tensorflow(x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x, INCEPTION_SIZE)
        return self.network(((x - 128) / 128).contiguous(memory_format=torch.channels_last))


def resize_as_tensorflow(images: Tensor, size: int) -> Tensor:
    """Bilinear, with output pixel i at input position i * old / new, as the code of FID does it.

    >>> resize_as_tensorflow(torch.tensor([[[[0.0, 1.0], [2.0, 3.0]]]]), 4)[0, 0, :2]
    tensor([[0.0000, 0.5000, 1.0000, 1.0000],
            [1.0000, 1.5000, 2.0000, 2.0000]])
    """
    height, width = images.shape[-2:]
    axes = []
    for length in (height, width):
        positions = torch.arange(size, dtype=images.dtype, device=images.device) * (length / size)
        axes.append((positions + 0.5) * 2 / length - 1)
    rows, columns = torch.meshgrid(*axes, indexing="ij")
    grid = torch.stack([columns, rows], -1).expand(len(images), -1, -1, -1)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
