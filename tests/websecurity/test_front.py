"""The front: sizes, pace, health checks, who counts as authenticated; and the door before it."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from exporter.config.web import WebSettings
from exporter.connection import Crowd
from exporter.requests import AUTHENTICATED, Receive, Scope, Send, neighbours
from exporter.websecurity import WebSecurity
from exporter.websecurity.limits import MOST_ADDRESSES, Callers, Pace
from exporter.websecurity.passwords import MOST_WAITING_EACH

USERS = """
basic_auth_users: {dave: $2y$10$2UXri9cIDdgeKjBo4Rlpx.U3ZLDV8X1IxKmsfOvhcM5oXQt/mLmXq}
"""
DAVE = (b"authorization", b"Basic ZGF2ZTpkYXZlMTIz")


class Lab:
    """A front with an application behind it that notes what comes through."""

    def __init__(self, executor: ThreadPoolExecutor, **settings: Any) -> None:
        self.now = 0.0
        self.came: list[Scope] = []
        self.rules = WebSettings(**settings)
        self.security = WebSecurity(lambda: self.rules, executor, lambda: self.now)
        self.front = self.security.protect(self._application, ["/push"])

    async def _application(self, scope: Scope, _: Receive, send: Send) -> None:
        self.came.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def ask(
        self,
        path: str = "/metrics",
        *headers: tuple[bytes, bytes],
        client: str = "192.0.2.1",
        **scope: Any,
    ) -> int:
        return asyncio.run(self.come(path, *headers, client=client, **scope))

    async def come(
        self, path: str, *headers: tuple[bytes, bytes], client: str, **scope: Any
    ) -> int:
        statuses: list[int] = []

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        async def receive() -> Any:
            raise AssertionError("nobody reads the body")

        asked = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": list(headers), "client": (client, 1),
            "server": ("192.0.2.9", 9810), **scope,
        }  # fmt: skip
        await self.front(asked, receive, send)  # type: ignore[arg-type]
        return statuses[0]

    def refused(self) -> dict[str, float]:
        return {
            sample.labels[0]: sample.value  # type: ignore[misc]
            for sample in self.security.samples()
            if sample.labels and sample.value
        }


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
def web(tmp_path: Path) -> Path:
    path = tmp_path / "web.yml"
    path.write_text(USERS)
    return path


def test_without_a_file_everybody_may_read_and_nobody_is_authenticated(
    executor: ThreadPoolExecutor,
) -> None:
    lab = Lab(executor)
    assert lab.ask() == 200
    assert lab.came[0][AUTHENTICATED] is False


def test_users_and_who_counts_as_one(executor: ThreadPoolExecutor, web: Path) -> None:
    lab = Lab(executor, config_file=str(web))

    assert lab.ask() == 401
    assert lab.ask("/metrics", client="127.0.0.1") == 401
    assert lab.ask("/metrics", DAVE) == 200
    assert lab.came[-1][AUTHENTICATED] is True
    assert lab.ask("/metrics", DAVE, DAVE) == 401
    assert lab.ask("/-/healthy") == 200
    assert lab.ask("/-/healthy/") == 401
    assert lab.ask("/push") == 200
    assert lab.came[-1][AUTHENTICATED] is False
    assert lab.ask("/metrics", server=("/run/flopwatch/push.sock", None)) == 200
    assert lab.refused() == {"password": 4}


def test_one_address_that_asks_too_often_waits_and_no_other(executor: ThreadPoolExecutor) -> None:
    lab = Lab(executor, requests_per_second=2.0, burst=10)

    assert [lab.ask() for _ in range(12)] == [200] * 10 + [429] * 2
    assert lab.ask("/-/healthy") == 200
    assert lab.ask(client="192.0.2.2") == 200
    assert all(lab.ask(client="127.0.0.1") == 200 for _ in range(20))
    lab.now += 1.0
    assert [lab.ask() for _ in range(3)] == [200, 200, 429]
    assert lab.refused() == {"rate": 3}


def test_the_files_rate_is_for_all_together(executor: ThreadPoolExecutor, web: Path) -> None:
    web.write_text("rate_limit: {interval: 1s, burst: 2}")
    lab = Lab(executor, config_file=str(web))

    assert [lab.ask(client=f"192.0.2.{n}") for n in range(3)] == [200, 200, 429]
    assert lab.ask("/-/ready") == 200
    lab.now += 1.0
    assert lab.ask() == 200


def test_what_is_too_long_is_not_looked_at(executor: ThreadPoolExecutor) -> None:
    lab = Lab(executor)

    assert lab.ask("/" + "x" * 9000) == 414
    assert lab.ask("/metrics", query_string=b"x" * 9000) == 414
    assert lab.ask("/metrics", *[(b"x", b"y")] * 101) == 431
    assert lab.came == []


def test_a_changed_file_counts_and_a_broken_one_does_not(
    executor: ThreadPoolExecutor, web: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is wrong is told once, not at each look."""
    lab = Lab(executor, config_file=str(web))
    gauge = "flopwatch_web_config_last_reload_successful"

    def successful() -> object:
        return next(s.value for s in lab.security.samples() if s.metric.name == gauge)

    web.write_text("basic_auth_users: {dave: dave123}")
    for _ in range(3):
        lab.security.look()
    assert (lab.ask(), lab.ask("/metrics", DAVE), successful()) == (401, 200, 0)
    assert sum("web config kept" in record.message for record in caplog.records) == 1
    assert "dave123" not in caplog.text

    web.unlink()
    lab.security.look()
    assert (lab.ask(), successful()) == (401, 0)

    web.write_text("")
    lab.security.look()
    assert (lab.ask(), successful()) == (200, 1)


