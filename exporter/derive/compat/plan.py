"""From the series of one round to what becomes of them, and from values to samples.

Values change each second, series seldom. So the work is in two parts: a plan, made when the series
change, says for each foreign series where its value is and how it is converted; each round only
goes through the plan.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from exporter import catalogue as c
from exporter.derive.compat.rows import Native, Row
from exporter.derive.memory import Memory
from exporter.samples import Metric, Sample, Shape, SourceView

RATE_SECONDS = 0.9
"""What a rate is measured over, at least, where readings come more often."""

_LONGEST = 300.0
_SAME_READING = 0.01  # an age is a difference of floats: the same reading seems to move a little
_POINTS = 16
_MOST_GPUS = 64

Labels = tuple[str, ...]
Key = tuple[str, str]
"""Index and UUID of a GPU."""

Place = tuple[int, int]
"""Where a value is: which source of the round, and which value of its batch."""


class Gpu(NamedTuple):
    """A GPU: index, UUID, what `gpu_info` says of it, and the profile of each instance."""

    gpu: str
    uuid: str
    info: Mapping[str, str]
    profiles: Mapping[str, str]


class Board:
    """Which series there are, without their values: an index of the shapes of one round.

    Of a series that two sources have, the first counts. `known` are the GPUs of former rounds: one
    that is lost no longer says what it is, but its last XID must be told under its own name.
    """

    def __init__(self, shapes: Sequence[Shape], known: dict[Key, Mapping[str, str]]) -> None:
        self._shapes = shapes
        self._known = known
        self._profiles: dict[Key, dict[str, str]] = {}
        self.present: dict[Key, Mapping[str, str]] = {}
        for labels, _ in self.series(c.GPU_INFO):
            info = dict(zip(c.GPU_INFO.labels, labels, strict=True))
            self.present.setdefault((info["gpu"], info["uuid"]), info)
        known.update(self.present)
        for key in list(known)[: max(0, len(known) - _MOST_GPUS)]:
            del known[key]
        for labels, _ in self.series(c.GPU_MIG_INFO):
            told = dict(zip(c.GPU_MIG_INFO.labels, labels, strict=True))
            profiles = self._profiles.setdefault((told["gpu"], told["uuid"]), {})
            # "1c.3g.71gb" is a compute instance that has a part of its GPU instance.
            profiles.setdefault(told["mig"], re.sub(r"^\d+c\.", "", told["profile"]))

    def series(self, metric: Metric) -> Iterator[tuple[Labels, Place]]:
        """Yield each series of a family once, and where its value is."""
        seen: set[Labels] = set()
        for at, shape in enumerate(self._shapes):
            for i in shape.families.get(metric, ()):
                labels = shape.labels[i]
                if labels not in seen:
                    seen.add(labels)
                    yield labels, (at, i)

    def of_gpus(self, native: Native) -> dict[Key, Place]:
        """Return where each GPU has this series."""
        return {
            (labels[0], labels[1]): place
            for labels, place in self.series(native.metric)
            if labels[2:] == native.labels
        }

    def of_instances(self, metric: Metric | None) -> dict[tuple[Key, str], Place]:
        """Return where each GPU instance has a series of the family."""
        if metric is None:
            return {}
        return {((labels[0], labels[1]), labels[2]): place for labels, place in self.series(metric)}

    def xids(self, metric: Metric) -> Iterator[tuple[Key, str, Place]]:
        """Yield GPU and code of each series of a family of XIDs."""
        for labels, place in self.series(metric):
            gpu, uuid, _, xid = labels[:4]
            if xid.isdecimal():
                yield (gpu, uuid), xid, place

    def gpu(self, key: Key) -> Gpu:
        """Return what is known of a GPU."""
        return Gpu(*key, self._known.get(key, {}), self._profiles.get(key, {}))


class Moment(NamedTuple):
    """One round: the values of each source, when they were read, and what is remembered."""

    values: Sequence[Sequence[float]]
    taken: Sequence[float]
    memory: Memory
    now: float

    def value(self, place: Place) -> float:
        """Return the value at a place."""
        return self.values[place[0]][place[1]]


class Entry(Protocol):
    """A series that is more than one value of ours."""

    def samples(self, moment: Moment) -> Iterator[Sample]:
        """Yield it, if there is one at this moment."""


class One(NamedTuple):
    """A series that is one value of ours, converted."""

    family: Metric
    labels: Labels
    source: int
    place: int
    convert: Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Weighted:
    """A sum of values, each with a weight."""

    family: Metric
    labels: Labels
    places: tuple[Place, ...]
    weights: tuple[int, ...]

    def samples(self, moment: Moment) -> Iterator[Sample]:
        """Yield the sum."""
        total = sum(map(operator.mul, map(moment.value, self.places), self.weights))
        if math.isfinite(total):
            yield Sample(self.family, self.labels, total)


@dataclass(frozen=True, slots=True)
class Combined:
    """Several values as one: their sum, or the latest of them. Nothing while that is zero."""

    family: Metric
    labels: Labels
    places: tuple[Place, ...]
    combine: Callable[[Iterable[float]], float]

    def samples(self, moment: Moment) -> Iterator[Sample]:
        """Yield the combined value."""
        value = self.combine(map(moment.value, self.places))
        if value:
            yield Sample(self.family, self.labels, value)


@dataclass(frozen=True, slots=True)
class Latest:
    """The number that was seen last, as the value; 0 under the labels `none` if there was none.

    `choices` are when each was seen, the number, and the labels that come with it.
    """

    family: Metric
    none: Labels
    choices: tuple[tuple[Place, int, Labels], ...]

    def samples(self, moment: Moment) -> Iterator[Sample]:
        """Yield the number."""
        seen = [(moment.value(place), number, labels) for place, number, labels in self.choices]
        _, number, labels = max(seen, default=(0.0, 0, self.none))
        yield Sample(self.family, labels, number)


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast counters grow, added up. None until there are two readings, and after a reset."""

    family: Metric
    labels: Labels
    counters: tuple[tuple[Place, Labels], ...]
    convert: Callable[[float], float]

    def samples(self, moment: Moment) -> Iterator[Sample]:
        """Yield the rate."""
        rates = [_growth(moment, place, name) for place, name in self.counters]
        known = [rate for rate in rates if rate is not None]
        if len(known) == len(rates):
            yield Sample(self.family, self.labels, self.convert(sum(known)))


