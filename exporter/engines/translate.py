"""Turns the pages of one server into our metrics. Fetching and reading pages is left to others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter import catalogue as c
from exporter.engines.engine import QUALITIES, Engine, LabelRule, Operand, Origin, Row, Where
from exporter.engines.names import Names, positive
from exporter.engines.page import PageLike, SeriesLike, ShapeLike
from exporter.engines.reading import Read, calculated, histogram, rank_of, scalar, share
from exporter.samples import EMPTY_SHAPE, Batch, Brought, Drop, Metric, Sample, Shape, Value

MAX_MODELS = 64
"""Models kept apart for each server; the rest are summed as `other`."""

MAX_VALUES = 32
"""Values kept apart of any other label whose values the server chooses; likewise."""

_ALWAYS = frozenset((
    "success", "stop", "length", "ok", "completed", "eos_token", "stop_sequence", "tool_calls",
    "abort", "cancelled", "rejected", "error", "failure", "timeout", "invalid",
))  # fmt: skip
"""Values with a known meaning: kept apart whenever they come."""

_PATIENCE = 3
"""Pages with the same damage after which it is no accident."""


class Translator:
    """Turns the pages of one server into canonical samples.

    What a page's series mean is worked out once for each shape; after that a page costs a few
    look-ups and additions. Series that differ in no label of ours (the data-parallel ranks) are
    added up, bucket by bucket; of histograms whose bounds differ the common bounds stay. Of series
    that repeat one another (tensor-parallel ranks) one counts. How many ranks were added up is
    told: a sum that changes with their number is no traffic.

    Left out: what is not a number (NaN, and negative values, with which engines say "unknown");
    a histogram that is not complete or whose observations are all zero (vllm#6337: they were never
    taken). A histogram that contradicts itself is left out and counted as a drop, and so is a share
    above 1 (percent, most likely).

    Of a damaged page a sample is left out if it lacks a series that it was made of on the last
    whole page: a sum over ranks without one of them looks like a counter that began anew. What no
    whole page had is only shown if it is one series without the label of a rank; but after a few
    pages with the same damage (a line that is always bad, a page that is always too long) what has
    all ranks of the page is taken to be whole. On a page that was
    cut between two lines, with nothing else to tell that it is damaged, a rank that is missing is
    taken to be gone: ranks do go, and where the length of a body is known `fetch` has refused a
    shorter one.

    A series that names no model belongs to the page's only model, else to `model_name`.
    """

    def __init__(self, engine: Engine, server: str, model_name: str | None = None) -> None:
        self.engine = engine
        self._server = server
        self._model_name = model_name or ""
        self._models: dict[_Model, None] = {}
        self._lumped: set[_Model] = set()
        self._parts: frozenset[tuple[str, ...]] = frozenset()
        self._moves = 0
        self._spellings: dict[str, str] = {}
        self._shape: ShapeLike | None = None
        self._damaged = False
        self._repeated = 0
        self._values: dict[str, dict[str, None]] = {}
        self._plan = _Plan((), ())
        self._reads: tuple[Read, ...] = ()
        self._present: list[bool] | None = None
        self._said: tuple[Shape, tuple[Value, ...]] = EMPTY_SHAPE, ()
        self._whole: Mapping[_Key, frozenset[SeriesLike]] = {}
        self._understood = {
            "le",
            *engine.model_labels,
            *engine.version_labels,
            *engine.where,
        }.union(*(origin.looks_at for row in engine.rows for origin in row.sources))
        self._info = c.LLM_SERVER_INFO(1, engine.name, server, "")

    def translate(self, page: PageLike) -> Brought:
        """Return the samples of a page, and how many histograms or counters made no sense.

        While pages bring the same series the batch has the same `Shape`.
        """
        if page.shape is not self._shape or page.damaged is not self._damaged:
            self._replan(self._compile(page.shape, damaged=page.damaged))
            self._shape, self._damaged = page.shape, page.damaged
            self._repeated = 1
        elif page.damaged and self._repeated < _PATIENCE:
            self._repeated += 1
            if self._repeated == _PATIENCE:
                self._replan(self._compile(page.shape, damaged=True, settled=True))
        values = page.values
        out: list[Value | None] = []
        nonsense = 0
        for read in self._reads:
            try:
                out.append(read(values))
            except (ValueError, OverflowError):
                nonsense += 1
                out.append(None)
        present = [value is not None for value in out]
        if present != self._present:
            self._present = present
            self._said = self._plan.said(present, self._info)
        shape, constant = self._said
        batch = Batch(shape, (*constant, *[value for value in out if value is not None]))
        return Brought(batch, (Drop("value", nonsense),) if nonsense else ())

    def _replan(self, plan: _Plan) -> None:
        self._plan = plan
        self._reads = plan.reads
        self._present = None

    def _compile(self, shape: ShapeLike, *, damaged: bool, settled: bool = False) -> _Plan:
        names = Names(self.engine, shape)
        self._choose_models(names.all_labels, damaged=damaged and not settled)
        parts: dict[Metric, list[_Part]] = {}
        missing: dict[str, None] = {}
        for row in self.engine.rows:
            part = self._resolve(row, names)
            if part is not None:
                parts.setdefault(row.metric, []).append(part)
            elif _owed(row, names):
                missing[row.metric.name] = None
        cells = {
            m: tuple(cell for part in found for cell in part.cells) for m, found in parts.items()
        }
        facts: tuple[Sample, ...] = ()
        if damaged:
            if settled:
                self._settle(cells, shape)
                facts = tuple(self._facts(()))
            cells = {m: tuple(self._certain(m, made, shape)) for m, made in cells.items()}
        else:
            self._whole = {
                (metric, cell.labels): _series(cell, shape)
                for metric, made in cells.items()
                for cell in made
            }
            facts = tuple(self._facts(missing))
        metrics = ((metric, cells[metric], self._note(metric, p)) for metric, p in parts.items())
        return _Plan(tuple(metrics), facts)

    def _facts(self, missing: Iterable[str]) -> Iterator[Sample]:
        """Yield what a whole page says by its series alone."""
        name, server = self.engine.name, self._server
        for metric in missing:
            yield c.LLM_MAPPING_UNRESOLVED(1, name, server, metric)
        if self._whole:
            yield c.LLM_SERVER_RANKS(self._ranks(), name, server)
            yield c.LLM_RANK_CHANGES_TOTAL(self._moves, name, server)

    def _ranks(self) -> int:
        """Return the most parts that one sample is made of, and count if they are others now."""
        made = [self._ranks_of(series) for series in self._whole.values()]
        parts = frozenset[tuple[str, ...]]().union(*made)
        # With all of them replaced the sum begins anew as each of them does.
        self._moves += parts != self._parts and not parts.isdisjoint(self._parts)
        self._parts = parts
        return max(map(len, made), default=0) or 1

    def _ranks_of(self, series: Iterable[SeriesLike]) -> frozenset[tuple[str, ...]]:
        """Return which ranks some series are of."""
        labels = self.engine.rank_labels
        ranks = {tuple(dict(one.labels).get(label, "") for label in labels) for one in series}
        return frozenset(ranks - {("",) * len(labels)})

    def _settle(self, cells: Mapping[Metric, Iterable[_Cell]], shape: ShapeLike) -> None:
        """Take a page for whole that always has the same damage, but for sums that lack a rank."""
        made = {(m, one.labels): _series(one, shape) for m, found in cells.items() for one in found}
        ranks = {key: len(self._ranks_of(series)) for key, series in made.items()}
        most = max(ranks.values(), default=0)
        whole: dict[_Key, frozenset[SeriesLike]] = {}
        for key, series in made.items():
            old = self._whole.get(key)
            if ranks[key] in (0, most) and (old is None or len(self._ranks_of(old)) != ranks[key]):
                old = series
            if old is not None:
                whole[key] = old
        self._whole = whole

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
        said = dict.fromkeys(part.origin.semantics for part in parts)
        if self.engine.experimental:
            said["experimental mapping"] = None
        source = ", ".join(dict.fromkeys(name for part in parts for name in part.names))
        name, server = self.engine.name, self._server
        return c.LLM_SOURCE_INFO(1, name, server, metric.name, quality, "; ".join(said), source)

    def _choose_models(self, series: Sequence[Mapping[str, str]], *, damaged: bool) -> None:
        """Choose the models kept apart: those of before that are still there, then new ones.

        One that is summed as `other` stays there, or that sum would fall. A damaged page does not
        tell that a model is gone.
        """
        own = [labels for labels in series if self.engine.foreign_labels.isdisjoint(labels)]
        if self.engine.fold_case:
            # Dynamo writes the name in lower case, but in its families on configuration.
            spelled = sorted(set(map(self._named, own)), reverse=True)
            before = self._spellings if damaged else {}
            self._spellings = {name.lower(): name for name in spelled} | before
        present = dict.fromkeys(map(self._model, own))
        kept = [model for model in self._models if damaged or model in present]
        apart = self._models.keys() | self._lumped
        new = [model for model in present if model[0] and model not in apart]
        taken = [*kept, *new]
        lumped = {model for model in self._lumped if damaged or model in present}
        self._models, self._lumped = dict.fromkeys(taken[:MAX_MODELS]), lumped
        self._lumped.update(taken[MAX_MODELS:])

    def _model(self, labels: Mapping[str, str]) -> _Model:
        """Return the model and version that a series names, "" for what it does not name."""
        name = self._named(labels)
        version = next((labels[v] for v in self.engine.version_labels if labels.get(v)), "")
        return self._spellings.get(name.lower(), name) if self._spellings else name, version

    def _owner(self, labels: Mapping[str, str]) -> _Model:
        """Return the model that a series is shown for."""
        model = self._model(labels)
        if model[0]:
            return model if model in self._models else ("other", "")
        if len(self._models) == 1:
            return next(iter(self._models))
        return self._model_name, model[1]

    def _named(self, labels: Mapping[str, str]) -> str:
        for label in self.engine.model_labels:
            model = labels.get(label)
            # TensorRT-LLM writes this word when it does not know (aibrix#2004).
            if model and model != "undefined":
                return model
        return ""

    def _resolve(self, row: Row, names: Names) -> _Part | None:
        """Return the first alternative that the page can serve."""
        build = self._histograms if row.metric.kind == "histogram" else self._scalars
        for origin in row.sources:
            if origin.only_with and not names.knows(origin.only_with):
                continue
            if origin.unless and (names.knows(origin.unless) or names.declares(origin.unless)):
                continue
            found = [names.find(n, row.metric.kind) for n in origin.names]
            whole = [name for name in found if name is not None]
            if len(whole) == len(found):
                cells = tuple(build(row.metric, origin, whole, names))
                if cells:
                    return _Part(origin, tuple(whole), cells)
        return None

    def _groups(
        self, metric: Metric, origin: Origin, names: Names, sample: str, where: Where
    ) -> _Groups:
        """Return the positions of a sample name's series by the labels that they get from us."""
        groups: dict[tuple[str, ...], list[int]] = {}
        conditions = (*where.items(), *self.engine.where.items())
        for position in names.index.get(sample, ()):
            theirs = names.labels(position)
            if not self.engine.foreign_labels.isdisjoint(theirs):
                continue
            if any(theirs.get(label, "") not in wanted for label, wanted in conditions):
                continue
            ours = self._labels(metric, origin, theirs)
            if ours is not None:
                groups.setdefault(ours, []).append(position)
        return {labels: names.without_copies(found) for labels, found in groups.items()}

    def _labels(
        self, metric: Metric, origin: Origin, theirs: Mapping[str, str]
    ) -> tuple[str, ...] | None:
        values = {"engine": self.engine.name, "server": self._server}
        if "model_name" in metric.labels:
            values["model_name"], values["model_version"] = self._owner(theirs)
        for label, rule in origin.labels.items():
            value = rule.value(theirs)
            if value is None:
                return None
            values[label] = self._bounded(label, rule, value)
        return tuple(map(values.__getitem__, metric.labels))

    def _bounded(self, label: str, rule: LabelRule, value: str) -> str:
        """Return the value of a label, `other` for a new one if there are too many of them.

        One is never forgotten: what is summed as `other` is not to fall.
        """
        ours = (rule.constant, rule.other, *rule.words.values())
        if value in _ALWAYS or value in ours:
            return value
        known = self._values.setdefault(label, {})
        if len(known) < MAX_VALUES:
            known[value] = None
        return value if value in known else "other"

    def _scalars(
        self, metric: Metric, origin: Origin, whole: Sequence[str], names: Names
    ) -> Iterator[_Cell]:
        groups = [self._groups(metric, origin, names, name, origin.where) for name in whole]
        operands = [
            self._operand(metric, origin, operand, names)
            for operand in (origin.over, origin.times, origin.less)
        ]
        is_share = metric.name.endswith("_ratio")
        for labels in groups[0]:
            if not all(labels in group for group in (*groups, *operands) if group is not None):
                continue
            positions = [position for group in groups for position in group[labels]]
            if origin.numbers:
                cell = _written(origin, names, labels, positions)
            else:
                others = [None if group is None else group[labels] for group in operands]
                cell = _calculated(
                    origin, names, labels, positions, others, counter=metric.kind == "counter"
                )
            if cell is not None:
                yield cell._replace(read=share(cell.read)) if is_share else cell

    def _operand(
        self, metric: Metric, origin: Origin, operand: Operand | None, names: Names
    ) -> _Groups | None:
        """Return where a second number stands; nothing if none is wanted."""
        if operand is None:
            return None
        name = names.find(operand.name)
        return {} if name is None else self._groups(metric, origin, names, name, operand.where)

    def _histograms(
        self, metric: Metric, origin: Origin, whole: Sequence[str], names: Names
    ) -> Iterator[_Cell]:
        family = whole[0]
        groups = self._groups(metric, origin, names, f"{family}_bucket", origin.where)
        for labels, positions in groups.items():
            ranks = [
                rank_of(names, family, key, buckets, origin.zeros)
                for key, buckets in names.by_rank(positions).items()
            ]
            complete = [rank for rank in ranks if rank is not None]
            if len(complete) == len(ranks):
                used = [position for rank in complete for position in rank.positions]
                yield _Cell(labels, histogram(complete, origin.scale), tuple(used), len(ranks))


