"""Cases of alerts, turned into promtool's unit tests.

`alerts/tests/cases/*.yaml` has cases for each alert:

    GpuLost:
      - series: {'gpu_up{gpu="3"}': 0}
        labels: {instance: node-1}

says that the alert fires when the series of a page, chosen by its labels, has such a value. A
number is the value while the fault lasts, before and after it is as on the page;
`{good: 1, bad: 0}` states both. Of a counter it is the growth each minute, before and after there
is none. `gone` takes the series away, `now` is the time, `then` that at which the fault began;
`{bad: 0, nodes: [...]}` gives the series to several nodes.

Made of each case, in minutes of `promtool test rules`:

- silent before the fault, fires while it lasts with exactly these labels, recovers after it;
- each of `quiet` and `low` (the same with other values; low: little traffic) never fires;
- without the series, from the beginning of the fault on, nothing fires (but `missing: fires`);
- a counter that begins anew before the fault is no fault.

Keys: `healthy` minutes before (60), `within` so many minutes it fires (the rule's `for` and ten),
`after` so many it is silent again (20, and the rule's windows by hand where they are longer).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from exporter import catalogue as c
from tests.alerts.pages import Series, everything, family, labels_of

ALERTS = Path(__file__).parent.parent.parent / "alerts"
TOPICS = ("cost-spot", "exporter", "fabric", "fleet", "gpu", "serving", "sla", "sla-alerts",
          "training")  # fmt: skip
JOB = "flopwatch"
FOREIGN = {
    "up": (), "scrape_duration_seconds": (),
    "prometheus_notifications_alertmanagers_discovered": (),
    "prometheus_notifications_dropped_total": (),
    "prometheus_notifications_errors_total": ("alertmanager",),
    "prometheus_notifications_sent_total": ("alertmanager",),
    "prometheus_rule_evaluation_failures_total": ("rule_group",),
    "prometheus_rule_group_iterations_missed_total": ("rule_group",),
}  # fmt: skip
"""What Prometheus says of its targets and of itself, and the labels."""

_SELECTOR = re.compile(r"([a-zA-Z_:0-9]+)(?:\{(.*)\})?")
_UNIT = {"s": 1 / 60, "m": 1, "h": 60, "d": 1440}


class Case(NamedTuple):
    """A case of an alert."""

    alert: str
    number: int
    body: Mapping[str, Any]


def minutes(duration: str) -> float:
    """Return the minutes of a duration such as 5m."""
    return sum(float(n) * _UNIT[u] for n, u in re.findall(r"(\d+)([smhd])", duration))


@cache
def rules(topics: tuple[str, ...] = TOPICS) -> list[dict[str, Any]]:
    """Return all rules of the topics."""
    return [
        rule
        for topic in topics
        for group in yaml.safe_load((ALERTS / f"{topic}.yaml").read_text("utf-8"))["groups"]
        for rule in group["rules"]
    ]


@cache
def cases() -> list[Case]:
    """Return the cases of all alerts."""
    found = []
    for path in sorted((ALERTS / "tests" / "cases").glob("*.yaml")):
        for alert, bodies in yaml.safe_load(path.read_text("utf-8")).items():
            found += [Case(alert, n, body) for n, body in enumerate(bodies)]
    return found


class Wardrobe:
    """Finds the series of a selector on the pages."""

    def __init__(self) -> None:
        self._pages = everything()
        self.invented: set[str] = set()
        """Families that no page shows, so that only the catalogue vouches for their labels."""

    def find(self, selector: str) -> Series:
        """Return the first series that a selector means, with all its labels.

        What users name (`_NAMES`) may be called otherwise than on the pages. Raises `LookupError`
        for a label that no page shows, or a value of one of a closed set.
        """
        match = _SELECTOR.fullmatch(selector)
        assert match, selector
        name, wanted = match[1], labels_of(match[2] or "")
        node = {"instance": wanted.pop("instance", "node-1"), "job": wanted.pop("job", JOB)}
        if name in FOREIGN:
            if set(wanted) != set(FOREIGN[name]):
                raise LookupError(selector)
            return Series(name, {**wanted, **node}, 0.0)
        row = c.FAMILIES.get(family(name))
        if row is None:
            raise LookupError(f"{selector}: there is no such family")
        if not set(wanted) <= {*row.labels, "le"}:
            raise LookupError(f"{selector}: its labels are {row.labels}")
        closed = {
            label: value
            for label, value in wanted.items()
            if label not in _NAMES and (name, label, value) not in UNSEEN
        }
        for meant in (wanted, closed):
            for one in self._pages.get(name, ()):
                if meant.items() <= one.labels.items():
                    return Series(name, _same_gpu({**one.labels, **wanted, **node}), one.value)
        if self._pages.get(name):
            raise LookupError(f"{selector}: no page shows it")
        allowed = {*row.labels, *(("le",) if name.endswith("_bucket") else ())}
        self.invented.add(row.name)
        return Series(name, _same_gpu({**dict.fromkeys(allowed, ""), **wanted, **node}), 0.0)


UNSEEN = {
    ("nic_info", "virtual", "true"),  # no tree of a virtual function is complete
    ("nic_retransmits_total", "cause", "timeout"),  # bnxt_re
    ("train_report_mismatch_ratio", "quantity", "tokens"),
    # of families that no page shows
    *(("flopwatch_samples_dropped_total", "reason", text)
      for text in ("cap", "duplicate", "labels", "value")),
    ("gpu_nvswitch_sxid_errors_total", "severity", "critical"),  # exporter/reference/xids.json
    ("llm_cost_per_million_tokens_dollars", "direction", "blended"),
    ("llm_cost_per_million_tokens_dollars", "window", "1h"),
    ("nic_fec_blocks_total", "result", "uncorrected"),
    ("sla_measured_tokens_per_second", "window", "5m"),
}  # fmt: skip
"""Values of closed sets that no page shows, though the sources have them."""

_NAMES = {
    "run", "rank", "model_name", "server", "device", "port", "gpu", "uuid", "pci_bus_id", "sla",
    "objective", "tier", "rail", "priority", "xid", "source", "instance_type", "zone", "namespace",
}  # fmt: skip
"""Labels whose values are names; all others have closed sets."""


def _same_gpu(labels: dict[str, str]) -> dict[str, str]:
    """Give a GPU the same identity, whichever page its series are from."""
    names = {
        "uuid": f"GPU-{labels.get('gpu')}",
        "pci_bus_id": f"0000000{labels.get('gpu')}:00:00.0",
    }
    return {**labels, **{name: text for name, text in names.items() if name in labels}}


class Line(NamedTuple):
    """A series of a test: before, while and after the fault."""

    series: Series
    good: str
    bad: str


def _line(series: Series, spec: object) -> Iterator[Line]:
    nodes: object = [series.labels["instance"]]
    counts = series.name.endswith(("_total", "_bucket", "_count"))
    good: object = 0 if counts else repr(series.value)
    bad = spec
    if isinstance(spec, Mapping):
        nodes, good = spec.get("nodes", nodes), spec.get("good", good)
        bad = spec.get("bad", good)
    assert isinstance(nodes, list)
    texts = [f"+{x}" if counts and str(x) != "gone" else str(x) for x in (good, bad)]
    for node in nodes:
        yield Line(series._replace(labels={**series.labels, "instance": node}), *texts)


def lines(wardrobe: Wardrobe, chosen: Mapping[str, object]) -> list[Line]:
    """Return the series that a case names."""
    return [
        line for selector, spec in chosen.items() for line in _line(wardrobe.find(selector), spec)
    ]


def is_counter(line: Line) -> bool:
    """Tell whether a series of a test counts."""
    return line.good.startswith("+")


def selector(series: Series) -> str:
    """Return a series as promtool wants it."""
    inner = ", ".join(
        f'{name}="{_escaped(value)}"' for name, value in sorted(series.labels.items())
    )
    return f"{series.name}{{{inner}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


class Course:
    """The values of a series, minute by minute."""

    def __init__(self, start: float = 1000.0) -> None:
        self._count = start
        self._minute = 0
        self.parts: list[str] = []

    def go(self, how: str, count: int) -> None:
        """Add `count` minutes.

        `+n` grows by n, `gone` is stale or nothing, `now` is the time, `then` the time at which
        this began; else a value.
        """
        if count <= 0:
            return
        if how == "gone":
            self.parts.append("stale" if self.parts else "_")
            self.parts += [f"_x{count - 1}"] if count > 1 else []
        elif how.startswith("+"):
            step = float(how[1:])
            self.parts.append(f"{self._count + step:.10g}+{step:.10g}x{count - 1}")
            self._count += step * count
        elif how in {"now", "then"}:
            step = 60 if how == "now" else 0
            self.parts.append(f"{60 * self._minute}+{step}x{count - 1}")
        elif how == "NaN":  # promtool cannot repeat it
            self.parts += ["NaN"] * count
        else:  # a value, or one that grows: 100+10
            self.parts.append(f"{how}x{count - 1}")
        self._minute += count

    def reset(self) -> None:
        """Let a counter begin anew."""
        self._count = 0.0


def inputs(
    chosen: list[Line], spans: tuple[int, int, int], *, bad: str = "", reset: bool = False
) -> list[dict[str, str]]:
    """Return promtool's input: so many minutes before, while, and after the fault.

    `bad` replaces what happens in the fault; `reset` lets counters begin anew half-way before it,
    and then the fault does not come.
    """
    before, during, after = spans
    found = []
    for line in chosen:
        course = Course()
        course.go(line.good, before // 2)
        if reset and is_counter(line):
            course.reset()
        course.go(line.good, before - before // 2)
        course.go(line.good if reset else bad or line.bad, during)
        course.go(line.good, after)
        found.append({"series": selector(line.series), "values": " ".join(course.parts)})
    return found


def rule_of(case: Case) -> dict[str, Any]:
    """Return the rule that a case is about."""
    severity = case.body.get("severity")
    found = [
        rule
        for rule in rules()
        if rule.get("alert") == case.alert and severity in {None, rule["labels"]["severity"]}
    ]
    assert len(found) == 1, f"{case.alert}: {len(found)} rules; state the severity"
    return found[0]


def needed(alert: str) -> list[dict[str, Any]]:
    """Return the rules of an alert and those that record what it asks for, in order."""
    every = rules()
    wanted = {id(rule) for rule in every if rule.get("alert") == alert}
    while True:
        text = " ".join(rule["expr"] for rule in every if id(rule) in wanted)
        more = {id(rule) for rule in every if "record" in rule and _asks(text, rule["record"])}
        if more <= wanted:
            return [rule for rule in every if id(rule) in wanted]
        wanted |= more


def _asks(expression: str, record: str) -> bool:
    return re.search(rf"(?<![\w:]){re.escape(record)}(?![\w:])", expression) is not None


def promtool_tests(wardrobe: Wardrobe, case: Case, *, texts: bool = False) -> list[dict[str, Any]]:
    """Return promtool's tests of a case; with `texts` one that shows the texts of the alert."""
    body, rule = case.body, rule_of(case)
    labels = {**rule["labels"], **body.get("labels", {})}
    chosen = lines(wardrobe, body["series"])
    healthy = body.get("healthy", 60)
    within = body.get("within", round(minutes(rule.get("for", "0m"))) + 10)
    hold = round(minutes(rule.get("keep_firing_for", "0m")))
    spans = (healthy, within + 5, body.get("after", 20) + hold)
    firing = {**labels, "alertname": case.alert, "alertstate": "firing"}
    inner = ", ".join(f'{name}="{_escaped(str(value))}"' for name, value in firing.items())
    expression = (
        f'ALERTS{{alertname="{case.alert}", alertstate="firing", severity="{labels["severity"]}"}}'
    )

    def test(name: str, series: list[dict[str, str]], at: Mapping[int, bool]) -> dict[str, Any]:
        sample = [{"labels": f"ALERTS{{{inner}}}", "value": 1}]
        return {
            "name": f"{case.alert} {case.number}: {name}", "interval": "1m", "input_series": series,
            "promql_expr_test": [
                {"expr": expression, "eval_time": f"{minute}m", "exp_samples": sample * fires}
                for minute, fires in at.items()
            ],
        }  # fmt: skip

    fires, end = healthy + within, sum(spans) - 1
    silent = dict.fromkeys((healthy - 1, healthy + 2, fires, fires + 4), False)
    short = (*spans[:2], 1)
    if texts:
        alert = {
            "eval_time": f"{fires}m",
            "alertname": case.alert,
            "exp_alerts": [{"exp_labels": {"no": "such"}}],
        }
        shown = test("texts", inputs(chosen, spans), {})
        return [{**shown, "promql_expr_test": [], "alert_rule_test": [alert]}]
    found = [
        test(
            "fires and recovers", inputs(chosen, spans),
            {healthy - 1: False, fires: True, end: False},
        )
    ]  # fmt: skip
    if body.get("missing") != "fires":
        gone = inputs(chosen, short, bad="gone")
        found.append(test("nothing is known", gone, silent))
    if any(map(is_counter, chosen)):
        found.append(test("a counter begins anew", inputs(chosen, short, reset=True), silent))
    for what in ("quiet", "low"):
        for more in body.get(what, ()):
            others = lines(wardrobe, {**body["series"], **more})
            found.append(test(f"{what} {more}", inputs(others, short), silent))
    return found
