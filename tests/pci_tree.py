"""A machine's PCI tree, written file by file for the tests of the topology."""

from __future__ import annotations

from pathlib import Path

GEN4, GEN5 = "16.0 GT/s PCIe", "32.0 GT/s PCIe"


class PciTree:
    """Devices, RDMA devices and interfaces below `root`, linked as the kernel links them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, file: str, text: str | int) -> None:
        """Write one file."""
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def link(self, file: str, target: str) -> None:
        """Link one name to another, both below the root."""
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(Path(*[".."] * file.count("/"), target))

    def ends(self, path: str, width: int, most: int, speed: str = GEN5, top: str = GEN5) -> None:
        """Write what a device or bridge says of its link."""
        base = f"sys/devices/{path}"
        self.write(f"{base}/current_link_width", width)
        self.write(f"{base}/max_link_width", most)
        self.write(f"{base}/current_link_speed", speed)
        self.write(f"{base}/max_link_speed", top)

    def device(self, path: str, numa: int = 0, kind: str = "0x020700") -> str:
        """Add a device by its path below `/sys/devices`; return its address."""
        address = path.rpartition("/")[2]
        base = f"sys/devices/{path}"
        self.write(f"{base}/numa_node", numa)
        self.write(f"{base}/class", kind)
        self.write(f"{base}/vendor", "0x10de" if kind == "0x030200" else "0x15b3")
        self.write(f"{base}/device", "0x2330" if kind == "0x030200" else "0x1021")
        first = 48 * max(numa, 0)
        self.write(f"{base}/local_cpulist", f"{first}-{first + 47}")
        self.ends(path, 16, 16)
        self.link(f"sys/bus/pci/devices/{address}", base)
        return address

    def gpu(self, path: str, numa: int = 0) -> str:
        """Add a GPU."""
        return self.device(path, numa, "0x030200")

    def rdma(
        self, name: str, path: str, numa: int = 0, *, rate: str = "400 Gb/sec (4X NDR)",
        state: str = "4: ACTIVE", board: str = "MT_0000000838", netdev: str = "",
    ) -> None:  # fmt: skip
        """Add a NIC that can do RDMA."""
        self.device(path, numa)
        base = f"sys/class/infiniband/{name}"
        self.link(f"{base}/device", f"sys/devices/{path}")
        self.write(f"{base}/board_id", board)
        self.write(f"{base}/ports/1/state", state)
        self.write(f"{base}/ports/1/rate", rate)
        if netdev:
            self.interface(netdev, path)

    def interface(self, name: str, path: str) -> None:
        """Add an interface of a device that is there."""
        (self.root / f"sys/devices/{path}/net/{name}").mkdir(parents=True, exist_ok=True)
        self.link(f"sys/class/net/{name}/device", f"sys/devices/{path}")

    def routes_over(self, *names: str) -> None:
        """Let the default routes leave over these interfaces."""
        rows = [f"{name}\t00000000\t0102A8C0\t0003\t0\t0\t{at}\t00000000\t0\t0\t0"
                for at, name in enumerate(names)]  # fmt: skip
        head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT"
        self.write("proc/net/route", "\n".join([head, *rows]))

    def virtual(self, *, said: bool = True) -> None:
        """Say whether a hypervisor is below."""
        flags = "fpu vme de hypervisor lm" if said else "fpu vme de lm"
        self.write("proc/cpuinfo", f"processor\t: 0\nflags\t\t: {flags}")


def behind_a_switch(at: int, bus: int = 0x10) -> tuple[str, str]:
    """Return the paths of a GPU and a NIC that hang on one switch, the `at`-th of the machine."""
    root = f"pci{at:04x}:{bus:02x}/{at:04x}:{bus:02x}:01.0/{at:04x}:{bus + 1:02x}:00.0"
    return (
        f"{root}/{at:04x}:{bus + 2:02x}:00.0/{at:04x}:{bus + 3:02x}:00.0",
        f"{root}/{at:04x}:{bus + 2:02x}:01.0/{at:04x}:{bus + 4:02x}:00.0",
    )