_Model = tuple[str, str]
_Key = tuple[Metric, tuple[str, ...]]
_Groups = dict[tuple[str, ...], list[int]]
_SUM = Origin((), "", "", {}, {})
_MAX = Origin((), "", "", {}, {}, combine="max")  # a factor is the same for all ranks


class _Cell(NamedTuple):
    """A sample to be made: its labels, how, from which positions; and of how many parts it is."""

    labels: tuple[str, ...]
    read: Read
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
    """What a shape means: per metric its series and the note on its origin; and what is so.

    `facts` are the samples that the shape itself says: the ranks, and what is missing.
    """

    metrics: tuple[tuple[Metric, tuple[_Cell, ...], Sample], ...]
    facts: tuple[Sample, ...]

    @property
    def reads(self) -> tuple[Read, ...]:
        """How each value is read, in the order of the metrics."""
        return tuple(cell.read for _, cells, _ in self.metrics for cell in cells)

    def said(self, present: Sequence[bool], info: Sample) -> tuple[Shape, tuple[Value, ...]]:
        """Return the series of a page: those with a constant value, given too, before all others.

        `present` tells of which reads something came.
        """
        constant, found, at = [info, *self.facts], list[tuple[Metric, tuple[str, ...]]](), 0
        for metric, cells, note in self.metrics:
            there = [
                (metric, cell.labels) for cell, has in zip(cells, present[at:], strict=False) if has
            ]
            at += len(cells)
            if there:
                constant.append(note)
                found += there
        series = [*((one.metric, one.labels) for one in constant), *found]
        shape = Shape(tuple(m for m, _ in series), tuple(labels for _, labels in series))
        return shape, tuple(one.value for one in constant)


