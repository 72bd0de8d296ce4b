"""Nothing piles up: starting and stopping, reloading, and series that are new each time.

Each measurement is a process of its own, `python -m tests.test_leaks NAME ...`, because threads,
descriptors and memory of the test runner are not ours to count. It prints one JSON list for each
round. Memory is what the C library has handed out and not got back, in bytes, with Python told to
take all its memory there (PYTHONMALLOC): free space kept for later is none of it, so that it has
little noise. Resident memory (anonymous, KiB) is looked at beside it. Objects are those that
Python's collector knows.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil
import pytest

from exporter import catalogue as c
from exporter.app import App
from exporter.board import Board
from exporter.config import Settings
from exporter.engines import load_engines
from exporter.exposition import Exposition
from exporter.fetch import Response
from exporter.formats.exposition import Reader
from exporter.isolate import Isolated
from exporter.plans import Estate, Plan, plan
from exporter.runner import Runner, Schedule
from exporter.samples import Sample, Source
from exporter.sources.inference import InferenceSource
from tests.fakes import FakeClock, FakeSource
from tests.servers import reply, request, serving

PAGES = Path(__file__).parent / "data" / "engines"
PAGE = PAGES / "vllm-0.32.0-cpu-dp2.prom"
SMALL_PAGE = PAGES / "vllm-0.4.x-v0-cpu-2024-06.prom"
ROUNDS, WARM_UP = 60, 10
READS, EACH = 2_000, 100
# A page or a source kept alive would show: the page read here has 88 KB, and what is remembered of
# it is more; a source has some hundred objects. Measured: 0.8 KiB and 0 objects.
KIB_A_ROUND, OBJECTS_A_ROUND = 8.0, 20.0
# Holes between what is in use come and go in steps of 1 MiB (Python 3.11, glibc 2.36).
RESIDENT_KIB_IN_ALL = 6 * 1024
# Each read brings 160 series with new labels: whoever kept them would grow by tens of MiB.
CHURN_KIB_IN_ALL = 256
PATIENCE = 30.0
CONFIG = """
log_level: error
sources:
  host: {{interval: {interval}}}
  network: {{interval: {interval}}}
  process: {{interval: {interval}}}
  serving: {{enabled: {serving}}}
  inference:
    interval: {interval}
    timeout: 30s  # a busy machine is not what this is about
    probe: {{interval: {interval}, timeout: 30s}}
    local: false  # whatever real servers this machine has
    files: ["{targets}"]
    discovery_interval: {interval}
    servers:
      - {{name: same, url: "{url}"}}
      - {{name: {name}, url: "{url}?again"}}  # a page of its own
"""


class Round(NamedTuple):
    """What a process holds after a round."""

    threads: int
    descriptors: int
    children: int
    objects: int
    memory: int
    resident: int


class Mallinfo(ctypes.Structure):
    """What mallinfo2(3) returns; glibc 2.33 or later."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    )  # fmt: skip


# ---------------------------------------------------------------- the process that is measured


def measure() -> Round:
    gc.collect()
    objects = len(gc.get_objects())
    library = ctypes.CDLL(None)
    library.mallinfo2.restype = Mallinfo
    library.malloc_trim(0)
    use = library.mallinfo2()
    rollup = Path("/proc/self/smaps_rollup").read_text("ascii")
    resident = next(line for line in rollup.splitlines() if line.startswith("Anonymous:"))
    return Round(
        threads=threading.active_count(),
        descriptors=len(list(Path("/proc/self/fd").iterdir())) - 1,  # the one that lists
        children=len(psutil.Process().children(recursive=True)),
        objects=objects,
        memory=use.uordblks + use.hblkhd,
        resident=int(resident.split()[1]),
    )


