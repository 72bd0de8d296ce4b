"""Reads the engines' files; each complaint names the file, the key and the reason."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from exporter import catalogue as c
from exporter.engines.engine import (
    LAYERS,
    QUALITIES,
    Engine,
    LabelRule,
    Operand,
    Origin,
    Row,
    Weight,
    Where,
    Zeros,
)
from exporter.samples import Metric


class EngineError(ValueError):
    """An engine's file is wrong; the message names the file, the key and the reason."""


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
        for prefix in filter(None, engine.prefixes):
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


# libyaml reads the files in a seventh of the time; it is not part of every build of PyYAML.
_SafeLoader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):  # type: ignore[misc, valid-type]
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

    def words(self) -> tuple[str, ...]:
        """Return text or a list of texts; each may be empty."""
        values = self.value if isinstance(self.value, list) else [self.value]
        for value in values:
            if not isinstance(value, str):
                raise self.wrong(f"text is wanted, not {value!r}")
        if not values:
            raise self.wrong("a list with at least one entry is wanted")
        return tuple(values)

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


_ENGINE_KEYS = (
    "marks mark_labels layer experimental destructive bare model_labels version_labels fold_case"
    " rank_labels copy_labels where foreign_labels hint"
)


def _engine(node: _Node) -> Engine:
    given = node.fields("engine prefixes rows", _ENGINE_KEYS)

    def texts(key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        return given[key].texts() if key in given else default

    def truth(key: str) -> bool:
        return given[key].truth() if key in given else False

    prefixes = given["prefixes"].words()
    if "" in prefixes and not {"marks", "mark_labels"} & set(given):
        raise given["prefixes"].wrong('with "" marks or mark_labels are wanted')
    return Engine(
        name=given["engine"].text(),
        prefixes=prefixes,
        rows=tuple(map(_row, given["rows"].items())),
        marks=texts("marks"),
        mark_labels=frozenset(texts("mark_labels")),
        layer=given["layer"].one_of(LAYERS) if "layer" in given else LAYERS[0],
        experimental=truth("experimental"),
        destructive=truth("destructive"),
        bare=texts("bare"),
        model_labels=texts("model_labels", ("model_name",)),
        version_labels=texts("version_labels"),
        fold_case=truth("fold_case"),
        rank_labels=texts("rank_labels"),
        copy_labels=texts("copy_labels"),
        where=_where(given),
        foreign_labels=frozenset(texts("foreign_labels")),
        hint=given["hint"].text() if "hint" in given else "",
    )


def _row(node: _Node) -> Row:
    given = node.fields("metric sources", "required required_with")
    metric = c.FAMILIES.get(given["metric"].text())
    if metric is None or not {"engine", "server"} <= set(metric.labels) or _is_ours(metric):
        raise given["metric"].wrong(f"{given['metric'].value!r} is not a metric of a server")
    if "required" in given and "required_with" in given:
        raise node.wrong("required and required_with exclude each other")
    return Row(
        metric=metric,
        sources=tuple(_origin(item, metric) for item in given["sources"].items()),
        required=given["required"].truth() if "required" in given else False,
        required_with=given["required_with"].text() if "required_with" in given else "",
    )


def _is_ours(metric: Metric) -> bool:
    """Tell whether this is what we say of a server; what it says of its models is a page's."""
    return metric.kind == "info" and "model_name" not in metric.labels


_OURS = ("model_name", "model_version", "engine", "server")


_ORIGIN_KEYS = (
    "name sum labels where scale combine weight zeros over times less numbers zero_is_off only_with"
    " unless"
)


def _origin(node: _Node, metric: Metric) -> Origin:
    given = node.fields("quality semantics", _ORIGIN_KEYS)
    if ("name" in given) is ("sum" in given):
        raise node.wrong("either name or sum is wanted")
    combine = given["combine"].one_of(("sum", "mean", "max")) if "combine" in given else "sum"
    _expect_sense(given, metric, combine)
    labels = (
        {k: _label(v) for k, v in given["labels"].entries().items()} if "labels" in given else {}
    )
    own = [label for label in metric.labels if label not in _OURS]
    if sorted(labels) != sorted(own):
        raise node.wrong(f"labels: {metric.name} wants {', '.join(own) or 'none'}")
    return Origin(
        names=(given["name"].text(),) if "name" in given else given["sum"].texts(),
        quality=given["quality"].one_of(QUALITIES),
        semantics=given["semantics"].text(),
        labels=labels,
        where=_where(given),
        scale=given["scale"].number() if "scale" in given else 1.0,
        combine=combine,  # type: ignore[arg-type]
        weight=_weight(given["weight"]) if "weight" in given else None,
        zeros=_zeros(given["zeros"]) if "zeros" in given else None,
        over=_operand(given["over"]) if "over" in given else None,
        times=_operand(given["times"]) if "times" in given else None,
        less=_operand(given["less"]) if "less" in given else None,
        numbers=given["numbers"].texts() if "numbers" in given else (),
        zero_is_off=given["zero_is_off"].truth() if "zero_is_off" in given else False,
        only_with=given["only_with"].text() if "only_with" in given else "",
        unless=given["unless"].text() if "unless" in given else "",
    )


def _expect_sense(given: dict[str, _Node], metric: Metric, combine: str) -> None:
    """Raise for a key that says nothing of a metric of this kind, or beside that other key."""
    histogram, gauge = metric.kind == "histogram", metric.kind == "gauge"
    for key, wrong, reason in (
        ("zeros", not histogram, "only for a histogram"),
        ("sum", histogram, "not for a histogram"),
        ("combine", histogram, "not for a histogram"),
        ("zero_is_off", histogram, "not for a histogram"),
        ("weight", combine != "mean", "only with combine: mean"),
        ("over", not gauge, "only for a gauge"),
        ("times", not gauge, "only for a gauge"),
        ("less", not gauge, "only for a gauge"),
        ("numbers", not gauge, "only for a gauge"),
        ("numbers", bool({"over", "times", "less", "combine"} & set(given)), "stands alone"),
    ):
        if key in given and wrong:
            raise given[key].wrong(reason)


def _where(given: dict[str, _Node]) -> Where:
    """Return the labels that a series must have; "" is a label that is empty or not there."""
    if "where" not in given:
        return {}
    return {label: frozenset(v.words()) for label, v in given["where"].entries().items()}


def _operand(node: _Node) -> Operand:
    given = node.fields("name", "where")
    return Operand(given["name"].text(), _where(given))


def _label(node: _Node) -> LabelRule:
    if isinstance(node.value, str):
        return LabelRule(constant=node.text())
    given = node.fields("from", "as words other")
    words = given["words"].entries() if "words" in given else {}
    if "other" in given and not words:
        raise given["other"].wrong("only with words")
    return LabelRule(
        origin=given["from"].text(),
        reading=given["as"].one_of(("status", "status_class", "member")) if "as" in given else "",  # type: ignore[arg-type]
        words={theirs: ours.text() for theirs, ours in words.items()},
        other=given["other"].text() if "other" in given else "",
    )


def _weight(node: _Node) -> Weight:
    given = node.fields("name label by")
    return Weight(given["name"].text(), given["label"].text(), given["by"].text())


def _zeros(node: _Node) -> Zeros:
    given = node.fields("name le")
    return Zeros(given["name"].text(), given["le"].number())
