"""Turns the pages of one server into our metrics.

Fetching and reading pages is left to others; what is needed of a page is stated as protocols.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import add, itemgetter
from typing import NamedTuple, Protocol

from exporter import catalogue as c
from exporter.engines.engine import QUALITIES, Engine, Origin, Row, Weight, Zeros
from exporter.samples import Drop, Histogram, Metric, Sample, Value

MAX_MODELS = 64
"""Models kept apart for each server; the rest are summed as `other`."""


class SeriesLike(Protocol):
    """A series of a page: the sample's name and its labels."""

    @property
    def name(self) -> str:
        """The sample's name, suffix included."""

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """Pairs of name and value."""


class ShapeLike(Protocol):
    """The series of a page without values; one object as long as they stay the same."""

    @property
    def series(self) -> Sequence[SeriesLike]:
        """All series, in the order of the values."""

    @property
    def types(self) -> Mapping[str, str]:
        """The declared type by family name."""

    @property
    def index(self) -> Mapping[str, tuple[int, ...]]:
        """The positions of the series by sample name."""


class PageLike(Protocol):
    """A page that was read: a shape and one value for each of its series."""

    @property
    def shape(self) -> ShapeLike:
        """Which series there are."""

    @property
    def values(self) -> Sequence[float]:
        """Their values."""

    @property
    def damaged(self) -> bool:
        """Whether the page lost lines on its way, so that absence says nothing."""


# ---------------------------------------------------------------- from a page to samples


