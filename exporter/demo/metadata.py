"""The metadata service of a made-up cloud machine: a spot instance of AWS, as IMDSv2 tells of it.

It answers with a session token only, as the real one does, and says 404 where nothing is announced.
With the fault `notice` it announces, that many seconds after the node began, that the machine is
taken away two minutes later.
"""

from __future__ import annotations

import http.server
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from exporter.demo.engines import PageServer
from exporter.demo.node import Node

WARNING = 120.0
"""Seconds between a notice and the end of the machine."""

_DATA = "/latest/meta-data"
_TOKEN = "/latest/api/token"  # noqa: S105 - a path
_HEADER = "X-aws-ec2-metadata-token"


def announced(node: Node) -> Mapping[str, str]:
    """Return what the service says now, by path."""
    said = {
        f"{_DATA}/instance-life-cycle": "spot",
        f"{_DATA}/instance-type": "p5.48xlarge",
        f"{_DATA}/instance-id": "i-0demo00000000000",
        f"{_DATA}/placement/availability-zone": "us-east-1a",
        f"{_DATA}/events/maintenance/scheduled": "[]",
    }
    notice = node.job.faults.notice
    if notice is not None and node.now >= notice:
        end = datetime.fromtimestamp(node.born + notice + WARNING, UTC)
        time = end.strftime("%Y-%m-%dT%H:%M:%SZ")
        fate = node.job.faults.fate
        said[f"{_DATA}/spot/instance-action"] = f'{{"action": "{fate}", "time": "{time}"}}'
        if fate == "terminate":
            said[f"{_DATA}/spot/termination-time"] = time
    return said


class MetadataServer(PageServer):
    """Serves what `say` returns, by path, to whoever has a token."""

    def __init__(self, say: Callable[[], Mapping[str, str]]) -> None:
        super().__init__(lambda: b"", handler=partial(_Handler, say, secrets.token_hex(16)))
        self.url = self.url.removesuffix("/metrics")


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers one request."""

    timeout = 5.0

    def __init__(self, say: Callable[[], Mapping[str, str]], token: str, *exchange: Any) -> None:
        self._say = say
        self._token = token
        super().__init__(*exchange)  # which answers at once

    def do_PUT(self) -> None:
        """Hand out the token."""
        asked = self.headers.get(f"{_HEADER}-ttl-seconds", "")
        good = self.path == _TOKEN and asked.isdecimal() and 1 <= int(asked) <= 21600
        self._reply(*(200, self._token) if good else (400, ""))

    def do_GET(self) -> None:
        """Answer with what is at the path."""
        if self.headers.get(_HEADER) != self._token:
            self._reply(401, "")
            return
        text = self._say().get(self.path)
        self._reply(*(404, "") if text is None else (200, text))

    def _reply(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
