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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from operator import add, sub
from typing import Any, Literal, NamedTuple

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
"""Places that a source may have. Models that are gone make room, the longest gone first; if that
is not enough everything begins anew."""

_CLOCKS = 5.0
"""Seconds by which a server's wall clock may differ from ours."""

_YOUNG = 10.0
"""A process may be outdone by its successor between two readings if it lived at most so many
times as long as that took."""

_DEEP, _NEARLY_ALL = 0.5, 0.75
"""What began anew is at most this share of what it was; and this share of the counters did."""

_PATIENT, _LEAST_GAP, _FIRST_GAP = 4.0, 15.0, 120.0
"""A gap is longer than so many usual intervals, and than so many seconds; and the first one."""

_ABOUT = frozenset(
    (
        c.LLM_SERVER_INFO,
        c.LLM_SERVER_START_TIME_SECONDS,
        c.LLM_SERVER_RANKS,
        c.LLM_RANK_CHANGES_TOTAL,
    )
)
_NEVER = -math.inf

Series = tuple[Metric, tuple[str, ...]]


class Entity(NamedTuple):
    """Who serves: a model at a server. Parts that are unknown are empty."""

    model_name: str
    model_version: str
    engine: str
    server: str


_ENTITY = Entity._fields

_Unit = tuple[str, ...]
"""What begins anew as one: the labels of an entity; none is the page itself."""

_PAGE: _Unit = ()


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
    covered: float


class _Section(NamedTuple):
    """What a window brought: by how much each place has grown, over how many seconds, gaps and all.

    `covered` is how many seconds of the window there were readings for.
    """

    grown: list[float] | None
    seconds: float
    covered: float


_NOTHING = _Section(None, 0.0, 0.0)


class _Plan(NamedTuple):
    """Where the values of a batch go: positions in the batch, and spots."""

    shape: Shape
    counters: tuple[tuple[int, Spot], ...]
    histograms: tuple[tuple[int, Spot], ...]
    gauges: tuple[tuple[int, Spot, Series], ...]
    ends: Mapping[_Unit, Sequence[int]]
    start: int | None
    ranks: int | None
    moves: int | None


