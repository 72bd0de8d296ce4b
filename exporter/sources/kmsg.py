"""The kernel log as `/dev/kmsg` gives it: XIDs, SXIDs, and GPUs that fell off the bus.

Reads what was written since the last time, the first time from the oldest record that the kernel
still has: errors since boot count too. Which lines mean something is left to `formats.xid`, the
counting to the ledger, which also hears the driver's own events; so its samples are yielded even
where the log may not be read.

When a record was written. Its own clock counts from boot, is never corrected, and stands still in
suspend: after weeks it is off by seconds to minutes, and the boot time that `/proc/stat` tells
does not know of it. But a record was not written after it was read, nor before the moment at which
the log had last been read to its end. So the boot time is the first guess, and each record
corrects it into these bounds: new records are right to within the interval between two reads, old
ones as right as the boot time is.
"""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from exporter import catalogue as c
from exporter.clock import Clock
from exporter.files import Files
from exporter.formats import sysfs, xid
from exporter.samples import Drop, Fault, Malformed, Sample

DEVICE = "dev/kmsg"

_NUMBER = os.makedev(1, 11)  # of /dev/kmsg (kernel documentation, admin-guide/devices.txt)
_RETRY = 60.0
"""Seconds until a log that was refused is tried again: what is closed to us is so for long."""
_LARGEST = 8192  # a record with everything around it; a smaller buffer can fail with EINVAL


class Ledger(Protocol):
    """Who counts what is read here."""

    def from_kernel(self, line: xid.Line, wall: float) -> None:
        """Count a line of the kernel log, written at `wall` Unix seconds."""

    def samples(
        self, devices: Mapping[str, tuple[str, str]], now: float, *, kernel_log: bool
    ) -> Iterable[Sample | Drop]:
        """Return all counts at `now`, in Unix seconds."""


