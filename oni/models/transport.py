"""Values of weights from their owners to all ranks, and gradients from all ranks to the owners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["Slot", "Transport"]


class Slot(NamedTuple):
    """A weight on its way."""

    owner: int
    """A rank of the group."""
    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


class Transport:
    """The ranks of a group. All of them call the same methods with the same slots in the same order."""

    def __init__(self, group: dist.ProcessGroup, ranks: list[int]) -> None:
        self.group, self.ranks = group, ranks
        self.rank = dist.get_rank(group)

    def broadcast(self, values: Mapping[int, Tensor], slots: Mapping[int, Slot]) -> dict[int, Tensor]:
        """Send the values of this rank's own weights to all; return those of all weights."""
        flat: dict[Any, Tensor] = {}
        for key, together in group_slots(slots).items():
            if key.owner == self.rank:
                flat[key] = torch.cat([values[index].detach().reshape(-1) for index in together])
            else:
                size = sum(slots[index].shape.numel() for index in together)
                flat[key] = torch.empty(size, dtype=key.dtype, device=key.device)
        self.run(dist.broadcast, flat)
        return split_flat(flat, slots)

    def reduce(self, gradients: Mapping[int, Tensor], slots: Mapping[int, Slot]) -> dict[int, Tensor]:
        """Add up gradients at the owners, a missing one being zero; return the sums of this rank's own weights."""

        def entries(index: int) -> Tensor:
            if index in gradients:
                return gradients[index].reshape(-1)
            slot = slots[index]
            return torch.zeros(slot.shape.numel(), dtype=slot.dtype, device=slot.device)

        flat = {key: torch.cat([*map(entries, together)]) for key, together in group_slots(slots).items()}
        self.run(dist.reduce, flat)
        return split_flat(flat, {index: slot for index, slot in slots.items() if slot.owner == self.rank})

    def run(self, operation: Any, flat: Mapping[Any, Tensor]) -> None:
        """Start an operation for each owner, then wait for all."""
        works = [
            operation(tensor, self.ranks[key.owner], group=self.group, async_op=True) for key, tensor in flat.items()
        ]
        for work in works:
            work.wait()


def group_slots(slots: Mapping[int, Slot]) -> dict[Slot, list[int]]:
    """Which weights travel together: those of one owner, dtype and device."""
    together: dict[Slot, list[int]] = {}
    for index, slot in slots.items():
        together.setdefault(slot._replace(shape=torch.Size()), []).append(index)
    return together


def split_flat(flat: Mapping[Slot, Tensor], slots: Mapping[int, Slot]) -> dict[int, Tensor]:
    """The weights that travelled together, each on its own."""
    values = {}
    for key, together in group_slots(slots).items():
        sizes = [slots[index].shape.numel() for index in together]
        for index, part in zip(together, flat[key].split(sizes), strict=True):
            # .data: they share memory but no version, so that no write to one looks like a write to all.
            values[index] = part.view(slots[index].shape).data
    return values
