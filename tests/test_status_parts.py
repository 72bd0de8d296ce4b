"""The parts of the status document: what each tells of the board, and what it leaves out."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from exporter import catalogue as c
from exporter.samples import Health, Sample, Shape, SourceView, View, in_columns
from exporter.status.fabric import fabric
from exporter.status.facts import Facts
from exporter.status.gpus import gpu_rows
from exporter.status.money import cost
from exporter.status.promises import promise_rows
from exporter.status.runs import run_rows
from exporter.status.servers import server_rows

ZERO, CARD = ("0", "GPU-0"), ("3", "GPU-3")


def facts(*samples: Sample, name: str = "nvml", group: str = c.GPU) -> Facts:
    batch = in_columns(samples, Shape((), ()))
    return Facts(View((SourceView(name, group, "up", Health(), batch=batch),), token=()))


def info(gpu: str, uuid: str, name: str = "NVIDIA H100 80GB HBM3") -> Sample:
    known = {"gpu": gpu, "uuid": uuid, "name": name}
    return c.GPU_INFO(1, *[known.get(label, "") for label in c.GPU_INFO.labels])


# ---------------------------------------------------------------- GPUs


def test_a_gpu_has_what_is_known_of_it_and_no_more() -> None:
    """Fields of families that are absent are absent: no zero stands for them."""
    (row,) = gpu_rows(facts(info(*CARD), c.GPU_SM_ACTIVE_RATIO(0.79, *CARD)))
    lists = {key for key, value in row.items() if value in ([], {})}
    assert {key: value for key, value in row.items() if key not in lists} == {
        "gpu": "3", "uuid": "GPU-3", "name": "NVIDIA H100 80GB HBM3", "sm_active_ratio": 0.79,
    }  # fmt: skip
    assert lists == {
        "throttled_by", "throttled_seconds", "xids", "runs", "servers", "owners", "mig",
    }  # fmt: skip


def test_gpus_stand_in_the_order_of_their_numbers() -> None:
    """The tenth comes after the second, and what has no number last."""
    numbers = ("10", "2", "", "0")
    assert [row["gpu"] for row in gpu_rows(facts(*(info(n, f"GPU-{n}") for n in numbers)))] == [
        "0", "2", "10", "",
    ]  # fmt: skip


def test_two_gpus_with_one_number_are_two() -> None:
    """After a replacement the former card may still be told of: the UUID tells them apart."""
    rows = gpu_rows(facts(c.GPU_UP(0, "3", "GPU-old"), c.GPU_UP(1, "3", "GPU-new")))
    assert [(row["uuid"], row["up"]) for row in rows] == [("GPU-new", 1), ("GPU-old", 0)]


@pytest.mark.parametrize(("kinds", "watts"), [(("instant",), 1), (("instant", "average"), 2)])
def test_power_is_the_average_where_it_is_told(kinds: tuple[str, ...], watts: float) -> None:
    """Some boards tell only what they draw at this instant."""
    samples = [c.GPU_POWER_WATTS(at, *ZERO, kind) for at, kind in enumerate(kinds, start=1)]
    assert gpu_rows(facts(*samples))[0]["power_watts"] == watts


def test_throttling_names_what_holds_and_what_held() -> None:
    """Reasons that hold now, and seconds of those that have cost time."""
    row = gpu_rows(
        facts(
            c.GPU_THROTTLE_ACTIVE(1, *ZERO, "hw_thermal"),
            c.GPU_THROTTLE_ACTIVE(0, *ZERO, "sw_power_cap"),
            c.GPU_THROTTLED_SECONDS_TOTAL(7.5, *ZERO, "sw_power_cap"),
            c.GPU_THROTTLED_SECONDS_TOTAL(0.0, *ZERO, "hw_thermal"),
        )
    )[0]
    assert row["throttled_by"] == ["hw_thermal"]
    assert row["throttled_seconds"] == {"sw_power_cap": 7.5}


def test_xids_are_named_and_dated() -> None:
    """Codes that have occurred, with what the table says of them; those at zero are left out."""
    row = gpu_rows(
        facts(
            c.GPU_XID_ERRORS_TOTAL(2, *ZERO, "00:1b", "79", "critical"),
            c.GPU_XID_ERRORS_TOTAL(0, *ZERO, "00:1b", "48", "critical"),
            c.GPU_XID_LAST_TIMESTAMP_SECONDS(1.7e9, *ZERO, "00:1b", "79"),
            c.GPU_XID_INFO(1, "79", "fallen off the bus", "critical", "reboot"),
        )
    )[0]
    assert row["xids"] == [
        {"xid": "79", "count": 2, "severity": "critical", "name": "fallen off the bus",
         "action": "reboot", "last": 1.7e9},
    ]  # fmt: skip


def test_who_works_on_a_gpu_is_told() -> None:
    """Its runs, its servers, and the pod that was given it."""
    row = gpu_rows(
        facts(
            c.TRAIN_RUN_GPU(1, "llama", *ZERO),
            c.LLM_SERVER_GPU(1, "chat", *ZERO),
            c.GPU_ALLOCATION_INFO(1, *ZERO, "team", "trainer-0", "main"),
        )
    )[0]
    assert row["runs"] == ["llama"]
    assert row["servers"] == ["chat"]
    assert row["owners"] == [{"namespace": "team", "pod": "trainer-0", "container": "main"}]


def test_a_gpu_that_pods_share_is_not_told_to_be_the_last_ones() -> None:
    """dcgm-exporter 307, 587: one of them at random. And nobody is no owner."""
    pods = [c.GPU_ALLOCATION_INFO(1, *ZERO, "team", name, "main") for name in ("a", "b")]
    names = [{"namespace": "team", "pod": name, "container": "main"} for name in ("a", "b")]
    assert gpu_rows(facts(*pods))[0]["owners"] == names
    assert gpu_rows(facts(c.GPU_ALLOCATION_INFO(1, *ZERO, "", "", "")))[0]["owners"] == []


def test_parts_of_a_divided_gpu_are_told() -> None:
    """Each MIG instance with its profile and its figures."""
    instance = (*ZERO, "7")
    row = gpu_rows(
        facts(
            c.GPU_MIG_INFO(1, *instance, "0", "MIG-1", "1g.10gb"),
            c.GPU_MIG_SM_ACTIVE_RATIO(0.5, *instance),
            c.GPU_MIG_MEMORY_USED_BYTES(4e9, *ZERO, "9"),
        )
    )[0]
    assert row["mig"] == [{"mig": "7", "profile": "1g.10gb", "sm_active_ratio": 0.5}]


# ---------------------------------------------------------------- runs


def run_info(run: str, rank: str = "0") -> Sample:
    return c.TRAIN_RUN_INFO(1, run, rank, "megatron-lm", "Llama", "bf16", "", "64", "run")


def test_a_run_is_one_row_with_the_headline_first() -> None:
    """However many ranks it has here; of the conventions causal leads."""
    (row,) = run_rows(
        facts(
            run_info("r"), run_info("r", "1"),
            c.TRAIN_MFU_RATIO(0.3, "r", "palm", "bf16"),
            c.TRAIN_MFU_RATIO(0.25, "r", "causal", "bf16"),
            c.TRAIN_MFU_LOSS_RATIO(0.75, "r", "communication", "measured"),
            c.TRAIN_LOSS(2.5, "r"), c.TRAIN_STEP_MEDIAN_SECONDS(5.2, "r"),
            c.TRAIN_LOSS(1.0, "of another run"),
        )
    )  # fmt: skip
    assert [one["convention"] for one in row["mfu"]] == ["causal", "palm"]
    assert row["losses"] == [{"cause": "communication", "evidence": "measured", "ratio": 0.75}]
    assert (row["loss"], row["step_seconds"]) == (2.5, 5.2)
    assert "tokens_per_second" not in row


def test_why_mfu_is_not_told_is_told() -> None:
    """The reasons that hold, not those that could."""
    withheld = [c.TRAIN_MFU_WITHHELD(1, "r", "unknown_model"),
                c.TRAIN_MFU_WITHHELD(0, "r", "above_one")]  # fmt: skip
    (row,) = run_rows(facts(run_info("r"), *withheld))
    assert (row["mfu"], row["withheld"]) == ([], ["unknown_model"])


def test_the_slowest_ranks_come_first() -> None:
    """Those that keep others waiting, eight at most."""
    scores = [c.TRAIN_STRAGGLER_SCORE(rank / 100, "r", str(rank)) for rank in range(20)]
    (row,) = run_rows(facts(run_info("r"), *scores))
    assert [one["rank"] for one in row["slowest"]] == [str(rank) for rank in range(19, 11, -1)]


def test_a_loss_that_is_nan_is_not_known() -> None:
    """JSON has no word for it; the conditions tell of it."""
    (row,) = run_rows(facts(run_info("r"), c.TRAIN_LOSS(math.nan, "r")))
    assert "loss" not in row
    json.dumps(row, allow_nan=False)


# ---------------------------------------------------------------- promises

OBJECTIVE = ("sla", "ttft_p95", "")
OF_ALL = (*OBJECTIVE, "", "")


def test_a_promise_has_its_target_and_what_is_measured_by_window() -> None:
    """State, statement, threshold, and for each window what is known of it."""
    (row,) = promise_rows(
        facts(
            c.SLA_OBJECTIVE_INFO(1, *OBJECTIVE, "ttft", "< 500ms"),
            c.SLA_TARGET_RATIO(0.95, *OBJECTIVE),
            c.SLA_STATE(0, *OF_ALL, "met"), c.SLA_STATE(1, *OF_ALL, "violated"),
            c.SLA_MEASURED_SECONDS(0.527, *OF_ALL, "5m"),
            c.SLA_BURN_RATE(1.1, *OF_ALL, "1h"),
            c.SLA_ERROR_BUDGET_REMAINING_RATIO(-0.11, *OF_ALL, "1h"),
            c.SLA_BREACH_CAUSE(1, *OF_ALL, "prefill", "measured"),
            c.SLA_BREACH_CAUSE(0, *OF_ALL, "queue", "measured"),
            c.SLA_BURN_RATE(9, "of another", "promise", "", "", "", "1h"),
        )
    )  # fmt: skip
    assert (row["state"], row["statement"], row["target_ratio"]) == ("violated", "< 500ms", 0.95)
    assert row["windows"] == {
        "5m": {"seconds": 0.527},
        "1h": {"budget_remaining_ratio": -0.11, "burn_rate": 1.1},
    }
    assert row["causes"] == [{"cause": "prefill", "evidence": "measured"}]


# ---------------------------------------------------------------- servers


def test_latencies_stand_by_signal_and_percentile_with_their_bounds() -> None:
    """Of the window of five minutes; a histogram says between which bounds they lie."""
    model = ("m", "", "vllm", "chat")
    said = server_rows(
        facts(
            c.LLM_SERVER_INFO(1, "vllm", "chat", ""),
            c.LLM_LATENCY_QUANTILE_SECONDS(0.48, *model, "ttft", "p95", "5m"),
            c.LLM_LATENCY_QUANTILE_LOWER_SECONDS(0.25, *model, "ttft", "p95", "5m"),
            c.LLM_LATENCY_QUANTILE_SECONDS(9.9, *model, "ttft", "p95", "1h"),
            c.LLM_PROBE_UP(0, "chat", "health"),
            name="inference:chat", group=c.SERVING,
        )
    )  # fmt: skip
    assert said[0]["models"][0]["latency"] == {"ttft": {"p95": {"seconds": 0.48, "lower": 0.25}}}
    assert said[0]["probes"] == {"health": 0}


def test_a_probe_is_no_server_of_its_own() -> None:
    """What asks a server for its health is a source beside it: one server, one row."""
    probe = facts(c.LLM_PROBE_UP(1, "chat", "health"), name="probe:chat", group=c.SERVING)
    assert server_rows(probe) == []


# ---------------------------------------------------------------- fabric and money


def test_a_port_has_its_errors_by_cause() -> None:
    """Causes that have occurred; the interface's own totals would count them twice."""
    port = ("mlx5_0", "1")
    said = fabric(
        facts(
            c.NIC_UP(1, *port), c.NIC_ERRORS_TOTAL(3, *port, "symbol"),
            c.NIC_ERRORS_TOTAL(0, *port, "link_downed"), c.NIC_ERRORS_TOTAL(9, *port, "receive"),
            c.NIC_DEVICE_MISSING(1, "mlx5_7"),
        )
    )  # fmt: skip
    assert said["ports"] == [{"device": "mlx5_0", "port": "1", "errors": {"symbol": 3}, "up": 1}]
    assert said["missing"] == ["mlx5_7"]


