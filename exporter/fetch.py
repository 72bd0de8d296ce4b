"""One HTTP GET after the other from one server, within a time and a size that are kept.

Metrics pages come from processes that may be overloaded, hung, half started or hostile. So the
whole exchange has one deadline, a body has a cap (also after decompression), a redirect does not
lead to another server, and what a status means for an operator is said in words. Retries, backoff
and the meaning of the page are left to others. `http.client` on a kept connection costs a fifth of
what the larger clients do; proxies of the environment are not used: a node's own servers are meant.
"""

from __future__ import annotations

import http.client
import ipaddress
import re
import socket
import ssl
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from exporter.clock import Clock
from exporter.samples import Malformed, Reason, SourceError

MAX_BYTES = 16 << 20
"""Default cap of a body, in bytes."""

ACCEPT = "text/plain;version=0.0.4, application/openmetrics-text;version=1.0.0;q=0.5, */*;q=0.1"

_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 3
_MAX_SIDE_BODY = 64 << 10
_MAX_LINE = 64 << 10
_MAX_FIELDS = 100
_PIECE = 256 << 10
_PACKED = 64 << 10
_LATE = 1.1
_MAX_MEMBERS = 8
_OVERHEAD = 1 << 20

Follow = Literal["same-host", "none", "any"]


class Response(NamedTuple):
    """An answer with status 200 to 299.

    `content_type` is as sent, "" if missing; `body` is decompressed.
    """

    status: int
    content_type: str
    body: bytes


