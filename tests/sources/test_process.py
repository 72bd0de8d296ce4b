"""The daemon's own cost, and that of its children."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from prometheus_client import REGISTRY

from exporter.samples import Drop, Fault, Gate, Sample
from exporter.sources.process import ProcessSource, live_children

OWN = {
    "process_cpu_seconds_total",
    "process_start_time_seconds",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_open_fds",
    "process_max_fds",
}


class FakeChild:
    """A child process of known cost, or one that has ended."""

    def __init__(self, user: float, system: float, rss: int, error: Exception | None = None):
        self._cost = (user, system, rss)
        self._error = error

    def cpu_times(self) -> SimpleNamespace:
        if self._error is not None:
            raise self._error
        return SimpleNamespace(user=self._cost[0], system=self._cost[1])

    def memory_info(self) -> SimpleNamespace:
        return SimpleNamespace(rss=self._cost[2])


def values(items: Iterable[Sample | Fault | Drop]) -> dict[str, object]:
    """Return the samples by name; there must be nothing else among the items."""
    found = {}
    for item in items:
        assert isinstance(item, Sample), item
        assert not item.labels
        found[item.metric.name] = item.value
    return found


def test_the_daemons_own_metrics() -> None:
    """All six rows are there for this process, with plausible values."""
    source = ProcessSource(children=tuple)
    found = values(source.read())
    source.close()
    assert found.keys() == OWN
    assert found["process_resident_memory_bytes"] > 1 << 20  # type: ignore[operator]
    assert found["process_open_fds"] <= found["process_max_fds"]  # type: ignore[operator]


def test_a_recorded_process_golden(tmp_path: Path) -> None:
    """CPU time is user plus system ticks; memory comes in pages; the start time from boot."""
    own = tmp_path / "self"
    (own / "fd").mkdir(parents=True)
    for name in ("0", "1", "2"):
        (own / "fd" / name).touch()
    (tmp_path / "stat").write_text("cpu  1 2 3\nbtime 1795975700\n")
    fields = ["S", *["0"] * 10, "250", "50", "0", "0", "20", "0", "8", "0", "4000", "30834688", "7"]
    (own / "stat").write_text(f"42 (flop watch) {' '.join(fields)}\n")
    (own / "limits").write_text("Max open files            1024                 4096       files\n")
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    assert values(ProcessSource(tmp_path, children=tuple).read()) == {
        "process_cpu_seconds_total": 300 / ticks,
        "process_start_time_seconds": 1795975700 + 4000 / ticks,
        "process_virtual_memory_bytes": 30834688,
        "process_resident_memory_bytes": 7 * page,
        "process_open_fds": 3,
        "process_max_fds": 1024,
    }


def test_nothing_enters_the_global_registry() -> None:
    """The library's own registry is as it was."""
    before = [family.name for family in REGISTRY.collect()]
    ProcessSource()
    assert [family.name for family in REGISTRY.collect()] == before


def test_no_process_file_system_is_an_error(tmp_path: Path) -> None:
    """Without /proc nothing is known, and the error names the place."""
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        list(ProcessSource(tmp_path, children=tuple).read())


def test_children_add_up() -> None:
    """CPU is user plus system of all live children, memory their resident bytes."""
    children = [FakeChild(1.5, 0.5, 1000), FakeChild(10.0, 2.0, 2000)]
    found = values(ProcessSource(children=lambda: children).read())
    assert found["flopwatch_child_cpu_seconds_total"] == 14.0
    assert found["flopwatch_child_resident_memory_bytes"] == 3000


def test_without_children_their_series_are_absent() -> None:
    """No child is not a child that costs nothing."""
    assert values(ProcessSource(children=tuple).read()).keys() == OWN


@pytest.mark.parametrize("error", [psutil.NoSuchProcess(42), ProcessLookupError()])
def test_a_child_that_ended_is_left_out(error: Exception) -> None:
    """A child may end between being listed and being asked."""
    children = [FakeChild(0.0, 0.0, 0, error), FakeChild(1.0, 1.0, 500)]
    found = values(ProcessSource(children=lambda: children).read())
    assert found["flopwatch_child_cpu_seconds_total"] == 2.0
    only_gone = values(ProcessSource(children=lambda: children[:1]).read())
    assert only_gone.keys() == OWN


def test_children_that_cannot_be_listed_are_a_fault() -> None:
    """The daemon's own samples stay."""

    def denied() -> Iterator[FakeChild]:
        raise PermissionError("no")
        yield

    items = list(ProcessSource(children=denied).read())
    faults = [item for item in items if isinstance(item, Fault)]
    assert [(fault.part, fault.reason) for fault in faults] == [("children", "denied")]
    assert len(items) == len(OWN) + 1


def test_a_real_child_is_found() -> None:
    """A child process of ours is listed with its memory while it lives."""
    child = subprocess.Popen(
        [sys.executable, "-c", "print('ready', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdout.readline()
        assert child.pid in {process.pid for process in live_children()}
        samples = [item for item in ProcessSource().read() if isinstance(item, Sample)]
        assert values(samples)["flopwatch_child_resident_memory_bytes"] > 1 << 20  # type: ignore[operator]
        assert Gate(100).admit(samples)[1] == {}
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()
    assert child.pid not in {process.pid for process in live_children()}


def test_children_are_found_without_the_kernels_list(tmp_path: Path) -> None:
    """A kernel built without CONFIG_PROC_CHILDREN is asked through psutil."""
    assert {p.pid for p in live_children(tmp_path)} == {p.pid for p in psutil.Process().children()}
