"""Where the daemon is, and one request to it."""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

SOCKET = "/run/flopwatch/push.sock"
LOOPBACK = "http://127.0.0.1:9810"
PATH = "/api/v1/training/steps"
_MOST_ANSWER = 65536


class Place(NamedTuple):
    """An address: the path of a unix socket, or scheme, host and port; and a path before ours."""

    socket: str = ""
    scheme: str = ""
    host: str = ""
    port: int | None = None
    prefix: str = ""


class Secrets(NamedTuple):
    """A token, or a file that holds one, which is read at each connection."""

    token: str = ""
    file: str = ""


def places(url: str) -> list[Place]:
    """Return where the daemon may be; without a URL the socket, then this machine.

    Raises `ValueError` for a URL that is none.
    """
    if not url:
        return [Place(socket=SOCKET), *places(LOOPBACK)]
    parts = urlsplit(url)
    if parts.scheme == "unix":
        path = parts.netloc + parts.path
        if path.startswith("/"):
            return [Place(socket=path)]
    elif parts.scheme in ("http", "https") and parts.hostname:
        return [Place("", parts.scheme, parts.hostname, parts.port, parts.path.rstrip("/"))]
    raise ValueError("unix:///path or http://host:port is wanted")


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Line:
    """A connection to the daemon that is kept open. Used by one thread."""

    def __init__(self, url: str, secrets: Secrets, timeout: float) -> None:
        self._places = places(url)
        # A token is only sent to the address that it was given for.
        self._secrets = secrets if url else Secrets()
        self.timeout = timeout
        self._prefix = ""
        self._open: tuple[http.client.HTTPConnection, Mapping[str, str], str] | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a connection from before."""
        return self._open is not None

    def post(self, body: bytes) -> tuple[int, bytes]:
        """Send a body; return status and answer.

        Raises `OSError`, `HTTPException`, and `ValueError`.
        """
        kept = self._open is not None
        try:
            return self._ask(body)
        except TimeoutError:
            self.close()
            raise
        except (OSError, http.client.HTTPException, ValueError):
            self.close()
            if not kept:
                raise
        # The daemon has restarted, or was tired of waiting. To send twice does no harm.
        try:
            return self._ask(body)
        except (OSError, http.client.HTTPException, ValueError):
            self.close()
            raise

    def _ask(self, body: bytes) -> tuple[int, bytes]:
        connection, headers, path = self._open or self._connect()
        connection.request("POST", path, body, dict(headers))
        answer = connection.getresponse()
        content = answer.read(_MOST_ANSWER)
        if answer.will_close or not answer.isclosed():
            self.close()
        return answer.status, content

    def get(self, path: str) -> tuple[int, bytes]:
        """Return status and body of a page, by a connection of its own.

        Raises `OSError`, `HTTPException`, and `ValueError`.
        """
        self.close()
        try:
            connection, headers, _ = self._connect()
            connection.request("GET", self._prefix + path, headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read(_MOST_ANSWER)
        finally:
            self.close()

    def hurry(self, timeout: float) -> None:
        """Wait no longer than so many seconds from now on."""
        self.timeout = timeout
        if self._open is not None and self._open[0].sock is not None:
            self._open[0].sock.settimeout(timeout)

    def close(self) -> None:
        """Let go of the connection."""
        former, self._open = self._open, None
        if former is not None:
            former[0].close()

    def _connect(self) -> tuple[http.client.HTTPConnection, Mapping[str, str], str]:
        headers = {"Content-Type": "application/json"}
        token = self._token()
        if token:
            headers["Authorization"] = "Bearer " + token
        failure: Exception = OSError("no address")
        for place in self._places:
            connection = self._reach(place)
            try:
                connection.connect()
            except OSError as error:
                connection.close()
                failure = error
                continue
            self._open = connection, headers, place.prefix + PATH
            self._prefix = place.prefix
            return self._open
        raise failure

    def _reach(self, place: Place) -> http.client.HTTPConnection:
        if place.socket:
            return _UnixConnection(place.socket, self.timeout)
        if place.scheme == "https":
            return http.client.HTTPSConnection(place.host, place.port, timeout=self.timeout)
        return http.client.HTTPConnection(place.host, place.port, timeout=self.timeout)

    def _token(self) -> str:
        if self._secrets.file:
            with Path(self._secrets.file).open(encoding="utf-8") as file:
                return (file.read(65536).split() or [""])[0]
        return self._secrets.token


def from_environment(
    url: str | None, token: str | None, token_file: str | None
) -> tuple[str, Secrets]:
    """Return address and token, of which what is not given is looked for in the environment."""
    if url is None:
        url = os.environ.get("FLOPWATCH_URL", "")
    if token is None and token_file is None:
        token = os.environ.get("FLOPWATCH_TOKEN")
        token_file = os.environ.get("FLOPWATCH_TOKEN_FILE")
    return url.strip(), Secrets((token or "").strip(), "" if token else token_file or "")
