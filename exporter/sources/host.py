"""The few facts about the machine that explain a slow GPU: CPU, memory, pressure, NUMA.

node_exporter stays the source for everything else. `psutil` is asked where it knows the answer;
what it does not know is read from `/proc` and `/sys`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import psutil

from exporter import catalogue as c
from exporter.files import Files
from exporter.formats import sysfs
from exporter.samples import Drop, Fault, Malformed, Sample

_ABSENT = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.EINVAL))
_BACKWARD_SECONDS = 60.0
_WINDOWS = ("1m", "5m", "15m")


class Machine(Protocol):
    """What is asked of the running machine. Each method raises `OSError` if it cannot tell."""

    def cpu_times(self) -> Mapping[str, float]:
        """Return the seconds of all CPUs by mode, guests counted in `user` and `nice` as well."""

    def cpu_count(self) -> int | None:
        """Return how many logical CPUs there are."""

    def virtual_memory(self) -> tuple[int, int]:
        """Return the bytes of memory in total, and available without swapping."""

    def swap_memory(self) -> tuple[int, int]:
        """Return the bytes of swap in total, and free."""

    def getloadavg(self) -> tuple[float, float, float]:
        """Return the load averages over 1, 5 and 15 minutes."""

    def boot_time(self) -> float:
        """Return when the machine was started, in Unix seconds."""

    def kernel(self) -> tuple[str, str]:
        """Return the kernel's release and the CPU architecture."""


class PsutilMachine:
    """The machine that we run on."""

    def cpu_times(self) -> Mapping[str, float]:
        """Return the seconds of all CPUs by mode."""
        return psutil.cpu_times()._asdict()

    def cpu_count(self) -> int | None:
        """Return how many logical CPUs are online."""
        return psutil.cpu_count()

    def virtual_memory(self) -> tuple[int, int]:
        """Return the bytes of memory in total, and available without swapping."""
        memory = psutil.virtual_memory()
        return memory.total, memory.available

    def swap_memory(self) -> tuple[int, int]:
        """Return the bytes of swap in total, and free."""
        swap = psutil.swap_memory()
        return swap.total, swap.free

    def getloadavg(self) -> tuple[float, float, float]:
        """Return the load averages over 1, 5 and 15 minutes."""
        return psutil.getloadavg()

    def boot_time(self) -> float:
        """Return when the machine was started, in Unix seconds."""
        return psutil.boot_time()

    def kernel(self) -> tuple[str, str]:
        """Return the kernel's release and the CPU architecture."""
        name = os.uname()
        return name.release, name.machine


