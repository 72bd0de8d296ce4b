"""What stands beside the ports' own files: the way out, and whose network it is that we see.

`/sys` shows the interfaces of the network namespace in which it was mounted, and RDMA devices too
where the node has set them to be exclusive. A daemon that looks at the wrong one finds counters of
nobody (node_exporter 2769, 2846, 2427): it says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from exporter.files import Files
from exporter.formats import sysfs
from exporter.samples import Fault

_INFINIBAND, _NETWORK = "0x0207", "0x0200"  # PCI classes, subclass included
_MOST_LOOKED_AT = 1024


class Surroundings:
    """Looks at the routes and interfaces of process 1 below `root`, and at the PCI bus."""

    def __init__(self, files: Files, root: str) -> None:
        self._files = files
        self._proc = f"{root}/proc/1/net"
        self._pci = f"{root}/sys/bus/pci/devices"

    def gateways(self) -> frozenset[str]:
        """Return the interfaces of default routes; none where that cannot be seen."""
        return frozenset(
            (*sysfs.default_routes(self._text("route")),
             *sysfs.default_routes_v6(self._text("ipv6_route")))
        )  # fmt: skip

    def on_bus(self, address: str) -> bool:
        """Tell whether a PCI device is there; yes where there is no bus to look at."""
        files = self._files
        return not files.identity(self._pci) or files.identity(f"{self._pci}/{address}") != 0

    def strangers(
        self, interfaces: Collection[str], *, rdma: bool, hardware: bool
    ) -> Iterator[Fault]:
        """Yield what speaks against these being the machine's own network.

        `interfaces` are all names that `/sys` shows; `rdma` and `hardware` say whether it shows an
        RDMA device, and an interface of a card.
        """
        theirs = sysfs.interface_names(self._text("dev")) - {"lo"}
        if theirs and len(theirs - set(interfaces)) * 2 > len(theirs):
            yield Fault(
                "sys/class/net", "unavailable",
                "these are the interfaces of another network namespace than that of process 1:"
                " run in the host's network, or mount the host's /sys below `root`",
            )  # fmt: skip
        elif not hardware and (number := self._cards(_NETWORK, "net")):
            yield Fault(
                "sys/class/net", "unavailable",
                f"{number} network cards have interfaces and none of them is here: the class folder"
                " of another network namespace",
            )  # fmt: skip
        if not rdma and (number := self._cards(_INFINIBAND)):
            yield Fault(
                "sys/class/infiniband", "unavailable",
                f"{number} InfiniBand cards with a driver on the bus and no RDMA device: the class"
                " folder of another network namespace, or the driver's RDMA module is not loaded",
            )  # fmt: skip

    def _cards(self, kind: str, folder: str = "") -> int:
        """Return how many PCI devices of a class have a driver, and a folder.

        A driver's folder `net` is there in every namespace; what is in it is not.
        """
        try:
            names = self._files.names(self._pci)[:_MOST_LOOKED_AT]
        except OSError:
            return 0
        return sum(
            self._word(f"{self._pci}/{name}/class").startswith(kind)
            and self._files.target(f"{self._pci}/{name}/driver") not in ("", "vfio-pci")
            and self._files.identity(f"{self._pci}/{name}/{folder}") != 0
            for name in names
        )

    def _text(self, name: str) -> bytes:
        try:
            return self._files.glance(f"{self._proc}/{name}")
        except OSError:
            return b""

    def _word(self, path: str) -> str:
        try:
            return sysfs.word(self._files.glance(path))
        except OSError:
            return ""
