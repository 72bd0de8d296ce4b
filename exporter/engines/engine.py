"""What is known of an engine: how its page is recognised, and what is read from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.engines.page import ShapeLike, only_declared
from exporter.samples import Metric

QUALITIES = ("exact", "derived", "bounded", "mean_only", "biased")
"""How good a value is, best first: native with this meaning; a formula of exact parts; an interval;
only a mean; native with another meaning."""

LAYERS = ("engine", "front", "application")
"""Who speaks, the one to be preferred first: the engine itself; a gateway or a server around it;
an application. Dynamo, Triton and Ray pass on the page of the engine behind them."""

Combine = Literal["sum", "mean", "max"]
Where = Mapping[str, frozenset[str]]

_STATUS = re.compile(r"[1-5]([0-9]{2}|[xX]{2})")


@dataclass(frozen=True, slots=True)
class LabelRule:
    """Where the value of one of our labels comes from: a constant, or a label of theirs.

    `reading` is what is done to it first (`status`: nothing but a status code or a class of them
    passes; `status_class`: 404 becomes 4xx, unless 404 itself is in `words`; `member`:
    `ResponseType.CANCEL` becomes `cancel`), `words` are then put into ours, and `other` stands for
    all that are not in `words`. The word "" is a label that is empty or not there.
    """

    constant: str | None = None
    origin: str = ""
    reading: Literal["", "status", "status_class", "member"] = ""
    words: Mapping[str, str] = field(default_factory=dict)
    other: str = ""

    def value(self, theirs: Mapping[str, str]) -> str | None:
        """Return our value for a series with these labels; nothing if it has none."""
        if self.constant is not None:
            return self.constant
        word = theirs.get(self.origin, "" if "" in self.words else None)
        if word is not None and self.reading in {"status", "status_class"}:
            word = word.lower() if _STATUS.fullmatch(word) else None
        if word is not None and self.reading == "status_class" and word not in self.words:
            word = f"{word[0]}xx"
        if word is not None and self.reading == "member":
            word = word.rpartition(".")[2].lower()
        if word is None:
            return None
        return self.words.get(word, self.other or word)


@dataclass(frozen=True, slots=True)
class Weight:
    """A number that stands in `label` of the family `name`, found by the label `by`."""

    name: str
    label: str
    by: str


@dataclass(frozen=True, slots=True)
class Zeros:
    """The bucket `le` of the histogram `name` counts observations to take out as zeros."""

    name: str
    le: float


@dataclass(frozen=True, slots=True)
class Operand:
    """A second number of the same page: the series of `name` that `where` lets through."""

    name: str
    where: Where


@dataclass(frozen=True, slots=True)
class Origin:
    """One way in which an engine offers a metric."""

    names: tuple[str, ...]
    quality: str
    semantics: str
    labels: Mapping[str, LabelRule]
    where: Where
    scale: float = 1.0
    combine: Combine = "sum"
    weight: Weight | None = None
    zeros: Zeros | None = None
    over: Operand | None = None
    times: Operand | None = None
    less: Operand | None = None
    numbers: tuple[str, ...] = ()
    zero_is_off: bool = False
    only_with: str = ""
    unless: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        """Every name that is needed, the helping ones included."""
        helpers = (self.weight, self.zeros, self.over, self.times, self.less)
        others = filter(None, (self.only_with, self.unless))
        return (*self.names, *(one.name for one in helpers if one is not None), *others)

    @property
    def looks_at(self) -> frozenset[str]:
        """Every label that tells series apart here."""
        operands = [one for one in (self.over, self.times, self.less) if one is not None]
        return frozenset(self.where).union(
            *(one.where for one in operands), (rule.origin for rule in self.labels.values())
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A canonical metric (or one part of it, such as one direction) and its ways, best first."""

    metric: Metric
    sources: tuple[Origin, ...]
    required: bool = False
    required_with: str = ""


@dataclass(frozen=True, slots=True)
class Engine:
    """One inference engine: how its page is recognised and what is read from it.

    `prefixes` may hold "", for names without any: then `marks` (beginnings of sample names) or
    `mark_labels` (labels of the names that are read) must tell whose page it is.
    """

    name: str
    prefixes: tuple[str, ...]
    rows: tuple[Row, ...]
    marks: tuple[str, ...] = ()
    mark_labels: frozenset[str] = frozenset()
    layer: str = "engine"
    experimental: bool = False
    destructive: bool = False
    bare: tuple[str, ...] = ()
    model_labels: tuple[str, ...] = ("model_name",)
    version_labels: tuple[str, ...] = ()
    fold_case: bool = False
    rank_labels: tuple[str, ...] = ()
    copy_labels: tuple[str, ...] = ()
    where: Where = field(default_factory=dict)
    foreign_labels: frozenset[str] = frozenset()
    hint: str = ""

    @property
    def wanted(self) -> tuple[str, ...]:
        """Beginnings of all sample names that are of use: what a page's reader should keep."""
        names = dict.fromkeys(n for row in self.rows for o in row.sources for n in o.reads)
        names |= dict.fromkeys(row.required_with for row in self.rows if row.required_with)
        stems = dict.fromkeys(n.removesuffix("_total") for n in names if n not in self.bare)
        prefixed = (prefix + stem for prefix in self.prefixes for stem in stems)
        return tuple(dict.fromkeys((*self.bare, *self.marks, *prefixed)))

    @property
    def telling(self) -> tuple[str, ...]:
        """Beginnings of the sample names by which the page is recognised."""
        prefixes = tuple(prefix for prefix in self.prefixes if prefix)
        return (*prefixes, *self.marks, *(self.wanted if self.mark_labels else ()))

    def offers(self, shape: ShapeLike) -> bool:
        """Tell whether a page has something that is this engine's own word.

        What only repeats another server's numbers (`foreign_labels`) is not. A name without a
        prefix may be anybody's: there the series must name a model.
        """
        marks = self.marks or tuple(prefix for prefix in self.prefixes if prefix)
        anybodys = bool(self.marks) and "" in self.prefixes
        if any(
            not anybodys or not labels.keys().isdisjoint(self.model_labels)
            for labels in self._own(shape, marks)
        ):
            return True
        if not anybodys and any(
            name.startswith(marks) and only_declared(shape, name) for name in shape.types
        ):
            return True
        return bool(self.mark_labels) and any(
            not self.mark_labels.isdisjoint(labels) for labels in self._own(shape, self.wanted)
        )

    def repeats(self, shape: ShapeLike) -> str:
        """Return the label by which a page's series are other servers'; "" if it has none such."""
        prefixes = tuple(prefix for prefix in self.prefixes if prefix)
        for series in shape.series:
            if prefixes and series.name.startswith(prefixes):
                for label, _ in series.labels:
                    if label in self.foreign_labels:
                        return label
        return ""

    def _own(self, shape: ShapeLike, beginnings: tuple[str, ...]) -> Iterator[dict[str, str]]:
        """Yield the labels of the series with such names that are the engine's own."""
        for name, positions in shape.index.items():
            if beginnings and name.startswith(beginnings):
                for position in positions:
                    labels = dict(shape.series[position].labels)
                    if self.foreign_labels.isdisjoint(labels):
                        yield labels


def detect(engines: Iterable[Engine], shape: ShapeLike) -> Engine | None:
    """Return the engine whose page this is.

    Where a page passes on another's metrics the engine's own word is preferred to that of what
    stands around it (`LAYERS`), then the order of `engines` decides.
    """
    offering = [engine for engine in engines if engine.offers(shape)]
    return min(offering, key=lambda engine: LAYERS.index(engine.layer), default=None)
