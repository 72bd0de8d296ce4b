"""TensorBoard event files, written frame by frame for the tests."""

from __future__ import annotations

import struct
from pathlib import Path

from exporter.formats.tfevents import crc32c, masked

NAME = "events.out.tfevents.1700000000.host.7.0"
"""What PyTorch calls such a file: when it was begun, by which process."""


def frame(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    head = length + struct.pack("<I", masked(crc32c(length)))
    return head + data + struct.pack("<I", masked(crc32c(data)))


def packed(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(data)) + data


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def event(step: int, wall: float, plugin: str = "", **values: float) -> bytes:
    """Return a frame with one event."""
    summary = b""
    for tag, value in values.items():
        metadata = packed(9, packed(1, packed(1, plugin.encode()))) if plugin else b""
        body = packed(1, tag.encode()) + b"\x15" + struct.pack("<f", value) + metadata
        summary += packed(1, body)
    body = b"\x09" + struct.pack("<d", wall) + b"\x10" + varint(step) + packed(5, summary)
    return frame(body)


def write(path: Path, *frames: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.writelines(frames)
