"""What reading eight GPUs costs, beside nvitop-exporter on the same driver library in the same run.

    .venv/bin/python benchmarks/gpu.py [--check] [--seconds 30] [--peer PATH] [--part calls]

The library is the tests' fake one (gcc builds it): eight H100, read once a second by the daemon as
a user runs it, without host and network, and by nvitop-exporter, which cannot leave the host out.
Both are scraped once a second as Prometheus does. CPU is read from the processes' own clocks,
children included, and "a sample" of the table is one read of all GPUs, scrape included. What a
thousand series of the page cost each time is told as well: the pages are not the same (the peer's
holds readings of the host, ours the derived series, XIDs and its own health). First the library
answers as fast as it can, then each call about a device burns 20 us. Time inside the library is our
own metric `flopwatch_driver_seconds_total`; nvitop-exporter has none. Of two runs the better one
counts.

Then single calls: ours against pynvml's own functions, and the threads of `exporter.workers`
against a thread for each GPU. `--peer` is an nvitop-exporter to compare with; without it the one on
the PATH is taken, or one is installed in a folder for temporary files.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import gzip
import http.client
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.common import race, table
from benchmarks.daemon import children, cpu, free_port, pss, scrape, wait
from exporter.clock import SystemClock
from exporter.nvml.driver import Nvml, Struct
from exporter.sources import nvml as source
from exporter.workers import Crew
from tests.fake_nvml import build, environment, profile

ROOT = Path(__file__).parent.parent
PEER = "nvitop-exporter"
VERSION = "1.7.2"
BUSY = (0, 20)
RUNS = 2
WARM = 12
"""Seconds: some things are read by each tenth read only, and the first read asks for everything."""
CPU_MUST, MEMORY_MUST = 1 / 10, 80


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="fail when a budget is missed")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--peer", type=Path, help=f"path of {PEER}")
    parser.add_argument("--part", choices=("exporters", "calls"), help="only this part")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        calls()
        return 0
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        print("SKIPPED: there is no C compiler for the fake driver library", file=sys.stderr)
        return 0
    kept = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build(folder)
        if options.part != "calls":
            peer = options.peer or shutil.which(PEER) or installed()
            kept = report(*exporters(folder, library, peer, options.seconds))
        if options.part != "exporters":
            for busy in BUSY:
                subprocess.run(
                    [sys.executable, __file__, "--inside"], check=True, env=machine(library, busy)
                )
    return int(options.check and not kept)


def installed() -> Path | None:
    """Return an nvitop-exporter of our own, installed at first; say so if it cannot be had."""
    place = Path(tempfile.gettempdir()) / f"flopwatch-{PEER}-{VERSION}"
    program = place / "bin" / PEER
    if not program.exists():
        try:
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
            pip = [place / "bin/python", "-m", "pip", "--quiet", "install", f"{PEER}=={VERSION}"]
            subprocess.run(pip, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{PEER} is SKIPPED, it cannot be installed: {error}", file=sys.stderr)
            return None
    return program


def machine(library: Path, busy: int) -> dict[str, str]:
    return environment(library, profile("h100-sxm8"), busy_us=busy)


# ---------------------------------------------------------------- whole exporters


@dataclass(frozen=True)
class Cost:
    """Seconds of CPU for each sample: all of it, of that in the child, and inside the driver."""

    total: float
    child: float
    driver: float
    pss: float
    series: int

    @property
    def outside(self) -> float:
        # Driver time is wall time: on a busy machine it may be more than all that the child used.
        return self.total - min(self.driver, self.child)

    def of_a_thousand(self, seconds: float) -> float:
        """Return the share of so many seconds that a thousand series of the page bear."""
        return 1000 * seconds / self.series


Costs = dict[int, Cost]


def exporters(
    folder: Path, library: Path, peer: Path | str | None, seconds: int
) -> tuple[Costs, Costs]:
    """Return what we cost and what the peer costs, by the driver's microseconds for each call."""
    ours: Costs = {}
    theirs: Costs = {}
    for busy in BUSY:
        for _ in range(RUNS):
            with both(folder, machine(library, busy), peer) as running:
                time.sleep(WARM)
                costs = watch(running, seconds)
            for kept, cost in zip((ours, theirs), costs, strict=False):
                if busy not in kept or cost.outside < kept[busy].outside:
                    kept[busy] = cost
    return ours, theirs