def _growth(moment: Moment, place: Place, name: Labels) -> float | None:
    """Return the growth per second of a counter since its reading of about a second ago."""
    window = moment.memory.window(*name, seconds=_LONGEST, most=_POINTS)
    taken, value = moment.taken[place[0]], moment.value(place)
    points = window.since(moment.now)
    if not points or taken - points[-1][0] > _SAME_READING:
        window.add(taken, value)
        points.append((taken, value))
    if len(points) < 2:
        return None
    ended, last = points[-1]
    began, first = next(
        (point for point in reversed(points[:-1]) if ended - point[0] >= RATE_SECONDS), points[0]
    )
    return (last - first) / (ended - began) if last >= first else None


class Column(NamedTuple):
    """Series of one source that are converted alike: hundreds of values are picked in one call."""

    families: Sequence[Metric]
    labels: Sequence[Labels]
    source: int
    pick: Callable[[Sequence[float]], Sequence[float]]
    convert: Callable[[float], float]

    def samples(self, values: Sequence[Sequence[float]]) -> Iterable[Sample]:
        """Return a sample for each value that is a number."""
        picked = self.pick(values[self.source])
        convert = self.convert
        if math.isfinite(sum(picked)):
            return map(Sample, self.families, self.labels, map(convert, picked))
        rows = zip(self.families, self.labels, picked, strict=True)
        return (Sample(f, labels, convert(v)) for f, labels, v in rows if math.isfinite(v))