class HostSource:
    """CPU time, load, memory, pressure stalls and NUMA nodes of the machine.

    `root` is where the machine's `/proc` and `/sys` hang; `machine` answers the rest. The NUMA
    nodes and the boot time are looked up anew every `relist` reads. A part that fails is a `Fault`
    and costs nothing else; pressure and NUMA are absent on kernels without them.

        host_info{kernel="6.8.0-45-generic",architecture="x86_64"} 1
        host_cpu_seconds_total{mode="user"} 81234.5
        host_memory_available_bytes 1919850381312
        host_processes_blocked 0
        host_pressure_stalled_seconds_total{resource="memory",kind="full"} 3.695361
        host_numa_memory_free_bytes{node="0"} 912680550400
    """

    name = "host"
    group = c.HOST

    def __init__(
        self,
        root: Path = Path("/"),
        *,
        machine: Machine | None = None,
        files: Files | None = None,
        relist: int = 60,
    ) -> None:
        self._stat = str(root / "proc/stat")
        self._pressure = str(root / "proc/pressure")
        self._nodes_path = str(root / "sys/devices/system/node")
        self._machine: Machine = PsutilMachine() if machine is None else machine
        self._files = Files() if files is None else files
        self._every = relist
        self._relist_in = 0
        self._nodes: tuple[str, ...] | None = None
        self._booted: float | None = None
        self._cpu: dict[str, float] = {}
        self._parts: tuple[tuple[str, Callable[[], Iterator[Sample | Fault]]], ...] = (
            ("identity", self._read_identity),
            ("cpu", self._read_cpu),
            ("load", self._read_load),
            ("memory", self._read_memory),
            ("swap", self._read_swap),
            ("processes", self._read_processes),
            ("pressure", self._read_pressure),
            ("numa", self._read_numa),
        )

    def read(self) -> Iterator[Sample | Fault | Drop]:
        """Read every part once."""
        if self._relist_in <= 0:
            self._relist_in = self._every
            self._booted = None
            self._nodes = None
        self._relist_in -= 1
        for part, read in self._parts:
            try:
                yield from read()
            except (OSError, Malformed) as error:
                yield Fault.of(part, error)
            except (ValueError, ArithmeticError, LookupError) as error:
                # what psutil raises when a file of /proc is not as it knows it
                yield Fault(part, "malformed", f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Close the kept files."""
        self._files.close()

    def _read_identity(self) -> Iterator[Sample]:
        yield c.HOST_INFO(1, *self._machine.kernel())
        # corrected clocks move it, so it is not kept for ever; psutil reads a long file for it
        if self._booted is None:
            self._booted = self._machine.boot_time()
        yield c.HOST_BOOT_TIME_SECONDS(self._booted)

    def _read_cpu(self) -> Iterator[Sample]:
        cpus = self._machine.cpu_count()
        if cpus is not None:
            yield c.HOST_CPUS(cpus)
        for mode, seconds in _disjoint(self._machine.cpu_times()).items():
            # the kernel lets idle, iowait and guest go back a little (proc_stat(5)), which
            # Prometheus would take for a restart
            last = self._cpu.get(mode, 0.0)
            if not last - _BACKWARD_SECONDS < seconds < last:
                self._cpu[mode] = seconds
            yield c.HOST_CPU_SECONDS_TOTAL(self._cpu[mode], mode)

    def _read_load(self) -> Iterator[Sample]:
        for window, load in zip(_WINDOWS, self._machine.getloadavg(), strict=True):
            yield c.HOST_LOAD_AVERAGE(load, window)

    def _read_memory(self) -> Iterator[Sample]:
        total, available = self._machine.virtual_memory()
        yield c.HOST_MEMORY_TOTAL_BYTES(total)
        yield c.HOST_MEMORY_AVAILABLE_BYTES(available)

    def _read_swap(self) -> Iterator[Sample]:
        total, free = self._machine.swap_memory()
        yield c.HOST_SWAP_TOTAL_BYTES(total)
        yield c.HOST_SWAP_FREE_BYTES(free)

    def _read_processes(self) -> Iterator[Sample]:
        fields = sysfs.fields(self._files.read(self._stat))
        for name, metric in (
            ("procs_running", c.HOST_PROCESSES_RUNNING),
            ("procs_blocked", c.HOST_PROCESSES_BLOCKED),
        ):
            if name in fields:
                yield metric(fields[name])

    def _read_pressure(self) -> Iterator[Sample | Fault]:
        for resource in ("cpu", "io", "memory"):
            try:
                stalled = sysfs.stalled(self._files.read(f"{self._pressure}/{resource}"))
            except OSError as error:
                # absent if the kernel is built without it; EOPNOTSUPP if it was booted without
                if error.errno not in _ABSENT:
                    yield Fault.of(f"pressure/{resource}", error)
                continue
            except Malformed as error:
                yield Fault.of(f"pressure/{resource}", error)
                continue
            for kind, seconds in stalled.items():
                # for the machine as a whole "full" CPU pressure is undefined and written as 0
                if (resource, kind) != ("cpu", "full"):
                    yield c.HOST_PRESSURE_STALLED_SECONDS_TOTAL(seconds, resource, kind)

    def _read_numa(self) -> Iterator[Sample | Fault]:
        if self._nodes is None:
            self._nodes = tuple(self._list_nodes())
        for node in self._nodes:
            try:
                yield from self._read_node(node, f"{self._nodes_path}/node{node}")
            except (OSError, Malformed) as error:
                yield Fault.of(f"numa/node{node}", error)

    def _list_nodes(self) -> Iterator[str]:
        try:
            names = self._files.names(self._nodes_path)
        except (FileNotFoundError, NotADirectoryError):  # a kernel without NUMA
            return
        for name in names:
            node = name.removeprefix("node")
            if node != name and node.isdecimal():
                yield node

    def _read_node(self, node: str, folder: str) -> Iterator[Sample]:
        memory = sysfs.node_memory(self._files.read(f"{folder}/meminfo"))
        if "MemTotal" in memory:
            yield c.HOST_NUMA_MEMORY_TOTAL_BYTES(memory["MemTotal"], node)
        if "MemFree" in memory:
            yield c.HOST_NUMA_MEMORY_FREE_BYTES(memory["MemFree"], node)
        misses = sysfs.fields(self._files.read(f"{folder}/numastat")).get("numa_miss")
        if misses is not None:
            yield c.HOST_NUMA_MISSES_TOTAL(misses, node)


def _disjoint(times: Mapping[str, float]) -> Mapping[str, float]:
    """Return CPU seconds by mode without overlap: the kernel counts guests as user time too."""
    modes = dict(times)
    for mode, guest in (("user", "guest"), ("nice", "guest_nice")):
        if mode in modes and guest in modes:
            modes[mode] = max(0.0, modes[mode] - modes[guest])
    return modes
