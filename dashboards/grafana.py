"""What Grafana makes of a dashboard: values of variables, intervals, queries as they are sent.

A dashboard is its JSON, and Prometheus is asked over HTTP. Rules are Grafana's own: how a value is
escaped (of a variable that allows several as a regular expression), what "All" stands for, how long
`$__rate_interval` is. Who draws (`dashboards.render`) and who checks (tests) then asks the same.

Raises `KeyError` for a variable or a format that is not known: a query with a hole in it would find
nothing, and look like a panel without data.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ALL = "$__all"
_POINTS = 11_000
"""More than so many for each series Prometheus refuses."""
_NICE = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10800, 21600)
_VARIABLE = re.compile(r"\$(\w+)|\$\{(\w+)(?::(\w+))?\}|\[\[(\w+)(?::(\w+))?\]\]")
_LABEL_VALUES = re.compile(r"label_values\((?:(.+),)?\s*([a-zA-Z_]\w*)\s*\)", re.DOTALL)
_QUERY_RESULT = re.compile(r"query_result\((.+)\)", re.DOTALL)
_METRICS = re.compile(r"metrics\((.+)\)")
_TELLS = re.compile(r"{{\s*(.+?)\s*}}")

Series = tuple[dict[str, str], list[tuple[float, float]]]
"""Labels, and moments with values."""


class QueryError(Exception):
    """What Prometheus said of a query that it did not answer."""


class Span(NamedTuple):
    """The time that a dashboard shows, and how often the data source says it is scraped."""

    start: float
    end: float
    scrape: float = 15.0
    points: int = 1000
    """As many as a panel is wide."""

    def interval(self, least: float | None = None) -> int:
        """Return `$__interval` in seconds; `least` is the query's own minimum."""
        wanted = (self.end - self.start) / self.points
        nice = next((one for one in _NICE if one >= wanted), _NICE[-1])
        return int(max(nice, least or self.scrape, (self.end - self.start) / _POINTS))

    def rate_interval(self, least: float | None = None) -> int:
        """Return `$__rate_interval` in seconds: four scrapes, or one more than a step."""
        scrape = least or self.scrape
        return int(max(self.interval(least) + scrape, 4 * scrape))

    def globals(self, least: float | None = None) -> dict[str, str]:
        """Return Grafana's own variables."""
        interval, length = self.interval(least), int(self.end - self.start)
        return {
            "__interval": f"{interval}s",
            "__interval_ms": str(interval * 1000),
            "__rate_interval": f"{self.rate_interval(least)}s",
            "__range": f"{length}s",
            "__range_s": str(length),
            "__range_ms": str(length * 1000),
        }


class Prometheus:
    """A Prometheus, asked over HTTP. Raises `QueryError`, and `OSError` where nobody answers."""

    def __init__(self, url: str, timeout: float = 30.0) -> None:
        self._url = url
        self._timeout = timeout

    def get(self, path: str, **fields: str | float) -> Any:
        """Return the data of an answer. Raises `QueryError` where there is none."""
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(fields)}"
        try:
            with urllib.request.urlopen(url, timeout=self._timeout) as answer:  # noqa: S310 - http
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            told = error.read().decode(errors="replace")
            raise QueryError(f"{fields.get('query', path)}: {told}") from error

    def at(self, expression: str, moment: float) -> list[Series]:
        """Return what an expression is at a moment."""
        data = self.get("query", query=expression, time=moment)
        if data["resultType"] in ("scalar", "string"):
            return [({}, [_point(data["result"])])]
        return [(one["metric"], [_point(one["value"])]) for one in data["result"]]

    def over(self, expression: str, span: Span, step: float) -> list[Series]:
        """Return what an expression is in a span of time, at multiples of the step."""
        start, end = span.start // step * step, span.end // step * step
        data = self.get("query_range", query=expression, start=start, end=end, step=step)
        return [(one["metric"], [*map(_point, one["values"])]) for one in data["result"]]

    def label_values(self, label: str, selector: str | None, span: Span) -> list[str]:
        """Return the values of a label, of all series or of those that a selector finds."""
        path = f"label/{label}/values"
        match = {"match[]": selector} if selector else {}
        return list(self.get(path, start=span.start, end=span.end, **match))