def _series(cell: _Cell, shape: ShapeLike) -> frozenset[SeriesLike]:
    return frozenset(map(shape.series.__getitem__, cell.positions))


def _owed(row: Row, names: Names) -> bool:
    """Tell whether the absence of a row is worth saying.

    A family that is declared and has no series yet (some front ends make them at first use) is not
    missing.
    """
    if not (row.required or (row.required_with and names.knows(row.required_with))):
        return False
    return not any(names.declares(name) for origin in row.sources for name in origin.names)


def _written(
    origin: Origin, names: Names, labels: tuple[str, ...], positions: Sequence[int]
) -> _Cell | None:
    """Return the product of the numbers that stand in labels, summed over ranks."""
    found = [
        [positive(names.labels(position).get(label, "")) for label in origin.numbers]
        for position in positions
    ]
    known = [[number for number in row if number is not None] for row in found]
    if known != found:
        return None
    total = math.fsum(map(math.prod, known)) * origin.scale
    return _Cell(labels, lambda _: total, tuple(positions), len(positions))


def _calculated(
    origin: Origin,
    names: Names,
    labels: tuple[str, ...],
    positions: Sequence[int],
    others: Sequence[Sequence[int] | None],
    *,
    counter: bool,
) -> _Cell:
    """Return what is read at some positions; `others` are those of what it is put together with."""
    weights, helpers = names.weights(origin.weight, positions)
    read = scalar(origin, positions, weights, counter=counter)
    if any(found is not None for found in others):
        over, times, less = (
            None if found is None else scalar(how, found, None, counter=False)
            for how, found in zip((_SUM, _MAX, _SUM), others, strict=True)
        )
        read = calculated(read, over=over, times=times, less=less)
    helpers = (*helpers, *(position for found in others for position in found or ()))
    return _Cell(labels, read, (*positions, *helpers), len(positions))
