"""What the board knows of GPUs that matters to where they hang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from exporter import catalogue as c
from exporter.derive.derivation import readings
from exporter.derive.fabric.distance import address_of
from exporter.samples import View

BUSY = 0.5
"""From which utilization on a GPU is busy enough for its link to be at full speed."""


SWITCH = "switch"


class Gpu(NamedTuple):
    """A GPU: its index, UUID and PCI address, and whether it is busy (None: not known).

    `on_chip` says that links between chips tie it to its CPU, as on Grace: no NIC is behind a
    switch with it there. `peers` are the NVLinks that are up, by the address of another GPU or
    "switch"; None where the driver does not tell.
    """

    gpu: str
    uuid: str
    address: str
    busy: bool | None = None
    on_chip: bool = False
    peers: Mapping[str, int] | None = None

    @property
    def labels(self) -> tuple[str, str]:
        """The labels that each of its series begins with."""
        return (self.gpu, self.uuid)

    def links_to(self, other: Gpu) -> int | None:
        """Return the NVLinks to another GPU, directly or by way of switches; None if untold."""
        if self.peers is None or other.peers is None:
            return None
        direct = self.peers.get(other.address, 0)
        return direct or min(self.peers.get(SWITCH, 0), other.peers.get(SWITCH, 0))


def gpus_of(roster: Mapping[str, tuple[str, str]], view: View, now: float) -> tuple[Gpu, ...]:
    """Return the GPUs that have been seen (index and UUID by address), in the order of the index.

    `now` is the view's moment.
    """
    used = {one.labels[1]: one.value for one in readings(view, c.GPU_UTILIZATION_RATIO, now)}
    peers = _peers(view, now)
    tied = {one.labels[1] for one in readings(view, c.GPU_C2C_LINKS, now) if one.value}
    found = [
        Gpu(
            gpu,
            uuid,
            address,
            busy=used[uuid] >= BUSY if uuid in used else None,
            on_chip=uuid in tied,
            peers=peers.get(uuid),
        )
        for written, (gpu, uuid) in roster.items()
        if (address := address_of(written)) is not None
    ]
    return tuple(sorted(found, key=lambda one: (len(one.gpu), one.gpu)))


def _peers(view: View, now: float) -> dict[str, dict[str, int]]:
    """Return the NVLinks that are up, by UUID and the other end."""
    found: dict[str, dict[str, int]] = {
        one.labels[1]: {} for one in readings(view, c.GPU_NVLINK_LINKS_UP, now) if not one.value
    }
    for one in readings(view, c.TOPOLOGY_NVLINK_LINKS, now):
        _, uuid, kind, address = one.labels
        end = address_of(address) if kind == "gpu" else SWITCH if kind == SWITCH else None
        if end is not None:
            found.setdefault(uuid, {})[end] = int(one.value)
    return found
