"""Which GPUs and instances a node has, by each of the names that somebody has for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from exporter import catalogue as c
from exporter.derive.fabric.distance import address_of
from exporter.derive.slices import of_device, wholes
from exporter.formats.device_ids import DeviceId
from exporter.samples import View

_PRESENT = (
    c.GPU_UP,
    c.GPU_UTILIZATION_RATIO,
    c.GPU_MEMORY_USED_BYTES,
    c.GPU_SM_ACTIVE_RATIO,
    c.GPU_MIG_MEMORY_USED_BYTES,
    c.GPU_MIG_GRAPHICS_ACTIVE_RATIO,
)
"""What is told of a GPU that is there, by whichever reader. One that is lost still belongs to
somebody, and another exporter's page does not say what GPUs are."""


class Part(NamedTuple):
    """A GPU by its UUID, or a part of it: an instance, a compute instance in it, a replica.

    Without `instance` and `replica` it is the whole GPU, unless it is `unknown` which part.
    """

    uuid: str
    instance: str = ""
    compute: str = ""
    replica: str = ""
    alike: bool = False
    unknown: bool = False

    @property
    def whole(self) -> bool:
        """Whether it is all of a GPU."""
        return not (self.instance or self.replica or self.unknown)

    @property
    def within(self) -> tuple[Part, ...]:
        """It, and of an instance its GPU: nobody has that alone once it is split.

        Replicas are another matter: whoever had all of the GPU may go on beside them.
        """
        return (self, Part(self.uuid)) if self.instance else (self,)

    @property
    def shared(self) -> Part:
        """What a replica is a replica of."""
        return self._replace(replica="", alike=False)


class Gpus:
    """The GPUs on a board, and their instances.

    `minors` returns the UUID of each GPU by the number of its device file; it is asked only if
    somebody goes by that.
    """

    def __init__(
        self, view: View, minors: Callable[[], Mapping[str, str]] = dict[str, str]
    ) -> None:
        self._minors = minors
        self._indices: dict[str, str] = {}
        self._addresses: dict[str, str] = {}
        self._devices: dict[str, Part] = {}
        self._shares: dict[Part, float] = {}
        self.working = _working(view)
        """Pods (namespace and name) that have processes on GPUs, as far as that is told."""
        at = c.GPU_INFO.labels.index("pci_bus_id")
        for sample in view.samples(c.GPU_INFO):
            gpu, uuid = sample.labels[:2]
            self._indices.setdefault(uuid, gpu)
            if (address := address_of(sample.labels[at])) is not None:
                self._addresses[address] = uuid
        for metric in _PRESENT:
            for sample in view.samples(metric):
                self._indices.setdefault(sample.labels[1], sample.labels[0])
        parts = wholes(view)
        for sample in view.samples(c.GPU_MIG_INFO):
            _, uuid, instance, compute, device, profile = sample.labels
            part = Part(uuid, instance, compute)
            self._devices[device] = part
            if uuid in parts and (some := of_device(profile)):
                self._shares[part] = min(1.0, some / parts[uuid])

    def same(self, others: Gpus) -> bool:
        """Tell whether others are the same, under the same names, with the same pods at work."""
        if self.working != others.working:
            return False
        return (self._indices, self._addresses, self._devices, self._shares) == (
            others._indices, others._addresses, others._devices, others._shares,
        )  # fmt: skip

    @property
    def known(self) -> frozenset[str]:
        """The UUIDs of all GPUs and instances: others mean that something has changed."""
        return frozenset((*self._indices, *self._devices))

    def index(self, uuid: str) -> str:
        """Return the index of a GPU, as its label has it."""
        return self._indices[uuid]

    def share(self, part: Part) -> float | None:
        """Return how much of its GPU a part is that is no replica; None if nobody knows."""
        return 1.0 if part.whole else self._shares.get(part)

    def find(self, said: DeviceId, *, indexed: bool = False) -> Part | None:
        """Return the part that an id speaks of, if it is of a GPU of this node.

        A bare number is an index if the resource is one whose numbers are (`indexed`).
        """
        part = self._part(said, indexed=indexed)
        if part is None or part.uuid not in self._indices:
            return None
        return part._replace(replica=said.replica, alike=said.alike, unknown=said.part)

    def _part(self, said: DeviceId, *, indexed: bool) -> Part | None:
        if said.uuid:
            part = self._devices.get(said.uuid)
            uuid = said.uuid
        elif said.minor:
            part, uuid = None, self._minors().get(said.minor, "")
        elif said.address:
            part, uuid = None, self._addresses.get(address_of(said.address) or "", "")
        else:
            part, uuid = None, self._at(said.number) if indexed else ""
        return part or self._instance(uuid, said)

    def _instance(self, uuid: str, said: DeviceId) -> Part:
        if not said.instance or said.compute:
            return Part(uuid, said.instance, said.compute)
        # GKE names the instance alone, of which it makes one compute instance.
        inside = [one for one in self._devices.values() if one[:2] == (uuid, said.instance)]
        return inside[0] if len(inside) == 1 else Part(uuid, said.instance)

    def _at(self, index: str) -> str:
        number = str(int(index))
        return next((uuid for uuid, gpu in self._indices.items() if gpu == number), "")


def _working(view: View) -> frozenset[tuple[str, str]]:
    metric = c.GPU_ALLOCATION_PROCESSES
    at, name = metric.labels.index("namespace"), metric.labels.index("pod")
    pods = ((one.labels[at], one.labels[name]) for one in view.samples(metric))
    return frozenset(pod for pod in pods if all(pod))
