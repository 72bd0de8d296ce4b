"""Panels of single numbers: a number, an arc, bars; and one of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grafana_foundation_sdk.builders import bargauge as bargauges
from grafana_foundation_sdk.builders import gauge as gauges
from grafana_foundation_sdk.builders import stat as stats
from grafana_foundation_sdk.builders import text as texts
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.text import TextMode

from dashboards.queries import SOURCE, Query, lettered, listed, target
from dashboards.style import (
    FINE,
    latest,
    mappings_of,
    painted,
    sized,
    steps_of,
)


def stat(
    title: str,
    query: str | Query | Sequence[Query],
    description: str,
    *,
    unit: str = "short",
    steps: Mapping[float, str] | None = None,
    base: str = FINE,
    states: Mapping[str, tuple[str, str]] | None = None,
    decimals: int | None = None,
    nothing: str = "unknown",
    trend: bool = True,
    width: int = 4,
    height: int = 4,
) -> models.Panel:
    """Return one number, or one for each series, with its course behind it.

    `steps` colours the background from a value on (below the first it is `base`); without steps
    and `states` the number has the colour of other text, which light and dark both know. `nothing`
    is written when Prometheus has no series.
    """
    coloured = steps is not None or states is not None
    panel = (
        stats.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .thresholds(steps_of(steps, base if coloured else "text"))
        .color_mode(
            common.BigValueColorMode.BACKGROUND_SOLID if coloured else common.BigValueColorMode.NONE
        )
        .graph_mode(common.BigValueGraphMode.AREA if trend else common.BigValueGraphMode.NONE)
        .reduce_options(latest())
        .no_value(nothing)
    )
    for letter, each in lettered(listed(query)):
        # The latest value of a course may be an old one, of a series that has ended.
        panel.with_target(target(each, letter, instant=not trend))
    if states is not None:
        panel.mappings(mappings_of(states))
    if decimals is not None:
        panel.decimals(decimals)
    return sized(panel, width, height)


def gauge(
    title: str,
    query: str | Query,
    description: str,
    *,
    unit: str = "percentunit",
    low: float = 0,
    high: float = 1,
    steps: Mapping[float, str] | None = None,
    base: str = FINE,
    width: int = 4,
    height: int = 6,
) -> models.Panel:
    """Return one number on an arc between two bounds; `steps` and `base` as for `stat`."""
    panel = (
        gauges.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .min(low)
        .max(high)
        .thresholds(steps_of(steps, base))
        .reduce_options(latest())
        .no_value("unknown")
    )
    for letter, each in lettered(listed(query)):
        panel.with_target(target(each, letter, instant=True))
    return sized(panel, width, height)


def bargauge(
    title: str,
    queries: str | Query | Sequence[Query],
    description: str,
    *,
    unit: str = "percentunit",
    low: float | None = 0,
    high: float | None = 1,
    steps: Mapping[float, str] | None = None,
    base: str = FINE,
    colors: Mapping[str, str] | None = None,
    decimals: int | None = None,
    width: int = 8,
    height: int = 8,
) -> models.Panel:
    """Return one horizontal bar for each series, in the order in which Prometheus tells them.

    `colors` has colours for series whose names begin so.
    """
    panel = (
        bargauges.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .thresholds(steps_of(steps, base))
        .orientation(common.VizOrientation.HORIZONTAL)
        .display_mode(common.BarGaugeDisplayMode.BASIC)
        .reduce_options(latest())
        .no_value("unknown")
    )
    asked = listed(queries)
    for letter, each in lettered(asked):
        panel.with_target(target(each, letter, instant=True))
        if each.color:
            panel.override_by_query(letter, [painted(each.color)])
    for name, color in (colors or {}).items():
        panel.override_by_regexp(f"/^{name}\\b/", [painted(color)])
    if low is not None:
        panel.min(low)
    if high is not None:
        panel.max(high)
    if decimals is not None:
        panel.decimals(decimals)
    return sized(panel, width, height)


def text(content: str, *, width: int = 24, height: int = 3) -> models.Panel:
    """Return a panel of words (Markdown)."""
    panel = texts.Panel().mode(TextMode.MARKDOWN).content(content).transparent(transparent=True)
    return sized(panel, width, height)
