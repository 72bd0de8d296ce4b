"""Reads what `/proc` says of listening sockets and of the processes that hold them.

Tables of sockets (`/proc/net/tcp`, `/proc/net/tcp6`), `/proc/PID/stat` and `/proc/PID/cmdline`, as
described in proc(5). A line that makes no sense is left out: such files are read while they change.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator
from typing import NamedTuple

_LISTENS = b"0A"


class Listener(NamedTuple):
    """A TCP socket that waits for connections. `uid` is the user who made it."""

    address: str
    port: int
    inode: int
    uid: int


class Stat(NamedTuple):
    """A process's parent, and when it began, in clock ticks since the boot."""

    parent: int
    start: int


def listeners(table: bytes) -> Iterator[Listener]:
    """Yield the listening sockets of a table."""
    for line in table.split(b"\n"):
        if b" 0A " not in line:
            continue
        fields = line.split()
        try:
            if fields[3] == _LISTENS:
                address, _, port = fields[1].partition(b":")
                yield Listener(_address(address), int(port, 16), int(fields[9]), int(fields[7]))
        except (IndexError, ValueError):
            continue


def _address(text: bytes) -> str:
    """Return an address, printed by the kernel as words in the machine's own byte order."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    if len(packed) == 4:
        return str(ipaddress.IPv4Address(packed))
    six = ipaddress.IPv6Address(packed)
    return str(six if six.ipv4_mapped is None else six.ipv4_mapped)


def stat(text: bytes) -> Stat | None:
    """Return what `/proc/PID/stat` says; the name in it may hold blanks and brackets."""
    fields = text[text.rfind(b")") + 1 :].split()
    try:
        return Stat(int(fields[1]), int(fields[19]))
    except (IndexError, ValueError):
        return None


def arguments(text: bytes) -> tuple[str, ...]:
    """Return the words of `/proc/PID/cmdline`.

    A process that has given itself a title (`VLLM::EngineCore`) has that as its only word.
    """
    words = text.rstrip(b"\0 ").split(b"\0")
    return tuple(word.decode("utf-8", "replace") for word in words) if words != [b""] else ()
