"""Reads the engines' files; each complaint names the file, the key and the reason."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from exporter import catalogue as c
from exporter.engines.engine import QUALITIES, Engine, LabelRule, Origin, Row, Weight, Zeros
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
