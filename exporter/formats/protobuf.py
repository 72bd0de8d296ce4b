"""Takes protobuf messages apart: field numbers and raw values, without a schema.

What the numbers mean is left to the formats that use it. Only what is needed to read foreign files
and requests is here; the official library is many times larger than what reads eight messages. The
encoding is described at protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from exporter.samples import Malformed

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
_LONGEST_VARINT = 10


class Field(NamedTuple):
    """One field as it was sent: `value` is a number, or bytes for fixed widths and for lengths."""

    number: int
    wire: int
    value: int | bytes

    @property
    def integer(self) -> int:
        """The value as a signed 64-bit integer, however it was sent. Raises `Malformed`."""
        if isinstance(self.value, int):
            return self.value - (1 << 64) if self.value >> 63 else self.value
        if self.wire == BYTES:
            raise Malformed(f"field {self.number}: a number is wanted")
        return int.from_bytes(self.value, "little", signed=True)

    @property
    def real(self) -> float:
        """The value as a floating point number of 4 or 8 bytes. Raises `Malformed`."""
        if self.wire == FIXED64 and isinstance(self.value, bytes):
            return float(_DOUBLE.unpack(self.value)[0])
        if self.wire == FIXED32 and isinstance(self.value, bytes):
            return float(_FLOAT.unpack(self.value)[0])
        raise Malformed(f"field {self.number}: a floating point number is wanted")

    @property
    def message(self) -> bytes:
        """The value as bytes: a message, a text, packed numbers. Raises `Malformed`."""
        if self.wire == BYTES and isinstance(self.value, bytes):
            return self.value
        raise Malformed(f"field {self.number}: bytes are wanted")

    @property
    def text(self) -> str:
        """The value as text. Raises `Malformed`."""
        try:
            return self.message.decode("utf-8")
        except UnicodeDecodeError:
            raise Malformed(f"field {self.number}: not UTF-8 text") from None


def fields(message: bytes) -> Iterator[Field]:
    """Yield the fields of a message in their order. Raises `Malformed` where it makes no sense."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if number == 0:
            raise Malformed(f"byte {at}: field number 0")
        if wire == VARINT:
            value, at = _varint(message, at)
            yield Field(number, wire, value)
            continue
        if wire == BYTES:
            length, at = _varint(message, at)
        elif wire in (FIXED64, FIXED32):
            length = 8 if wire == FIXED64 else 4
        else:
            raise Malformed(f"byte {at}: wire type {wire} is not in use")
        if length > end - at:
            raise Malformed(f"byte {at}: field {number} is longer than its message")
        yield Field(number, wire, message[at : at + length])
        at += length


def doubles(packed: bytes) -> tuple[float, ...]:
    """Return packed numbers of 8 bytes. Raises `Malformed`."""
    if len(packed) % 8:
        raise Malformed("packed numbers do not fill their field")
    return struct.unpack(f"<{len(packed) // 8}d", packed)


def floats(packed: bytes) -> tuple[float, ...]:
    """Return packed numbers of 4 bytes. Raises `Malformed`."""
    if len(packed) % 4:
        raise Malformed("packed numbers do not fill their field")
    return struct.unpack(f"<{len(packed) // 4}f", packed)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a byte, and where it ends."""
    if at < len(message) and message[at] < 0x80:  # most numbers are one byte
        return message[at], at + 1
    value = shift = 0
    for byte in message[at : at + _LONGEST_VARINT]:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise Malformed(f"byte {at}: a number without end")