@contextmanager
def both(
    folder: Path, variables: dict[str, str], peer: Path | str | None
) -> Iterator[list[tuple[int, int]]]:
    """Run both exporters; give process number and port of each."""
    config = folder / "flopwatch.yaml"
    config.write_text(
        "sources: {nvml: {enabled: true, interval: 1s},"
        " host: {enabled: false}, network: {enabled: false}}\n"
    )
    ports = [free_port(), free_port()]
    listen = f"127.0.0.1:{ports[0]}"
    commands: list[list[Any]] = [
        [sys.executable, "-m", "exporter", "run", "-c", config, "--listen", listen]
    ]
    if peer is not None:
        commands.append([peer, "--interval", "1", "--port", str(ports[1])])
    processes = [
        subprocess.Popen(
            command, cwd=ROOT, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for command in commands
    ]
    try:
        for port in ports[: len(processes)]:
            wait(port)
        yield [(process.pid, port) for process, port in zip(processes, ports, strict=False)]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def watch(running: Sequence[tuple[int, int]], seconds: int) -> list[Cost]:
    """Scrape all once a second, and return what each has cost over that time."""
    connections = [http.client.HTTPConnection("127.0.0.1", p, timeout=10) for _, p in running]
    began = time.monotonic()
    marks: list[list[tuple[float, float, float, bytes]]] = [[] for _ in running]
    for tick in range(seconds + 1):
        time.sleep(max(0.0, began + tick - time.monotonic()))
        for (pid, port), connection, kept in zip(running, connections, marks, strict=True):
            page = scrape(port, gzipped=True, connection=connection)
            if tick in {0, seconds}:
                below = sum(map(cpu, children(pid)))
                kept.append((time.monotonic(), cpu(pid), below, unpacked(page)))
    for connection in connections:
        connection.close()
    return [cost(pid, *kept) for (pid, _), kept in zip(running, marks, strict=True)]


def cost(
    pid: int, first: tuple[float, float, float, bytes], last: tuple[float, float, float, bytes]
) -> Cost:
    reads = told(last[3], b"source_reads_total") - told(first[3], b"source_reads_total")
    samples = reads or last[0] - first[0]  # the peer, too, reads once a second
    driver = told(last[3], b"driver_seconds_total") - told(first[3], b"driver_seconds_total")
    return Cost(
        (last[1] - first[1]) / samples,
        (last[2] - first[2]) / samples,
        driver / samples,
        pss(pid),
        sum(1 for line in last[3].splitlines() if line and line[0] != ord("#")),
    )


def unpacked(body: bytes) -> bytes:
    return gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body


def told(page: bytes, name: bytes) -> float:
    found = re.search(rb'^flopwatch_%s\{source="nvml"\} (\S+)' % name, page, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


def report(ours: Costs, theirs: Costs) -> bool:
    """Print the table; return whether the budgets are kept."""
    rows: list[Sequence[object]] = []
    for busy, mine in ours.items():
        rows.append(
            ("flopwatch", f"{busy} us", mine.series, f"{mine.pss:.1f}", ms(mine.total),
             f"{ms(mine.total - mine.child)} + {ms(mine.child)}", ms(mine.driver),
             ms(mine.outside), ms(mine.of_a_thousand(mine.outside)), f"{mine.total:.2%}")
        )  # fmt: skip
        if busy in theirs:
            peer = theirs[busy]
            rows.append(
                (PEER, f"{busy} us", peer.series, f"{peer.pss:.1f}", ms(peer.total),
                 "", "", "", ms(peer.of_a_thousand(peer.total)), f"{peer.total:.2%}")
            )  # fmt: skip
    header = ("8 GPUs, once a second", "each call", "series", "PSS, MiB", "CPU per sample, ms",
              "daemon + child", "in the driver", "outside", "outside, 1,000 series",
              "of a core")  # fmt: skip
    print(table(header, rows))
    memory = max(mine.pss for mine in ours.values())
    kept = {f"PSS of daemon and child at most {MEMORY_MUST} MiB": memory <= MEMORY_MUST}
    print()
    if 0 in theirs:
        ratio = ours[0].outside / theirs[0].total
        print(f"CPU per sample, outside the driver, against {PEER}: 1/{1 / ratio:.1f}")
        mine, peer = ours[0], theirs[0]
        each = mine.of_a_thousand(mine.outside) / peer.of_a_thousand(peer.total)
        print(f"The same by series of the page ({mine.series} and {peer.series}): 1/{1 / each:.1f}")
        kept["CPU per sample outside the driver at most 1/10 of the peer's"] = ratio <= CPU_MUST
    else:
        print(f"NOT JUDGED: CPU against {PEER}, which was not there")
    for budget, good in kept.items():
        print(f"{'kept  ' if good else 'MISSED'} {budget}")
    return all(kept.values())


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"


# ---------------------------------------------------------------- single calls, in a child process


def calls() -> None:
    """Print what single calls cost, and a round of jobs. The fake library is in the environment."""
    print(f"\nEach call about a device burns {os.environ['FAKE_NVML_BUSY_US']} us:\n", flush=True)
    rows: list[Sequence[object]] = []
    for name, (theirs, ours, bare) in pairs().items():
        results = race({"pynvml": theirs, "flopwatch": ours, "bare": bare}, rounds=9)
        peer, mine, least = (results[one].seconds for one in ("pynvml", "flopwatch", "bare"))
        beyond = (mine - least) / (peer - least)
        rows.append(
            (name, us(peer), us(mine), us(least), f"1/{peer / mine:.1f}", f"1/{1 / beyond:.1f}")
        )
    header = ("CPU, us", "pynvml's function", "flopwatch, bound", "bare ctypes call", "ratio",
              "ratio beyond the bare call")  # fmt: skip
    print(table(header, rows))
    print()
    print(table(("8 GPUs, one round", "CPU, ms", "wall, ms", "inside calls, ms"), list(rounds())))


def us(seconds: float) -> str:
    return f"{seconds * 1e6:.2f}"


def pairs() -> dict[str, tuple[Callable[[], object], Callable[[], object], Callable[[], object]]]:
    """Return for some calls: pynvml's function, ours, and the C function with all in place."""
    import pynvml

    driver = Nvml(SystemClock())
    driver.start()
    handle, lib = driver.device(0), pynvml.nvmlLib
    number, room = ctypes.c_uint32(), pynvml.c_nvmlMemory_v2_t()
    room.version = pynvml.nvmlMemory_v2
    memory = Struct("c_nvmlMemory_v2_t", ("total", "used", "free"), "nvmlMemory_v2")
    power, memory_call = "nvmlDeviceGetPowerUsage", "nvmlDeviceGetMemoryInfo_v2"
    wanted = asked()
    values = (pynvml.c_nvmlFieldValue_t * len(wanted))()
    for value, (field, scope) in zip(values, wanted, strict=True):
        value.fieldId, value.scopeId = field, scope
    count = ctypes.c_int32(len(wanted))
    return {
        "a number": (
            lambda: pynvml.nvmlDeviceGetPowerUsage(handle),
            driver.bind(power, "u32", handle),
            functools.partial(getattr(lib, power), handle, ctypes.byref(number)),
        ),
        "a structure": (
            lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2),
            driver.bind(memory_call, memory, handle),
            functools.partial(getattr(lib, memory_call), handle, ctypes.byref(room)),
        ),
        f"{len(wanted)} fields": (
            lambda: pynvml.nvmlDeviceGetFieldValues(handle, wanted),
            driver.fields(handle, wanted),
            functools.partial(lib.nvmlDeviceGetFieldValues, handle, count, values),
        ),
    }


class Watched(Nvml):
    """The driver, which notes how many fields are asked for in each call."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.made: dict[tuple[tuple[int, int], ...], int] = {}

    def fields(self, device: Any, wanted: Sequence[tuple[int, int]]) -> Callable[[], Any]:
        call, key = super().fields(device, wanted), tuple(wanted)

        def counted() -> Any:
            self.made[key] = self.made.get(key, 0) + 1
            return call()

        return counted


class Overheard(Crew):
    """A crew of which one can ask what it was last given to do for all GPUs."""

    jobs: Mapping[str, Callable[[], Any]] = {}

    def run(self, jobs: Mapping[str, Callable[[], Any]], seconds: float) -> Any:
        if len(jobs) > 1:
            Overheard.jobs = jobs
        return super().run(jobs, seconds)


def reading(driver: Nvml) -> Mapping[str, Callable[[], Any]]:
    """Return the jobs that read a GPU each, as the source makes them."""
    source.Crew = Overheard  # type: ignore[misc]
    whole = source.NvmlSource(driver=driver)
    for _ in range(3):
        list(whole.read())
    return Overheard.jobs


def asked() -> list[tuple[int, int]]:
    """Return the fields that a GPU is asked for each second."""
    driver = Watched()
    jobs = reading(driver)
    driver.made.clear()
    for job in jobs.values():
        for _ in range(10):
            job()
    return list(max(driver.made, key=lambda key: driver.made[key]))


def rounds() -> Iterator[Sequence[object]]:
    """Yield what one round of eight jobs costs, by who does them."""
    driver = Nvml(SystemClock())
    jobs = reading(driver)
    crew = Crew(SystemClock())
    ways: dict[str, Callable[[], object]] = {
        "one after the other, no thread": lambda: [job() for job in jobs.values()],
        "flopwatch's crew": lambda: crew.run(jobs, 5.0),
        "a thread for each, at once": at_once(list(jobs.values())),
    }
    results = race(ways, rounds=15)
    for name, way in ways.items():
        walls, inside = [], []
        for _ in range(200):
            spent, began = driver.seconds, time.perf_counter()
            way()
            walls.append(time.perf_counter() - began)
            inside.append(driver.seconds - spent)
        walls.sort()
        inside.sort()
        yield name, ms(results[name].seconds), ms(walls[100]), ms(inside[100])
    crew.dismiss()


def at_once(jobs: Sequence[Callable[[], Any]]) -> Callable[[], object]:
    """Return a call that has all jobs done at the same time, by threads that wait for it."""
    done: queue.SimpleQueue[object] = queue.SimpleQueue()
    doors: list[queue.SimpleQueue[None]] = [queue.SimpleQueue() for _ in jobs]

    def work(door: queue.SimpleQueue[None], job: Callable[[], Any]) -> None:
        while True:
            door.get()
            done.put(job())

    for door, job in zip(doors, jobs, strict=True):
        threading.Thread(target=work, args=(door, job), daemon=True).start()

    def run() -> object:
        for door in doors:
            door.put(None)
        return [done.get() for _ in doors]

    return run


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
