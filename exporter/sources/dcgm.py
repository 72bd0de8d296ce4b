"""DCGM through its library: what hardware counters measure, and on request all that DCGM knows.

Meant for GPUs before Hopper, where the driver's own library has no such counters, and for nodes
where a host engine runs anyway. It runs in a child process: the library hangs when the driver does.
Which fields there are is `dcgm.fields`' matter, connection and watches that of `dcgm.session`;
here values become samples, and rates become counters.

DCGM measures once in an interval, by its own clock. A read gets the latest measurement; one that
falls between two reads is counted with the rate of the next. Values that DCGM stops renewing are
absent after a while (gpu-monitoring-tools 188).

A scraper will see, among others:

    gpu_sm_active_ratio{gpu="0",uuid="GPU-…"} 0.82
    gpu_tensor_active_ratio{gpu="0",uuid="GPU-…"} 0.41
    gpu_tensor_active_seconds_total{gpu="0",uuid="GPU-…"} 51234.5
    gpu_pipe_active_ratio{gpu="0",uuid="GPU-…",pipe="fp64"} 0
    gpu_pcie_receive_bytes_total{gpu="0",uuid="GPU-…"} 812345678
    gpu_mig_sm_active_ratio{gpu="1",uuid="GPU-…",mig="3"} 0.5
    gpu_readings_disagree{gpu="0",uuid="GPU-…"} 0
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from exporter import catalogue as c
from exporter.clock import Clock, SystemClock
from exporter.dcgm import driver as d
from exporter.dcgm.fields import FIELDS, UTILIZATION, Field, is_blank, native
from exporter.dcgm.integrals import Integrals
from exporter.dcgm.session import Reading, Session, Target, Wanted, Watch, statuses
from exporter.samples import Drop, Fault, Metric, Sample, SourceError

_SILENT = 10.0
"""Seconds after which a value that is not renewed is old, and a GPU without new ones a fault.

