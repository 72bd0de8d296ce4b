"""What inference engines call things, and how their pages become our metrics.

Each engine is one YAML file beside this module: the prefixes that give its page away, and for
each canonical metric (a row `llm_*` of the catalogue) the engine's own names, newest first.
`load_engines` checks the files, `detect` tells which engine a page comes from, `Translator` turns a
page that `formats.exposition` read into samples. Fetching and reading pages is left to others; what
is needed of a page here is stated as protocols.

A file holds: `engine` (its name), `prefixes` (of sample names, preferred first), `rows`, and where
needed `bare` (names outside the prefixes), `model_labels` (the label with the model, the first that
a series has), `foreign_labels` (a series with one of these repeats another server's numbers),
`destructive` (reading changes what others read), `hint` (said when the page has nothing of it).

A row holds `metric`, `required: true` or `required_with: NAME` (required where the page has NAME,
for metrics that came later than the oldest version), and `sources`: alternatives, of which the
first that the page can serve is used. A source holds:

- `name`, or `sum` with several names that must all be there. Names are without the prefix; those
  ending in `_total` are found without it too, and the reverse.
- `quality` (exact, derived, mean_only, bounded, biased) and `semantics`: what is measured.
- `labels`: the metric's own labels, each a constant or `{from: their label}`, with
  `as: status_class` to turn 404 into 4xx.
- `where`: `{label: value or list of values}`, the series that count.
- `scale`: a factor to our unit. `combine`: how several series become one, `sum` (default), `mean`
  or `max`; `weight: {name, label, by}`: the mean is weighted with a number that stands in a label
  of another family, found by a label that both have.
- `zeros: {name, le}` (histograms): so many observations in that bucket of the histogram `name` are
  zeros that stand for "nothing to measure"; they are taken out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import add, itemgetter
from pathlib import Path
from typing import Any, Literal, Protocol

import yaml

from exporter import catalogue as c
from exporter.samples import Drop, Histogram, Metric, Sample, Value

QUALITIES = ("exact", "derived", "bounded", "mean_only", "biased")
"""How good a value is, best first: native with this meaning; a formula of exact parts; an interval;
only a mean; native with another meaning."""

MAX_MODELS = 64
"""Models kept apart for each server; the rest are summed as `other`."""

Combine = Literal["sum", "mean", "max"]


class EngineError(ValueError):
    """An engine's file is wrong; the message names the file, the key and the reason."""


# ---------------------------------------------------------------- what a file says


@dataclass(frozen=True, slots=True)
class LabelRule:
    """Where the value of one of our labels comes from: a constant, or a label of theirs."""

    constant: str | None = None
    origin: str = ""
    status_class: bool = False


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
class Origin:
    """One way in which an engine offers a metric."""

    names: tuple[str, ...]
    quality: str
    semantics: str
    labels: Mapping[str, LabelRule]
    where: Mapping[str, frozenset[str]]
    scale: float = 1.0
    combine: Combine = "sum"
    weight: Weight | None = None
    zeros: Zeros | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """Every name that is needed, the helping ones included."""
        helpers = (self.weight, self.zeros)
        return (*self.names, *(helper.name for helper in helpers if helper is not None))


@dataclass(frozen=True, slots=True)
class Row:
    """A canonical metric (or one part of it, such as one direction) and its ways, best first."""

    metric: Metric
    sources: tuple[Origin, ...]
    required: bool = False
    required_with: str = ""


@dataclass(frozen=True, slots=True)
class Engine:
    """One inference engine: how its page is recognised and what is read from it."""

    name: str
    prefixes: tuple[str, ...]
    rows: tuple[Row, ...]
    destructive: bool = False
    bare: tuple[str, ...] = ()
    model_labels: tuple[str, ...] = ("model_name",)
    foreign_labels: frozenset[str] = frozenset()
    hint: str = ""

    @property
    def wanted(self) -> tuple[str, ...]:
        """Beginnings of all sample names that are of use: what a page's reader should keep."""
        names = dict.fromkeys(n for row in self.rows for o in row.sources for n in o.reads)
        names |= dict.fromkeys(row.required_with for row in self.rows if row.required_with)
        stems = dict.fromkeys(n.removesuffix("_total") for n in names if n not in self.bare)
        return (*self.bare, *(prefix + stem for prefix in self.prefixes for stem in stems))

    def offers(self, names: Iterable[str]) -> bool:
        """Tell whether any of these sample names is this engine's."""
        return any(name.startswith(self.prefixes) for name in names)


