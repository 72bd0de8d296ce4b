"""Tables, and the one of alerts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from grafana_foundation_sdk.builders import common as looks
from grafana_foundation_sdk.builders import table as tables
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.queries import SOURCE, Query, lettered, target
from dashboards.style import (
    BAD,
    WARNING,
    mappings_of,
    sized,
    steps_of,
)

NARROW = models.DynamicConfigValue("custom.minWidth", 60)
"""Else columns are 150 pixels wide at least, and tables of many are to be scrolled."""


class Column(NamedTuple):
    """A column of a table: its query has one row for each combination of the table's labels."""

    title: str
    expr: str
    unit: str = "short"
    steps: Mapping[float, str] | None = None
    decimals: int | None = None
    states: Mapping[str, tuple[str, str]] | None = None


def table(
    title: str,
    labels: Mapping[str, str],
    columns: Sequence[Column],
    description: str,
    *,
    sort: str = "",
    descending: bool = True,
    width: int = 12,
    height: int = 8,
    links: Mapping[str, str] | None = None,
    nothing: str = "none",
) -> models.Panel:
    """Return one line for each combination of `labels` (which maps them to their headings).

    Columns of several queries are joined by these labels: each query has to have no others. A
    column without a title only brings labels.
    `links` maps headings to addresses, in which `${__value.raw}` is the value. `nothing` is written
    where Prometheus has no series at all; a value that is missing is unknown.
    """
    panel = (
        tables.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .cell_height(common.TableCellHeight.SM)
        .show_header(show_header=True)
        .no_value(nothing)
        .thresholds(steps_of(None, "text"))
    )
    letters = lettered([Query(column.expr) for column in columns])
    for letter, query in letters:
        panel.with_target(target(query, letter, instant=True).format(PromQueryFormat.TABLE))
    names = [f"Value #{letter}" for letter, _ in letters] if len(letters) > 1 else ["Value"]
    for transformation in _joined(labels, dict(zip(names, columns, strict=True))):
        panel.with_transformation(transformation)
    panel.override_by_regexp("/.*/", [NARROW])
    for column in filter(lambda each: each.title, columns):
        panel.override_by_name(column.title, _cell(column))
    for heading, url in (links or {}).items():
        link = {"title": heading, "url": url, "targetBlank": False}
        panel.override_by_name(heading, [models.DynamicConfigValue("links", [link])])
    if sort:
        panel.sort_by([looks.TableSortByFieldState().display_name(sort).desc(descending)])
    return sized(panel, width, height)


def _joined(
    labels: Mapping[str, str], columns: Mapping[str, Column]
) -> Iterable[models.DataTransformerConfig]:
    """Yield what makes one table of the answers, keeps only what was asked for, and names it."""
    columns = {name: column for name, column in columns.items() if column.title}
    wanted = [*labels, *columns]
    renamed = dict(labels) | {name: column.title for name, column in columns.items()}
    yield models.DataTransformerConfig(id_val="merge", options={})
    yield models.DataTransformerConfig(
        id_val="filterFieldsByName", options={"include": {"names": wanted}}
    )
    yield models.DataTransformerConfig(
        id_val="organize",
        options={
            "excludeByName": {},
            "indexByName": {name: index for index, name in enumerate(wanted)},
            "renameByName": renamed,
        },
    )


def _cell(column: Column) -> list[models.DynamicConfigValue]:
    """Return how a column's values are written; coloured only where steps or states are given."""
    properties = [
        models.DynamicConfigValue("unit", column.unit),
        models.DynamicConfigValue("noValue", "unknown"),
    ]
    if column.decimals is not None:
        properties.append(models.DynamicConfigValue("decimals", column.decimals))
    if column.steps is not None or column.states is not None:
        steps = steps_of(column.steps, "transparent").build()
        properties.append(models.DynamicConfigValue("thresholds", steps))
    if column.states is not None:
        properties.append(models.DynamicConfigValue("mappings", mappings_of(column.states)))
    if column.steps is not None or column.states is not None:
        cell = {"type": "color-background", "mode": "basic"}
        properties.append(models.DynamicConfigValue("custom.cellOptions", cell))
    return properties


def matrix(
    title: str,
    query: str,
    row: str,
    column: str,
    description: str,
    *,
    states: Mapping[str, tuple[str, str]],
    width: int = 12,
    height: int = 8,
) -> models.Panel:
    """Return a table with a line for each value of one label, a column for each of another."""
    panel = (
        tables.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .cell_height(common.TableCellHeight.SM)
        .show_header(show_header=True)
        .unit("short")
        .thresholds(steps_of(None, "transparent"))
        .override_by_regexp("/.*/", [NARROW])
        .with_target(target(Query(query), "A", instant=True).format(PromQueryFormat.TABLE))
        .with_transformation(
            models.DataTransformerConfig(
                id_val="groupingToMatrix",
                options={"columnField": column, "rowField": row, "valueField": "Value"},
            )
        )
        .override_by_field_type(
            "number",
            [
                models.DynamicConfigValue("mappings", mappings_of(states)),
                models.DynamicConfigValue(
                    "custom.cellOptions", {"type": "color-background", "mode": "basic"}
                ),
            ],
        )
    )
    return sized(panel, width, height)


def alerts_table(matchers: str, *, width: int = 12, height: int = 8) -> models.Panel:
    """Return the alerts that the shipped rules have pending or firing."""
    shown = f'{matchers}, severity!="none"'  # the watchdog always fires
    return table(
        "Alerts",
        {
            "alertname": "alert",
            "severity": "severity",
            "instance": "node",
            "gpu": "GPU",
            "run": "run",
            "model_name": "model",
        },
        [
            Column(
                "state",
                "max by (alertname, severity, instance, gpu, run, model_name)"
                f' (ALERTS{{{shown}, alertstate="firing"}} * 2 or ALERTS{{{shown}}})',
                states={"1": ("pending", WARNING), "2": ("firing", BAD)},
            )
        ],
        "Alerts of the rules in alerts/ (Prometheus' series ALERTS): pending ones wait for their"
        " time to pass. Empty: none, or Prometheus has not loaded the rules.",
        sort="state",
        width=width,
        height=height,
    )
