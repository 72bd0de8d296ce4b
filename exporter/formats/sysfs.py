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
_LEADING = re.compile(rb"\s*([0-9]{1,9})\s*:")
_STALLED = re.compile(rb"^(some|full) .*\btotal=([0-9]+)", re.MULTILINE)
_NODE_FIELD = re.compile(rb"^Node [0-9]+ (\w+):\s+([0-9]+) kB", re.MULTILINE)
_FIELD = re.compile(rb"^(\w+) ([0-9]+)\s*$", re.MULTILINE)
_TRANSFERS = re.compile(rb"\s*([0-9]{1,4}(?:\.[0-9]{1,3})?) GT/s")
_MOST_LANES = 32
_MAX_DIGITS = 20  # of 64 bits
_GIGABIT = 125_000_000  # bytes
_MEGABIT = 125_000


def number(text: bytes) -> int | None:
    """Return a counter's value; `None` if the text is not one whole number of at least 0."""
    bare = text.strip()
    return int(bare) if bare.isdigit() and len(bare) <= _MAX_DIGITS else None


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
    """Return the bytes per second of an interface's speed in Mb/s; -1 and 0 mean unknown."""
    megabits = number(text)
    return megabits * _MEGABIT if megabits else None


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


def default_routes(text: bytes) -> list[str]:
    """Return the interfaces of the default routes in `/proc/net/route`, the nearest first."""
    found: list[tuple[int, str]] = []
    for line in text.decode("ascii", "replace").splitlines()[1:]:
        parts = line.split()
        if len(parts) > 7 and parts[1] == "00000000" == parts[7] and parts[6].isdecimal():
            found.append((int(parts[6][:_MAX_DIGITS]), parts[0]))
    return [name for _, name in sorted(found)]


def default_routes_v6(text: bytes) -> list[str]:
    """Return the interfaces of the default routes in `/proc/net/ipv6_route` but loopback."""
    rows = [line.split() for line in text.decode("ascii", "replace").splitlines()]
    return [
        row[9] for row in rows
        if len(row) == 10 and set(row[0]) == {"0"} and row[1] == "00" and row[9] != "lo"
    ]  # fmt: skip


def _whole(digits: bytes) -> int:
    if len(digits) > _MAX_DIGITS:
        raise Malformed(f"a number of {len(digits)} digits")
    return int(digits)
