"""`flopwatch alerts`: the rules on what a configuration promises, with its figures in them.

The file takes the place of `alerts/sla-alerts.yaml`, which learns thresholds from the daemons'
metrics. It rests on the series that `alerts/sla.yaml` records over all nodes. Because it knows what
ought to be promised it can say more: that no node speaks of a promise, and that a node judges by
other figures. An alert that could never fire (fourteen times half of all events) is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import translate
from typing import NamedTuple

from exporter.objectives import Objective

MONTH = 30
"""Days over which an error budget is meant, unless told otherwise."""


class Burn(NamedTuple):
    """An alert on a budget that burns so many times faster than it may, over two windows."""

    alert: str
    tier: str
    severity: str
    short: str
    long: str
    factor: float
    lasts: str
    covered: int
    """Minutes of the long window that there must be."""
    title: str
    action: str


BURNS = (
    Burn("SlaBudgetBurnsFast", "fast", "page", "5m", "1h", 14.4, "1m", 0,
         "the error budget is being used up",
         "See sla_breach_cause and what was changed last: a roll-out, a config, the load."),
    Burn("SlaBudgetBurns", "medium", "page", "30m", "6h", 6.0, "5m", 60,
         "the error budget will not last",
         "See sla_breach_cause and what was changed within the day; add replicas or shed load."),
    Burn("SlaBudgetBurnsDaily", "daily", "ticket", "2h", "1d", 3.0, "15m", 120,
         "a tenth of the month's error budget went within a day",
         "Find the hours in which it goes (sla:bad_ratio:rate5m) and what ran then."),
)  # fmt: skip
"""The usual table for a month of thirty days; a shorter one has lower factors."""


class Rule(NamedTuple):
    """An alert as Prometheus reads it."""

    name: str
    expr: Sequence[str]
    lasts: str
    labels: Mapping[str, str]
    summary: str
    description: str
    action: str


def write(
    objectives: Sequence[Objective], origin: str, days: int = MONTH, runbooks: str = ""
) -> list[str]:
    """Return the lines of a file of rules; `origin` is what the configuration is called.

    `days` is the time for which an error budget is meant, `runbooks` an address to put before
    `runbooks/...`.
    """
    head = [
        f"# Written by flopwatch alerts from {origin}: write it anew when that changes.",
        "# Takes the place of sla-alerts.yaml; needs the series that sla.yaml records.",
        f"# Error budgets are meant for {days} days. Alerts that could never fire are left out.",
        "groups:",
    ]
    found = []
    for objective in objectives:
        name = "/".join(filter(None, (objective.sla, objective.tier, objective.name)))
        found += [
            f"  # {_in_a_line(objective.describe())}",
            f"  - name: {_quoted(name)}",
            "    interval: 1m",
            "    rules:",
        ]
        for rule in _rules(objective, name, days):
            found += _lines(rule, runbooks)
    return [*head, *found] if found else [*head[:-1], "groups: []"]


def _rules(objective: Objective, name: str, days: int) -> Iterator[Rule]:
    selector, promised = _selector(objective), _plain(objective.describe())
    if objective.kind != "training":
        allowed = float(objective.allowance(1.0))
        if objective.burn_alerts:
            for burn in BURNS:
                if burn.factor * days / MONTH * allowed < 1:
                    yield _burn(objective, name, burn, burn.factor * days / MONTH * allowed)
        yield _slowly(objective, name, allowed)
        yield _violated(objective, name, allowed)
    yield Rule(
        "SlaAbsent",
        [f"absent(sla_target_ratio{{{selector}}})", "and on () count(flopwatch_build_info) > 0"],
        "15m",
        {"severity": "ticket", **_component(objective), **_labels(objective)},
        f"No node speaks of {name}",
        f"Promised is: {promised}. Daemons run, but none of them has it in its configuration.",
        "Roll the configuration out; flopwatch check FILE lists what it promises.",
    )
    yield _differs(objective, name, selector)


def _burn(objective: Objective, name: str, burn: Burn, limit: float) -> Rule:
    selector = f"{{{_selector(objective, judged=True)}}}"
    expr = [
        f"sla:bad_ratio:rate{burn.short}{selector} > {limit:.6g}",
        f"and sla:bad_ratio:rate{burn.long}{selector} > {limit:.6g}",
        *_enough(objective, selector, burn.long),
    ]
    if burn.covered:
        expr.append(
            f"and count_over_time(sla:events:rate5m{selector}[{burn.long}]) >= {burn.covered}"
        )
    return Rule(
        burn.alert, expr, burn.lasts, _serving(objective, burn.severity, burn.tier),
        f"{name}{_OF_MODEL}: {burn.title}",
        f"{_VALUE} of the events of the last {burn.short} were bad for certain, above"
        f" {100 * limit:.4g} %, and so over {burn.long}. Promised is: "
        f"{_plain(objective.describe())}." + _cause(objective),
        burn.action,
    )  # fmt: skip


def _slowly(objective: Objective, name: str, allowed: float) -> Rule:
    selector = f"{{{_selector(objective, judged=True)}}}"
    return Rule(
        "SlaBudgetBurnsSlowly",
        [
            f"sla:bad_ratio:rate6h{selector} > {allowed:.6g}",
            f"and sla:bad_ratio:rate3d{selector} > {allowed:.6g}",
            *_enough(objective, selector, "3d"),
            *_beyond_chance(selector, "3d", allowed),
        ],
        "1h", _serving(objective, "ticket", "slow"),
        f"{name}{_OF_MODEL}: more is bad than was promised, over days",
        f"{_VALUE} of the events of the last six hours were bad for certain, above"
        f" {100 * allowed:.4g} %, and so over three days. Promised is: "
        f"{_plain(objective.describe())}.",
        "Find the hours in which it goes (sla:bad_ratio:rate5m); plan capacity, or promise less.",
    )  # fmt: skip


def _violated(objective: Objective, name: str, allowed: float) -> Rule:
    selector = f"{{{_selector(objective, judged=True)}}}"
    return Rule(
        "SlaViolated",
        [
            f"sla:bad_ratio:rate30m{selector} > {allowed:.6g}",
            *_enough(objective, selector, "6h"),
            *_beyond_chance(selector, "6h", allowed),
        ],
        "1h", _serving(objective, "ticket", "steady"),
        f"{name}{_OF_MODEL} is violated",
        f"{_VALUE} of the events of the last half hour were bad for certain, above"
        f" {100 * allowed:.4g} %, for an hour and on average over six. Promised is:"
        f" {_plain(objective.describe())}." + _cause(objective),
        "See sla_breach_cause; add replicas, or promise what the service can keep.",
    )  # fmt: skip


def _differs(objective: Objective, name: str, selector: str) -> Rule:
    others = [f"abs(sla_target_ratio{{{selector}}} - {objective.target!r}) > 1e-9"]
    if objective.threshold is not None:
        unit = "tokens_per_second" if objective.kind == "throughput" else "seconds"
        limit = f"{objective.threshold!r}"
        others.append(f"abs(sla_threshold_{unit}{{{selector}}} / {limit} - 1) > 1e-6")
    expr = ["count by (sla, objective, tier) (", f"  {others[0]}"]
    expr += [f"  or {other}" for other in others[1:]]
    return Rule(
        "SlaConfigDiffers", [*expr, ")"], "1h",
        {"severity": "ticket", **_component(objective), **_labels(objective)},
        f"{{{{ $value }}}} nodes judge {name} by other figures than the rules",
        f"The rules have: {_plain(objective.describe())}. These nodes have another configuration,"
        " so what they count is another promise.",
        "Roll one configuration out to all nodes, and write the rules from it.",
    )  # fmt: skip


_VALUE = "{{ $value | humanizePercentage }}"
_OF_MODEL = "{{ with $labels.model_name }} of {{ . }}{{ end }}"


def _cause(objective: Objective) -> str:
    query = f"topk(1, sum by (cause) (sla_breach_cause{{{_selector(objective)}}} == 1))"
    seen = " Seen on most nodes: {{ .Labels.cause }}."
    return f"{{{{ range query {_quoted(query)} }}}}{seen}{{{{ end }}}}"


def _enough(objective: Objective, selector: str, window: str) -> list[str]:
    few = 300 if objective.kind == "throughput" else 10
    return [
        f"and sla:events:increase{window}{selector} >= {objective.minimum_events}",
        f"and sla:bad_events:increase{window}{selector} >= {few}",
    ]


def _beyond_chance(selector: str, window: str, allowed: float) -> list[str]:
    """Return that more is bad than three standard deviations above what is allowed."""
    events = f"sla:events:increase{window}{selector}"
    return [
        f"and sla:bad_events:increase{window}{selector}",
        f"  > {allowed:.6g} * {events} + 3 * sqrt({allowed * (1 - allowed):.6g} * {events})",
    ]


_PAIR = re.compile(r"\\\\|\\u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})")


def _quoted(text: str) -> str:
    """Return a string as YAML, PromQL and Go's templates all read it: no halves of characters."""

    def whole(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        code = 0x10000 + ((int(match[1], 16) & 0x3FF) << 10) + (int(match[2], 16) & 0x3FF)
        return f"\\U{code:08x}"

    return _PAIR.sub(whole, json.dumps(text))


def _plain(text: str) -> str:
    """Return a text for a template, in which nothing of it is an instruction."""
    return text.replace("{{", '{{ "{{" }}')


def _in_a_line(text: str) -> str:
    """Return a text for a comment, which ends with its line."""
    return "".join(one if one.isprintable() else " " for one in text)


def _selector(objective: Objective, *, judged: bool = False) -> str:
    """Return matchers of an objective; `judged`: of its events, which may be told by model."""
    found = [f"{label}={_quoted(value)}" for label, value in _labels(objective).items()]
    if not objective.tier:
        found.append('tier=""')
    if judged and objective.per == "model" and objective.models:
        patterns = "|".join(_regex(pattern) for pattern in objective.models)
        found.append(f"model_name=~{_quoted(patterns)}")
    return ", ".join(found)


def _regex(pattern: str) -> str:
    """Return a shell's pattern as a regular expression of RE2."""
    found = re.sub(r"^\(\?s:(.*)\)\\[Zz]$", r"\1", translate(pattern), flags=re.DOTALL)
    return found.replace("(?>", "(?:")


def _labels(objective: Objective) -> dict[str, str]:
    labels = {"sla": objective.sla, "objective": objective.name}
    return {**labels, "tier": objective.tier} if objective.tier else labels


def _component(objective: Objective) -> dict[str, str]:
    return {"component": "training" if objective.kind == "training" else "serving"}


def _serving(objective: Objective, severity: str, tier: str) -> dict[str, str]:
    """Return the labels of an alert on a promise; promtool takes rules without its name for one."""
    fixed = {"severity": severity, "component": "serving", "burnrate_tier": tier}
    return {**fixed, **_labels(objective)}


def _lines(rule: Rule, runbooks: str) -> list[str]:
    labels = ", ".join(f"{name}: {_quoted(value)}" for name, value in rule.labels.items())
    book = f"{runbooks}runbooks/serving.md#{rule.name.lower()}"
    texts = {
        "summary": rule.summary, "description": rule.description, "action": rule.action,
        "runbook_url": book,
    }  # fmt: skip
    return [
        f"      - alert: {rule.name}",
        "        expr: |",
        *(f"          {line}" for line in rule.expr),
        f"        for: {rule.lasts}",
        f"        labels: {{{labels}}}",
        "        annotations:",
        *(f"          {name}: {_quoted(text)}" for name, text in texts.items()),
    ]
