"""What the queries of our boards ask for: series, and labels that they match or group by."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from exporter import catalogue as c
from tests.dashboards.schema import panels

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "dashboards"

_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_WORD = re.compile(r"(?<![\w:$])[a-zA-Z_][\w:]*(?![\w:])")
_SELECTOR = re.compile(r"(?<![\w:])([a-zA-Z_][\w:]*)\{((?:[^}\"]|\"(?:[^\"\\]|\\.)*\")*)\}")
_MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_GROUPING = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_LABEL_VALUES = re.compile(r"label_values\((.+),\s*(\w+)\)")
_WORDS = {"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring", "group_left",
    "group_right", "inf", "nan"}  # fmt: skip
# Labels that Prometheus or an operator adds to all that it reads, and those of alerts.
ADDED = {"cluster", "instance", "job", "le"}
ALERT = {"alertname", "alertstate", "severity", "component"}


class Asked(NamedTuple):
    """An expression and where it stands."""

    where: str
    expr: str


@cache
def board(name: str) -> dict[str, Any]:
    """Return a committed board."""
    return dict(json.loads((FOLDER / f"{name}.json").read_text("utf-8")))


@cache
def names() -> tuple[str, ...]:
    """Return the names of all committed boards."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def asked(name: str) -> Iterator[Asked]:
    """Yield all that a board asks: panels, annotations, values of variables."""
    read = board(name)
    for panel in panels(read):
        for target in panel.get("targets", ()):
            yield Asked(panel["title"], target["expr"])
    for mark in read["annotations"]["list"]:
        yield Asked(mark["name"], mark["expr"])
    for variable in read["templating"]["list"]:
        if variable["type"] == "query":
            match = _LABEL_VALUES.fullmatch(variable["query"])
            assert match, variable["query"]
            yield Asked(f"${variable['name']}", f"group by ({match[2]}) ({match[1]})")


@cache
def recorded() -> dict[str, set[str]]:
    """Return the series that our rules record; of each the labels that its rules group by."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "alerts").glob("*.yaml"):
        for group in yaml.safe_load(path.read_text("utf-8")).get("groups", ()):
            for rule in group["rules"]:
                if "record" in rule:
                    labels = found.setdefault(rule["record"], set())
                    labels |= set(rule.get("labels", {})) | set(_labels_of_rule(rule["expr"]))
    return found


def _labels_of_rule(expr: str) -> Iterator[str]:
    """Yield labels that a recorded series may have: those that its rule names anywhere."""
    for _, labels in _GROUPING.findall(_TEXT.sub('""', expr)):
        yield from re.findall(r"\w+", labels)
    for name in series(expr):
        if (row := c.FAMILIES.get(_family(name))) is not None:
            yield from row.labels


def _family(name: str) -> str:
    stem = re.sub(r"_(bucket|sum|count)$", "", name)
    row = c.FAMILIES.get(stem)
    return stem if row is not None and row.kind == "histogram" else name


def series(expr: str) -> set[str]:
    """Return the names of series that an expression asks for."""
    bare = _GROUPING.sub(" ", _TEXT.sub('""', expr))
    bare = re.sub(r"\{[^}]*\}", "{}", bare)
    bare = re.sub(r"\[[^\]]*\]", " ", bare)
    called = set(re.findall(r"([a-zA-Z_]\w*)\s*\(", bare))
    return set(_WORD.findall(bare)) - called - _WORDS


def labels_of(name: str) -> set[str] | None:
    """Return the labels that a series can have; None if nobody exports or records it."""
    if name == "ALERTS":
        return ADDED | ALERT | {label for row in c.FAMILIES.values() for label in row.labels}
    if name == "up":
        return set(ADDED)
    if name in recorded():
        return ADDED | recorded()[name]
    row = c.FAMILIES.get(_family(name))
    return None if row is None else ADDED | set(row.labels)


def flaws(expr: str) -> list[str]:
    """Return which names and labels of an expression are not there."""
    found = [f"nobody exports {name}" for name in series(expr) if labels_of(name) is None]
    for name, inside in _SELECTOR.findall(expr):
        for label, _, _ in _MATCHER.findall(inside):
            if label not in (labels_of(name) or {label}):
                found.append(f"{name} has no label {label}")
    known: set[str] = set().union(*(labels_of(name) or set() for name in series(expr)))
    made = set(re.findall(r'label_(?:replace|join)\(.*?,\s*"(\w+)"', expr))
    for word, inside in _GROUPING.findall(_TEXT.sub('""', expr)):
        unknown = set(re.findall(r"\w+", inside)) - known - made
        found += [f"{word} ({label}): no series here has it" for label in sorted(unknown)]
    return found


def selectors(expr: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the series that an expression asks for, with its matchers as they are written."""
    for name, inside in _SELECTOR.findall(expr):
        yield name, {label: f'{sign}"{text}"' for label, sign, text in _MATCHER.findall(inside)}
    with_braces = {name for name, _ in _SELECTOR.findall(expr)}
    for name in series(expr) - with_braces:
        yield name, {}
