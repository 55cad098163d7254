"""What orthogonalisation adds to a step of several devices, by counted products and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import nn

import oni
from oni.models.share import assign_owners, count_multiply_adds, find_members

__all__ = ["GPU", "Devices", "Work", "count_network_work", "predict_added"]


@dataclass(frozen=True)
class Work:
    """The weights of a network."""

    multiply_adds: tuple[int, ...]
    """Of each, forward and backward."""
    weight_bytes: int
    """Of all."""

    def largest_share(self, devices: int) -> float:
        """What the busiest of so many devices computes, as a part of everything.

        >>> Work((3, 2, 2, 1), 0).largest_share(2)
        0.5
        """
        loads = [0] * devices
        for cost, owner in zip(self.multiply_adds, assign_owners(self.multiply_adds, devices), strict=True):
            loads[owner] += cost
        return max(loads) / sum(loads)


def count_network_work(net: nn.Module, steps: int) -> Work:
    """The work of a plain network, which is converted for that."""
    members = find_members(oni.convert(net, steps=steps))
    costs = tuple(count_multiply_adds(member.parametrization) for member in members)
    return Work(costs, sum(member.Z.nbytes for member in members))


class Devices(NamedTuple):
    """Assumptions about devices that can't be measured here."""

    about: str
    multiply_adds_per_second: float
    bytes_per_second: float
    """From each device to the others."""
    seconds_per_operation: float
    """That an operation between devices takes, however little it sends."""


GPU = Devices(
    "GPUs of 5e12 multiply-adds a second in float32 (half of an A100's peak), 1e11 bytes a second between any two "
    "(a third of its NVLink), 30 microseconds for each operation between them",
    5e12,
    1e11,
    30e-6,
)


def predict_added(devices: Devices, work: Work, count: int) -> tuple[float, float]:
    """Seconds that orthogonalisation adds to a step of ``count`` devices, without and with sharing.

    Without, every device computes all. With, the busiest computes its share, and weights and gradients travel once
    each, all but the own ones, by an operation for each owner; two more are for the roll calls.

    >>> predict_added(Devices("", 1e9, 1e9, 0.0), Work((500_000_000, 500_000_000), 100_000_000), 2)
    (1.0, 0.6)
    """
    alone = sum(work.multiply_adds) / devices.multiply_adds_per_second
    if count == 1:
        return alone, alone
    travelling = 2 * work.weight_bytes * (1 - 1 / count) / devices.bytes_per_second
    operations = 2 * count + 2
    return alone, work.largest_share(count) * alone + travelling + operations * devices.seconds_per_operation