@dataclass(slots=True)
class Plan:
    """What becomes of the series of one round."""

    ones: list[One] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    fixed: list[Sample] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)

    def settle(self) -> None:
        """Put single values together that can be converted together."""
        alike: dict[tuple[int, Callable[[float], float]], list[One]] = {}
        for one in self.ones:
            alike.setdefault((one.source, one.convert), []).append(one)
        self.columns = [
            Column(
                tuple(one.family for one in some),
                tuple(one.labels for one in some),
                source,
                _picker([one.place for one in some]),
                convert,
            )
            for (source, convert), some in alike.items()
        ]

    def samples(self, moment: Moment) -> list[Sample]:
        """Return the samples of this round."""
        found = self.fixed.copy()
        for column in self.columns:
            found.extend(column.samples(moment.values))
        for entry in self.entries:
            found.extend(entry.samples(moment))
        return found


def _picker(places: Sequence[int]) -> Callable[[Sequence[float]], Sequence[float]]:
    if len(places) == 1:
        (only,) = places
        return lambda values: (values[only],)
    return operator.itemgetter(*places)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one exporter says.

    `rows` are the families of the table; `more` are those that no row makes, each with what it is
    made of: in words, and as families of ours. `labels` returns the labels of a family for a GPU,
    or for an instance of it. `add` adds to a plan what no row makes, `health` returns what is said
    about the reading itself.
    """

    name: str
    rows: Sequence[Row]
    more: Mapping[Metric, tuple[str, tuple[Metric, ...]]]
    labels: Callable[[Metric, Gpu, str], Labels]
    add: Callable[[Board, Plan], None]
    health: Callable[[Sequence[SourceView]], Iterable[Sample]] = lambda _: ()


def planned(dialect: Dialect, board: Board) -> Plan:
    """Return what becomes of the board's series in a dialect."""
    plan = Plan()
    for row in dialect.rows:
        done = _add_instances(row, dialect, board, plan)
        if row.weights:
            _add_weighted(row, dialect, board, plan)
        else:
            done |= _add_values(row, dialect, board, plan, done)
            _add_rates(row, dialect, board, plan, done)
    dialect.add(board, plan)
    plan.settle()
    return plan


def _add_instances(row: Row, dialect: Dialect, board: Board, plan: Plan) -> set[Key]:
    instances = board.of_instances(row.instance)
    for (key, mig), place in instances.items():
        labels = dialect.labels(row.family, board.gpu(key), mig)
        plan.ones.append(One(row.family, labels, *place, row.scale.convert))
    return {key for key, _ in instances}


def _add_values(row: Row, dialect: Dialect, board: Board, plan: Plan, done: set[Key]) -> set[Key]:
    places: dict[Key, Place] = {}
    for native in row.natives:
        for key, place in board.of_gpus(native).items():
            places.setdefault(key, place)
    for key, place in places.items():
        if key not in done:
            labels = dialect.labels(row.family, board.gpu(key), "")
            plan.ones.append(One(row.family, labels, *place, row.scale.convert))
    return places.keys() - done


def _add_weighted(row: Row, dialect: Dialect, board: Board, plan: Plan) -> None:
    found = [board.of_gpus(native) for native in row.natives]
    for key in _in_all(found):
        labels = dialect.labels(row.family, board.gpu(key), "")
        places = tuple(one[key] for one in found)
        plan.entries.append(Weighted(row.family, labels, places, row.weights))


def _add_rates(row: Row, dialect: Dialect, board: Board, plan: Plan, done: set[Key]) -> None:
    found = [board.of_gpus(native) for native in row.counters]
    names = [native.metric.name for native in row.counters]
    for key in _in_all(found):
        if key not in done:
            labels = dialect.labels(row.family, board.gpu(key), "")
            counters = tuple(
                (one[key], (name, *key)) for one, name in zip(found, names, strict=True)
            )
            plan.entries.append(Rate(row.family, labels, counters, row.scale.convert))


def _in_all(found: Sequence[Mapping[Key, Place]]) -> list[Key]:
    """Return the GPUs that have every one of these series, in the order of the first."""
    return [key for key in found[0] if all(key in one for one in found)] if found else []
