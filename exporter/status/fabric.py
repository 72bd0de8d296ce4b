"""The fabric of the status document: ports, what is wrong with them, and who is near whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exporter import catalogue as c
from exporter.samples import Metric
from exporter.status.facts import Facts

_FIELDS: tuple[tuple[str, Metric], ...] = (
    ("up", c.NIC_UP),
    ("state", c.NIC_PORT_STATE),
    ("rate_bytes_per_second", c.NIC_LINK_RATE_BYTES_PER_SECOND),
    ("expected_up", c.NIC_EXPECTED_UP),
    ("receive_utilization_ratio", c.NIC_RECEIVE_UTILIZATION_RATIO),
    ("transmit_utilization_ratio", c.NIC_TRANSMIT_UTILIZATION_RATIO),
    ("receive_bytes", c.NIC_RECEIVE_BYTES_TOTAL),
    ("transmit_bytes", c.NIC_TRANSMIT_BYTES_TOTAL),
    ("saturated", c.NIC_SATURATED),
    ("carrier_changes", c.NIC_CARRIER_CHANGES_TOTAL),
)

_OVERLAPPING = frozenset(("receive", "transmit"))
"""An interface's own totals, which include its other causes."""


def fabric(facts: Facts) -> dict[str, Any]:
    """Return the ports, what the topology says, and what is wrong with either."""
    return {
        "ports": _ports(facts),
        "missing": [labels["device"] for labels, value in facts.all(c.NIC_DEVICE_MISSING) if value],
        "rails": [
            {"rail": labels["rail"], "bytes_per_second": value}
            for labels, value in facts.all(c.NIC_RAIL_BYTES_PER_SECOND)
        ],
        "topology": _topology(facts),
        "nccl": [
            {"run": labels["run"], "kind": labels["kind"]}
            for labels, value in facts.all(c.NCCL_ENVIRONMENT_PROBLEM)
            if value
        ],
    }


def _ports(facts: Facts) -> list[dict[str, Any]]:
    """Return one row for each port; `errors` are those that are not zero, by cause.

    `physical` ports together carry each byte once: bonds and bridges are not among them.
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}

    def row(labels: dict[str, str]) -> dict[str, Any]:
        key = labels["device"], labels["port"]
        return rows.setdefault(key, {"device": key[0], "port": key[1], "errors": {}})

    for labels, _ in facts.all(c.NIC_INFO):
        row(labels).update({
            name: labels[name] for name in ("link_layer", "driver", "netdev") if labels[name]
        })  # fmt: skip
    for labels, _ in facts.all(c.NIC_DEVICE_INFO):
        row(labels)["physical"] = labels["physical"] == "true"
    for field, metric in _FIELDS:
        for labels, value in facts.all(metric):
            row(labels).setdefault(field, value)
    for labels, value in facts.all(c.NIC_ERRORS_TOTAL):
        if value and labels["cause"] not in _OVERLAPPING:
            row(labels)["errors"][labels["cause"]] = value
    return list(rows.values())


def _topology(facts: Facts) -> dict[str, Any]:
    """Return how GPUs are joined, each GPU's nearest NIC, and what is not as it should be."""
    paths = [
        {"gpu": labels["gpu"], "peer": labels["peer"], "path": labels["path"]}
        for labels, _ in facts.all(c.TOPOLOGY_GPU_GPU_DISTANCE)
    ]
    nearest: dict[str, dict[str, Any]] = {
        labels["gpu"]: {"gpu": labels["gpu"], "device": labels["device"],
                        "path": labels["distance"], "rail": labels["rail"]}
        for labels, _ in facts.all(c.TOPOLOGY_GPU_BEST_NIC_INFO)
    }  # fmt: skip
    for labels, value in facts.all(c.TOPOLOGY_NUMA_NODE):
        if labels["gpu"] in nearest and value >= 0:
            nearest[labels["gpu"]]["numa_node"] = value
    return {"gpus": paths, "nearest": list(nearest.values()), "faults": list(_faults(facts))}


def _faults(facts: Facts) -> Iterator[dict[str, str]]:
    for labels, value in facts.all(c.TOPOLOGY_GPU_NIC_OK):
        if not value:
            yield {"about": f"GPU {labels['gpu']}", "what": "its NIC is far"}
    for labels, value in facts.all(c.TOPOLOGY_GPU_NVLINK_OK):
        if not value:
            yield {"about": f"GPU {labels['gpu']}", "what": "NVLinks are not as its peers'"}
    for labels, value in facts.all(c.TOPOLOGY_NIC_SHARED):
        if value > 1:
            yield {"about": labels["device"], "what": f"is the nearest NIC of {value:.0f} GPUs"}
    for labels, value in facts.all(c.TOPOLOGY_PCIE_LINK_DEGRADED):
        if value:
            about = labels["device"] or f"GPU {labels['gpu']}"
            yield {"about": about, "what": f"PCIe {labels['part']} is below what it can do"}