_NO_PLAN = _Plan(Shape((), ()), (), (), (), {}, None, None, None)


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
        self._plan = _NO_PLAN
        self._partial = False
        self._start: float | None = None
        self._newest: float | None = None
        self._ranks: float | None = None
        self._moves: float | None = None
        self._covered = 0.0
        self._intervals: deque[float] = deque(maxlen=8)
        self._units: set[_Unit] = set()
        self._left: dict[_Unit, float] = {}
        self._last: list[float] = []
        self._row: array[float] = array("d")
        self._gauges = 0
        self._highs: list[float] = []
        self._fine: deque[_Slot] = deque()
        self._coarse: deque[_Slot] = deque()
        self._pending: list[float] = []
        self._turned = _Slot(_NEVER, array("d"), [], 0.0)
        self._others: list[slice] = []
        self._sections: dict[str, _Section] = {}
        self._tops: dict[str, list[float]] = {}

    # ------------------------------------------------------------ taking a reading

    def turn(self) -> None:
        """Begin the window `STEP`: it holds what comes from here on."""
        if self._turned.taken != self.taken:
            self._turned = _Slot(self.taken, self._row[:], [], self._covered)
            self._sections.pop(STEP, None)

    def read(self, batch: Batch, taken: float, *, partial: bool, wall: float | None = None) -> bool:
        """Take a reading; tell whether there are other series than before.

        Of a `partial` one what is missing may still be there. `wall` is Unix seconds at `taken`.
        """
        self.restarted, self.anomalies, self._sections = False, [], {}
        self._tops = {}
        first, other = self.taken == _NEVER, not self._fits(batch)
        if other:
            self._make_room(batch, taken)
        known = len(self._last)
        if other:
            self._settle(batch)
        raw = self._raw(batch)
        if first or self._partial:
            self._others.append(slice(0 if first else known, None))
        for places in self._others:
            self._last[places] = raw[places]
        self._others.clear()
        self._add(raw, batch, taken - self.taken, wall)
        self._look_at_gauges(batch, taken)
        if not first:
            self._cover(taken - self.taken)
        self.batch, self.taken, self._partial = batch, taken, partial
        if first:
            self.turn()
        self._keep()
        return other

    def _fits(self, batch: Batch) -> bool:
        """Tell whether the values of the batch go where those of the last one went."""
        return batch.shape is self._plan.shape and all(
            batch.values[at].bounds == spot.bounds  # type: ignore[union-attr]
            for at, spot in self._plan.histograms
        )

    def _settle(self, batch: Batch) -> None:
        """Find out where the values of the batch go."""
        shape = batch.shape
        counters, histograms, gauges = [], [], []
        ends: dict[_Unit, list[int]] = {}
        for at, (metric, labels) in enumerate(zip(shape.metrics, shape.labels, strict=True)):
            if metric not in self._wanted or metric in _ABOUT:
                continue
            series = metric, labels
            value = batch.values[at]
            if isinstance(value, Histogram):
                spot = self._spot(series, value.bounds, len(value.counts) + 1)
                histograms.append((at, spot))
                ends.setdefault(_unit(series), []).append(spot.at + len(spot.bounds))
            elif metric.kind == "counter":
                spot = self._spot(series, (), 1)
                counters.append((at, spot))
                ends.setdefault(_unit(series), []).append(spot.at)
            else:
                gauges.append((at, self._spot(series, (), 2), series))
                ends.setdefault(_unit(series), [])
        self._plan = _Plan(
            shape, tuple(counters), tuple(histograms), tuple(gauges), ends,
            _only(shape, c.LLM_SERVER_START_TIME_SECONDS), _only(shape, c.LLM_SERVER_RANKS),
            _only(shape, c.LLM_RANK_CHANGES_TOTAL),
        )  # fmt: skip
        for unit in self._units - ends.keys() - self._left.keys():
            self._left[unit] = self.taken
        for unit in ends:
            self._left.pop(unit, None)
        self._units.update(ends.keys() - {_PAGE})
        self._sort()
        self._name(shape)

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
            self.anomalies.append("layout")
        if spot is not None or _unit(series) not in self._units | {_PAGE}:
            # A series that comes into being counts from zero, but for one that has a past, or may
            # have one: a model that is seen for the first time.
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

    def _add(self, raw: list[float], batch: Batch, passed: float, wall: float | None) -> None:
        """Add what has come in the seconds that `passed` since the last reading to the row."""
        said, moved = self._said_of_start(raw, batch, passed, wall), self._moved(batch)
        if raw == self._last and said != "new":
            return
        if said == "odd" or (moved and said != "new"):
            if said != "odd":
                self.anomalies.append("ranks")
            self._last = raw
            return
        begun = self._units | {_PAGE} if said == "new" else set()
        if said == "untold":
            begun = self._fallen(raw)
        if begun:
            self.restarted = True
            self._begin_anew(begun)
            raw = self._raw(batch)
        more = list(map(sub, raw, self._last))
        self._sift(more, raw)
        self._row = array("d", map(add, self._row, more))
        self._last = raw

    def _said_of_start(
        self, raw: Sequence[float], batch: Batch, passed: float, wall: float | None
    ) -> Literal["untold", "same", "new", "odd"]:
        """Return what the start time says: nothing, no restart, a restart, or nonsense."""
        start, former = _value(batch, self._plan.start), self._start
        if start is None:
            return "untold"
        self._start = start
        if former is None or self._newest is None:
            self._newest = start
            return "untold"
        if abs(start - former) <= 1:
            return "same"
        if start > self._newest + 1 and self._is_new(raw, start, former, passed, wall):
            self._newest = start
            return "new"
        self.anomalies.append("start")
        return "odd"

    def _is_new(
        self, raw: Sequence[float], start: float, former: float, passed: float, wall: float | None
    ) -> bool:
        """Tell whether a process of another start time began after the last reading.

        Its age is compared with the time that passed, not two wall times: a clock that is set
        makes no process younger. One that has counted nothing less than its predecessor is only
        believed where that had not long to count. Without our wall time the counters decide.
        """
        if wall is None:
            return bool(self._fallen(raw))
        if not -_CLOCKS <= wall - start <= passed + _CLOCKS:
            return False
        ends = list(self._ends())
        fell = any(raw[at] < self._last[at] for at in ends) or self.taken in self._left.values()
        lived = wall - passed - former
        return fell or lived <= _YOUNG * passed or not any(raw[at] for at in ends)

    def _moved(self, batch: Batch) -> bool:
        """Tell whether the page sums up others than before."""
        ranks, moves = _value(batch, self._plan.ranks), _value(batch, self._plan.moves)
        former, before = self._ranks, self._moves
        self._ranks = ranks if ranks is not None else former
        self._moves = moves if moves is not None else before
        other = ranks is not None and former is not None and ranks != former
        return other or (moves is not None and before is not None and moves > before)

    def _fallen(self, raw: Sequence[float]) -> set[_Unit]:
        """Return what began anew by its counters: nearly all that had counted fell deep."""
        last, found = self._last, set()
        for unit, ends in self._plan.ends.items():
            past = [at for at in ends if last[at] > 0]
            deep = sum(raw[at] <= _DEEP * last[at] for at in past)
            if past and deep >= _NEARLY_ALL * len(past):
                found.add(unit)
        return found

    def _begin_anew(self, units: Collection[_Unit]) -> None:
        for series, spot in self.spots.items():
            if _unit(series) in units:
                size = _size(series[0], spot.bounds)
                self._last[spot.at : spot.at + size] = [0.0] * size

    def _ends(self) -> Iterator[int]:
        """Yield the places of all counters and of all histograms' counts."""
        for places in self._plan.ends.values():
            yield from places

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

    def _cover(self, passed: float) -> None:
        """Note that there were readings, unless none came for far longer than usual."""
        usual = self._intervals
        longest = max(_LEAST_GAP, _PATIENT * min(usual)) if usual else _FIRST_GAP
        if passed <= longest:
            self._covered += passed
        usual.append(passed)

    def _keep(self) -> None:
        """Make a slot of the row if it is time, and thin out old slots."""
        if self._fine and self.taken - self._fine[-1].taken < _FINE:
            return
        self._fine.append(_Slot(self.taken, self._row[:], self._highs, self._covered))
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

    # ------------------------------------------------------------ making room

    def _make_room(self, batch: Batch, taken: float) -> None:
        """Drop the places of models gone for an hour, and of others if there is no room left."""
        sizes: dict[_Unit, int] = {}
        for series, spot in self.spots.items():
            unit = _unit(series)
            sizes[unit] = sizes.get(unit, 0) + _size(series[0], spot.bounds)
        gone = {unit for unit, left in self._left.items() if taken - left > KEPT}
        used = sum(sizes.values()) - sum(sizes[unit] for unit in gone)
        need = self._needed(batch)
        for unit in sorted(self._left, key=self._left.__getitem__):
            if used + need > _MOST * 3 // 4 and len(self._last) + need > _MOST and unit not in gone:
                gone.add(unit)
                used -= sizes[unit]
        # A quarter at a time: it is a copy of an hour.
        if len(self._last) + need > _MOST or used * 4 < len(self._last) * 3:
            self._drop(gone)

    def _needed(self, batch: Batch) -> int:
        """Return how many places a page has that were not seen before."""
        shape = batch.shape
        need = 0
        for series, value in zip(zip(shape.metrics, shape.labels, strict=True), batch.values,
                                 strict=True):  # fmt: skip
            if series[0] in self._wanted and series not in self.spots:
                need += _size(series[0], value.bounds if isinstance(value, Histogram) else ())
        return need

    def _drop(self, gone: Collection[_Unit]) -> None:
        """Take the places of some units, and those of nothing, out of all rows."""
        kept = {series: spot for series, spot in self.spots.items() if _unit(series) not in gone}
        runs: list[slice] = []
        places: dict[int, int] = {}
        width = 0
        for series, spot in sorted(kept.items(), key=lambda item: item[1].at):
            end = spot.at + _size(series[0], spot.bounds)
            places[spot.at], width = width, width + end - spot.at
            begin = runs.pop().start if runs and runs[-1].stop == spot.at else spot.at
            runs.append(slice(begin, end))
        gauges = sorted(spot.gauge for spot in kept.values() if spot.gauge >= 0)
        numbers = {number: new for new, number in enumerate(gauges)} | {-1: -1}
        self.spots = {
            series: Spot(places[spot.at], spot.bounds, numbers[spot.gauge])
            for series, spot in kept.items()
        }

        def moved(slot: _Slot) -> _Slot:
            return slot._replace(row=_picked(slot.row, runs), highs=_those(slot.highs, gauges))

        self._last = [number for run in runs for number in self._last[run]]
        self._row = _picked(self._row, runs)
        self._gauges, self._highs = len(gauges), _those(self._highs, gauges)
        self._pending = _those(self._pending, gauges)
        self._fine, self._coarse = deque(map(moved, self._fine)), deque(map(moved, self._coarse))
        self._turned = moved(self._turned)
        self._units.difference_update(gone)
        for unit in gone:
            self._left.pop(unit, None)
        self._plan = _NO_PLAN

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

    def covered(self, window: str, now: float) -> float:
        """Return for how many seconds of a window there were readings."""
        return self._section(window, now).covered

    def highest(self, gauge: int, window: str, now: float) -> float:
        """Return the most that was seen of a gauge over a window."""
        tops = self._tops.get(window)
        if tops is None or now - self.taken > _GAP:
            begin = self.taken - self.span(window, now)
            rows = [self._highs, *(slot.highs for slot in self._slots() if slot.taken > begin)]
            if self._fine and begin < self._fine[0].taken:
                rows.append(self._pending)
            # Rows from before a gauge came are shorter.
            tops = self._tops[window] = list(map(max, zip_longest(*rows, fillvalue=_NEVER)))
        return tops[gauge]

    def _section(self, window: str, now: float) -> _Section:
        silent = now - self.taken > _GAP
        section = self._sections.get(window)
        if section is None or silent:
            # Of a source that tells nothing any more, what it told moves out of the window.
            slot = self._reference(window, now if silent else self.taken)
            if slot is None or (slot.taken >= self.taken and not silent):
                section = _NOTHING
            else:
                more = list(map(sub, self._row, slot.row))
                more += self._row[len(more) :]
                seconds, covered = self.taken - slot.taken, self._covered - slot.covered
                before = max(0.0, seconds - WINDOWS.get(window, math.inf))
                section = _Section(more, seconds, max(0.0, covered - before))
            self._sections[window] = section
        return section

    def _reference(self, window: str, end: float) -> _Slot | None:
        """Return the last slot before a window, or the first there is.

        One that is twice as old as the window is long says nothing of it: there was a gap.
        """
        if window == STEP:
            return self._turned if self._turned.taken != _NEVER else None
        begin = end - WINDOWS[window] + 1e-6
        oldest = self.taken - 2 * WINDOWS[window]
        best: _Slot | None = None
        for slots in (self._fine, self._coarse):
            for slot in reversed(slots):
                if slot.taken <= begin:
                    return slot if slot.taken >= oldest else best
                best = slot
        return best

    def _slots(self) -> Iterator[_Slot]:
        yield from self._coarse
        yield from self._fine

    def _slot(self) -> _Slot:
        return _Slot(self.taken, self._row, self._highs, self._covered)

    # ------------------------------------------------------------ beyond our own end

    def memory(self, now: float) -> dict[str, Any]:
        """Return all that is remembered as plain values, in slots of half a minute."""
        slots: list[_Slot] = []
        for slot in (*self._slots(), self._slot()):
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
            "newest": self._newest,
            "ranks": self._ranks,
            "series": [[m.name, *labels] for m, labels in self.spots],
            "spots": [[spot.at, list(spot.bounds)] for spot in self.spots.values()],
            "last": _packed(array("d", self._last)),
            "rows": _packed(rows),
            "turned": _packed(self._turned.row),
            "turned_age": now - self._turned.taken,
            "turned_covered": self._turned.covered,
            "ages": [now - slot.taken for slot in slots],
            "covered": [slot.covered for slot in slots],
            "intervals": list(self._intervals),
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
        track._newest = _number(memory["newest"])
        track._last = list(_unpacked(memory["last"]))
        for (name, *labels), (at, bounds) in zip(memory["series"], memory["spots"], strict=True):
            track._remember((c.FAMILIES[name], tuple(map(str, labels))), int(at), bounds)
        width, rows = len(track._last), _unpacked(memory["rows"])
        ages, highs, covered = memory["ages"], memory["highs"], memory["covered"]
        if not ages or len(rows) != width * len(ages):
            raise ValueError("the rows are of another length")
        for number, (age, high, sure) in enumerate(zip(ages, highs, covered, strict=True)):
            row = rows[number * width : (number + 1) * width]
            heard = [_heard(h) for h in high]
            track._fine.append(_Slot(then - float(age), row, heard, float(sure)))
        track._covered = track._fine[-1].covered
        track._intervals.extend(map(float, memory["intervals"]))
        track._row = track._fine[-1].row[:]
        turned = _unpacked(memory["turned"])
        if len(turned) > width:
            raise ValueError("the row of the last turn is of another length")
        sure = float(memory["turned_covered"])
        track._turned = _Slot(then - float(memory["turned_age"]), turned, [], sure)
        track._highs = [_NEVER] * track._gauges
        track._units = set(map(_unit, track.spots)) - {_PAGE}
        track._sort()
        return track

    def _remember(self, series: Series, at: int, bounds: Iterable[float]) -> None:
        metric, labels = series
        limits = tuple(map(float, bounds))
        size = _size(metric, limits)
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


def _unit(series: Series) -> _Unit:
    """Return what a series begins anew with: its model at its server, or the page."""
    metric, labels = series
    if metric.labels == _ENTITY:
        return labels
    if "model_name" not in metric.labels:
        return _PAGE
    return tuple([labels[metric.labels.index(name)] for name in _ENTITY])


def _size(metric: Metric, bounds: Sequence[float]) -> int:
    """Return how many places a series takes."""
    return {"counter": 1, "histogram": len(bounds) + 2}.get(metric.kind, 2)


def _picked(row: array[float], runs: Iterable[slice]) -> array[float]:
    new = array("d")
    for run in runs:
        new += row[run]
    return new


def _those(highs: Sequence[float], numbers: Iterable[int]) -> list[float]:
    return [highs[number] for number in numbers if number < len(highs)]


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
