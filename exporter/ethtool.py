"""The kernel's `ethtool` calls: what a driver tells of its network interface, and `/sys` does not.

A door and nothing else: requests go out by `ioctl`, plain values come back, and an error is the
`OSError` of the kernel. EOPNOTSUPP says that the driver has no answer, ENODEV that the interface is
gone, EPERM that more rights are needed. Calls act in the network namespace of the process, and one
may wait long for the lock of a link that is changing. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import socket
import struct
from array import array
from typing import NamedTuple

MOST = 65_536
"""So many statistics an interface may have; mlx5 with all its queues comes to some 30,000."""

_SIOCETHTOOL, _SIOCGIFINDEX, _SIOCGIFHWADDR = 0x8946, 0x8933, 0x8927
_GDRVINFO, _GPAUSEPARAM, _GSTRINGS, _GSTATS = 0x03, 0x12, 0x1B, 0x1D
_GSSET_INFO, _GMODULEINFO, _GMODULEEEPROM = 0x37, 0x42, 0x43
_GLINKSETTINGS, _GFECPARAM = 0x4C, 0x50
_STATISTICS = 1  # ETH_SS_STATS
_NAME = 32  # ETH_GSTRING_LEN
_UNKNOWN_SPEED = (0, 0xFFFF, 0xFFFFFFFF)
_FEC = ((1, "none"), (4, "off"), (8, "rs"), (16, "baser"), (32, "llrs"))
_PORTS = ("twisted_pair", "aui", "mii", "fibre", "bnc", "direct_attach")
_DUPLEX = ("half", "full")


class Driver(NamedTuple):
    """Who drives an interface: module, its version, the card's firmware, where the card is."""

    name: str
    version: str
    firmware: str
    bus: str


class Link(NamedTuple):
    """A link's settings; `speed` in Mb/s, None while unknown; "" for what is not known."""

    speed: int | None
    duplex: str
    autonegotiation: bool
    medium: str


class Module(NamedTuple):
    """What a plugged module says of itself: the layout of its memory (1 to 4), and that memory."""

    layout: int
    memory: bytes


class Ethtool:
    """Asks drivers. For one thread; every call raises `OSError` as the kernel does.

    A socket is opened for the first call, and after `close` for the next one.

    Answers go to one buffer with room for four times `MOST` statistics: kernels before 6.19 write
    as many as the driver has just now, whatever they were asked for. Only pages that are written
    to take memory.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._buffer = mmap.mmap(-1, 4 * MOST * _NAME)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._buffer))

    def identity(self, interface: str) -> tuple[int, bytes]:
        """Return the number and the first six octets of the address of an interface here."""
        index = self._ioctl(_SIOCGIFINDEX, struct.pack("=16s24x", _named(interface)))
        address = self._ioctl(_SIOCGIFHWADDR, struct.pack("=16s24x", _named(interface)))
        return struct.unpack_from("=i", index, 16)[0], address[18:24]

    def driver(self, interface: str) -> Driver:
        """Return who drives an interface."""
        self._ask(interface, struct.pack("=I192x", _GDRVINFO))
        return Driver(*(self._text(at, 32) for at in (4, 36, 68, 100)))

    def count(self, interface: str) -> int:
        """Return how many statistics an interface has now; none is EOPNOTSUPP."""
        self._ask(interface, struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _STATISTICS, 0))
        there, count = struct.unpack_from("=QI", self._buffer, 8)
        if not there or not count:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), interface)
        if count > MOST:
            raise OSError(errno.EFBIG, f"claims to have {count} statistics", interface)
        return int(count)

    def names(self, interface: str, count: int) -> tuple[str, ...]:
        """Return the names of the statistics, as the driver has written them."""
        self._ask(interface, struct.pack("=III", _GSTRINGS, _STATISTICS, count))
        found = min(struct.unpack_from("=I", self._buffer, 8)[0], MOST)
        return tuple(self._text(12 + n * _NAME, _NAME) for n in range(found))

    def values(self, interface: str, count: int) -> array[int]:
        """Return the statistics. Another number than `count` says that there are others now."""
        self._ask(interface, struct.pack("=II", _GSTATS, count))
        found = min(struct.unpack_from("=I", self._buffer, 4)[0], MOST)
        return array("Q", self._buffer[8 : 8 + 8 * found])

    def link(self, interface: str) -> Link:
        """Return the settings of the link."""
        request = struct.Struct("=IIBBBBBBBbBBBB28x")
        self._ask(interface, request.pack(_GLINKSETTINGS, *[0] * 13) + bytes(3 * 4 * 127))
        words = -request.unpack_from(self._buffer)[9]  # the kernel's number, negative
        again = request.pack(_GLINKSETTINGS, *[0] * 8, words, *[0] * 4)
        self._ask(interface, again + bytes(3 * 4 * 127))
        _, speed, duplex, port, _, auto, *_ = request.unpack_from(self._buffer)
        return Link(
            None if speed in _UNKNOWN_SPEED else speed,
            _DUPLEX[duplex] if duplex < len(_DUPLEX) else "",
            bool(auto),
            _PORTS[port] if port < len(_PORTS) else "",
        )

    def pause(self, interface: str) -> tuple[bool, bool]:
        """Tell whether global pause frames are heeded, and whether they are sent."""
        self._ask(interface, struct.pack("=I12x", _GPAUSEPARAM))
        _, _, heeded, sent = struct.unpack_from("=IIII", self._buffer)
        return bool(heeded), bool(sent)

    def fec(self, interface: str) -> str:
        """Return the forward error correction in use: rs, baser, llrs or off; "" if unknown."""
        self._ask(interface, struct.pack("=I12x", _GFECPARAM))
        active = struct.unpack_from("=I", self._buffer, 4)[0]
        return "+".join(name for bit, name in _FEC if active & bit and name != "none")

    def module(self, interface: str) -> Module:
        """Return the memory of the plugged module. Needs CAP_NET_ADMIN, and takes milliseconds."""
        self._ask(interface, struct.pack("=I40x", _GMODULEINFO))
        layout, size = struct.unpack_from("=II", self._buffer, 4)
        size = min(size, 512)
        request = struct.pack("=IIII", _GMODULEEEPROM, 0, 0, size)
        self._ask(interface, request + bytes(size))
        return Module(layout, bytes(self._buffer[16 : 16 + size]))

    def close(self) -> None:
        """Close the socket; no harm in calling it twice."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def _ask(self, interface: str, request: bytes) -> None:
        """Put a request into the buffer and have the driver answer there."""
        self._buffer[: len(request)] = request
        self._ioctl(_SIOCETHTOOL, struct.pack("16sP16x", _named(interface), self._address))

    def _ioctl(self, request: int, argument: bytes) -> bytes:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        return fcntl.ioctl(self._socket.fileno(), request, argument)

    def _text(self, at: int, size: int) -> str:
        return self._buffer[at : at + size].partition(b"\0")[0].decode("utf-8", "replace")


def _named(interface: str) -> bytes:
    """Return an interface's name as the kernel takes it: one that is too long is nobody's."""
    name = os.fsencode(interface)
    if len(name) > 15 or not name or b"\0" in name:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), interface)
    return name
