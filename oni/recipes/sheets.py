"""Sheets of images: many small ones in rows, as a PNG."""

from __future__ import annotations

import io

import torch
from PIL import Image
from torch import Tensor

__all__ = ["make_sheet", "to_bytes", "write_sheet"]

GAP = 2
"""White pixels between two images."""


def to_bytes(images: Tensor) -> Tensor:
    """Images in [-1, 1] as bytes, rounded.

    >>> to_bytes(torch.tensor([-1.0, 0.0, 1.0])).tolist()
    [0, 128, 255]

    Raises:
        ValueError: naming the images that hold NaN or infinity.
    """
    bad = (~torch.isfinite(images)).reshape(len(images), -1).any(1).nonzero().flatten().tolist()
    if bad:
        shown = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
        raise ValueError(f"{len(bad)} of {len(images)} images contain NaN or infinity: {shown}; the generator diverged")
    return ((images + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)


def make_sheet(images: Tensor, columns: int = 8) -> Tensor:
    """Images (n, channels, height, width) in rows, as one image (channels, ...) with white between them."""
    n, channels, height, width = images.shape
    rows = -(-n // columns)
    sheet = images.new_full((channels, rows * (height + GAP) - GAP, columns * (width + GAP) - GAP), 255)
    for index, image in enumerate(images):
        top, left = index // columns * (height + GAP), index % columns * (width + GAP)
        sheet[:, top : top + height, left : left + width] = image
    return sheet


def write_sheet(images: Tensor, columns: int = 8) -> bytes:
    """A sheet of images, which are bytes, as the content of a PNG file."""
    sheet = make_sheet(images, columns).permute(1, 2, 0).contiguous().cpu().numpy()
    content = io.BytesIO()
    Image.fromarray(sheet[:, :, 0] if sheet.shape[2] == 1 else sheet).save(content, "PNG", optimize=True)
    return content.getvalue()
