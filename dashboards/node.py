"""One node: its GPUs as rows, what slows them down, how they reach each other and the network."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import node_links
from dashboards.parts import (
    BAD,
    FINE,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    WARNING,
    Column,
    Query,
    Row,
    board,
    cluster,
    datasource,
    heatmap,
    mark,
    node,
    stat,
    table,
    timeline,
    timeseries,
)

SM = "rate(gpu_sm_active_seconds_total{<one>}[$__rate_interval])"
TENSOR = "rate(gpu_tensor_active_seconds_total{<one>}[$__rate_interval])"
HBM = "rate(gpu_dram_active_seconds_total{<one>}[$__rate_interval])"
THROTTLED = "rate(gpu_throttled_seconds_total{<one>}[$__rate_interval])"
ACTIVE = "SMs with work: share of cycles in which an SM had a warp, over all SMs."


REASONS = {
    "sw_power_cap": SKY,
    "sw_thermal": ORANGE,
    "hw_thermal": VERMILION,
    "power_brake": PURPLE,
    "thermal": ORANGE,
}


def build() -> Dashboard:
    """Return the board."""
    return board(
        "flopwatch-node",
        "One node: GPUs as rows, clocks and throttling, memory bandwidth, NVLink, network,"
        " topology, errors.",
        [datasource(), cluster(), node(every=False)],
        [_now(), _gpus(), _activity(), _power(), *node_links.rows()],
        marks=[
            mark(
                "XIDs",
                "gpu_xid_last_timestamp_seconds{<one>} * 1000",
                "XID {{xid}} on GPU {{gpu}}",
                "xid,gpu",
            ),
            mark(
                "End of a spot instance",
                "spot_interruption_deadline_timestamp_seconds{<one>} * 1000",
                "the cloud takes the node away: {{action}}",
                "provider,action",
                WARNING,
            ),
        ],
    )


def _now() -> Row:
    return Row(
        "Now",
        [
            stat(
                "GPUs that answer",
                "gpu_devices_present{<one>} / gpu_devices_expected{<one>}",
                "Share of the GPUs that should be here and that answer the driver's calls.",
                unit="percentunit",
                base=BAD,
                steps={1: FINE},
                width=3,
            ),
            stat(
                "SM activity",
                f"avg({SM})",
                f"{ACTIVE} Mean of the node's GPUs.",
                unit="percentunit",
                width=3,
            ),
            stat(
                "Memory bandwidth",
                f"avg({HBM})",
                "Share of the peak bandwidth of device memory in use. Mean of the node's GPUs.",
                unit="percentunit",
                width=3,
            ),
            stat(
                "Throttled",
                f"max({THROTTLED})",
                "Share of time in which the GPU that is held down most was held down, by its"
                " commonest reason. The panel below tells GPU and reason.",
                unit="percentunit",
                steps={0.05: WARNING, 0.5: BAD},
                width=3,
            ),
            stat(
                "Power",
                "sum(max by (gpu) (gpu_power_watts{<one>}))",
                "What the boards of all GPUs draw together, without the rest of the machine.",
                unit="watt",
                width=3,
            ),
            stat(
                "Cost",
                "cost_dollars_per_hour{<one>}",
                "What the node's priced GPUs cost an hour. Unknown: no price is configured or"
                " listed.",
                unit="currencyUSD",
                width=3,
            ),
            stat(
                "Spot or maintenance",
                "max(spot_interruption_notice{<one>} or spot_maintenance_notice{<one>})",
                "Whether the cloud has announced that it takes the node away or works on it."
                " Unknown: no metadata service answers, as on machines of one's own.",
                states={"0": ("nothing announced", FINE), "1": ("announced", BAD)},
                trend=False,
                width=3,
            ),
            stat(
                "Alerts that fire",
                'count(ALERTS{<one>, alertstate="firing"})',
                "Alerts of this node that fire now; the table below names them. None is also said"
                " where Prometheus has not loaded the rules.",
                steps={1: BAD},
                nothing="none",
                trend=False,
                width=3,
            ),
        ],
    )


def _gpus() -> Row:
    return Row(
        "GPUs",
        [
            table(
                "GPUs",
                {"gpu": "GPU", "device": "nearest NIC", "distance": "distance"},
                [
                    Column("answers", "max by (gpu) (gpu_up{<one>})", states=node_links.YES),
                    Column("SM activity", f"max by (gpu) ({SM})", "percentunit", decimals=0),
                    Column("tensor", f"max by (gpu) ({TENSOR})", "percentunit", decimals=0),
                    Column("HBM", f"max by (gpu) ({HBM})", "percentunit", decimals=0),
                    Column(
                        "memory",
                        "max by (gpu) (gpu_memory_used_bytes{<one>})"
                        " / max by (gpu) (gpu_memory_total_bytes{<one>})",
                        "percentunit",
                        decimals=0,
                    ),
                    Column(
                        "SM clock", 'max by (gpu) (gpu_clock_hertz{<one>, domain="sm"})', "hertz"
                    ),
                    Column("power", "max by (gpu) (gpu_power_watts{<one>})", "watt", decimals=0),
                    Column(
                        "core",
                        'max by (gpu) (gpu_temperature_celsius{<one>, sensor="core"})',
                        "celsius",
                        decimals=0,
                    ),
                    Column(
                        "throttled",
                        f"max by (gpu) ({THROTTLED})",
                        "percentunit",
                        steps={0.05: WARNING, 0.5: BAD},
                        decimals=0,
                    ),
                    Column(
                        "NVLink",
                        "max by (gpu)"
                        " (rate(gpu_nvlink_receive_bytes_total{<one>}[$__rate_interval])"
                        " + rate(gpu_nvlink_transmit_bytes_total{<one>}[$__rate_interval]))",
                        "Bps",
                    ),
                    Column(
                        "NIC",
                        "sum by (gpu) (topology_gpu_best_nic_info{<one>} * on (device)"
                        " group_left () sum by (device) ("
                        "rate(nic_receive_bytes_total{<one>}[$__rate_interval])"
                        " + rate(nic_transmit_bytes_total{<one>}[$__rate_interval])))",
                        "Bps",
                    ),
                    Column("processes", "max by (gpu) (gpu_processes{<one>})", decimals=0),
                    Column(
                        "", "max by (gpu, device, distance) (topology_gpu_best_nic_info{<one>})"
                    ),
                ],
                "One line for each GPU: what it does, what holds it down, what goes over its"
                " NVLinks and over the network card that is nearest to it.",
                sort="GPU",
                descending=False,
                width=24,
                height=12,
            ),
        ],
    )


def _activity() -> Row:
    return Row(
        "Activity",
        [
            heatmap(
                "SM activity",
                Query(f"max by (gpu) ({SM})", "{{gpu}}"),
                f"{ACTIVE} One line for each GPU.",
                unit="percentunit",
                axis="GPU",
                low=0,
                high=1,
                width=8,
            ),
            heatmap(
                "Tensor activity",
                Query(f"max by (gpu) ({TENSOR})", "{{gpu}}"),
                "Share of cycles in which the tensor cores worked, of whatever precision. One line"
                " for each GPU.",
                unit="percentunit",
                axis="GPU",
                low=0,
                high=1,
                width=8,
            ),
            heatmap(
                "HBM bandwidth",
                Query(f"max by (gpu) ({HBM})", "{{gpu}}"),
                "Share of the peak bandwidth of device memory in use. One line for each GPU.",
                unit="percentunit",
                axis="GPU",
                low=0,
                high=1,
                width=8,
            ),
            timeseries(
                "Estimated operations",
                Query("max by (gpu) (gpu_estimated_flops_per_second{<one>})", "GPU {{gpu}}"),
                "Tensor activity, times clock over the clock of the peak, times the peak: an"
                " estimate, for the hardware does not tell the precision.",
                unit="flops",
                low=0,
            ),
            timeseries(
                "HBM traffic",
                Query("max by (gpu) (gpu_hbm_bandwidth_bytes_per_second{<one>})", "GPU {{gpu}}"),
                "Device memory traffic: its activity times the board's peak bandwidth.",
                unit="Bps",
                low=0,
            ),
            timeseries(
                "Memory in use",
                Query("max by (gpu) (gpu_memory_used_bytes{<one>})", "GPU {{gpu}}"),
                "Device memory that programs have allocated.",
                unit="bytes",
                low=0,
            ),
        ],
    )


def _power() -> Row:
    codes = {"sw_power_cap": 1, "sw_thermal": 2, "hw_thermal": 3, "power_brake": 4}
    held = 'rate(gpu_throttled_seconds_total{<one>, reason="%s"}[$__rate_interval]) > bool 0.05'
    coded = " or ".join(f"({held % reason}) * {code}" for reason, code in codes.items())
    return Row(
        "Clocks, power, heat",
        [
            timeline(
                "Throttling",
                Query(f"max by (gpu) ({coded})", "GPU {{gpu}}"),
                "What held clocks down for more than 5 % of the time; of several reasons the"
                " gravest: power brake (from outside), heat by hardware, heat by driver, power"
                " limit.",
                states={
                    "0": ("not held down", GREY),
                    "1": ("power limit", SKY),
                    "2": ("heat, by driver", ORANGE),
                    "3": ("heat, by hardware", VERMILION),
                    "4": ("power brake", PURPLE),
                },
                width=12,
            ),
            timeseries(
                "Throttled time by reason",
                Query(f"avg by (reason) ({THROTTLED})", "{{reason}}"),
                "Share of time in which a reason held clocks down, mean of all GPUs. Reasons"
                " overlap.",
                unit="percentunit",
                colors=REASONS,
                low=0,
                width=12,
            ),
            timeseries(
                "SM clock",
                Query('max by (gpu) (gpu_clock_hertz{<one>, domain="sm"})', "GPU {{gpu}}"),
                "Clock of the SMs. One GPU below the others slows a whole training run.",
                unit="hertz",
            ),
            timeseries(
                "Power",
                [
                    Query("max by (gpu) (gpu_power_watts{<one>})", "GPU {{gpu}}"),
                    Query('max(gpu_power_limit_watts{<one>, limit="enforced"})', "limit"),
                ],
                "Power of each board, and the limit that is enforced.",
                unit="watt",
                colors={"limit": GREY},
                low=0,
            ),
            timeseries(
                "Core temperature",
                Query(
                    'max by (gpu) (gpu_temperature_celsius{<one>, sensor="core"})', "GPU {{gpu}}"
                ),
                "Temperature of the core. Clocks fall when the margin is used up: see throttling.",
                unit="celsius",
            ),
        ],
    )