def _point(told: list[Any]) -> tuple[float, float]:
    return float(told[0]), float(told[1])


class Choice(NamedTuple):
    """What was chosen of a variable: values, and how they go into a query."""

    values: tuple[str, ...]
    regular: bool = False
    """Whether several could be chosen: then it is a regular expression."""
    raw: str | None = None
    """What stands for All, where the variable says so itself."""

    def text(self, form: str | None = None) -> str:
        """Return what it is in a query. Raises `KeyError` for a format that is not known."""
        if form not in (None, "regex", "pipe", "raw", "csv", "text", "queryparam"):
            raise KeyError(f"format {form!r}")
        if self.raw is not None:
            return self.raw
        if form in ("raw", "csv", "text"):
            return ",".join(self.values)
        if form == "pipe":
            return "|".join(self.values)
        if not self.regular:
            return _quoted(self.values[0]) if self.values else ""
        escaped = [_escaped(value) for value in self.values]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("'", "\\\\'")


def _escaped(value: str) -> str:
    """Escape what means something in a regular expression, within quotes of PromQL."""
    return re.sub(r"[$^*{}\[\]'+?.()|]", r"\\\\\g<0>", value.replace("\\", "\\\\\\\\"))


def interpolate(text: str, choices: Mapping[str, Choice], own: Mapping[str, str]) -> str:
    """Put values in place of variables; `own` are Grafana's. Raises `KeyError`."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2] or match[4]
        if name in own:
            return own[name]
        if name.isdigit():
            return match[0]  # of label_replace
        return choices[name].text(match[3] or match[5])

    return _VARIABLE.sub(value, text)


@dataclass(frozen=True)
class Target:
    """One query of one panel, variables still in it."""

    panel: str
    ref: str
    expression: str
    instant: bool
    legend: str = ""
    least: float | None = None
    scoped: tuple[tuple[str, Choice], ...] = ()
    """What a repeated panel or row has chosen for it."""
    panel_id: int = 0

    def sent(self, choices: Mapping[str, Choice], span: Span) -> str:
        """Return the expression as Grafana sends it."""
        return interpolate(
            self.expression, {**choices, **dict(self.scoped)}, span.globals(self.least)
        )

    def ask(
        self, prometheus: Prometheus, choices: Mapping[str, Choice], span: Span
    ) -> list[Series]:
        """Return what Prometheus answers. Raises `QueryError`."""
        expression = self.sent(choices, span)
        if self.instant:
            return prometheus.at(expression, span.end)
        return prometheus.over(expression, span, span.interval(self.least))


@dataclass(frozen=True)
class Dashboard:
    """A dashboard as Grafana keeps it."""

    document: Mapping[str, Any] = field(repr=False)

    @property
    def uid(self) -> str:
        """Return what links call it by."""
        return str(self.document["uid"])

    def panels(self) -> Iterator[Mapping[str, Any]]:
        """Yield all panels, those of folded rows too, without the rows."""
        for panel in self.document["panels"]:
            if panel["type"] == "row":
                yield from panel.get("panels", ())
            else:
                yield panel

    def targets(self, choices: Mapping[str, Choice]) -> Iterator[Target]:
        """Yield each query of each panel, a repeated one once for each value."""
        for panel in self.panels():
            for scoped in _repeats(panel, choices):
                for target in panel.get("targets", ()):
                    if not target.get("hide"):
                        yield from _targets(panel, target, scoped)

    def annotations(self) -> Iterator[Target]:
        """Yield the queries of annotations that this dashboard brings."""
        for one in self.document.get("annotations", {}).get("list", ()):
            expression = one.get("expr") or one.get("target", {}).get("expr")
            if expression:
                yield Target(f"annotation {one['name']}", "A", expression, instant=False)

    def choose(self, prometheus: Prometheus, span: Span) -> dict[str, Choice]:
        """Return what each variable is when the dashboard is opened for the first time.

        Raises `QueryError`, and `KeyError` where one needs another that comes later.
        """
        choices: dict[str, Choice] = {}
        for variable in self.document.get("templating", {}).get("list", ()):
            choices[variable["name"]] = _choice(variable, prometheus, choices, span)
        return choices


def _repeats(
    panel: Mapping[str, Any], choices: Mapping[str, Choice]
) -> Iterator[tuple[tuple[str, Choice], ...]]:
    name = panel.get("repeat")
    if not name:
        yield ()
        return
    for value in choices[name].values:
        yield ((name, Choice((value,), choices[name].regular)),)


def _targets(
    panel: Mapping[str, Any], target: Mapping[str, Any], scoped: tuple[tuple[str, Choice], ...]
) -> Iterator[Target]:
    least = seconds(target["interval"]) if target.get("interval") else None
    kinds = [bool(target.get("instant"))]
    if target.get("instant") and target.get("range"):
        kinds = [True, False]
    for instant in kinds:
        yield Target(
            panel.get("title", ""), target["refId"], target["expr"], instant,
            target.get("legendFormat") or "", least, scoped, panel.get("id", 0),
        )  # fmt: skip


def options(
    variable: Mapping[str, Any], prometheus: Prometheus, choices: Mapping[str, Choice], span: Span
) -> list[str]:
    """Return what a variable's query offers, in Grafana's order. Raises `ValueError`."""
    told = variable["query"]
    query = interpolate(
        told["query"] if isinstance(told, dict) else told, choices, span.globals()
    ).strip()
    if match := _LABEL_VALUES.fullmatch(query):
        found = prometheus.label_values(match[2], (match[1] or "").strip() or None, span)
    elif match := _QUERY_RESULT.fullmatch(query):
        found = [_as_text(one) for one in prometheus.at(match[1], span.end)]
    elif match := _METRICS.fullmatch(query):
        found = [
            name
            for name in prometheus.label_values("__name__", None, span)
            if re.search(match[1], name)
        ]
    else:
        raise ValueError(f"variable {variable['name']}: {query!r} is no query for values")
    return _filtered(found, variable.get("regex") or "")


def _as_text(series: Series) -> str:
    labels, points = series
    inner = ",".join(f'{k}="{v}"' for k, v in labels.items() if k != "__name__")
    return f"{labels.get('__name__', '')}{{{inner}}} {points[-1][1]:g} {points[-1][0] * 1000:.0f}"


def _filtered(found: list[str], pattern: str) -> list[str]:
    if pattern:
        finds = [re.search(pattern.strip("/"), one) for one in found]
        found = [m[1] if m.re.groups else m[0] for m in finds if m]
    return sorted(dict.fromkeys(one for one in found if one))


def _choice(
    variable: Mapping[str, Any], prometheus: Prometheus, choices: Mapping[str, Choice], span: Span
) -> Choice:
    kind = variable["type"]
    regular = bool(variable.get("multi") or variable.get("includeAll"))
    if kind == "datasource":
        return Choice(("prometheus",))
    if kind == "query":
        offered = options(variable, prometheus, choices, span)
    elif kind in ("custom", "interval"):
        offered = [one["value"] for one in variable.get("options", ()) if one["value"] != ALL]
        offered = offered or [one.strip() for one in str(variable["query"]).split(",")]
    else:  # constant, textbox
        return Choice((str(variable.get("query", "")),))
    current = variable.get("current", {}).get("value") or ()
    chosen = [current] if isinstance(current, str) else [*current]
    if variable.get("includeAll") and (not chosen or ALL in chosen):
        return Choice(tuple(offered), regular, variable.get("allValue") or None)
    kept = tuple(one for one in chosen if one in offered) or tuple(offered[:1])
    return Choice(kept, regular)


def seconds(duration: str) -> float:
    """Return a duration such as `1m` in seconds. Raises `ValueError`."""
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
    match = re.fullmatch(r"(\d+)(ms|s|m|h|d)", duration)
    if match is None:
        raise ValueError(f"{duration!r} is no duration")
    return int(match[1]) * units[match[2]]


def legend(pattern: str, labels: Mapping[str, str]) -> str:
    """Return the name of a series by a pattern such as `{{gpu}}`, or by its labels."""
    if pattern and pattern != "__auto":
        return _TELLS.sub(lambda match: labels.get(match[1], ""), pattern)
    inner = ", ".join(f'{k}="{v}"' for k, v in labels.items() if k != "__name__")
    return f"{labels.get('__name__', '')}{{{inner}}}" if inner else labels.get("__name__", "")
