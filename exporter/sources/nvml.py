"""The NVML source: every GPU of the node, read in a child process, each as a job that may hang.

It keeps the list of GPUs, starts and restarts the library, says which GPU hangs or is lost, and
puts together what the jobs bring. What is read of a GPU is left to `exporter.nvml`, threads and
deadlines to `exporter.workers`, the life of the process to `exporter.isolate`.

    gpu_up{gpu="0",uuid="GPU-7b1c..."} 1
    gpu_utilization_ratio{gpu="0",uuid="GPU-7b1c..."} 0.97
    gpu_power_watts{gpu="0",kind="average",uuid="GPU-7b1c..."} 627.32
    gpu_sm_active_seconds_total{gpu="0",uuid="GPU-7b1c..."} 5312.4
"""

from __future__ import annotations

import functools
import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from exporter import catalogue as c
from exporter.clock import Clock, SystemClock
from exporter.nvml.device import Identity, identify
from exporter.nvml.driver import (
    GONE,
    LIB_RM_VERSION_MISMATCH,
    LIBRARY_NOT_FOUND,
    OVER,
    RESET_REQUIRED,
    UNSUPPORTED,
    Driver,
    Nvml,
    NvmlError,
    Text,
)
from exporter.nvml.gpm import Gpm, Target
from exporter.nvml.gpu import Gpu, House, Options, Reading
from exporter.nvml.inventory import gpus_on_bus
from exporter.nvml.totals import Totals
from exporter.samples import Event, Fault, Item, Sample, Spent
from exporter.workers import Crew, Stuck, Unbegun

log = logging.getLogger(__name__)

_RETRY = 30.0
"""Seconds between attempts to reach a lost GPU again."""
_LOOK = 60.0
_WINDOWS = 3
_MOST_EVENTS, _MOST_PENDING = 25, 1000
"""Of one GPU at once, and of all until a read succeeds; the driver keeps the others."""
_LIBRARY = "library"
"""The job for calls that concern no GPU; the GPUs' jobs are named by index."""

_TOTALS = {
    metric.name: metric
    for metric in (
        c.GPU_BUSY_SECONDS_TOTAL, c.GPU_SM_ACTIVE_SECONDS_TOTAL,
        c.GPU_TENSOR_ACTIVE_SECONDS_TOTAL, c.GPU_DRAM_ACTIVE_SECONDS_TOTAL,
        c.GPU_MIG_SM_ACTIVE_SECONDS_TOTAL, c.GPU_MIG_TENSOR_ACTIVE_SECONDS_TOTAL,
        c.GPU_MIG_DRAM_ACTIVE_SECONDS_TOTAL, c.GPU_PCIE_RECEIVE_BYTES_TOTAL,
        c.GPU_PCIE_TRANSMIT_BYTES_TOTAL, c.GPU_NVLINK_RECEIVE_BYTES_TOTAL,
        c.GPU_NVLINK_TRANSMIT_BYTES_TOTAL, c.GPU_LOSSES_TOTAL, c.FLOPWATCH_DRIVER_SECONDS_TOTAL,
    )
}  # fmt: skip


@dataclass(slots=True)
class _Known:
    """A GPU that has been seen. `unit` reads it; `None` while it is not set up."""

    identity: Identity
    handle: Any = None
    unit: Gpu | None = None
    lost: bool = False
    retry_at: float = 0.0
    fault: Fault | None = None
    disagreements: int = 0
    targets: tuple[Target, ...] = ()


class _Unmet(NamedTuple):
    """A GPU that has not told who it is: when to ask (again), and what it said the last time."""

    retry_at: float
    fault: Fault | None


class _Met(NamedTuple):
    """A GPU that has told who it is, set up and read."""

    identity: Identity
    handle: Any
    unit: Gpu
    reading: Reading


class _Progress:
    """How far a round of GPM has come: at which GPU it is, and what it has found until then."""

    def __init__(self) -> None:
        self.at = ""
        self.given_up = False
        self.samples: dict[str, list[Sample]] = {}
        self.faults: list[Fault] = []


