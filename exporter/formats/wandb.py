"""Reads W&B's offline files (`run-ID.wandb`): frames of a LevelDB log, and the history in them.

The file begins with `:W&B`, a magic number and a version. Then come blocks of 32 KiB that hold
frames: checksum, length, kind, data. A record that does not fit goes over several frames; fewer
than seven bytes at the end of a block are padding. The checksum is a plain CRC-32 of kind and data,
where LevelDB has CRC-32C. Records are protobuf (wandb_internal.proto); read are a run's name and
configuration, its history, and its end. Held against files that wandb 0.31.0 has written.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from exporter.formats import protobuf
from exporter.samples import Malformed

BLOCK = 32768
HEADER = 7
_START = b":W&B\xe1\xbe\x00"
_HEAD = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_SEEDS = {kind: zlib.crc32(bytes([kind])) for kind in (_FULL, _FIRST, _MIDDLE, _LAST)}
LARGEST = 1 << 20
"""Bytes of a record that is looked at, at most: a larger one is passed over."""

_MOST_ITEMS = 4096
_LONGEST_NUMBER = 64


class Records(NamedTuple):
    """What a piece of a file holds: whole records, and where in the file the next one begins.

    `broken` are places in the file of frames that are damaged: where it is not only the data that
    are, the rest of their block is lost with them.
    """

    data: tuple[bytes, ...]
    at: int
    broken: tuple[int, ...] = ()


def expect_header(start: bytes) -> None:
    """Raise `Malformed` unless a file begins as one of W&B does."""
    if start[:HEADER] != _START:
        raise Malformed(f"not a file of W&B in a version that is known: it begins {start[:7]!r}")


def read_records(piece: bytes, offset: int) -> Records:
    """Return the records of a piece that begins at a record; `offset` is its place in the file."""
    found: list[bytes] = []
    broken: list[int] = []
    at = done = 0
    parts: list[bytes] | None = None  # of a record that goes on
    while True:
        left = BLOCK - (offset + at) % BLOCK
        if left < HEADER:
            at += left
            continue
        if len(piece) - at < HEADER:
            break
        check, length, kind = _HEAD.unpack_from(piece, at)
        end = at + HEADER + length
        if not any(piece[at : at + HEADER]):
            break  # room that was made before it is written to
        if length > left - HEADER or kind not in _SEEDS:
            broken.append(offset + at)
            if at + left > len(piece):
                break
            at, parts = at + left, None
            done = at
            continue
        if end > len(piece):
            break
        data = piece[at + HEADER : end]
        if zlib.crc32(data, _SEEDS[kind]) != check:
            broken.append(offset + at)
            parts = None
        elif kind in (_FULL, _FIRST):
            parts = [data]
        elif parts is not None:
            parts.append(data)
        at = end
        if parts is not None and sum(map(len, parts)) > LARGEST:
            parts = None
        if kind in (_FULL, _LAST) and parts is not None:
            found.append(b"".join(parts))
            parts = None
        if parts is None:
            done = at
    return Records(tuple(found), offset + done, tuple(broken))


class Told(NamedTuple):
    """What one record tells: a row of the history, the run, or its end.

    `values` are the numbers of a row by key; nested keys are joined with a slash. `step` is W&B's
    own count of rows unless the job gave one. `wall` is Unix seconds.
    """

    step: int | None = None
    wall: float | None = None
    values: Mapping[str, float] = {}
    run: str = ""
    project: str = ""
    config: Mapping[str, float] = {}
    exit_code: int | None = None


def read_record(record: bytes) -> Told | None:
    """Return what a record tells, `None` if it is about something else. Raises `Malformed`."""
    for one in protobuf.fields(record):
        if one.number == 2:
            return _history(one.message)
        if one.number == 17:
            return _run(one.message)
        if one.number == 18:
            codes = [p.integer for p in protobuf.fields(one.message) if p.number == 1]
            return Told(exit_code=codes[-1] if codes else 0)
    return None


def _history(message: bytes) -> Told:
    values: dict[str, float] = {}
    step: int | None = None
    for one in protobuf.fields(message):
        if one.number == 1 and len(values) < _MOST_ITEMS:
            key, value = _item(one.message)
            if key and value is not None:
                values[key] = value
        elif one.number == 2:
            numbers = [p.integer for p in protobuf.fields(one.message) if p.number == 1]
            step = numbers[-1] if numbers else 0
    wall = values.pop("_timestamp", None)
    values.pop("_runtime", None)
    own = values.pop("_step", None)
    if step is None and own is not None and own == own // 1:
        step = int(own)
    return Told(step, wall, values)


def _run(message: bytes) -> Told:
    identity = name = project = ""
    config: dict[str, float] = {}
    for one in protobuf.fields(message):
        if one.number == 1:
            identity = one.text
        elif one.number == 3:
            project = one.text
        elif one.number == 8:
            name = one.text
        elif one.number == 4:
            for part in protobuf.fields(one.message):
                if part.number == 1 and len(config) < _MOST_ITEMS:
                    key, value = _item(part.message)
                    if key and value is not None:
                        config[key] = value
    return Told(run=name or identity, project=project, config=config)


def _item(message: bytes) -> tuple[str, float | None]:
    """Return key and number of an item; `None` for what is no number."""
    key, nested, value = "", list[str](), b""
    for one in protobuf.fields(message):
        if one.number == 1:
            key = one.text
        elif one.number == 2:
            nested.append(one.text)
        elif one.number == 16:
            value = one.message
    return key or "/".join(nested), _number(value)


def _number(text: bytes) -> float | None:
    if not text or len(text) > _LONGEST_NUMBER or text[:1] in b'"[{':
        return None
    try:
        value: Any = json.loads(text)
        return None if isinstance(value, bool) or value is None else float(value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