def test_addresses_are_boundedly_many_and_a_host_is_one_in_ipv6() -> None:
    callers = Callers()
    for number in range(MOST_ADDRESSES * 2):
        callers.allow(f"192.0.{number >> 8}.{number & 255}", Pace(1, 1), 0.0)
    assert len(callers) == MOST_ADDRESSES
    assert neighbours("2001:db8:1:2::1") == neighbours("2001:db8:1:2:ffff::9")
    assert neighbours("2001:db8:1:3::1") != neighbours("2001:db8:1:2::1")
    assert neighbours("::ffff:192.0.2.1") == "192.0.2.1"
    assert neighbours("fe80::1%eth0") == "fe80::/64"


def test_a_host_with_a_64_cannot_take_all_places_of_passwords(web: Path) -> None:
    """Each of its addresses had four places: one host could keep everybody else waiting."""
    held = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        lab = Lab(executor, config_file=str(web), requests_per_second=0)
        executor.submit(held.wait, 30)
        try:
            statuses = asyncio.run(_guess(lab, [f"2001:db8::{n:x}" for n in range(1, 40)]))
        finally:
            held.set()
    assert statuses.count(429) == 39 - MOST_WAITING_EACH


def wrong(password: str) -> tuple[bytes, bytes]:
    return b"authorization", b"Basic " + base64.b64encode(f"dave:{password}".encode())


async def _guess(lab: Lab, clients: list[str]) -> list[int]:
    """Return what is answered at once to a wrong password of each, all at the same time."""
    asked = [
        asyncio.create_task(lab.come("/metrics", wrong(client), client=client))
        for client in clients
    ]
    done, waiting = await asyncio.wait(asked, timeout=1)
    for one in waiting:
        one.cancel()
    return [one.result() for one in done]


def test_an_address_elsewhere_cannot_take_all_connections() -> None:
    crowd = Crowd(most=100, each=10)

    assert [crowd.enter("192.0.2.1") for _ in range(12)] == [True] * 10 + [False] * 2
    assert all(crowd.enter("127.0.0.1") for _ in range(50))
    assert crowd.enter("192.0.2.2")
    for _ in range(12):
        crowd.leave("192.0.2.1")
    assert crowd.enter("192.0.2.1")
    assert set(crowd.of) == {"192.0.2.1", "192.0.2.2", "127.0.0.1"}
