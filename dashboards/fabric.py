"""Fabric: ports, rails, NVLink and collectives: what they carry, what holds them up, what fails."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.parts import (
    BAD,
    BLUE,
    FINE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    VERMILION,
    WARNING,
    Column,
    Query,
    Row,
    alerts_table,
    board,
    cluster,
    datasource,
    mark,
    node,
    run,
    stat,
    table,
    timeline,
    timeseries,
)

UP = {"0": ("down", BAD), "1": ("up", FINE)}
PORT = {"instance": "node", "device": "device", "port": "port"}
_PORT = "by (instance, device, port)"
_NAME = "{{instance}} {{device}}"
# A port without a number is an interface; it has no state of RDMA.
_EXPECTED = "(nic_expected_up{<node>} == 1)"
_COLLECTIVE = "{{collective}}"


def build() -> Dashboard:
    """Return the board."""
    return board(
        "flopwatch-fabric",
        "Whether the network between GPUs is whole, what it carries, who is paused, which rank"
        " waits, and how NCCL is set.",
        [datasource(), cluster(), node(), run()],
        [_state(), _use(), _congestion(), _errors(), _collectives(), _topology(), _optics()],
        marks=[
            mark(
                "Ports that go down",
                "timestamp(nic_up{<node>} == 0) * 1000 unless on (cluster, instance, device, port)"
                " (nic_up{<node>} offset $__interval == 0)",
                "{{instance}} {{device}} {{port}} went down",
                "device",
                BAD,
            )
        ],
    )


def _state() -> Row:
    return Row(
        "Is it whole?",
        [
            stat(
                "Ports that are up",
                "sum(nic_up{<node>})",
                "Ports that can carry traffic: RDMA ports that are active, interfaces that run.",
            ),
            stat(
                "Ports down that should be up",
                f"sum({_EXPECTED} - on (cluster, instance, device, port) nic_up{{<node>}})",
                "A port ought to be up because the configuration says so, because it has been up"
                " since the machine started, or because most of its kind are.",
                steps={1: BAD},
            ),
            stat(
                "GPUs far from their NIC",
                "sum(topology_gpu_nic_ok{<node>} == bool 0)",
                "GPUs whose nearest compute NIC is not as near as the board allows: a NIC in the"
                " wrong slot.",
                steps={1: WARNING},
            ),
            stat(
                "NVLinks down",
                "sum(gpu_nvlink_links{<node>} - gpu_nvlink_links_up{<node>})",
                "NVLinks that the GPUs have and that are not active.",
                steps={1: BAD},
            ),
            stat(
                "Counters that stand still",
                "count(nic_saturated{<node>} == 1)",
                "Narrow port counters at their maximum: they count no more until they are cleared,"
                " and their rate of 0 means nothing.",
                steps={1: WARNING},
                nothing="none",
            ),
            stat(
                "Mistakes in NCCL's settings",
                "sum(max by (run, kind) (nccl_environment_problem{<node>, <run>}))",
                "Mistakes in the settings of NCCL, of all chosen runs. The table below names them.",
                steps={1: WARNING},
            ),
            timeline(
                "Ports over time",
                Query(
                    f"max {_PORT} (nic_up{{<node>}}"
                    f" and on (cluster, instance, device, port) {_EXPECTED})",
                    _NAME,
                ),
                "Each port that ought to be up, and whether it was.",
                states=UP,
                width=10,
                height=12,
            ),
            table(
                "Ports",
                PORT,
                [
                    Column("state", f"max {_PORT} (nic_up{{<node>}})", states=UP),
                    Column(
                        "speed",
                        f"max {_PORT} (8 * nic_link_rate_bytes_per_second{{<node>}})",
                        "bps",
                        decimals=0,
                    ),
                    Column(
                        "in",
                        f"max {_PORT} (nic_receive_utilization_ratio{{<node>}})",
                        "percentunit",
                        decimals=0,
                    ),
                    Column(
                        "out",
                        f"max {_PORT} (nic_transmit_utilization_ratio{{<node>}})",
                        "percentunit",
                        decimals=0,
                    ),
                    Column(
                        "errors",
                        f"sum {_PORT} (increase(nic_errors_total{{<node>}}[$__range]))",
                        steps={1: WARNING},
                        decimals=0,
                    ),
                    Column(
                        "sent again",
                        f"sum {_PORT} (increase(nic_retransmits_total{{<node>}}[$__range]))",
                        steps={1: WARNING},
                        decimals=0,
                    ),
                    Column(
                        "paused",
                        f"max {_PORT} (rate(nic_receive_pause_seconds_total"
                        "{<node>}[$__rate_interval]))",
                        "percentunit",
                        steps={0.01: WARNING, 0.05: BAD},
                        decimals=1,
                    ),
                ],
                "Each port: state and speed of its link, share of it in use, errors and"
                " retransmissions within the time shown, share of time in which it may not send.",
                sort="errors",
                width=14,
                height=12,
            ),
        ],
    )


def _use() -> Row:
    return Row(
        "What it carries",
        [
            timeseries(
                "Received, of what the links carry",
                Query(f"max {_PORT} (nic_receive_utilization_ratio{{<node>}})", _NAME),
                "Bytes received over what the link carries in that direction.",
                unit="percentunit",
                low=0,
            ),
            timeseries(
                "Sent, of what the links carry",
                Query(f"max {_PORT} (nic_transmit_utilization_ratio{{<node>}})", _NAME),
                "Bytes sent over what the link carries in that direction.",
                unit="percentunit",
                low=0,
            ),
            timeseries(
                "Rails",
                Query(
                    "max by (instance, rail) (nic_rail_bytes_per_second{<node>})",
                    "{{instance}} rail {{rail}}",
                ),
                "Bytes that each rail receives and sends in a second: the compute NIC nearest to a"
                " GPU. In a job that uses all GPUs they should lie on each other.",
                unit="Bps",
                low=0,
            ),
            timeseries(
                "Balance of the rails",
                Query(
                    "min by (instance, rail) (nic_rail_traffic_ratio{<node>})",
                    "{{instance}} rail {{rail}}",
                ),
                "Traffic of each rail over the median of its node's rails: 1 is balance. The alert"
                " RailImbalance fires below 0.7. Nothing is drawn without traffic.",
                unit="percentunit",
                low=0,
                steps={0.7: BAD},
            ),
            timeseries(
                "NVLink in use",
                Query(
                    "max by (instance, gpu) (gpu_nvlink_transmit_utilization_ratio{<node>})",
                    "{{instance}} GPU {{gpu}}",
                ),
                "Payload that each GPU sends over NVLink, over what its active links carry in that"
                " direction.",
                unit="percentunit",
                low=0,
            ),
            timeseries(
                "NVLink payload",
                [
                    Query(
                        "sum(rate(gpu_nvlink_transmit_bytes_total{<node>}[$__rate_interval]))",
                        "sent",
                        BLUE,
                    ),
                    Query(
                        "sum(rate(gpu_nvlink_receive_bytes_total{<node>}[$__rate_interval]))",
                        "received",
                        ORANGE,
                    ),
                ],
                "Payload over all NVLinks of the chosen nodes.",
                unit="Bps",
                low=0,
            ),
        ],
    )


def _congestion() -> Row:
    return Row(
        "Congestion and pauses",
        [
            timeseries(
                "Told to stop",
                Query(
                    f"max {_PORT} (rate(nic_receive_pause_seconds_total"
                    "{<node>}[$__rate_interval]))",
                    _NAME,
                ),
                "Share of time in which the port was not allowed to send, by pause frames that it"
                " received: the network or a host far away is too slow. The alert RocePauseStorm"
                " fires from 5 % on.",
                unit="percentunit",
                low=0,
                steps={0.05: BAD},
            ),
            timeseries(
                "Tells others to stop",
                Query(
                    f"max {_PORT} (rate(nic_transmit_pause_seconds_total"
                    "{<node>}[$__rate_interval]))",
                    _NAME,
                ),
                "Share of time in which the port told the other side to stop: this host does not"
                " take its packets in fast enough.",
                unit="percentunit",
                low=0,
                steps={0.01: BAD},
            ),
            timeseries(
                "Congestion notices",
                Query(
                    "sum by (kind) (rate(nic_congestion_notices_total{<node>}[$__rate_interval]))",
                    "{{kind}}",
                ),
                "Notices in a second: sent, because this node was flooded; handled, because it"
                " slowed down for others; ignored ones were received and not acted on.",
                unit="cps",
                low=0,
                colors={"handled": BLUE, "sent": ORANGE, "ignored": VERMILION},
            ),
            timeseries(
                "Marked and lost",
                [
                    Query(
                        "sum(rate(nic_ecn_marked_packets_total{<node>}[$__rate_interval]))",
                        "marked by a switch",
                        BLUE,
                    ),
                    Query(
                        "sum(rate(nic_receive_discards_total{<node>}[$__rate_interval]))",
                        "thrown away on arrival",
                        VERMILION,
                    ),
                    Query(
                        "sum(rate(nic_transmit_discards_total{<node>}[$__rate_interval]))",
                        "thrown away before sending",
                        ORANGE,
                    ),
                ],
                "Packets in a second that arrived marked by a congested switch, and those that"
                " were thrown away; on a lossless class that is a fault.",
                unit="pps",
                low=0,
            ),
            timeseries(
                "Waits for credit",
                Query(
                    f"sum {_PORT} (rate(nic_transmit_wait_ticks_total"
                    "{<node>}[$__rate_interval])) > 0",
                    _NAME,
                ),
                "Ticks in a second in which data waited for credit (InfiniBand). How long a tick"
                " is depends on the vendor: compare ports with each other.",
                unit="cps",
                low=0,
                points=True,
            ),
            timeseries(
                "PCIe behind the ports",
                [
                    Query(
                        "max by (kind) (nic_pcie_stalled_ratio{<node>})",
                        "stalled: {{kind}}",
                        BLUE,
                    )
                ],
                "Share of time in which a card's reads or writes over PCIe had to wait, of the"
                " card that waits most: the host, not the network, is the limit.",
                unit="percentunit",
                low=0,
            ),
        ],
    )


def _errors() -> Row:
    return Row(
        "Errors",
        [
            timeseries(
                "Port errors",
                Query(
                    "sum by (instance, device, cause)"
                    " (rate(nic_errors_total{<node>}[$__rate_interval])) > 0",
                    _NAME + ": {{cause}}",
                ),
                "Errors of ports in a second, by cause. Ports and causes without errors are not"
                " drawn.",
                unit="cps",
                low=0,
                points=True,
            ),
            timeseries(
                "Retransmissions",
                Query(
                    "sum by (instance, device, cause)"
                    " (rate(nic_retransmits_total{<node>}[$__rate_interval])) > 0",
                    _NAME + ": {{cause}}",
                ),
                "RDMA retransmissions in a second, by cause. Each costs a round trip, and in a"
                " collective everybody waits for it.",
                unit="cps",
                low=0,
                points=True,
            ),
            timeseries(
                "Acknowledgements that did not come",
                Query(f"sum {_PORT} (rate(nic_timeouts_total{{<node>}}[$__rate_interval]))", _NAME),
                "RDMA acknowledgements that did not come in time, in a second: loss, a dead peer,"
                " or a pause storm.",
                unit="cps",
                low=0,
            ),
            timeseries(
                "Links that went down",
                [
                    Query(
                        "sum by (instance, device)"
                        " (increase(nic_state_changes_total{<node>}[$__rate_interval])) > 0",
                        _NAME + ": RDMA",
                        VERMILION,
                    ),
                    Query(
                        "sum by (instance, device)"
                        " (increase(nic_link_downs_total{<node>}[$__rate_interval])) > 0",
                        _NAME + ": physical",
                        ORANGE,
                    ),
                ],
                "Times that a port became active or ceased to be, and that a physical link was"
                " lost. Nothing is drawn while links stay up.",
                low=0,
                points=True,
            ),
            timeseries(
                "Bits repaired",
                Query(
                    f"sum {_PORT} (rate(nic_fec_corrections_total{{<node>}}[$__rate_interval]))",
                    _NAME,
                ),
                "Bits in a second that forward error correction has repaired. Some are normal; one"
                " port far above its neighbours has a bad cable or module.",
                unit="cps",
                low=0,
            ),
            timeseries(
                "NVLink errors",
                Query(
                    "sum by (instance, gpu, cause)"
                    " (rate(gpu_nvlink_errors_total{<node>}[$__rate_interval])) > 0",
                    "{{instance}} GPU {{gpu}}: {{cause}}",
                ),
                "Errors on NVLinks in a second, by cause. Recoveries that grow come days before a"
                " link is lost. Nothing is drawn without errors.",
                unit="cps",
                low=0,
                points=True,
            ),
        ],
    )


def _collectives() -> Row:
    return Row(
        "Collectives",
        [
            timeseries(
                "Bus bandwidth",
                [
                    Query(
                        "avg by (collective) (nccl_bus_bandwidth_bytes_per_second"
                        '{<node>, <run>, size=~"256MiB|inf"})',
                        _COLLECTIVE,
                        BLUE,
                    ),
                    Query(
                        "avg by (collective) (nccl_expected_bus_bandwidth_bytes_per_second"
                        "{<node>, <run>})",
                        _COLLECTIVE + " expected",
                        GREY,
                    ),
                ],
                "Bus bandwidth of large messages (16 MiB and more), mean over ranks, and what the"
                " links allow. From NCCL Inspector's dumps.",
                unit="Bps",
                low=0,
            ),
            timeseries(
                "Bus bandwidth, of what is expected",
                Query(
                    "min by (run, rank) (nccl_bus_bandwidth_ratio{<node>, <run>})",
                    "{{run}} rank {{rank}}",
                ),
                "Measured over expected bus bandwidth, of each rank's slowest collective. Waiting"
                " for late ranks makes it small as well: see the panel beside.",
                unit="percentunit",
                low=0,
                steps={0.7: WARNING},
            ),
            timeseries(
                "Waiting for other ranks",
                Query(
                    "sum by (run, rank) (rate(nccl_wait_seconds_total"
                    "{<node>, <run>}[$__rate_interval]))",
                    "{{run}} rank {{rank}}",
                ),
                "Seconds in a second that each rank waits in collectives for the last one. The"
                " rank that waits least is the one that the others wait for.",
                unit="percentunit",
                low=0,
            ),
            timeseries(
                "Operations",
                Query(
                    "sum by (collective, size) (rate(nccl_operations_total"
                    "{<node>, <run>}[$__rate_interval]))",
                    "{{collective}} up to {{size}}",
                ),
                "Collectives and transfers in a second by size of the message, as far as NCCL"
                " Inspector has written them down.",
                unit="cps",
                low=0,
                colors={"AllGather": BLUE, "ReduceScatter": ORANGE, "AllReduce": GREEN},
            ),
            timeseries(
                "Small messages",
                Query(
                    "max by (run, rank) (nccl_small_message_ratio{<node>, <run>})",
                    "{{run}} rank {{rank}}",
                ),
                "Share of operations of less than 64 KiB: latency, not bandwidth, is what they"
                " cost.",
                unit="percentunit",
                low=0,
                high=1,
            ),
            table(
                "Mistakes in NCCL's settings",
                {"run": "run", "kind": "mistake"},
                [
                    Column(
                        "nodes",
                        "count by (run, kind) (nccl_environment_problem{<node>, <run>} == 1)",
                    )
                ],
                "Well-known mistakes in how jobs have set NCCL; docs/fabric.md says what to do"
                " about each. Values of variables are never told.",
                width=8,
            ),
        ],
    )


def _topology() -> Row:
    gpu = "by (instance, gpu, device, distance, rail)"
    return Row(
        "Topology",
        [
            table(
                "GPUs and their NICs",
                {
                    "instance": "node",
                    "gpu": "GPU",
                    "device": "NIC",
                    "distance": "distance",
                    "rail": "rail",
                },
                [
                    Column(
                        "near enough",
                        f"max {gpu} (topology_gpu_best_nic_info{{<node>}}"
                        " * on (cluster, instance, gpu, uuid)"
                        " group_left () topology_gpu_nic_ok{<node>})",
                        states={"0": ("no", BAD), "1": ("yes", FINE)},
                    ),
                    Column(
                        "NVLinks",
                        "max by (instance, gpu) (gpu_nvlink_links_up{<node>})",
                    ),
                    Column(
                        "NUMA node",
                        'max by (instance, gpu) (topology_numa_node{<node>, device=""})',
                    ),
                ],
                "The compute NIC nearest to each GPU: PIX and PXB are behind the same switch, PHB,"
                " NODE and SYS go through the processor.",
                sort="GPU",
                descending=False,
            ),
            table(
                "PCIe links below what they could be",
                {"instance": "node", "gpu": "GPU", "device": "NIC", "part": "what"},
                [
                    Column(
                        "state",
                        "max by (instance, gpu, device, part)"
                        " (topology_pcie_link_degraded{<node>} == 1)",
                        states={"1": ("degraded", BAD)},
                    )
                ],
                "GPUs and NICs whose PCIe link has fewer lanes (width) or is slower (speed) than"
                " card and slot can do. Empty: none.",
                width=6,
            ),
            alerts_table('cluster=~"$cluster", component="fabric"', width=6),
        ],
    )


def _optics() -> Row:
    return Row(
        "Plugged modules",
        [
            timeseries(
                "Light that arrives",
                Query("min by (instance, device) (nic_module_receive_power_watts{<node>})", _NAME),
                "Light at the weakest lane of each module. Half of what the neighbours have is a"
                " dirty or bent fibre; copper has none.",
                unit="watt",
                low=0,
            ),
            timeseries(
                "Light that is sent",
                Query("min by (instance, device) (nic_module_transmit_power_watts{<node>})", _NAME),
                "Light of the weakest lane that each module sends: a laser that grows old.",
                unit="watt",
                low=0,
            ),
            timeseries(
                "Temperature",
                Query("max by (instance, device) (nic_module_temperature_celsius{<node>})", _NAME),
                "Temperature of plugged modules. The alert OpticHot watches it.",
                unit="celsius",
            ),
            timeseries(
                "Errors by lane",
                Query(
                    "sum by (instance, device, lane)"
                    " (rate(nic_lane_errors_total{<node>}[$__rate_interval])) > 0",
                    _NAME + " lane {{lane}}",
                ),
                "Bit errors of each lane in a second before correction: one lane far above its"
                " neighbours is a bad one. Nothing is drawn without errors.",
                unit="cps",
                low=0,
                points=True,
            ),
            timeseries(
                "Faults of modules",
                Query(
                    "sum by (instance, device, fault)"
                    " (increase(nic_module_faults_total{<node>}[$__rate_interval])) > 0",
                    _NAME + ": {{fault}}",
                    SKY,
                ),
                "Modules that were unplugged, are too hot, shorted, or hold the bus. Nothing is"
                " drawn while there are none.",
                low=0,
                points=True,
            ),
        ],
        collapsed=True,
    )
