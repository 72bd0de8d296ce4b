"""One source's counters, histograms and gauges over the last hour; `book` says what for.

All series of a source lie in one row of numbers, the totals since the source was first seen: a
counter takes one place, a histogram one for each bucket (cumulative) and one for its sum, a gauge
two, its integral over time and the time it was seen for. A slot is a copy of that row. So what a
window brought is one subtraction of rows, and an hour of a server's series is some 300 KB.
"""

from __future__ import annotations

import base64
import math
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import add, sub
from typing import Any, NamedTuple

from exporter import catalogue as c
from exporter.derive.serving.increase import Increase, rounding
from exporter.derive.serving.quantiles import flaw
from exporter.samples import Batch, Histogram, Metric, Shape

WINDOWS: Mapping[str, float] = {"1m": 60.0, "5m": 300.0, "30m": 1800.0, "1h": 3600.0}
"""The windows, in seconds."""

STEP = "step"
"""The window since whoever counts steps has last turned the page."""

KEPT = 3960.0
"""Seconds after its last reading for which a source is remembered: an hour and a few slots."""

_FINE, _COARSE, _FINE_FOR = 4.5, 29.5, 330.0
"""Least seconds between slots, the same beyond five minutes, and for how long slots stay fine."""

_GAP = 60.0
"""Seconds without a reading after which a gauge is not taken to have stayed as it was."""

_MOST = 20_000
"""Places that a source may have; beyond it everything begins anew."""

_ABOUT = frozenset((c.LLM_SERVER_INFO, c.LLM_SERVER_START_TIME_SECONDS, c.LLM_SERVER_RANKS))
_NEVER = -math.inf

Series = tuple[Metric, tuple[str, ...]]


class Entity(NamedTuple):
    """Who serves: a model at a server. Parts that are unknown are empty."""

    model_name: str
    model_version: str
    engine: str
    server: str


_ENTITY = Entity._fields


class Spot(NamedTuple):
    """Where a series is kept: its first place in the row, its bounds; the number of a gauge."""

    at: int
    bounds: tuple[float, ...] = ()
    gauge: int = -1


class _Slot(NamedTuple):
    """The row at one moment, and how high each gauge went since the slot before."""

    taken: float
    row: array[float]
    highs: list[float]


class _Section(NamedTuple):
    """What a window brought: by how much each place has grown, and over how many seconds."""

    grown: list[float] | None
    seconds: float


class _Plan(NamedTuple):
    """Where the values of a batch go: positions in the batch, and spots."""

    shape: Shape
    counters: tuple[tuple[int, Spot], ...]
    histograms: tuple[tuple[int, Spot], ...]
    gauges: tuple[tuple[int, Spot, Series], ...]
    start: int | None
    ranks: int | None


