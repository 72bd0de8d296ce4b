"""What the client costs a training loop for each step, whatever the daemon does.

    .venv/bin/python benchmarks/client.py [--check] [--steps N]

Timed is all that the client adds to a step: its context, five phases in it, and the numbers.
Between steps the loop computes for 300 us in Python, so that the client's thread waits for the
interpreter, and the loop for it, as in a real job. In the same run: two readings of the clock, and
empty contexts in the client's place.

up: a daemon on a unix socket. down: nobody listens. hung: somebody accepts, and neither reads nor
answers. full: nobody accepts and the queue of connections is full. tcp: as hung, over TCP, with so
small a buffer that sending waits. far: a daemon that takes 2 s for each answer.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.common import table
from exporter.client import Run

PHASES = ("data", "forward", "backward", "communication", "optimizer")
MUST = {0.5: 20e-6, 0.99: 200e-6}
WORK = 300e-6


class Empty:
    def __enter__(self) -> Empty:  # noqa: PYI034 - as the client has it
        return self

    def __exit__(self, *_: object) -> None:
        pass


def clock_only() -> Callable[[int], None]:
    return lambda _: None


def empty_contexts() -> Callable[[int], None]:
    def step(_: int) -> None:
        with Empty():
            for _ in PHASES:
                with Empty():
                    pass

    return step


def client(url: str) -> Callable[[int], None]:
    run = Run("bench", url=url, world_size=8, rank=0, sequence_length=8192)

    def step(_: int) -> None:
        with run.step(tokens=4194304) as one:
            for phase in PHASES:
                with one.phase(phase):
                    pass
            one.note(loss=1.5)

    return step


def measure(step: Callable[[int], None], steps: int) -> list[float]:
    """Return what each step costs in seconds, sorted; the first twentieth is left out."""
    clock, costs = time.perf_counter, []
    for number in range(steps):
        until = clock() + WORK
        while clock() < until:
            pass
        began = clock()
        step(number)
        costs.append(clock() - began)
    return sorted(costs[steps // 20 :])


# ---------------------------------------------------------------- what the daemon does


class Daemon:
    """A real daemon, and how many steps it has taken."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.path = folder / "up.sock"
        config = folder / "up.yaml"
        config.write_text(f'listen: "127.0.0.1:{self._port}"\npush: {{socket: {self.path}}}\n')
        self._process = subprocess.Popen(
            [sys.executable, "-m", "exporter", "run", "--config", str(config)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until = time.monotonic() + 20
        while not self.path.exists() and time.monotonic() < until:
            time.sleep(0.05)

    def taken(self) -> int:
        time.sleep(7)  # what is pushed is sent each second, and told each five
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics") as page:
            text = page.read().decode()
        match = re.search(r'records_total\{outcome="new",reader="push"\} (\d+)', text)
        return int(match[1]) if match else 0

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


@contextlib.contextmanager
def up(folder: Path) -> Iterator[str]:
    """A real daemon; says how much of what was told has arrived."""
    daemon = Daemon(folder)
    try:
        yield f"unix://{daemon.path}"
        print(f"up: the daemon has taken {daemon.taken()} records", file=sys.stderr)
    finally:
        daemon.stop()


@contextlib.contextmanager
def down(folder: Path) -> Iterator[str]:
    yield f"unix://{folder}/nobody.sock"


@contextlib.contextmanager
def hung(folder: Path) -> Iterator[str]:
    """Accepts and does nothing."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/hung.sock")
        listener.listen()
        held = []
        threading.Thread(target=lambda: _accept_all(listener, held.append), daemon=True).start()
        yield f"unix://{folder}/hung.sock"


@contextlib.contextmanager
def full(folder: Path) -> Iterator[str]:
    """The queue of connections is full, and connecting waits."""
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as stack:
        listener.bind(f"{folder}/full.sock")
        listener.listen(0)
        for _ in range(2):
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            waiting.connect_ex(f"{folder}/full.sock")
        yield f"unix://{folder}/full.sock"


@contextlib.contextmanager
def tcp(_: Path) -> Iterator[str]:
    """Hung, over TCP with small buffers, so that sending itself waits."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        held = []
        threading.Thread(target=lambda: _accept_all(listener, held.append), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextlib.contextmanager
def far(_: Path) -> Iterator[str]:
    """Answers, after two seconds."""
    answer = b'{"new":1,"known":0,"refused":[]}'
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(answer)

    def reply(peer: socket.socket) -> None:
        peer.recv(1 << 20)
        time.sleep(2)
        peer.sendall(head + answer)
        peer.close()

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        threading.Thread(target=lambda: _accept_all(listener, reply), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def _accept_all(listener: socket.socket, act: Callable[[socket.socket], None]) -> None:
    with contextlib.suppress(OSError):
        while True:
            act(listener.accept()[0])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="fail when a limit is not kept")
    parser.add_argument("--steps", type=int, default=20_000)
    options = parser.parse_args()
    rows, kept = [], True
    with tempfile.TemporaryDirectory() as name:
        for label, step in (
            ("two readings of the clock", clock_only()),
            ("empty contexts", empty_contexts()),
        ):
            costs = measure(step, options.steps)
            rows.append(
                (
                    label,
                    *(f"{costs[int(q * len(costs))] * 1e6:.1f}" for q in (0.5, 0.99, 0.999)),
                    "",
                )
            )
        for case in (up, down, hung, full, tcp, far):
            with case(Path(name)) as url:
                costs = measure(client(url), options.steps)
            said = [costs[int(q * len(costs))] for q in (0.5, 0.99, 0.999)]
            good = all(costs[int(q * len(costs))] < most for q, most in MUST.items())
            kept = kept and good
            rows.append(
                (
                    f"client, {case.__name__}",
                    *(f"{one * 1e6:.1f}" for one in said),
                    "yes" if good else "NO",
                )
            )
    print(table(("each step, us", "p50", "p99", "p99.9", "kept"), rows))
    print(f"must: p50 below {MUST[0.5] * 1e6:.0f} us, p99 below {MUST[0.99] * 1e6:.0f} us")
    return 0 if kept or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