def detect(engines: Iterable[Engine], names: Iterable[str]) -> Engine | None:
    """Return the first engine that one of the sample names belongs to.

    Where a page passes on another's metrics the order of `engines` decides.
    """
    found = list(names)
    return next((engine for engine in engines if engine.offers(found)), None)


# ---------------------------------------------------------------- reading the files


def load_engines(directory: Path | None = None) -> tuple[Engine, ...]:
    """Return the engines that come with the package, then those of the user's directory.

    A file of the user's replaces the engine of the same name. Raises `EngineError`.
    """
    engines = {e.name: e for e in map(_load, sorted(Path(__file__).parent.glob("*.yaml")))}
    if directory is not None:
        if not directory.is_dir():
            raise EngineError(f"{directory}: not a directory")
        engines |= _load_directory(directory)
    owners: dict[str, str] = {}
    for engine in engines.values():
        for prefix in engine.prefixes:
            owner = owners.setdefault(prefix, engine.name)
            if owner != engine.name:
                raise EngineError(
                    f"{engine.name}: prefixes: {prefix!r} belongs to {owner}"
                    f" (an engine called {owner} would replace it)"
                )
    return tuple(engines.values())


def _load_directory(directory: Path) -> dict[str, Engine]:
    engines: dict[str, Engine] = {}
    for path in sorted((*directory.glob("*.yaml"), *directory.glob("*.yml"))):
        engine = _load(path)
        if engine.name in engines:
            raise EngineError(f"{path}: engine: {engine.name!r} is in another file too")
        engines[engine.name] = engine
    return engines


