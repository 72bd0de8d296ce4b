"""Queries of panels: what is asked, and how a board selects series.

Texts of queries may hold the name of a scope in angle brackets, such as `gpu_up{<node>}`: it stands
for the variables that a board selects series by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.models import dashboard as models

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")

# A variable stands for `.*` when nothing is chosen, so a label that is absent matches as well.
# `one` and `training` are for boards about one node or one run: of these Grafana escapes nothing,
# so that `=~` would take a dot or a bracket for something else.
SCOPES = {
    "cluster": 'cluster=~"$cluster"',
    "node": 'cluster=~"$cluster", instance=~"$instance"',
    "one": 'cluster=~"$cluster", instance="$instance"',
    "training": 'cluster=~"$cluster", run="$run"',
    "run": 'cluster=~"$cluster", run=~"$run"',
    "serving": 'engine!="", cluster=~"$cluster", model_name=~"$model_name", server=~"$server"',
    # Promises name no engine; one that names no model or server is about all of them.
    "promise": 'cluster=~"$cluster", model_name=~"$model_name|", server=~"$server|"',
}


class Query(NamedTuple):
    """A query, what its series are called in the legend, and the colour of all of them."""

    expr: str
    legend: str = "__auto"
    color: str = ""


def expand(text: str) -> str:
    """Return a query with the labels of its scopes in place of their names."""
    for name, labels in SCOPES.items():
        text = text.replace(f"<{name}>", labels)
    return " ".join(text.split())


def target(query: Query, letter: str, *, instant: bool = False) -> prometheus.Dataquery:
    """Return a query as a panel keeps it; `instant`: its latest values only."""
    target = (
        prometheus.Dataquery().expr(expand(query.expr)).ref_id(letter).legend_format(query.legend)
    )
    return target.instant() if instant else target.range()


def listed(queries: str | Query | Sequence[Query]) -> list[Query]:
    """Return one query, or several, as a list."""
    if isinstance(queries, str):
        return [Query(queries)]
    return [queries] if isinstance(queries, Query) else list(queries)


def lettered(queries: Sequence[Query]) -> list[tuple[str, Query]]:
    """Return queries with the letters that a panel calls them by."""
    return [(chr(ord("A") + index), query) for index, query in enumerate(queries)]
