"""On which GPUs each inference server works.

The driver lists processes; a server's are the one that listens on its port and all below it, or
those of its pod; where nobody sees the processes of a pod, its GPUs are those that it was given.
Where the configuration states the GPUs, that is what counts. A process that cannot be seen from
here (in another process namespace, or by a driver that hides it) leads nowhere: then there is no
line.

    llm_server_gpu{server="local:8000",gpu="0",uuid="GPU-5a1c..."} 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.discovery import Machine
from exporter.discovery.local import serves
from exporter.discovery.machine import Process, by_port
from exporter.formats.sockets import Listener
from exporter.samples import Fault, Sample, View

_PER_PROCESS = (c.GPU_PROCESS_MEMORY_BYTES, c.GPU_PROCESS_SM_RATIO)


_OF_PODS = (c.GPU_PROCESS_INFO, c.GPU_ALLOCATION_INFO)
"""Where pods have GPUs: best word first."""


class Placed(NamedTuple):
    """A server that is read.

    `port` if it is on this machine, `gpus` if they are configured, `pod` (namespace and name) if it
    is in one.
    """

    server: str
    port: int | None
    gpus: tuple[int, ...] | None = None
    pod: tuple[str, str] | None = None


class PlacementSource:
    """Finds the GPUs of `servers`. `view` is the board at a moment of the monotonic clock."""

    name = "placement"
    group = c.SERVING

    def __init__(
        self,
        servers: Sequence[Placed],
        machine: Machine,
        view: Callable[[float], View],
        clock: Clock,
    ) -> None:
        self._servers = tuple(servers)
        self._machine = machine
        self._view = view
        self._clock = clock
        self._owners: dict[tuple[Process, frozenset[Listener]], bool] = {}

    def read(self) -> Iterator[Sample | Fault]:
        """Yield a sample for each GPU of each server, and a fault for a GPU that is not there."""
        view = self._view(self._clock.monotonic())
        uuids = {sample.labels[0]: sample.labels[1] for sample in view.samples(c.GPU_INFO)}
        yield from self._configured(uuids)
        found = self._found(view) | self._of_pods(view)
        for server, gpus in sorted(found.items()):
            for gpu, uuid in sorted(gpus):
                yield c.LLM_SERVER_GPU(1, server, gpu, uuid)

    def close(self) -> None:
        """Hold nothing, so release nothing."""

    def _configured(self, uuids: Mapping[str, str]) -> Iterator[Sample | Fault]:
        """Yield what the configuration states, as far as the GPUs have been seen."""
        for one in self._servers:
            for gpu in map(str, dict.fromkeys(one.gpus or ())):
                if gpu in uuids:
                    yield c.LLM_SERVER_GPU(1, one.server, gpu, uuids[gpu])
                elif uuids:
                    known = ", ".join(uuids)
                    yield Fault(
                        one.server, "unavailable", f"gpus: there is no GPU {gpu}; there are {known}"
                    )

    def _of_pods(self, view: View) -> dict[str, set[tuple[str, str]]]:
        """Return index and UUID of the GPUs of each server that is in a pod."""
        servers = [(one.pod, one.server) for one in self._servers if one.gpus is None and one.pod]
        pods = _gpus_of_pods(view) if servers else {}
        return {server: pods[pod] for pod, server in servers if pod in pods}

    def _found(self, view: View) -> dict[str, set[tuple[str, str]]]:
        """Return index and UUID of the GPUs of each server that has no configured ones."""
        ports = {one.port: one.server for one in self._servers if one.gpus is None and one.port}
        users = self._users(view) if ports else {}
        if not users:
            return {}
        try:
            listeners = by_port(self._machine.listeners())
        except OSError:
            return {}
        sockets = {
            server: frozenset(listeners[port])
            for port, server in ports.items()
            if port in listeners
        }
        self._forget(sockets.values())
        found: dict[str, set[tuple[str, str]]] = {}
        for pid, gpus in users.items():
            server = self._server_of(pid, sockets)
            if server is not None:
                found.setdefault(server, set()).update(gpus)
        return found

    def _users(self, view: View) -> dict[int, set[tuple[str, str]]]:
        """Return the GPUs of each process that the driver lists and that is seen from here.

        A process without a name is not: its number would be another one's here.
        """
        users: dict[int, set[tuple[str, str]]] = {}
        for metric in _PER_PROCESS:
            at, command = metric.labels.index("pid"), metric.labels.index("command")
            for sample in view.samples(metric):
                pid = sample.labels[at]
                if sample.labels[command] and pid.isdecimal():
                    users.setdefault(int(pid), set()).add((sample.labels[0], sample.labels[1]))
        return users

    def _server_of(self, pid: int, sockets: Mapping[str, frozenset[Listener]]) -> str | None:
        """Return the server that a process belongs to: of its nearest ancestor that listens."""
        for process in self._machine.ancestry(pid):
            for server, listeners in sockets.items():
                if self._owns(process, listeners):
                    return server
        return None

    def _owns(self, process: Process, listeners: frozenset[Listener]) -> bool:
        key = (process, listeners)
        if key not in self._owners:
            port = next(iter(listeners)).port
            self._owners[key] = serves(self._machine, process.pid, port, listeners)
        return self._owners[key]

    def _forget(self, current: Iterable[frozenset[Listener]]) -> None:
        """Forget sockets that are no more, and all at times: processes come and go as well."""
        kept = set(current)
        if len(self._owners) > 10_000:
            self._owners = {}
        self._owners = {key: held for key, held in self._owners.items() if key[1] in kept}


def _gpus_of_pods(view: View) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """Return index and UUID of the GPUs of each pod, by namespace and name."""
    found: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for metric in reversed(_OF_PODS):
        namespace, pod = metric.labels.index("namespace"), metric.labels.index("pod")
        told: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for sample in view.samples(metric):
            if sample.labels[pod]:
                key = sample.labels[namespace], sample.labels[pod]
                told.setdefault(key, set()).add((sample.labels[0], sample.labels[1]))
        found |= told
    return found
