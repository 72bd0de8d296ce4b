"""The nouns of the daemon: metrics, samples, snapshots, views, and what a source is.

Everything that produces samples is a source; everything that consumes them sees a view. This
module holds those types and nothing that acts: reading is left to `sources`, timing to `runner`,
keeping to `board`, writing to `exposition`. Standard library only.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, overload, runtime_checkable

Kind = Literal["gauge", "counter", "histogram", "info"]
Stability = Literal["stable", "experimental"]
Reason = Literal["timeout", "unavailable", "denied", "malformed", "io", "bug"]
State = Literal["up", "degraded", "failed", "stale", "stuck", "waiting"]


class Histogram(NamedTuple):
    """A cumulative histogram as Prometheus counts it.

    `bounds` are the finite upper bounds, ascending, none negative; `counts` has one more entry:
    the number of observations at or below each bound, then all of them (`le="+Inf"`), so it never
    decreases; `sum` is the sum of all observations in the family's base unit.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float


Value = float | Histogram


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One row of the catalogue: what a family of samples is called and means.

    Calling a metric makes a sample of it: `GPU_POWER_WATTS(212.5, "0", uuid)`. Metrics compare by
    identity: there is exactly one object for each family.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    group: str = ""
    unit: str = ""
    stability: Stability = "stable"

    def __call__(self, value: Value, *labels: str) -> Sample:
        """Return a sample of this family; `labels` are values in the order of `self.labels`."""
        return Sample(self, labels, value)


class Sample(NamedTuple):
    """One reading: a catalogue row, its label values in catalogue order, and a value.

    Counters may be Python ints (cheaper to write, exact beyond 2**53); gauges are floats or ints;
    histograms are `Histogram`.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: Value


class Fault(NamedTuple):
    """A part of a source (a device, a port, a server) that could not be read this time.

    `part` names it for the operator, "" being the whole source; `reason` is one of a closed set;
    `detail` is the full text, shown only to local or authenticated callers.
    """

    part: str
    reason: Reason
    detail: str

    @classmethod
    def of(cls, part: str, error: BaseException) -> Fault:
        """Return the fault that `error` means for `part`."""
        return cls(part, reason_of(error), f"{type(error).__name__}: {error}")


class Drop(NamedTuple):
    """Samples that a source read but had to leave out: counted, never silently lost."""

    reason: str
    number: int


class Event(NamedTuple):
    """Something that happened once, told by a source that runs in a child process.

    Not a sample: whoever counts such things is handed it. `kind` says what, `about` which device,
    `code` is the number that came with it, `wall` when it was noticed, in Unix seconds.
    """

    kind: str
    about: str
    code: int
    wall: float


Item = Sample | Fault | Drop | Event
"""What a source yields. Events come from sources in child processes only."""


class Remembered(NamedTuple):
    """What someone knew at a moment (`taken`, monotonic seconds), as JSON can hold it.

    It is `final` if nothing has been told after it, and `urgent` if it is not to wait for the next
    time that memories are written.
    """

    plain: object
    taken: float
    final: bool = False
    urgent: bool = False


class Malformed(ValueError):  # noqa: N818 - said of the input, not of us
    """What was read is not what it should be: a page, a file or a reply that makes no sense."""


class SourceError(Exception):
    """A read failed for a reason that is already known, for example in a child process."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason: Reason = reason


class Spent(SourceError):  # noqa: N818 - said of the process
    """A read failed, and this process can never read again: its driver library is an old one.

    Raised only by sources in a child process, which then ends; the next read starts another.
    """


class Released(SourceError):  # noqa: N818 - said of the driver
    """A source has let go of its driver on request, for so many seconds more: no cause to wait."""

    def __init__(self, seconds: float) -> None:
        super().__init__("unavailable", f"released on request for another {seconds:.0f} s")


def reason_of(error: BaseException) -> Reason:
    """Return the one word that says why a read failed. The only place that decides it."""
    match error:
        case SourceError():
            return error.reason
        case TimeoutError():
            return "timeout"
        case PermissionError():
            return "denied"
        case FileNotFoundError() | ConnectionError() | ModuleNotFoundError():
            return "unavailable"
        case Malformed() | UnicodeError():
            return "malformed"
        case OSError():
            return "io"
        case _:
            return "bug"


class Shape:
    """Which series a batch holds, without their values.

    A source mostly yields the same series each time; then the same `Shape` object is used again,
    and everyone downstream may compare by identity instead of looking at labels.
    """

    __slots__ = ("counters", "families", "groups", "histograms", "labels", "metrics", "scalars")

    def __init__(self, metrics: tuple[Metric, ...], labels: tuple[tuple[str, ...], ...]) -> None:
        self.metrics = metrics
        self.labels = labels
        self.histograms = tuple(i for i, m in enumerate(metrics) if m.kind == "histogram")
        self.scalars = tuple(i for i, m in enumerate(metrics) if m.kind != "histogram")
        self.counters = tuple(i for i, m in enumerate(metrics) if m.kind == "counter")
        groups: dict[str, list[int]] = {}
        for i, metric in enumerate(metrics):
            groups.setdefault(metric.group, []).append(i)
        self.groups: Mapping[str, tuple[int, ...]] = {g: tuple(ix) for g, ix in groups.items()}
        families: dict[Metric, list[int]] = {}
        for i, metric in enumerate(metrics):
            families.setdefault(metric, []).append(i)
        self.families: Mapping[Metric, tuple[int, ...]] = {
            m: tuple(ix) for m, ix in families.items()
        }

    def __len__(self) -> int:
        return len(self.metrics)


