"""What the kubelet answers when it is asked which container has which device (pod-resources v1).

Facts: names and numbers of the fields are those of `k8s.io/kubelet/pkg/apis/podresources/v1`. A
message is some ten fields, so it is taken apart here; what is of no use (CPUs, memory, NUMA nodes)
is passed over, and so is what later versions add.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from exporter.formats.protobuf import Field, fields
from exporter.samples import Malformed

MOST_PODS = 10_000
MOST_DEVICES = 200_000
"""What one answer may hold; a node runs some hundred pods, and plugins that slice GPUs finely tell
thousands of devices for each."""

MOST_FIELDS = 1_000_000
"""Fields of one answer, whatever they are: reading a million takes seconds, and the limit on
bytes is none on them."""

LONGEST = 512
"""Characters of a name or an id; Kubernetes allows 253."""


class Device(NamedTuple):
    """A device of a plugin: the resource that it is one of, and its id there."""

    resource: str
    id: str


class Claimed(NamedTuple):
    """A device of a claim (dynamic resource allocation): its driver, its pool, its name there."""

    driver: str
    pool: str
    device: str


class Container(NamedTuple):
    """A container with the devices that it has."""

    namespace: str
    pod: str
    name: str
    devices: tuple[Device, ...] = ()
    claimed: tuple[Claimed, ...] = ()


class Reader:
    """Reads answer after answer of one kubelet; what it has said before is not taken apart again.

    A node with finely sliced GPUs tells megabytes each time, and little of it is new.
    """

    def __init__(self) -> None:
        self._pods: dict[bytes, tuple[Container, ...]] = {}
        self._told: list[bytes] = []
        self._allocatable: tuple[Device, ...] = ()

    def containers(self, answer: bytes) -> tuple[Container, ...]:
        """Return the containers of a `ListPodResourcesResponse` that have devices, in order.

        Raises `Malformed`, also for an answer that is out of all proportion.
        """
        known = self._pods
        self._pods = {}
        found: list[Container] = []
        left, taken = MOST_DEVICES, _Taken()
        for number, pod in enumerate(_messages(taken.fields(answer), 1), start=1):
            inside = known.get(pod)
            self._pods[pod] = inside = _containers(pod, taken) if inside is None else inside
            found.extend(inside)
            left -= sum(len(one.devices) + len(one.claimed) for one in inside)
            if left < 0 or number > MOST_PODS:
                raise Malformed(f"more than {MOST_DEVICES} devices or {MOST_PODS} pods")
        return tuple(sorted(found, key=lambda one: one[:3]))

    def allocatable(self, answer: bytes) -> tuple[Device, ...]:
        """Return the devices of an `AllocatableResourcesResponse`, in order. Raises `Malformed`."""
        taken = _Taken()
        told = sorted(_messages(taken.fields(answer), 1))
        if told != self._told:
            found: list[Device] = []
            for one in told:
                found.extend(_devices(one, taken))
                if len(found) > MOST_DEVICES:
                    raise Malformed(f"more than {MOST_DEVICES} devices")
            self._told, self._allocatable = told, tuple(found)
        return self._allocatable


class _Taken:
    """Takes apart one answer, to the end of what one may hold."""

    def __init__(self) -> None:
        self._left = MOST_FIELDS

    def fields(self, message: bytes) -> Iterator[Field]:
        """Yield the fields of a message of the answer. Raises `Malformed`."""
        for field in fields(message):
            self._left -= 1
            if self._left < 0:
                raise Malformed(f"more than {MOST_FIELDS} fields")
            yield field


def _containers(message: bytes, taken: _Taken) -> tuple[Container, ...]:
    """Return the containers of a pod that have devices."""
    name, namespace, inside = _pod(message, taken)
    found = (_container(namespace, name, one, taken) for one in inside)
    return tuple(one for one in found if one.devices or one.claimed)


def _pod(message: bytes, taken: _Taken) -> tuple[str, str, list[bytes]]:
    name = namespace = ""
    inside: list[bytes] = []
    for field in taken.fields(message):
        if field.number == 1:
            name = _name(field)
        elif field.number == 2:
            namespace = _name(field)
        elif field.number == 3:
            inside.append(field.message)
    return name, namespace, inside


def _container(namespace: str, pod: str, message: bytes, taken: _Taken) -> Container:
    name = ""
    devices: list[Device] = []
    claimed: list[Claimed] = []
    for field in taken.fields(message):
        if field.number == 1:
            name = _name(field)
        elif field.number == 2:
            devices.extend(_devices(field.message, taken))
        elif field.number == 5:
            claimed.extend(_claimed(field.message, taken))
    return Container(namespace, pod, name, tuple(devices), tuple(claimed))


def _devices(message: bytes, taken: _Taken) -> Iterator[Device]:
    """Yield the devices of one `ContainerDevices`; one resource may come in several of them."""
    resource, ids = "", []
    for field in taken.fields(message):
        if field.number == 1:
            resource = _name(field)
        elif field.number == 2:
            ids.append(_name(field))
    return (Device(resource, one) for one in ids)


def _claimed(message: bytes, taken: _Taken) -> Iterator[Claimed]:
    """Yield the devices of one `DynamicResource`; those that are not named are none."""
    for resource in _messages(taken.fields(message), 4):
        named = (field for field in taken.fields(resource) if 2 <= field.number <= 4)
        told = {field.number: _name(field) for field in named}
        if 2 in told and 4 in told:
            yield Claimed(told[2], told.get(3, ""), told[4])


def _messages(some: Iterable[Field], number: int) -> Iterator[bytes]:
    return (field.message for field in some if field.number == number)


def _name(field: Field) -> str:
    text = field.text
    if len(text) > LONGEST:
        raise Malformed(f"field {field.number}: a name of {len(text)} characters")
    return text
