"""What Prometheus answers to all queries of a board, as `app.jsx` wants it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dashboards.grafana import Choice, Dashboard, Prometheus, Series, Span, Target, legend

Points = list[tuple[float, float | None]]


def answers(board: Dashboard, prometheus: Prometheus, span: Span) -> dict[int, list[Any]]:
    """Return the answers to each panel's queries by the panel's number. Raises `QueryError`."""
    choices = board.choose(prometheus, span)
    found: dict[int, list[Any]] = {}
    for target in board.targets(choices):
        found.setdefault(target.panel_id, []).append(_answer(target, prometheus, choices, span))
    return found


def _answer(
    target: Target, prometheus: Prometheus, choices: Mapping[str, Choice], span: Span
) -> dict[str, Any]:
    asked = target.ask(prometheus, choices, span)
    return {
        "ref": target.ref,
        "series": [
            {
                "labels": {name: text for name, text in labels.items() if name != "__name__"},
                "name": legend(target.legend, labels),
                "points": points if target.instant else _gaps(points, span, target),
            }
            for labels, points in map(_without_nan, asked)
        ],
    }


def _without_nan(series: Series) -> tuple[dict[str, str], Points]:
    """JSON has no such number; Grafana draws none either."""
    labels, points = series
    return labels, [(at, value if math.isfinite(value) else None) for at, value in points]


def _gaps(points: Points, span: Span, target: Target) -> Points:
    """Return a point for each step: Grafana draws no line over one that is missing."""
    step = span.interval(target.least)
    known = {round(at): value for at, value in points}
    first, last = int(span.start // step * step), int(span.end // step * step)
    return [(float(at), known.get(at)) for at in range(first, last + 1, step)]