EMPTY_SHAPE = Shape((), ())


@dataclass(frozen=True, slots=True)
class Batch(Sequence[Sample]):
    """Well-formed samples in columns: a shape and one value for each of its series."""

    shape: Shape = EMPTY_SHAPE
    values: tuple[Value, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Sample]:
        return map(Sample, self.shape.metrics, self.shape.labels, self.values)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | Sequence[Sample]:
        if isinstance(index, slice):
            return list(self)[index]
        return Sample(self.shape.metrics[index], self.shape.labels[index], self.values[index])


def in_columns(samples: Sequence[Sample], former: Shape) -> Batch:
    """Return samples as a batch, with the former shape if they are the same series."""
    metrics = tuple([sample[0] for sample in samples])
    labels = tuple([sample[1] for sample in samples])
    same = metrics == former.metrics and labels == former.labels
    shape = former if same else Shape(metrics, labels)
    return Batch(shape, tuple([sample[2] for sample in samples]))


@dataclass(frozen=True, slots=True)
class Brought:
    """What a read has brought, with the samples in columns: they need not be taken apart.

    `batch` is not checked yet. The same batch again says that nothing has changed.
    """

    batch: Batch
    others: Sequence[Fault | Drop] = ()

    def __iter__(self) -> Iterator[Item]:
        yield from self.batch
        yield from self.others


class Gate:
    """Lets well-formed samples through, once per read, and counts what it keeps out.

    Dropped are, by reason: `cap` (more than `max_series` series), `labels` (wrong number or not
    text), `value` (not a number; a counter that is negative or not finite; a histogram that is
    not cumulative), `duplicate` (the same series twice; the first one wins). While a source
    yields the same series as the last time only the values are looked at.
    """

    def __init__(self, max_series: int) -> None:
        self._max_series = max_series
        self._shape = EMPTY_SHAPE
        self._bounds: dict[int, tuple[float, ...]] = {}

    def admit(self, samples: Sequence[Sample]) -> tuple[Batch, Mapping[str, int]]:
        """Return the good samples as a batch, and how many were dropped for which reason."""
        if not samples:
            return Batch(), {}
        shape = self._shape
        if isinstance(samples, Batch) and samples.shape is shape:
            if len(samples) == len(shape) and self._sound(samples.values):
                return samples, {}
            return self._inspect(samples)
        if len(samples) == len(shape):
            # Comprehensions: half the time of zip(*samples) over thousands of samples.
            values = tuple([sample[2] for sample in samples])
            if (
                tuple([sample[0] for sample in samples]) == shape.metrics
                and tuple([sample[1] for sample in samples]) == shape.labels
                and self._sound(values)
            ):
                return Batch(shape, values), {}
        return self._inspect(samples)

    def _inspect(self, samples: Iterable[Sample]) -> tuple[Batch, Mapping[str, int]]:
        drops: dict[str, int] = {}
        good: list[Sample] = []
        seen: set[tuple[Metric, tuple[str, ...]]] = set()
        room = self._max_series
        for sample in samples:
            flaw = _flaw(sample) or ("duplicate" if sample[:2] in seen else "")
            lines = series_of(sample.value)
            if not flaw and lines > room:
                flaw = "cap"
            if flaw:
                drops[flaw] = drops.get(flaw, 0) + 1
                continue
            room -= lines
            seen.add(sample[:2])
            good.append(sample)
        if not good:
            return Batch(), drops
        if isinstance(samples, Batch) and len(good) == len(samples.shape):
            self._shape = samples.shape
            return samples, drops
        batch = in_columns(good, self._shape)
        self._shape = batch.shape
        return batch, drops

    def _sound(self, values: tuple[Value, ...]) -> bool:
        """Tell cheaply whether all values fit the known shape; `False` asks for a closer look.

        Runs in C over the columns: a node's page is a few thousand values a second.
        """
        shape = self._shape
        if shape.histograms:
            if not all(map(self._adds_up, map(values.__getitem__, shape.histograms))):
                return False
            scalars: Sequence[Value] = [values[i] for i in shape.scalars]
        else:
            scalars = values
        if not scalars:
            return True
        if not _PLAIN.issuperset(map(type, scalars)):
            return False
        lowest = min(scalars)
        if not (lowest >= -_LARGEST and max(scalars) <= _LARGEST):  # type: ignore[operator]
            return False
        if math.isnan(sum(scalars)):  # type: ignore[arg-type]
            return False  # comparisons let a NaN slip through; a gauge may be one, a counter not
        return lowest >= 0 or all(values[i] >= 0 for i in shape.counters)  # type: ignore[operator]

    def _adds_up(self, value: Value) -> bool:
        """Tell whether a histogram is one; bounds are looked at once while they are the same."""
        if not isinstance(value, Histogram):
            return False
        bounds = value.bounds
        if self._bounds.get(id(bounds)) is not bounds:
            if not _ascending(bounds):
                return False
            if len(self._bounds) >= _MOST_BOUNDS:
                self._bounds.clear()
            self._bounds[id(bounds)] = bounds  # kept, so that nothing else gets this number
        return _cumulative(value)


