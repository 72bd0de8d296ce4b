"""How a GPU spent a span of time, from the intervals of its kernels and copies.

Kernels run on several streams at once, so sums of durations say little: what is told here comes
from unions of intervals. Intervals come in any order and are kept as plain numbers, 21 bytes each;
the launch of each costs 8 more. Both have a limit, at which `Crowded` is raised: a part of a
timeline would give wrong figures. Times are whole nanoseconds.

Each moment belongs to the first that it finds: matrix products and attention (`matmul`), other
kernels (`memory_bound`), communication (which then is exposed), copies, or nothing at all (idle).
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.profiling.kernels import CLASSES, NUMBER, class_of, short

_LEVEL = tuple(
    {"matmul": 1, "attention": 1, "communication": 4, "copy": 8}.get(name, 2) for name in CLASSES
)
"""The bit that a kernel of each class sets while it runs."""

_RUN = 1 << 16
"""So many intervals are sorted at once; the sorted runs are merged as they are read."""
_PAGE = 1 << 12
_NAMES = 4096
_KNOWN_LAUNCHES = 0.95
"""The share of kernels whose launch must be known for telling when the GPU was starved."""
_NEVER = (1 << 63) - 1
_OTHERS = "(others)"
_GPUS = 256


class Crowded(ValueError):  # noqa: N818 - said of the timeline
    """More intervals than there is room for."""


class Gpu(NamedTuple):
    """A GPU as one process uses it."""

    process: int
    device: int


class Total(NamedTuple):
    """How often something ran, for how many seconds in sum, and the bytes that it moved."""

    number: int
    seconds: float
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """What a timeline shows, in seconds; means over GPUs where there are several.

    `matmul`, `memory_bound`, `exposed`, `copies` and `idle` add up to `seconds`. `communication`
    is all of it, hidden or not. `starved` is the part of `idle` in which the host had launched
    nothing that was still to run; `gaps` the number of idle stretches. `launching` is the host's
    time in launch calls. `kernels`, `classes`, `names` and `operations` are of all GPUs together:
    numbers and sums of durations.
    """

    begin: int
    end: int
    devices: int
    seconds: float
    matmul: float
    memory_bound: float
    exposed: float
    copies: float
    idle: float
    communication: float
    starved: float | None
    gaps: int
    kernels: int
    launching: float
    classes: dict[str, Total]
    names: dict[str, Total]
    operations: dict[str, Total]

    @property
    def computing(self) -> float:
        """Time in which a kernel other than of communication ran."""
        return self.matmul + self.memory_bound

    @property
    def overlap(self) -> float | None:
        """The share of communication that computing hid; `None` without communication."""
        if self.communication <= 0:
            return None
        return 1 - self.exposed / self.communication


@dataclass(slots=True)
class _Tally:
    number: int = 0
    nanoseconds: int = 0
    bytes: int = 0

    def total(self) -> Total:
        return Total(self.number, self.nanoseconds / 1e9, self.bytes)


@dataclass(slots=True)
class _Lane:
    """The intervals of one GPU: columns, sorted by start in runs of `_RUN`."""

    starts: array[int] = field(default_factory=lambda: array("q"))
    ends: array[int] = field(default_factory=lambda: array("q"))
    kinds: array[int] = field(default_factory=lambda: array("B"))
    links: array[int] = field(default_factory=lambda: array("I"))
    sorted_to: int = 0

    def add(self, start: int, end: int, kind: int, link: int) -> None:
        self.starts.append(start)
        self.ends.append(end)
        self.kinds.append(kind)
        self.links.append(link)
        if len(self.starts) - self.sorted_to >= _RUN:
            self.sort()

    def sort(self) -> None:
        """Sort what has come since the last run."""
        first, last = self.sorted_to, len(self.starts)
        order = sorted(range(first, last), key=self.starts.__getitem__)
        for column in (self.starts, self.ends, self.kinds, self.links):
            column[first:last] = array(column.typecode, [column[at] for at in order])
        self.sorted_to = last

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield start, end, class and link of all, by start."""
        self.sort()
        starts = range(0, len(self.starts), _RUN)  # all runs but the last are of this length
        return heapq.merge(*(self._run(at, min(at + _RUN, len(self.starts))) for at in starts))

    def _run(self, first: int, last: int) -> Iterator[tuple[int, int, int, int]]:
        for at in range(first, last):
            yield self.starts[at], self.ends[at], self.kinds[at], self.links[at]


