"""Grafana's schema, as the SDK's models state it: what a board's JSON may hold.

The models read JSON leniently: a key that they do not know is passed over, and no type is checked.
So a board is read, each value held against the type that its model states, and the whole written
again: what is not there any more was no key of the schema. Parts that the schema leaves open
(properties of overrides, options of transformations) have rules here.
"""

from __future__ import annotations

import enum
import json
import re
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

from grafana_foundation_sdk.cog import variants
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models

register_default_plugins()

# Keys of annotations that Grafana's Prometheus plugin reads; the schema has none of them.
ANNOTATION_KEYS = {"titleFormat", "textFormat", "tagKeys", "useValueForTime"}
# What a transformation may be told.
TRANSFORMATIONS = {
    "merge": set(),
    "filterFieldsByName": {"include"},
    "groupingToMatrix": {"columnField", "rowField", "valueField"},
    "organize": {"excludeByName", "indexByName", "renameByName"},
}
FIELD_KEYS = {"unit": str, "decimals": int, "displayName": str, "min": float, "max": float,
    "noValue": str}  # fmt: skip


def plain(value: object) -> Any:
    """Return what a model, or a part of it, is as JSON."""
    return json.loads(json.dumps(value, cls=JSONEncoder))


def flaws(board: dict[str, Any]) -> list[str]:
    """Return what is not as the schema has it, one line for each place."""
    model = models.Dashboard.from_json(board)
    lost = differences(board, plain(model), "")
    return [*lost, *mistyped(model, models.Dashboard, ""), *open_parts(board)]


def differences(before: Any, after: Any, where: str) -> Iterator[str]:
    """Yield the places at which two pieces of JSON differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            if key not in after:
                if not ("/annotations/" in where and key in ANNOTATION_KEYS):
                    yield f"{where}/{key}: no such key"
            elif key not in before and f"{where}/{key}" not in left_out(where):
                yield f"{where}/{key}: has to be written"
            elif key in before:
                yield from differences(before[key], after[key], f"{where}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{where}/{index}")
    elif before != after:
        yield f"{where}: {before!r} is read as {after!r}"


def left_out(where: str) -> set[str]:
    """Return keys that the SDK writes and no Grafana since 10.4 knows; boards go without them."""
    variable = re.fullmatch(r"/templating/list/\d+", where)
    return {"/style"} | (
        {f"{where}/{key}" for key in ("id", "auto", "auto_min", "auto_count")}
        if variable
        else set()
    )


def mistyped(value: Any, wanted: Any, where: str) -> Iterator[str]:
    """Yield the places at which a value is not of the type that the schema states."""
    origin, inside = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted in (object, Any) or isinstance(wanted, typing.TypeVar):
        return
    if origin in (typing.Union, types.UnionType):
        found = [list(mistyped(value, one, where)) for one in inside]
        yield from [] if any(not each for each in found) else min(found, key=len)
    elif origin is typing.Literal:
        yield from [] if value in inside else [f"{where}: {value!r} is none of {inside}"]
    elif origin is list:
        yield from [] if isinstance(value, list) else [f"{where}: {value!r} is no list"]
        for index, each in enumerate(value if isinstance(value, list) else []):
            yield from mistyped(each, inside[0], f"{where}/{index}")
    elif origin is dict:
        yield from [] if isinstance(value, dict) else [f"{where}: {value!r} is no object"]
        for key, each in value.items() if isinstance(value, dict) else ():
            yield from mistyped(each, inside[1], f"{where}/{key}")
    elif isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        yield from [] if value in {one.value for one in wanted} else [f"{where}: no {value!r}"]
    else:
        yield from of_class(value, wanted, where)


def of_class(value: Any, wanted: type, where: str) -> Iterator[str]:
    """Yield what is wrong with a value that should be of a class: a plain type, or a model."""
    number = wanted is float and isinstance(value, int) and not isinstance(value, bool)
    right = isinstance(value, wanted) and not (wanted is int and isinstance(value, bool))
    # Links of a panel, options: some models keep pieces as they were read.
    read = getattr(wanted, "from_json", None)
    if read is not None and isinstance(value, dict):
        yield from differences(value, plain(read(value)), where)
        value, right = read(value), True
    if not (right or number):
        yield f"{where}: {value!r} is no {getattr(wanted, '__name__', wanted)}"
    elif read is not None:
        for name, kind in typing.get_type_hints(type(value)).items():
            yield from mistyped(getattr(value, name), kind, f"{where}/{name}")
        if isinstance(value, models.Panel):
            yield from of_panel(value, where)


def of_panel(panel: models.Panel, where: str) -> Iterator[str]:
    """Yield what is wrong in what the schema leaves to the panel's type."""
    for name, part in (("options", panel.options), ("custom", panel.field_config.defaults.custom)):
        if part is None:
            continue
        if isinstance(part, dict):
            yield f"{where}/{name}: the schema knows no panel of type {panel.type_val!r}"
        else:
            yield from mistyped(part, type(part), f"{where}/{name}")
    for query in panel.targets or ():
        if type(query).__name__ != "Dataquery" or not isinstance(query, variants.Dataquery):
            yield f"{where}/targets: no query of a data source that the schema knows"


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all panels, those in collapsed rows included; no rows."""
    for panel in board["panels"]:
        yield from panel["panels"] if panel["type"] == "row" else (panel,)


def open_parts(board: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong in overrides and transformations."""
    for panel in panels(board):
        where = f"panel {panel['id']}"
        for override in panel["fieldConfig"]["overrides"]:
            for each in override["properties"]:
                yield from overridden(panel, each["id"], each["value"], where)
        for each in panel["transformations"]:
            if each["id"] not in TRANSFORMATIONS:
                yield f"{where}: no transformation {each['id']!r}"
            elif not set(each["options"]) <= TRANSFORMATIONS[each["id"]]:
                yield f"{where}: {each['id']} has no such options: {sorted(each['options'])}"


def overridden(panel: dict[str, Any], key: str, value: Any, where: str) -> Iterator[str]:
    """Yield what is wrong with a property of an override."""
    where = f"{where}: override {key}"
    shaped: dict[str, Callable[[Any], Any]] = {
        "thresholds": models.ThresholdsConfig.from_json,
        "color": models.FieldColor.from_json,
    }
    if key in shaped:
        read = shaped[key](value)
        yield from differences(value, plain(read), where)
        yield from mistyped(read, type(read), where)
    elif key == "mappings":
        config = {"defaults": {"mappings": value}, "overrides": []}
        read = models.FieldConfigSource.from_json(config)
        yield from differences(config["defaults"], plain(read)["defaults"], where)
    elif key == "links":
        for link in value:
            if set(link) != {"title", "url", "targetBlank"}:
                yield f"{where}: a link has a title, a url and targetBlank"
    elif key.startswith("custom."):
        hook = models.cogruntime.panelcfg_config(panel["type"])
        custom = {key.removeprefix("custom."): value}
        config_of = hook.field_config_from_json_hook if hook else None
        if panel["type"] == "table":  # the SDK has the model and does not name it
            config_of = common.TableFieldOptions.from_json
        written = plain(config_of(custom)) if config_of else {}
        yield from (line for line in differences(custom, written, where) if "written" not in line)
    elif not isinstance(value, FIELD_KEYS.get(key, ())):
        yield f"{where}: no such property, or {value!r} is not of its type"
