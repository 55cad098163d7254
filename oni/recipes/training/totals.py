"""Sums over an epoch, kept on the device: adding to them never waits for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Totals", "sum_over_processes"]


def sum_over_processes(fabric: Fabric, value: Tensor) -> Tensor:
    """The sum of a tensor over all processes; every process takes part."""
    if fabric.world_size == 1:
        return value
    # A copy: the reduction is in place.
    return cast(Tensor, fabric.all_reduce(value.clone(), reduce_op="sum"))


class Totals:
    """Named sums over the samples of this process since the last ``clear``, and the number of samples."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        self.clear()

    def clear(self) -> None:
        """Start again from nothing."""
        self.sums: dict[str, Tensor] = {}
        self.count = 0

    def add(self, count: int, **values: Tensor) -> None:
        """Add the sums over ``count`` samples of this process."""
        self.count += count
        for name, value in values.items():
            if name not in self.sums:
                self.sums[name] = torch.zeros((), dtype=torch.float64, device=self.fabric.device)
            self.sums[name] += value.detach()

    def means(self) -> dict[str, float]:
        """Every mean over the samples of all processes; every process takes part. This waits for the device."""
        if not self.sums:
            return {}
        count = torch.tensor(self.count, dtype=torch.float64, device=self.fabric.device)
        *sums, total = sum_over_processes(self.fabric, torch.stack([*self.sums.values(), count])).tolist()
        if not total:
            raise ValueError("no sample could be read")
        return {name: value / total for name, value in zip(self.sums, sums, strict=True)}

    def total(self) -> int:
        """How many samples of all processes there were; every process takes part. This waits for the device."""
        count = torch.tensor(self.count, dtype=torch.int64, device=self.fabric.device)
        return int(sum_over_processes(self.fabric, count))

    def state_dict(self) -> dict[str, Any]:
        """The sums of this process alone."""
        return {"sums": {name: value.cpu() for name, value in self.sums.items()}, "count": self.count}

    def load_state_dicts(self, states: Sequence[Mapping[str, Any]]) -> None:
        """Continue from the states that all processes had.

        Adding in another order would round differently, so each process takes back its own sums. If the number of
        processes has changed, the first takes them all.
        """
        self.clear()
        rank = self.fabric.global_rank
        own = [states[rank]] if len(states) == self.fabric.world_size else states if rank == 0 else []
        # Every process has every name, for they are summed together.
        self.add(0, **{name: torch.zeros_like(value) for state in states for name, value in state["sums"].items()})
        for state in own:
            self.add(state["count"], **state["sums"])
