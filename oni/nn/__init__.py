"""Orthogonal weights as torch modules, and an activation that goes with them."""

from oni.nn.group_sort import GroupSort
from oni.nn.layers import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Linear

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "GroupSort", "Linear"]