class Translator:
    """Turns the pages of one server into canonical samples.

    What a page's series mean is worked out once for each shape; after that a page costs a few
    look-ups and additions. Series that differ in no label of ours (the data-parallel ranks) are
    added up, bucket by bucket; of histograms whose bounds differ the common bounds stay.

    Left out: what is not a number (NaN, and negative values, with which engines say "unknown");
    a histogram that is not complete or whose observations are all zero (vllm#6337: they were never
    taken). A histogram that contradicts itself is left out and counted as a drop.

    Of a damaged page a sample is left out if it lacks a series that it was made of on the last
    whole page: a sum over ranks without one of them looks like a counter that began anew. What no
    whole page had is only shown if it is one series without the label of a rank. On a page that was
    cut between two lines, with nothing else to tell that it is damaged, a rank that is missing is
    taken to be gone: ranks do go, and where the length of a body is known `fetch` has refused a
    shorter one.

    `model_name` stands in where the page names no model. `model_version` is empty: no page has it.
    """

    def __init__(self, engine: Engine, server: str, model_name: str | None = None) -> None:
        self.engine = engine
        self._server = server
        self._model_name = model_name or ""
        self._models: dict[str, None] = {}
        self._shape: ShapeLike | None = None
        self._damaged = False
        self._plan = _Plan((), ())
        self._whole: Mapping[_Key, frozenset[SeriesLike]] = {}
        origins = [origin for row in engine.rows for origin in row.sources]
        self._understood = {"le", *engine.model_labels}.union(
            *(origin.where for origin in origins),
            *({rule.origin for rule in origin.labels.values()} for origin in origins),
        )
        self._info = c.LLM_SERVER_INFO(1, engine.name, server, "")

    def translate(self, page: PageLike) -> list[Sample | Drop]:
        """Return the samples of a page, and how many histograms or counters made no sense."""
        if page.shape is not self._shape or page.damaged is not self._damaged:
            self._plan = self._compile(page.shape, damaged=page.damaged)
            self._shape, self._damaged = page.shape, page.damaged
        values = page.values
        out: list[Sample | Drop] = [self._info]
        nonsense = 0
        for metric, cells, note in self._plan.metrics:
            before = len(out)
            for labels, read, _, _ in cells:
                try:
                    value = read(values)
                except (ValueError, OverflowError):
                    nonsense += 1
                    continue
                if value is not None:
                    out.append(Sample(metric, labels, value))
            if len(out) > before:
                out.append(note)
        out += self._plan.unresolved
        if nonsense:
            out.append(Drop("value", nonsense))
        return out

    def _compile(self, shape: ShapeLike, *, damaged: bool) -> _Plan:
        names = _Names(self.engine, shape)
        self._choose_models(shape, damaged=damaged)
        parts: dict[Metric, list[_Part]] = {}
        missing: dict[str, None] = {}
        for row in self.engine.rows:
            part = self._resolve(row, names)
            if part is not None:
                parts.setdefault(row.metric, []).append(part)
            elif not damaged and _owed(row, names):
                missing[row.metric.name] = None
        name, server = self.engine.name, self._server
        cells = {
            m: tuple(cell for part in found for cell in part.cells) for m, found in parts.items()
        }
        if damaged:
            cells = {m: tuple(self._certain(m, made, shape)) for m, made in cells.items()}
        else:
            self._whole = {
                (metric, cell.labels): _series(cell, shape)
                for metric, made in cells.items()
                for cell in made
            }
        return _Plan(
            tuple(
                (metric, cells[metric], self._note(metric, found))
                for metric, found in parts.items()
            ),
            tuple(c.LLM_MAPPING_UNRESOLVED(1, name, server, metric) for metric in missing),
        )

    def _certain(self, metric: Metric, cells: Iterable[_Cell], shape: ShapeLike) -> Iterator[_Cell]:
        """Yield the cells of a damaged page that have all that they are made of."""
        for cell in cells:
            whole, series = self._whole.get((metric, cell.labels)), _series(cell, shape)
            if series >= whole if whole is not None else self._is_alone(cell, series):
                yield cell

    def _is_alone(self, cell: _Cell, series: Iterable[SeriesLike]) -> bool:
        """Tell whether a cell is one series that no label makes one of several (such as a rank)."""
        labels = {label for one in series for label, _ in one.labels}
        return cell.parts == 1 and labels <= self._understood

    def _note(self, metric: Metric, parts: Sequence[_Part]) -> Sample:
        """Say once for each metric where it comes from; the worst part gives the quality."""
        quality = max((part.origin.quality for part in parts), key=QUALITIES.index)
        semantics = "; ".join(dict.fromkeys(part.origin.semantics for part in parts))
        source = ", ".join(dict.fromkeys(name for part in parts for name in part.names))
        name = self.engine.name
        return c.LLM_SOURCE_INFO(1, name, self._server, metric.name, quality, semantics, source)

    def _choose_models(self, shape: ShapeLike, *, damaged: bool) -> None:
        """Choose the models kept apart: those of before that are still there, then new ones.

        A damaged page does not tell that a model is gone.
        """
        present = dict.fromkeys(self._model(dict(series.labels)) for series in shape.series)
        kept = [model for model in self._models if damaged or model in present]
        new = [model for model in present if model and model not in self._models]
        self._models = dict.fromkeys([*kept, *new][:MAX_MODELS])

    def _model(self, labels: Mapping[str, str]) -> str:
        """Return the model that a series names, "" if it names none."""
        for label in self.engine.model_labels:
            model = labels.get(label)
            # TensorRT-LLM writes this word when it does not know (aibrix#2004).
            if model and model != "undefined":
                return model
        return ""

    def _resolve(self, row: Row, names: _Names) -> _Part | None:
        """Return the first alternative that the page can serve."""
        build = self._histograms if row.metric.kind == "histogram" else self._scalars
        for origin in row.sources:
            found = [names.find(n, row.metric.kind) for n in origin.names]
            whole = [name for name in found if name is not None]
            if len(whole) == len(found):
                cells = tuple(build(row.metric, origin, whole, names))
                if cells:
                    return _Part(origin, tuple(whole), cells)
        return None

    def _groups(
        self, metric: Metric, origin: Origin, names: _Names, sample: str
    ) -> dict[tuple[str, ...], list[int]]:
        """Return the positions of a sample name's series by the labels that they get from us."""
        groups: dict[tuple[str, ...], list[int]] = {}
        for position in names.index.get(sample, ()):
            theirs = names.labels(position)
            if not self.engine.foreign_labels.isdisjoint(theirs):
                continue
            if any(theirs.get(label) not in wanted for label, wanted in origin.where.items()):
                continue
            ours = self._labels(metric, origin, theirs)
            if ours is not None:
                groups.setdefault(ours, []).append(position)
        return groups

    def _labels(
        self, metric: Metric, origin: Origin, theirs: Mapping[str, str]
    ) -> tuple[str, ...] | None:
        values = {"model_version": "", "engine": self.engine.name, "server": self._server}
        if "model_name" in metric.labels:
            model = self._model(theirs)
            known = model in self._models
            values["model_name"] = model if known else "other" if model else self._model_name
        for label, rule in origin.labels.items():
            value = rule.constant if rule.constant is not None else theirs.get(rule.origin)
            if value is not None and rule.status_class:
                value = f"{value[0]}xx" if value[:1] in "12345" and len(value) == 3 else None
            if value is None:
                return None
            values[label] = value
        return tuple(map(values.__getitem__, metric.labels))

    def _scalars(
        self, metric: Metric, origin: Origin, whole: Sequence[str], names: _Names
    ) -> Iterator[_Cell]:
        groups = [self._groups(metric, origin, names, name) for name in whole]
        for labels in groups[0]:
            if not all(labels in group for group in groups):
                continue
            positions = [position for group in groups for position in group[labels]]
            weights, helpers = names.weights(origin.weight, positions)
            read = _scalar(origin, positions, weights, counter=metric.kind == "counter")
            yield _Cell(labels, read, (*positions, *helpers), len(positions))

    def _histograms(
        self, metric: Metric, origin: Origin, whole: Sequence[str], names: _Names
    ) -> Iterator[_Cell]:
        family = whole[0]
        for labels, positions in self._groups(metric, origin, names, f"{family}_bucket").items():
            ranks = [
                _rank(names, family, key, buckets, origin.zeros)
                for key, buckets in names.by_rank(positions).items()
            ]
            complete = [rank for rank in ranks if rank is not None]
            if len(complete) == len(ranks):
                used = [position for rank in complete for position in rank.positions]
                yield _Cell(labels, _histogram(complete, origin.scale), tuple(used), len(ranks))