class _Loader(yaml.SafeLoader):
    """YAML that refuses a key written twice: the second would silently win."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    found: dict[Hashable, Any] = {}
    for at, (key, value) in zip(node.value, loader.construct_pairs(node, deep=True), strict=True):
        if not isinstance(key, str) or key in found:
            flaw = "is written twice" if isinstance(key, str) else "is not text"
            mark = at[0].start_mark
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} {flaw}", mark)
        found[key] = value
    return found


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def _load(path: Path) -> Engine:
    try:
        document = yaml.load(path.read_text("utf-8"), Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = "" if mark is None else f"line {mark.line + 1}: "
        raise EngineError(f"{path}: {line}{error.problem}") from None
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise EngineError(f"{path}: cannot be read: {error}".replace("\n", " ")) from None
    return _engine(_Node(path, "", document))


@dataclass(frozen=True, slots=True)
class _Node:
    """A value of a file, and where it stands, so that a complaint can name the place."""

    file: Path
    key: str
    value: Any

    def wrong(self, reason: str) -> EngineError:
        return EngineError(f"{self.file}: {f'{self.key}: ' if self.key else ''}{reason}")

    def fields(self, required: str, optional: str = "") -> dict[str, _Node]:
        """Return the values by key; every key must be known."""
        if not isinstance(self.value, dict):
            raise self.wrong("a mapping is wanted")
        known = [*required.split(), *optional.split()]
        for key in self.value:
            if key not in known:
                raise self.wrong(f"{key!r} is not a key here (known: {', '.join(known)})")
        for key in required.split():
            if key not in self.value:
                raise self.wrong(f"{key!r} is missing")
        return self.entries()

    def entries(self) -> dict[str, _Node]:
        """Return the values by key, whatever the keys are."""
        if not isinstance(self.value, dict):
            raise self.wrong("a mapping is wanted")
        at = f"{self.key}." if self.key else ""
        return {k: _Node(self.file, f"{at}{k}", v) for k, v in self.value.items()}

    def items(self) -> list[_Node]:
        """Return the members of a list that is not empty."""
        if not isinstance(self.value, list) or not self.value:
            raise self.wrong("a list with at least one entry is wanted")
        return [_Node(self.file, f"{self.key}[{i}]", v) for i, v in enumerate(self.value)]

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value:
            raise self.wrong(f"text is wanted, not {self.value!r}")
        return self.value

    def texts(self) -> tuple[str, ...]:
        return tuple(item.text() for item in self.items())

    def truth(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.wrong(f"true or false is wanted, not {self.value!r}")
        return self.value

    def number(self) -> float:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(f"a number is wanted, not {value!r}")
        if not 0 < value < math.inf:
            raise self.wrong(f"a positive number is wanted, not {value!r}")
        return float(value)

    def one_of(self, words: Sequence[str]) -> str:
        if self.value not in words:
            raise self.wrong(f"{self.value!r} is not one of {', '.join(words)}")
        return self.text()


def _engine(node: _Node) -> Engine:
    given = node.fields("engine prefixes rows", "bare model_labels foreign_labels destructive hint")

    def texts(key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        return given[key].texts() if key in given else default

    return Engine(
        name=given["engine"].text(),
        prefixes=given["prefixes"].texts(),
        rows=tuple(map(_row, given["rows"].items())),
        destructive=given["destructive"].truth() if "destructive" in given else False,
        bare=texts("bare", ()),
        model_labels=texts("model_labels", ("model_name",)),
        foreign_labels=frozenset(texts("foreign_labels", ())),
        hint=given["hint"].text() if "hint" in given else "",
    )


def _row(node: _Node) -> Row:
    given = node.fields("metric sources", "required required_with")
    metric = c.FAMILIES.get(given["metric"].text())
    if metric is None or not {"engine", "server"} <= set(metric.labels) or metric.kind == "info":
        raise given["metric"].wrong(f"{given['metric'].value!r} is not a metric of a server")
    if "required" in given and "required_with" in given:
        raise node.wrong("required and required_with exclude each other")
    return Row(
        metric=metric,
        sources=tuple(_origin(item, metric) for item in given["sources"].items()),
        required=given["required"].truth() if "required" in given else False,
        required_with=given["required_with"].text() if "required_with" in given else "",
    )


_OURS = ("model_name", "model_version", "engine", "server")


def _origin(node: _Node, metric: Metric) -> Origin:
    given = node.fields("quality semantics", "name sum labels where scale combine weight zeros")
    if ("name" in given) is ("sum" in given):
        raise node.wrong("either name or sum is wanted")
    combine = given["combine"].one_of(("sum", "mean", "max")) if "combine" in given else "sum"
    histogram = metric.kind == "histogram"
    for key, wrong, reason in (
        ("zeros", not histogram, "only for a histogram"),
        ("sum", histogram, "not for a histogram"),
        ("combine", metric.kind != "gauge", "only for a gauge"),
        ("weight", combine != "mean", "only with combine: mean"),
    ):
        if key in given and wrong:
            raise given[key].wrong(reason)
    labels = (
        {k: _label(v) for k, v in given["labels"].entries().items()} if "labels" in given else {}
    )
    own = [label for label in metric.labels if label not in _OURS]
    if sorted(labels) != sorted(own):
        raise node.wrong(f"labels: {metric.name} wants {', '.join(own) or 'none'}")
    where = given["where"].entries().items() if "where" in given else ()
    return Origin(
        names=(given["name"].text(),) if "name" in given else given["sum"].texts(),
        quality=given["quality"].one_of(QUALITIES),
        semantics=given["semantics"].text(),
        labels=labels,
        where={
            label: frozenset(v.texts() if isinstance(v.value, list) else (v.text(),))
            for label, v in where
        },
        scale=given["scale"].number() if "scale" in given else 1.0,
        combine=combine,  # type: ignore[arg-type]
        weight=_weight(given["weight"]) if "weight" in given else None,
        zeros=_zeros(given["zeros"]) if "zeros" in given else None,
    )


def _label(node: _Node) -> LabelRule:
    if isinstance(node.value, str):
        return LabelRule(constant=node.text())
    given = node.fields("from", "as")
    if "as" in given:
        given["as"].one_of(("status_class",))
    return LabelRule(origin=given["from"].text(), status_class="as" in given)


def _weight(node: _Node) -> Weight:
    given = node.fields("name label by")
    return Weight(given["name"].text(), given["label"].text(), given["by"].text())


def _zeros(node: _Node) -> Zeros:
    given = node.fields("name le")
    return Zeros(given["name"].text(), given["le"].number())


# ---------------------------------------------------------------- what a page is, seen from here


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
    def partial(self) -> bool:
        """Whether the page broke off, so that absence says nothing."""


# ---------------------------------------------------------------- from a page to samples


class Translator:
    """Turns the pages of one server into canonical samples.

    What a page's series mean is worked out once for each shape; after that a page costs a few
    look-ups and additions. Series that differ in no label of ours (the data-parallel ranks) are
    added up, bucket by bucket; of histograms whose bounds differ the common bounds stay.

    Left out: what is not a number (NaN, and negative values, with which engines say "unknown");
    a histogram that is not complete or whose observations are all zero (vllm#6337: they were never
    taken). A histogram that contradicts itself is left out and counted as a drop.

    `model_name` stands in where the page names no model. `model_version` is empty: no page has it.
    """

    def __init__(self, engine: Engine, server: str, model_name: str | None = None) -> None:
        self.engine = engine
        self._server = server
        self._model_name = model_name or ""
        self._models: dict[str, None] = {}
        self._shape: ShapeLike | None = None
        self._plan = _Plan((), ())
        self._info = c.LLM_SERVER_INFO(1, engine.name, server, "")

    def translate(self, page: PageLike) -> list[Sample | Drop]:
        """Return the samples of a page, and how many histograms or counters made no sense."""
        if page.shape is not self._shape:
            self._plan = self._compile(page.shape)
            self._shape = page.shape
        values = page.values
        out: list[Sample | Drop] = [self._info]
        nonsense = 0
        for metric, cells, note in self._plan.metrics:
            before = len(out)
            for labels, read in cells:
                try:
                    value = read(values)
                except (ValueError, OverflowError):
                    nonsense += 1
                    continue
                if value is not None:
                    out.append(Sample(metric, labels, value))
            if len(out) > before:
                out.append(note)
        if not page.partial:
            out += self._plan.unresolved
        if nonsense:
            out.append(Drop("value", nonsense))
        return out

    def _compile(self, shape: ShapeLike) -> _Plan:
        names = _Names(self.engine, shape)
        self._choose_models(shape)
        parts: dict[Metric, list[_Part]] = {}
        missing: dict[str, None] = {}
        for row in self.engine.rows:
            part = self._resolve(row, names)
            if part is not None:
                parts.setdefault(row.metric, []).append(part)
            elif _owed(row, names):
                missing[row.metric.name] = None
        name, server = self.engine.name, self._server
        return _Plan(
            tuple(
                (
                    metric,
                    tuple(cell for part in found for cell in part.cells),
                    self._note(metric, found),
                )
                for metric, found in parts.items()
            ),
            tuple(c.LLM_MAPPING_UNRESOLVED(1, name, server, metric) for metric in missing),
        )

    def _note(self, metric: Metric, parts: Sequence[_Part]) -> Sample:
        """Say once for each metric where it comes from; the worst part gives the quality."""
        quality = max((part.origin.quality for part in parts), key=QUALITIES.index)
        semantics = "; ".join(dict.fromkeys(part.origin.semantics for part in parts))
        source = ", ".join(dict.fromkeys(name for part in parts for name in part.names))
        name = self.engine.name
        return c.LLM_SOURCE_INFO(1, name, self._server, metric.name, quality, semantics, source)

    def _choose_models(self, shape: ShapeLike) -> None:
        """Choose the models kept apart: those of before that are still there, then new ones."""
        present = dict.fromkeys(self._model(dict(series.labels)) for series in shape.series)
        kept = [model for model in self._models if model in present]
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
            weights = names.weights(origin.weight, positions)
            yield labels, _scalar(origin, positions, weights, counter=metric.kind == "counter")

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
                yield labels, _histogram(complete, origin.scale)


_Read = Callable[[Sequence[float]], Value | None]
_Cell = tuple[tuple[str, ...], _Read]
_Labels = tuple[tuple[str, str], ...]


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

    def weights(self, weight: Weight | None, positions: Sequence[int]) -> tuple[float, ...] | None:
        """Return one weight for each position, or nothing where any is unknown."""
        name = self.find(weight.name) if weight is not None else None
        if weight is None or name is None:
            return None
        known: dict[str, float] = {}
        for labels in map(self.labels, self.index[name]):
            number = _bound(labels.get(weight.label, ""))
            if number is not None and 0 < number < math.inf:
                known[labels.get(weight.by, "")] = number
        found = [known.get(self.labels(p).get(weight.by, "")) for p in positions]
        weights = tuple(number for number in found if number is not None)
        return weights if len(weights) == len(found) else None


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