def series_of(value: Value) -> int:
    """Return how many series a value becomes: one, or buckets, sum and count of a histogram."""
    return len(value.counts) + 2 if isinstance(value, Histogram) else 1


_LARGEST = sys.float_info.max
_PLAIN = frozenset((int, float))
_MOST_BOUNDS = 1_000


def _flaw(sample: Sample) -> str:
    metric, labels, value = sample
    if len(labels) != len(metric.labels) or not all(type(v) is str for v in labels):
        return "labels"
    return "" if _good_value(metric, value) else "value"


def _good_value(metric: Metric, value: object) -> bool:
    if metric.kind == "histogram":
        return isinstance(value, Histogram) and _ascending(value.bounds) and _cumulative(value)
    # bool and numpy scalars print as words that no scraper reads
    if type(value) not in _PLAIN:
        return False
    if type(value) is int and abs(value) > _LARGEST:
        return False  # too many digits for any reader
    return metric.kind != "counter" or 0 <= value <= _LARGEST  # type: ignore[operator]


def _ascending(bounds: tuple[float, ...]) -> bool:
    return (
        _PLAIN.issuperset(map(type, bounds))
        and all(map(math.isfinite, bounds))
        and (not bounds or bounds[0] >= 0)
        and all(map(operator.lt, bounds, bounds[1:]))
    )


def _cumulative(h: Histogram) -> bool:
    counts = h.counts
    return (
        len(counts) == len(h.bounds) + 1
        and _PLAIN.issuperset(map(type, (*counts, h.sum)))
        and counts[0] >= 0
        and all(map(operator.le, counts, counts[1:]))
        and counts[-1] < math.inf
        and not math.isnan(h.sum)
    )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one read of a source brought: its samples, and what could not be read.

    `taken` is monotonic seconds (for ages), `wall` Unix seconds (for people), `duration` seconds.
    A snapshot may be partial: `faults` then says what is missing from it.
    """

    source: str
    group: str
    taken: float
    wall: float
    duration: float
    batch: Batch = field(default_factory=Batch)
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class Health:
    """How reading a source has gone so far; never inferred from its samples.

    `failures` counts by reason; `drops` counts dropped samples by reason; `last_success` is Unix
    seconds; `busy_since` is monotonic seconds while a read is under way.
    """

    attempts: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)
    drops: Mapping[str, int] = field(default_factory=dict)
    last_success: float | None = None
    last_duration: float | None = None
    busy_since: float | None = None


@dataclass(frozen=True, slots=True)
class SourceView:
    """One source as its consumers see it at one moment.

    `age` is seconds since the snapshot was taken; `busy` seconds since the read under way began.
    `batch` is empty unless the snapshot is fresh. `last` is the last read that succeeded, however
    long ago: for who counts what has been, and for nobody who tells what is.
    """

    name: str
    group: str
    state: State
    health: Health
    faults: tuple[Fault, ...] = ()
    batch: Batch = field(default_factory=Batch)
    age: float | None = None
    busy: float | None = None
    last: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class View:
    """Everything known at one moment: each source's state, and the fresh samples."""

    sources: tuple[SourceView, ...]
    token: tuple[object, ...]
    """Equal tokens mean equal samples and states: what was rendered for one serves the other."""

    def samples(self, metric: Metric) -> list[Sample]:
        """Return the fresh samples of one family, over all sources."""
        return [
            source.batch[i]
            for source in self.sources
            for i in source.batch.shape.families.get(metric, ())
        ]


class Source(Protocol):
    """Something that can be read. The runner gives it a thread, a deadline, backoff and health."""

    @property
    def name(self) -> str:
        """The source's name, unique in the daemon."""

    @property
    def group(self) -> str:
        """The exposition group that its samples belong to."""

    def read(self) -> Iterable[Item]:
        """Read once. Yield samples, faults of parts, and drops; raise if nothing could be read."""

    def close(self) -> None:
        """Release what the source holds; called once, after the last read."""


@runtime_checkable
class Releasable(Protocol):
    """A source that can let go of its driver for a while."""

    def release(self, seconds: float) -> bool:
        """Close all handles and read nothing for so long; tell whether they are closed."""
