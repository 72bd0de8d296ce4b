"""Which ports there are, who they are, and which files they have.

Looked up anew now and then. What cannot be listed is a fault and costs its own port.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from exporter import catalogue as c
from exporter.files import Files
from exporter.formats import sysfs
from exporter.samples import Fault
from exporter.sources.network.counters import TRAFFIC, WIDE
from exporter.sources.network.layout import MOST_FILES, CounterSet, Finder, Folder, Port

MOST_DEVICES = 512
"""Devices of a class that are read; the names beyond are told."""
MOST_PORTS = 64

_LINK_LAYERS: Mapping[str, str] = {"1": "Ethernet", "32": "InfiniBand"}  # ARPHRD_*
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+")


class Device(NamedTuple):
    """What is read in one go, and hangs in one go: an RDMA device's ports, or an interface.

    `pci` is its address on the bus, "" if it has none; `lasting` says that it is hardware which
    does not go away by itself.
    """

    key: str
    name: str
    pci: str
    lasting: bool
    ports: tuple[Port, ...]


class Found(NamedTuple):
    """What there is, and what could not be listed."""

    rdma: tuple[Device, ...]
    interfaces: tuple[Device, ...]
    errors: tuple[tuple[str, OSError], ...]
    faults: tuple[Fault, ...]


class _Identity(NamedTuple):
    """What all ports of an RDMA device share."""

    name: str
    path: str
    driver: str
    firmware: str
    board: str
    virtual: bool
    efa: bool
    pci: str
    numa: str


class Inventory:
    """Looks through `sys/class/infiniband` and `sys/class/net` below a root.

    `exclude` is matched at the start of names of both classes, `exclude_devices` of the first.
    `raw` says that all counters are wanted.
    """

    def __init__(
        self,
        files: Files,
        root: str,
        exclude: re.Pattern[str],
        exclude_devices: re.Pattern[str] | None,
        *,
        raw: bool,
    ) -> None:
        self._files = files
        self.rdma = f"{root}/sys/class/infiniband"
        self.net = f"{root}/sys/class/net"
        self._exclude = exclude
        self._exclude_devices = exclude_devices
        self._raw = raw
        self._errors: list[tuple[str, OSError]] = []
        self._faults: list[Fault] = []

    def take(self, gateways: AbstractSet[str]) -> Found:
        """Look up what there is; `gateways` are the interfaces that lead out of the network."""
        self._errors, self._faults = [], []
        rdma = tuple(self._rdma_devices())
        names = self._listed(self.net)
        interfaces = tuple(d for name in names for d in self._interface(name, gateways))
        rdma = tuple(_with_roles(rdma, gateways))
        return Found(rdma, interfaces, tuple(self._errors), tuple(self._faults))

    def excludes(self, name: str, *, rdma: bool) -> bool:
        """Tell whether a name is left out."""
        if self._exclude.match(name):
            return True
        return (
            rdma and self._exclude_devices is not None and bool(self._exclude_devices.match(name))
        )

    def _listed(self, path: str) -> list[str]:
        """Return the names below a class folder that are not left out."""
        rdma = path == self.rdma
        names = [n for n in self._names(path, path) if not self.excludes(n, rdma=rdma)]
        if len(names) > MOST_DEVICES:
            # of hundreds of virtual functions none takes the place of a card
            names.sort(key=lambda name: self._virtual(f"{path}/{name}"))
            text = f"{len(names)} devices, only the first {MOST_DEVICES} are read"
            self._faults.append(Fault(path, "denied", text))
        return names[:MOST_DEVICES]

    def _names(self, path: str, part: str, most: int | None = None) -> list[str]:
        """Return the names in a folder; a folder that is not there, or is none, holds nothing."""
        try:
            names = self._files.names(path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self._errors.append((part, error))
            return []
        if most is not None and len(names) > most:
            text = f"{len(names)} entries, only the first {most} are read"
            self._faults.append(Fault(part, "denied", text))
        return names[:most]

    # ------------------------------------------------------------ RDMA

    def _rdma_devices(self) -> Iterator[Device]:
        for name in self._listed(self.rdma):
            one = self._identify(name)
            numbers = self._names(f"{one.path}/ports", f"{one.name}/ports", MOST_PORTS)
            numbers = [n for n in numbers if n.isdecimal()]
            ports = tuple(self._port(one, n, numbers) for n in numbers)
            yield Device(f"rdma {name}", one.name, one.pci, not one.virtual, ports)

    def _identify(self, name: str) -> _Identity:
        path = f"{self.rdma}/{name}"
        driver = self._driver(path)
        return _Identity(
            sysfs.printable(name),
            path,
            driver,
            firmware=self._word(f"{path}/fw_ver"),
            board=self._word(f"{path}/board_id"),
            virtual=self._virtual(path),
            efa=driver == "efa" or (not driver and self._looks_like_efa(name, path)),
            pci=self._pci(path),
            numa=self._numa(path),
        )

    def _port(self, one: _Identity, number: str, numbers: Sequence[str]) -> Port:
        base, name = f"{one.path}/ports/{number}", f"{one.name}/{number}"
        labels = (one.name, number)
        there = self._names(base, name)
        layer = "EFA" if one.efa else self._word(f"{base}/link_layer")
        netdev = self._netdev(one, number, alone=len(numbers) == 1)
        virtual = "true" if one.virtual else "false"
        physical = not one.virtual
        function = one.pci.rpartition(".")[2]
        net = f"{self.net}/{netdev}"
        own = f"{one.path}/device/net/{netdev}"  # the EFA driver says ACTIVE whatever happens
        return Port(
            name,
            labels,
            base,
            c.NIC_INFO(1, *labels, layer, one.driver, one.firmware, one.board, netdev, virtual),
            about=(one.pci, one.numa, self._master(netdev), "true" if physical else "false"),
            peers=("rdma", one.driver, one.board, layer, number, function),
            rdma=True,
            physical=physical,
            virtual=one.virtual,
            model=self._word(f"{one.path}/hca_type"),
            state=f"{base}/state" if "state" in there and not one.efa else "",
            physical_state=f"{base}/phys_state" if "phys_state" in there and not one.efa else "",
            # what EFA says of its rate is made up as well
            rate=f"{base}/rate" if "rate" in there and not one.efa else "",
            operstate=f"{own}/operstate" if one.efa and netdev else "",
            flags=f"{net}/flags" if netdev and self._has(f"{net}/flags") else "",
            sets=tuple(self._sets(one, number, numbers)),
        )

    def _sets(self, one: _Identity, number: str, numbers: Sequence[str]) -> Iterator[CounterSet]:
        # The driver's own first: a virtual function mostly has these, and the others not always.
        base, name = f"{one.path}/ports/{number}", f"{one.name}/{number}"
        mlx5 = one.driver.startswith("mlx5") or (not one.driver and one.name.startswith("mlx5"))
        find = Finder((one.name, number), mlx5=mlx5, raw=self._raw).find
        folder = f"{base}/hw_counters"
        names = self._counters(folder, f"{name}/hw_counters")
        yield from find("driver", Folder(folder, name, names))
        if number == numbers[0]:
            # counters of the whole device are those of its only port; of several ports' they are
            # nobody's but raw
            folder = f"{one.path}/hw_counters"
            names = self._counters(folder, f"{one.name}/hw_counters")
            kind = "driver" if len(numbers) == 1 else "device"
            yield from find(kind, Folder(folder, one.name, names, of_port=False))
        folder = f"{base}/counters"
        names = self._counters(folder, f"{name}/counters")
        wide = self._counters(f"{base}/counters_ext", f"{name}/counters_ext")
        twins = {n: f"{base}/counters_ext/{w}" for n, w in WIDE.items() if w in wide}
        traffic = [n for n in names if n in TRAFFIC]
        yield from find("traffic", Folder(folder, name, traffic), twins)
        errors = [n for n in names if n not in TRAFFIC]
        yield from find("errors", Folder(folder, name, errors))
        used = {w for n, w in WIDE.items() if n in traffic}
        rest = [n for n in wide if n not in used]
        yield from find("traffic", Folder(f"{base}/counters_ext", name, rest))

    def _counters(self, folder: str, part: str) -> list[str]:
        return self._names(folder, part, MOST_FILES)

    def _looks_like_efa(self, name: str, path: str) -> bool:
        """Tell an EFA device whose driver link is missing: by PCI vendor (Amazon), or by name."""
        vendor = self._word(f"{path}/device/vendor")
        # udev names RDMA devices of no known fabric "rdmap<bus>s<slot>"
        return vendor == "0x1d0f" or (not vendor and bool(re.match(r"rdmap\d+s\d+|efa_\d", name)))

    def _netdev(self, one: _Identity, port: str, *, alone: bool) -> str:
        """Return the interface of an RDMA port, "" if it has none or more than one could be it."""
        # the GID table knows best (a bond's RDMA device lists one member below device/net)
        bound = self._word(f"{one.path}/ports/{port}/gid_attrs/ndevs/0")
        if bound:
            return bound
        names = self._names(f"{one.path}/device/net", one.name)
        if not alone:
            number = str(int(port) - 1)
            names = [
                n for n in names
                if self._word(f"{one.path}/device/net/{n}/dev_port") == number
            ]  # fmt: skip
        # sub-interfaces and representors are named after the first one
        return sysfs.printable(min(names, key=lambda n: (len(n), n), default=""))

    # ------------------------------------------------------------ interfaces

    def _interface(self, name: str, gateways: AbstractSet[str]) -> Iterator[Device]:
        base, shown = f"{self.net}/{name}", sysfs.printable(name)
        there = self._names(base, shown)
        if "operstate" not in there:
            return  # /sys/class/net holds files as well: bonding_masters
        labels = (shown, "")
        layer = _LINK_LAYERS.get(self._word(f"{base}/type"), "")
        driver, virtual, pci = self._driver(base), self._virtual(base), self._pci(base)
        representor = bool(_REPRESENTOR.match(self._word(f"{base}/phys_port_name")))
        hardware = self._has(f"{base}/device") and not representor
        # Bonds, VLANs and functions count again what their ports carry, IPoIB what RDMA ports do.
        physical = hardware and not virtual and layer != "InfiniBand"
        master = self._master(shown)
        role = "management" if shown in gateways or master in gateways else "host"
        names = self._names(f"{base}/statistics", f"{shown}/statistics", MOST_FILES)
        find = Finder(labels, mlx5=False, raw=self._raw).find
        port = Port(
            shown,
            labels,
            base,
            c.NIC_INFO(1, *labels, layer, driver, "", "", shown, "true" if virtual else "false"),
            about=(pci, self._numa(base), master, "true" if physical else "false", role),
            peers=("interface", driver, layer, pci.rpartition(".")[2]),
            rdma=False,
            physical=physical,
            virtual=virtual,
            operstate=f"{base}/operstate",
            flags=f"{base}/flags" if "flags" in there else "",
            speed=f"{base}/speed" if "speed" in there else "",
            changes=f"{base}/carrier_changes" if "carrier_changes" in there else "",
            sets=tuple(find("interface", Folder(f"{base}/statistics", shown, names))),
        )
        yield Device(f"net {name}", shown, pci, physical and pci != "", (port,))

    # ------------------------------------------------------------ single facts

    def _word(self, path: str) -> str:
        """Return a short text, "" if it cannot be read: identity is often missing."""
        try:
            return sysfs.word(self._files.glance(path))
        except OSError:
            return ""

    def _has(self, path: str) -> bool:
        return self._files.identity(path) != 0

    def _driver(self, path: str) -> str:
        return sysfs.printable(self._files.target(f"{path}/device/driver"))

    def _virtual(self, path: str) -> bool:
        """Tell an SR-IOV virtual function: its device links to the physical one."""
        return bool(self._files.target(f"{path}/device/physfn"))

    def _pci(self, path: str) -> str:
        address = self._files.target(f"{path}/device")
        return address if _PCI.fullmatch(address) else ""

    def _numa(self, path: str) -> str:
        node = self._word(f"{path}/device/numa_node")
        return node if node.isdecimal() else ""

    def _master(self, netdev: str) -> str:
        """Return the bond, team or bridge that an interface belongs to or is; "" if none."""
        if not netdev:
            return ""
        if self._has(f"{self.net}/{netdev}/bonding"):
            return netdev
        return sysfs.printable(self._files.target(f"{self.net}/{netdev}/master"))


def _with_roles(devices: Sequence[Device], gateways: AbstractSet[str]) -> Iterator[Device]:
    """Yield RDMA devices with the role of each port: fabric, or management.

    A port that leads out of the network manages the node if no port of its kind is there for
    anything else (NVIDIA infra-controller 3624): all cards of a kind carry the fabric where one of
    them has the default route as well, as on EFA.
    """
    ports = [port for device in devices for port in device.ports]
    kinds = {port.peers[:4] for port in ports}
    fabric = {port.peers[:4] for port in ports if not _leads_out(port, gateways)}
    managing = kinds - fabric if fabric else set()
    for device in devices:
        yield device._replace(
            ports=tuple(
                port._replace(
                    about=(*port.about, "management" if port.peers[:4] in managing else "fabric")
                )
                for port in device.ports
            )
        )


def _leads_out(port: Port, gateways: AbstractSet[str]) -> bool:
    return port.info.labels[6] in gateways or port.about[2] in gateways
