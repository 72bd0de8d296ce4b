"""Conditions of the shipped alert rules that hold on this node now: alerts to be.

Only rules that one look at one node can decide are here: no rates, no other nodes, no silences. A
row says what the rule of its name and severity says, over the board instead of Prometheus' data;
`tests/test_conditions.py` holds each against the rule and its promtool cases. What becomes an alert
Prometheus decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from exporter import catalogue as c
from exporter.samples import View
from exporter.status.facts import Facts
from exporter.status.findings import (
    Find,
    above,
    bad_settings,
    contradictions,
    equal,
    full_caches,
    hardware,
    held_memory,
    lost_gpus,
    maintenance,
    narrow_links,
    no_number,
    nobodys_gpus,
    old_checkpoints,
    old_prices,
    ports_down,
    recovery,
    saturated,
    stuck,
    unhealthy_fabric,
    unreadable,
    unwatched,
    where,
    with_processes,
    young_runs,
)


class Condition(NamedTuple):
    """A rule's name, its severity, how long it must hold in seconds, and what it is about.

    `find` yields what the condition holds of, by name; it is told the time in Unix seconds.
    """

    alert: str
    severity: str
    wait: float
    what: str
    find: Find


_MINUTE, _HOUR = 60.0, 3600.0
_missing = where(c.NIC_DEVICE_MISSING, equal(1))
_sla = {"sla": "training_sla", "state": "violated"}

CONDITIONS = (
    Condition("GpuLost", "page", _MINUTE, "GPUs are lost", lost_gpus),
    Condition(
        "GpuRecoveryActionNeeded", "page", 5 * _MINUTE, "the driver asks for a reset or a reboot",
        recovery(grave=True),
    ),
    Condition(
        "GpuRecoveryActionNeeded", "ticket", 5 * _MINUTE, "the driver asks to drain",
        recovery(grave=False),
    ),
    Condition(
        "GpuRowRemapFailed", "ticket", 0, "memory could not be mended: the GPU must be replaced",
        where(c.GPU_ROW_REMAP_FAILED, equal(1)),
    ),
    Condition(
        "GpuRowRemapPending", "ticket", 24 * _HOUR, "mending memory waits for a reset",
        lambda facts, now: iter([
            *where(c.GPU_ROW_REMAP_PENDING, equal(1))(facts, now),
            *where(c.GPU_RETIRED_PAGES_PENDING, equal(1))(facts, now),
        ]),
    ),
    Condition(
        "GpuSramThresholdExceeded", "ticket", 5 * _MINUTE, "too many errors of the GPU's SRAM",
        where(c.GPU_ECC_SRAM_THRESHOLD_EXCEEDED, equal(1)),
    ),
    Condition(
        "GpuFabricUnhealthy", "ticket", 10 * _MINUTE, "NVLink fabric is not healthy",
        unhealthy_fabric,
    ),
    Condition(
        "GpuPcieLinkDegraded", "ticket", 10 * _MINUTE, "PCIe link is below what it can do",
        narrow_links,
    ),
    Condition(
        "GpuMemoryHeldIdle", "info", 30 * _MINUTE, "GPU memory is held by nobody", held_memory
    ),
    Condition(
        "GpuReadingsDisagree", "info", 30 * _MINUTE, "the driver and what is measured disagree",
        where(c.GPU_READINGS_DISAGREE, equal(1)),
    ),
    Condition(
        "GpuBusyWithoutOwner", "ticket", 30 * _MINUTE, "GPUs work for nobody", nobodys_gpus
    ),
    Condition(
        "RdmaPortDown", "page", 2 * _MINUTE, "RDMA ports are down, and GPUs work",
        with_processes(ports_down),
    ),
    Condition("RdmaPortDown", "ticket", 2 * _MINUTE, "RDMA ports are down", ports_down),
    Condition(
        "RdmaDeviceMissing", "page", 2 * _MINUTE, "network devices are gone, and GPUs work",
        with_processes(_missing),
    ),
    Condition("RdmaDeviceMissing", "ticket", 2 * _MINUTE, "network devices are gone", _missing),
    Condition(
        "RdmaCounterSaturated", "info", _HOUR, "a counter of errors has reached its end", saturated
    ),
    Condition(
        "TopologyGpuNicFar", "ticket", 30 * _MINUTE, "GPUs are far from their NICs",
        where(c.TOPOLOGY_GPU_NIC_OK, equal(0)),
    ),
    Condition(
        "RailImbalance", "info", 15 * _MINUTE, "a rail carries less than the others",
        where(c.NIC_RAIL_TRAFFIC_RATIO, lambda ratio: ratio < 0.7),
    ),
    Condition(
        "NcclSharpInactive", "info", 10 * _MINUTE, "SHARP is set up and not used",
        where(c.NCCL_COLLNET_ACTIVE, equal(0)),
    ),
    Condition(
        "NcclMisconfigured", "ticket", 5 * _MINUTE, "NCCL's settings do not fit the node",
        bad_settings,
    ),
    Condition(
        "InferenceStalled", "ticket", 2 * _MINUTE, "requests wait and no token comes",
        where(c.LLM_STALLED, equal(1)),
    ),
    Condition(
        "InferenceKvCacheFull", "ticket", 10 * _MINUTE, "the KV cache is full and requests wait",
        full_caches,
    ),
    Condition(
        "InferenceMappingUnresolved", "ticket", 15 * _MINUTE,
        "metrics that the engine should have are not there",
        where(c.LLM_MAPPING_UNRESOLVED, equal(1)),
    ),
    Condition(
        "InferenceServerUnreadable", "ticket", 15 * _MINUTE, "inference servers cannot be read",
        unreadable,
    ),
    Condition(
        "InferenceGaugesContradict", "info", 30 * _MINUTE,
        "requests in flight and latency contradict each other", contradictions,
    ),
    Condition("TrainingLossNan", "page", 2 * _MINUTE, "the loss is no number", no_number),
    Condition(
        "TrainingRecoverySlow", "ticket", 0, "coming back after a failure took long",
        young_runs(c.TRAIN_RECOVERY_SECONDS, 120, 7200),
    ),
    Condition(
        "TrainingStartSlow", "ticket", 0, "the first step came late",
        young_runs(c.TRAIN_START_LATENCY_SECONDS, 900, 3600),
    ),
    Condition(
        "TrainingDataWait", "info", 30 * _MINUTE, "a fifth of the time goes into waiting for data",
        where(c.TRAIN_DATA_LOADING_RATIO, above(0.2)),
    ),
    Condition(
        "TrainingCheckpointOld", "ticket", 5 * _MINUTE, "the last checkpoint is two hours old",
        old_checkpoints,
    ),
    Condition(
        "TrainingReportMismatch", "ticket", 30 * _MINUTE,
        "the framework's own figure differs from what is counted",
        where(c.TRAIN_REPORT_MISMATCH_RATIO, lambda r: abs(r) > 0.05, quantity="tokens"),
    ),
    Condition(
        "TrainingSlaViolated", "ticket", _MINUTE, "a promise about training is broken",
        where(c.SLA_STATE, equal(1), **_sla),
    ),
    Condition(
        "TrainingHardwareFault", "ticket", 15 * _MINUTE, "hardware holds a run back", hardware
    ),
    Condition(
        "SpotInterruption", "ticket", 0, "the cloud takes this node away",
        where(c.SPOT_INTERRUPTION_NOTICE, equal(1)),
    ),
    Condition(
        "SpotRebalance", "info", _MINUTE, "the cloud may take this node away",
        where(c.SPOT_REBALANCE_NOTICE, equal(1)),
    ),
    Condition(
        "HostMaintenance", "ticket", _MINUTE, "the cloud works on this node within a day",
        maintenance,
    ),
    Condition(
        "SpotWatchBroken", "ticket", 5 * _MINUTE, "the cloud does not answer about notices",
        unwatched,
    ),
    Condition("PriceStale", "info", _HOUR, "prices are old", old_prices),
    Condition(
        "QuotaExceeded", "info", _HOUR, "more GPUs than the quota allows",
        where(c.COST_QUOTA_USED_RATIO, above(1)),
    ),
    Condition("ExporterSourceStuck", "ticket", 5 * _MINUTE, "a source hangs", stuck),
)  # fmt: skip

_MOST = 24
"""Things a condition names."""

Key = tuple[str, str]


def holding(facts: Facts, now: float) -> dict[Key, tuple[str, ...]]:
    """Return what each condition holds of, by alert and severity, at `now` in Unix seconds."""
    found = {}
    for one in CONDITIONS:
        if about := tuple(dict.fromkeys(one.find(facts, now))):
            found[one.alert, one.severity] = about
    return found


class Watch:
    """Since when each condition has held without a break, as far as the beats tell."""

    def __init__(self) -> None:
        self._since: Mapping[Key, float] = {}

    def note(self, view: View, moment: float, now: float) -> None:
        """Look at the board, at a moment in monotonic seconds that is `now` in Unix seconds."""
        former = self._since
        self._since = {key: former.get(key, moment) for key in holding(Facts(view), now)}

    def since(self, key: Key) -> float | None:
        """Return the moment since when a condition holds; `None` where no beat has seen it."""
        return self._since.get(key)


def conditions(facts: Facts, watch: Watch, moment: float, now: float) -> dict[str, Any]:
    """Return what holds, the gravest first. What pages is not told again as a ticket."""
    found = holding(facts, now)
    rows: list[dict[str, Any]] = []
    for one in sorted(CONDITIONS, key=lambda one: _GRAVITY.index(one.severity)):
        about = found.get((one.alert, one.severity))
        if about is None or any(row["alert"] == one.alert for row in rows):
            continue
        since = watch.since((one.alert, one.severity))
        rows.append({
            "alert": one.alert, "severity": one.severity, "what": one.what,
            "about": [name for name in about[:_MOST] if name], "number": len(about),
            "for_seconds": one.wait,
            "held_seconds": None if since is None else max(0.0, moment - since),
        })  # fmt: skip
    return {"watched": len({one.alert for one in CONDITIONS}), "holding": rows}


_GRAVITY = ("page", "ticket", "info")
