"""What the daemon itself costs: its own process, and the children that read drivers for it.

The numbers of the own process come from `prometheus_client`'s collector, which knows `/proc`; the
children's from `psutil`. Both count for the budget that the documentation promises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import psutil
from prometheus_client import CollectorRegistry, ProcessCollector

from exporter import catalogue as c
from exporter.samples import Drop, Fault, Metric, Sample

_ROWS: Mapping[str, Metric] = {
    row.name: row
    for row in (
        c.PROCESS_CPU_SECONDS_TOTAL,
        c.PROCESS_START_TIME_SECONDS,
        c.PROCESS_RESIDENT_MEMORY_BYTES,
        c.PROCESS_VIRTUAL_MEMORY_BYTES,
        c.PROCESS_OPEN_FDS,
        c.PROCESS_MAX_FDS,
    )
}


class Cost(Protocol):
    """What is asked of a child process; `OSError` or `psutil.Error` if it is gone."""

    def cpu_times(self) -> CpuTimes:
        """Return its CPU time."""

    def memory_info(self) -> Memory:
        """Return its memory."""


class CpuTimes(Protocol):
    """CPU time in seconds."""

    @property
    def user(self) -> float:
        """Seconds in user mode."""

    @property
    def system(self) -> float:
        """Seconds in the kernel."""


class Memory(Protocol):
    """Memory in bytes."""

    @property
    def rss(self) -> int:
        """Resident bytes."""


class ProcessSource:
    """CPU, memory and descriptors of the daemon, and CPU and memory of its live children.

    `proc` is where the process file system is mounted; `children` finds the live children. Raises
    `FileNotFoundError` where there is no such file system. The children's samples are absent while
    there is none; their CPU time starts again when one is replaced.

        process_cpu_seconds_total 12.31
        process_resident_memory_bytes 53325824
        process_open_fds 61
        flopwatch_child_cpu_seconds_total 4.07
        flopwatch_child_resident_memory_bytes 24117248
    """

    name = "process"
    group = c.EXPORTER

    def __init__(
        self,
        proc: Path = Path("/proc"),
        *,
        children: Callable[[], Iterable[Cost]] | None = None,
    ) -> None:
        # in a registry of its own: nothing of ours may appear in the library's global one
        self._collector = ProcessCollector(proc=str(proc), registry=CollectorRegistry())
        self._proc = proc
        self._children = (lambda: live_children(proc)) if children is None else children

    def read(self) -> Iterator[Sample | Fault | Drop]:
        """Read once."""
        families = tuple(self._collector.collect())
        if not families:
            raise FileNotFoundError(f"no process statistics below {self._proc}")
        for family in families:
            for sample in family.samples:
                row = _ROWS.get(sample.name)
                if row is not None:
                    yield row(sample.value)
        yield from self._read_children()

    def close(self) -> None:
        """Nothing is held."""

    def _read_children(self) -> Iterator[Sample | Fault]:
        cpu, memory, number = 0.0, 0, 0
        try:
            for child in self._children():
                try:
                    times, resident = child.cpu_times(), child.memory_info().rss
                except (psutil.Error, ProcessLookupError):
                    continue  # it ended between being listed and being asked
                cpu += times.user + times.system
                memory += resident
                number += 1
        except OSError as error:
            yield Fault.of("children", error)
            return
        if number:
            yield c.FLOPWATCH_CHILD_CPU_SECONDS_TOTAL(cpu)
            yield c.FLOPWATCH_CHILD_RESIDENT_MEMORY_BYTES(memory)


def live_children(proc: Path = Path("/proc")) -> Iterator[psutil.Process]:
    """Yield the live children of this process.

    The kernel lists them below each thread (CONFIG_PROC_CHILDREN). Where it does not, psutil finds
    them by reading the status of every process of the machine, which costs milliseconds on a busy
    node.
    """
    lists = tuple((proc / "self/task").glob("*/children"))
    if not lists:
        yield from psutil.Process().children()
        return
    for path in lists:
        try:
            numbers = path.read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread ended
        for number in numbers:
            try:
                yield psutil.Process(int(number))
            except psutil.Error:
                continue  # the child ended
