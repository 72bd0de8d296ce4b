"""Connections that keep to a budget of time and bytes, and HTTP as far as a page needs it."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from typing import Any

from exporter.clock import Clock
from exporter.fetch.target import Target

_MAX_LINE = 64 << 10
_MAX_FIELDS = 100
_LATE = 1.1
_ROOM = 64 << 10
_OVERHEAD = 1 << 20


class Stale(Exception):  # noqa: N818 - a state, not an error of anyone
    """The kept connection was closed by the server before it could answer."""


class NonsenseError(http.client.HTTPException):
    """What the server sends is no answer; says why. (`http.client` would take a `ValueError`.)"""


class Budget:
    """What one fetch may take: seconds until its deadline, and bytes from the network.

    The bytes leave room for the body twice and for headers and redirects. They are counted where
    they arrive, so that they hold whatever `http.client` makes of lengths, chunks and trailers.
    """

    def __init__(self, clock: Clock, seconds: float, body: int) -> None:
        self._clock = clock
        self._end = clock.monotonic() + seconds
        self._bytes = 2 * body + _OVERHEAD

    def remaining(self) -> float:
        """Return the seconds that are left. Raises `TimeoutError` if there are none."""
        left = self._end - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError("deadline")
        return left

    def fits(self, waits: float | None) -> bool:
        """Tell whether a socket that waits so long keeps to the time that is left, or nearly.

        Each setting of a socket costs a system call: it is left alone while it is a tenth off.
        """
        left = self.remaining()
        return waits is not None and left <= waits <= left * _LATE

    def spend(self, number: int) -> int:
        """Count bytes and return their number. Raises `NonsenseError` if they are too many."""
        self._bytes -= number
        if self._bytes < 0:
            raise NonsenseError("sends far more than a body may have")
        return number


class _PlainSocket(socket.socket):
    """A socket that keeps to a budget, however often it is read.

    Once it is `held`, the kernel keeps the time. With a timeout of Python's own each operation
    would be two system calls, and let go of the interpreter twice.
    """

    budget: Budget
    _waits: float | None = None

    def hold(self) -> None:
        """Wait at most for the time that is left, in whatever is done next."""
        if self.budget.fits(self._waits):
            return
        if self._waits is None:
            self.settimeout(None)
        waits = self.budget.remaining()
        seconds = int(waits)
        # Nothing at all would mean for ever.
        limit = struct.pack("ll", seconds, max(1, int((waits - seconds) * 1e6)))
        self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._waits = waits

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        """Receive what is there. Raises `TimeoutError` when the time is over."""
        self.hold()
        try:
            return self.budget.spend(super().recv_into(*args, **kwargs))
        except BlockingIOError:
            raise TimeoutError("deadline") from None

    def sendall(self, *args: Any, **kwargs: Any) -> None:
        """Send everything. Raises `TimeoutError` when the time is over."""
        self.hold()
        try:
            super().sendall(*args, **kwargs)
        except BlockingIOError:
            raise TimeoutError("deadline") from None

    def makefile(self, *args: Any, **kwargs: Any) -> Any:
        """Return a reader that has room for a page, so that it asks the kernel once or twice."""
        return super().makefile(*args, **{"buffering": _ROOM, **kwargs})


class TlsSocket(ssl.SSLSocket):
    """The same over TLS, where Python has to keep the time."""

    budget: Budget

    def hold(self) -> None:
        """Wait at most for the time that is left, in whatever is done next."""
        if not self.budget.fits(self.gettimeout()):
            self.settimeout(self.budget.remaining())

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        """Receive what is there, waiting at most for the time that is left."""
        self.hold()
        return self.budget.spend(super().recv_into(*args, **kwargs))


class _Fields(dict[str, str]):
    """The headers of an answer by their names in small letters; of several the first."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return a header, however its name is written."""
        return super().get(name.lower(), default)

    @classmethod
    def read(cls, lines: Iterator[bytes]) -> _Fields:
        """Read up to the empty line. Raises `NonsenseError`."""
        fields = cls()
        for number, line in enumerate(lines):
            if len(line) > _MAX_LINE or number > _MAX_FIELDS:
                raise NonsenseError("not an HTTP answer (no end of its headers)")
            if line in {b"\r\n", b"\n", b""}:
                break
            name, _, value = line.decode("latin-1").partition(":")
            fields.setdefault(name.lower(), value.strip())
        return fields


