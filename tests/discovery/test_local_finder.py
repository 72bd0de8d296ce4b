"""Servers on this machine's ports: who is asked, how often, and what becomes of it.

The processes, sockets and HTTP servers are real; only the tests of rare machines make up a `/proc`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.clock import SystemClock
from exporter.discovery import Answer, LocalFinder, Machine, Target
from exporter.discovery.machine import by_port
from exporter.engines import load_engines
from exporter.formats.exposition import Limits
from exporter.sources.discovery import Prober
from tests.fakes import FakeClock

HERE = Path(__file__).parent.parent
PAGES = HERE / "data" / "engines"
VLLM = PAGES / "vllm-0.32.0-cpu.prom"
LLAMA = PAGES / "llamacpp-b10434.prom"
ROOT = Path("/")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Engine:
    """An inference server as a process of its own, under the name of its engine."""

    def __init__(
        self,
        folder: Path,
        *,
        program: str = "vllm",
        page: Path = VLLM,
        port: int = 0,
        model: str = "m1",
        host: str = "127.0.0.1",
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.port = port or free_port()
        self.state = folder / f"{self.port}.state"
        self._log = folder / f"{self.port}.log"
        script = folder / program
        shutil.copy(HERE / "fake_engine.py", script)
        self.process = subprocess.Popen(
            [
                sys.executable, str(script), "serve", model,
                "--port", str(self.port), "--host", host,
                "--page", str(page), "--state", str(self.state), "--log", str(self._log),
            ]
        )  # fmt: skip
        self.wait()

    def wait(self) -> None:
        """Wait until it listens."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            if by_port(Machine(ROOT).listeners()).get(self.port):
                return
            assert self.process.poll() is None
            threading.Event().wait(0.02)
        pytest.fail("the server does not listen")

    @property
    def asked(self) -> list[str]:
        """Method and path of all that was asked, whatever it was."""
        return [line for line in self._noted() if line != "connected"]

    @property
    def connections(self) -> int:
        return self._noted().count("connected")

    def _noted(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    def end(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    started: list[Engine] = []

    def start(**options: object) -> Engine:
        started.append(Engine(tmp_path / "bin", **options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for one in started:
        one.end()


def prober(**options: bool) -> Prober:
    return Prober(
        load_engines(), SystemClock(), timeout=10, max_bytes=1 << 24, limits=Limits(), **options
    )


def finder(
    *ports: int,
    clock: FakeClock | None = None,
    machine: Machine | None = None,
    probe: Callable[[str, bool], Answer] | None = None,
    **options: object,
) -> LocalFinder:
    """Look at this machine; by default as the settings `local: auto` do, without our own sockets
    being left out, for the servers in this process are the ones that are looked for."""
    return LocalFinder(
        machine or Machine(ROOT), probe or prober(), clock or FakeClock(), ports=ports,
        **({"own": set} | options),  # type: ignore[arg-type]
    )  # fmt: skip


def on(look: tuple[Target, ...], *ports: int) -> list[Target]:
    """Return the targets on some ports; other servers of this machine are none of our business."""
    return [one for one in look if one.endpoint.port in ports]


# ---- by their process -----------------------------------------------------------------------


def test_a_server_is_found_by_its_process_and_asked_once(engine: Callable[..., Engine]) -> None:
    """One GET of its page, however often we look."""
    one = engine()
    local = finder()
    for _ in range(3):
        (found,) = on(local.look().targets, one.port)
    start = Machine(ROOT).process(one.process.pid)
    assert start is not None
    assert found == Target(
        f"local:{one.port}", f"http://127.0.0.1:{one.port}/metrics", "local",
        identity=f"{one.process.pid}@{start.start}", kind="vllm",
    )  # fmt: skip
    assert one.asked == ["GET /metrics"]
    assert one.connections == 1


def test_a_server_that_ends_is_gone_and_another_at_its_port_is_another(
    engine: Callable[..., Engine],
) -> None:
    """It is asked anew: it may be anything."""
    one = engine()
    local = finder()
    (before,) = on(local.look().targets, one.port)
    one.end()
    assert on(local.look().targets, one.port) == []
    two = engine(port=one.port)
    (after,) = on(local.look().targets, one.port)
    assert after.name == before.name
    assert after.identity != before.identity
    assert two.asked == ["GET /metrics", "GET /metrics"]


def test_a_program_of_another_name_is_not_asked(engine: Callable[..., Engine]) -> None:
    """Not even one that serves an engine's page."""
    one = engine(program="webserver")
    assert on(finder().look().targets, one.port) == []
    assert one.connections == 0


def test_other_ports_of_an_engine_are_left_alone(tmp_path: Path) -> None:
    """Behind them are protocols of its own, which a stray request may end."""
    other, serves = free_port(), free_port()
    script = tmp_path / "vllm"
    script.write_text(
        "import socket, sys\n"
        "a, b = (socket.create_server(('127.0.0.1', int(p))) for p in sys.argv[2:])\n"
        "print('up', flush=True)\n"
        "while True:\n    a.accept()[0].recv(9); print('asked', flush=True)\n"
    )
    asked: list[str] = []

    def probe(url: str, known: bool) -> Answer:
        asked.append(url)
        return Answer("never")

    command = [sys.executable, str(script), f"--port={serves}", str(other), str(serves)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        finder(probe=probe).look()
        process.kill()
    assert [url for url in asked if str(other) in url or str(serves) in url] == [
        f"http://127.0.0.1:{serves}/metrics"
    ]


@pytest.mark.parametrize("status", [404, 401, 410])
def test_a_server_that_answers_something_else_is_never_asked_again(
    status: int, engine: Callable[..., Engine], caplog: pytest.LogCaptureFixture
) -> None:
    """Its metrics are switched off; that is told once. Another process there is asked."""
    caplog.set_level(logging.INFO)
    one = engine()
    one.state.write_text(str(status))
    clock = FakeClock()
    local = finder(clock=clock)
    for _ in range(4):
        assert on(local.look().targets, one.port) == []
        clock.advance(10_000)
    assert one.asked == ["GET /metrics"]
    told = [line for line in caplog.messages if f"port {one.port} " in line]
    assert len(told) == 1
    assert f"HTTP {status}" in told[0]


def test_a_server_that_is_loading_is_asked_later_and_ever_less_often(
    engine: Callable[..., Engine],
) -> None:
    """After 5, 10, 20, 40 and then each 60 seconds; once it is there it is read."""
    one = engine()
    one.state.write_text("503")
    clock = FakeClock()
    local = finder(clock=clock)
    asked = []
    for _ in range(200):
        local.look()
        asked.append(len(one.asked))
        clock.advance(1)
    at = [second for second in range(200) if asked[second] > (asked[second - 1] if second else 0)]
    assert at == [0, 5, 15, 35, 75, 135, 195]

    one.state.unlink()
    clock.advance(60)
    assert len(on(local.look().targets, one.port)) == 1


def test_an_engine_without_metrics_yet_is_asked_later(
    engine: Callable[..., Engine], tmp_path: Path
) -> None:
    """SGLang shows its families after the first request."""
    page = tmp_path / "page"
    page.write_text("python_info 1\n")
    one = engine(page=page)
    clock = FakeClock()
    local = finder(clock=clock)
    assert on(local.look().targets, one.port) == []
    page.write_bytes(VLLM.read_bytes())
    clock.advance(5)
    assert len(on(local.look().targets, one.port)) == 1


@pytest.mark.parametrize("body", ["<html>", '{"a": 1}', "hello\n"])
def test_a_page_that_is_none_ends_the_matter(
    body: str, engine: Callable[..., Engine], tmp_path: Path
) -> None:
    """Whatever the process is called."""
    page = tmp_path / "page"
    page.write_text(body)
    one = engine(page=page)
    clock = FakeClock()
    local = finder(clock=clock)
    for _ in range(3):
        assert on(local.look().targets, one.port) == []
        clock.advance(10_000)
    assert len(one.asked) == 1


def test_llamacpp_is_not_asked_unless_that_is_permitted(
    engine: Callable[..., Engine], caplog: pytest.LogCaptureFixture
) -> None:
    """The question alone resets the averages that others read."""
    caplog.set_level(logging.INFO)
    one = engine(program="llama-server", page=LLAMA)
    local = finder()
    for _ in range(3):
        assert on(local.look().targets, one.port) == []
    assert one.connections == 0
    assert f"port {one.port} is not read: llamacpp" in caplog.text
    assert "allow_destructive_read: true permits it" in caplog.text

    permitted = finder(
        probe=prober(allow_destructive_read=True), allow_destructive_read=True
    ).look()
    (found,) = on(permitted.targets, one.port)
    assert found.allow_destructive_read
    assert one.asked == ["GET /metrics"]


# ---- by their port --------------------------------------------------------------------------


def test_a_listed_port_is_asked_whoever_listens_there(engine: Callable[..., Engine]) -> None:
    """With `local: true`; without it only engines' processes are."""
    one = engine(program="webserver")
    assert on(finder(one.port).look().targets, one.port) == []
    assert one.connections == 0
    (found,) = on(finder(one.port, anyone=True).look().targets, one.port)
    assert found.name == f"local:{one.port}"
    assert one.asked == ["GET /metrics"]


def test_a_llamacpp_of_another_name_is_read_at_most_once(engine: Callable[..., Engine]) -> None:
    """Then its page says what it is."""
    one = engine(program="webserver", page=LLAMA)
    clock = FakeClock()
    local = finder(one.port, anyone=True, clock=clock)
    for _ in range(3):
        assert on(local.look().targets, one.port) == []
        clock.advance(10_000)
    assert one.asked == ["GET /metrics"]


def test_our_own_ports_are_not_asked() -> None:
    """Neither that of the settings, nor any socket of this process or of its children."""
    asked: list[str] = []

    def probe(url: str, known: bool) -> Answer:
        if not known:  # the machine may have engines of its own
            asked.append(url)
        return Answer("never")

    with socket.create_server(("127.0.0.1", 0)) as ours, socket.socket() as childs:
        childs.bind(("127.0.0.1", 0))
        childs.listen()
        ports = [ours.getsockname()[1], childs.getsockname()[1]]
        with subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[childs.fileno()]
        ) as child:
            childs.close()
            finder(*ports, anyone=True, own=Machine(ROOT).own, probe=probe).look()
            assert asked == []
            finder(*ports, anyone=True, excluded=ports, probe=probe).look()
            assert asked == []
            finder(*ports, anyone=True, probe=probe).look()
            assert len(asked) == 2
            child.kill()


# ---- the machine ----------------------------------------------------------------------------


class Proc:
    """A made-up `/proc`: sockets, and processes that hold them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc/net").mkdir(parents=True)
        self._rows: list[str] = []
        self._write()

    def _write(self) -> None:
        (self.root / "proc/net/tcp").write_text("\n".join(["head", *self._rows, ""]))

    def listen(self, port: int, inode: int, address: str = "0100007F", uid: int = -1) -> None:
        uid = os.getuid() if uid < 0 else uid
        self._rows.append(f" 0: {address}:{port:04X} 0:0 0A 0:0 0:0 0 {uid} 0 {inode} 1")
        self._write()

    def process(
        self, pid: int, *words: str, parent: int = 1, start: int = 1, holds: tuple[int, ...] = ()
    ) -> Path:
        folder = self.root / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        (folder / "cmdline").write_bytes("\0".join((*words, "")).encode())
        (folder / "stat").write_text(f"{pid} (x) S {parent}" + " 0" * 17 + f" {start} 0")
        for at, inode in enumerate(holds):
            (folder / "fd" / str(at)).symlink_to(f"socket:[{inode}]")
        return folder


def asking(answer: str = "server") -> tuple[list[str], Callable[[str, bool], Answer]]:
    asked: list[str] = []

    def probe(url: str, known: bool) -> Answer:
        asked.append(url)
        return Answer(answer)  # type: ignore[arg-type]

    return asked, probe


def test_a_worker_behind_its_parents_port_is_found_by_its_parents_options(tmp_path: Path) -> None:
    """vLLM's API servers give themselves titles that tell nothing of the port."""
    proc = Proc(tmp_path)
    proc.listen(9000, 7)
    proc.process(10, "python3", "/bin/vllm", "serve", "m", "--port", "9000", start=5)
    proc.process(11, "VLLM::APIServer_0", parent=10, start=6, holds=(7,))
    asked, probe = asking()
    (found,) = finder(machine=Machine(tmp_path), probe=probe).look().targets
    assert found.identity == "11@6"
    assert asked == ["http://127.0.0.1:9000/metrics"]


def test_the_oldest_of_several_holders_is_the_server(tmp_path: Path) -> None:
    """Workers that come and go behind one socket do not make it another server."""
    proc = Proc(tmp_path)
    proc.listen(8000, 7)
    proc.process(10, "vllm", "serve", start=5, holds=(7,))
    proc.process(11, "vllm", "serve", parent=10, start=6, holds=(7,))
    asked, probe = asking()
    local = finder(machine=Machine(tmp_path), probe=probe)
    assert [one.identity for one in local.look().targets] == ["10@5"]
    shutil.rmtree(tmp_path / "proc/11")
    proc.process(12, "vllm", "serve", parent=10, start=9, holds=(7,))
    assert [one.identity for one in local.look().targets] == ["10@5"]
    assert len(asked) == 1


def test_a_process_that_took_over_a_socket_is_another_server(tmp_path: Path) -> None:
    """Though the socket stayed the same; a number used again does not deceive us."""
    proc = Proc(tmp_path)
    proc.listen(8000, 7)
    proc.process(10, "vllm", "serve", start=5, holds=(7,))
    asked, probe = asking()
    local = finder(machine=Machine(tmp_path), probe=probe)
    local.look()
    shutil.rmtree(tmp_path / "proc/10")
    proc.process(10, "vllm", "serve", start=50, holds=(7,))
    assert [one.identity for one in local.look().targets] == ["10@50"]
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("00000000", "http://127.0.0.1:8000/metrics"),
        ("0100007F", "http://127.0.0.1:8000/metrics"),
        ("0500000A", "http://10.0.0.5:8000/metrics"),
    ],
)
def test_a_server_is_asked_where_it_listens(tmp_path: Path, address: str, url: str) -> None:
    """On the loopback if it can be."""
    proc = Proc(tmp_path)
    proc.listen(8000, 7, address)
    proc.process(10, "vllm", "serve", holds=(7,))
    asked, probe = asking("later")
    finder(machine=Machine(tmp_path), probe=probe).look()
    assert asked == [url]


def test_where_nobody_answers_the_next_address_and_only_there_the_next_path_is_tried(
    tmp_path: Path,
) -> None:
    """A socket on all addresses of IPv6 may not take IPv4; NIM has two paths."""
    proc = Proc(tmp_path)
    (tmp_path / "proc/net/tcp6").write_text(
        f"head\n 0: {'0' * 32}:1F40 0:0 0A 0:0 0:0 0 {os.getuid()} 0 7 1\n"
    )
    proc.process(10, "python", "-m", "vllm_nvext.x", holds=(7,))
    asked: list[str] = []

    def probe(url: str, known: bool) -> Answer:
        asked.append(url)
        if "127.0.0.1" in url:
            return Answer("absent")
        return Answer("never" if "/v1/" in url else "server")

    (found,) = finder(machine=Machine(tmp_path), probe=probe).look().targets
    assert asked == [
        "http://127.0.0.1:8000/v1/metrics", "http://[::1]:8000/v1/metrics",
        "http://127.0.0.1:8000/metrics", "http://[::1]:8000/metrics",
    ]  # fmt: skip
    assert found.url == "http://[::1]:8000/metrics"


def test_a_port_that_may_be_llamacpps_is_not_asked_when_its_process_is_not_seen(
    tmp_path: Path,
) -> None:
    """8080 is llama.cpp's default; the question would do the harm."""
    proc = Proc(tmp_path)
    proc.listen(8080, 7)
    proc.listen(8000, 8)
    asked, probe = asking()
    finder(8000, 8080, anyone=True, machine=Machine(tmp_path), probe=probe).look()
    assert asked == ["http://127.0.0.1:8000/metrics"]


def test_one_look_asks_a_few_servers_and_the_next_goes_on(tmp_path: Path) -> None:
    """Each may keep us waiting."""
    proc = Proc(tmp_path)
    for n in range(20):
        proc.listen(9000 + n, 100 + n)
        proc.process(10 + n, "vllm", "serve", f"--port={9000 + n}", holds=(100 + n,))
    asked, probe = asking()
    local = finder(machine=Machine(tmp_path), probe=probe)
    assert [len(local.look().targets) for _ in range(4)] == [8, 16, 20, 20]
    assert len(asked) == len(set(asked)) == 20


def test_a_machine_that_shows_no_sockets_has_no_servers(tmp_path: Path) -> None:
    """On `auto` that is nothing to tell of; who asked for it is told."""
    assert finder(machine=Machine(tmp_path)).look() == ((), ())
    (fault,) = finder(machine=Machine(tmp_path), anyone=True).look().faults
    assert (fault.part, fault.reason) == ("local", "unavailable")


def test_processes_are_gone_through_only_when_a_socket_has_come_or_gone(tmp_path: Path) -> None:
    """That is what costs: a node has thousands of processes."""
    proc = Proc(tmp_path)
    proc.listen(8000, 7)
    proc.process(10, "vllm", "serve", holds=(7,))
    machine = Machine(tmp_path)
    looks: list[int] = []
    pids = machine.pids
    machine.pids = lambda: looks.append(1) or pids()  # type: ignore[method-assign,func-returns-value]
    local = finder(machine=machine, probe=asking()[1])
    for _ in range(5):
        assert len(local.look().targets) == 1
    assert len(looks) == 1
    proc.listen(8001, 8)
    local.look()
    assert len(looks) == 2


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs to be root to become another user")


@needs_root
def test_an_unprivileged_daemon_believes_command_line_user_and_network(
    engine: Callable[..., Engine],
) -> None:
    """It may not see other users' sockets; the container image runs so (user 65532)."""
    one = engine()
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from exporter.discovery import Answer, LocalFinder, Machine\n"
        "from exporter.clock import SystemClock\n"
        "os.setgroups([]); os.setgid(65532); os.setuid(65532)\n"
        "machine = Machine(Path('/'))\n"
        f"assert machine.inodes({one.process.pid}) is None\n"
        "def probe(url, known): return Answer('server')\n"
        "local = LocalFinder(machine, probe, SystemClock(), ports=())\n"
        "print(*(f'{t.url} {t.identity}' for t in local.look().targets), sep='\\n')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=HERE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    (line,) = [line for line in ran.stdout.splitlines() if f":{one.port}/" in line]
    assert line.startswith(f"http://127.0.0.1:{one.port}/metrics {one.process.pid}@")


def test_a_probe_does_not_follow_to_another_host_and_has_a_size_limit(tmp_path: Path) -> None:
    """A server that sends us elsewhere, or sends too much, is none."""
    from tests.servers import reply, serving

    small = Prober(load_engines(), SystemClock(), timeout=10, max_bytes=1024, limits=Limits())
    away = reply(b"", "302 Found", Location="http://127.0.0.2:1/metrics")
    with serving(away) as server:
        assert small(server.url(), known=True).state == "never"
    with serving(reply(VLLM.read_bytes())) as server:
        answer = small(server.url(), known=True)
    assert (answer.state, "larger than 1024 bytes" in answer.detail) == ("never", True)
    with serving(reply(VLLM.read_bytes())) as server:
        url = server.url()
        assert prober()(url, known=False).state == "server"
    assert prober()(url, known=True).state == "absent"
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as silent:
        quick = Prober(load_engines(), SystemClock(), timeout=0.2, max_bytes=1024, limits=Limits())
        answer = quick(f"http://127.0.0.1:{silent.getsockname()[1]}/metrics", known=True)
        assert answer.state == "later"
