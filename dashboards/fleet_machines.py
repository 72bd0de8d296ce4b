"""The lower layers of the fleet's board: the machines, and how well kernels use them."""

from __future__ import annotations

from dashboards.parts import (
    BAD,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    WARNING,
    Column,
    Query,
    Row,
    bargauge,
    stat,
    table,
    timeseries,
    towards,
)

ACTIVE = "rate(gpu_sm_active_seconds_total{<cluster>}[$__rate_interval])"
TENSOR = "rate(gpu_tensor_active_seconds_total{<cluster>}[$__rate_interval])"
HBM = "rate(gpu_dram_active_seconds_total{<cluster>}[$__rate_interval])"
THROTTLED = "rate(gpu_throttled_seconds_total{<cluster>}[$__rate_interval])"


def rows() -> list[Row]:
    """Return the rows."""
    return [_machines(), _worst(), _kernels()]


def _machines() -> Row:
    return Row(
        "System: GPUs, memory, network",
        [
            stat(
                "GPUs",
                [
                    Query("sum(gpu_up{<cluster>})", "answer"),
                    Query("sum(gpu_devices_expected{<cluster>})", "should be here"),
                ],
                "GPUs that answer, and those that should be here.",
                trend=False,
            ),
            stat(
                "Nodes",
                "count(flopwatch_build_info{<cluster>})",
                "Nodes whose daemon Prometheus can read. One that is down is not counted: see the"
                " alert ExporterDown.",
            ),
            stat(
                "SM activity",
                f"avg({ACTIVE})",
                "SMs with work: share of cycles in which an SM had a warp, mean of all GPUs.",
                unit="percentunit",
            ),
            stat(
                "Throttled GPUs",
                f"count(max by (instance, gpu) ({THROTTLED}) > 0.05)",
                "GPUs whose clocks are held down for more than 5 % of the time by any one reason.",
                steps={1: WARNING},
                nothing="none",
            ),
            stat(
                "Power",
                "sum(max by (instance, gpu) (gpu_power_watts{<cluster>}))",
                "What the boards of all GPUs draw, without the rest of the machines.",
                unit="watt",
            ),
            stat(
                "Ports down",
                "sum(nic_expected_up{<cluster>}"
                " * on (cluster, instance, device, port) group_left ()"
                " (1 - max by (cluster, instance, device, port) (nic_up{<cluster>})))",
                "Ports that cannot carry traffic and ought to be up.",
                steps={1: BAD},
            ),
            timeseries(
                "GPUs by state",
                Query(
                    "sum by (state) (state:gpus:count{<cluster>})",
                    "{{state}}",
                ),
                "Each GPU is in one state: lost, free (no process), idle (a process has it and it"
                " does nothing), busy. Needs the recording rules of alerts/fleet.yaml.",
                colors={"busy": BLUE, "idle": ORANGE, "free": SKY, "lost": VERMILION},
                stacked=True,
                low=0,
            ),
            timeseries(
                "What GPUs do",
                [
                    Query(f"avg({ACTIVE})", "SMs have work", BLUE),
                    Query(f"avg({TENSOR})", "tensor cores work", ORANGE),
                    Query(f"avg({HBM})", "memory bandwidth", GREEN),
                    Query(
                        "sum(gpu_memory_used_bytes{<cluster>})"
                        " / sum(gpu_memory_total_bytes{<cluster>})",
                        "memory in use",
                        PURPLE,
                    ),
                ],
                "Means of all GPUs: shares of cycles, of the peak bandwidth and of the memory.",
                unit="percentunit",
                low=0,
                high=1,
            ),
            timeseries(
                "Between GPUs and nodes",
                [
                    Query(
                        f"sum(rate(gpu_nvlink_{way}_bytes_total{{<cluster>}}[$__rate_interval]))",
                        f"NVLink, {word}",
                        color,
                    )
                    for way, word, color in (
                        ("receive", "received", BLUE),
                        ("transmit", "sent", SKY),
                    )
                ]
                + [
                    Query(
                        f"sum(rate(nic_{way}_bytes_total{{<cluster>}}[$__rate_interval])"
                        " and on (cluster, instance, device, port)"
                        ' nic_device_info{<cluster>, physical="true"})',
                        f"network, {word}",
                        color,
                    )
                    for way, word, color in (
                        ("receive", "received", ORANGE),
                        ("transmit", "sent", VERMILION),
                    )
                ],
                "Traffic of all NVLinks, and of all physical ports of the network.",
                unit="Bps",
                low=0,
            ),
        ],
    )


