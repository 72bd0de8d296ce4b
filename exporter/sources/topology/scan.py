"""What `/sys` and `/proc` tell of where GPUs and NICs hang: one look at a machine."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple

from exporter.derive.fabric.distance import Place, place_of
from exporter.derive.fabric.links import End
from exporter.derive.fabric.rails import Nic, natural
from exporter.files import Files
from exporter.formats import sysfs
from exporter.formats.nccl_topology import topology_file
from exporter.samples import Fault

MOST_NICS = 256
"""NICs that are kept at most, virtual functions last: hosts have many of them."""

_ROUTES = {"route": sysfs.default_routes, "ipv6_route": sysfs.default_routes_v6}
_DEEPEST = 4
_FIRST_CPU = 8192
_MACHINES = (
    "kvm", "virtual machine", "virtualbox", "vmware", "qemu", "standard pc", "hvm domu",
    "google compute engine", "openstack", "bochs",
)  # fmt: skip


class Card(NamedTuple):
    """A device on PCI: where it hangs, and its links up to the CPU, its own first."""

    place: Place
    chain: tuple[End, ...] = ()
    cpus: str = ""


class Machine(NamedTuple):
    """All that was seen. `cards` are by PCI address; `left_out` is how many NICs are not."""

    nics: tuple[Nic, ...]
    cards: Mapping[str, Card]
    faults: tuple[Fault, ...]
    left_out: int


class Scanner:
    """Looks at the machine whose files are below `root`."""

    def __init__(self, root: Path, files: Files | None = None) -> None:
        self._root = root
        self._sys = str(root / "sys")
        self._files = Files(0) if files is None else files
        self._faults: list[Fault] = []
        self._cards: dict[str, Card] = {}
        self._below = ""

    def names(self) -> tuple[str, ...]:
        """Return the names of the devices that there are: cheap, tells whether to look anew."""
        self._faults = []
        return tuple(
            name
            for kind in ("infiniband", "net")
            for name in (kind, *self._names(f"{self._sys}/class/{kind}"))
        )

    def look(self, addresses: Collection[str]) -> Machine:
        """Return the NICs, and what is known of these addresses (GPUs)."""
        self._faults, self._cards = [], {}
        self._below = f"{os.path.realpath(f'{self._sys}/devices')}/"
        for address in addresses:
            self._card(f"{self._sys}/bus/pci/devices/{address}")
        routed = self._routed()
        found = list(self._nics(routed))
        # of hundreds of virtual functions, of which little is told, none takes a card's place
        left_out = set(sorted(found, key=lambda nic: nic.virtual)[MOST_NICS:])
        return Machine(
            tuple(nic for nic in found if nic not in left_out), self._cards, tuple(self._faults),
            sum(not nic.virtual for nic in left_out),  # the others' are told at no time
        )  # fmt: skip

    # ------------------------------------------------------------ NICs

    def _nics(self, routed: AbstractSet[str]) -> Iterator[Nic]:
        """Yield RDMA devices, then interfaces of cards that have none; in order of their names."""
        taken: set[str] = set()
        for name in self._listed("infiniband"):
            base = f"{self._sys}/class/infiniband/{name}"
            card = self._card(f"{base}/device")
            if card is None:
                continue  # software RDMA (rxe, siw) hangs on no card
            taken.add(card.place.address)
            netdevs = self._netdevs(base)
            yield Nic(
                sysfs.printable(name), card.place, rdma=True, virtual=self._virtual(base),
                rate=self._rate(base), model=self._model(base), netdevs=netdevs,
                routes=not routed.isdisjoint(netdevs),
            )  # fmt: skip
        for name in self._listed("net"):
            base = f"{self._sys}/class/net/{name}"
            card = self._card(f"{base}/device")
            if card is None or card.place.address in taken:
                continue
            shown = sysfs.printable(name)
            yield Nic(
                shown, card.place, rdma=False, virtual=self._virtual(base),
                model=self._model(base), netdevs=(shown,), routes=name in routed,
            )  # fmt: skip

    def _listed(self, kind: str) -> list[str]:
        return sorted(self._names(f"{self._sys}/class/{kind}"), key=natural)

    def _virtual(self, base: str) -> bool:
        """Tell an SR-IOV virtual function, or a sub-function: a bus of the driver's own."""
        if self._files.target(f"{base}/device/physfn"):
            return True
        last = os.path.realpath(f"{base}/device").rpartition("/")[2]
        return place_of(f"pci0000:00/{last}") is None and "virtio" not in last

    def _netdevs(self, base: str) -> tuple[str, ...]:
        """Return the interfaces of an RDMA device, with that of the bond that it works for."""
        ports = self._names(f"{base}/ports")
        bound = [self._word(f"{base}/ports/{port}/gid_attrs/ndevs/0") for port in ports]
        names = [*bound, *sorted(self._names(f"{base}/device/net"), key=lambda n: (len(n), n))]
        return tuple(dict.fromkeys(sysfs.printable(name) for name in names if name))

    def _rate(self, base: str) -> float | None:
        """Return the highest rate of ports that are up: one that is down prints a made-up one."""
        rates = [
            sysfs.rate(self._text(f"{base}/ports/{port}/rate"))
            for port in self._names(f"{base}/ports")
            if sysfs.state(self._text(f"{base}/ports/{port}/state")) == 4
        ]
        return max((rate for rate in rates if rate is not None), default=None)

    def _model(self, base: str) -> str:
        board = self._word(f"{base}/board_id") or self._word(f"{base}/hca_type")
        if board:
            return board
        device = f"{base}/device"
        return " ".join(self._word(f"{device}/{name}") for name in ("vendor", "device"))

    def _routed(self) -> AbstractSet[str]:
        """Return the interfaces that the default routes leave over, and what these stand on."""
        proc = self._root / "proc"
        found: dict[str, None] = {}
        for file, names in _ROUTES.items():
            # The first process is in the machine's own network; who may not see it has our own.
            text = self._text(f"{proc}/1/net/{file}") or self._text(f"{proc}/net/{file}")
            found |= dict.fromkeys(names(text))
        reached = dict.fromkeys(found)
        for _ in range(_DEEPEST):
            below = [
                name.removeprefix("lower_")
                for upper in reached
                for name in self._names(f"{self._sys}/class/net/{upper}")
                if name.startswith("lower_")
            ]
            reached |= dict.fromkeys(below)
        return reached.keys()

    # ------------------------------------------------------------ PCI

    def _card(self, link: str) -> Card | None:
        """Return what is known of the device that a link leads to; None if it is not on PCI."""
        real = os.path.realpath(link)
        if not real.startswith(self._below):
            return None
        below = real.removeprefix(self._below)
        place = place_of(below)
        if place is None:
            return None
        known = self._cards.get(place.address)
        if known is not None:
            return known
        at = below.rfind(place.address) + len(place.address)
        folder = self._below + below[:at]
        if not os.path.isdir(folder):  # noqa: PTH112 - says no where it may not look
            return None
        place = place_of(below[:at], sysfs.node(self._text(f"{folder}/numa_node")))
        if place is None:
            return None
        card = Card(
            place, tuple(self._chain(folder, len(place.path))),
            self._word(f"{folder}/local_cpulist")[:256],
        )  # fmt: skip
        self._cards[place.address] = card
        return card

    def _chain(self, folder: str, length: int) -> Iterator[End]:
        for _ in range(length):
            yield End(
                sysfs.lanes(self._text(f"{folder}/current_link_width")),
                sysfs.lanes(self._text(f"{folder}/max_link_width")),
                sysfs.transfers(self._text(f"{folder}/current_link_speed")),
                sysfs.transfers(self._text(f"{folder}/max_link_speed")),
            )
            folder = folder.rpartition("/")[0]

    def is_virtual(self) -> bool:
        """Tell whether a hypervisor is below us. On x86 the processor says so; elsewhere the name
        of the machine, which some clouds also give to bare metal.
        """
        try:
            with (self._root / "proc/cpuinfo").open("rb") as file:
                first = file.read(_FIRST_CPU)
        except OSError:
            first = b""
        for line in first.splitlines():
            if line.startswith(b"flags"):
                return b"hypervisor" in line.split()
        names = (
            self._word(f"{self._sys}/class/dmi/id/{name}").lower()
            for name in ("product_name", "sys_vendor")
        )
        return any(machine in name for name in names for machine in _MACHINES)

    def nccl_file(self) -> Path | None:
        """Return the topology file that NCCL on this machine is told to use, if there is one."""
        text = self._text(str(self._root / "etc/nccl.conf")).decode("utf-8", "replace")
        named = topology_file(text)
        return None if named is None else self._root / named.lstrip("/")

    # ------------------------------------------------------------ files

    def _names(self, path: str) -> list[str]:
        try:
            return self._files.names(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self._faults.append(Fault.of(path.removeprefix(self._sys), error))
            return []

    def _text(self, path: str) -> bytes:
        """Return a file's text, nothing if it cannot be read: a device may have no link to tell."""
        try:
            return self._files.glance(path)
        except OSError:
            return b""

    def _word(self, path: str) -> str:
        return sysfs.word(self._text(path))
