"""The dollars of the status document: what the node costs an hour, and what for."""

from __future__ import annotations

from typing import Any

from exporter import catalogue as c
from exporter.status.facts import Facts

STATES = ("busy", "idle", "unallocated", "unknown")


def cost(facts: Facts) -> dict[str, Any]:
    """Return the node's price and its dollars by state since the daemon began to count.

    What is not known is absent: a node without a price has no dollars.
    """
    totals: dict[str, float] = {}
    for labels, value in facts.all(c.COST_DOLLARS_TOTAL):
        totals[labels["state"]] = totals.get(labels["state"], 0.0) + value
    fields = {
        "dollars_per_hour": facts.one(c.COST_DOLLARS_PER_HOUR),
        "idle_dollars_per_hour": facts.one(c.COST_IDLE_DOLLARS_PER_HOUR),
        "counted_seconds": facts.one(c.COST_COUNTED_SECONDS_TOTAL),
        "energy_dollars": _sum(facts.by(c.COST_ENERGY_DOLLARS_TOTAL, "uuid")),
        "carbon_grams": _sum(facts.by(c.COST_CARBON_GRAMS_TOTAL, "uuid")),
        "interruption_dollars": _sum(facts.by(c.COST_INTERRUPTION_DOLLARS_TOTAL, "run")),
    }
    prices = facts.all(c.COST_PRICE_INFO)
    return {
        **{name: value for name, value in fields.items() if value is not None},
        "dollars": {state: totals[state] for state in STATES if state in totals},
        "prices": _prices([labels for labels, _ in prices]),
        "tenants": _tenants(facts),
    }


def _sum(values: dict[str, float]) -> float | None:
    return sum(values.values()) if values else None


def _prices(rows: list[dict[str, str]]) -> list[dict[str, Any]]:
    """Return by whose word a GPU costs what, and of how many GPUs."""
    counted: dict[tuple[str, ...], int] = {}
    names = ("source", "pricing", "instance_type", "as_of")
    for labels in rows:
        key = tuple([labels[name] for name in names])
        counted[key] = counted.get(key, 0) + 1
    return [{**dict(zip(names, key, strict=True)), "gpus": n} for key, n in counted.items()]


def _tenants(facts: Facts) -> list[dict[str, Any]]:
    dollars: dict[str, float] = {}
    for labels, value in facts.all(c.COST_TENANT_DOLLARS_TOTAL):
        dollars[labels["namespace"]] = dollars.get(labels["namespace"], 0.0) + value
    gpus = facts.by(c.COST_ALLOCATED_GPUS, "namespace")
    return [
        {"namespace": name, "dollars": dollars.get(name), "gpus": gpus.get(name)}
        for name in {**dollars, **gpus}
    ]
