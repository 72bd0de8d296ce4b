"""`flopwatch topology`: the matrix of a node as `nvidia-smi topo -m` prints it, and what is wrong.

It is taken from a page, or from this machine's own `/sys`, which needs neither a daemon nor the
driver; NVLinks are not known then, and GPUs are numbered by their addresses, as the driver does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from exporter.clock import Clock
from exporter.commands.pages import Page, Series
from exporter.config import ConfigError
from exporter.derive.fabric.distance import address_of, links_of
from exporter.derive.fabric.gpus import Gpu
from exporter.derive.fabric.rails import natural
from exporter.nvml.inventory import addresses_on_bus
from exporter.samples import Fault, Histogram, Sample
from exporter.sources.topology import Choice, Scanner, TopologySource

All = Callable[[str], Sequence[Series]]
"""Returns all series of a family."""

UNKNOWN = "?"

_UUID = re.compile(r"^GPU UUID:\s*(GPU-[0-9a-f-]{36})\s*$", re.MULTILINE)
_LEGEND = (
    "Legend:",
    "",
    "  X    = itself",
    "  SYS  = over the interconnect between sockets",
    "  NODE = over host bridges of one NUMA node",
    "  PHB  = over a host bridge of the CPU",
    "  PXB  = over several PCIe switches",
    "  PIX  = over one PCIe switch",
    "  NV#  = over so many NVLinks",
)


class Near(NamedTuple):
    """A GPU's NIC: how far, on which rail, and whether that is as near as the board allows."""

    device: str
    distance: str
    rail: str
    fine: bool | None


class Topology(NamedTuple):
    """What is known of a node. Words are by pairs of indices, or of index and device."""

    source: str
    trusted: bool
    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    to_gpus: Mapping[tuple[str, str], str]
    to_nics: Mapping[tuple[str, str], str]
    cpus: Mapping[str, str]
    numa_nodes: Mapping[str, str]
    near: Mapping[str, Near]
    wrong: tuple[str, ...]
    links_known: bool = True

    @property
    def plain(self) -> Mapping[str, object]:
        """The same as JSON can hold it."""
        return {
            "source": self.source, "trusted": self.trusted,
            "gpus": {
                gpu: {
                    "cpus": self.cpus.get(gpu), "numa_node": self.numa_nodes.get(gpu),
                    "nic": self.near[gpu]._asdict() if gpu in self.near else None,
                    "to_gpus": {o: w for (one, o), w in self.to_gpus.items() if one == gpu},
                    "to_nics": {n: w for (one, n), w in self.to_nics.items() if one == gpu},
                }
                for gpu in self.gpus
            },
            "nics": list(self.nics), "wrong": list(self.wrong),
        }  # fmt: skip


def of_page(page: Page) -> Topology:
    """Return what a page tells. Raises `ConfigError` if it tells of no topology."""
    found = topology(page.all)
    if not found.gpus:
        raise ConfigError(
            f"{page.name}: tells of no GPU's place; is `sources.topology` on, and are there GPUs?"
        )
    return found


def of_machine(root: Path, file: Path | None, clock: Clock) -> Topology:
    """Return what `/sys` below a root tells. Raises `ConfigError` if there is no GPU, or `file` is
    no good.
    """
    gpus = [
        Gpu(str(at), _uuid(root, address), address_of(address) or address)
        for at, address in enumerate(addresses_on_bus(root))
    ]
    if not gpus:
        raise ConfigError(f"{root / 'sys/bus/pci/devices'}: no NVIDIA GPU is there")
    source = TopologySource(Scanner(root), lambda: gpus, clock, choice=Choice(file=file))
    families: dict[str, list[Series]] = {}
    for item in source.read():
        if isinstance(item, Fault) and file is not None and str(file) in item.part:
            raise ConfigError(f"{file}: {item.detail.partition(': ')[2]}")
        if isinstance(item, Sample) and not isinstance(item.value, Histogram):
            labels = dict(zip(item.metric.labels, item.labels, strict=True))
            families.setdefault(item.metric.name, []).append(Series(labels, item.value))
    found = topology(lambda name: families.get(name, ()))
    return found._replace(links_known=any(map(links_of, found.to_gpus.values())))


def _uuid(root: Path, address: str) -> str:
    try:
        with (root / f"proc/driver/nvidia/gpus/{address}/information").open("rb") as file:
            found = _UUID.search(file.read(4096).decode("ascii", "replace"))
    except OSError:
        return ""
    return found[1] if found else ""