class NvmlSource:
    """All GPUs of this node.

    `budget` is seconds for one read; what is not back by then is reported as stuck. `expected` is
    how many GPUs there should be, 0 for as many as have been seen. `detail`, `links`, `processes`:
    see `Options`. `root` is where the machine's files are, `memory` what a former process of this
    source remembered.

    A read raises what keeps the whole library from working: it is not installed (`unavailable`),
    does not come back (`timeout`), or belongs to another driver than the loaded one, for which
    this process must end (`Spent`).
    """

    name = "nvml"
    group = c.GPU

    def __init__(
        self,
        *,
        budget: float = 1.5,
        expected: int = 0,
        detail: bool = False,
        links: bool = False,
        processes: bool = True,
        root: str = "/",
        memory: object = None,
        driver: Driver | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock: Clock = clock or SystemClock()
        self._driver: Driver = driver or Nvml(self._clock)
        self._budget = budget
        self._expected = expected
        self._options = Options(detail, links, processes)
        self._root = Path(root)
        self._crew = Crew(self._clock)
        self._totals = Totals()
        self._house = House(
            self._driver, self._totals, self._clock.monotonic, self._clock.time, self._command
        )
        self._gpm = Gpm(self._driver, self._totals, self._clock, detail=detail)
        self._known: dict[str, _Known] = {}
        self._session: _Session | None = None
        self._look_at = 0.0
        self._on_bus = 0
        self._refusals: list[tuple[tuple[str, ...], str]] = []
        self._pending: deque[Event] = deque()
        self._over = False
        self._unasked: set[str] = set()
        self._measuring: dict[str, str] = {}
        self._spent_before = 0.0
        self._remember(memory)

    def read(self) -> Iterable[Item]:
        """Read all GPUs once."""
        until = self._clock.monotonic() + self._budget
        items: list[Item] = []
        session = self._ready(until, items)
        items += session.samples()
        readings = self._read_gpus(session, until, items)
        measured = self._read_counters(until, readings, items)
        for uuid, known in self._known.items():
            reading = readings.get(uuid)
            labels = known.identity.labels
            if reading is not None or uuid not in self._unasked:
                items.append(c.GPU_UP(int(reading is not None), *labels))
            items += self._totals.sample(c.GPU_LOSSES_TOTAL, labels)
            if reading is not None:
                items.append(c.GPU_INFO(1, *known.identity.info()))
                items += reading.samples
                items += reading.faults
                items += measured.get(uuid, ())
                items += self._doubts(known, reading, measured.get(uuid, ()))
        expected = self._expected or max(self._on_bus, len(self._known), session.listed)
        items.append(c.GPU_DEVICES_PRESENT(len(readings)))
        items.append(c.GPU_DEVICES_EXPECTED(expected))
        items.append(c.FLOPWATCH_DRIVER_SECONDS_TOTAL(self._driver_seconds(), self.name))
        # Only now: events that came with a read that fails are told with the next one.
        while self._pending:
            items.append(self._pending.popleft())
        return items

    def close(self) -> None:
        """Give all handles back, unless a call still hangs in the driver: then only we can go."""
        if self._session is not None and not self._anyone_stuck():
            self._crew.run({_LIBRARY: self._stop}, self._budget)
        self._crew.dismiss()

    def memory(self) -> object:
        """Return what a successor should know: our counters, and the GPUs that have been seen."""
        return {
            "totals": self._totals.export(),
            "marks": self._totals.marks.copy(),
            "gpus": [
                [k.identity.gpu, k.identity.uuid, k.identity.pci_bus_id, k.lost]
                for k in self._known.values()
            ],
            "driver_seconds": self._driver_seconds(),
        }

    def _remember(self, memory: object) -> None:
        if not isinstance(memory, dict):
            return
        self._totals.load(memory.get("totals"), _TOTALS)
        marks = memory.get("marks")
        for uuid, mark in marks.items() if isinstance(marks, dict) else ():
            if isinstance(mark, int):
                self._totals.marks[uuid] = mark
        for row in memory.get("gpus") or ():
            match row:
                case [str(gpu), str(uuid), str(pci), bool(lost)]:
                    self._known[uuid] = _Known(Identity(gpu, uuid, pci_bus_id=pci), lost=lost)
        if isinstance(seconds := memory.get("driver_seconds"), float):
            self._spent_before = seconds

    def _driver_seconds(self) -> float:
        return self._spent_before + self._driver.seconds

    # ------------------------------------------------------------ the library as a whole

    def _ready(self, until: float, items: list[Item]) -> _Session:
        """Return the library, started (anew) if need be; what it has to tell goes to `items`."""
        now = self._clock.monotonic()
        session = self._session
        if session is not None:
            jobs: dict[str, Callable[[], Any]] = {_LIBRARY: lambda: self._check(session)}
            results = self._crew.run(jobs | self._event_jobs(), (until - now) * 0.4)
            items += self._take_events(results)
            match results[_LIBRARY]:
                case Stuck() | Unbegun() as late:
                    # The GPUs have jobs of their own and need not wait for this.
                    items.append(Fault.of("library", late))
                    return session
                case NvmlError() as error if error.code in OVER and not self._anyone_stuck():
                    pass
                case BaseException() as error:
                    raise _told(error)
                case (faults, changed):
                    items += faults
                    if not self._is_outdated(session, changed, now):
                        return session
        begun = self._crew.run({_LIBRARY: self._restart}, (until - now) * 0.5)[_LIBRARY]
        if isinstance(begun, BaseException):
            raise _told(begun)
        return begun

    def _check(self, session: _Session) -> tuple[list[Fault], bool]:
        """Return whether the number of GPUs has changed, and what went wrong with asking."""
        now = self._clock.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK
            self._on_bus = gpus_on_bus(self._root)
        faults: list[Fault] = []
        changed = False
        try:
            changed = session.count() != session.listed
        except NvmlError as error:
            faults.append(_of_library(error))
        return faults, changed

    def _is_outdated(self, session: _Session, changed: bool, now: float) -> bool:  # noqa: FBT001
        """Tell whether to start anew: the list of GPUs has changed, or none of them is left.

        One lost GPU is no reason: starting anew may hang on it and cost all others.
        """
        if self._anyone_stuck():
            return False
        nobody = all(known.lost for known in self._known.values())
        return (
            self._over
            or changed
            or (nobody and session.listed > 0 and now >= session.begun + _RETRY)
        )

    def _restart(self) -> _Session:
        if self._session is not None:
            self._stop()
        self._over = False
        self._on_bus = gpus_on_bus(self._root)
        self._driver.start()
        try:
            session = _Session(self._driver, self._clock.monotonic())
        except NvmlError:
            self._driver.stop()
            raise
        self._session = session
        return session

    def _stop(self) -> None:
        """Give everything back: samples of counters first, then events and library."""
        for known in self._known.values():
            known.handle = known.unit = None
        self._session = None
        self._gpm.forget(frozenset())
        try:
            self._driver.stop()
        except NvmlError as error:
            if error.code not in OVER:
                raise

    def _event_jobs(self) -> dict[str, Callable[[], Sequence[int]]]:
        """Return a job for the XIDs of each GPU: waiting may hang, or fail with the GPU."""
        if len(self._pending) > _MOST_PENDING:
            return {}
        return {
            f"gpu{known.identity.gpu}/events": functools.partial(known.unit.events, _MOST_EVENTS)
            for known in self._known.values()
            if known.unit is not None and not known.lost
        }

    def _take_events(self, results: Mapping[str, Any]) -> list[Fault]:
        """Keep the events that have come until they can be told; return what went wrong."""
        faults = []
        for known in self._known.values():
            part = f"gpu{known.identity.gpu}/events"
            result = results.get(part, ())
            if isinstance(result, NvmlError | Stuck | Unbegun):
                if not (isinstance(result, NvmlError) and result.code in OVER):
                    faults.append(Fault.of(part, result))
            elif isinstance(result, BaseException):
                raise result
            else:
                now = self._clock.time()
                pci = known.identity.pci_bus_id
                self._pending += [Event("xid", pci, code, now) for code in result]
        return faults

    # ------------------------------------------------------------ the GPUs

    def _read_gpus(self, session: _Session, until: float, items: list[Item]) -> dict[str, Reading]:
        """Read each GPU as a job of its own, those that are met for the first time as well."""
        now = self._clock.monotonic()
        self._unasked = set()
        # Some were met too late for their round: what they said then is old, who they are is not.
        for late in tuple(session.met.values()):
            self._register(session, late)
        by_index = {
            known.identity.gpu: known for known in self._known.values() if known.handle is not None
        }
        jobs: dict[str, Callable[[], Reading | _Met]] = {}
        for index, unmet in session.unmet.items():
            if now >= unmet.retry_at and index not in session.met:
                jobs[str(index)] = functools.partial(self._meet, index, session)
        for gpu, known in by_index.items():
            if now >= known.retry_at:
                jobs[gpu] = functools.partial(self._read_known, known)
        readings: dict[str, Reading] = {}
        results = self._crew.run(jobs, (until - now) * 0.7)
        for gpu in jobs:  # by index: two boards with one UUID are not left to chance
            result = results[gpu]
            part = f"gpu{gpu}"
            if isinstance(result, _Met):
                if (met := self._register(session, result)) is not None:
                    readings[met.identity.uuid] = result.reading
                elif (fault := session.unmet[int(gpu)].fault) is not None:
                    items.append(fault)
            elif isinstance(result, Reading):
                known = by_index[gpu]
                known.lost = False
                readings[known.identity.uuid] = result
            elif isinstance(result, NvmlError) and result.code not in OVER:
                self._fail(session, gpu, by_index.get(gpu), result, now)
                items.append(Fault.of(part, result))
            elif isinstance(result, Stuck | Unbegun):
                items.append(Fault.of(part, result))
                if isinstance(result, Unbegun) and gpu in by_index:
                    self._unasked.add(by_index[gpu].identity.uuid)
            else:
                raise self._broken(result)
        self._tell_refusals()
        self._miss(session, results, items)
        return readings

    def _meet(self, index: int, session: _Session) -> _Met:
        """Find out who a GPU is, set it up, and read it. A job: it may hang."""
        handle = self._driver.device(index)
        identity = identify(self._driver, handle, index, session.driver_version)
        unit = Gpu(self._house, handle, identity, self._options)
        met = session.met[index] = _Met(identity, handle, unit, unit.read())
        return met

    def _read_known(self, known: _Known) -> Reading:
        """Read a GPU; one that was lost is set up again. A job: it may hang."""
        unit = known.unit
        if unit is None:
            # Kept at once: if setting up takes longer than a read may, the next goes on from it.
            unit = known.unit = Gpu(self._house, known.handle, known.identity, self._options)
        reading = unit.read()
        if unit.outdated:
            known.unit = None
        return reading

    def _register(self, session: _Session, met: _Met) -> _Known | None:
        """Take up a GPU that was met; `None` if it says that it is another one that is there."""
        index = int(met.identity.gpu)
        session.met.pop(index, None)
        known = self._known.setdefault(met.identity.uuid, _Known(met.identity))
        if known.handle is not None and known.identity.gpu != met.identity.gpu:
            said = f"has the UUID of gpu {known.identity.gpu}"
            session.unmet[index] = _Unmet(math.inf, Fault(f"gpu{index}", "malformed", said))
            return None
        session.unmet.pop(index, None)
        self._known = {
            uuid: other
            for uuid, other in self._known.items()
            # A board in the place of another one has replaced it.
            if other is known
            or other.handle is not None
            or not other.identity.pci_bus_id
            or other.identity.pci_bus_id != met.identity.pci_bus_id
        }
        known.identity, known.handle, known.unit = met.identity, met.handle, met.unit
        known.lost, known.retry_at = False, 0.0
        self._known = dict(sorted(self._known.items(), key=lambda one: int(one[1].identity.gpu)))
        self._totals.add(c.GPU_LOSSES_TOTAL, met.identity.labels, 0)
        self._refusals.append((met.unit.refused, met.identity.gpu))
        return known

    def _fail(
        self, session: _Session, gpu: str, known: _Known | None, error: NvmlError, now: float
    ) -> None:
        """Note what a failed read of a whole GPU means for asking again.

        One that is lost or waits for a reset, and one that would not even say who it is (it may be
        closed to us), are asked again after a while only.
        """
        if known is None:
            session.unmet[int(gpu)] = _Unmet(now + _RETRY, Fault.of(f"gpu{gpu}", error))
        elif error.code in GONE | {RESET_REQUIRED}:
            self._lose(known)
            known.unit, known.retry_at, known.fault = (
                None,
                now + _RETRY,
                Fault.of(f"gpu{gpu}", error),
            )

    def _lose(self, known: _Known) -> None:
        if not known.lost:
            self._totals.add(c.GPU_LOSSES_TOTAL, known.identity.labels, 1)
        known.lost = True

    def _miss(self, session: _Session, results: Collection[str], items: list[Item]) -> None:
        """Tell of the GPUs that were not asked: lost ones, and those that are no longer listed."""
        for known in self._known.values():
            gpu = known.identity.gpu
            if known.handle is None and not session.unmet:
                self._lose(known)
                said = f"{known.identity.uuid}: no longer listed by the driver"
                items.append(Fault(f"gpu{gpu}", "unavailable", said))
            elif known.lost and known.fault is not None and gpu not in results:
                items.append(known.fault)
        items += [
            unmet.fault
            for index, unmet in session.unmet.items()
            if unmet.fault is not None and str(index) not in results
        ]

    def _broken(self, error: BaseException) -> BaseException:
        """Return what to raise; if the library is over, whoever said so, it is started anew."""
        if isinstance(error, NvmlError) and error.code in OVER:
            self._over = True
        return _told(error)

    def _tell_refusals(self) -> None:
        """Log once what GPUs that were set up just now do not support."""
        refusals, self._refusals = self._refusals, []
        for refused in {refused for refused, _ in refusals if refused}:
            gpus = sorted(int(gpu) for said, gpu in refusals if said == refused)
            log.info("gpu %s: not supported here: %s", ",".join(map(str, gpus)), ", ".join(refused))

    def _anyone_stuck(self) -> bool:
        return bool(self._crew.away())

    def _command(self, pid: int) -> str | None:
        try:
            text = (self._root / "proc" / str(pid) / "comm").read_bytes()
        except OSError:
            return None
        return text.rstrip(b"\n").decode("utf-8", "replace")

    # ------------------------------------------------------------ the counters (GPM)

    def _read_counters(
        self,
        until: float,
        readings: Mapping[str, Reading],
        items: list[Item],
    ) -> Mapping[str, Sequence[Sample]]:
        """Read GPM of all GPUs that answered just now: one that hangs must not stop this thread."""
        targets = {uuid: reading.targets for uuid, reading in readings.items() if reading.targets}
        for uuid, reading in readings.items():
            self._known[uuid].targets = reading.targets
        if not targets:
            return {}
        # A GPU that is silent this time keeps its window, which will then cover the silence.
        there = (known for known in self._known.values() if not known.lost)
        keep = frozenset(target.key for known in there for target in known.targets)
        left = max(0.05, until - self._clock.monotonic())
        able = self._without_stuck(targets, items)
        progress = _Progress()
        # A job that is away keeps its name; the others are read by another one meanwhile.
        names = map("gpm{}".format, range(len(self._known) + 1))
        name = next(name for name in names if name not in self._measuring)
        job = functools.partial(self._measure, able, keep, progress)
        result = self._crew.run({name: job}, left)[name]
        if isinstance(result, Stuck | Unbegun):
            progress.given_up = True
            part = self._known[progress.at].identity.gpu if progress.at else ""
            items.append(Fault.of(f"gpu{part}/gpm" if part else "gpm", result))
            if isinstance(result, Stuck):
                self._measuring[name] = progress.at
        elif isinstance(result, BaseException):
            raise self._broken(result)
        items += progress.faults
        return progress.samples.copy()

    def _without_stuck(
        self, targets: Mapping[str, Sequence[Target]], items: list[Item]
    ) -> Mapping[str, Sequence[Target]]:
        """Leave out the GPUs that a former round still hangs at; say which they are."""
        away = self._crew.away()
        self._measuring = {job: uuid for job, uuid in self._measuring.items() if job in away}
        for job, uuid in self._measuring.items():
            if uuid in self._known:
                part = f"gpu{self._known[uuid].identity.gpu}/gpm"
                items.append(Fault.of(part, Stuck(away[job])))
        return {u: some for u, some in targets.items() if u not in self._measuring.values()}

    def _measure(
        self,
        targets: Mapping[str, Sequence[Target]],
        keep: frozenset[Hashable],
        progress: _Progress,
    ) -> None:
        """Read GPM of these GPUs, one after the other, until that is given up."""
        if not self._measuring:
            self._gpm.forget(keep)
        for uuid, some in targets.items():
            if progress.given_up:
                return
            progress.at = uuid
            measured: list[Sample] = []
            for target in some:
                try:
                    measured += self._gpm.read(target)
                except NvmlError as error:
                    if error.code in OVER:
                        raise
                    if error.code in UNSUPPORTED:
                        continue
                    part = f"gpu{target.labels[0]}"
                    part += "" if target.instance is None else f"/mig{target.instance}"
                    progress.faults.append(Fault(part, error.reason, str(error)))
            progress.samples[uuid] = measured

    def _doubts(
        self, known: _Known, reading: Reading, measured: Sequence[Sample]
    ) -> Iterator[Sample]:
        """Say whether utilization and SM activity contradict each other (DCGM 202, rezolus 1105).

        They are measured over different times: only several reads in a row count.
        """
        active = next((s.value for s in measured if s.metric is c.GPU_SM_ACTIVE_RATIO), None)
        busy = reading.utilization
        if busy is None or not isinstance(active, float):
            return
        contradiction = (busy >= 0.5 and active < 0.001) or (busy == 0 and active > 0.05)
        known.disagreements = known.disagreements + 1 if contradiction else 0
        yield c.GPU_READINGS_DISAGREE(int(known.disagreements >= _WINDOWS), *known.identity.labels)


def _of_library(error: NvmlError) -> Fault:
    """Return the fault of a call that concerns no GPU; raise what has the library started anew."""
    if error.code in OVER:
        raise error
    return Fault("library", error.reason, str(error))


def _told(error: BaseException) -> BaseException:
    """Return what an error of the library means for the whole source."""
    if isinstance(error, NvmlError) and error.code == LIB_RM_VERSION_MISMATCH:
        return Spent("unavailable", f"the driver was replaced: {error}")
    if isinstance(error, NvmlError) and error.code == LIBRARY_NOT_FOUND:
        return FileNotFoundError("libnvidia-ml.so.1 is not installed")
    return error


class _Session:
    """The library between start and stop.

    `unmet` are the GPUs that it lists and that have not told who they are, by index; `met` those
    that have just told, until they are taken up.
    """

    def __init__(self, driver: Driver, now: float) -> None:
        self.begun = now
        self.count: Callable[[], int] = driver.bind("nvmlDeviceGetCount_v2", "u32")
        self.listed = self.count()
        self.met: dict[int, _Met] = {}
        self.unmet = dict.fromkeys(range(self.listed), _Unmet(0.0, None))
        self.driver_version = _version(driver, "nvmlSystemGetDriverVersion")
        self._nvml_version = _version(driver, "nvmlSystemGetNVMLVersion")
        self._cuda_version = _cuda_version(driver)

    def samples(self) -> Iterator[Sample]:
        """Yield what the library says of itself."""
        yield c.GPU_DRIVER_INFO(1, self.driver_version, self._nvml_version, self._cuda_version)


def _version(driver: Driver, function: str) -> str:
    try:
        return cast("str", driver.bind(function, Text(80))())
    except NvmlError:
        return ""


def _cuda_version(driver: Driver) -> str:
    """Return the CUDA version that the driver supports.

    The function without a suffix: the newer one needs a library that hosts without CUDA lack.
    """
    try:
        number = driver.bind("nvmlSystemGetCudaDriverVersion", "i32")()
    except NvmlError:
        return ""
    return f"{number // 1000}.{number % 1000 // 10}" if number > 0 else ""