class Track:
    """What one source has told; times are monotonic seconds. `wanted` are the families kept.

    After `read`, `restarted` and `anomalies` tell what was found.
    """

    def __init__(self, wanted: frozenset[Metric]) -> None:
        self._wanted = wanted
        self.server = ""
        self.taken = _NEVER
        self.batch: Batch | None = None
        self.entities: tuple[Entity, ...] = ()
        self.spots: dict[Series, Spot] = {}
        self.families: dict[Metric, list[tuple[tuple[str, ...], Spot]]] = {}
        self.present: dict[Series, float] = {}
        self.restarted = False
        self.anomalies: list[str] = []
        self._plan = _Plan(Shape((), ()), (), (), (), None, None)
        self._partial = False
        self._start: float | None = None
        self._ranks: float | None = None
        self._last: list[float] = []
        self._row: array[float] = array("d")
        self._gauges = 0
        self._highs: list[float] = []
        self._fine: deque[_Slot] = deque()
        self._coarse: deque[_Slot] = deque()
        self._pending: list[float] = []
        self._turned = _Slot(_NEVER, array("d"), [])
        self._others: list[slice] = []
        self._sections: dict[str, _Section] = {}

    # ------------------------------------------------------------ taking a reading

    def turn(self) -> None:
        """Begin the window `STEP`: it holds what comes from here on."""
        if self._turned.taken != self.taken:
            self._turned = _Slot(self.taken, self._row[:], [])
            self._sections.pop(STEP, None)

    def read(self, batch: Batch, taken: float, *, partial: bool) -> bool:
        """Take a reading; tell whether there are other series than before.

        Of a `partial` one what is missing may still be there.
        """
        self.restarted, self.anomalies, self._sections = False, [], {}
        known, first = len(self._last), self.taken == _NEVER
        other = self._settle(batch)
        raw = self._raw(batch)
        if first or self._partial:
            self._others.append(slice(0 if first else known, None))
        for places in self._others:
            self._last[places] = raw[places]
        self._others.clear()
        self._add(raw, batch)
        self._look_at_gauges(batch, taken)
        self.batch, self.taken, self._partial = batch, taken, partial
        if first:
            self.turn()
        self._keep()
        return other

    def _settle(self, batch: Batch) -> bool:
        """Find out where the values of the batch go; tell whether that is news."""
        if batch.shape is self._plan.shape and all(
            batch.values[at].bounds == spot.bounds  # type: ignore[union-attr]
            for at, spot in self._plan.histograms
        ):
            return False
        shape = batch.shape
        counters, histograms, gauges = [], [], []
        for at, (metric, labels) in enumerate(zip(shape.metrics, shape.labels, strict=True)):
            if metric not in self._wanted or metric in _ABOUT:
                continue
            series = metric, labels
            value = batch.values[at]
            if isinstance(value, Histogram):
                histograms.append((at, self._spot(series, value.bounds, len(value.counts) + 1)))
            elif metric.kind == "counter":
                counters.append((at, self._spot(series, (), 1)))
            else:
                gauges.append((at, self._spot(series, (), 2), series))
        self._plan = _Plan(
            shape, tuple(counters), tuple(histograms), tuple(gauges),
            _only(shape, c.LLM_SERVER_START_TIME_SECONDS), _only(shape, c.LLM_SERVER_RANKS),
        )  # fmt: skip
        self._sort()
        self._name(shape)
        return True

    def _spot(self, series: Series, bounds: tuple[float, ...], size: int) -> Spot:
        """Return where a series is kept: a new place if it is new, or has other bounds now."""
        spot = self.spots.get(series)
        if spot is not None and spot.bounds == bounds:
            return spot
        number = -1
        if series[0].kind == "gauge":
            number, self._gauges = self._gauges, self._gauges + 1
            self._highs.append(_NEVER)
        new = Spot(len(self._last), bounds, number)
        if spot is not None:
            # A series that comes into being counts from zero; this one has a past.
            self.anomalies.append("layout")
            self._others.append(slice(new.at, new.at + size))
        self._last += [0.0] * size
        self._row.extend([0.0] * size)
        self.spots[series] = new
        return new

    def _sort(self) -> None:
        self.families = {}
        for (metric, labels), spot in self.spots.items():
            self.families.setdefault(metric, []).append((labels, spot))

    def _name(self, shape: Shape) -> None:
        """Find out whose page this is, and which models there are."""
        info = _only(shape, c.LLM_SERVER_INFO)
        if info is not None:
            self.server = shape.labels[info][c.LLM_SERVER_INFO.labels.index("server")]
        found = (
            tuple(labels[metric.labels.index(name)] for name in _ENTITY)
            for metric, labels in zip(shape.metrics, shape.labels, strict=True)
            if metric in self._wanted and "model_name" in metric.labels
        )
        self.entities = tuple(dict.fromkeys(map(Entity._make, found)))

    def _raw(self, batch: Batch) -> list[float]:
        """Return the row of the page's own values; what it lacks is as it was."""
        raw, values = self._last[:], batch.values
        for at, spot in self._plan.counters:
            raw[spot.at] = values[at]  # type: ignore[assignment]
        for at, spot in self._plan.histograms:
            histogram: Histogram = values[at]  # type: ignore[assignment]
            end = spot.at + len(histogram.counts)
            raw[spot.at : end] = histogram.counts
            raw[end] = histogram.sum
        return raw

    def _add(self, raw: list[float], batch: Batch) -> None:
        """Add what has come since the last reading to the row."""
        start, ranks = _value(batch, self._plan.start), _value(batch, self._plan.ranks)
        former, self._start = self._start, start if start is not None else self._start
        told = start is not None and former is not None
        again = start is not None and former is not None and start > former + 1
        moved = None not in (ranks, self._ranks) and ranks != self._ranks
        self._ranks = ranks if ranks is not None else self._ranks
        if raw == self._last and not again:
            return
        if not again and moved:
            self.anomalies.append("ranks")
            self._last = raw
            return
        more = list(map(sub, raw, self._last))
        if again or (not told and min(map(more.__getitem__, self._ends()), default=0) < 0):
            self.restarted = True
            self._last = [0.0] * len(raw)
            more = raw = self._raw(batch)
        self._sift(more, raw)
        self._row = array("d", map(add, self._row, more))
        self._last = raw

    def _ends(self) -> Iterator[int]:
        """Yield the places of all counters and of all histograms' counts."""
        for _, spot in self._plan.counters:
            yield spot.at
        for _, spot in self._plan.histograms:
            yield spot.at + len(spot.bounds)

    def _sift(self, more: list[float], raw: Sequence[float]) -> None:
        """Take out what makes no sense."""
        for _, spot in self._plan.counters:
            if not more[spot.at] >= 0:
                more[spot.at] = 0.0
                self.anomalies.append("decrease")
        for _, spot in self._plan.histograms:
            end = spot.at + len(spot.bounds) + 1
            grown = more[spot.at : end + 1]
            if not any(grown):
                continue
            wrong = flaw(*grown_by(spot.bounds, grown, raw[end]))
            if wrong is None:
                continue
            self.anomalies.append(wrong)
            # A page may be written between the sum and the bucket of an observation: the next
            # reading makes up for that. A sum that falls never comes back (a clock was set back).
            if wrong == "buckets" or not grown[-1] >= 0:
                more[spot.at : end + 1] = [0.0] * len(grown)

    def _look_at_gauges(self, batch: Batch, taken: float) -> None:
        """Add to the gauges' integrals what they were on average since the last reading."""
        passed = taken - self.taken
        present: dict[Series, float] = {}
        for at, spot, series in self._plan.gauges:
            value: float = batch.values[at]  # type: ignore[assignment]
            if not math.isfinite(value):
                continue
            present[series] = value
            self._highs[spot.gauge] = max(self._highs[spot.gauge], value)
            former = self.present.get(series)
            if former is not None and passed <= _GAP:
                self._row[spot.at] += (former + value) / 2 * passed
                self._row[spot.at + 1] += passed
        self.present = present

    def _keep(self) -> None:
        """Make a slot of the row if it is time, and thin out old slots."""
        if self._fine and self.taken - self._fine[-1].taken < _FINE:
            return
        self._fine.append(_Slot(self.taken, self._row[:], self._highs))
        self._highs = [_NEVER] * self._gauges
        for _, spot, series in self._plan.gauges:
            self._highs[spot.gauge] = self.present.get(series, _NEVER)
        while self.taken - self._fine[0].taken > _FINE_FOR:
            self._thin(self._fine.popleft())
        while self._coarse and self.taken - self._coarse[0].taken > KEPT:
            self._coarse.popleft()

    def _thin(self, slot: _Slot) -> None:
        """Keep a slot for the longer windows, or only how high its gauges were."""
        highs = _highest(self._pending, slot.highs)
        if self._coarse and slot.taken - self._coarse[-1].taken < _COARSE:
            self._pending = highs
        else:
            self._coarse.append(slot._replace(highs=highs))
            self._pending = []

    # ------------------------------------------------------------ looking back

    def histogram(self, spot: Spot, window: str, now: float) -> Increase | None:
        """Return the observations of a window."""
        grown, end = self.grown(window, now), spot.at + len(spot.bounds) + 2
        if grown is None:
            return None
        total = abs(self._last[end - 1]) + abs(self._row[end - 1])
        return grown_by(spot.bounds, grown[spot.at : end], total)

    def grown(self, window: str, now: float) -> list[float] | None:
        """Return by how much each place has grown over a window; nothing without two readings."""
        return self._section(window, now).grown

    def span(self, window: str, now: float) -> float:
        """Return the time between the first and the last reading of a window, in seconds."""
        return self._section(window, now).seconds

    def highest(self, gauge: int, window: str, now: float) -> float:
        """Return the most that was seen of a gauge over a window."""
        begin = self.taken - self.span(window, now)
        rows = [slot.highs for slot in self._slots() if slot.taken > begin]
        if self._fine and begin < self._fine[0].taken:
            rows.append(self._pending)
        return max([self._highs[gauge], *(row[gauge] for row in rows if gauge < len(row))])

    def _section(self, window: str, now: float) -> _Section:
        silent = now - self.taken > _GAP
        section = self._sections.get(window)
        if section is None or silent:
            # Of a source that tells nothing any more, what it told moves out of the window.
            slot = self._reference(window, now if silent else self.taken)
            if slot is None or (slot.taken >= self.taken and not silent):
                section = _Section(None, 0.0)
            else:
                more = list(map(sub, self._row, slot.row))
                more += self._row[len(more) :]
                section = _Section(more, self.taken - slot.taken)
            self._sections[window] = section
        return section

    def _reference(self, window: str, end: float) -> _Slot | None:
        """Return the last slot before a window, or the first there is."""
        if window == STEP:
            return self._turned if self._turned.taken != _NEVER else None
        begin = end - WINDOWS[window] + 1e-6
        best: _Slot | None = None
        for slots in (self._fine, self._coarse):
            for slot in reversed(slots):
                if slot.taken <= begin:
                    return slot
                best = slot
        return best

    def _slots(self) -> Iterator[_Slot]:
        yield from self._coarse
        yield from self._fine

    # ------------------------------------------------------------ beyond our own end

    def memory(self, now: float) -> dict[str, Any]:
        """Return all that is remembered as plain values, in slots of half a minute."""
        slots: list[_Slot] = []
        for slot in (*self._slots(), _Slot(self.taken, self._row, self._highs)):
            if not slots or slot.taken - slots[-1].taken >= _COARSE or slot.taken == self.taken:
                slots.append(slot)
        width = len(self._row)
        rows = array("d")
        for slot in slots:
            rows.extend(slot.row)
            rows.extend([0.0] * (width - len(slot.row)))
        return {
            "server": self.server,
            "entities": [list(entity) for entity in self.entities],
            "age": now - self.taken,
            "start": self._start,
            "ranks": self._ranks,
            "series": [[m.name, *labels] for m, labels in self.spots],
            "spots": [[spot.at, list(spot.bounds)] for spot in self.spots.values()],
            "last": _packed(array("d", self._last)),
            "rows": _packed(rows),
            "turned": _packed(self._turned.row),
            "turned_age": now - self._turned.taken,
            "ages": [now - slot.taken for slot in slots],
            "highs": [[_told(h) for h in slot.highs] for slot in slots],
        }

    @property
    def full(self) -> bool:
        """Whether there have been too many series to go on with them."""
        return len(self._last) > _MOST

    @classmethod
    def restored(cls, wanted: frozenset[Metric], memory: Mapping[str, Any], then: float) -> Track:
        """Return a track as `memory` told it at `then`.

        Raises `KeyError`, `TypeError` or `ValueError` if that makes no sense.
        """
        track = cls(wanted)
        track.server, track.taken = str(memory["server"]), then - float(memory["age"])
        track.entities = tuple(Entity(*map(str, entity)) for entity in memory["entities"])
        track._start, track._ranks = _number(memory["start"]), _number(memory["ranks"])
        track._last = list(_unpacked(memory["last"]))
        for (name, *labels), (at, bounds) in zip(memory["series"], memory["spots"], strict=True):
            track._remember((c.FAMILIES[name], tuple(map(str, labels))), int(at), bounds)
        width, rows = len(track._last), _unpacked(memory["rows"])
        ages, highs = memory["ages"], memory["highs"]
        if not ages or len(rows) != width * len(ages):
            raise ValueError("the rows are of another length")
        for number, (age, high) in enumerate(zip(ages, highs, strict=True)):
            row = rows[number * width : (number + 1) * width]
            track._fine.append(_Slot(then - float(age), row, [_heard(h) for h in high]))
        track._row = track._fine[-1].row[:]
        turned = _unpacked(memory["turned"])
        if len(turned) > width:
            raise ValueError("the row of the last turn is of another length")
        track._turned = _Slot(then - float(memory["turned_age"]), turned, [])
        track._highs = [_NEVER] * track._gauges
        track._sort()
        return track

    def _remember(self, series: Series, at: int, bounds: Iterable[float]) -> None:
        metric, labels = series
        limits = tuple(map(float, bounds))
        size = {"counter": 1, "histogram": len(limits) + 2}.get(metric.kind, 2)
        fits = metric in self._wanted and len(labels) == len(metric.labels)
        if not fits or not 0 <= at <= len(self._last) - size:
            raise ValueError(f"{metric.name}: not as it was written")
        number = -1
        if metric.kind == "gauge":
            number, self._gauges = self._gauges, self._gauges + 1
        self.spots[series] = Spot(at, limits, number)


