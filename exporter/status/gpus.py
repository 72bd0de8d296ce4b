"""The GPUs of the status document: one row each, with all that is known of it now."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from exporter import catalogue as c
from exporter.samples import Metric
from exporter.status.facts import Facts

_MOST_XIDS = 16

_FIELDS: tuple[tuple[str, Metric, dict[str, str]], ...] = (
    ("up", c.GPU_UP, {}),
    ("utilization_ratio", c.GPU_UTILIZATION_RATIO, {}),
    ("sm_active_ratio", c.GPU_SM_ACTIVE_RATIO, {}),
    ("sm_occupancy_ratio", c.GPU_SM_OCCUPANCY_RATIO, {}),
    ("tensor_active_ratio", c.GPU_TENSOR_ACTIVE_RATIO, {}),
    ("dram_active_ratio", c.GPU_DRAM_ACTIVE_RATIO, {}),
    ("hbm_bytes_per_second", c.GPU_HBM_BANDWIDTH_BYTES_PER_SECOND, {}),
    ("hbm_peak_bytes_per_second", c.GPU_PEAK_MEMORY_BANDWIDTH_BYTES_PER_SECOND, {}),
    ("memory_used_bytes", c.GPU_MEMORY_USED_BYTES, {}),
    ("memory_total_bytes", c.GPU_MEMORY_TOTAL_BYTES, {}),
    ("power_watts", c.GPU_POWER_WATTS, {"kind": "average"}),
    ("power_watts", c.GPU_POWER_WATTS, {}),
    ("power_limit_watts", c.GPU_POWER_LIMIT_WATTS, {"limit": "enforced"}),
    ("power_limit_watts", c.GPU_POWER_LIMIT_WATTS, {}),
    ("clock_hertz", c.GPU_CLOCK_HERTZ, {"domain": "sm"}),
    ("clock_max_hertz", c.GPU_CLOCK_MAX_HERTZ, {"domain": "sm"}),
    ("temperature_celsius", c.GPU_TEMPERATURE_CELSIUS, {"sensor": "core"}),
    ("memory_temperature_celsius", c.GPU_TEMPERATURE_CELSIUS, {"sensor": "memory"}),
    ("temperature_margin_celsius", c.GPU_TEMPERATURE_MARGIN_CELSIUS, {}),
    ("nvlinks", c.GPU_NVLINK_LINKS, {}),
    ("nvlinks_up", c.GPU_NVLINK_LINKS_UP, {}),
    ("recovery_action", c.GPU_RECOVERY_ACTION, {}),
    ("processes", c.GPU_PROCESSES, {}),
    ("dollars_per_hour", c.COST_GPU_HOUR_DOLLARS, {}),
)
"""Field, family, labels. Of rows with the same field the first one counts that a GPU has."""


def gpu_rows(facts: Facts) -> list[dict[str, Any]]:
    """Return one row for each GPU, in the order of their numbers; what is not known is absent.

    `xids` are those that the kernel or the driver has told of, `uncorrected` the errors of memory
    that could not be mended since the driver was loaded, `runs` and `servers` who works on it,
    `owners` the containers that it was given to.
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}

    def row(labels: dict[str, str]) -> dict[str, Any]:
        key = labels["gpu"], labels["uuid"]
        if key not in rows:
            rows[key] = {
                "gpu": key[0], "uuid": key[1], "throttled_by": [], "throttled_seconds": {},
                "xids": [], "runs": [], "servers": [], "owners": [], "mig": [],
            }  # fmt: skip
        return rows[key]

    for labels, _ in facts.all(c.GPU_INFO):
        row(labels)["name"] = labels["name"]
    for field, metric, where in _FIELDS:
        for labels, value in facts.all(metric, **where):
            row(labels).setdefault(field, value)
    _throttling(facts, row)
    _errors(facts, row)
    _owners(facts, row)
    return sorted(rows.values(), key=_place)


def _place(row: dict[str, Any]) -> tuple[bool, int, str, str]:
    gpu = row["gpu"]
    plain = gpu.isascii() and gpu.isdigit() and len(gpu) < 10
    return (not plain, int(gpu) if plain else 0, gpu, row["uuid"])


def _throttling(facts: Facts, row: Any) -> None:
    for labels, value in facts.all(c.GPU_THROTTLE_ACTIVE):
        if value:
            row(labels)["throttled_by"].append(labels["reason"])
    for labels, value in facts.all(c.GPU_THROTTLED_SECONDS_TOTAL):
        if value:
            row(labels)["throttled_seconds"][labels["reason"]] = value


def _errors(facts: Facts, row: Any) -> None:
    named = {labels["xid"]: labels for labels, _ in facts.all(c.GPU_XID_INFO)}
    last = {
        (labels["pci_bus_id"], labels["xid"]): value
        for labels, value in facts.all(c.GPU_XID_LAST_TIMESTAMP_SECONDS)
    }
    for labels, value in facts.all(c.GPU_XID_ERRORS_TOTAL):
        if not value:
            continue
        what = named.get(labels["xid"], {})
        seen = row(labels)["xids"]
        if len(seen) < _MOST_XIDS:
            seen.append({
                "xid": labels["xid"], "count": value, "severity": labels["severity"],
                "name": what.get("name", ""), "action": what.get("action", ""),
                "last": last.get((labels["pci_bus_id"], labels["xid"])),
            })  # fmt: skip
    for labels, value in facts.all(c.GPU_ECC_ERRORS_TOTAL, kind="uncorrected", counter="volatile"):
        row(labels)["uncorrected"] = value


def _owners(facts: Facts, row: Any) -> None:
    for labels, _ in facts.all(c.TRAIN_RUN_GPU):
        row(labels)["runs"].append(labels["run"])
    for labels, _ in facts.all(c.LLM_SERVER_GPU):
        row(labels)["servers"].append(labels["server"])
    for labels, _ in facts.all(c.GPU_ALLOCATION_INFO):
        owners = row(labels)["owners"]
        if labels["namespace"] or labels["pod"]:
            owners.append({name: labels[name] for name in ("namespace", "pod", "container")})
    mig: dict[tuple[str, str, str], dict[str, Any]] = defaultdict(dict)
    for labels, _ in facts.all(c.GPU_MIG_INFO):
        one = mig[labels["gpu"], labels["uuid"], labels["mig"]]
        one.update(mig=labels["mig"], profile=labels["profile"])
        if one not in row(labels)["mig"]:
            row(labels)["mig"].append(one)
    for field, metric in _MIG:
        for labels, value in facts.all(metric):
            if (key := (labels["gpu"], labels["uuid"], labels["mig"])) in mig:
                mig[key][field] = value


_MIG = (
    ("sm_active_ratio", c.GPU_MIG_SM_ACTIVE_RATIO),
    ("tensor_active_ratio", c.GPU_MIG_TENSOR_ACTIVE_RATIO),
    ("dram_active_ratio", c.GPU_MIG_DRAM_ACTIVE_RATIO),
    ("memory_used_bytes", c.GPU_MIG_MEMORY_USED_BYTES),
    ("memory_total_bytes", c.GPU_MIG_MEMORY_TOTAL_BYTES),
)
