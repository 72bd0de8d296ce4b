"""The status document: what the status page shows, as JSON values.

Everything is taken from one view. Full error texts, addresses and paths are for callers on the
node itself; callers from the network see error classes only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from exporter import catalogue as c
from exporter.redaction import redacted_document
from exporter.samples import Metric, SourceView, View, series_of
from exporter.status.conditions import Watch, conditions
from exporter.status.fabric import fabric
from exporter.status.facts import Facts
from exporter.status.gpus import gpu_rows
from exporter.status.money import cost
from exporter.status.promises import promise_rows
from exporter.status.runs import run_rows
from exporter.status.servers import server_rows


class Moment(NamedTuple):
    """When a document is made: monotonic seconds for ages, Unix seconds for dates."""

    monotonic: float
    wall: float


def document(
    view: View,
    about: Mapping[str, Any],
    notices: Mapping[str, Any],
    watch: Watch,
    moment: Moment,
    *,
    detailed: bool,
) -> dict[str, Any]:
    """Return the status of everything in `view`, headed by `about` (the daemon itself).

    `notices` is what the cloud has announced for the machine; `watch` knows since when conditions
    have held.
    """
    facts = Facts(view)
    document = {
        "flopwatch": dict(about),
        "detailed": detailed,
        "spot": dict(notices),
        "conditions": conditions(facts, watch, *moment),
        "sources": [_source(source, detailed=detailed) for source in view.sources],
        "gpus": gpu_rows(facts),
        "runs": run_rows(facts),
        "promises": promise_rows(facts),
        "servers": server_rows(facts),
        "diagnoses": _diagnoses(view),
        "fabric": fabric(facts),
        "cost": cost(facts),
    }
    return dict(redacted_document(document))


def _source(source: SourceView, *, detailed: bool) -> dict[str, Any]:
    health = source.health
    return {
        "name": source.name,
        "group": source.group,
        "state": source.state,
        "age_seconds": source.age,
        "busy_seconds": source.busy,
        "series": sum(map(series_of, source.batch.values)),
        "reads": health.attempts,
        "read_duration_seconds": health.last_duration,
        "last_success": health.last_success,
        "failures": dict(health.failures),
        "drops": dict(health.drops),
        "found": _found(source),
        "faults": [
            {"part": fault.part, "reason": fault.reason, "detail": fault.detail}
            if detailed
            else {"part": fault.part, "reason": fault.reason}
            for fault in source.faults
        ],
    }


_IDENTITY: Mapping[Metric, str] = {
    c.GPU_INFO: "name",
    c.HOST_INFO: "kernel",
    c.NIC_INFO: "device",
    c.LLM_SERVER_INFO: "engine",
    c.SPOT_INSTANCE_INFO: "instance_type",
}


def _found(source: SourceView) -> list[str]:
    """Return what the source has in front of it, by name: GPUs of a kind are counted."""
    names: Counter[str] = Counter()
    gpus = False
    shape = source.batch.shape
    for metric, label in _IDENTITY.items():
        at = metric.labels.index(label)
        for place in shape.families.get(metric, ()):
            names[shape.labels[place][at]] += 1
            gpus = gpus or metric is c.GPU_INFO
    return [f"{n} x {name}" if gpus and n > 1 else name for name, n in names.items()]


def summary(document: Mapping[str, Any]) -> Iterator[str]:
    """Return one line for each source: what it found, or why it found nothing."""
    for source in document["sources"]:
        line = f"{source['name']:<24} {source['state']:<9} {source['series']:>5} series"
        if source["found"]:
            line += f"  {', '.join(source['found'])}"
        for fault in source["faults"][:5]:
            line += f"\n    {fault['part'] or 'not read'}: {fault.get('detail', fault['reason'])}"
        if len(source["faults"]) > 5:
            line += f"\n    and {len(source['faults']) - 5} more parts"
        yield line


_SIGNALS = (c.DIAGNOSIS_SIGNAL_RATIO, c.DIAGNOSIS_SIGNAL_PER_SECOND)


def _diagnoses(view: View) -> list[dict[str, Any]]:
    """Return one row for each run, "" being the GPUs without one; `bottleneck` null while open."""
    rows: dict[str, dict[str, Any]] = {}
    for metric in _SIGNALS:
        for _, (run, signal), value in view.samples(metric):
            row = rows.setdefault(
                run,
                {"run": run, "bottleneck": None, "confirmed": None, "causes": [], "signals": {}},
            )
            row["signals"][signal] = value
    for _, (run, bottleneck), value in view.samples(c.DIAGNOSIS_BOTTLENECK):
        if value and run in rows:
            rows[run]["bottleneck"] = bottleneck
    for _, (run,), value in view.samples(c.DIAGNOSIS_CONFIRMED):
        if run in rows:
            rows[run]["confirmed"] = bool(value)
    for _, (run, cause), value in view.samples(c.DIAGNOSIS_CAUSE):
        if value and run in rows:
            rows[run]["causes"].append(cause)
    return list(rows.values())
