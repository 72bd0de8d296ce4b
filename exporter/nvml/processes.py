"""Which processes use a GPU, how much memory they hold and what share of its time they had.

What the driver says of processes is taken with care: PIDs and shares have been garbage
(nvtop 110, nvitop 75, go-nvml 21 and 82), and PIDs are those of the host, which a container without
the host's process namespace cannot look up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from exporter import catalogue as c
from exporter.nvml.device import Identity
from exporter.nvml.driver import (
    GONE,
    NO_PERMISSION,
    OVER,
    UNSUPPORTED,
    Driver,
    Handle,
    NvmlError,
    ProcessSample,
)
from exporter.nvml.readings import BYTES
from exporter.samples import Fault, Sample

_LARGEST_PID = 1 << 22
_MOST = 32
_AHEAD = 10_000_000
"""Microseconds by which a sample may be ahead of our clock before that was set back."""


class Processes:
    """The processes of one GPU.

    `command` returns a process's name, `None` if it is not there; `wall` Unix seconds.
    """

    def __init__(
        self,
        driver: Driver,
        handle: Handle,
        identity: Identity,
        command: Callable[[int], str | None],
        wall: Callable[[], float],
    ) -> None:
        self._driver = driver
        self._handle = handle
        self._labels = identity.labels
        self._command = command
        self._wall = wall
        self._lists = True
        self._shares = True
        self._seen = 0
        self.faults: list[Fault] = []

    def read(self) -> Iterator[Sample]:
        """Yield how many processes there are, and the memory and share of those that hold most.

        What went wrong is in `faults` afterwards.
        """
        self.faults = []
        if not self._lists:
            return
        try:
            listed = self._driver.processes(self._handle)
        except NvmlError as error:
            self._lists = not _is_final(error)
            if self._lists:
                self.faults.append(Fault(f"gpu{self._labels[0]}", error.reason, str(error)))
            return
        known = self._believable(listed)
        yield c.GPU_PROCESSES(len({process.pid for process, _ in known}), *self._labels)
        known.sort(key=lambda pair: -(pair[0].memory or 0))
        names: dict[int, str] = {}
        for process, command in known[:_MOST]:
            names[process.pid] = command
            if process.memory is not None and process.memory <= BYTES.most:
                mig = "" if process.gi is None else str(process.gi)
                yield c.GPU_PROCESS_MEMORY_BYTES(
                    process.memory, *self._labels, mig, str(process.pid), command
                )
        yield from self._shares_of(names)

    def _believable(self, listed: Sequence[ProcessSample]) -> list[tuple[ProcessSample, str]]:
        """Return the processes with their names.

        If none of them can be seen from here, we are in another process namespace and believe the
        driver; if some can, the others are dead or never were.
        """
        found = [
            (process, self._command(process.pid))
            for process in listed
            if 0 < process.pid <= _LARGEST_PID
        ]
        some = any(command is not None for _, command in found)
        return [(process, command or "") for process, command in found if command or not some]

    def _shares_of(self, names: dict[int, str]) -> Iterator[Sample]:
        """Yield each process's newest share. The driver's buffer repeats and lies: only processes
        that are listed, newer than what was seen, at most all of the GPU."""
        if not self._shares:
            return
        # Samples bear the time of day: one that was set back puts what we have seen in the future.
        now = int(self._wall() * 1e6)
        self._seen = min(self._seen, now) if self._seen < now + _AHEAD else now - _AHEAD
        try:
            rows = self._driver.process_shares(self._handle, self._seen)
        except NvmlError as error:
            self._shares = not _is_final(error)
            return
        newest: dict[int, tuple[int, int]] = {}
        for pid, stamp, share in rows:
            if (
                pid in names
                and stamp > max(self._seen, newest.get(pid, (0, 0))[0])
                and share <= 100
            ):
                newest[pid] = (stamp, share)
        self._seen = max([self._seen, *(stamp for stamp, _ in newest.values())])
        for pid, (_, share) in sorted(newest.items()):
            yield c.GPU_PROCESS_SM_RATIO(share / 100, *self._labels, str(pid), names[pid])


def _is_final(error: NvmlError) -> bool:
    if error.code in GONE | OVER:
        raise error
    return error.code in UNSUPPORTED | {NO_PERMISSION}