def grown_by(bounds: tuple[float, ...], grown: Sequence[float], total: float) -> Increase:
    """Return the increase of a histogram that has `grown` (cumulative counts, then the sum).

    `total` is the sum up to now: adding each observation to it may have rounded.
    """
    below, more = grown[:-1], grown[-1]
    counts = (below[0], *map(sub, below[1:], below[:-1]))
    return Increase(bounds, counts, more, rounding(total, below[-1]))


def _only(shape: Shape, metric: Metric) -> int | None:
    """Return the place of the first series of a family."""
    return next(iter(shape.families.get(metric, ())), None)


def _value(batch: Batch, at: int | None) -> float | None:
    value = None if at is None else batch.values[at]
    return None if isinstance(value, Histogram) else value


def _highest(one: Sequence[float], other: Sequence[float]) -> list[float]:
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    return [*map(max, longer, shorter), *longer[len(shorter) :]]


def _packed(numbers: array[float]) -> str:
    return base64.b64encode(zlib.compress(numbers.tobytes(), 1)).decode("ascii")


def _unpacked(text: str) -> array[float]:
    numbers = array("d")
    try:
        numbers.frombytes(zlib.decompress(base64.b64decode(text, validate=True)))
    except zlib.error as error:
        raise ValueError(f"damaged: {error}") from None
    return numbers


def _told(high: float) -> float | None:
    return None if high == _NEVER else high


def _heard(high: object) -> float:
    return _NEVER if high is None else float(high)  # type: ignore[arg-type]


def _number(value: object) -> float | None:
    return None if value is None else float(value)  # type: ignore[arg-type]
