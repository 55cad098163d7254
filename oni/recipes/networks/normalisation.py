"""Normalisation layers, which may follow a convolution."""

from __future__ import annotations

from torch import nn

__all__ = ["NORMS", "norm_layer"]

NORMS = ("none", "batch", "group")


def norm_layer(norm: str, channels: int, groups: int = 32) -> nn.Module:
    """A normalisation of so many channels, or nothing.

    Args:
        norm: ``"none"``, ``"batch"`` or ``"group"``.
        channels: how many there are.
        groups: of GroupNorm; capped at the number of channels, as the authors' code does, where it then is
            InstanceNorm.

    >>> norm_layer("group", 16).num_groups
    16
    """
    if norm == "none":
        return nn.Identity()
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "group":
        return nn.GroupNorm(min(groups, channels), channels)
    raise ValueError(f"norm must be one of {', '.join(map(repr, NORMS))}, got {norm!r}")
