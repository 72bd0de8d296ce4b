"""The promises of the status document: what was promised, what is measured, what is left."""

from __future__ import annotations

from typing import Any

from exporter import catalogue as c
from exporter.samples import Metric
from exporter.status.facts import Facts

_OBJECTIVE = ("sla", "objective", "tier")
_PROMISE = (*_OBJECTIVE, "model_name", "server")

_WINDOWED: tuple[tuple[str, Metric], ...] = (
    ("seconds", c.SLA_MEASURED_SECONDS),
    ("ratio", c.SLA_MEASURED_RATIO),
    ("tokens_per_second", c.SLA_MEASURED_TOKENS_PER_SECOND),
    ("compliance_ratio", c.SLA_COMPLIANCE_RATIO),
    ("compliance_lower_ratio", c.SLA_COMPLIANCE_LOWER_RATIO),
    ("compliance_upper_ratio", c.SLA_COMPLIANCE_UPPER_RATIO),
    ("budget_remaining_ratio", c.SLA_ERROR_BUDGET_REMAINING_RATIO),
    ("burn_rate", c.SLA_BURN_RATE),
    ("filled_ratio", c.SLA_WINDOW_FILLED_RATIO),
)

_PLAIN: tuple[tuple[str, Metric], ...] = (
    ("events", c.SLA_EVENTS_TOTAL),
    ("good_events", c.SLA_GOOD_EVENTS_TOTAL),
    ("breach_seconds", c.SLA_BREACH_SECONDS_TOTAL),
    ("delivered_tokens_per_second", c.SLA_DELIVERED_TOKENS_PER_SECOND),
)

_OF_OBJECTIVE: tuple[tuple[str, Metric], ...] = (
    ("target_ratio", c.SLA_TARGET_RATIO),
    ("threshold_seconds", c.SLA_THRESHOLD_SECONDS),
    ("threshold_tokens_per_second", c.SLA_THRESHOLD_TOKENS_PER_SECOND),
    ("minimum_events", c.SLA_MINIMUM_EVENTS),
)


def promise_rows(facts: Facts) -> list[dict[str, Any]]:
    """Return one row for each objective and what it is judged for; what is not known is absent.

    `state` is met, violated or undetermined, `windows` what is measured over each window, `causes`
    what keeps it from being met, with the evidence for it.
    """
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    stated = {_key(labels, _OBJECTIVE): labels for labels, _ in facts.all(c.SLA_OBJECTIVE_INFO)}
    for labels, value in facts.all(c.SLA_STATE):
        key = _key(labels, _PROMISE)
        row = rows.setdefault(key, _row(labels, stated.get(key[:3], {})))
        if value:
            row["state"] = labels["state"]
    for field, metric in _WINDOWED:
        for labels, value in facts.all(metric):
            if (of := rows.get(_key(labels, _PROMISE))) is not None:
                of["windows"].setdefault(labels["window"], {})[field] = value
    for field, metric in _PLAIN:
        for labels, value in facts.all(metric):
            if (of := rows.get(_key(labels, _PROMISE))) is not None:
                of[field] = value
    for field, metric in _OF_OBJECTIVE:
        found = {_key(labels, _OBJECTIVE): value for labels, value in facts.all(metric)}
        for key, row in rows.items():
            if key[:3] in found:
                row[field] = found[key[:3]]
    for labels, value in facts.all(c.SLA_BREACH_CAUSE):
        if value and (of := rows.get(_key(labels, _PROMISE))) is not None:
            of["causes"].append({"cause": labels["cause"], "evidence": labels["evidence"]})
    return list(rows.values())


def _key(labels: dict[str, str], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple([labels[name] for name in names])


def _row(labels: dict[str, str], stated: dict[str, str]) -> dict[str, Any]:
    about = {name: labels[name] for name in _PROMISE}
    said = {name: stated.get(name, "") for name in ("signal", "statement")}
    return {**about, **said, "windows": {}, "causes": []}
