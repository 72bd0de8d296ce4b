"""One long run: a real vLLM under load, killed and restarted, and a daemon that is restarted.

The parts of `Run` hold what was seen. FLOPWATCH_TRUTH_FOLDER keeps it all in that folder; a folder
that holds a run already is judged as it is, without running anything (to look at a failure again).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.real.load import Phase, Record
from tests.real.pages import Page, Watch, restore, save
from tests.real.priority import hurry
from tests.real.truth import Cut, Gap
from tests.real.vllm_server import MODEL, Vllm, make_model
from tests.test_daemon import Daemon, free_port, ready

FOLDER = os.environ.get("FLOPWATCH_TRUTH_FOLDER", "")
VOCABULARY = 1500
STEADY = [
    Phase("steady", 75, 2.0, aborts=0.15, too_long=0.04, bad_model=0.04),
    Phase("long prompts", 60, 1.2, prompt=(300, 700), output=(1, 8, 24, 64), aborts=0.1),
    Phase("bursts", 70, 0.8, burst=10, burst_every=14, too_long=0.04),
]
KILLED = [Phase("killed", 400, 1.5, aborts=0.05, bad_model=0.04)]
KILLED_AFTER, GOES_ON = 40.0, 45.0
"""Seconds of that load before the server is killed, and after the daemon has seen it again."""

READING = 0.1
"""Seconds that a reading of the server may take."""

CALM = [Phase("calm", 50, 1.5, prompt=(16, 60), output=(1, 8, 32))]
OBJECTIVES = {
    # Bounds of vLLM's buckets.
    "ttft_p50": "< 250ms", "ttft_p90": "< 1s", "ttft_p95": "< 2500ms", "itl_p90": "< 50ms",
    "itl_p99": "< 300ms", "tpot_p95": "< 50ms", "tpot_p90": "< 100ms", "e2e_p50": "< 1s",
    "e2e_p95": "< 10s",
    # Between two of them.
    "ttft_p75": "< 350ms", "itl_p95": "< 60ms", "e2e_p75": "< 1200ms",
}  # fmt: skip


@dataclass
class Part:
    """A stretch of the run: the client's records, and the daemon's pages meanwhile.

    `native` is the server's own page at the end. A server that was killed at `killed`, last read at
    `read` before that, was healthy again at `back` (Unix seconds).
    """

    records: list[Record] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)
    native: str = ""
    killed: float = 0.0
    read: float = 0.0
    back: float = 0.0

    def gaps(self) -> list[Gap]:
        """Return what was counted and never read because the server was killed."""
        latest = min(self.read + READING, self.killed)
        return [Gap(Cut(self.read, latest), self.killed)] if self.killed else []


@dataclass
class Run:
    """Everything that was seen. `restarted` begins with a daemon that knows nothing yet."""

    steady: Part
    killed: Part
    restarted: Part


def run(folder: Path) -> Run:
    """Run the scenario, or return the one that is kept."""
    kept = Path(FOLDER) if FOLDER else folder
    names = ("steady", "killed", "restarted")
    if not (kept / "restarted.json").exists():
        kept.mkdir(parents=True, exist_ok=True)
        for name, part in zip(names, _run(kept), strict=True):
            _save(part, kept / name)
    return Run(*(_restore(kept / name) for name in names))


def _run(folder: Path) -> tuple[Part, Part, Part]:
    server = Vllm(make_model(folder, hidden=512, layers=6), free_port())
    server.start()
    try:
        server.wait()
        daemon = _daemon(folder, server)
        try:
            with Watch(daemon, server.name) as watch:
                _settle(6)
                steady = Part(_load(server, STEADY, folder, seed=11))
                _settle(4)
                steady.native = server.page()
                _settle(4)
                steady.pages = list(watch.pages)
                killed = _killed(server, folder, watch)
                killed.pages = list(watch.pages)
        finally:
            daemon.stop()
        daemon = _daemon(folder, server)
        try:
            with Watch(daemon, server.name) as watch:
                _settle(6)
                restarted = Part(_load(server, CALM, folder, seed=13))
                _settle(4)
                restarted.native = server.page()
                _settle(4)
            restarted.pages = watch.pages
        finally:
            daemon.stop()
    finally:
        server.kill()
    return steady, killed, restarted


def _killed(server: Vllm, folder: Path, watch: Watch) -> Part:
    """Kill the server in the middle of the load and start it again at once."""
    part = Part()
    process, out = _begin_load(server, KILLED, folder, seed=12)
    time.sleep(KILLED_AFTER)
    part.killed = time.time()
    server.kill()
    server.start()
    server.wait()
    part.back = time.time()
    watch.wait_for(lambda page: page.cut is not None and page.cut.earliest > part.back, 90)
    time.sleep(GOES_ON)
    process.terminate()
    assert process.wait(240) == 0
    part.records = _records(out)
    _settle(4)
    part.native = server.page()
    _settle(4)
    part.read = max(read for read in watch.reads if read < part.killed)
    return part


def _settle(seconds: float) -> None:
    """Wait until what has ended is on the pages."""
    time.sleep(seconds)


def _daemon(folder: Path, server: Vllm, **more: object) -> Daemon:
    """Start a daemon; `more` goes into its configuration.

    As it is, it keeps nothing beyond its end: the last part of the run is about that.
    """
    off = {"enabled": False}
    settings = {
        "sources": {
            "host": off, "network": off, "process": off, "nvml": off, "kmsg": off,
            "serving": {"interval": "1s", "windows": ["1m", "5m", "30m", "1h"]},
            "inference": {
                "interval": "1s", "servers": [{"name": server.name, "url": f"{server.url}/metrics"}]
            },
        },
        "inference_sla": {
            "latency": {"ttft_p99": "< 2500ms", "tpot_p95": "< 500ms"},
            "availability": {"error_rate": "< 0.1%"},
        },
        "sla": {
            "truth": {
                "windows": ["1m", "5m"], "window": "1m", "minimum_events": 20,
                "objectives": OBJECTIVES,
            },
        },
        **more,
    }  # fmt: skip
    file = folder / "flopwatch.yaml"
    file.write_text(yaml.safe_dump(settings))
    port = free_port()
    command = [sys.executable, "-m", "exporter", "run", "--config", str(file)]
    daemon = Daemon([*command, "--listen", f"127.0.0.1:{port}"], port)
    daemon.wait_for("/-/ready", ready)
    hurry(daemon.process.pid, "watches")
    return daemon


def _begin_load(
    server: Vllm, phases: list[Phase], folder: Path, *, seed: int
) -> tuple[subprocess.Popen[bytes], Path]:
    plan, out = folder / f"plan-{seed}.json", folder / f"records-{seed}.jsonl"
    wanted = {"seed": seed, "vocabulary": VOCABULARY, "phases": [p._asdict() for p in phases]}
    plan.write_text(json.dumps(wanted))
    command = [sys.executable, "-m", "tests.real.load", str(server.port), "vllm", MODEL]
    return subprocess.Popen([*command, str(plan), str(out)]), out


def _load(server: Vllm, phases: list[Phase], folder: Path, *, seed: int) -> list[Record]:
    process, out = _begin_load(server, phases, folder, seed=seed)
    assert process.wait(sum(phase.seconds for phase in phases) + 240) == 0
    return _records(out)


def _records(path: Path) -> list[Record]:
    records = [Record(**json.loads(line)) for line in path.read_text().splitlines()]
    for record in records:
        record.arrivals = [(at, number) for at, number in record.arrivals]
    return records


def _save(part: Part, path: Path) -> None:
    save(part.pages, path.with_suffix(".pages.gz"))
    told = {
        "records": [vars(record) for record in part.records],
        "native": part.native, "killed": part.killed, "read": part.read, "back": part.back,
    }  # fmt: skip
    path.with_suffix(".json").write_text(json.dumps(told))


def _restore(path: Path) -> Part:
    told = json.loads(path.with_suffix(".json").read_text())
    records = [Record(**record) for record in told["records"]]
    pages = restore(path.with_suffix(".pages.gz"))
    return Part(records, pages, told["native"], told["killed"], told["read"], told["back"])
