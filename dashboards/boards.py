"""A board: its variables, its links to the others, and its panels, placed from left to right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as models

from dashboards.queries import SOURCE, expand
from dashboards.style import BAD

WIDTH = 24

BOARDS = {
    "flopwatch-fleet": "Fleet",
    "flopwatch-node": "Node",
    "flopwatch-training": "Training",
    "flopwatch-inference-sla": "Inference SLA",
    "flopwatch-fabric": "Fabric",
    "flopwatch-cost": "Cost",
    "flopwatch-exporter": "Exporter health",
}
# Boards about one thing: they are not told "all of them", for then they would show nothing.
ABOUT_ONE = {"flopwatch-node": {"instance"}, "flopwatch-training": {"run"}}


class Row(NamedTuple):
    """Panels under a heading. A collapsed row asks Prometheus nothing until it is opened."""

    title: str
    panels: Sequence[models.Panel]
    collapsed: bool = False


class _Annotation(models.AnnotationQuery):
    """An annotation with the keys that Grafana's Prometheus plugin reads and the schema leaves."""

    def __init__(self, name: str, expr: str, title: str, tags: str, color: str) -> None:
        super().__init__(
            name=name, datasource=SOURCE, enable=True, icon_color=color, expr=expand(expr)
        )
        self._own = {
            "titleFormat": title,
            "textFormat": "",
            "tagKeys": tags,
            "useValueForTime": "on",
        }

    def to_json(self) -> dict[str, object]:
        return super().to_json() | self._own


def mark(
    name: str, expr: str, title: str, tags: str = "", color: str = BAD
) -> models.AnnotationQuery:
    """Return a line across all panels at each moment that the query's value (in ms) tells."""
    return _Annotation(name, expr, title, tags, color)


def board(
    uid: str,
    description: str,
    variables: Iterable[Builder[models.VariableModel]],
    rows: Iterable[Row],
    *,
    marks: Sequence[models.AnnotationQuery] = (),
    hours: int = 3,
    refresh: str = "30s",
) -> models.Dashboard:
    """Return a board with its variables, its links to the other boards, and its panels placed."""
    chosen = [variable.build() for variable in variables]
    built = (
        builders.Dashboard(f"flopwatch / {BOARDS[uid]}")
        .uid(uid)
        .description(description)
        .tags(["flopwatch"])
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time(f"now-{hours}h", "now")
        .refresh(refresh)
        .timezone("browser")
        .links([_link(other, chosen) for other in BOARDS if other != uid])
        .build()
    )
    built.templating = models.DashboardDashboardTemplating(list_val=chosen)
    built.panels = _placed(rows)
    built.annotations = models.AnnotationContainer(list_val=list(marks))
    return built


def _link(uid: str, chosen: Iterable[models.VariableModel]) -> builders.DashboardLink:
    """Return a link that takes along the time and what has been chosen."""
    taken = [
        f"${{{variable.name}:queryparam}}"
        for variable in chosen
        if not (variable.multi and variable.name in ABOUT_ONE.get(uid, ()))
    ]
    return (
        builders.DashboardLink(BOARDS[uid])
        .type(models.DashboardLinkType.LINK)
        .url(f"/d/{uid}?{'&'.join(taken)}")
        .keep_time(keep_time=True)
    )


def towards(uid: str, variable: str) -> str:
    """Return the address of a board with the value of a table's cell chosen there."""
    here = "${datasource:queryparam}&${cluster:queryparam}&${__url_time_range}"
    return f"/d/{uid}?var-{variable}=${{__value.raw:percentencode}}&{here}"


def _placed(rows: Iterable[Row]) -> list[models.Panel | models.RowPanel]:
    """Return headings and panels with numbers and places, each row below the one before."""
    placed: list[models.Panel | models.RowPanel] = []
    number, top = 0, 0
    for row in rows:
        number += 1
        heading = models.RowPanel(
            title=row.title,
            id_val=number,
            collapsed=row.collapsed,
            grid_pos=models.GridPos(x=0, y=top, w=WIDTH, h=1),
        )
        placed.append(heading)
        below = _flow(row.panels, top + 1)
        for panel in row.panels:
            number += 1
            panel.id_val = number
        (heading.panels if row.collapsed else placed).extend(row.panels)
        top = top + 1 if row.collapsed else below
    return placed


def _flow(panels: Sequence[models.Panel], top: int) -> int:
    """Place panels from left to right, in a new line where one does not fit; return the end."""
    left, tallest = 0, 0
    for panel in panels:
        place = panel.grid_pos
        if place is None or place.w > WIDTH:
            raise ValueError(f"{panel.title}: no size, or wider than a board")
        if left + place.w > WIDTH:
            left, top, tallest = 0, top + tallest, 0
        place.x, place.y = left, top
        left, tallest = left + place.w, max(tallest, place.h)
    return top + tallest
