"""Where the cards of the made-up node hang: the PCI tree of a DGX H100, as `/sys` shows it.

Each GPU is behind a switch with its NIC, and each such switch below a host bridge of its own; four
of them belong to each socket. The storage's card and the management's have slots elsewhere.
Unless the node is sound the NIC of one rail is in the wrong slot: on the other socket, where it was
put back after a repair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from exporter.demo.gpus import ADDRESSES
from exporter.demo.node import BONDED, MISPLACED, RAILS

_GEN5, _GEN1 = "32.0 GT/s PCIe", "2.5 GT/s PCIe"
_CPUS = ("0-55,112-167", "56-111,168-223")
_OTHER_SLOT = "pci0000:26/0000:26:01.0/0000:27:00.0"


class Card(NamedTuple):
    """A card: its path below `/sys/devices`, its NUMA node, what it is, its link."""

    path: str
    node: int
    vendor: str
    device: str
    kind: str
    driver: str
    width: int = 16
    speed: str = _GEN5

    @property
    def address(self) -> str:
        """Its PCI address."""
        return self.path.rpartition("/")[2]

    def files(self) -> Iterator[tuple[str, str | int]]:
        """Yield each file below `/sys/devices` with its text."""
        facts: dict[str, str | int] = {
            "vendor": self.vendor, "device": self.device, "class": self.kind,
            "numa_node": self.node, "local_cpulist": _CPUS[self.node],
        }  # fmt: skip
        for name, text in facts.items():
            yield f"{self.path}/{name}", text
        root, *bridges = self.path.split("/")
        for depth in range(1, len(bridges) + 1):
            base = "/".join((root, *bridges[:depth]))
            for name in ("current_link_width", "max_link_width"):
                yield f"{base}/{name}", self.width
            for name in ("current_link_speed", "max_link_speed"):
                yield f"{base}/{name}", self.speed


def cards(*, sound: bool) -> Mapping[str, Card]:
    """Return the cards: GPUs by their address, the others by the name of their device."""
    found = {
        address: Card(_behind(address, gpu=True), at // 4, "0x10de", "0x2330", "0x030200", "nvidia")
        for at, address in enumerate(ADDRESSES)
    }
    for at, name in enumerate(RAILS):
        found[name] = _nic(_behind(ADDRESSES[at], gpu=False), at // 4)
    if not sound:
        found[MISPLACED] = _nic(_OTHER_SLOT, 0)
    found["mlx5_bond_0"] = _nic("pci0000:29/0000:29:01.0/0000:2a:00.0", 0)
    found[BONDED[0]] = found["mlx5_bond_0"]
    found[BONDED[1]] = _nic("pci0000:29/0000:29:01.0/0000:2a:00.1", 0)
    found["eno1"] = Card(
        "pci0000:00/0000:00:1c.4/0000:0b:00.0", 0, "0x8086", "0x1533", "0x020000", "igb", 1, _GEN1
    )
    return found


def _nic(path: str, node: int) -> Card:
    return Card(path, node, "0x15b3", "0x1021", "0x020700", "mlx5_core")


def _behind(address: str, *, gpu: bool) -> str:
    """Return the path of a GPU, or of the NIC that hangs on the same switch."""
    bus = int(address[5:7], 16)

    def at(before: int, slot: str = "00.0") -> str:
        return f"0000:{bus - before:02x}:{slot}"

    top = f"pci0000:{bus - 6:02x}/{at(6, '01.0')}/{at(5)}"
    if gpu:
        return f"{top}/{at(4, '02.0')}/{at(2)}/{at(1)}/{at(0)}"
    return f"{top}/{at(4)}/{at(3)}"
