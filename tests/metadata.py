"""Metadata services of all clouds on loopback, with their real paths, headers and statuses.

A mock stands for one provider. `say` sets what a path answers, `unsay` lets it answer 404 again,
`fail` makes it misbehave. Requests are kept as (method, path, headers in small letters, body).
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

PATHS = {
    "aws": "/latest/meta-data/spot/instance-action",
    "gcp": "/computeMetadata/v1/instance/preempted",
    "azure": "/metadata/scheduledevents",
    "alibaba": "/latest/meta-data/instance/spot/termination-time",
    "tencent": "/latest/meta-data/spot/termination-time",
}
"""Where each provider announces that it takes the machine away."""

_GCP = "/computeMetadata/v1/instance"
_USUAL: dict[str, dict[str, str]] = {
    "aws": {
        "/latest/meta-data/instance-life-cycle": "spot",
        "/latest/meta-data/instance-type": "p5.48xlarge",
        "/latest/meta-data/placement/availability-zone": "us-east-1a",
        "/latest/meta-data/instance-id": "i-0123456789abcdef0",
        "/latest/meta-data/events/maintenance/scheduled": "[]",
    },
    "gcp": {
        f"{_GCP}/scheduling/preemptible": "TRUE",
        f"{_GCP}/machine-type": "projects/123456/machineTypes/a3-highgpu-8g",
        f"{_GCP}/zone": "projects/123456/zones/us-central1-a",
        f"{_GCP}/name": "trainer-7",
        f"{_GCP}/preempted": "FALSE",
        f"{_GCP}/maintenance-event": "NONE",
    },
    "azure": {
        "/metadata/instance/compute": json.dumps({
            "name": "gpu_3", "vmSize": "Standard_ND96isr_H100_v5", "location": "eastus",
            "zone": "2", "priority": "Spot", "evictionPolicy": "Deallocate",
        }),
        "/metadata/scheduledevents": '{"DocumentIncarnation":1,"Events":[]}',
    },
    "alibaba": {
        "/latest/meta-data/instance/instance-type": "ecs.gn8v.48xlarge",
        "/latest/meta-data/zone-id": "cn-beijing-i",
        "/latest/meta-data/instance-id": "i-2ze0000000000000",
    },
    "tencent": {
        "/latest/meta-data/payment/charge-type": "SPOTPAID",
        "/latest/meta-data/instance/instance-type": "HCCPNV5.48XLARGE",
        "/latest/meta-data/placement/zone": "ap-beijing-6",
        "/latest/meta-data/instance-id": "ins-12345678",
    },
    "oci": {
        "/opc/v2/instance/": json.dumps({
            "shape": "BM.GPU.H100.8", "availabilityDomain": "Uocm:PHX-AD-1", "id": "ocid1.x",
        }),
    },
}  # fmt: skip
_TOKENS = {
    "aws": ("x-aws-ec2-metadata-token-ttl-seconds", "x-aws-ec2-metadata-token"),
    "alibaba": ("x-aliyun-ecs-metadata-token-ttl-seconds", "x-aliyun-ecs-metadata-token"),
}
_MARKS = {
    "gcp": ("metadata-flavor", "Google", 403), "azure": ("metadata", "true", 400),
    "oci": ("authorization", "Bearer Oracle", 404),
}  # fmt: skip
TOKEN = "/latest/api/token"


class Request(NamedTuple):
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


class Metadata:
    """One provider's service; close it at the end."""

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.requests: list[Request] = []
        self.pages = dict(_USUAL[provider])
        self.tokens: set[str] = set()
        self.issued = 0
        self._faults: dict[str, Callable[[_Handler], None]] = {}
        self.ending = threading.Event()
        self.changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.mock = self  # type: ignore[attr-defined]
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.ending.set()
        with self.changed:
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def say(self, path: str, text: str) -> None:
        with self.changed:
            self.pages[path] = text
            self.changed.notify_all()

    def unsay(self, path: str) -> None:
        with self.changed:
            del self.pages[path]
            self.changed.notify_all()

    def fail(self, path: str, fault: Callable[[_Handler], None] | int | None) -> None:
        """Let a path, or "" for all, answer with a status or do as a function does; None: well."""
        if fault is None:
            self._faults.pop(path, None)
        elif isinstance(fault, int):
            status = fault
            self._faults[path] = lambda handler: handler.reply(status, "not today")
        else:
            self._faults[path] = fault

    def asked(self, path: str) -> list[Request]:
        return [one for one in self.requests if one.path == path]

    def fault(self, path: str) -> Callable[[_Handler], None] | None:
        return self._faults.get(path, self._faults.get(""))


