"""The epochs of a run as TensorBoard reads them: a file of events, whole, made anew from all rows.

A record is its length, a checksum of that, the data, a checksum of those; the data are an ``Event`` message in the wire
format of protocol buffers. Both are few enough lines to need no package.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["event_file"]

SCALARS = {
    "loss/train": "train_loss",
    "loss/validation": "validation_loss",
    "loss/test": "test_loss",
    "error/train": "train_error",
    "error/validation": "validation_error",
    "error/test": "test_error",
    "learning_rate": "learning_rate",
}
"""What TensorBoard shows, by the columns of ``epochs.csv``."""


def event_file(rows: Sequence[Mapping[str, Any]], started: float) -> bytes:
    """All rows as one file; ``started`` is when the run began, in seconds since 1970.

    >>> event_file([], 0.0)[23:-4]
    b'brain.Event:2'
    """
    return b"".join(map(record, events(rows, started)))


def events(rows: Sequence[Mapping[str, Any]], started: float) -> Iterator[bytes]:
    yield double(1, started) + text(3, "brain.Event:2")
    now = started
    for row in rows:
        now += row["seconds"]
        values = b"".join(
            nested(1, text(1, tag) + single(2, row[column]))
            for tag, column in SCALARS.items()
            if row[column] is not None
        )
        yield double(1, now) + whole(2, row["steps"]) + nested(5, values)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + checksum(length) + data + checksum(data)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    return varint(field << 3 | 5) + struct.pack("<f", value)


def whole(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def nested(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def text(field: int, value: str) -> bytes:
    return nested(field, value.encode())


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first.

    >>> list(varint(300))
    [172, 2]
    """
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def crc_table() -> list[int]:
    """Of the Castagnoli polynomial, for each byte."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


TABLE = crc_table()


def checksum(data: bytes) -> bytes:
    """CRC-32C, turned and shifted as TensorFlow has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
