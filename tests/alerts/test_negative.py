"""Over the whole set of rules: what is healthy, idle, new, drained or over raises nothing.

Pages of ours are fed to promtool for hours, each family as it would go on: counters of work grow,
moments move with the time, the rest stands still.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import yaml

from exporter import catalogue as c
from tests.alerts.cases import ALERTS, TOPICS, Course, Wardrobe, rules, selector
from tests.alerts.pages import Series, family, page

Tool = Callable[[str], str]
Fate = Callable[[Series], list[tuple[str, int]]]
"""What becomes of a series: how it goes on, and for how many minutes."""

HOURS = 4
MINUTES = 60 * HOURS
WORK = {
    "gpu_sm_active_seconds_total": 40, "gpu_busy_seconds_total": 55, "llm_tokens_total": 60000,
    "train_productive_seconds_total": 58, "train_steps_total": 20, "train_tokens_total": 1e6,
    "nic_transmit_bytes_total": 3e11, "nic_receive_bytes_total": 3e11,
    "nic_transmit_packets_total": 6e5, "llm_requests_total": 60,
}  # fmt: skip
"""Growth in a minute of what works; other counters stand still."""

# Besides a counter at its end: a cooler, a GPU with memory errors, an adapter in the wrong slot.
SICK = {
    "diagnosis_cause": 0.0,
    "gpu_recovery_action": 0.0,
    "gpu_row_remap_pending": 0.0,
    "topology_gpu_nic_ok": 1.0,
}


def healthy(series: Iterable[Series]) -> list[Series]:
    """Return the series of the demo's node without what is wrong with it on purpose."""
    sound = {**SICK, "gpu_clock_hertz": 1.7e9}
    return [
        one._replace(value=sound.get(one.name, one.value))
        for one in series
        if one.name != "nic_saturated"
    ]


def going_on(one: Series, *, works: bool = True) -> str:
    """Return how a series of a healthy node goes on."""
    row = c.FAMILIES.get(family(one.name))
    if one.name.endswith("_timestamp_seconds") and one.name != "nccl_test_timestamp_seconds":
        return "now"
    if one.name in {"process_start_time_seconds", "host_boot_time_seconds"}:
        return "-90000"
    if row is not None and row.kind in {"counter", "histogram"}:
        return f"+{WORK.get(one.name, 0) if works else 0}"
    return repr(one.value)


ASKED = set(re.findall(r"\w+", " ".join(rule["expr"] for rule in rules())))
"""Words of all rules: other series cost time and change nothing."""


def fed(series: Iterable[Series], fate: Fate) -> list[dict[str, str]]:
    """Return promtool's input for a node's series."""
    found = []
    for one in series:
        if one.name not in ASKED:
            continue
        course = Course(max(one.value, 0.0))
        for how, minutes in fate(one):
            course.go(how, minutes)
        labels = {**one.labels, "instance": "node-1", "job": "flopwatch"}
        found.append(
            {"series": selector(one._replace(labels=labels)), "values": " ".join(course.parts)}
        )
    return found


def up(fate: list[tuple[str, int]]) -> list[dict[str, str]]:
    """Return what Prometheus says of the target."""
    found = []
    for name, value in (("up", "1"), ("scrape_duration_seconds", "0.02")):
        course = [(how if how == "gone" else value, minutes) for how, minutes in fate]
        found += fed([Series(name, {}, 0.0)], lambda _, course=course: course)
    return found


def idle() -> list[dict[str, str]]:
    series = [
        one
        for one in healthy(page("demo"))
        if not family(one.name).startswith(("llm_", "sla_", "train_", "gpu_process_"))
    ]
    quiet = {
        "gpu_utilization_ratio",
        "gpu_sm_active_ratio",
        "gpu_processes",
        "gpu_memory_used_bytes",
    }
    still = [one._replace(value=0.0) if one.name in quiet else one for one in series]
    return [
        *fed(still, lambda one: [(going_on(one, works=False), MINUTES)]),
        *up([("on", MINUTES)]),
    ]


def busy() -> list[dict[str, str]]:
    return [
        *fed(healthy(page("demo")), lambda one: [(going_on(one), MINUTES)]),
        *up([("on", MINUTES)]),
    ]


def fresh() -> list[dict[str, str]]:
    """The daemon was just installed on a node that has run for long: nothing, then all of it."""

    def fate(one: Series) -> list[tuple[str, int]]:
        how = "then" if one.name == "process_start_time_seconds" else going_on(one)
        return [("gone", 120), (how, MINUTES - 120)]

    return [*fed(healthy(page("demo")), fate), *up([("gone", 119), ("on", MINUTES - 119)])]


def drained() -> list[dict[str, str]]:
    """Jobs end, then the node is taken out of service discovery and its targets with it."""

    def fate(one: Series) -> list[tuple[str, int]]:
        work = family(one.name).startswith(("llm_", "sla_", "train_", "gpu_process_", "diagnosis_"))
        if work:
            return [(going_on(one), 60), ("gone", MINUTES - 60)]
        after = {"gpu_processes": "0", "gpu_memory_used_bytes": "6e+08"}.get(one.name)
        after = after or going_on(one, works=False)
        return [(going_on(one), 60), (after, 60), ("gone", MINUTES - 120)]

    stays = {"instance": "node-2", "job": "flopwatch"}
    other = [Series(name, stays, 1.0) for name in ("up", "flopwatch_build_info")]
    return [
        *fed(healthy(page("demo")), fate),
        *up([("on", 120), ("gone", MINUTES - 120)]),
        *({"series": selector(one), "values": f"1x{MINUTES}"} for one in other),
    ]


