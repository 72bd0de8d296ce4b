"""Pushes to a real daemon, over a unix socket and TCP; and what a flood of them costs a scrape."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from exporter.client import Run
from tests.test_daemon import Daemon, free_port

TOKEN = "a-token-of-sixteen-characters"
STEPS = "/api/v1/training/steps"


class _Unix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(str(self._path))


def push(connection: http.client.HTTPConnection, body: object, **headers: str) -> tuple[int, Any]:
    try:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **headers}
        connection.request("POST", STEPS, raw, given)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


class Node(Daemon):
    """A daemon with a socket and a token in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "push.sock"
        (folder / "token").write_text(TOKEN)
        config = folder / "flopwatch.yaml"
        port = free_port()
        config.write_text(
            f'listen: ":{port}"\npush: {{socket: {self.socket}, token_file: {folder}/token}}\n'
            "sources: {network: {enabled: false}, inference: {enabled: false}}\n"
        )
        super().__init__([sys.executable, "-m", "exporter", "run", "-c", str(config)], port)
        self.wait_for("/-/ready", lambda status, _: status == 200)

    def unix(self) -> http.client.HTTPConnection:
        return _Unix(self.socket)

    def tcp(self, host: str = "127.0.0.1") -> http.client.HTTPConnection:
        return http.client.HTTPConnection(host, self.port, timeout=10)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def launch(folder: Path) -> Iterator[Callable[[], Node]]:
    started: list[Node] = []

    def start() -> Node:
        started.append(Node(folder))
        return started[-1]

    yield start
    for node in started:
        node.process.kill()
        node.process.communicate()


def elsewhere() -> str:
    """Return an address of this machine that is not loopback: who comes from it is a stranger."""
    for addresses in psutil.net_if_addrs().values():
        for one in addresses:
            if one.family == socket.AF_INET and not one.address.startswith("127."):
                return one.address
    pytest.skip("this machine has no address but loopback")


def test_a_job_tells_by_every_way_in(launch: Callable[[], Node], folder: Path) -> None:
    """The socket, loopback, and another address with the token; each step counts once."""
    node, step = launch(), {"run": "a", "step": 1, "seconds": 2.0}
    assert push(node.unix(), step) == (200, {"new": 1, "known": 0, "refused": []})
    assert push(node.tcp(), step) == (200, {"new": 0, "known": 1, "refused": []})
    stranger = elsewhere()
    assert push(node.tcp(stranger), step)[0] == 401
    assert push(node.tcp(stranger), step, Authorization="Bearer wrong-but-long-enough")[0] == 401
    bearer = f"Bearer {TOKEN}"
    assert push(node.tcp(stranger), {**step, "step": 2}, Authorization=bearer)[1]["new"] == 1
    assert push(node.tcp(), step, Origin="http://evil.example")[0] == 403

    def has_told(_: int, page: str) -> bool:
        return 'flopwatch_push_records_total{outcome="new",reader="push"} 2' in page

    page = node.wait_for("/metrics", has_told)
    assert 'flopwatch_push_answers_total{status="401"} 2' in page
    node.process.send_signal(signal.SIGTERM)
    assert TOKEN not in node.process.communicate(timeout=30)[1]
    assert not node.socket.exists()


def test_what_a_script_tells_is_on_the_page(launch: Callable[[], Node]) -> None:
    """Two ranks: tokens of the run count once, times for each rank; and how the run began."""
    node = launch()
    runs = [
        Run(
            "llama", rank=rank, world_size=2, gpu=rank, url=f"unix://{node.socket}",
            sequence_length=128, submitted=time.time() - 30, flops_per_token=1e9,
        )
        for rank in range(2)
    ]  # fmt: skip
    for number in range(1, 13):
        for run in runs:
            run.log_step(number, seconds=0.5, tokens=1024, phases={"data": 0.125})
    with runs[0].checkpoint():
        time.sleep(0.02)

    def all_told(_: int, page: str) -> bool:
        return 'train_tokens_total{run="llama"} 12288' in page and "train_checkpoints" in page

    page = node.wait_for("/metrics", all_told)
    for line in (
        'train_world_size{run="llama"} 2',
        'train_steps_total{run="llama"} 12',
        'train_step_seconds_sum{run="llama"} 6',
        'train_phase_seconds_total{phase="data",rank="0",run="llama"} 1.5',
        'train_phase_seconds_total{phase="data",rank="1",run="llama"} 1.5',
        'train_reader_chosen{reader="push",run="llama"} 1',
        'train_checkpoints_total{run="llama"} 1',
        "train_runs_started_total 1",
    ):
        assert f"\n{line}" in page, [one for one in page.splitlines() if one.startswith("train_")]
    latency = node.value('train_start_latency_seconds{run="llama"}')
    assert latency == pytest.approx(30, abs=15)
    for run in runs:
        run.end()


def test_an_answer_that_is_lost_costs_no_step_and_counts_none_twice(
    launch: Callable[[], Node],
) -> None:
    """The connection breaks after the request was sent; the client sends it again."""
    node, batch = launch(), json.dumps([{"run": "a", "step": n} for n in range(50)]).encode()
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(node.socket))
        head = f"POST {STEPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        raw.sendall(f"{head}Content-Length: {len(batch)}\r\n\r\n".encode() + batch)
    until, said = time.monotonic() + 10, (0, {"known": 0})
    while said[1]["known"] < 50 and time.monotonic() < until:
        said = push(node.unix(), batch)
    assert said == (200, {"new": 0, "known": 50, "refused": []})