At least; three intervals if that is longer.
"""

_STREAK = 3
"""Contradictions in a row, each between new measurements, until the readings disagree."""

_PROFILING = "profiling"
_SM_ACTIVE = 1002
_UTILIZATION = UTILIZATION.number


class DcgmSource:
    """Reads DCGM: the host engine at `address`, or one in this process where that is `None`.

    All options but the last three are such as JSON can hold. `library` is the path of libdcgm, ""
    for the system's; `interval` seconds between measurements; `timeout` seconds to connect.
    `everything` adds what DCGM has from NVML to the profiling fields. `leave_out` are names of
    families that somebody else reads. `manual`: an embedded engine measures at each read instead
    of by itself. `memory` is what another source's `memory()` returned: its counters go on.
    """

    def __init__(
        self,
        address: str | None = None,
        library: str = "",
        *,
        interval: float = 1.0,
        everything: bool = False,
        manual: bool = False,
        timeout: float = 5.0,
        leave_out: Sequence[str] = (),
        memory: object = None,
        clock: Clock | None = None,
        load: Callable[[str, Clock], d.Driver] = d.Library,
        table: Sequence[Field] = FIELDS,
    ) -> None:
        self.name = "dcgm"
        self.group = c.GPU
        self._address = address
        self._library = library
        self._interval = interval
        self._manual = manual and address is None
        self._timeout = timeout
        self._clock = clock if clock is not None else SystemClock()
        self._load = load
        self._driver: d.Driver | None = None
        self._session: Session | None = None
        kept = memory if isinstance(memory, Mapping) else {}
        self._integrals = Integrals(kept.get("totals"))
        seconds = kept.get("driver_seconds")
        self._spent = float(seconds) if isinstance(seconds, int | float) else 0.0
        self._patience = max(_SILENT, 3 * interval)
        self._ages = _Ages(self._clock, self._patience)
        self._checks: dict[str, _CrossCheck] = {}
        self._heard: dict[str, float] = {}
        left_out = frozenset(leave_out)
        self._check = c.GPU_READINGS_DISAGREE.name not in left_out
        rows = [_without(row, left_out) for row in table if everything or row.profiling]
        self._rows = {row.number: row for row in rows if row is not None}
        self._order = {number: position for position, number in enumerate(self._rows)}
        self._names = {row.number: row.name for row in table}

    def read(self) -> list[Sample | Fault | Drop]:
        """Return the latest values of all GPUs.

        Raises `FileNotFoundError` if there is no library, `ConnectionError` if there is no host
        engine or it was lost (the next read connects anew), `SourceError` if DCGM refuses, or has
        no GPU.
        """
        try:
            if self._session is None:
                self._session = self._opened()
            return self._read(self._session)
        except (SourceError, ConnectionError):
            self.close()
            raise

    def memory(self) -> dict[str, object]:
        """Return what a successor needs for its counters to go on; JSON can hold it."""
        return {"totals": self._integrals.memory(), "driver_seconds": self._seconds()}

    def close(self) -> None:
        """Stop watching, disconnect, and shut the library down."""
        session, self._session = self._session, None
        driver, self._driver = self._driver, None
        if session is not None:
            session.close()
        if driver is not None:
            driver.close()
            self._spent += driver.seconds

    def _seconds(self) -> float:
        return self._spent + (self._driver.seconds if self._driver is not None else 0.0)

    def _opened(self) -> Session:
        driver = self._load(self._library, self._clock)
        driver.open(self._address, timeout=self._timeout, manual=self._manual)
        self._driver = driver
        self._heard.clear()
        return Session(
            driver, self._wanted(), every=self._interval, clock=self._clock, update=self._manual
        )

    def _wanted(self) -> tuple[Wanted, ...]:
        """Return the lists of fields; with GPU utilization, to check SM activity against."""
        rows = self._rows.values()
        profiling = [row for row in rows if row.profiling]
        device = [row for row in rows if not row.profiling]
        numbers = _of_gpus(device)
        if self._check and _UTILIZATION not in numbers:
            numbers = (*numbers, _UTILIZATION)
        return (
            Wanted(
                _PROFILING,
                d.GPU,
                tuple(row.number for row in profiling if row.metric or row.integral),
            ),
            Wanted("", d.GPU, numbers),
            Wanted(f"instances {_PROFILING}", d.INSTANCE, _of_instances(profiling)),
            Wanted("instances", d.INSTANCE, _of_instances(device)),
        )

    def _read(self, session: Session) -> list[Sample | Fault | Drop]:
        readings, faults = session.read()
        if not session.watches and not faults:
            raise SourceError("unavailable", "DCGM sees no GPU")
        return [
            *self._samples(readings),
            *faults,
            *statuses(readings, self._names),
            *self._silences(session, readings),
            c.FLOPWATCH_DRIVER_SECONDS_TOTAL(self._seconds(), self.name),
        ]

    def _samples(self, readings: Sequence[Reading]) -> Iterator[Sample | Drop]:
        seen: set[tuple[object, tuple[str, ...]]] = set()
        unbelievable = 0
        pairs: dict[str, dict[int, tuple[float, int]]] = {}
        # DCGM answers in no order; of two fields that tell the same thing, the first in the table.
        for target, value in sorted(readings, key=lambda r: self._order.get(r.value.field, -1)):
            raw = value.value
            if isinstance(raw, str) or raw is None or self._ages.is_old(value):
                continue
            row = self._rows.get(value.field, UTILIZATION)
            if is_blank(raw, "double" if isinstance(raw, float) else "int"):
                continue
            ours = native(raw, row.unit)
            if ours is None:
                unbelievable += 1
                continue
            if not target.mig:
                pairs.setdefault(target.uuid, {})[value.field] = (ours, value.micros)
            if value.field not in self._rows:
                continue
            for sample in self._given(row, target, ours, value.micros):
                if sample[:2] not in seen:
                    seen.add(sample[:2])
                    yield sample
        if self._check:
            yield from self._cross_checked(readings, pairs)
        if unbelievable:
            yield Drop("value", unbelievable)

    def _given(self, row: Field, target: Target, value: float, micros: int) -> Iterator[Sample]:
        """Yield what one value becomes."""
        labels = (target.gpu, target.uuid, *((target.mig,) if target.mig else ()))
        metric, integral = (row.mig, row.mig_integral) if target.mig else (row.metric, row.integral)
        if row.bits and metric is not None:
            for word, bit in row.bits:
                yield metric(int(int(value) & bit != 0), *labels, word)
        elif metric is not None:
            yield metric(value, *labels, *row.labels)
        if integral is not None:
            name = f"{target.uuid}/{target.mig}/{row.number}"
            yield integral(self._integrals.add(name, value, micros), *labels)

    def _cross_checked(
        self, readings: Sequence[Reading], pairs: dict[str, dict[int, tuple[float, int]]]
    ) -> Iterator[Sample]:
        for target in dict.fromkeys(reading.target for reading in readings):
            told = pairs.get(target.uuid, {})
            if target.mig or _UTILIZATION not in told or _SM_ACTIVE not in told:
                continue
            check = self._checks.setdefault(target.uuid, _CrossCheck())
            (used, _), (active, micros) = told[_UTILIZATION], told[_SM_ACTIVE]
            flag = int(check.disagrees(used, active, micros))
            yield c.GPU_READINGS_DISAGREE(flag, target.gpu, target.uuid)

    def _silences(self, session: Session, readings: Sequence[Reading]) -> Iterator[Fault]:
        """Tell of GPUs that are watched without anything being measured.

        Counters stay so after XID 31 until somebody watches anew (DCGM 202), or while another
        profiler has them (DCGM 226); other fields when DCGM hangs in the driver.
        """
        now = self._clock.monotonic()
        fresh = {
            (target.entity, self._is_profiling(value.field))
            for target, value in readings
            if _has_value(value) and not self._ages.is_old(value)
        }
        for watch in session.watches:
            profiling = watch.label.endswith(_PROFILING)
            key = f"{watch.part} {watch.targets[0].entity}"
            if any((target.entity, profiling) in fresh for target in watch.targets):
                self._heard[key] = now
            # Other fields than counters may all be missing, on a GPU with instances for example.
            elif watch.taken and (profiling or key in self._heard):
                silent = now - max(watch.since, self._heard.get(key, 0.0))
                if silent > self._patience:
                    yield _silence(watch, silent)
                    session.again(watch)

    def _is_profiling(self, number: int) -> bool:
        return number in self._rows and self._rows[number].profiling


class _Ages:
    """Knows for how long a value has not been measured again, whatever DCGM's clock says."""

    def __init__(self, clock: Clock, limit: float) -> None:
        self._clock = clock
        self._limit = limit
        self._seen: dict[tuple[d.Entity, int], tuple[int, float]] = {}

    def is_old(self, value: d.Value) -> bool:
        """Tell whether a value has been there for too long."""
        now = self._clock.monotonic()
        key = (value.entity, value.field)
        micros, since = self._seen.get(key, (-1, now))
        if micros != value.micros:
            self._seen[key] = (value.micros, now)
            return False
        return now - since > self._limit