class _HttpResponse(http.client.HTTPResponse):
    """An answer that is taken apart here, as far as a metrics page needs it.

    `http.client` hands the headers to the e-mail package, which takes longer than all else does.
    Of the size of a chunk it asks `int()`, which takes `-1`: then it reads whatever comes until
    the end.
    """

    def begin(self) -> None:
        """Read the status and the headers."""
        version, status, reason = self._status()
        while status == http.HTTPStatus.CONTINUE:
            _Fields.read(self._lines())
            version, status, reason = self._status()
        fields: Any = _Fields.read(self._lines())
        self.headers = self.msg = fields
        self.code = self.status = status
        self.reason = reason.strip()
        self.version = 10 if version in {"HTTP/1.0", "HTTP/0.9"} else 11
        self.chunked = fields.get("transfer-encoding", "").lower() == "chunked"
        self.chunk_left = None
        self.will_close = self._check_close()  # type: ignore[attr-defined]
        announced = fields.get("content-length", "")
        self.length = int(announced) if announced.isdecimal() and not self.chunked else None
        if status < 200 or status in {http.HTTPStatus.NO_CONTENT, http.HTTPStatus.NOT_MODIFIED}:
            self.length = 0
        if self.length is None and not self.chunked:
            self.will_close = True

    def _status(self) -> tuple[str, int, str]:
        version, status, reason = self._read_status()  # type: ignore[attr-defined]
        if not version.startswith("HTTP/1.") and version != "HTTP/0.9":
            raise http.client.UnknownProtocol(version)
        return version, status, reason

    def _lines(self) -> Iterator[bytes]:
        return iter(lambda: self.fp.readline(_MAX_LINE + 1), None)

    def _read_next_chunk_size(self) -> int:
        line: bytes = self.fp.readline(_MAX_LINE + 1)
        if not line:
            raise http.client.IncompleteRead(b"")
        size = line.partition(b";")[0].rstrip(b" \t\r\n")
        if len(line) > _MAX_LINE or re.fullmatch(rb"[0-9A-Fa-f]{1,16}", size) is None:
            raise NonsenseError("not an HTTP answer (the size of a chunk is no number)")
        return int(size, 16)


class Connection(http.client.HTTPConnection):
    """A connection to a target whose sockets keep to a budget."""

    budget: Budget
    allowed: Callable[[str], bool] | None = None
    response_class = _HttpResponse

    def __init__(self, target: Target, context: Callable[[], ssl.SSLContext] | None) -> None:
        super().__init__(target.host, target.port)
        self._tls = context

    def connect(self) -> None:
        """Connect to the first address of the host that answers, with TLS where wanted."""
        # Kept at once, so that close() ends it whatever happens next.
        sock: Any = self._first()
        self.sock = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            context = self._tls()
            sock.settimeout(self.budget.remaining())
            self.sock = sock = context.wrap_socket(sock, server_hostname=self.host)
        sock.budget = self.budget

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send a request, within the time that is left."""
        sock: Any = self.sock
        if sock is not None:
            sock.budget = self.budget
            sock.hold()
        super().request(*args, **kwargs)

    def _first(self) -> _PlainSocket:
        failure: OSError = ConnectionError(f"{self.host} has no address")
        for family, kind, protocol, _, address in self._addresses():
            plain = _PlainSocket(family, kind, protocol)
            try:
                plain.settimeout(self.budget.remaining())
                plain.connect(address)
            except OSError as error:
                plain.close()
                failure = error
            else:
                return plain
        raise failure

    def _addresses(self) -> list[tuple[Any, ...]]:
        try:
            found = list(socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM))
        except (socket.gaierror, UnicodeError) as error:
            raise ConnectionError(f"the host's name is not known ({error})") from None
        for one in found:
            if self.allowed is not None and not self.allowed(str(one[4][0])):
                raise ConnectionError(f"{one[4][0]} is no address that may be asked")
        return found
