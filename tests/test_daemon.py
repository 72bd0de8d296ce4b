"""The daemon as a process: what an operator does to it and what its sources do to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from exporter.config import Settings
from exporter.serve import _House

Start = Callable[..., "Daemon"]
QUIET = "sources: {network: {enabled: false}, process: {enabled: false}, inference: {servers: []}"


class Daemon:
    """A daemon in a process of its own, on a free port."""

    def __init__(self, command: list[str], port: int, environment: dict[str, str] | None = None):
        self.port = port
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def wait_for(self, path: str, wanted: Callable[[int, str], bool], seconds: float = 30) -> str:
        """Ask until the answer is as wanted; fail with the last answer and the logs."""
        until = time.monotonic() + seconds
        last: object = None
        while time.monotonic() < until:
            try:
                status, body = self.get(path)
            except OSError as error:
                last = error
            else:
                if wanted(status, body):
                    return body
                last = (status, body)
            if self.process.poll() is not None:
                break
            threading.Event().wait(0.05)
        self.process.kill()
        pytest.fail(f"{path}: last answer {last!r}; logs: {self.process.communicate()}")

    def value(self, series: str) -> float | None:
        """Return a series' value on the page."""
        match = re.search(rf"^{re.escape(series)} (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return None if match is None else float(match[1])

    def stop(self) -> tuple[int, float]:
        """Send SIGTERM; return the exit code and the seconds it took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        return code, time.monotonic() - began


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Daemon] = []

    def run(*arguments: str) -> Daemon:
        port = free_port()
        command = [sys.executable, "-m", "exporter", "run", "--listen", f"127.0.0.1:{port}"]
        started.append(Daemon([*command, *arguments], port))
        return started[-1]

    yield run
    for daemon in started:
        daemon.process.kill()
        daemon.process.communicate()


def ready(status: int, _: str) -> bool:
    return status == 200


def test_no_file_shows_this_machine(start: Start) -> None:
    """Started with nothing at all it finds the host, says where it listens, and what is missing."""
    daemon = start()
    daemon.wait_for("/-/ready", ready)

    page = daemon.get("/metrics")[1]
    assert "\nhost_memory_total_bytes " in page
    assert 'flopwatch_source_up{source="host"} 1' in page
    assert daemon.get("/-/healthy") == (200, "healthy\n")
    assert "<html" in daemon.get("/status")[1]
    assert json.loads(daemon.get("/api/v1/status")[1])["flopwatch"]["ready"] is True
    assert daemon.process.stdout is not None
    out = ""
    while "inference" not in out:
        line = daemon.process.stdout.readline()
        assert line, out
        out += line
    code, _ = daemon.stop()
    assert code == 0
    assert f"http://127.0.0.1:{daemon.port}/metrics" in out
    assert "host" in out
    # Unless this machine has one.
    assert "no inference server: give --server" in out or "inference:local:" in out


@pytest.mark.parametrize("origin", ["--listen", "file"])
def test_a_taken_port_is_one_line_and_exit_2(origin: str, tmp_path: Path) -> None:
    """File and key, or the option, and the reason; no traceback."""
    file = tmp_path / "flopwatch.yaml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        file.write_text(f'listen: "{where}"\n')
        result = subprocess.run(
            [
                sys.executable, "-m", "exporter", "run",
                *(["--config", str(file)] if origin == "file" else ["--listen", where]),
            ],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    assert result.returncode == 2
    said = f"{file}: listen" if origin == "file" else "--listen"
    assert result.stderr == f"flopwatch: {said}: {where}: Address already in use\n"


def test_a_broken_file_is_one_line_and_exit_2(tmp_path: Path) -> None:
    """At start a mistake ends the daemon before it has opened or read anything."""
    file = tmp_path / "flopwatch.yaml"
    file.write_text("sources: {host: {intervall: 5s}}\n")

    for command in (["run", "--config", str(file)], ["check", str(file)]):
        result = subprocess.run(
            [sys.executable, "-m", "exporter", *command],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert result.returncode == 2
        assert result.stderr == (
            f"flopwatch: {file}: sources.host.intervall: unknown key, did you mean 'interval'?\n"
        )


def test_reloading_cannot_break_a_running_daemon(start: Start, tmp_path: Path) -> None:
    """SIGHUP takes up a good file; a broken one changes nothing but the gauge."""
    file = tmp_path / "flopwatch.yaml"
    file.write_text("reload: {watch: 0s}\n")
    daemon = start("--config", str(file))
    daemon.wait_for("/-/ready", ready)
    successful = "flopwatch_config_last_reload_successful"
    reads = 'flopwatch_source_reads_total{source="host"}'

    file.write_text("sources: {host: {intervall: 5s}}\n")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_for("/metrics", lambda _, page: f"\n{successful} 0\n" in page)
    assert daemon.value('flopwatch_source_up{source="host"}') == 1
    assert daemon.value('flopwatch_source_up{source="network"}') is not None

    before = daemon.value(reads)
    file.write_text("reload: {watch: 0s}\nsources: {network: {enabled: false}}\n")
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_for("/metrics", lambda _, page: f"\n{successful} 1\n" in page)
    assert daemon.value('flopwatch_source_up{source="network"}') is None, "retired"
    after = daemon.value(reads)
    assert before is not None
    assert after is not None
    assert after <= before + 2, "the host source was left alone, not restarted"

    file.unlink()
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_for("/metrics", lambda _, page: f"\n{successful} 0\n" in page)
    assert daemon.stop()[0] == 0


def test_a_changed_file_is_taken_up_by_itself(start: Start, tmp_path: Path) -> None:
    """A mounted ConfigMap changes by swapping a symbolic link: the content counts, not the time."""
    first, second, link = tmp_path / "1.yaml", tmp_path / "2.yaml", tmp_path / "flopwatch.yaml"
    first.write_text("reload: {watch: 1s}\n")
    second.write_text("reload: {watch: 1s}\nsources: {network: {enabled: false}}\n")
    link.symlink_to(first)
    daemon = start("--config", str(link))
    daemon.wait_for("/-/ready", ready)
    assert daemon.value('flopwatch_source_reads_total{source="network"}') is not None

    swapped = tmp_path / "new"
    swapped.symlink_to(second)
    swapped.rename(link)

    daemon.wait_for("/metrics", lambda _, page: 'source="network"' not in page)
    assert daemon.value("flopwatch_config_last_reload_successful") == 1


@pytest.fixture
def sick(tmp_path: Path) -> Iterator[Daemon]:
    command = [sys.executable, "-m", "tests.sick_daemon", str(tmp_path / "gate")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    daemon = Daemon.__new__(Daemon)
    daemon.process, daemon.port = process, int(process.stdout.readline())
    yield daemon
    process.kill()
    # The hanging child outlives the daemon, as it must, and holds our pipes: let it go.
    (tmp_path / "gate").touch()
    process.communicate()


def test_sick_sources_cost_the_others_nothing(sick: Daemon) -> None:
    """The page is quick, the healthy source flows, and health tells the truth."""
    up = 'flopwatch_source_up{{source="{}"}}'

    def sick_ones_known(_: int, page: str) -> bool:
        return all(f"{up.format(name)} 0" in page for name in ("stuck", "hangs", "raises"))

    sick.wait_for("/metrics", sick_ones_known)
    sick.wait_for(
        "/metrics",
        lambda _, page: 'failures_total{reason="unavailable",source="crashes"}' in page,
    )
    times, values = [], []
    for _ in range(40):
        began = time.monotonic()
        values.append(sick.value("host_cpus"))
        times.append(time.monotonic() - began)
        threading.Event().wait(0.03)

    assert sorted(times)[len(times) * 9 // 10] < 0.05, sorted(times)
    assert None not in values
    assert len(set(values)) > 5, "the healthy source goes on"
    assert values == sorted(values)  # type: ignore[type-var]
    assert sick.value(up.format("healthy")) == 1
    busy = sick.value('flopwatch_source_busy_seconds{source="stuck"}')
    assert busy is not None
    assert busy > 0.5
    page = sick.get("/metrics")[1]
    assert re.search(r'failures_total\{reason="timeout",source="hangs"\} [1-9]', page)
    assert re.search(r'failures_total\{reason="bug",source="raises"\} [1-9]', page)
    assert sick.get("/-/healthy")[0] == 200
    assert sick.get("/-/ready")[0] == 200
    states = {s["name"]: s for s in json.loads(sick.get("/api/v1/status")[1])["sources"]}
    assert states["stuck"]["state"] == "stuck"
    assert states["healthy"]["state"] == "up"
    sick.wait_for("/api/v1/status", lambda _, body: "SIGSEGV" in body)


def test_sigterm_ends_in_time_whatever_hangs(sick: Daemon) -> None:
    """Kubernetes kills what does not end; five seconds are ours."""
    sick.wait_for("/metrics", lambda _, page: 'busy_seconds{source="stuck"} ' in page)
    sick.wait_for("/-/ready", ready)

    code, seconds = sick.stop()

    assert code == 0
    assert seconds < 5


def test_idle_connections_do_not_shut_the_door(start: Start) -> None:
    """Hundreds of sockets that ask nothing: health checks and scrapes are answered all the same."""
    daemon = start()
    daemon.wait_for("/-/ready", ready)
    crowd = [socket.create_connection(("127.0.0.1", daemon.port)) for _ in range(300)]

    statuses = {daemon.get(path)[0] for path in ("/-/healthy", "/-/ready", "/metrics") * 5}

    for one in crowd:
        one.close()
    assert statuses == {200}


def test_a_head_without_end_is_not_waited_for(start: Start) -> None:
    """A request line or headers of many megabytes: the connection ends, memory stays."""
    daemon = start()
    daemon.wait_for("/-/ready", ready)
    for beginning in (b"GET /metrics?", b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Long: "):
        with socket.create_connection(("127.0.0.1", daemon.port)) as client:
            client.sendall(beginning)
            sent = 0
            with contextlib.suppress(ConnectionError):
                while sent < 64 << 20:
                    client.sendall(b"a" * 65536)
                    sent += 65536
            assert sent < 16 << 20

    assert daemon.get("/-/healthy")[0] == 200


def test_a_reload_that_hangs_does_not_stop_the_page(start: Start, tmp_path: Path) -> None:
    """A file on a dead disk (here a pipe that nobody writes to), and many signals meanwhile."""
    file = tmp_path / "flopwatch.yaml"
    file.write_text("reload: {watch: 0s}\n")
    daemon = start("--config", str(file))
    daemon.wait_for("/-/ready", ready)
    file.unlink()
    os.mkfifo(file)
    for _ in range(200):
        daemon.process.send_signal(signal.SIGHUP)
    threading.Event().wait(0.5)

    assert {daemon.get(path)[0] for path in ("/metrics", "/api/v1/status", "/-/healthy")} == {200}
    code, seconds = daemon.stop()
    assert code == 0
    assert seconds < 4


def test_a_failed_reload_shows_even_when_no_source_publishes(start: Start, tmp_path: Path) -> None:
    """The page kept for a quiet board knows of it."""
    file = tmp_path / "flopwatch.yaml"
    quiet = "reload: {watch: 0s}\nsources: {host: {enabled: false}, network: {enabled: false}, "
    quiet += "ethtool: {enabled: false}, "
    file.write_text(quiet + "process: {enabled: false}}\n")
    daemon = start("--config", str(file))
    daemon.wait_for("/-/ready", ready)
    assert daemon.value("flopwatch_config_last_reload_successful") == 1

    file.write_text("listen: 5\n")
    daemon.process.send_signal(signal.SIGHUP)

    daemon.wait_for("/metrics", lambda _, page: "last_reload_successful 0" in page, seconds=10)


def test_a_release_in_the_demo_is_like_a_real_one() -> None:
    """It had answered that nothing was there to be released."""
    port = free_port()
    demo = Daemon([sys.executable, "-m", "exporter", "demo", "--listen", f"127.0.0.1:{port}"], port)
    released = 'flopwatch_source_released{source="nvml"}'
    losses = "gpu_losses_total{"
    try:
        demo.wait_for("/metrics", lambda _, page: losses in page)
        assert demo.value(released) == 0
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("POST", "/-/release?seconds=600")
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())) == (200, {"released": {"nvml": True}})
        connection.close()

        demo.wait_for("/metrics", lambda *_: demo.value(released) == 1)

        assert losses not in demo.get("/metrics")[1]
        assert demo.value('flopwatch_source_up{source="nvml"}') == 0
        assert demo.stop()[0] == 0
    finally:
        demo.process.kill()
        demo.process.communicate()


# ---- housekeeping ---------------------------------------------------------------------------


class FakeApp:
    """A daemon's inside that is ready when told so; its release lasts until `gate` is set."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.is_ready = False
        self.gate = threading.Event()
        self.releases = 0

    def beat(self) -> None:
        pass

    def ready(self) -> bool:
        return self.is_ready

    def release(self) -> None:
        self.releases += 1
        self.gate.wait(30)

    def reload_if_changed(self) -> None:
        pass

    notice_gpus = notice_servers = reload_if_changed

    def servers_changed(self) -> bool:
        return False


@pytest.fixture
def inside() -> Iterator[tuple[FakeApp, Callable[[], object], list[str], list[bool]]]:
    """Yield a fake daemon, its housekeeping, what was announced, and whether all is there."""
    app = FakeApp()
    announced: list[str] = []
    complete = [False]
    with ThreadPoolExecutor(1) as chores, ThreadPoolExecutor(1) as releases:
        house = _House(
            app,  # type: ignore[arg-type]
            chores,
            releases,
            lambda: announced.append("announced"),
            lambda: complete[0],
        )
        yield app, house, announced, complete  # type: ignore[misc]
        app.gate.set()


def test_a_summary_is_not_printed_before_there_is_something_to_tell(inside: Any) -> None:
    """Ready is not enough: what needs two readings had been announced with 0 series."""
    app, house, announced, complete = inside
    house.tick()
    app.is_ready = True
    pause = house.tick()
    assert announced == []
    assert pause <= 0.1

    complete[0] = True
    house.tick()
    house.tick()

    assert announced == ["announced"]


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_summary_does_not_wait_for_ever(is_ready: bool, inside: Any) -> None:
    """After four seconds it tells what there is."""
    app, house, announced, _ = inside
    app.is_ready = is_ready
    waited = 0.0
    while not announced:
        waited += house.tick()
        assert waited < 6

    assert 3 < waited < 6, "the pause after it counted"


def test_many_requests_to_release_are_one(inside: Any) -> None:
    """Signals that come while drivers are let go are one more release afterwards, not hundreds."""
    app, house, _, _ = inside
    for _ in range(200):
        house.release()
    house.tick()
    assert house.busy()
    assert app.releases <= 1

    app.gate.set()
    pause = threading.Event()
    for _ in range(600):
        house.tick()
        if app.releases == 2 and not house.busy():
            break
        pause.wait(0.01)
    for _ in range(5):
        house.tick()

    assert app.releases == 2
    assert not house.busy()