def hang(handler: _Handler) -> None:
    """Take the request and never answer: with the hop limit, what a container sees."""
    handler.mock.ending.wait(60)
    handler.close_connection = True


def half(handler: _Handler) -> None:
    """Announce more than comes."""
    handler.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"action":')
    handler.close_connection = True


def nonsense(handler: _Handler) -> None:
    handler.reply(200, "<html><body>Please log in</body></html>")


def endless(handler: _Handler) -> None:
    """Send a body that never ends."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    with contextlib.suppress(OSError):
        while not handler.mock.ending.is_set():
            handler.wfile.write(b"x" * 65536)
    handler.close_connection = True


def redirect(to: str) -> Callable[[_Handler], None]:
    def answer(handler: _Handler) -> None:
        handler.reply(302, "", Location=to)

    return answer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def mock(self) -> Metadata:
        return self.server.mock  # type: ignore[attr-defined,no-any-return]

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def reply(self, status: int, text: str, **headers: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer(self) -> None:
        mock = self.mock
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", "0")))
        mock.requests.append(Request(self.command, path, query, headers, body))
        with contextlib.suppress(OSError):
            if (fault := mock.fault(path)) is not None:
                fault(self)
            elif not self._refuse(path, headers):
                self._tell(path, query)

    def _refuse(self, path: str, headers: dict[str, str]) -> bool:
        """Answer in place of the page if the request is not as the provider wants it."""
        mock = self.mock
        if mock.provider in _TOKENS:
            lifetime, token = _TOKENS[mock.provider]
            if path == TOKEN:
                return self._issue(headers.get(lifetime, ""))
            offered = self.headers.get_all(token) or []
            if len(offered) != 1 or offered[0] not in mock.tokens:
                self.reply(401, "Unauthorized")
                return True
        name, wanted, status = _MARKS.get(mock.provider, ("", "", 0))
        if name and headers.get(name) != wanted:
            self.reply(status, f"{name} is missing")
            return True
        return False

    def _issue(self, lifetime: str) -> bool:
        mock = self.mock
        if self.command != "PUT" or not lifetime.isdigit() or not 1 <= int(lifetime) <= 21600:
            self.reply(400, "Bad Request")
            return True
        mock.issued += 1
        token = f"AQAE-{mock.issued}-=="
        mock.tokens.add(token)
        self.reply(200, token)
        return True

    def _tell(self, path: str, query: str) -> None:
        mock = self.mock
        options = dict(part.partition("=")[::2] for part in query.split("&"))
        if options.get("wait_for_change") == "true":
            self._wait(path, options)
        if self.command == "POST":
            self.reply(200, "")
        elif (text := mock.pages.get(path)) is None:
            self.reply(404, "not found")
        else:
            self.reply(200, text, ETag=_etag(text))

    def _wait(self, path: str, options: dict[str, str]) -> None:
        """Hang until the page is another one than that with the tag, or the time is over."""
        until = time.monotonic() + float(options["timeout_sec"])
        with self.mock.changed:
            while (left := until - time.monotonic()) > 0 and not self.mock.ending.is_set():
                if _etag(self.mock.pages.get(path, "")) != options["last_etag"]:
                    return
                self.mock.changed.wait(left)


def _etag(text: str) -> str:
    return f"{sum(text.encode()):016x}"


@contextlib.contextmanager
def metadata(provider: str) -> Iterator[Metadata]:
    """A service for the time of a test."""
    mock = Metadata(provider)
    try:
        yield mock
    finally:
        mock.close()


# ---------------------------------------------------------------- who else is spoken to

_WATCHES: list[list[str]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and _WATCHES and isinstance(arguments[1], tuple):
        host = str(arguments[1][0])
        if not host.startswith("127.") and host not in ("::1", "::ffff:127.0.0.1"):
            for watch in _WATCHES:
                watch.append(host)
            raise ConnectionRefusedError(f"tests connect to nobody else: {host}")


sys.addaudithook(_audit)


@contextlib.contextmanager
def only_this_machine() -> Iterator[list[str]]:
    """Let this process connect to no other machine; what it tried is in the list."""
    tried: list[str] = []
    _WATCHES.append(tried)
    try:
        yield tried
    finally:
        _WATCHES.remove(tried)


GUARD = """
import os, sys
def _audit(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = str(arguments[1][0])
        if not host.startswith("127.") and host not in ("::1", "::ffff:127.0.0.1"):
            with open(os.environ["CONNECTIONS"], "a") as file:
                file.write(host + "\\n")
            raise ConnectionRefusedError("tests connect to nobody else")
sys.addaudithook(_audit)
"""
"""A `sitecustomize.py` that does the same for a process."""