class _CrossCheck:
    """Compares GPU utilization with SM activity, which measure the same GPU in two ways.

    After XID 31 the counters of a busy GPU were told as 0 (DCGM 303). One moment proves nothing:
    the two are not measured at the same time.
    """

    def __init__(self) -> None:
        self._micros = -1
        self._streak = 0

    def disagrees(self, used: float, active: float, micros: int) -> bool:
        """Count another pair of readings, if it is another one, and tell what they prove."""
        if micros != self._micros:
            self._micros = micros
            apart = (used > 0.5 and active == 0) or (used == 0 and active > 0.5)
            self._streak = self._streak + 1 if apart else 0
        return self._streak >= _STREAK


def _of_gpus(rows: Sequence[Field]) -> tuple[int, ...]:
    return tuple(row.number for row in rows if row.metric or row.integral)


def _of_instances(rows: Sequence[Field]) -> tuple[int, ...]:
    return tuple(row.number for row in rows if row.mig or row.mig_integral)


def _has_value(value: d.Value) -> bool:
    raw = value.value
    if raw is None or isinstance(raw, str):
        return False
    return not is_blank(raw, "double" if isinstance(raw, float) else "int")


def _silence(watch: Watch, seconds: float) -> Fault:
    why = ": another profiler may hold the counters" if _PROFILING in watch.label else ""
    return Fault(
        watch.part, "unavailable", f"watched, and nothing was measured for {seconds:.0f} s{why}"
    )


def _without(row: Field, names: frozenset[str]) -> Field | None:
    """Return a row without the families that are left out; `None` if nothing is left of it."""

    def kept(metric: Metric | None) -> Metric | None:
        return None if metric is None or metric.name in names else metric

    row = row._replace(
        metric=kept(row.metric),
        mig=kept(row.mig),
        integral=kept(row.integral),
        mig_integral=kept(row.mig_integral),
    )
    families = (row.metric, row.mig, row.integral, row.mig_integral)
    return row if any(family is not None for family in families) else None