def plans(settings: Settings, estate: Estate) -> list[Plan]:
    """Return the daemon's own plans, and a source in a child process that follows the host's."""
    schedule = Schedule(settings.sources.host.interval, PATIENCE)
    child = Plan(
        "good", c.HOST, schedule, f"good {schedule}",
        lambda: Isolated(
            "good", c.HOST, {"cpus": 1}, deadline=PATIENCE, clock=estate.clock,
            module="tests.children",
        ),
    )  # fmt: skip
    return [*plan(settings, estate), child]


def rendered(app: App, sources: int) -> None:
    """Wait until each source has delivered, then render both formats, plain and packed."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        states = [source.state for source in app.view().sources]
        if "waiting" not in states:
            break
        pause.wait(0.01)
    assert len(states) == sources, states
    assert set(states) <= {"up", "degraded"}, states
    for openmetrics in (False, True):
        for gzipped in (False, True):
            page = app.exposition.page((None, openmetrics, gzipped))
            assert gzipped or b"\nllm_ttft_seconds_count" in page
            assert gzipped or b"\nhost_load_average" in page


def retired(name: str) -> None:
    """Wait for what is replaced to close: a server of that name, and whoever has a twin."""
    for thread in threading.enumerate():
        if thread.name.endswith(name):
            thread.join(PATIENCE)
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        names = [thread.name for thread in threading.enumerate()]
        if len(names) == len(set(names)):
            return
        pause.wait(0.01)
    raise AssertionError(names)


def write(file: Path, url: str, number: int, *, serving: bool = True) -> None:
    """Write one of two configurations that differ in each section and in one server's name.

    Intervals are long, so that each source reads once and a round ends with nothing under way.
    Without `serving` there are no windows: these remember an hour, whatever happens, and a test
    of the book says that they remember no more.
    """
    interval, name = (("60s", "even"), ("61s", "odd"))[number % 2]
    targets = file.with_name("targets.json")
    # The configured servers win over this one, which stands in a file that is read all the same.
    targets.write_text(json.dumps([{"targets": [urlsplit(url).netloc]}]))
    file.write_text(
        CONFIG.format(
            interval=interval, url=url, name=name, targets=targets, serving=str(serving).lower()
        )
    )


def start_and_stop(url: str, folder: str) -> Iterator[Round]:
    file = Path(folder) / "flopwatch.yaml"
    write(file, url, 0)
    for _ in range(ROUNDS):
        app = App(file, plans=plans)
        app.start()
        rendered(app, 14)
        assert app.stop()
        del app
        yield measure()


def reload(url: str, folder: str) -> Iterator[Round]:
    file = Path(folder) / "flopwatch.yaml"
    write(file, url, 0, serving=False)
    app = App(file, plans=plans)
    app.start()
    rendered(app, 13)
    for number in range(1, ROUNDS + 1):
        write(file, url, number, serving=False)
        assert app.reload() == ()
        rendered(app, 13)
        retired(f":{('odd', 'even')[number % 2]}")
        yield measure()
    assert app.stop()
    assert not psutil.Process().children()


class Churning:
    """A server whose page names another model at each read."""

    def __init__(self) -> None:
        self._page = SMALL_PAGE.read_bytes()
        self._number = 0

    def get(self) -> Response:
        self._number += 1
        body = self._page.replace(b"facebook/opt-125m", b"model-%d" % self._number)
        return Response(200, "text/plain", body)

    def close(self) -> None:
        pass


def churn() -> Iterator[Round]:
    clock, board = FakeClock(), Board()
    numbers = iter(range(READS * 50))

    def ports() -> list[Sample]:
        return [c.NIC_UP(1, f"mlx5_{next(numbers)}", "1") for _ in range(50)]

    sources: list[Source] = [
        FakeSource("ports", c.NIC, act=ports),
        InferenceSource("a", Churning(), load_engines(), clock=clock),
    ]
    runners = [
        Runner(one, Schedule(1.0, 2.0), board.enroll(one.name, one.group, 2.0, 4.0, 0.0), clock)
        for one in sources
    ]
    exposition = Exposition(lambda: board.view(clock.monotonic()), list, clock)
    reader, pages = Reader(), Churning()
    for number in range(1, READS + 1):
        clock.advance(1.0)
        for runner in runners:
            runner.step()
        page = exposition.page((None, number % 2 == 0, False))
        assert f'model_name="model-{number}"'.encode() in page
        assert f'device="mlx5_{50 * number - 1}"'.encode() in page
        assert reader.read(pages.get().body).dropped == {}
        if number % EACH == 0:
            yield measure()


def main(name: str, *arguments: str) -> None:
    programs: dict[str, Callable[..., Iterator[Round]]] = {
        "start_and_stop": start_and_stop, "reload": reload, "churn": churn,
    }  # fmt: skip
    for one in programs[name](*arguments):
        print(json.dumps(one), flush=True)


# ---------------------------------------------------------------- the tests


def run(*arguments: str) -> list[Round]:
    """Measure in a process of its own; return the rounds, after printing some of them."""
    # With several arenas chance decides which thread fills which.
    result = subprocess.run(
        [sys.executable, "-m", "tests.test_leaks", *arguments],
        env={**os.environ, "MALLOC_ARENA_MAX": "1", "PYTHONMALLOC": "malloc"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    rounds = [Round(*json.loads(line)) for line in result.stdout.splitlines()]
    for at in sorted({0, WARM_UP, len(rounds) // 2, len(rounds) - 1}):
        print(f"{arguments[0]} {at + 1}: {rounds[at]}")
    return rounds


def slope(values: list[int]) -> float:
    """Return by how much the values grow from one to the next (least squares)."""
    n = len(values)
    middle, mean = (n - 1) / 2, sum(values) / n
    above = sum((i - middle) * (value - mean) for i, value in enumerate(values))
    return above / sum((i - middle) ** 2 for i in range(n))


@pytest.fixture
def url() -> Iterator[str]:
    """The address of a server that gives the recorded page again and again."""
    answer = reply(PAGE.read_bytes())

    def answers(connection: socket.socket) -> None:
        while True:
            request(connection)
            connection.sendall(answer)

    with serving(answers) as server:
        yield server.url()


@pytest.mark.parametrize(("name", "children"), [("start_and_stop", 0), ("reload", 1)])
def test_sixty_rounds_leave_nothing_behind(
    name: str, children: int, url: str, tmp_path: Path
) -> None:
    """Threads, descriptors and children are the same after each round; memory levels off.

    Once with the whole daemon started, read and stopped each time, once with one daemon that is
    given another configuration each time.
    """
    rounds = run(name, url, str(tmp_path))
    steady = rounds[WARM_UP:]
    memory = slope([one.memory for one in steady]) / 1024
    objects = slope([one.objects for one in steady])
    print(f"{name}: {memory:+.1f} KiB and {objects:+.1f} objects a round")

    assert len(rounds) == ROUNDS
    assert {one.threads for one in steady} == {steady[0].threads}
    assert {one.descriptors for one in steady} == {steady[0].descriptors}
    assert {one.children for one in steady} == {children}
    assert memory < KIB_A_ROUND
    assert steady[-1].resident - steady[0].resident < RESIDENT_KIB_IN_ALL
    assert objects < OBJECTS_A_ROUND
    if name == "start_and_stop":
        assert steady[0].threads == 1


def test_series_that_are_new_each_time_are_forgotten() -> None:
    """After 2,000 reads of a churning server and churning ports no more is held than after 500."""
    rounds = run("churn")
    early, late = rounds[500 // EACH - 1], rounds[-1]
    memory = (late.memory - early.memory) / 1024
    print(f"churn: {memory:+.1f} KiB and {late.objects - early.objects:+} objects in all")

    assert len(rounds) == READS // EACH
    assert memory < CHURN_KIB_IN_ALL
    assert late.objects - early.objects < EACH


if __name__ == "__main__":
    main(*sys.argv[1:])
