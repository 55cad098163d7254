"""IDX files, the format of MNIST and similar data sets: a magic number, the dimensions, then bytes."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

__all__ = ["read_idx", "write_idx"]

# Two zero bytes, the type (8 is unsigned bytes), the number of dimensions.
BYTES = 0x08


def read_idx(path: Path, shape: tuple[int | None, ...]) -> Tensor:
    """Read a file of unsigned bytes, gzipped or not, of this shape; ``None`` leaves a dimension open.

    Nothing larger than the header allows is ever read, whatever a compressed file claims to hold.

    Raises:
        ValueError: if the file is something else; the message names it and says what was expected.
    """
    open_file = gzip.open if path.suffix == ".gz" else open
    try:
        with open_file(path, "rb") as file:
            header = file.read(4 + 4 * len(shape))
            if len(header) < 4 + 4 * len(shape):
                raise ValueError(f"{path}: truncated within its header; download the file again")
            magic, *dimensions = struct.unpack(f">{1 + len(shape)}I", header)
            expected = BYTES << 8 | len(shape)
            if magic != expected:
                raise ValueError(
                    f"{path}: magic number {magic:#06x}, expected {expected:#06x}; this is another kind of file"
                )
            for length, expected_length in zip(dimensions, shape, strict=True):
                if expected_length not in (None, length):
                    raise ValueError(f"{path}: dimensions {tuple(dimensions)}, expected {shape}")
            size = math.prod(dimensions)
            if size > 1 << 31:
                raise ValueError(f"{path}: its header claims {size} bytes, more than any such data set has")
            content = bytearray(file.read(size + 1))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: the compressed data is damaged or cut off ({error}); download it again") from None
    if len(content) != size:
        more = "more" if len(content) > size else f"{len(content)}"
        raise ValueError(f"{path}: its header promises {size} bytes of data, but it has {more}; download it again")
    return torch.frombuffer(content, dtype=torch.uint8).reshape(tuple(dimensions))


def write_idx(path: Path, data: Tensor) -> None:
    """Write unsigned bytes as a gzipped file that is the same each time."""
    header = struct.pack(f">{1 + data.dim()}I", BYTES << 8 | data.dim(), *data.shape)
    content = header + bytes(data.contiguous().flatten().tolist())
    path.write_bytes(gzip.compress(content, compresslevel=9, mtime=0))