_Read = Callable[[Sequence[float]], Value | None]
_Labels = tuple[tuple[str, str], ...]
_Key = tuple[Metric, tuple[str, ...]]


class _Cell(NamedTuple):
    """A sample to be made: its labels, how, from which positions; and of how many parts it is."""

    labels: tuple[str, ...]
    read: _Read
    positions: tuple[int, ...]
    parts: int


@dataclass(frozen=True, slots=True)
class _Part:
    """A row that the page can serve: which way, from which names, and the series to be made."""

    origin: Origin
    names: tuple[str, ...]
    cells: tuple[_Cell, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a shape means: per metric its series and the note on its origin; what is missing."""

    metrics: tuple[tuple[Metric, tuple[_Cell, ...], Sample], ...]
    unresolved: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class _Rank:
    """One histogram of the page: positions of its buckets by bound, of sum, count and zeros."""

    buckets: Mapping[float, int]
    sum: int
    count: int | None
    zeros: int | None

    @property
    def positions(self) -> Iterator[int]:
        """All positions that are read."""
        yield from self.buckets.values()
        yield from (p for p in (self.sum, self.count, self.zeros) if p is not None)


class _Names:
    """Finds an engine's names, which carry a prefix and perhaps a suffix, on one page."""

    def __init__(self, engine: Engine, shape: ShapeLike) -> None:
        self.index = shape.index
        self._types = shape.types
        self._series = shape.series
        self._bare = engine.bare
        self._by_key: dict[str, dict[_Labels, int]] = {}
        self._by_rank: dict[str, dict[_Labels, dict[float, int]]] = {}
        # One prefix for all: a page that passes on the same family under two must not be mixed.
        self._prefix = next(
            (
                p
                for p in engine.prefixes
                if any(n.startswith(p) for n in (*self.index, *self._types))
            ),
            engine.prefixes[0],
        )

    def spellings(self, name: str) -> tuple[str, str]:
        full = name if name in self._bare else self._prefix + name
        bare = full.removesuffix("_total")
        return (full, bare if bare != full else f"{full}_total")

    def find(self, name: str, kind: str = "") -> str | None:
        """Return the name as the page spells it; for a histogram the family's."""
        tail = "_bucket" if kind == "histogram" else ""
        return next((s for s in self.spellings(name) if s + tail in self.index), None)

    def knows(self, name: str) -> bool:
        """Tell whether there is any sample of this name, as a scalar or as a histogram."""
        return self.find(name) is not None or self.find(name, "histogram") is not None

    def declares(self, name: str) -> bool:
        """Tell whether the page declares the family without having a series of it yet."""
        tails = ("", "_bucket", "_sum", "_count")
        return any(
            s in self._types and not any(s + tail in self.index for tail in tails)
            for s in self.spellings(name)
        )

    def labels(self, position: int) -> dict[str, str]:
        return dict(self._series[position].labels)

    def by_rank(self, positions: Iterable[int]) -> dict[_Labels, dict[float, int]]:
        """Return bucket positions by bound, for each set of labels other than `le`."""
        ranks: dict[_Labels, dict[float, int]] = {}
        for position in positions:
            labels = self.labels(position)
            bound = _bound(labels.pop("le", ""))
            if bound is not None:
                ranks.setdefault(_key(labels), {})[bound] = position
        return ranks

    def at(self, sample: str, key: _Labels) -> int | None:
        """Return the position of the series with exactly these labels."""
        if sample not in self._by_key:
            positions = self.index.get(sample, ())
            self._by_key[sample] = {_key(self.labels(p)): p for p in positions}
        return self._by_key[sample].get(key)

    def bucket(self, family: str, key: _Labels, le: float) -> int | None:
        """Return the position of a histogram's bucket, the histogram having these labels."""
        if family not in self._by_rank:
            self._by_rank[family] = self.by_rank(self.index[f"{family}_bucket"])
        return self._by_rank[family].get(key, {}).get(le)

    def weights(
        self, weight: Weight | None, positions: Sequence[int]
    ) -> tuple[tuple[float, ...] | None, tuple[int, ...]]:
        """Return one weight for each position and where it stands; nothing if one is unknown."""
        name = self.find(weight.name) if weight is not None else None
        if weight is None or name is None:
            return None, ()
        known: dict[str, tuple[float, int]] = {}
        for place in self.index[name]:
            labels = self.labels(place)
            number = _bound(labels.get(weight.label, ""))
            if number is not None and 0 < number < math.inf:
                known[labels.get(weight.by, "")] = number, place
        found = [known.get(self.labels(p).get(weight.by, "")) for p in positions]
        weights = [one for one in found if one is not None]
        if len(weights) < len(found):
            return None, ()
        return tuple(number for number, _ in weights), tuple(place for _, place in weights)


def _series(cell: _Cell, shape: ShapeLike) -> frozenset[SeriesLike]:
    return frozenset(map(shape.series.__getitem__, cell.positions))


def _owed(row: Row, names: _Names) -> bool:
    """Tell whether the absence of a row is worth saying.

    A family that is declared and has no series yet (some front ends make them at first use) is not
    missing.
    """
    if not (row.required or (row.required_with and names.knows(row.required_with))):
        return False
    return not any(names.declares(name) for origin in row.sources for name in origin.names)


def _key(labels: Mapping[str, str]) -> _Labels:
    return tuple(sorted(labels.items()))


def _bound(text: str) -> float | None:
    """Return a bound, written `1`, `1.0`, `1e+00` or `+Inf`; nothing if it is no number."""
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


def _rank(
    names: _Names, family: str, key: _Labels, buckets: Mapping[float, int], zeros: Zeros | None
) -> _Rank | None:
    """Return a histogram of the page, or nothing if it is not complete."""
    total = names.at(f"{family}_sum", key)
    if math.inf not in buckets or total is None:
        return None
    below = None
    if zeros is not None:
        other = names.find(zeros.name, "histogram")
        below = names.bucket(other, key, zeros.le) if other is not None else None
        if below is None:
            return None
    return _Rank(buckets, total, names.at(f"{family}_count", key), below)


def _scalar(
    origin: Origin,
    positions: Sequence[int],
    weights: tuple[float, ...] | None,
    *,
    counter: bool,
) -> _Read:
    """Return a function from a page's values to one number, or to nothing if it is unknown."""
    scale, first, single = origin.scale, positions[0], len(positions) == 1
    combine = _mean(weights) if origin.combine == "mean" else _COMBINE[origin.combine]

    def read(values: Sequence[float]) -> float | None:
        parts = [values[first]] if single else [values[position] for position in positions]
        for part in parts:
            if not part >= 0:
                # NaN, or a gauge below zero: "not measured".
                if counter and part < 0:
                    raise ValueError("a counter is negative")
                return None
        value = (parts[0] if single else combine(parts)) * scale
        if not counter:
            return value
        # int() refuses infinity, as it should.
        whole = int(value)
        return whole if whole == value else value

    return read


_Combination = Callable[[list[float]], float]
_COMBINE: Mapping[str, _Combination] = {"sum": math.fsum, "max": max}


def _mean(weights: tuple[float, ...] | None) -> _Combination:
    """Return a mean, weighted if the weights are known."""

    def weighted(parts: list[float]) -> float:
        shares = weights if weights is not None else (1.0,) * len(parts)
        products = [part * share for part, share in zip(parts, shares, strict=True)]
        return math.fsum(products) / math.fsum(shares)

    return weighted


def _histogram(ranks: Sequence[_Rank], scale: float) -> _Read:
    """Return a function from a page's values to a histogram, all ranks added up."""
    common = frozenset.intersection(*(frozenset(rank.buckets) for rank in ranks))
    bounds = tuple(sorted(common - {math.inf}))
    order = (*bounds, math.inf)
    pickers = [
        (_picker([rank.buckets[bound] for bound in order]), rank.sum, rank.count, rank.zeros)
        for rank in ranks
    ]
    scaled = tuple(bound * scale for bound in bounds) if scale != 1.0 else bounds

    def read(values: Sequence[float]) -> Histogram | None:
        counts: tuple[float, ...] = ()
        total = 0.0
        for pick, where, count, zeros in pickers:
            floats = pick(values)
            # Ints are cheaper to write and exact; int() refuses NaN and infinity.
            part: tuple[float, ...] = tuple(map(int, floats))
            if part != floats:
                part = floats
            if count is not None and values[count] != part[-1]:
                raise ValueError("the buckets and the count disagree")
            if zeros is not None and (less := int(values[zeros])):
                part = tuple([n - less for n in part])
                if part[0] < 0:
                    raise ValueError("more zeros than the first bucket holds")
            counts = tuple(map(add, counts, part)) if counts else part
            total += values[where]
        if math.isnan(total) or (total == 0 and counts[-1] > 0):
            return None
        return Histogram(scaled, counts, total * scale)

    return read


def _picker(positions: Sequence[int]) -> Callable[[Sequence[float]], tuple[float, ...]]:
    if len(positions) > 1:
        return itemgetter(*positions)
    (only,) = positions
    return lambda values: (values[only],)
