"""The doorway of a connection: straight in where HTTP is plain, else through a handshake.

Each connection takes the TLS that is in force when it arrives, so that certificates change without
a restart. Unix sockets are plain: the rights of the file guard them.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from exporter.requests import neighbours
from exporter.websecurity.policy import Policy
from exporter.websecurity.tls import names_in

log = logging.getLogger(__name__)

SECONDS_TO_SHAKE_HANDS = 10.0
MOST_SHAKING = 256
_MOST_REASONS = 16


class Make(Protocol):
    """Makes the protocol behind a door."""

    def __call__(self, *, wire: asyncio.Transport | None = None) -> asyncio.Protocol:
        """Return it; `wire` is what lies below the TLS of its connection."""


class Doorways:
    """Makes doorways and knows all that are being passed, oldest first.

    `admit` tells whether an address may shake hands now; `refused` counts those that could not.
    """

    def __init__(
        self,
        policy: Callable[[], Policy],
        admit: Callable[[str], bool],
        refused: Callable[[str], None],
    ) -> None:
        self.policy = policy
        self.admit = admit
        self._refused = refused
        self._passing: dict[asyncio.Task[None], tuple[asyncio.Transport, str]] = {}
        self._told: set[str] = set()

    def door(self, make: Make) -> asyncio.Protocol:
        """Return the protocol of a new connection; `make` makes the one behind the door."""
        return _Doorway(self, make)

    def enter(self, transport: asyncio.Transport, context: ssl.SSLContext, make: Make) -> None:
        """Begin a handshake; too many at once push out the oldest of the busiest address."""
        transport.pause_reading()  # until the handshake reads
        if len(self._passing) >= MOST_SHAKING:
            busiest = Counter(address for _, address in self._passing.values()).most_common(1)
            next(one for one, address in self._passing.values() if address == busiest[0][0]).abort()
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._shake(transport, context, make))
        self._passing[task] = transport, neighbours(address_of(transport))
        task.add_done_callback(self._passing.pop)

    async def _shake(
        self, transport: asyncio.Transport, context: ssl.SSLContext, make: Make
    ) -> None:
        loop = asyncio.get_running_loop()
        waiting = _Antechamber()
        try:
            secured = await loop.start_tls(
                transport, waiting, context, server_side=True,
                ssl_handshake_timeout=SECONDS_TO_SHAKE_HANDS,
            )  # fmt: skip
        except OSError as error:  # of which ssl.SSLError and time-outs are kinds
            self._tell(error)
            return
        if waiting.lost or secured is None:
            return
        if not self._is_welcome(secured.get_extra_info("peercert")):
            self.refuse(secured, "certificate")
            return
        _hand_over(secured, make(wire=transport), waiting.came)

    def _is_welcome(self, certificate: dict[str, Any] | None) -> bool:
        """Tell whether a certificate, if there is one, has one of the names that may come in."""
        names = self.policy().names
        return names is None or not certificate or not names.isdisjoint(names_in(certificate))

    def refuse(self, transport: asyncio.Transport, reason: str) -> None:
        """Close a connection without an answer."""
        self._refused(reason)
        transport.abort()

    def _tell(self, error: OSError) -> None:
        """Count a handshake that failed; log what is new about it."""
        self._refused("handshake")
        said = getattr(error, "reason", None) or error.strerror or str(error)
        reason = _REASONS.get(said, said)
        if reason not in self._told and len(self._told) < _MOST_REASONS:
            self._told.add(reason)
            log.info("a TLS handshake failed: %s (told once)", reason)


_REASONS = {
    "HTTP_REQUEST": "http:// was asked of a port that speaks https://",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "a client without a certificate",
    "CERTIFICATE_VERIFY_FAILED": "a client's certificate that cannot be verified",
    "TLSV1_ALERT_UNKNOWN_CA": "a client that does not know our authority",
}


class _Doorway(asyncio.Protocol):
    """Decides what a connection has to go through."""

    def __init__(self, doorways: Doorways, make: Make) -> None:
        self._doorways = doorways
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send a connection in, or to the handshake."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type checker
        there = transport.get_extra_info("socket")
        context = self._doorways.policy().context
        if context is None or (there is not None and there.family == socket.AF_UNIX):
            _hand_over(transport, self._make(), ())
            return
        if not self._doorways.admit(address_of(transport)):
            self._doorways.refuse(transport, "rate")
            return
        self._doorways.enter(transport, context, self._make)


class _Antechamber(asyncio.Protocol):
    """Keeps what a client says before its connection is known behind the door."""

    def __init__(self) -> None:
        self.came: list[bytes] = []
        self.lost = False

    def data_received(self, data: bytes) -> None:
        """Keep what came: one record or two, the task that takes it over runs next."""
        self.came.append(data)

    def connection_lost(self, _: Exception | None) -> None:
        """Note that there is nobody left."""
        self.lost = True


def address_of(transport: asyncio.BaseTransport) -> str:
    """Return who is at the other end, "" where that is not known."""
    return str((transport.get_extra_info("peername") or ("",))[0])


def _hand_over(
    transport: asyncio.Transport, protocol: asyncio.Protocol, came: list[bytes] | tuple[()]
) -> None:
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    for data in came:
        if not transport.is_closing():
            protocol.data_received(data)
