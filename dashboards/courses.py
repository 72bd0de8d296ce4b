"""Panels of what happened over time: lines, maps of colours, bars of states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grafana_foundation_sdk.builders import common as looks
from grafana_foundation_sdk.builders import heatmap as heatmaps
from grafana_foundation_sdk.builders import statetimeline
from grafana_foundation_sdk.builders import timeseries as graphs
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.queries import SOURCE, Query, lettered, listed, target
from dashboards.style import (
    BLUE,
    GREY,
    PALETTE,
    PURPLE,
    coloured,
    mappings_of,
    painted,
    sized,
    steps_of,
)

_LEAST_SHARE = 0.001
"""Where an axis of shares ends at least: Grafana draws nothing but zeros from 0 to 10,000 %."""


def timeseries(
    title: str,
    queries: str | Query | Sequence[Query],
    description: str,
    *,
    unit: str = "short",
    low: float | None = None,
    high: float | None = None,
    soft_low: float | None = None,
    soft_high: float | None = None,
    steps: Mapping[float, str] | None = None,
    colors: Mapping[str, str] | None = None,
    stacked: bool = False,
    points: bool = False,
    legend: bool = True,
    table: bool = False,
    width: int = 8,
    height: int = 8,
) -> models.Panel:
    """Return lines over time; `stacked` adds them up, `steps` draws lines at thresholds.

    `colors` has colours for series whose names begin so; without it queries have theirs.
    """
    asked = listed(queries)
    panel = (
        graphs.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .unit(unit)
        .line_width(1)
        .fill_opacity(_filled(asked, stacked=stacked))
        .show_points(common.VisibilityMode.ALWAYS if points else common.VisibilityMode.NEVER)
        .color_scheme(coloured(models.FieldColorModeId.SHADES, BLUE))
        .tooltip(
            looks.VizTooltipOptions()
            .mode(common.TooltipDisplayMode.MULTI)
            .sort(common.SortOrder.DESCENDING)
        )
        .legend(
            looks.VizLegendOptions()
            .show_legend(legend)
            .placement(common.LegendPlacement.RIGHT if table else common.LegendPlacement.BOTTOM)
            .display_mode(
                common.LegendDisplayMode.TABLE if table else common.LegendDisplayMode.LIST
            )
            .calcs(["lastNotNull", "max"] if table else [])
        )
    )
    for letter, each in lettered(asked):
        panel.with_target(target(each, letter))
    _painted(panel, asked, colors or {})
    if stacked:
        panel.stacking(looks.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if low is not None:
        panel.min(low)
    if high is not None:
        panel.max(high)
    if soft_low is not None:
        panel.axis_soft_min(soft_low)
    if soft_high is not None:
        panel.axis_soft_max(soft_high)
    elif unit == "percentunit" and high is None:
        panel.axis_soft_max(_LEAST_SHARE)
    if steps is not None:
        panel.thresholds(steps_of(steps, "transparent"))
        panel.thresholds_style(
            looks.GraphThresholdsStyleConfig().mode(common.GraphTresholdsStyleMode.DASHED)
        )
    return sized(panel, width, height)


def _filled(queries: Sequence[Query], *, stacked: bool) -> int:
    """Return how opaque the area below lines is; many that lie on each other make a wall."""
    if stacked:
        return 70
    return 0 if len(queries) > 2 or any("{{" in query.legend for query in queries) else 8


def _painted(panel: graphs.Panel, queries: Sequence[Query], colors: Mapping[str, str]) -> None:
    """Colour series by how their names begin, by query, or by their last digit (GPUs, ranks)."""
    if not colors and len(queries) > 1 and not any(query.color for query in queries):
        queries = [
            query._replace(color=PALETTE[index % len(PALETTE)])
            for index, query in enumerate(queries)
        ]
    if any("{{" in query.legend and not query.color for query in queries):
        for digit, color in enumerate(PALETTE):
            panel.override_by_regexp(f"/{digit}$/", [painted(color)])
    for letter, query in lettered(queries):
        if query.color:
            mode = "shades" if "{{" in query.legend else "fixed"
            panel.override_by_query(letter, [painted(query.color, mode)])
    for name, color in colors.items():
        panel.override_by_regexp(f"/^{name}\\b/", [painted(color)])


def heatmap(
    title: str,
    query: Query,
    description: str,
    *,
    unit: str = "short",
    axis: str = "",
    low: float | None = None,
    high: float | None = None,
    width: int = 12,
    height: int = 8,
    buckets: bool = False,
) -> models.Panel:
    """Return a map of colours over time: one line for each series, or for each bucket.

    `buckets`: the query gives the rates of a histogram's buckets by `le`.
    """
    color = (
        heatmaps.HeatmapColorOptions()
        .mode(heatmap_models.HeatmapColorMode.SCHEME)
        .scheme("Cividis")
        .steps(64)
        .fill(BLUE)
        .exponent(0.5)
    )
    if low is not None:
        color.min(low)
    if high is not None:
        color.max(high)
    asked = target(query, "A")
    scale = heatmaps.YAxisConfig().axis_placement(common.AxisPlacement.LEFT).axis_label(axis)
    return sized(
        heatmaps.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .calculate(calculate=False)
        .color(color)
        .y_axis(scale.unit(unit) if buckets else scale.decimals(0))
        .cell_values(heatmaps.CellValues().unit("short" if buckets else unit))
        .unit(unit)
        .show_legend()
        .exemplars_color(PURPLE)
        .hide_from(
            looks.HideSeriesConfig().legend(legend=False).tooltip(tooltip=False).viz(viz=False)
        )
        .with_target(asked.format(PromQueryFormat.HEATMAP) if buckets else asked),
        width,
        height,
    )


def timeline(
    title: str,
    queries: str | Query | Sequence[Query],
    description: str,
    *,
    states: Mapping[str, tuple[str, str]],
    width: int = 12,
    height: int = 8,
) -> models.Panel:
    """Return one bar for each series that changes its text and colour with the value."""
    panel = (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(SOURCE)
        .mappings(mappings_of(states))
        .thresholds(steps_of(None, GREY))
        .color_scheme(coloured(models.FieldColorModeId.THRESHOLDS))
        .merge_values(merge_values=True)
        .show_value(common.VisibilityMode.AUTO)
        .row_height(0.85)
        .fill_opacity(85)
        .line_width(0)
        .legend(
            looks.VizLegendOptions()
            .show_legend(show_legend=True)
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
            .calcs([])
        )
    )
    for letter, each in lettered(listed(queries)):
        panel.with_target(target(each, letter))
    return sized(panel, width, height)
