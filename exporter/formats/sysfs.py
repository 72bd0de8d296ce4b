"""The texts of `/sys` and `/proc`: numbers, link rates, PCIe links, pressure, NUMA memory, routes.

Pure functions over bytes; reading the files is left to the sources. What cannot be understood is
`None` or left out: drivers write `N/A (no PMA)`, -1 or nothing where they have no value. Only a
number with more digits than 64 bits have, in a file of several, raises `Malformed`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from exporter.samples import Malformed

_RATE = re.compile(rb"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?) Gb/sec")
_HEXADECIMAL = re.compile(rb"0x[0-9a-fA-F]{1,16}")
_LEADING = re.compile(rb"\s*([0-9]{1,9})\s*:")
_STALLED = re.compile(rb"^(some|full) .*\btotal=([0-9]+)", re.MULTILINE)
_NODE_FIELD = re.compile(rb"^Node [0-9]+ (\w+):\s+([0-9]+) kB", re.MULTILINE)
_FIELD = re.compile(rb"^(\w+) ([0-9]+)\s*$", re.MULTILINE)
_TRANSFERS = re.compile(rb"\s*([0-9]{1,4}(?:\.[0-9]{1,3})?) GT/s")
_MOST_LANES = 32
_MAX_DIGITS = 20  # of 64 bits
_GIGABIT = 125_000_000  # bytes
_MEGABIT = 125_000
_NO_SPEED = frozenset((0, 2**16 - 1, 2**32 - 1))


def number(text: bytes) -> int | None:
    """Return a counter's value; `None` if the text is not one whole number of at least 0."""
    bare = text.strip()
    return int(bare) if bare.isdigit() and len(bare) <= _MAX_DIGITS else None


def hexadecimal(text: bytes) -> int | None:
    """Return a number such as `0x1003`; `None` if the text is none of at most 64 bits."""
    bare = text.strip()
    return int(bare, 16) if _HEXADECIMAL.fullmatch(bare) else None


def state(text: bytes) -> int | None:
    """Return the number of an RDMA state such as `4: ACTIVE`.

    The number is the contract; the text after it varies (one published `phys_state` says ACTIVE).
    """
    found = _LEADING.match(text)
    return int(found[1]) if found else None


def rate(text: bytes) -> float | None:
    """Return the bytes per second of an RDMA rate such as `400 Gb/sec (4X NDR)`."""
    found = _RATE.match(text)
    return float(found[1]) * _GIGABIT if found else None


def speed(text: bytes) -> float | None:
    """Return the bytes per second of an interface's speed in Mb/s.

    -1 and 0 mean unknown; so does -1 where a driver or an old kernel prints it without its sign.
    """
    megabits = number(text)
    return None if megabits is None or megabits in _NO_SPEED else megabits * _MEGABIT


def transfers(text: bytes) -> float | None:
    """Return the speed of a PCIe link such as `32.0 GT/s PCIe`, in transfers per second.

    `Unknown` and `Unknown speed` are what links say that are down, or of virtual bridges.
    """
    found = _TRANSFERS.match(text)
    return float(found[1]) * 1e9 if found else None


def lanes(text: bytes) -> int | None:
    """Return the lanes of a PCIe link; 0 and 255 mean that it has none."""
    number_of = number(text)
    return number_of if number_of is not None and 0 < number_of <= _MOST_LANES else None


def node(text: bytes) -> int | None:
    """Return a NUMA node; -1 means that firmware tells none."""
    return number(text)


def word(text: bytes) -> str:
    """Return a text without the white space around it, printable whatever the driver wrote."""
    return printable(text.decode("utf-8", "replace").strip("\0 \t\r\n"))


def printable(name: str) -> str:
    """Return a name with a replacement character for each that a file or terminal may not take.

    A name of the system that is not UTF-8 has lone surrogates, which nothing can write out.
    """
    if name.isprintable():
        return name
    return "".join(ch if ch.isprintable() else "\ufffd" for ch in name)


def stalled(text: bytes) -> Mapping[str, float]:
    """Return the seconds of `some` and `full` in a `/proc/pressure` file.

    `total=` is microseconds since boot (kernel documentation, accounting/psi).
    """
    return {kind.decode(): _whole(total) / 1e6 for kind, total in _STALLED.findall(text)}


def node_memory(text: bytes) -> Mapping[str, int]:
    """Return the fields of a NUMA node's `meminfo` in bytes; the file says kB and means 1024."""
    return {name.decode(): _whole(kilo) * 1024 for name, kilo in _NODE_FIELD.findall(text)}


def fields(text: bytes) -> Mapping[str, int]:
    """Return the lines that are a name and one number (`numastat`, parts of `/proc/stat`)."""
    return {name.decode(): _whole(value) for name, value in _FIELD.findall(text)}


def _whole(digits: bytes) -> int:
    if len(digits) > _MAX_DIGITS:
        raise Malformed(f"a number of {len(digits)} digits")
    return int(digits)


def default_routes(text: bytes) -> frozenset[str]:
    """Return the interfaces of default routes in a `/proc/net/route`."""
    rows = (line.split() for line in text.splitlines()[1:])
    return frozenset(
        word(row[0]) for row in rows if len(row) >= 8 and row[1] == row[7] == b"00000000"
    )


def default_routes_v6(text: bytes) -> frozenset[str]:
    """Return the interfaces of default routes in a `/proc/net/ipv6_route`.

    Every table has one that refuses what no route is for, which is none.
    """
    rows = (line.split() for line in text.splitlines())
    return frozenset(
        word(row[9])
        for row in rows
        if len(row) >= 10 and row[0] == b"0" * 32 and row[1] == b"00" and not _refuses(row[8])
    )


def _refuses(flags: bytes) -> bool:
    return bool((hexadecimal(b"0x" + flags) or 0) & 0x200)  # RTF_REJECT


def interface_names(text: bytes) -> frozenset[str]:
    """Return the names in a `/proc/net/dev`."""
    lines = text.splitlines()[2:]
    return frozenset(word(line.partition(b":")[0]) for line in lines if b":" in line)
