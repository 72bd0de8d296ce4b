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


class Gpu(NamedTuple):
    """A GPU: its index, UUID and PCI address, and whether it is busy (None: not known).

    `on_chip` says that links between chips tie it to its CPU, as on Grace: no NIC is behind a
    switch with it there.
    """

    gpu: str
    uuid: str
    address: str
    busy: bool | None = None
    on_chip: bool = False

    @property
    def labels(self) -> tuple[str, str]:
        """The labels that each of its series begins with."""
        return (self.gpu, self.uuid)


def gpus_of(roster: Mapping[str, tuple[str, str]], view: View, now: float) -> tuple[Gpu, ...]:
    """Return the GPUs that have been seen (index and UUID by address), in the order of the index.

    `now` is the view's moment.
    """
    used = {one.labels[1]: one.value for one in readings(view, c.GPU_UTILIZATION_RATIO, now)}
    tied = {one.labels[1] for one in readings(view, c.GPU_C2C_LINKS, now) if one.value}
    found = [
        Gpu(gpu, uuid, address, used[uuid] >= BUSY if uuid in used else None, uuid in tied)
        for written, (gpu, uuid) in roster.items()
        if (address := address_of(written)) is not None
    ]
    return tuple(sorted(found, key=lambda one: (len(one.gpu), one.gpu)))