class Refused(SourceError):  # noqa: N818 - said of the answer
    """An answer came, and its status is not a success."""

    def __init__(self, status: int, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.status = status


class HttpFetcher:
    """Gets one URL again and again over a kept connection.

    `timeout` is seconds for the whole exchange, redirects included (a look-up of the host's name
    cannot be cut short). `token_file` holds a bearer token and is read each time, so that it may
    rotate. `follow_redirects`: to the same scheme, host and port only (`same-host`), never, or
    anywhere; what is secret goes to the same host only. Raises `ValueError` for a URL that
    cannot be used. Errors and `repr` hold neither the token nor the query of the URL.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        clock: Clock,
        max_bytes: int = MAX_BYTES,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        insecure_skip_verify: bool = False,
        follow_redirects: Follow = "same-host",
    ) -> None:
        self._target = _Target(url)
        self._timeout = timeout
        self._clock = clock
        self._max_bytes = max_bytes
        self._token_file = token_file
        self._ca_file = ca_file
        self._insecure = insecure_skip_verify
        self._follow = follow_redirects
        self._kept: _Connection | None = None
        self._body: bytes | None = None

    def __repr__(self) -> str:
        return f"HttpFetcher({self._target.shown!r})"

    def get(self) -> Response:
        """Fetch the URL.

        Raises `Refused` for a status that is not a success, `SourceError` for a redirect that is
        not followed and for files that cannot be read, `TimeoutError` at the deadline,
        `ConnectionError` if the server is not there, leaves too early or is not trusted,
        `Malformed` if what it sends is too large or not HTTP.
        """
        return self._fetch()

    def post(self, body: bytes) -> Response:
        """Send JSON, once: on a connection of its own, and no redirect is followed.

        Raises what `get` does.
        """
        self.close()
        self._body = body
        try:
            return self._fetch()
        finally:
            self._body = None
            self.close()

    def _fetch(self) -> Response:
        budget = _Budget(self._clock, self._timeout, self._max_bytes)
        secrets = self._secrets()
        with _explained(self._target.shown, self._timeout):
            target = self._target
            for _ in range(_MAX_REDIRECTS + 1):
                answer = self._exchange(
                    target, budget, secrets if target.same(self._target) else {}
                )
                if answer.status not in _REDIRECTS:
                    return self._judged(answer, budget, secrets)
                target = self._redirected(target, answer)
        raise SourceError("unavailable", f"{self._target.shown}: too many redirects")

    def close(self) -> None:
        """Close the kept connection."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _secrets(self) -> dict[str, str]:
        """Return the headers that only the configured server may see."""
        secrets: dict[str, str] = {}
        if self._token_file is not None:
            try:
                token = self._token_file.read_text("utf-8").strip()
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or "not text"
                raise SourceError("denied", f"token_file {self._token_file}: {reason}") from None
            if re.fullmatch(r"[\x21-\x7e]+", token) is None:
                raise SourceError("denied", f"token_file {self._token_file}: not a single token")
            secrets["Authorization"] = f"Bearer {token}"
        return secrets

    def _exchange(self, target: _Target, budget: _Budget, secrets: Mapping[str, str]) -> _Answer:
        """Ask on the kept connection; where that was closed meanwhile, once more on a new one."""
        if not target.same(self._target):
            connection = self._connection(target)
            try:
                return self._ask(connection, target, budget, secrets)
            finally:
                connection.close()
        if self._kept is not None and self._kept.sock is not None:
            try:
                return self._ask(self._kept, target, budget, secrets)
            except _Stale:
                pass
        self.close()
        self._kept = self._connection(target)
        return self._ask(self._kept, target, budget, secrets)

    def _connection(self, target: _Target) -> _Connection:
        return _Connection(target, self._context if target.scheme == "https" else None)

    def _context(self) -> ssl.SSLContext:
        """Return the TLS settings; made for each connection, so that a new CA file counts."""
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except (ssl.SSLError, OSError) as error:
            raise SourceError("denied", f"ca_file {self._ca_file}: {error.strerror}") from None
        context.sslsocket_class = _TlsSocket
        if self._insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _ask(
        self, connection: _Connection, target: _Target, budget: _Budget, secrets: Mapping[str, str]
    ) -> _Answer:
        """Make one exchange. A connection that is in an unclear state afterwards is closed."""
        reused = connection.sock is not None
        done = False
        try:
            connection.budget = budget
            response = self._answered(connection, target, secrets, reused=reused)
            limit = self._max_bytes if 200 <= response.status < 300 else _MAX_SIDE_BODY
            answer = _read(response, limit)
            done = True
            return answer
        finally:
            if not done:
                connection.close()

    def _answered(
        self,
        connection: _Connection,
        target: _Target,
        secrets: Mapping[str, str],
        *,
        reused: bool,
    ) -> http.client.HTTPResponse:
        headers = {
            "Host": target.netloc,
            "Accept": ACCEPT,
            "Accept-Encoding": "identity" if target.loopback else "gzip",
            "User-Agent": "flopwatch",
        }
        try:
            if self._body is None:
                connection.request("GET", target.path, headers={**headers, **secrets})
            else:
                headers |= {"Content-Type": "application/json", **secrets}
                connection.request("POST", target.path, self._body, headers)
            return connection.getresponse()
        except (ConnectionError, ssl.SSLError, http.client.BadStatusLine) as error:
            if reused:
                raise _Stale from error
            raise

    def _redirected(self, target: _Target, answer: _Answer) -> _Target:
        try:
            wanted = _Target(urljoin(target.url, answer.location))
        except ValueError:
            raise SourceError(
                "unavailable", f"{target.shown}: redirects to no usable URL"
            ) from None
        if (
            self._follow == "none"
            or self._body is not None
            or (self._follow == "same-host" and not wanted.same(target))
        ):
            raise SourceError(
                "unavailable",
                f"{target.shown}: redirects to {wanted.shown}, which is not followed; configure"
                " that address if it is meant",
            )
        return wanted

    def _judged(self, answer: _Answer, budget: _Budget, secrets: Mapping[str, str]) -> Response:
        """Return a success; raise what any other status means."""
        status = answer.status
        if not 200 <= status < 300:
            reason, hint = _meaning(status)
            said = "" if reason == "denied" else _excerpt(answer, budget, secrets)
            text = f"{self._target.shown}: HTTP {status}: {hint}{said}"
            raise Refused(status, reason, text)
        body = _decoded(answer, self._max_bytes, budget)
        return Response(status, answer.content_type, body)


class Unreached(TimeoutError):  # noqa: N818 - said of the server
    """Nobody has accepted a connection within the time."""


class Reply(NamedTuple):
    """An answer of any status; headers that were not sent are ""."""

    status: int
    content_type: str
    etag: str
    body: bytes


class Caller:
    """Asks one server for paths, with method and headers of one's own; any status is an answer.

    For services whose statuses have a meaning, and which are asked seldom: each request has a
    connection of its own. No redirect is followed and no proxy used; `allowed` tells which numeric
    addresses may be connected to. Raises `ValueError` for a URL that cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        clock: Clock,
        max_bytes: int = _MAX_SIDE_BODY,
        allowed: Callable[[str], bool] | None = None,
    ) -> None:
        self._target = _Target(url)
        self._timeout = timeout
        self._clock = clock
        self._max_bytes = max_bytes
        self._allowed = allowed

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        body: bytes | None = None,
        more_time: float = 0.0,
    ) -> Reply:
        """Return the answer to one request; `more_time` is added to the timeout, in seconds.

        Raises `Unreached` if nobody accepts the connection in time, `TimeoutError` if no whole
        answer comes, `ConnectionError` if the server is not there, leaves too early or is not
        allowed, `Malformed` if what it sends is too large or not HTTP.
        """
        seconds = self._timeout + more_time
        target = self._target
        connection = _Connection(target, None)
        connection.allowed = self._allowed
        connection.budget = _Budget(self._clock, seconds, self._max_bytes)
        shown = f"{target.scheme}://{target.netloc}{path.partition('?')[0]}"
        with _explained(shown, seconds):
            try:
                self._connect(connection, shown)
                sent = {"Host": target.netloc, "User-Agent": "flopwatch", "Connection": "close"}
                connection.request(method, path, body, {**sent, **headers})
                answer = _read(connection.getresponse(), self._max_bytes)
            finally:
                connection.close()
        return Reply(answer.status, answer.content_type, answer.etag, answer.body)

    def _connect(self, connection: _Connection, shown: str) -> None:
        try:
            connection.connect()
        except TimeoutError:
            raise Unreached(f"{shown}: no connection within {self._timeout:g} s") from None


@contextmanager
def _explained(shown: str, timeout: float) -> Iterator[None]:
    """Say of each failure which URL it is about, in the few classes that callers know."""
    try:
        yield
    except Unreached:
        raise
    except TimeoutError:
        raise TimeoutError(f"{shown}: no whole answer within {timeout:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise ConnectionError(
            f"{shown}: certificate not accepted: {error.verify_message} (see ca_file)"
        ) from error
    except http.client.IncompleteRead:
        raise ConnectionError(f"{shown}: the answer broke off") from None
    except ConnectionError as error:
        raise ConnectionError(f"{shown}: {error}") from error
    except _NonsenseError as error:
        raise Malformed(f"{shown}: {error}") from None
    except http.client.HTTPException as error:
        # Its text quotes what the server sent, which may be anything.
        raise Malformed(f"{shown}: not an HTTP answer ({type(error).__name__})") from None
    except Malformed as error:
        raise Malformed(f"{shown}: {error}") from error
    except OSError as error:
        raise ConnectionError(f"{shown}: {error.strerror or error}") from error


def _meaning(status: int) -> tuple[Reason, str]:
    """Return what a status means where a metrics page is expected."""
    match status:
        case 400:
            return "unavailable", (
                "bad request; a llama.cpp router wants to know the model (?model=NAME in the URL)"
            )
        case 401 | 403:
            return "denied", "wants a valid token (token_file)"
        case 404:
            return "unavailable", "metrics are switched off, or the path is another one"
        case 501:
            return "unavailable", "metrics are switched off (llama.cpp: start it with --metrics)"
        case 503:
            return "unavailable", "not ready, perhaps it is still loading the model"
        case _ if status >= 500:
            return "unavailable", "the server has a fault of its own"
        case _:
            return "unavailable", "not what a metrics page answers"


class _Target:
    """A URL, taken apart and checked."""

    def __init__(self, url: str) -> None:
        try:
            parts: SplitResult = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"not a URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("an http:// or https:// URL is wanted")
        if "@" in parts.netloc:
            raise ValueError("user and password do not belong into a URL: use token_file")
        if re.fullmatch(r"[\x21-\x7e]+", url) is None:
            raise ValueError("a URL has neither spaces nor characters beyond ASCII")
        self.url = url
        self.scheme = parts.scheme
        self.host = parts.hostname
        self.port = port if port is not None else 443 if parts.scheme == "https" else 80
        self.netloc = parts.netloc
        self.path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.shown = f"{parts.scheme}://{parts.netloc}{parts.path}"

    def same(self, other: _Target) -> bool:
        """Tell whether both are the same server."""
        return (self.scheme, self.host, self.port) == (other.scheme, other.host, other.port)

    @property
    def loopback(self) -> bool:
        """Whether the host is this machine: then compression only costs."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost" or self.host.endswith(".localhost")


# ---------------------------------------------------------------- sockets with a budget


class _Stale(Exception):  # noqa: N818 - a state, not an error of anyone
    """The kept connection was closed by the server before it could answer."""


class _NonsenseError(http.client.HTTPException):
    """What the server sends is no answer; says why. (`http.client` would take a `ValueError`.)"""


class _Budget:
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

    def hold(self, sock: socket.socket) -> None:
        """Have a socket wait for the time that is left, or for a tenth of that more.

        Each setting costs a system call, and lets go of the interpreter for it.
        """
        left, waits = self.remaining(), sock.gettimeout()
        if waits is None or not left <= waits <= left * _LATE:
            sock.settimeout(left)

    def spend(self, number: int) -> int:
        """Count bytes and return their number. Raises `_NonsenseError` if they are too many."""
        self._bytes -= number
        if self._bytes < 0:
            raise _NonsenseError("sends far more than a body may have")
        return number


class _PlainSocket(socket.socket):
    """A socket that keeps to a budget, however often it is read."""

    budget: _Budget

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        """Receive what is there, waiting at most for the time that is left."""
        self.budget.hold(self)
        return self.budget.spend(super().recv_into(*args, **kwargs))


class _TlsSocket(ssl.SSLSocket):
    """The same over TLS."""

    budget: _Budget

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        """Receive what is there, waiting at most for the time that is left."""
        self.budget.hold(self)
        return self.budget.spend(super().recv_into(*args, **kwargs))


class _Fields(dict[str, str]):
    """The headers of an answer by their names in small letters; of several the first."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return a header, however its name is written."""
        return super().get(name.lower(), default)

    @classmethod
    def read(cls, lines: Iterator[bytes]) -> _Fields:
        """Read up to the empty line. Raises `_NonsenseError`."""
        fields = cls()
        for number, line in enumerate(lines):
            if len(line) > _MAX_LINE or number > _MAX_FIELDS:
                raise _NonsenseError("not an HTTP answer (no end of its headers)")
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
            raise _NonsenseError("not an HTTP answer (the size of a chunk is no number)")
        return int(size, 16)


class _Connection(http.client.HTTPConnection):
    """A connection to a target whose sockets keep to a budget."""

    budget: _Budget
    allowed: Callable[[str], bool] | None = None
    response_class = _HttpResponse

    def __init__(self, target: _Target, context: Callable[[], ssl.SSLContext] | None) -> None:
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
            self.budget.hold(sock)
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


# ---------------------------------------------------------------- bodies


class _Answer(NamedTuple):
    """An answer of any status, body as it came."""

    status: int
    content_type: str
    encoding: str
    location: str
    body: bytes
    etag: str = ""


def _read(response: http.client.HTTPResponse, limit: int) -> _Answer:
    """Read a body to its end. Raises `Malformed` if it is too large, `ConnectionError` if short."""
    announced = response.length
    if announced is not None and announced > limit:
        raise Malformed(f"the body is larger than {limit} bytes")
    body = bytearray()
    while piece := response.read(_PIECE):
        body += piece
        if len(body) > limit:
            raise Malformed(f"the body is larger than {limit} bytes")
    if announced is not None and len(body) < announced:
        raise ConnectionError(f"the answer broke off after {len(body)} of {announced} bytes")
    response.close()
    header = response.headers.get
    return _Answer(
        response.status,
        header("Content-Type", ""),
        header("Content-Encoding", "").strip().lower(),
        header("Location", ""),
        bytes(body),
        header("ETag", ""),
    )


def _decoded(answer: _Answer, limit: int, budget: _Budget) -> bytes:
    """Return the plain body.

    Raises `Malformed` if it is not sound or becomes too large, `TimeoutError` at the deadline.
    """
    match answer.encoding:
        case "" | "identity":
            return answer.body
        case "gzip" | "x-gzip":
            return _unzipped(answer.body, limit, budget)
        case _:
            raise Malformed("the body has an encoding that was not asked for")


def _unzipped(data: bytes, limit: int, budget: _Budget) -> bytes:
    """Return what a few gzip members hold; a body of thousands of empty ones is an attack."""
    plain = bytearray()
    view, at = memoryview(data), 0
    for _ in range(_MAX_MEMBERS):
        if at == len(data):
            break
        member = zlib.decompressobj(wbits=31)
        while at < len(data) and not member.eof:
            budget.remaining()
            # In pieces, because a member hands back, copied, what it was given beyond its end.
            piece = view[at : at + _PACKED]
            try:
                plain += member.decompress(piece, limit + 1 - len(plain))
            except zlib.error as error:
                raise Malformed(f"the body is not gzip: {error}") from None
            if len(plain) > limit:
                raise Malformed(f"the body is larger than {limit} bytes when unpacked")
            at += len(piece) - len(member.unused_data)
        if not member.eof:
            raise Malformed("the gzip body is cut off")
    if at < len(data):
        raise Malformed(f"the gzip body has more than {_MAX_MEMBERS} parts")
    return bytes(plain)


def _excerpt(answer: _Answer, budget: _Budget, secrets: Mapping[str, str]) -> str:
    """Return the beginning of a refusal's body, without what we sent."""
    try:
        text = _decoded(answer, _MAX_SIDE_BODY, budget).decode("utf-8", "replace")
    except Malformed:
        return ""
    for secret in secrets.values():
        for form in (secret, secret.removeprefix("Bearer ")):
            text = text.replace(form, "…") if form else text
    text = " ".join("".join(ch if ch.isprintable() else " " for ch in text).split())
    return f" ({text[:160]})" if text else ""
