"""Counts the driver's errors, however they are told, each of them once.

An XID comes through two doors: an event of the driver, and a line of the kernel log. Neither is
complete. The driver tells nothing of a GPU that is off the bus or whose system processor hangs
(XIDs 79, 119, 120; DCGM 162), the kernel log may be closed to us. Counting is all that happens
here: reading the log is left to `sources.kmsg`, hearing events to `sources.nvml`, what a code
means to `reference.xids`.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from exporter import catalogue as c
from exporter.formats.xid import FallenLine, Line, SxidLine, XidLine, canonical
from exporter.reference.xids import XidTable
from exporter.samples import Drop, Event, Sample

EVENT = "xid"
"""The kind of event that is counted here."""

WINDOW = 5
"""Seconds that may lie between the two reports of one error, either way."""

LATE = 30
"""Seconds by which an event may be dated after its line. An event is dated when it is noticed, and
the reader of the driver may have hung: the very errors that are told here make drivers hang."""

MAX_DEVICES = 64
MAX_CODES = 32

_SECONDS_KEPT = 64
_LINE_OF_EVENT = tuple(sorted(range(-LATE, WINDOW + 1), key=abs))
_EVENT_OF_LINE = tuple(sorted(range(-WINDOW, LATE + 1), key=abs))


class _Told:
    """What one door told and the other has not confirmed: numbers of events, by whole second.

    Numbers instead of single times: a storm of a thousand lines a second costs one entry.
    """

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds: dict[int, int] = {}

    def add(self, wall: float) -> None:
        """Remember one event; of too many seconds the one that was entered first is forgotten."""
        second = math.floor(wall)
        self._seconds[second] = self._seconds.get(second, 0) + 1
        if len(self._seconds) > _SECONDS_KEPT:
            del self._seconds[next(iter(self._seconds))]

    def take(self, wall: float, where: tuple[int, ...]) -> bool:
        """Take out one event, looking at these distances from `wall`; tell if there was one."""
        if not self._seconds:
            return False
        now = math.floor(wall)
        for away in where:
            number = self._seconds.get(now + away)
            if number is not None:
                if number > 1:
                    self._seconds[now + away] = number - 1
                else:
                    del self._seconds[now + away]
                return True
        return False

    def take_before(self, wall: float) -> list[tuple[int, int]]:
        """Take out all events of seconds before `wall`, as (second, number)."""
        old = [(second, n) for second, n in self._seconds.items() if second < wall]
        for second, _ in old:
            del self._seconds[second]
        return old


@dataclass(slots=True)
class _Code:
    """One code of one device: how often it was seen, by severity, and when last."""

    counts: dict[str, int] = field(default_factory=dict)
    last: float = -math.inf
    kernel: _Told = field(default_factory=_Told)
    driver: _Told = field(default_factory=_Told)

    def count(self, severity: str, wall: float, number: int = 1) -> None:
        self.counts[severity] = self.counts.get(severity, 0) + number
        self.last = max(self.last, wall)


@dataclass(slots=True)
class _Device:
    """One PCI address: the GPU known to be there, "" until it is known, and what befell it."""

    gpu: str = ""
    uuid: str = ""
    known: bool = False
    fallen: int = 0
    codes: dict[int, _Code] = field(default_factory=dict)


class XidLedger:
    """The counts of XIDs by GPU, of SXIDs by NVSwitch, and of GPUs that fell off the bus.

    Used by two threads at once. An error that both doors tell within `WINDOW` seconds, or the
    driver within `LATE` seconds after the log, for the same PCI address and code, counts once. The
    severity of an NVLink 5 error is said by the kernel log only: an event of such a code waits for
    its line for `WINDOW` seconds before it counts.

    Work for a line is constant, and so is what is kept: of at most `max_devices` addresses and
    switches, at most `max_codes` codes each, besides the critical ones. What is beyond is reported
    as a `Drop`, never lumped together under a made-up code.
    """

    def __init__(
        self, table: XidTable, *, max_devices: int = MAX_DEVICES, max_codes: int = MAX_CODES
    ) -> None:
        self._table = table
        self._critical = frozenset(table.critical)
        self._max_devices = max_devices
        self._max_codes = max_codes
        self._lock = threading.Lock()
        self._devices: dict[str, _Device] = {}
        self._switches: dict[str, _Device] = {}
        self._sequence = -1
        self._dropped: Counter[str] = Counter()

    def from_kernel(self, line: Line, wall: float) -> None:
        """Count a line of the kernel log, written at `wall` Unix seconds.

        A line whose sequence number is not greater than the last one's was counted before: the log
        was opened anew and is read from its beginning.
        """
        with self._lock:
            if line.sequence is not None:
                if line.sequence <= self._sequence:
                    return
                self._sequence = line.sequence
            match line:
                case XidLine():
                    self._count_xid(line, wall)
                case SxidLine():
                    self._count_sxid(line, wall)
                case FallenLine():
                    device = self._place(self._devices, line.pci)
                    if device is not None:
                        device.fallen += 1

    def from_driver(self, event: Event) -> None:
        """Count an XID that the driver told; events of another kind are not for us."""
        if event.kind != EVENT:
            return
        pci = canonical(event.about)
        with self._lock:
            if pci is None or not math.isfinite(event.wall):
                self._dropped["malformed"] += 1
                return
            code = self._code(self._devices, pci, event.code)
            if code is None or code.kernel.take(event.wall, _LINE_OF_EVENT):
                return
            code.driver.add(event.wall)
            if event.code not in self._table.spoken:
                code.count(self._table.meaning(event.code).severity, event.wall)

    def samples(
        self, devices: Mapping[str, tuple[str, str]], now: float, *, kernel_log: bool = True
    ) -> list[Sample | Drop]:
        """Return all counts at `now`, in Unix seconds.

        `devices` gives index and UUID of each GPU that is there, by canonical PCI address. One that
        is missing later keeps its series and its names: that is when they are needed. Without the
        `kernel_log` nobody can tell that no GPU fell off the bus, so those counters are absent.
        """
        with self._lock:
            self._meet(devices)
            self._settle(now - WINDOW)
            found: list[Sample | Drop] = [
                *self._xids(),
                *self._sxids(),
                *(self._fallen() if kernel_log else ()),
            ]
            found += [Drop(reason, number) for reason, number in self._dropped.items()]
            self._dropped.clear()
        return found

    # ------------------------------------------------------------ counting

    def _count_xid(self, line: XidLine, wall: float) -> None:
        code = self._code(self._devices, line.pci, line.code)
        if code is None:
            return
        told = code.driver.take(wall, _EVENT_OF_LINE)
        if not told:
            code.kernel.add(wall)
        if not told or line.code in self._table.spoken:
            code.count(self._table.meaning(line.code, line.word).severity, wall)

    def _count_sxid(self, line: SxidLine, wall: float) -> None:
        code = self._code(self._switches, line.device, line.code)
        if code is not None:
            code.count(self._table.switch_severity(line.code, line.word), wall)

    def _code(self, places: dict[str, _Device], name: str, number: int) -> _Code | None:
        """Return where a code of a device is counted; count a drop if there is no room for it."""
        device = self._place(places, name)
        if device is None:
            return None
        code = device.codes.get(number)
        if code is None:
            if len(device.codes) >= self._max_codes and number not in self._critical:
                self._dropped["cap"] += 1
                return None
            code = device.codes[number] = _Code()
        return code

    def _place(self, places: dict[str, _Device], name: str) -> _Device | None:
        device = places.get(name)
        if device is None:
            if len(places) >= self._max_devices:
                self._dropped["cap"] += 1
                return None
            device = places[name] = _Device()
        return device

    def _meet(self, devices: Mapping[str, tuple[str, str]]) -> None:
        for pci, (gpu, uuid) in devices.items():
            device = self._devices.get(pci)
            # another board in the same slot starts anew
            if device is None or (device.uuid and uuid and device.uuid != uuid):
                device = self._devices[pci] = _Device()
            device.gpu, device.uuid, device.known = gpu, uuid or device.uuid, True

    def _settle(self, before: float) -> None:
        """Count events that no line of the kernel log came for: their severity is the table's."""
        for device in self._devices.values():
            for number in self._table.spoken & device.codes.keys():
                code = device.codes[number]
                for second, events in code.driver.take_before(before):
                    code.count(self._table.meaning(number).severity, second, events)

    # ------------------------------------------------------------ telling

    def _xids(self) -> Iterator[Sample]:
        told: set[int] = set()
        for pci, device in self._devices.items():
            if device.known:
                told |= self._critical
            told.update(number for number, code in device.codes.items() if code.counts)
            yield from self._xids_of(pci, device)
        for number in sorted(told):
            name, severity, action = self._table.meaning(number)
            yield c.GPU_XID_INFO(1, str(number), name, severity, action)

    def _xids_of(self, pci: str, device: _Device) -> Iterator[Sample]:
        labels = (device.gpu, device.uuid, pci)
        if device.known:
            for number in self._table.critical:
                severity = self._table.meaning(number).severity
                code = device.codes.get(number)
                if code is None or severity not in code.counts:
                    yield c.GPU_XID_ERRORS_TOTAL(0, *labels, str(number), severity)
        for number, code in device.codes.items():
            for severity, times in code.counts.items():
                yield c.GPU_XID_ERRORS_TOTAL(times, *labels, str(number), severity)
            if code.counts:
                yield c.GPU_XID_LAST_TIMESTAMP_SECONDS(code.last, *labels, str(number))

    def _sxids(self) -> Iterator[Sample]:
        for name, switch in self._switches.items():
            for number, code in switch.codes.items():
                labels = (name, str(number))
                for severity, times in code.counts.items():
                    yield c.GPU_NVSWITCH_SXID_ERRORS_TOTAL(times, *labels, severity)
                yield c.GPU_NVSWITCH_SXID_LAST_TIMESTAMP_SECONDS(code.last, *labels)

    def _fallen(self) -> Iterator[Sample]:
        for pci, device in self._devices.items():
            if device.known or device.fallen:
                yield c.GPU_FALLEN_OFF_BUS_TOTAL(device.fallen, device.gpu, device.uuid, pci)
