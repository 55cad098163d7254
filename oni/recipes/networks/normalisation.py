"""Normalisation layers, which may follow a convolution."""

from __future__ import annotations

from torch import nn

__all__ = ["NORMS", "norm_layer"]

NORMS = ("none", "batch", "group")


def norm_layer(norm: str, channels: int, groups: int = 32, group_size: int = 0) -> nn.Module:
    """A normalisation layer for a number of channels, or the identity.

    Args:
        norm: ``"none"``, ``"batch"`` or ``"group"``.
        channels: how many there are.
        groups: of GroupNorm, capped at the number of channels as in the authors' code: it is then InstanceNorm.
        group_size: channels in each group, at most all of them; 0 to use ``groups`` instead.

    >>> norm_layer("group", 16).num_groups, norm_layer("group", 64, group_size=16).num_groups
    (16, 4)
    """
    if norm == "none":
        return nn.Identity()
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "group":
        if group_size < 0 or (group_size and channels % min(group_size, channels)):
            raise ValueError(f"group_size must divide the {channels} channels of a layer or be 0, got {group_size}")
        return nn.GroupNorm(channels // min(group_size, channels) if group_size else min(groups, channels), channels)
    raise ValueError(f"norm must be one of {', '.join(map(repr, NORMS))}, got {norm!r}")