class KernelLogSource:
    """Errors of GPUs and NVSwitches, from the kernel log and whatever else the ledger was told.

    `ledger` counts; `devices` returns index and UUID of each GPU by its canonical PCI address.
    `root` is where the machine's files hang, `device` the log below it, for which a regular file
    or a FIFO of lines may stand. At most about `limit` records are handled in one read, the rest
    in the next: a storm cannot hold the thread. `pull` is the system call.

    Records that user space wrote count nothing: whoever may write to the device could make up
    errors. In a file, lines without a priority are taken for the kernel's.

    Raises nothing, for the ledger's counts go on. A log that cannot be opened or read (in a
    container without the device; without CAP_SYSLOG where `kernel.dmesg_restrict` is set) is a
    `Fault` of each read, and tried again once a minute.
    Drops: `overwritten` (the kernel threw records away before we read them, once for each gap),
    `malformed` (a record that is longer than any should be), and those of the ledger.

        gpu_xid_errors_total{gpu="0",uuid="GPU-5f…",pci_bus_id="00000000:18:00.0",xid="79",
          severity="critical"} 1
        gpu_xid_errors_total{gpu="0",uuid="GPU-5f…",pci_bus_id="00000000:18:00.0",xid="48",
          severity="critical"} 0
        gpu_xid_last_timestamp_seconds{gpu="0",uuid="GPU-5f…",pci_bus_id="00000000:18:00.0",
          xid="79"} 1764412345.5
        gpu_xid_info{xid="79",name="GPU no longer reachable on PCIe",severity="critical",
          action="reboot_node"} 1
        gpu_fallen_off_bus_total{gpu="0",uuid="GPU-5f…",pci_bus_id="00000000:18:00.0"} 1
        gpu_nvswitch_sxid_errors_total{device="nvidia-nvswitch3",sxid="12028",severity="info"} 4
        gpu_nvswitch_sxid_last_timestamp_seconds{device="nvidia-nvswitch3",sxid="12028"} 1764412345
    """

    name = "kmsg"
    group = c.XID

    def __init__(
        self,
        ledger: Ledger,
        devices: Callable[[], Mapping[str, tuple[str, str]]],
        clock: Clock,
        root: Path = Path("/"),
        *,
        device: str = DEVICE,
        limit: int = 5000,
        pull: Callable[[int, int], bytes] = os.read,
    ) -> None:
        self._ledger = ledger
        self._devices = devices
        self._clock = clock
        self._path = str(root / device)
        self._stat = str(root / "proc/stat")
        self._limit = limit
        self._pull = pull
        self._fd: int | None = None
        self._refused: Fault | None = None
        self._retry_at = -math.inf
        self._was_open = False
        self._joiner = xid.Joiner()
        self._tail = b""
        self._skipping = False
        self._drops: dict[str, int] = {}
        self._boot: float | None = None
        self._drained = -math.inf

    def read(self) -> Iterator[Sample | Fault | Drop]:
        """Read on in the log, then yield all counts; see the class for what is yielded besides."""
        fault = self._follow()
        if fault is not None:
            yield fault
        yield from [Drop(reason, number) for reason, number in self._drops.items()]
        self._drops.clear()
        now = self._clock.time()
        yield from self._ledger.samples(self._devices(), now, kernel_log=self._was_open)

    def close(self) -> None:
        """Give the log back. A later read opens it anew and counts nothing twice."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None
        self._tail, self._skipping = b"", False
        self._joiner.forget()

    # ------------------------------------------------------------ reading

    def _follow(self) -> Fault | None:
        """Read records until there are no more, or as many as are handled at once."""
        if self._clock.monotonic() < self._retry_at:
            return self._refused
        try:
            fd = self._open() if self._fd is None else self._fd
            left = self._limit
            while left > 0:
                chunk = self._next(fd)
                if chunk is None:
                    left -= 1
                elif chunk:
                    left -= self._take(chunk)
                else:
                    self._drained = self._clock.time()
                    break
        except OSError as error:
            self.close()
            self._refused = Fault.of(self._path, error)
            self._retry_at = self._clock.monotonic() + _RETRY
            return self._refused
        return None

    def _next(self, fd: int) -> bytes | None:
        """Return the next record, or lines of a file; b"" at the end, `None` if one is lost."""
        try:
            return self._pull(fd, _LARGEST)
        except BlockingIOError:
            return b""
        except OSError as error:
            # either way the kernel has gone on to the next record that it has
            if error.errno == errno.EPIPE:
                self._drop("overwritten")
                self._joiner.forget()
            elif error.errno == errno.EINVAL:
                self._drop("malformed")
            else:
                raise
            return None

    def _take(self, chunk: bytes) -> int:
        """Handle the lines of a chunk; return how many. A line's rest may come with the next."""
        now = self._clock.time()
        *lines, self._tail = (self._tail + chunk).split(b"\n")
        if self._skipping and lines:
            del lines[0]
            self._skipping = False
        if len(self._tail) > _LARGEST:
            if not self._skipping:
                self._drop("malformed")
            self._tail, self._skipping = b"", True
        for line in lines:
            # the kernel's lines about the device, after the text, begin with a space: not ours
            if xid.relevant(line):
                self._heed(xid.entry(line), now)
        return max(1, len(lines))

    def _heed(self, record: xid.Entry, now: float) -> None:
        line = self._joiner.read(record)
        if line is not None:
            self._ledger.from_kernel(line, self._written(record.microseconds, now))

    def _drop(self, reason: str) -> None:
        self._drops[reason] = self._drops.get(reason, 0) + 1

    # ------------------------------------------------------------ time and opening

    def _written(self, microseconds: int | None, now: float) -> float:
        """Return when a record was written; the module says how that is known."""
        if microseconds is None:
            return now
        since_boot = microseconds / 1e6
        guess = now if self._boot is None else self._boot + since_boot
        wall = min(max(guess, self._drained), now)
        self._boot = wall - since_boot
        return wall

    def _open(self) -> int:
        """Open the log at its oldest record; raise `OSError` as the kernel does."""
        fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        about = os.fstat(fd)
        if stat.S_ISCHR(about.st_mode) and about.st_rdev != _NUMBER:
            # containers put /dev/null or a console there
            os.close(fd)
            raise FileNotFoundError(errno.ENODEV, "another device than the kernel log", self._path)
        self._fd, self._was_open = fd, True
        self._drained = -math.inf
        if self._boot is None:
            self._boot = self._boot_time()
        return fd

    def _boot_time(self) -> float | None:
        """Return the boot time in Unix seconds, where the kernel tells it."""
        files = Files()
        try:
            return sysfs.fields(files.glance(self._stat)).get("btime")
        except (OSError, Malformed):
            return None
        finally:
            files.close()