def test_faults_of_the_topology_are_said_in_words() -> None:
    """What is as it should be is not among them."""
    said = fabric(
        facts(
            c.TOPOLOGY_GPU_NIC_OK(0, *CARD), c.TOPOLOGY_GPU_NIC_OK(1, *ZERO),
            c.TOPOLOGY_PCIE_LINK_DEGRADED(1, "", "", "mlx5_2", "width"),
        )
    )  # fmt: skip
    assert said["topology"]["faults"] == [
        {"about": "GPU 3", "what": "its NIC is far"},
        {"about": "mlx5_2", "what": "PCIe width is below what it can do"},
    ]


def test_dollars_are_summed_over_gpus_by_state() -> None:
    """In the order of use; a state that nobody counts is not there."""
    spent = [c.COST_DOLLARS_TOTAL(1.5, *CARD, "idle"), c.COST_DOLLARS_TOTAL(2, *CARD, "busy"),
             c.COST_DOLLARS_TOTAL(3, *ZERO, "busy")]  # fmt: skip
    said: dict[str, Any] = cost(facts(c.COST_DOLLARS_PER_HOUR(24, *()), *spent))
    assert said["dollars"] == {"busy": 5, "idle": 1.5}
    assert list(said["dollars"]) == ["busy", "idle"]
    assert said["dollars_per_hour"] == 24


def test_dollars_of_which_the_state_is_not_known_are_told_as_such() -> None:
    """They were left out, so that the parts did not add up to what was spent."""
    spent = [c.COST_DOLLARS_TOTAL(1, *CARD, state) for state in ("unknown", "busy")]
    assert cost(facts(*spent))["dollars"] == {"busy": 1, "unknown": 1}


def test_a_bond_is_not_one_of_the_ports_that_carry_its_bytes() -> None:
    told = [
        c.NIC_DEVICE_INFO(1, device, "", "", "", "", physical, "host", "false", "")
        for device, physical in (("bond0", "false"), ("eth0", "true"))
    ]
    ports = fabric(facts(*told))["ports"]
    assert [(port["device"], port["physical"]) for port in ports] == [
        ("bond0", False), ("eth0", True),
    ]  # fmt: skip


def test_a_node_without_a_price_has_no_dollars() -> None:
    """Nothing known is nothing told."""
    assert cost(facts()) == {"dollars": {}, "prices": [], "tenants": []}
