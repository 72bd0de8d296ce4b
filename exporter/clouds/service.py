"""A metadata service: paths in, texts out; what a status means is said once for all providers.

The addresses are link-local, so nothing else is ever connected to, whatever a name or a redirect
says. There is no proxy, no redirect, and a limit on time and size.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from exporter.clock import Clock
from exporter.clouds.question import Refusal
from exporter.fetch import Caller, Reply, Unreached
from exporter.samples import Malformed

_OTHERS = frozenset(("100.100.100.200", "fd00:ec2::254", "fd20:ce::254"))
"""Metadata services that are not link-local: Alibaba, AWS and Google by IPv6."""

MOST = 64 * 1024
"""Bytes of an answer that are read."""

_EARLY = 15.0
_LONGEST_PAUSE = 5.0


def is_near(address: str) -> bool:
    """Tell whether a numeric address is this machine, its link, or a known metadata service."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None) or found
    return mapped.is_loopback or mapped.is_link_local or str(mapped) in _OTHERS


class Got(NamedTuple):
    """The text of an answer, and its ETag."""

    text: str
    etag: str


class Service:
    """One service at `url`. `timeout` is seconds for one answer."""

    def __init__(self, url: str, clock: Clock, *, timeout: float = 1.0) -> None:
        self.clock = clock
        self._caller = Caller(
            url, timeout=timeout, clock=clock, max_bytes=MOST, allowed=is_near
        )  # fmt: skip

    def get(
        self, path: str, headers: Mapping[str, str] | None = None, *, more_time: float = 0.0
    ) -> Got | None:
        """Return what is at a path, `None` if there is nothing (404). Raises `Refusal`."""
        reply = self.ask("GET", path, headers or {}, more_time=more_time)
        return None if reply.status == 404 else Got(text_of(path, reply), reply.etag)

    def always(
        self, path: str, headers: Mapping[str, str] | None = None, *, more_time: float = 0.0
    ) -> Got:
        """Return what is at a path that the service always has. Raises `Refusal`, on 404 too."""
        got = self.get(path, headers, more_time=more_time)
        if got is None:
            shown = path.partition("?")[0]
            raise Refusal("malformed", f"{shown}: HTTP 404 is no answer of this service")
        return got

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        body: bytes | None = None,
        more_time: float = 0.0,
    ) -> Reply:
        """Return any answer. Raises `Refusal` if there is none."""
        try:
            return self._caller.ask(method, path, headers, body=body, more_time=more_time)
        except Unreached as error:
            raise Refusal("timeout", str(error)) from None
        except TimeoutError as error:
            raise _Silent(str(error)) from None
        except ConnectionError as error:
            raise Refusal("unreachable", str(error)) from None
        except Malformed as error:
            raise Refusal("malformed", str(error)) from None


class _Silent(Refusal):
    """A connection was made, and no answer came."""

    def __init__(self, detail: str) -> None:
        super().__init__("timeout", detail)


def text_of(path: str, reply: Reply) -> str:
    """Return the text of a success. Raises `Refusal` for any other status."""
    status = reply.status
    shown = path.partition("?")[0]
    match status:
        case 200:
            try:
                return reply.body.decode("utf-8").strip()
            except UnicodeDecodeError:
                raise Refusal("malformed", f"{shown}: not UTF-8 text") from None
        case 401:
            raise Refusal("unauthorized", f"{shown}: HTTP 401: the token is not accepted")
        case 403:
            raise Refusal(
                "forbidden", f"{shown}: HTTP 403: the metadata service is switched off for this"
                " machine, or a firewall answers in its place"
            )  # fmt: skip
        case 429:
            raise Refusal("throttled", f"{shown}: HTTP 429: asked too often (by all on this node)")
        case _ if 300 <= status < 400:
            raise Refusal("redirected", f"{shown}: HTTP {status}: a redirect is not followed")
        case _ if status >= 500:
            raise Refusal("server_error", f"{shown}: HTTP {status}")
        case _:
            raise Refusal("malformed", f"{shown}: HTTP {status} is no answer of this service")


def json_of(path: str, text: str) -> Any:
    """Return a document. Raises `Refusal` if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Refusal("malformed", f"{path.partition('?')[0]}: not JSON") from None


class Token:
    """A session token: asked for once, kept until shortly before it expires.

    `optional` are the statuses that mean that the service has no tokens and wants none. After a
    failure it is not asked for again for up to five seconds: a service that is overloaded is not
    helped by more questions. Raises `Refusal`.
    """

    def __init__(
        self,
        service: Service,
        path: str,
        *,
        lifetime_header: str,
        header: str,
        lifetime: int = 3600,
        optional: frozenset[int] = frozenset(),
    ) -> None:
        self._service = service
        self._path = path
        self._lifetime_header = lifetime_header
        self._header = header
        self._lifetime = lifetime
        self._optional = optional
        self._headers: Mapping[str, str] | None = None
        self._until = self._not_before = 0.0
        self._pause = 0.0
        self._last: Refusal | None = None

    def get(self, path: str) -> Got | None:
        """Return what is at a path; a token that is not accepted is replaced once."""
        try:
            return self._service.get(path, self._current())
        except Refusal as error:
            if error.result != "unauthorized":
                raise
        self._headers = None
        return self._service.get(path, self._current())

    def _current(self) -> Mapping[str, str]:
        now = self._service.clock.monotonic()
        if self._headers is not None and now < self._until:
            return self._headers
        if self._last is not None and now < self._not_before:
            raise self._last
        try:
            self._headers = self._fetch()
        except Refusal as error:
            self._pause = min(_LONGEST_PAUSE, 2 * self._pause or 1.0)
            self._not_before = now + self._pause
            self._last = error
            raise
        self._until = now + self._lifetime - _EARLY
        self._pause, self._last = 0.0, None
        return self._headers

    def _fetch(self) -> Mapping[str, str]:
        asked = {self._lifetime_header: str(self._lifetime), "Content-Length": "0"}
        try:
            reply = self._service.ask("PUT", self._path, asked)
        except _Silent as error:
            raise Refusal(
                "token_timeout", f"{error}: a connection, but no token. From a container that is"
                " the hop limit: run in the host's network, or set the instance's metadata hop"
                " limit to 2"
            ) from None  # fmt: skip
        if reply.status in self._optional:
            return {}
        if reply.status == 404:
            raise Refusal("forbidden", f"{self._path}: HTTP 404: this service has no tokens")
        token = text_of(self._path, reply)
        if not token or len(token) > 4096 or not token.isascii() or not token.isprintable():
            raise Refusal("malformed", f"{self._path}: what it answers is no token")
        return {self._header: token}
