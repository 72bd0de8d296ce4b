"""Who has which part of which GPU, from what the kubelet lists and from the GPUs on the board.

Told is what is certain. A device of which nobody knows the GPU, or of which two pods say that they
have it alone, is counted as such and given to nobody. While there is one of the first kind, no GPU
is told to be free.

    gpu_allocation_info{gpu="0",uuid="GPU-5a1c...",namespace="ml",pod="train-0",container="main"} 1
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from exporter import catalogue as c
from exporter.derive.allocation.gpus import Gpus, Part
from exporter.derive.allocation.pods import Pod, Pods
from exporter.formats.device_ids import DeviceId, claimed_device, device_id
from exporter.formats.podresources import Claimed, Container, Device
from exporter.samples import Fault, Sample

_SHOWN = 3
"""Devices that a fault names."""


class Wanted(NamedTuple):
    """Of which resources and drivers devices are GPUs, and of which numbers are indices."""

    resources: tuple[str, ...]
    indexed: tuple[str, ...] = ()

    def takes(self, resource: str) -> bool:
        """Tell whether devices of a resource, or of a driver, are GPUs."""
        return _matches(self.resources, resource) or self.counts(resource)

    def counts(self, resource: str) -> bool:
        """Tell whether numbers of a resource are indices of GPUs."""
        return _matches(self.indexed, resource)


class Holding(NamedTuple):
    """A part that a container has. `claimed`: by a claim, which several containers may share."""

    part: Part
    namespace: str
    pod: str
    container: str
    resource: str
    claimed: bool = False

    @property
    def owner(self) -> Pod:
        """Namespace and name of its pod."""
        return (self.namespace, self.pod)

    @property
    def labels(self) -> tuple[str, str, str]:
        """Namespace, pod and container."""
        return (self.namespace, self.pod, self.container)


class Unplaced(NamedTuple):
    """A device that was given to nobody: its resource or driver, and what is wrong with it."""

    resource: str
    problem: str


class Allocation(NamedTuple):
    """Who has what; GPUs that nobody has; devices that were given to nobody."""

    holdings: tuple[Holding, ...] = ()
    free: tuple[str, ...] = ()
    unresolved: tuple[Unplaced, ...] = ()
    replicas: Mapping[Part, int] = {}
    """How many replicas there are of what is handed out in replicas."""

    def samples(self, gpus: Gpus) -> Iterator[Sample]:
        """Yield it as samples."""
        yield from _told(self.holdings, gpus)
        for uuid in self.free:
            yield c.GPU_ALLOCATION_INFO(1, gpus.index(uuid), uuid, "", "", "")
        yield from _parts(self.holdings, gpus)
        yield from self._shares(gpus)
        for resource, number in Counter(one.resource for one in self.unresolved).items():
            yield c.GPU_ALLOCATION_UNRESOLVED_DEVICES(number, resource)

    def faults(self) -> Iterator[Fault]:
        """Yield a fault for each resource of which devices were given to nobody."""
        for resource in dict.fromkeys(one.resource for one in self.unresolved):
            problems = [one.problem for one in self.unresolved if one.resource == resource]
            more = f"; {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
            yield Fault(resource, "unavailable", "; ".join(problems[:_SHOWN]) + more)

    def _shares(self, gpus: Gpus) -> Iterator[Sample]:
        """Yield how much of each GPU each container has, where that is known of all its parts."""
        several = Counter(one.part for one in self.holdings)
        shares: dict[tuple[str, ...], float | None] = {}
        for one in self.holdings:
            key: tuple[str, ...] = (gpus.index(one.part.uuid), one.part.uuid, *one.labels)
            share = self._share(one.part, gpus) if several[one.part] == 1 else None
            before = shares.get(key, 0.0)
            shares[key] = None if share is None or before is None else before + share
        for key, told in shares.items():
            if told is not None:
                yield c.GPU_ALLOCATION_SHARE_RATIO(min(1.0, told), *key)

    def _share(self, part: Part, gpus: Gpus) -> float | None:
        if part.unknown:
            return None
        if not part.replica:
            return gpus.share(part)
        number = self.replicas.get(part.shared, 0) if part.alike else 0
        share = gpus.share(part.shared)
        return share / number if number and share is not None else None


def allocated(
    containers: Iterable[Container],
    allocatable: Iterable[Device] | None,
    gpus: Gpus,
    wanted: Wanted,
    *,
    pods: Pods,
    finished: Collection[Pod] = (),
    named: Mapping[Claimed, str] | None = None,
) -> Allocation:
    """Return who has what of `gpus`.

    `allocatable` are the devices that the kubelet hands out at all, None if it does not say;
    `pods` has looked at the same containers, `finished` are pods known to be over, `named` are the
    UUIDs of claimed devices as far as they are known. Who is over, and has no process, has nothing.
    """
    unresolved: list[Unplaced] = []

    def claimed(one: Claimed) -> Part | None:
        ways = device_id((named or {}).get(one, "")), claimed_device(one.device)
        return next((part for said in ways if said and (part := gpus.find(said))), None)

    over = frozenset(finished) - gpus.working
    there = (one for one in containers if (one.namespace, one.pod) not in over)
    holdings: dict[tuple[Part, tuple[str, ...]], Holding] = {}
    for one in _held(there, gpus, wanted, claimed, unresolved):
        holdings.setdefault((one.part, one.labels), one)  # whatever resources it comes under
    managed = [part for one in allocatable or () if (part := _part(one, gpus, wanted))]
    taken = {one.part.uuid for one in holdings.values()}
    free = {} if unresolved else dict.fromkeys(p.uuid for p in managed if p.uuid not in taken)

    def owner(claims: Collection[Pod]) -> Pod | None:
        return pods.owner(claims, finished=finished, working=gpus.working)

    settled = tuple(_settled(holdings.values(), owner, unresolved))
    replicas = Counter(part.shared for part in dict.fromkeys(managed) if part.replica)
    return Allocation(settled, tuple(free), tuple(unresolved), replicas)


def _held(
    containers: Iterable[Container],
    gpus: Gpus,
    wanted: Wanted,
    part_of: Callable[[Claimed], Part | None],
    unresolved: list[Unplaced],
) -> Iterator[Holding]:
    for one in containers:
        names = (one.namespace, one.pod, one.name)
        for device in one.devices:
            if (part := _part(device, gpus, wanted)) is not None:
                yield Holding(part, *names, device.resource)
            elif _is_gpu(device, wanted):
                unresolved.append(_unknown(device.resource, device.id, one))
        for claimed in one.claimed:
            if not wanted.takes(claimed.driver):
                continue
            if (part := part_of(claimed)) is not None:
                yield Holding(part, *names, claimed.driver, claimed=True)
            else:
                unresolved.append(_unknown(claimed.driver, claimed.device, one))


def _unknown(resource: str, device: str, container: Container) -> Unplaced:
    owner = f"{container.namespace}/{container.pod}"
    return Unplaced(resource, f"{device[:64]!r} of {owner}: of no GPU that is known here")


def _part(device: Device, gpus: Gpus, wanted: Wanted) -> Part | None:
    """Return what a plugin's device is a part of, if of a GPU here.

    A UUID or an address speaks for itself, whatever the resource is called (dcgm-exporter 151).
    """
    said = device_id(device.id)
    if said is None or not (_names_itself(said) or wanted.takes(device.resource)):
        return None
    return gpus.find(said, indexed=wanted.counts(device.resource))


def _is_gpu(device: Device, wanted: Wanted) -> bool:
    """Tell whether a device that was not found is a GPU: other plugins have devices too."""
    said = device_id(device.id)
    if said is not None and said.address:
        return False  # of a card of another kind, as far as anybody here knows
    return wanted.takes(device.resource) or (said is not None and bool(said.uuid))


def _names_itself(said: DeviceId) -> bool:
    return bool(said.uuid or said.address)


def _settled(
    holdings: Iterable[Holding],
    owner_of: Callable[[Collection[Pod]], Pod | None],
    unresolved: list[Unplaced],
) -> Iterator[Holding]:
    """Yield the holdings, of what only one pod can have only that of one.

    A GPU that is split into instances is nobody's alone: a pod that had it before that may still be
    listed.
    """
    holdings = list(holdings)
    has: dict[Part, dict[Pod, None]] = {}
    below: dict[Part, dict[Pod, None]] = {}
    for one in holdings:
        if not one.claimed:
            has.setdefault(one.part, {})[one.owner] = None
            for part in one.part.within:
                below.setdefault(part, {})[one.owner] = None
    told: set[Part] = set()
    for one in holdings:
        around = (has.get(part, {}) for part in one.part.within)
        rivals = {pod: None for pods in (*around, below.get(one.part, {})) for pod in pods}
        rivals.pop(one.owner, None)
        if one.claimed or not rivals:
            yield one
            continue
        owners = {owner_of((one.owner, rival)) for rival in rivals}
        if owners == {one.owner}:
            yield one
        elif owners <= {None, one.owner} and one.part not in told:
            told.add(one.part)
            pods = ", ".join("/".join(pod) for pod in sorted((one.owner, *rivals)))
            unresolved.append(
                Unplaced(one.resource, f"{one.part.uuid}: {pods} say that each has it alone")
            )


def _told(holdings: Iterable[Holding], gpus: Gpus) -> Iterator[Sample]:
    """Yield a row for each container and GPU, however many parts of it that has."""
    for uuid, labels in dict.fromkeys((one.part.uuid, one.labels) for one in holdings):
        yield c.GPU_ALLOCATION_INFO(1, gpus.index(uuid), uuid, *labels)


def _parts(holdings: Iterable[Holding], gpus: Gpus) -> Iterator[Sample]:
    """Yield a row for each container and part; several compute instances of one are one row."""
    rows = ((one.part, one.labels) for one in holdings if one.part.instance or one.part.replica)
    told = dict.fromkeys((part.uuid, part.instance, part.replica, *who) for part, who in rows)
    for uuid, *labels in told:
        yield c.GPU_ALLOCATION_PART_INFO(1, gpus.index(uuid), uuid, *labels)


def _matches(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
