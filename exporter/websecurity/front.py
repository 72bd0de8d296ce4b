"""Stands in front of all pages: how often, who, and what may be asked.

Health checks pass: a kubelet has neither name nor password, and a caller that asks too much must
not have the daemon restarted. Pushes pass too, for their own door asks for a token. Unix sockets
are guarded by the rights of their file.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

from exporter.requests import (
    AUTHENTICATED,
    PLAIN,
    Answer,
    Receive,
    Scope,
    Send,
    came_by_socket,
    neighbours,
)
from exporter.websecurity.limits import Bucket, Callers, Pace
from exporter.websecurity.passwords import BusyError, Passwords, parse
from exporter.websecurity.policy import Policy
from exporter.websecurity.tls import names_in
from exporter.websecurity.webconfig import RateLimit

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

HEALTH = frozenset(("/-/healthy", "/-/ready"))
LONGEST_TARGET = 8192
"""Bytes of path and query."""
MOST_HEADERS = 100

_LATER = ((b"retry-after", b"1"),)
_TOO_OFTEN = Answer(429, PLAIN, b"too many requests\n", _LATER)
_BUSY = Answer(429, PLAIN, b"too many passwords at once\n", _LATER)
_TOO_LONG = Answer(414, PLAIN, b"the address is too long\n", ((b"connection", b"close"),))
_TOO_MANY_HEADERS = Answer(431, PLAIN, b"too many headers\n", ((b"connection", b"close"),))
_WHO = Answer(
    401, PLAIN, b"name and password are wanted\n",
    ((b"www-authenticate", b'Basic realm="flopwatch", charset="UTF-8"'),),
)  # fmt: skip
_UNENCRYPTED = Answer(400, PLAIN, b"https is spoken here\n")
_NO_CERTIFICATE = Answer(403, PLAIN, b"a client certificate is wanted\n")


class Rules(Protocol):
    """What the settings say of callers over the network."""

    @property
    def requests_per_second(self) -> float:
        """How often one address may ask in the long run; 0: as often as it likes."""

    @property
    def burst(self) -> int:
        """How often at once."""


class Front:
    """Answers those that may not go on, and hands all others to the application."""

    def __init__(
        self,
        application: Application,
        policy: Callable[[], Policy],
        rules: Callable[[], Rules],
        *,
        passwords: Passwords,
        now: Callable[[], float],
        refused: Callable[[str], None],
        guarded_elsewhere: frozenset[str],
    ) -> None:
        self._application = application
        self._policy = policy
        self._rules = rules
        self._passwords = passwords
        self._now = now
        self._refused = refused
        self._elsewhere = guarded_elsewhere
        self._callers = Callers()
        self._bucket: tuple[RateLimit, Bucket] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or came_by_socket(scope):
            await self._application(scope, receive, send)
            return
        policy = self._policy()
        if more := _more_headers(scope, policy):
            send = _with_headers(send, more)
        refusal = self._unasked(scope, policy)
        if refusal is None and scope["path"] not in HEALTH:
            refusal = await self._unknown(scope, policy)
        if refusal is None:
            await self._application(scope, receive, send)
        else:
            self._refused(_REASONS[refusal.status])
            await refusal.send(send, body=scope["method"] != "HEAD")

    def _unasked(self, scope: Scope, policy: Policy) -> Answer | None:
        """Return the answer to what is too long, or too much."""
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_TARGET:
            return _TOO_LONG
        if len(scope["headers"]) > MOST_HEADERS:
            return _TOO_MANY_HEADERS
        if scope["path"] in HEALTH or self._may_ask(scope, policy):
            return None
        return _TOO_OFTEN

    def _may_ask(self, scope: Scope, policy: Policy) -> bool:
        now, rate = self._now(), policy.rate
        if rate.interval > 0:
            if self._bucket is None or self._bucket[0] != rate:
                self._bucket = rate, Bucket(rate.interval, rate.burst, now)
            if not self._bucket[1].take(now):
                return False
        return may_come(self._callers, address_of(scope), self._rules(), now)

    async def _unknown(self, scope: Scope, policy: Policy) -> Answer | None:
        """Return the answer to whoever may not ask this; note who has shown who it is."""
        certified = bool(scope.get("certificate"))
        if policy.context is not None and scope.get("tls") is None:
            return _UNENCRYPTED
        if policy.demand and not (certified and _has_name(scope, policy)):
            return _NO_CERTIFICATE
        known = certified
        if policy.users and scope["path"] not in self._elsewhere:
            offered = _offered(scope)
            try:
                known = offered is not None and await self._passwords.know(
                    policy.users, offered, neighbours(address_of(scope))
                )
            except BusyError:
                return _BUSY
            if not known:
                return _WHO
        scope[AUTHENTICATED] = known
        return None


def _has_name(scope: Scope, policy: Policy) -> bool:
    names = policy.names
    return names is None or not names.isdisjoint(names_in(scope["certificate"]))


def _more_headers(scope: Scope, policy: Policy) -> tuple[tuple[bytes, bytes], ...]:
    """Return what answers get; a connection from before the TLS in force ends with its next one."""
    if scope.get("tls") is policy.context:
        return policy.headers
    return (*policy.headers, (b"connection", b"close"))


_REASONS = {
    400: "handshake",
    401: "password",
    403: "certificate",
    414: "size",
    429: "rate",
    431: "size",
}


def may_come(callers: Callers, address: str, rules: Rules, now: float) -> bool:
    """Tell whether an address may come now; this machine always may."""
    if rules.requests_per_second <= 0 or _is_here(address):
        return True
    return callers.allow(address, Pace(rules.requests_per_second, rules.burst), now)


def address_of(scope: Scope) -> str:
    """Return whose request it is, "" where that is not known."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _is_here(address: str) -> bool:
    if address.startswith(("127.", "::ffff:127.")) or address == "::1":
        try:
            ipaddress.ip_address(address)
        except ValueError:
            return False
        return True
    return False


def _offered(scope: Scope) -> Any:
    """Return the name and password of a request; several headers of them are none."""
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    return parse(given[0].decode("latin-1")) if len(given) == 1 else None


def _with_headers(send: Send, headers: tuple[tuple[bytes, bytes], ...]) -> Send:
    """Return a `send` that adds headers to answers that do not have them already."""

    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = message.get("headers", [])
            there = {name.lower() for name, _ in given}
            more = [(name, value) for name, value in headers if name not in there]
            message = {**message, "headers": [*given, *more]}
        await send(message)

    return sending