class Timeline:
    """Takes intervals in any order and tells how the time was spent.

    `room` is the number of intervals and of launches that are kept.
    """

    def __init__(self, room: int = 4_000_000) -> None:
        self._room = room
        self._lanes: dict[Gpu, _Lane] = {}
        self._number = 0
        self._kernels = 0
        self._names: dict[str, tuple[int, _Tally]] = {}
        self._classes = [_Tally() for _ in CLASSES]
        self._operations: dict[str, _Tally] = {}
        self._pages: dict[tuple[int, int], array[int]] = {}
        self._launching = 0
        self._begin: int | None = None
        self._end: int | None = None

    def cover(self, start: int, end: int) -> None:
        """Let the span that is told of hold at least this: a step began before its kernels did."""
        self._begin = start if self._begin is None else min(self._begin, start)
        self._end = end if self._end is None else max(self._end, end)

    def kernel(self, gpu: Gpu, start: int, end: int, name: str, link: int = 0) -> None:
        """Add a kernel; `link` is the number of the call that launched it, 0 if unknown."""
        known = self._names.get(name)
        if known is None:
            known = self._name(name)
        kind, tally = known
        self._kernels += 1
        self._add(gpu, start, end, kind, link=link, tally=tally)

    def copy(
        self, gpu: Gpu, start: int, end: int, operation: str, *, size: int, link: int = 0
    ) -> None:
        """Add a copy or a filling of memory, of `size` bytes."""
        tally = self._operations.get(operation)
        if tally is None:
            key = operation if len(self._operations) < _NAMES else _OTHERS
            tally = self._operations.setdefault(key, _Tally())
        tally.bytes += size
        self._classes[NUMBER["copy"]].bytes += size
        self._add(gpu, start, end, NUMBER["copy"], link=link, tally=tally)

    def call(self, process: int, link: int, start: int, end: int, *, launch: bool) -> None:
        """Add a call of the host to the GPU's library; what it launched bears the same link."""
        if launch:
            self._launching += end - start
        if link <= 0:
            return
        page = self._pages.get(key := (process, link // _PAGE))
        if page is None:
            if len(self._pages) * _PAGE >= self._room:
                raise Crowded(f"launch calls are spread over more than {self._room} numbers")
            page = self._pages[key] = array("q", bytes(8 * _PAGE))
        page[link % _PAGE] = end + 1

    def _name(self, name: str) -> tuple[int, _Tally]:
        """Return class and tally of a kernel's name; many templates share a short one."""
        kind = NUMBER[class_of(name)]
        if len(self._names) >= _NAMES:
            name = _OTHERS
        return self._names.setdefault(name, (kind, _Tally()))

    def _add(self, gpu: Gpu, start: int, end: int, kind: int, *, link: int, tally: _Tally) -> None:
        if end < start:
            raise ValueError(f"something ends {start - end} ns before it begins")
        if self._number >= self._room:
            raise Crowded(f"more than {self._room} kernels and copies")
        self._number += 1
        for one in (tally, self._classes[kind]):
            one.number += 1
            one.nanoseconds += end - start
        lane = self._lanes.get(gpu)
        if lane is None:
            if len(self._lanes) >= _GPUS:
                raise Crowded(f"more than {_GPUS} GPUs")
            lane = self._lanes[gpu] = _Lane()
        lane.add(start, end, kind, link & 0xFFFFFFFF)
        if self._begin is None or start < self._begin:
            self._begin = start
        if self._end is None or end > self._end:
            self._end = end

    def summary(self) -> Summary | None:
        """Return what all that was added shows; `None` if no kernel was."""
        if not self._kernels or self._begin is None or self._end is None:
            return None
        times, starved, gaps = [0] * 16, 0, 0
        known = 0
        for gpu, lane in self._lanes.items():
            sweep = _Sweep(self._begin, self._launches(gpu.process))
            for interval in lane:
                sweep.add(*interval)
            sweep.finish(self._end)
            times = [a + b for a, b in zip(times, sweep.times, strict=True)]
            starved, gaps, known = starved + sweep.starved, gaps + sweep.gaps, known + sweep.known
        number = len(self._lanes)

        def seconds(*masks: int) -> float:
            return sum(times[mask] for mask in masks) / 1e9 / number

        return Summary(
            begin=self._begin,
            end=self._end,
            devices=number,
            seconds=(self._end - self._begin) / 1e9,
            matmul=seconds(*(mask for mask in range(16) if mask & 1)),
            memory_bound=seconds(*(mask for mask in range(16) if mask & 3 == 2)),
            exposed=seconds(4, 12),
            copies=seconds(8),
            idle=seconds(0),
            communication=seconds(*(mask for mask in range(16) if mask & 4)),
            starved=starved / 1e9 / number if known >= _KNOWN_LAUNCHES * self._kernels else None,
            gaps=gaps,
            kernels=self._kernels,
            launching=self._launching / 1e9,
            classes={
                name: tally.total() for name, tally in zip(CLASSES, self._classes, strict=True)
            },
            names=_shortened((name, tally) for name, (_, tally) in self._names.items()),
            operations=_shortened(self._operations.items()),
        )

    def _launches(self, process: int) -> Callable[[int], int | None]:
        """Return what tells when the call returned that bears a link, if that is known."""
        pages = self._pages

        def launched(link: int) -> int | None:
            page = pages.get((process, link // _PAGE))
            known = 0 if page is None else page[link % _PAGE]
            return known - 1 if known else None

        return launched


def _shortened(tallies: Iterable[tuple[str, _Tally]]) -> dict[str, Total]:
    """Return totals by short name: many templates share one."""
    found: dict[str, _Tally] = {}
    for name, tally in tallies:
        one = found.setdefault(short(name) or _OTHERS, _Tally())
        one.number += tally.number
        one.nanoseconds += tally.nanoseconds
        one.bytes += tally.bytes
    return {name: tally.total() for name, tally in found.items()}


class _Sweep:
    """Goes through the intervals of one GPU by start, and sums up what runs at each moment.

    `times` are nanoseconds by the set of levels that are at work, as bits.
    """

    def __init__(self, begin: int, launched: Callable[[int], int | None]) -> None:
        self.times = [0] * 16
        self.gaps = 0
        self.starved = 0
        self.known = 0
        self._launched = launched
        self._now = begin
        self._running: list[tuple[int, int]] = []
        self._counts = [0] * 9
        self._mask = 0
        self._idle_from: array[int] = array("q")
        self._idle_to: array[int] = array("q")
        self._first_launch: array[int] = array("q")

    def add(self, start: int, end: int, kind: int, link: int) -> None:
        """Take the next interval."""
        self._go_to(start)
        if not self._running and (start > self._now or not self._idle_to):
            self._gap(start)
        self._now = start
        level = _LEVEL[kind]
        heapq.heappush(self._running, (end, level))
        self._counts[level] += 1
        self._mask |= level
        when = self._launched(link)
        if when is None:
            return
        self.known += level != 8
        # A call may return after its kernel has begun.
        self._first_launch[-1] = min(self._first_launch[-1], when, start)

    def finish(self, end: int) -> None:
        """Close the span, and find out when the GPU was starved."""
        self._go_to(end)
        if end > self._now:
            self._gap(end)
        earliest = _NEVER
        for at in range(len(self._idle_to) - 1, -1, -1):
            earliest = min(earliest, self._first_launch[at])
            begin, last = self._idle_from[at], self._idle_to[at]
            self.starved += max(0, min(last, earliest) - begin)
            self.gaps += last > begin

    def _go_to(self, when: int) -> None:
        """Let all end that ends until then; idle time after it is left to `_gap`."""
        while self._running and self._running[0][0] <= when:
            end, level = heapq.heappop(self._running)
            self.times[self._mask] += end - self._now
            self._now = end
            self._counts[level] -= 1
            if not self._counts[level]:
                self._mask ^= level
        if self._running:
            self.times[self._mask] += when - self._now
            self._now = when

    def _gap(self, until: int) -> None:
        """Note idle time; what is launched for the work after it will be noted with it."""
        self.times[0] += until - self._now
        self._idle_from.append(self._now)
        self._idle_to.append(until)
        self._first_launch.append(_NEVER)
        self._now = until
