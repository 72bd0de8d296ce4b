"""The door to the kubelet of this node: which container has which device (pod-resources v1).

gRPC over a unix socket. The library (`grpcio`, the extra `kubernetes`) is imported when somebody
asks. A channel lives for one asking: the kubelet makes its socket anew at each start, and a channel
that has lost its socket would try again at times of its own.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from exporter.clock import Clock
from exporter.formats.podresources import Container, Device, Reader
from exporter.samples import Malformed, Reason, SourceError

SOCKET = "kubelet.sock"
LARGEST = 32 << 20
"""Bytes of an answer; gRPC's own limit of 4 MiB is too little for nodes with many devices
(dcgm-exporter 509)."""

_SERVICE = "/v1.PodResourcesLister/"
_NEEDS = "grpcio is not installed: pip install 'flopwatch[kubernetes]'"
_REASONS: dict[str, Reason] = {
    "DEADLINE_EXCEEDED": "timeout",
    "UNAVAILABLE": "unavailable",
    "UNIMPLEMENTED": "unavailable",
    "RESOURCE_EXHAUSTED": "unavailable",
    "PERMISSION_DENIED": "denied",
    "UNAUTHENTICATED": "denied",
}


class Answer(NamedTuple):
    """What the kubelet says: containers with their devices, and the devices that there are.

    `allocatable` is None if it did not say, and `problem` is why.
    """

    containers: tuple[Container, ...]
    allocatable: tuple[Device, ...] | None = None
    problem: Exception | None = None


class Kubelet(Protocol):
    """Who can be asked."""

    def ask(self) -> Answer:
        """Return what it says. Raises `SourceError`, `OSError`, `Malformed`."""


class PodResources:
    """Asks the socket in the first of `directories` that is there; all within `deadline` seconds.

    The directory is what is mounted into a container: a socket that is mounted itself would be the
    former one after a restart of the kubelet.
    """

    def __init__(self, directories: tuple[Path, ...], deadline: float, clock: Clock) -> None:
        self._directories = directories
        self._deadline = deadline
        self._clock = clock
        self._reader = Reader()

    def ask(self) -> Answer:
        """Return what the kubelet says now.

        Raises `SourceError`, `OSError` where the socket cannot be reached, and `Malformed`.
        """
        path = self._socket()
        until = self._clock.monotonic() + self._deadline
        _reach(path, self._deadline)
        with _channel(path) as channel:

            def call(method: str) -> bytes:
                return _call(channel, method, until - self._clock.monotonic())

            found = self._reader.containers(call("List"))
            try:
                answer = call("GetAllocatableResources")
                return Answer(found, self._reader.allocatable(answer))
            except (SourceError, Malformed) as error:
                return Answer(found, problem=error)

    def _socket(self) -> Path:
        for directory in self._directories:
            if directory.is_dir():
                return directory / SOCKET
        raise FileNotFoundError(f"{self._directories[0]}: no such directory; is it mounted?")


def _reach(path: Path, seconds: float) -> None:
    """Connect once: the system says why that cannot be done, gRPC says `unavailable`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(seconds)
        try:
            probe.connect(str(path))
        except OSError as error:
            error.filename = error.filename or str(path)
            raise


def _channel(path: Path) -> Any:
    try:
        import grpc
    except ImportError:
        raise SourceError("unavailable", _NEEDS) from None
    options = [
        ("grpc.max_receive_message_length", LARGEST),
        # What stands there otherwise is the path, which Go's servers refuse.
        ("grpc.default_authority", "localhost"),
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
    ]
    return grpc.insecure_channel(f"unix:{path}", options)


def _call(channel: Any, method: str, seconds: float) -> bytes:
    """Return the message that a call without arguments is answered with. Raises `SourceError`."""
    import grpc

    if seconds <= 0:
        raise SourceError("timeout", f"{method}: no time is left for it")
    ask: Callable[..., bytes] = channel.unary_unary(_SERVICE + method)
    try:
        return ask(b"", timeout=seconds)
    except grpc.RpcError as error:
        status = error.code().name
        said = error.details()
        raise SourceError(_REASONS.get(status, "io"), f"{method}: {status}: {said}") from None