def topology(told: All) -> Topology:
    """Return what the families of a page tell."""
    pairs = {
        (one.labels["gpu"], one.labels["peer"]): one.labels["path"]
        for one in told("topology_gpu_gpu_distance")
    }
    to_nics = {
        (one.labels["gpu"], one.labels["device"]): one.labels["path"]
        for one in told("topology_gpu_nic_distance")
    }
    cpus = {one.labels["gpu"]: one.labels["cpus"] for one in told("topology_gpu_affinity_info")}
    nodes = {
        one.labels["gpu"]: f"{one.value:.0f}"
        for one in told("topology_numa_node") if one.labels.get("gpu")
    }  # fmt: skip
    near = dict(_near(told))
    gpus = {*(gpu for pair in pairs for gpu in pair), *(gpu for gpu, _ in to_nics), *cpus, *nodes}
    info = next(iter(told("topology_info")), Series({}, 1))
    return Topology(
        source=info.labels.get("source", ""),
        trusted=info.labels.get("trusted") == "true",
        gpus=tuple(sorted(gpus, key=natural)),
        nics=tuple(sorted({nic for _, nic in to_nics}, key=natural)),
        to_gpus={**pairs, **{(b, a): word for (a, b), word in pairs.items()}},
        to_nics=to_nics,
        cpus=cpus,
        numa_nodes=nodes,
        near=near,
        wrong=tuple(_wrong(told, near)),
    )


def _near(told: All) -> Iterator[tuple[str, Near]]:
    fine = {one.labels["gpu"]: bool(one.value) for one in told("topology_gpu_nic_ok")}
    for one in told("topology_gpu_best_nic_info"):
        gpu = one.labels["gpu"]
        yield (
            gpu,
            Near(one.labels["device"], one.labels["distance"], one.labels["rail"], fine.get(gpu)),
        )


def _wrong(told: All, near: Mapping[str, Near]) -> Iterator[str]:
    """Yield a line for each thing that is not as it should be."""
    for gpu, nic in near.items():
        if nic.fine is False:
            yield f"GPU{gpu}: its nearest compute NIC is {nic.device} at {nic.distance}: too far"
    for one in told("topology_nic_shared"):
        if one.value:
            users = ", ".join(f"GPU{gpu}" for gpu, nic in near.items()
                              if nic.device == one.labels["device"])  # fmt: skip
            yield f"{one.labels['device']}: the nearest of {users}, though each could have its own"
        elif all(nic.device != one.labels["device"] for nic in near.values()):
            yield f"{one.labels['device']}: a compute NIC that is the nearest of no GPU"
    for one in told("topology_gpu_nvlink_ok"):
        if not one.value:
            yield f"GPU{one.labels['gpu']}: fewer NVLinks are up than the other GPUs have"
    for one in told("topology_pcie_link_degraded"):
        if one.value:
            who = one.labels.get("device") or f"GPU{one.labels.get('gpu', '')}"
            lacks = {"width": "has fewer lanes", "speed": "is slower"}[one.labels["part"]]
            yield f"{who}: its PCIe link {lacks} than card and slot can do"


def lines(found: Topology) -> Iterator[str]:
    """Yield the matrix with its legends, then the rails, then what is wrong."""
    yield from _matrix(found)
    yield ""
    yield from _LEGEND
    if found.nics:
        yield from ("", "NIC Legend:", "")
        yield from (f"  NIC{at}: {nic}" for at, nic in enumerate(found.nics))
    if found.near:
        yield from ("", "Nearest compute NIC:", "")
        for gpu, nic in found.near.items():
            yield f"  GPU{gpu}: {nic.device}, {nic.distance}, rail {nic.rail}"
    yield from ("", *_verdict(found))


def _verdict(found: Topology) -> Iterator[str]:
    if not found.links_known:
        yield "NVLinks are not known without the driver; a daemon tells of them."
    if not found.trusted:
        yield (
            "In a virtual machine the hypervisor's PCI tree is not the board's: nothing is judged"
            " by it. `sources.topology.file` may say how it really is."
        )
    if found.wrong:
        yield from ("What is wrong:", "", *(f"  {line}" for line in found.wrong))
    elif found.trusted:
        yield f"Nothing is wrong, as far as can be told ({found.source})."


def _matrix(found: Topology) -> Iterator[str]:
    head = ["", *(f"GPU{gpu}" for gpu in found.gpus), *(f"NIC{n}" for n in range(len(found.nics)))]
    rows = [[*head, "CPU Affinity", "NUMA Affinity"]]
    for one in found.gpus:
        cells = [
            " X " if one == other else found.to_gpus.get((one, other), UNKNOWN)
            for other in found.gpus
        ]
        cells += [found.to_nics.get((one, nic), UNKNOWN) for nic in found.nics]
        about = [found.cpus.get(one, "N/A"), found.numa_nodes.get(one, "N/A")]
        rows.append([f"GPU{one}", *cells, *about])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()
