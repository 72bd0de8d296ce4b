"""How far two PCI devices are from each other, by where they hang below `/sys/devices`.

The words are those of `nvidia-smi topo -m`:

    NV#   that many NVLinks (between GPUs only)
    PIX   one PCIe switch, or one card
    PXB   several switches, and no host bridge
    PHB   the host bridge of the CPU
    NODE  the interconnect between host bridges of one NUMA node
    SYS   the interconnect between NUMA nodes

A switch is two bridges of a path, its port towards the CPU and one away from it, so a path is
climbed in steps of two (as NCCL does; a rule that counts the components comes out different for the
way there and the way back, NCCL 246). Where firmware tells no NUMA node (-1: many virtual machines,
some single-socket and Arm boards) it is not known whether two host bridges belong together, and
then there is no distance.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

PIX, PXB, PHB, NODE, SYS = "PIX", "PXB", "PHB", "NODE", "SYS"

RANKS: Mapping[str, int] = {PIX: 1, PXB: 2, PHB: 3, NODE: 4, SYS: 5}
"""The nearest first; NVLink is 0."""

_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_DEVICE = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_WRITTEN = re.compile(
    r"\s*(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])\s*", re.IGNORECASE
)
_NVLINK = re.compile(r"NV[1-9][0-9]?")


class Place(NamedTuple):
    """Where a device hangs: its root complex, the bridges down to it and itself, its NUMA node."""

    root: str
    path: tuple[str, ...]
    numa_node: int | None = None

    @property
    def address(self) -> str:
        """The device's own address."""
        return self.path[-1]


def place_of(path: str, numa_node: int | None = None) -> Place | None:
    """Return the place of a device by its path below `/sys/devices`; None if it is not on PCI.

    What hangs below the device (a virtual bus, a sub-function) is not part of it. A NUMA node
    below 0 is none.
    """
    parts = path.split("/")
    at = next((n for n, part in enumerate(parts) if _ROOT.fullmatch(part)), None)
    if at is None:
        return None
    devices = [part for part in parts[at + 1 :] if _DEVICE.fullmatch(part)]
    known = numa_node is not None and numa_node >= 0
    return Place(parts[at], tuple(devices), numa_node if known else None) if devices else None


def address_of(text: str) -> str | None:
    """Return a PCI address as the kernel writes it; None if it is none.

    NVML writes eight digits of the domain and capitals, the kernel at least four and small ones.
    """
    found = _WRITTEN.fullmatch(text)
    if found is None:
        return None
    domain, bus, device, function = found.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}".lower()


def distance(one: Place, other: Place) -> str | None:
    """Return how far two devices are from each other; None where it cannot be told."""
    if one.root != other.root:
        if one.numa_node is None or other.numa_node is None:
            return None
        return NODE if one.numa_node == other.numa_node else SYS
    shared = 0
    for mine, its in zip(one.path[:-1], other.path[:-1], strict=False):
        if mine != its:
            break
        shared += 1
    if not shared:
        return PHB
    further = sum((len(place.path) - shared - 1) // 2 for place in (one, other))
    return PXB if further else PIX


def nvlinks(number: int) -> str:
    """Return the word for so many NVLinks."""
    return f"NV{number}"


def links_of(word: str) -> int:
    """Return how many NVLinks a word stands for; 0 for any other distance."""
    return int(word[2:]) if _NVLINK.fullmatch(word) else 0


def rank(word: str) -> int | None:
    """Return the order of a distance: 0 NVLink, 1 PIX ... 5 SYS; None for any other word."""
    return 0 if _NVLINK.fullmatch(word) else RANKS.get(word)
