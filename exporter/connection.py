"""One HTTP connection: how much it may send before it has asked something, how long it may take.

The page is reached by the whole cluster network, and the health checks come through the same door.
So a connection must ask within seconds and in a few kilobytes, one thing after the other, and take
its answer within half a minute; when too many are open those that ask nothing make room. uvicorn
has no such limits, and its `limit_concurrency` would answer the health checks with 503.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from exporter.requests import neighbours

MOST_OPEN = 256
MOST_EACH = 64
"""Connections of one address elsewhere: one that is slow on purpose must not take all."""
MOST_HEAD_BYTES = 64 * 1024
MOST_AHEAD = 8
"""Requests that may wait for the answer to the one before them: a quarter of a megabyte, which is
read at once, holds thousands, and each would take a kilobyte of ours."""
SECONDS_TO_ASK = 10.0
SECONDS_TO_ANSWER = 30.0


class Crowd:
    """The connections that are open; `idle` those that have asked nothing yet, oldest first."""

    def __init__(self, most: int = MOST_OPEN, each: int = MOST_EACH) -> None:
        self.most = most
        self.each = each
        self.open = 0
        self.of: Counter[str] = Counter()
        self.idle: dict[Connection, None] = {}

    def enter(self, address: str) -> bool:
        """Count a connection in; tell whether there is room, made by ending an idle one.

        Idle ones of the address with the most connections go first.
        """
        self.open += 1
        self.of[address] += 1
        if self.of[address] > self.each and not address.startswith(_HERE):
            return False
        if self.open <= self.most:
            return True
        oldest = max(self.idle, key=lambda one: self.of[one.address], default=None)
        if oldest is None:
            return False
        del self.idle[oldest]
        oldest.transport.abort()
        return True

    def leave(self, address: str) -> None:
        """Count a connection out."""
        self.open -= 1
        self.of[address] -= 1
        if not self.of[address]:
            del self.of[address]


_HERE = ("127.", "::1", "::ffff:127.")


class Connection(HttpToolsProtocol):
    """uvicorn's connection with limits; `wire` is what lies below its TLS, if it has any."""

    def __init__(
        self, *args: Any, crowd: Crowd, wire: asyncio.Transport | None = None, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self._crowd = crowd
        self._wire = wire
        self._asking = True  # a head is awaited or being read, not what follows one
        self._other_bytes = 0  # of this request that are no body: its head, what frames its chunks
        self._body_bytes = 0
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or turn it away where there is no room."""
        super().connection_made(transport)
        there = transport.get_extra_info("socket")
        if there is not None and there.family == socket.AF_UNIX:
            # As ASGI says it; uvicorn leaves it open, as it does where an address is not known.
            self.server = (str(there.getsockname()), None)
        self._certificate = transport.get_extra_info("peercert")
        self._tls = transport.get_extra_info("sslcontext")
        address = self.client[0] if self.client else _HERE[1]
        self.address = address if address.startswith(_HERE) else neighbours(address)
        if not self._crowd.enter(self.address):
            transport.abort()
            return
        self._crowd.idle[self] = None
        self._allow(SECONDS_TO_ASK)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._crowd.leave(self.address)
        self._crowd.idle.pop(self, None)
        self._allow(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what was sent; a head without end is not waited for, nor are trailers."""
        if self._asking and self._other_bytes == 0:
            self._allow(SECONDS_TO_ASK)
        self._other_bytes += len(data)
        super().data_received(data)
        # Only now: a body may have come along with its head, and is none of it.
        if self._other_bytes > MOST_HEAD_BYTES + self._body_bytes:
            self.transport.abort()

    def on_message_begin(self) -> None:
        """Begin a request, unless too many wait already."""
        if len(self.pipeline) >= MOST_AHEAD:
            self.transport.abort()
            raise _TooFarAheadError  # or the rest of what has come would be read all the same
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Note that the connection has asked something."""
        # uvicorn's scope tells nothing of whom a client has shown itself to be.
        self.scope["certificate"] = self._certificate  # type: ignore[typeddict-unknown-key]
        self.scope["tls"] = self._tls  # type: ignore[typeddict-unknown-key]
        self._asking = False
        self._crowd.idle.pop(self, None)
        self._allow(SECONDS_TO_ANSWER)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Tell a body from what frames it."""
        self._other_bytes -= len(body)
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Await the next head."""
        self._asking = True
        self._other_bytes = self._body_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Note that the connection asks nothing any more; uvicorn's keep-alive limit holds now.

        Ours goes on: the answer has yet to be taken, and there may be a body that nobody wants.
        """
        self._crowd.idle[self] = None
        super().on_response_complete()

    def _allow(self, seconds: float | None) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None
        if seconds is not None:
            self._limit = self.loop.call_later(seconds, self._end_unless_idle)

    def _end_unless_idle(self) -> None:
        answered = self.cycle is not None and self.cycle.response_complete
        if not (answered and self._asking and self._other_bytes == 0 and self._all_is_taken()):
            self.transport.abort()

    def _all_is_taken(self) -> bool:
        # What TLS has handed on counts as gone for it.
        return not any(
            one.get_write_buffer_size() for one in (self.transport, self._wire) if one is not None
        )


class _TooFarAheadError(Exception):
    """More requests have come than may wait."""
