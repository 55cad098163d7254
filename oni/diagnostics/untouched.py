"""Looking at a model without leaving a trace in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["sample_input", "untouched"]


@contextmanager
def untouched(model: nn.Module, *, training: bool | None = None) -> Iterator[None]:
    """Inside it, run the model, in the given mode; afterwards modes, buffers and random numbers are as before."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers() if not buffer.is_meta]
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        try:
            if training is not None:
                model.train(training)
            yield
        finally:
            for module, mode in modes:
                module.training = mode
            with torch.no_grad():
                for buffer, value in buffers:
                    # A write raises the version, which graphs that saved the buffer would notice.
                    if not torch.equal(buffer, value):
                        buffer.copy_(value)


def sample_input(model: nn.Module, input_size: tuple[int, ...] | list[int] | int, batch_size: int = 1) -> torch.Tensor:
    """Zeros of this size, without and then with the batch, in the model's dtype and on its device."""
    shape = (input_size,) if isinstance(input_size, int) else tuple(input_size)
    if not shape or not all(isinstance(size, int) and size > 0 for size in shape):
        raise ValueError(
            f"input_size must be positive whole numbers without the batch, e.g. (3, 32, 32), got {input_size!r}"
        )
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
    return torch.zeros(batch_size, *shape, dtype=like.dtype, device=like.device)
