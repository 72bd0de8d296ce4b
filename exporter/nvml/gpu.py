"""A GPU as the source sees it: everything that one job reads, put together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from exporter import catalogue as c
from exporter.nvml import readings as r
from exporter.nvml.device import Identity, Page, Reader
from exporter.nvml.driver import GONE, OVER, UNSUPPORTED, Driver, Handle, NvmlError
from exporter.nvml.gpm import Target
from exporter.nvml.links import ChipToChip, Links, Pcie
from exporter.nvml.mig import Instances
from exporter.nvml.processes import Processes
from exporter.nvml.totals import Totals
from exporter.samples import Fault, Metric, Sample

log = logging.getLogger(__name__)

T = TypeVar("T")

_LONGEST_SAMPLE = 1_000_000
"""Microseconds. The driver samples utilization each sixth of a second, some each second; what lies
further back than one sample was never seen."""
_LONGEST_GAP = 10.0


class Options(NamedTuple):
    """What to read beside the usual: `detail` rows, series of `links`, the list of `processes`."""

    detail: bool = False
    links: bool = False
    processes: bool = True


class House(NamedTuple):
    """What all GPUs share: the driver, the counters that we make, time, and names of processes.

    `now` is monotonic seconds, `wall` Unix seconds.
    """

    driver: Driver
    totals: Totals
    now: Callable[[], float]
    wall: Callable[[], float]
    command: Callable[[int], str | None]


class Reading(NamedTuple):
    """What one read of a GPU brought. `targets` are what GPM should measure now."""

    samples: list[Sample]
    faults: list[Fault]
    targets: tuple[Target, ...]
    utilization: float | None


class Gpu:
    """One GPU between two initialisations. Raises `NvmlError` when it is lost.

    Read by one thread at a time; `events` returns at most so many XIDs that have come, and may be
    called beside it.
    """

    def __init__(self, house: House, handle: Handle, identity: Identity, options: Options) -> None:
        driver = house.driver
        self.identity = identity
        self._handle = handle
        self._options = options
        page = self._page = Page(identity.labels)
        self._gpm = driver.gpm_supported(handle)
        self._pcie = Pcie(driver, handle, page, gpm=self._gpm)
        self._links = Links(driver, handle, page, each=options.links)
        self._c2c = ChipToChip(driver, handle, page)
        wants = [*self._pcie.wants(), *self._links.wants(), *self._c2c.wants()]
        self._bytes_counted = self._counted()
        self._reader = Reader(driver, handle, identity, page, detail=options.detail, more=wants)
        self.refused = self._reader.refused
        self._instances = _optional(lambda: Instances(driver, handle, identity))
        self._processes = Processes(driver, handle, identity, house.command, house.wall)
        self._fabric = Fabric(driver, handle, page)
        self._fans = _fans(driver, handle)
        self._busy = Busy(house, handle, identity)
        self.events = self._watched(driver)
        self._mode: bool | None = None
        self.outdated = False
        self._slow: list[Sample] = []
        self._ticks = int(identity.gpu)  # not all GPUs do their slow readings at the same read
        self._first = True

    def read(self) -> Reading:
        """Read what is due."""
        slow = self._first or self._ticks % r.SLOW == 0
        self._first = False
        self._ticks += 1
        faults = self._reader.read((r.FAST, r.SLOW) if slow else (r.FAST,))
        instances = self._instances
        if slow:
            faults += self._read_slow()
        elif instances is not None and instances.changed():
            faults += instances.look()
        faults += self._processes.faults
        utilization = self._page.get(c.GPU_UTILIZATION_RATIO)
        samples = [
            *self._page.samples(),
            *self._busy.read(utilization),
            *(instances.read() if instances is not None else ()),
            *self._slow,
        ]
        return Reading(samples, faults, self._targets(), utilization)

    def _watched(self, driver: Driver) -> Callable[[int], Sequence[int]]:
        """Return a call for the XIDs that come; a GPU that tells none is no failure."""
        try:
            return driver.watch_xids(self._handle)
        except NvmlError as error:
            if error.code in GONE | OVER:
                raise
            log.warning("gpu %s: no XID events: %s", self.identity.gpu, error)
            return lambda _: ()

    def _read_slow(self) -> list[Fault]:
        self._pcie.read()
        self._links.read()
        self._c2c.finish()
        self._fabric.read()
        for fan, call in self._fans:
            self._page.set(c.GPU_FAN_SPEED_RATIO, (fan,), _optional(call), r.FAN_PERCENT)
        faults = self._look_at_instances()
        self._slow = list(self._processes.read()) if self._options.processes else []
        return faults

    def _look_at_instances(self) -> list[Fault]:
        """Look which instances there are. When the GPU begins or ends being split, what it supports
        changes (utilization, row remapping, processes): it has to be set up anew.
        """
        if self._instances is None:
            return []
        faults = self._instances.look()
        mode = self._instances.enabled
        self.outdated = self._mode is not None and mode is not None and mode != self._mode
        self._mode = self._mode if mode is None else mode
        return faults

    def _counted(self) -> frozenset[Metric]:
        """Return the bytes that the hardware counts, which GPM need not measure."""
        counted: set[Metric] = set()
        if self._pcie.counts_bytes:
            counted |= {c.GPU_PCIE_RECEIVE_BYTES_TOTAL, c.GPU_PCIE_TRANSMIT_BYTES_TOTAL}
        if self._links.counts_bytes or not self._links.count:
            counted |= {c.GPU_NVLINK_RECEIVE_BYTES_TOTAL, c.GPU_NVLINK_TRANSMIT_BYTES_TOTAL}
        return frozenset(counted)

    def _targets(self) -> tuple[Target, ...]:
        if not self._gpm:
            return ()
        labels, handle = self.identity.labels, self._handle
        whole = Target((*labels, self._mode), handle, labels, None, self._bytes_counted)
        layout = () if self._instances is None else self._instances.layout
        # The key holds the whole layout: an instance's number may be given to another one.
        return (
            whole,
            *(
                Target((labels, layout, number), handle, (*labels, str(number)), number)
                for number in ({d.instance: None for d in layout})
            ),
        )


class Fabric:
    """Registration of the GPU with the NVLink fabric (NVSwitch systems from Hopper on)."""

    _HEALTH = (0, 2, 4, 6)
    """Where in the health mask the faults stand: two bits each, 1 means that there is the fault."""
    _CONFIGURATION = 8
    """Four bits: 0 not told, 1 correct, else what is wrong with the configuration."""

    def __init__(self, driver: Driver, handle: Handle, page: Page) -> None:
        self._page = page
        self._call: Callable[[], tuple[int, ...]] | None = None
        # The structure of a newer version than the driver's has crashed a daemon (gpud 1183): the
        # versioned function refuses what it does not know, and only it is asked for those.
        for function, answer in r.FABRIC:
            try:
                call = driver.bind(function, answer, handle)
                call()
            except NvmlError as error:
                if error.code in GONE | OVER:
                    raise
                continue
            self._call = call
            return

    def read(self) -> None:
        """Put state and health on the page, where there is a fabric."""
        told = None if self._call is None else _optional(self._call)
        state = None if told is None else told[0]
        self._page.set(c.GPU_FABRIC_STATE, (), state or None, r.FABRIC_STATE)
        healthy = None
        if told is not None and state:
            mask = told[2] if len(told) > 2 else 0
            fault = any((mask >> shift) & 3 == 1 for shift in self._HEALTH)
            fault = fault or (mask >> self._CONFIGURATION) & 0xF > 1
            fault = fault or (len(told) > 3 and told[3] > 1)
            # Before registration has ended there is nothing to be healthy or not.
            healthy = int(told[1] == 0 and not fault) if state == 3 else None
        self._page.set(c.GPU_FABRIC_HEALTHY, (), healthy, r.FLAG)


class Busy:
    """The integral of utilization, from the driver's own samples where it shares them."""

    def __init__(self, house: House, handle: Handle, identity: Identity) -> None:
        self._labels = identity.labels
        self._driver = house.driver
        self._handle = handle
        self._totals = house.totals
        self._now = house.now
        self._uuid = identity.uuid
        self._seen = house.totals.marks.get(identity.uuid, 0)
        self._moved = house.now()
        self._last: float | None = None
        self._samples = "nvmlDeviceGetSamples" not in r.LIARS.get(identity.name, frozenset())
        if self._samples and not self._seen:
            self._begin()

    def _begin(self) -> None:
        """Find the newest sample there is: only what comes after it is ours to count."""
        try:
            rows = self._driver.utilization_samples(self._handle, 0)
        except NvmlError as error:
            if error.code in GONE | OVER:
                raise
            self._samples = False
            return
        self._seen = max((stamp for stamp, _ in rows), default=0)

    def read(self, utilization: float | None) -> Iterator[Sample]:
        """Add what has passed since the last read; yield the sum."""
        seconds = self._from_samples()
        if seconds is None:
            seconds = self._from_ratio(utilization)
        if seconds is not None:
            total = self._totals.add(c.GPU_BUSY_SECONDS_TOTAL, self._labels, seconds)
            yield Sample(c.GPU_BUSY_SECONDS_TOTAL, self._labels, total)

    def _from_samples(self) -> float | None:
        if not self._samples:
            return None
        try:
            rows = self._driver.utilization_samples(self._handle, self._seen)
        except NvmlError as error:
            if error.code in GONE | OVER:
                raise
            self._samples = error.code not in UNSUPPORTED
            return None
        microseconds = 0.0
        for stamp, percent in sorted(rows):
            if stamp > self._seen and percent <= 100:
                if self._seen:
                    microseconds += min(stamp - self._seen, _LONGEST_SAMPLE) * percent / 100
                self._seen = stamp
        self._look_back(bool(rows))
        self._totals.marks[self._uuid] = self._seen
        return microseconds / 1e6

    def _look_back(self, moved: bool) -> None:  # noqa: FBT001
        """Begin anew if nothing has come for long: samples bear the time of day, which may be set
        back, and what we have seen then lies in the future."""
        now = self._now()
        if not moved and now - self._moved > _LONGEST_GAP:
            self._begin()
            moved = True
        if moved:
            self._moved = now

    def _from_ratio(self, utilization: float | None) -> float | None:
        """Without samples: the ratio holds since the last read, unless that is long ago."""
        now, last = self._now(), self._last
        self._last = now if utilization is not None else None
        if utilization is None:
            return None
        if last is None or now - last > _LONGEST_GAP:
            return 0.0
        return utilization * (now - last)


def _fans(driver: Driver, handle: Handle) -> list[tuple[str, Callable[[], float]]]:
    """Return a call for each fan; boards cooled by the server's fans have none."""
    found: list[tuple[str, Callable[[], float]]] = []
    ask = _optional(partial(driver.bind, "nvmlDeviceGetNumFans", "u32", handle))
    count = None if ask is None else _optional(ask)
    for fan in range(min(count, 16) if count is not None else 0):
        call = _optional(partial(driver.bind, "nvmlDeviceGetFanSpeed_v2", "u32", handle, fan))
        if call is not None and _optional(call) is not None:
            found.append((str(fan), call))
    if not found and count is None:
        call = _optional(partial(driver.bind, "nvmlDeviceGetFanSpeed", "u32", handle))
        if call is not None and _optional(call) is not None:
            found.append(("0", call))
    return found


def _optional(make: Callable[[], T]) -> T | None:
    """Return what `make` makes, or `None` if this driver cannot."""
    try:
        return make()
    except NvmlError as error:
        if error.code in GONE | OVER:
            raise
        return None
