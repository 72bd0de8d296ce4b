"""Reads TensorBoard's event files: the frames of a TFRecord file, and the scalars in its events.

A frame is a length (8 bytes) with its checksum, data, and the data's checksum; checksums are
CRC-32C, masked (tensorflow/core/lib/hash/crc32c.h). A file grows at its end while the job runs, so
an unfinished frame waits. Damaged data are passed over; where a length is damaged, there is no way
to find the next frame. Of events (event.proto, summary.proto) the scalars are read, as TensorFlow 1
and PyTorch write them (`simple_value`) and as a tensor with one number. Images, histograms and
graphs are passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from exporter.formats import protobuf
from exporter.samples import Malformed

LARGEST = 64 << 20
"""Bytes of data in a frame, at most: a length beyond that is taken for damage."""

INSPECTED = 64 << 10
"""Bytes of data in a frame up to which it is looked at: larger ones are images and graphs."""

_HEAD = struct.Struct("<QI")
_FOOT = struct.Struct("<I")
_MASK = 0xA282EAD8
_MOST_VALUES = 4096
_LATEST = 1e11  # Unix seconds; the year 5138
_FLOAT, _DOUBLE, _INT32, _INT64 = 1, 2, 3, 9
_WIDTHS = {_FLOAT: "<f", _DOUBLE: "<d", _INT32: "<i", _INT64: "<q"}


def _table() -> tuple[int, ...]:
    """Return what one byte does to a CRC-32C (Castagnoli, reflected)."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)  # noqa: PLW2901
        table.append(byte)
    return tuple(table)


_CRC = _table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of some bytes."""
    crc, table = 0xFFFFFFFF, _CRC
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """Return a checksum as it is stored: one of data that hold checksums would be weak."""
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


class Frames(NamedTuple):
    """What a piece of a file holds: the data of whole frames, and where the next one begins.

    Places count from the beginning of the piece. `wanted` is how many bytes the unfinished frame
    at `at` has in all, 0 if that is not known yet. `broken` are the places of frames whose data are
    damaged; they were passed over, as were data that are too large to be looked at. `damage` says
    what is wrong with the length at `at`: nothing can be read behind it.
    """

    data: tuple[bytes, ...]
    at: int
    wanted: int = 0
    broken: tuple[int, ...] = ()
    damage: str = ""


def read_frames(piece: bytes, *, skip: bool = False) -> Frames:
    """Return the frames of a piece that begins at a frame; `skip` only finds where they end."""
    found: list[bytes] = []
    broken: list[int] = []
    at, end, wanted, damage = 0, len(piece), 0, ""
    while end - at >= _HEAD.size:
        length, check = _HEAD.unpack_from(piece, at)
        if check != masked(crc32c(piece[at : at + 8])):
            damage = "the checksum of a length is wrong"
            break
        if length > LARGEST:
            damage = f"a record of {length} bytes"
            break
        whole = _HEAD.size + length + _FOOT.size
        if whole > end - at:
            wanted = whole
            break
        if not skip and length <= INSPECTED:
            start = at + _HEAD.size
            data = piece[start : start + length]
            if _FOOT.unpack_from(piece, start + length)[0] == masked(crc32c(data)):
                found.append(data)
            else:
                broken.append(at)
        at += whole
    return Frames(tuple(found), at, wanted, tuple(broken), damage)


class Event(NamedTuple):
    """One event: its time in Unix seconds, step number, and scalars as tag and value.

    `plugins` are those that its values name: `hparams` marks the table of hyper-parameters.
    `version` is not empty in the first event of a file.
    """

    wall: float
    step: int
    scalars: tuple[tuple[str, float], ...]
    plugins: frozenset[str]
    version: str = ""


def read_event(data: bytes) -> Event:
    """Return what an event says. Raises `Malformed`."""
    wall, step, version = 0.0, 0, ""
    scalars: list[tuple[str, float]] = []
    plugins: set[str] = set()
    for one in protobuf.fields(data):
        if one.number == 1:
            wall = one.real
            if not 0 <= wall < _LATEST:
                raise Malformed(f"{wall:g} is no time")
        elif one.number == 2:
            step = one.integer
        elif one.number == 3:
            version = one.text
        elif one.number == 5:
            for part in protobuf.fields(one.message):
                if part.number == 1 and len(scalars) < _MOST_VALUES:
                    tag, value, plugin = _value(part.message)
                    plugins.add(plugin)
                    if tag and value is not None:
                        scalars.append((tag, value))
    return Event(wall, step, tuple(scalars), frozenset(plugins - {""}), version)


def _value(message: bytes) -> tuple[str, float | None, str]:
    """Return tag, scalar and plugin of one value; tensors of other plugins are no scalars."""
    tag = plugin = ""
    simple: float | None = None
    tensor = b""
    for one in protobuf.fields(message):
        if one.number == 1:
            tag = one.text
        elif one.number == 2 and one.wire == protobuf.FIXED32:
            simple = one.real
        elif one.number == 8:
            tensor = one.message
        elif one.number == 9:
            plugin = _plugin(one.message)
    if simple is None and tensor and plugin in ("", "scalars"):
        simple = _scalar(tensor)
    return tag, simple, plugin


def _plugin(metadata: bytes) -> str:
    for one in protobuf.fields(metadata):
        if one.number == 1:
            for part in protobuf.fields(one.message):
                if part.number == 1:
                    return part.text
    return ""


def _scalar(tensor: bytes) -> float | None:
    """Return the number in a tensor that holds a single one, in either of its two forms."""
    kind, content, numbers = 0, b"", list[float]()
    for one in protobuf.fields(tensor):
        if one.number == 1:
            kind = one.integer
        elif one.number == 2 and any(_sizes(one.message)):
            return None
        elif one.number == 4:
            content = one.message
        elif one.number == 5:
            numbers += protobuf.floats(one.message) if one.wire == protobuf.BYTES else (one.real,)
        elif one.number == 6:
            numbers += protobuf.doubles(one.message) if one.wire == protobuf.BYTES else (one.real,)
        elif one.number in (7, 10) and one.wire == protobuf.VARINT:
            numbers.append(float(one.integer))
    layout = _WIDTHS.get(kind)
    if content and layout is not None and len(content) == struct.calcsize(layout):
        numbers = [float(struct.unpack(layout, content)[0])]
    return numbers[0] if len(numbers) == 1 else None


def _sizes(shape: bytes) -> Iterator[bool]:
    """Yield for each dimension whether it is other than 1."""
    for dimension in protobuf.fields(shape):
        if dimension.number == 2:
            sizes = [one.integer for one in protobuf.fields(dimension.message) if one.number == 1]
            yield sizes != [1]


class Writer(NamedTuple):
    """Who wrote an event file, as its name says: `events.out.tfevents.TIME.HOST.PID.NUMBER`."""

    started: int
    process: str


def writer_of(name: str) -> Writer | None:
    """Return who wrote a file of that name; `None` if it is no event file.

    Older writers leave the process out: then the host, or the whole rest of the name, stands for
    it. A profiler's files (`.profile-empty`) hold nothing.
    """
    head, marker, rest = name.partition("tfevents.")
    if not marker or (head and not head.endswith(".")) or rest.endswith(".profile-empty"):
        return None
    started, _, process = rest.partition(".")
    if not (started.isascii() and started.isdigit() and len(started) <= 12):
        return Writer(0, rest)
    parts = process.removesuffix(".v2").rsplit(".", 2)
    if len(parts) == 3 and all(part.isascii() and part.isdigit() for part in parts[1:]):
        process = ".".join(parts[:2])
    return Writer(int(started), process)