def _worst() -> Row:
    expected = "max by (instance) (gpu_devices_expected{<cluster>})"
    present = "max by (instance) (gpu_devices_present{<cluster>})"
    return Row(
        "System: worst nodes",
        [
            table(
                "Nodes",
                {"instance": "node"},
                [
                    Column(
                        "alerts that fire",
                        "count by (instance)"
                        ' (ALERTS{<cluster>, alertstate="firing", instance!=""})',
                        steps={1: BAD},
                        decimals=0,
                    ),
                    Column("GPUs missing", f"{expected} - {present}", steps={1: BAD}, decimals=0),
                    Column(
                        "XIDs within an hour",
                        "sum by (instance) (increase(gpu_xid_errors_total{<cluster>}[1h]))",
                        steps={1: WARNING},
                        decimals=0,
                    ),
                    Column(
                        "SM activity", f"avg by (instance) ({ACTIVE})", "percentunit", decimals=0
                    ),
                    Column(
                        "throttled most",
                        f"max by (instance) ({THROTTLED})",
                        "percentunit",
                        steps={0.05: WARNING, 0.5: BAD},
                        decimals=0,
                    ),
                    Column(
                        "hottest core",
                        'max by (instance) (gpu_temperature_celsius{<cluster>, sensor="core"})',
                        "celsius",
                        decimals=0,
                    ),
                    Column(
                        "ports down",
                        "sum by (instance) (nic_expected_up{<cluster>}"
                        " * on (cluster, instance, device, port) group_left ()"
                        " (1 - max by (cluster, instance, device, port) (nic_up{<cluster>})))",
                        steps={1: BAD},
                        decimals=0,
                    ),
                    Column(
                        "slowest rank",
                        "max by (instance) (train_step_skew_ratio{<cluster>})",
                        "percentunit",
                        steps={0.1: WARNING},
                        decimals=1,
                    ),
                    Column(
                        "failing sources",
                        "sum by (instance) (1 - flopwatch_source_up{<cluster>})",
                        steps={1: WARNING},
                        decimals=0,
                    ),
                    Column(
                        "idle dollars per hour",
                        "max by (instance) (cost_idle_dollars_per_hour{<cluster>})",
                        "currencyUSD",
                        decimals=2,
                    ),
                ],
                "Each node, the one with most alerts first: what is missing, failing, hot, held"
                " down or idle there. An empty cell: nothing of the kind, or not known. The name"
                " leads to the node's board.",
                sort="alerts that fire",
                width=24,
                height=9,
                links={"node": towards("flopwatch-node", "instance")},
            ),
        ],
    )


def _kernels() -> Row:
    verdict = "sum by (verdict) (gpu_roofline_verdict{<cluster>})"
    return Row(
        "Compiler: how well kernels use the hardware",
        [
            timeseries(
                "Roofline",
                Query(verdict, "{{verdict}}"),
                "GPUs by what limits them over the last minute: arithmetic or memory bandwidth. An"
                " idle GPU is in neither.",
                colors={"compute_bound": BLUE, "memory_bound": ORANGE},
                low=0,
                width=6,
            ),
            timeseries(
                "Arithmetic intensity",
                [
                    Query(
                        "avg(gpu_arithmetic_intensity_flops_per_byte{<cluster>})",
                        "operations per byte",
                        BLUE,
                    ),
                    Query(
                        'avg(gpu_peak_flops{<cluster>, precision="bf16"}'
                        " / on (cluster, instance, gpu)"
                        " gpu_peak_memory_bandwidth_bytes_per_second{<cluster>})",
                        "ridge point, bf16",
                        GREY,
                    ),
                ],
                "Estimated tensor operations for each byte of memory traffic. Below the ridge point"
                " memory is the limit: fusion, larger batches and smaller types raise it.",
                unit="none",
                low=0,
                width=6,
            ),
            timeseries(
                "Tensor cores and occupancy",
                [
                    Query(
                        f"sum({TENSOR}) / (sum({ACTIVE}) > 0)", "tensor over SM activity", ORANGE
                    ),
                    Query("avg(gpu_sm_occupancy_ratio{<cluster>})", "occupancy", PURPLE),
                ],
                "How much of the cycles in which SMs have work the tensor cores work too, and how"
                " many of the warps that fit are there.",
                unit="percentunit",
                low=0,
                width=6,
            ),
            bargauge(
                "What kernels cost in MFU",
                Query(
                    "sort_desc(avg by (cause) (sum by (cluster, instance, run, cause)"
                    ' (train_mfu_loss_ratio{<cluster>, cause=~"kernels|memory|framework'
                    '|recomputation"})))',
                    "{{cause}}",
                ),
                "Shares of the peak that runs lose to what a compiler can change: kernels below the"
                " peak, memory traffic, the framework's own time, work done twice. Mean of the"
                " runs.",
                colors={
                    "kernels": BLUE,
                    "memory": SKY,
                    "framework": PURPLE,
                    "recomputation": ORANGE,
                },
                decimals=1,
                width=6,
            ),
        ],
    )
