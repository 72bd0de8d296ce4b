"""HTTP requests and answers as ASGI has them, and who has sent a request."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PLAIN = "text/plain; charset=utf-8"
AUTHENTICATED = "authenticated"
"""The key of a scope that tells whether the caller has shown who it is."""
_PROXIED = frozenset(("forwarded", "via", "x-real-ip"))


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()

    async def send(self, send: Send, *, body: bool) -> None:
        """Send it; a HEAD request wants no body."""
        await send({
            "type": "http.response.start",
            "status": self.status,
            "headers": [
                (b"content-type", self.content_type.encode()),
                (b"content-length", str(len(self.body)).encode()),
                *self.headers,
            ],
        })  # fmt: skip
        await send({"type": "http.response.body", "body": self.body if body else b""})


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the request's headers; those given several times are joined, as HTTP allows."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def is_local(scope: Scope) -> bool:
    """Tell whether a request comes from this machine itself, not through a proxy on it.

    It must also have been addressed to loopback by number or as `localhost`: a page in a browser on
    the node can make its own name mean 127.0.0.1 and would else read as if it were local, and who
    passes others on (Envoy, HAProxy, socat) leaves the address that those have asked. Proxies that
    say nothing of themselves mostly speak HTTP/1.0: nginx does unless told else.
    """
    headers = headers_of(scope)
    client = scope.get("client")
    if not client or any(n in _PROXIED or n.startswith("x-forwarded") for n in headers):
        return False
    if scope.get("http_version") == "1.0":
        return False
    try:
        asked = urlsplit("//" + headers.get("host", "localhost")).hostname or ""
    except ValueError:
        return False
    return _is_loopback(client[0]) and (asked == "localhost" or _is_loopback(asked))


def _is_loopback(text: str) -> bool:
    try:
        host = ipaddress.ip_address(text)
    except ValueError:
        return False
    mapped = getattr(host, "ipv4_mapped", None)
    return (mapped or host).is_loopback


def neighbours(address: str) -> str:
    """Return what an address counts as: a host has a whole /64 of IPv6 to choose from."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))


def came_by_socket(scope: Scope) -> bool:
    """Tell whether a request came by a unix socket; what it says of itself has no say in it."""
    server = scope.get("server")
    return server is not None and server[1] is None


def is_trusted(scope: Scope) -> bool:
    """Tell whether a caller may see details: it is on this machine, or has shown who it is."""
    return is_authenticated(scope) or is_local(scope) or came_by_socket(scope)


def is_authenticated(scope: Scope) -> bool:
    """Tell whether a caller has given a password or a certificate that is known."""
    return bool(scope.get(AUTHENTICATED))


def is_from_browser(headers: Mapping[str, str]) -> bool:
    """Tell whether a page in a browser has sent a POST: browsers then name it."""
    return "origin" in headers or headers.get("sec-fetch-site", "none") != "none"