def over() -> list[dict[str, str]]:
    """A job has just ended: its processes are gone, its last words are told for a while."""

    def fate(one: Series) -> list[tuple[str, int]]:
        if one.name == "train_stalled":
            return [("0", 60), ("1", 15), ("gone", MINUTES - 75)]
        if one.name.startswith("train_last_"):
            return [("now", 60), ("then", 15), ("gone", MINUTES - 75)]
        if one.name.startswith(("train_local_ranks", "train_rank_", "gpu_process_")):
            return [(going_on(one), 60), ("gone", MINUTES - 60)]
        if one.name.startswith("train_"):
            return [(going_on(one), 60), (going_on(one, works=False), 15), ("gone", MINUTES - 75)]
        if one.name == "gpu_processes":
            return [("1", 60), ("0", MINUTES - 60)]
        if one.name == "gpu_memory_used_bytes":
            return [(repr(one.value), 60), ("6e+08", MINUTES - 60)]
        return [(going_on(one), 60), (going_on(one, works=False), MINUTES - 60)]

    ranks = Series("train_local_ranks", {"run": "llama2-13b"}, 4.0)
    return [*fed([*healthy(page("demo")), ranks], fate), *up([("on", MINUTES)])]


def without_ports() -> list[dict[str, str]]:
    series = [one for one in healthy(page("demo")) if not one.name.startswith("nic_")]
    return [*fed(series, lambda one: [(going_on(one), MINUTES)]), *up([("on", MINUTES)])]


def virtual() -> list[dict[str, str]]:
    """A virtual machine with a part of a GPU, and one with a whole one that tells little."""
    daemon = [one for one in page("demo") if family(one.name).startswith(("flopwatch_", "host_"))]
    series = [*page("gpu-vgpu"), *daemon]
    return [*fed(series, lambda one: [(going_on(one), MINUTES)]), *up([("on", MINUTES)])]


NODES = {
    "idle": idle, "busy": busy, "fresh": fresh, "drained": drained, "over": over,
    "without_ports": without_ports, "virtual": virtual,
}  # fmt: skip
MOMENTS = (30, 59, 62, 66, 71, 75, 90, 119, 121, 126, 135, 150, 180, 210, MINUTES - 1)


@pytest.mark.parametrize("node", NODES)
def test_a_healthy_node_raises_nothing(tool: Tool, tmp_path: Path, node: str) -> None:
    """Not even pending, but for what waits to see whether something lasts."""
    checks = [
        {"expr": 'ALERTS{alertstate="firing", alertname!="Watchdog"}', "eval_time": f"{at}m"}
        for at in MOMENTS
    ]
    alive = {
        "expr": 'count(ALERTS{alertname="Watchdog"})', "eval_time": "100m",
        "exp_samples": [{"labels": "{}", "value": 1}],
    }  # fmt: skip
    there = {
        "expr": "count(flopwatch_build_info)", "eval_time": "119m" if node == "drained" else "200m",
        "exp_samples": [{"labels": "{}", "value": 1 + (node == "drained")}],
    }  # fmt: skip
    test = {
        "interval": "1m",
        "input_series": NODES[node](),
        "promql_expr_test": [*checks, alive, there],
    }
    file = {
        "rule_files": [str(ALERTS / f"{topic}.yaml") for topic in TOPICS],
        "evaluation_interval": "2m", "tests": [test],
    }  # fmt: skip
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(file), "utf-8")
    result = subprocess.run(
        [tool("promtool"), "test", "rules", "test.yaml"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_series_of_cases_are_from_pages() -> None:
    """These families alone are in no page that we have, so that only the catalogue vouches."""
    from tests.alerts.cases import cases, lines

    wardrobe = Wardrobe()
    for case in cases():
        for chosen in (case.body["series"], *case.body.get("quiet", ()), *case.body.get("low", ())):
            lines(wardrobe, chosen)
    assert wardrobe.invented == {
        "cost_quota_used_ratio",
        "flopwatch_child_resident_memory_bytes",
        "flopwatch_samples_dropped_total",
        "flopwatch_web_config_last_reload_successful",
        "gpu_allocation_info",
        "gpu_nvswitch_sxid_errors_total",
        "gpu_nvswitch_sxid_last_timestamp_seconds",
        "gpu_xid_last_timestamp_seconds",
        "llm_cost_per_million_tokens_dollars",
        "llm_mapping_unresolved",
        "nccl_collnet_active",
        "nccl_communication_upper_bound_ratio",
        "nccl_small_message_ratio",
        "nic_device_missing",
        "nic_fec_blocks_total",
        "spot_maintenance_deadline_timestamp_seconds",
        "train_last_checkpoint_timestamp_seconds",
        "train_local_ranks",
        "train_recovery_seconds",
        "train_start_latency_seconds",
    }