def test_a_killed_daemons_socket_is_taken_over_and_a_running_ones_is_not(
    launch: Callable[[], Node],
) -> None:
    """The client goes on where it was; a second daemon says what is wrong and runs without."""
    first = launch()
    run = Run("a", url=f"unix://{first.socket}", world_size=4)
    run.log_step(1)
    first.process.kill()
    first.process.communicate()
    second = launch()
    run.log_step(2)
    new = 'flopwatch_push_records_total{outcome="new",reader="push"}'
    second.wait_for("/metrics", lambda _, page: f"{new} 0" not in page and new in page, 40)
    run.end()
    third = launch()
    third.wait_for("/api/v1/status", lambda _, body: "another process listens" in body)
    assert push(second.unix(), {"run": "b", "step": 1})[0] == 200


def test_a_body_that_comes_along_with_its_head_is_read(launch: Callable[[], Node]) -> None:
    """A push of 200 KB was cut off: it was taken for a head without end."""
    node, body = launch(), json.dumps([{"run": "a", "step": n} for n in range(9000)])[:200_000]
    with socket.socket(socket.AF_UNIX) as raw:
        raw.settimeout(10)
        raw.connect(str(node.socket))
        head = f"POST {STEPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        raw.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 413 ")


def test_hostile_requests_end_no_daemon_and_leave_no_traceback(launch: Callable[[], Node]) -> None:
    """Bombs, depth, nonsense, half requests: clear answers, and the next good push is taken."""
    import gzip

    node = launch()
    bodies = [
        b"", b"{", b"[" * 500_000, b'{"a":' * 100_000, b'"' + b'\\"' * 400_000, b"\xff" * 1000,
        b'{"run":"a","step":' + b"9" * 5000 + b"}", b'{"run":"\\ud800","step":1}',
        b'{"run":"a","step":1,"loss":1e999,"phases":{"data":NaN}}',
    ]  # fmt: skip
    for body in bodies:
        assert push(node.unix(), body)[0] == 400, body[:50]
    bomb = gzip.compress(b" " * 200_000_000, 9)
    assert push(node.unix(), bomb, **{"Content-Encoding": "gzip"})[0] == 413
    for raw in (
        f"POST {STEPS} HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        f"POST {STEPS} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
        f"POST {STEPS} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    ):
        with socket.socket(socket.AF_UNIX) as half:
            half.connect(str(node.socket))
            half.sendall(raw.encode())
    assert push(node.unix(), {"run": "a", "step": 1})[1]["new"] == 1
    node.process.send_signal(signal.SIGTERM)
    errors = node.process.communicate(timeout=30)[1]
    assert "Traceback" not in errors, errors


FLOOD = """
import http.client, json, socket, sys, time
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX); self.sock.connect(sys.argv[1])
c = Unix("x"); n = 0; until = time.monotonic() + float(sys.argv[2])
body = lambda n: json.dumps({"records": [
    {"run": sys.argv[3], "step": n * 1000 + i, "seconds": 1.0, "loss": 2.0, "rank": 0,
     "phases": {"data": 0.1, "forward": 0.2, "backward": 0.4}, "attempt": "x" * 30}
    for i in range(1000)]}).encode()
while time.monotonic() < until:
    c.request("POST", "/api/v1/training/steps", body(n), {"Content-Type": "application/json"})
    answer = c.getresponse(); answer.read(); n += answer.status == 200
    time.sleep(0.02)
print(n)
"""


def scrape_times(node: Node, seconds: float) -> list[float]:
    """Return how long each of the scrapes took, sorted."""
    times, until = [], time.monotonic() + seconds
    connection = node.tcp()
    while time.monotonic() < until:
        began = time.perf_counter()
        connection.request("GET", "/metrics")
        connection.getresponse().read()
        times.append(time.perf_counter() - began)
        time.sleep(0.005)
    connection.close()
    return sorted(times)


def flooded(node: Node) -> tuple[int, list[float]]:
    """Return how many pushes two jobs got through, and how long scrapes took meanwhile."""
    floods = [
        subprocess.Popen(
            [sys.executable, "-c", FLOOD, str(node.socket), "5", f"run{n}"],
            stdout=subprocess.PIPE, text=True, env=os.environ,
        )
        for n in range(2)
    ]  # fmt: skip
    time.sleep(0.5)
    times = scrape_times(node, 4)
    return sum(int(flood.communicate()[0]) for flood in floods), times


def test_the_page_stays_fast_while_pushes_flood_in(launch: Callable[[], Node]) -> None:
    """Two jobs send a thousand records at a time, as fast as they are taken.

    To understand them on the event loop would keep it busy all the time: the median would be twenty
    times its limit. The best of three rounds counts, since neighbours disturb; where they leave so
    little of the machine that the flood is none, the slowest scrapes are theirs and not judged.
    """
    node = launch()
    quiet = scrape_times(node, 3)
    normal = {share: quiet[int(share * len(quiet))] for share in (0.5, 0.99)}
    rounds = []
    for _ in range(3):
        pushed, times = flooded(node)
        p50, p99 = (times[int(share * len(times))] for share in normal)
        print(f"{pushed} pushes of 1000, {len(times)} scrapes: p50 {p50 * 1e3:.1f} ms, ", end="")
        print(f"p99 {p99 * 1e3:.1f} ms (quiet: {normal[0.99] * 1e3:.1f} ms)")
        slow = p99 >= 0.05 + 2 * normal[0.99] and pushed >= 40
        rounds.append((pushed > 3, p50 < 0.01 + 3 * normal[0.5], not slow))
        if all(rounds[-1]):
            return
    pytest.fail(f"pushed, median, slowest: {rounds}")
