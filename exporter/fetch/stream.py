"""An answer that goes on for hours: it is asked for once, and what has arrived is taken from it.

For whoever reads on a beat of their own: taking never waits. Connecting has a deadline; a peer that
is gone without a word is noticed by the kernel's own probes, within a minute.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

from exporter.clock import Clock
from exporter.fetch.failures import explained
from exporter.fetch.target import Target
from exporter.fetch.trust import bearer, tls

_PIECE = 64 << 10
_MOST = 8 << 20
"""Bytes that are taken at once; the others are still there the next time."""

_PROBES = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))


class Stream:
    """Asks for `url` and keeps the connection. `timeout` is seconds for connecting and asking.

    `token_file` holds a bearer token. Raises what `HttpFetcher` does where nobody answers. Neither
    the token nor the query of the URL is in any text.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        clock: Clock,
        accept: str,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        insecure_skip_verify: bool = False,
    ) -> None:
        target = self._target = Target(url)
        self._timeout = timeout
        headers = {
            "Host": target.netloc, "Accept": accept, "Accept-Encoding": "identity",
            "User-Agent": "flopwatch", **bearer(token_file),
        }  # fmt: skip
        context = tls(ca_file, insecure=insecure_skip_verify) if target.scheme == "https" else None
        until = clock.monotonic() + timeout
        with explained(target.shown, timeout), contextlib.ExitStack() as undo:
            sock = undo.enter_context(socket.create_connection((target.host, target.port), timeout))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _PROBES:
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
            sock.settimeout(max(0.001, until - clock.monotonic()))
            if context is not None:
                # It takes the descriptor over, and closes it where it fails.
                sock = undo.enter_context(context.wrap_socket(sock, server_hostname=target.host))
            sock.sendall(_request(target.path, headers))
            sock.settimeout(0)
            self._socket = sock
            undo.pop_all()

    def take(self) -> bytes | None:
        """Return what has arrived, `None` once the peer has closed. Raises `ConnectionError`."""
        taken = bytearray()
        with explained(self._target.shown, self._timeout):
            while len(taken) < _MOST:
                try:
                    piece = self._socket.recv(_PIECE)
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    break
                except ssl.SSLEOFError:
                    piece = b""  # closed without TLS's goodbye
                if not piece:
                    return bytes(taken) if taken else None
                taken += piece
        return bytes(taken)

    def wait(self, seconds: float) -> None:
        """Wait until something has arrived, at most so long."""
        if not (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
            # Not `select`: a daemon of many kept files has descriptors that it cannot name.
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            poll.poll(max(0.0, seconds) * 1e3)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def _request(path: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join((*lines, "", "")).encode("latin-1")
