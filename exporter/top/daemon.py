"""Asks a daemon for its page and its status document, over HTTP or its unix socket."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from exporter.clock import Clock
from exporter.commands.pages import Page
from exporter.config import ConfigError, page_url
from exporter.fetch import MAX_BYTES, HttpFetcher
from exporter.formats.exposition import Reader
from exporter.samples import Malformed, SourceError
from exporter.top.reading import frame
from exporter.top.rows import Frame

SOCKET = Path("/run/flopwatch/push.sock")
"""Where a daemon on this machine listens too, if it may."""

LOOPBACK = "http://127.0.0.1:9810"
PATIENCE = 3.0
"""Seconds that a daemon may take for one answer."""

_PAGE, _STATUS = "/metrics", "/api/v1/status"


class Away(Exception):  # noqa: N818 - said of the daemon
    """The daemon does not answer, or not as one does; the text says how."""


class Daemon:
    """A daemon. `where` is how it is called.

    Without a URL it is the one on this machine: by its socket if there is one, else by its port.
    Raises `ConfigError` for a URL that is none.
    """

    def __init__(
        self,
        url: str | None,
        clock: Clock,
        *,
        token_file: Path | None = None,
        ca_file: Path | None = None,
    ) -> None:
        self._clock = clock
        self._reader = Reader()
        if url is None:
            url = f"unix://{SOCKET}" if SOCKET.is_socket() else LOOPBACK
        self.where = url
        parts = urlsplit(url)
        if parts.scheme == "unix":
            path = parts.netloc + parts.path
            if not path.startswith("/"):
                raise ConfigError(f"--url: {url}: unix:///path is wanted")
            self._get: Callable[[str], bytes] = lambda what: _by_socket(path, what)
            return
        try:
            base = page_url(url).partition("?")[0].rstrip("/").removesuffix(_PAGE)
        except ValueError as error:
            raise ConfigError(f"--url: {url}: {error}") from None
        self.where = base
        fetchers = {
            path: HttpFetcher(
                base + path, timeout=PATIENCE, clock=clock, token_file=token_file, ca_file=ca_file
            )
            for path in (_PAGE, _STATUS)
        }
        self._get = lambda what: fetchers[what].get().body

    def ask(self) -> Frame:
        """Return what it tells now. Raises `Away`."""
        try:
            page = Page(self._get(_PAGE), self.where, self._reader, finite=True)
            status = _document(self._get(_STATUS))
        except TimeoutError:
            raise Away(f"no answer within {PATIENCE:g} s") from None
        except (ConfigError, SourceError, Malformed, OSError, http.client.HTTPException) as error:
            raise Away(str(error) or type(error).__name__) from None
        return frame(page, status, self._clock.time())


def _document(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise Malformed("the status document is no JSON") from None
    if not isinstance(found, dict):
        raise Malformed("the status document is none")
    return found


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=PATIENCE)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _by_socket(path: str, what: str) -> bytes:
    connection = _UnixConnection(path)
    try:
        connection.request("GET", what, headers={"Connection": "close"})
        answer = connection.getresponse()
        body = answer.read(MAX_BYTES + 1)
    except OSError as error:
        raise OSError(f"{path}: {error.strerror or error}") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise OSError(f"{path}: HTTP {answer.status}")
    if len(body) > MAX_BYTES:
        raise Malformed(f"{path}: more than {MAX_BYTES} bytes")
    return body
