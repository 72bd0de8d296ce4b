"""What boards are made of, in one place to import from.

A panel function gives a panel of Grafana's schema without a place; `board` places panels.
"""

from dashboards.boards import ABOUT_ONE, BOARDS, Row, board, mark, towards
from dashboards.courses import heatmap, timeline, timeseries
from dashboards.numbers import bargauge, gauge, stat, text
from dashboards.queries import SCOPES, Query, expand
from dashboards.style import (
    BAD,
    BLUE,
    BROWN,
    COLORS,
    FINE,
    GREEN,
    GREY,
    INDIGO,
    LAVENDER,
    LIME,
    OLIVE,
    ORANGE,
    PALETTE,
    PURPLE,
    ROSE,
    SKY,
    VERMILION,
    VIOLET,
    WARNING,
)
from dashboards.tables import Column, alerts_table, matrix, table
from dashboards.variables import choice, cluster, datasource, model, node, run, server

__all__ = [
    "ABOUT_ONE",
    "BAD",
    "BLUE",
    "BOARDS",
    "BROWN",
    "COLORS",
    "FINE",
    "GREEN",
    "GREY",
    "INDIGO",
    "LAVENDER",
    "LIME",
    "OLIVE",
    "ORANGE",
    "PALETTE",
    "PURPLE",
    "ROSE",
    "SCOPES",
    "SKY",
    "VERMILION",
    "VIOLET",
    "WARNING",
    "Column",
    "Query",
    "Row",
    "alerts_table",
    "bargauge",
    "board",
    "choice",
    "cluster",
    "datasource",
    "expand",
    "gauge",
    "heatmap",
    "mark",
    "matrix",
    "model",
    "node",
    "run",
    "server",
    "stat",
    "table",
    "text",
    "timeline",
    "timeseries",
    "towards",
]
