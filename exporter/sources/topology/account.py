"""By what account distances are told: the machine's own tree, or a file that was configured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from exporter.derive.fabric.distance import Place, address_of, distance, links_of, nvlinks
from exporter.derive.fabric.gpus import Gpu
from exporter.derive.fabric.rails import Nic
from exporter.formats.nccl_topology import LONGEST, Described, read_topology
from exporter.formats.topo import Matrix, read_matrix

SYSFS, NCCL_XML, MATRIX = "sysfs", "nccl_xml", "matrix"


class Account(NamedTuple):
    """What is told of distances, and by whom. `places` are by PCI address, words by index of the
    GPU and device, or indices of both GPUs.
    """

    source: str
    trusted: bool
    places: Mapping[str, Place]
    to_nics: Mapping[tuple[str, str], str]
    to_gpus: Mapping[tuple[str, str], str]

    def nic(self, gpu: Gpu, nic: Nic) -> str | None:
        """Return how far a NIC is from a GPU; None where that is not told."""
        if self.source == MATRIX:
            return self.to_nics.get((gpu.gpu, nic.device))
        return self._between(gpu.address, nic.place.address)

    def gpus(self, one: Gpu, other: Gpu) -> str | None:
        """Return how far two GPUs are from each other; NVLinks that are up are nearest."""
        links = one.links_to(other)
        if links:
            return nvlinks(links)
        word = self.to_gpus.get((one.gpu, other.gpu))
        if word is not None and (links is None or not links_of(word)):
            return word
        return self._between(one.address, other.address)

    def links(self, gpus: Sequence[Gpu]) -> Mapping[str, int]:
        """Return how many NVLinks GPUs have up, by index; those of which nothing tells are out."""
        told = {one.gpu: sum(one.peers.values()) for one in gpus if one.peers is not None}
        if told:
            return told
        rows = {one.gpu: [self.to_gpus.get((one.gpu, peer.gpu)) for peer in gpus] for one in gpus}
        return {
            gpu: max(links_of(word) for word in row if word)
            for gpu, row in rows.items()
            if any(row)
        }

    def _between(self, one: str, other: str) -> str | None:
        mine, its = self.places.get(one), self.places.get(other)
        return None if mine is None or its is None else distance(mine, its)


def of_machine(places: Mapping[str, Place], *, virtual: bool) -> Account:
    """Return the account of `/sys`: not to be trusted where a hypervisor made it up."""
    return Account(SYSFS, not virtual, places, {}, {})


def of_file(path: Path, places: Mapping[str, Place]) -> Account:
    """Return the account of a file; `places` are the machine's own, for what a matrix leaves out.

    Raises `OSError` and `Malformed`.
    """
    with path.open("rb") as file:
        data = file.read(LONGEST + 1)
    if data.lstrip()[:1] == b"<":
        return Account(NCCL_XML, trusted=True, places=_places(read_topology(data)), to_nics={},
                       to_gpus={})  # fmt: skip
    matrix: Matrix = read_matrix(data.decode("utf-8", "replace"))
    return Account(MATRIX, trusted=True, places=places, to_nics=matrix.of_devices(),
                   to_gpus=matrix.of_gpus())  # fmt: skip


def _places(devices: Sequence[Described]) -> Mapping[str, Place]:
    """Return the devices of an NCCL file as the kernel would show them: a switch is two bridges."""
    found = {}
    for one in devices:
        below = (*one.switches[1:], one.address)
        bridges = [
            bridge
            for switch, child in zip(one.switches, below, strict=False)
            for bridge in (switch, f"{switch} to {child}")
        ]
        if (address := address_of(one.address)) is not None:
            found[address] = Place(one.cpu, (*bridges, address), one.numa_node)
    return found
