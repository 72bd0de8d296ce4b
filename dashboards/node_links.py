"""The lower half of the board of a node: links, topology, errors, the host."""

from __future__ import annotations

from dashboards.parts import (
    BAD,
    BLUE,
    FINE,
    GREEN,
    ORANGE,
    SKY,
    VERMILION,
    Column,
    Query,
    Row,
    alerts_table,
    matrix,
    table,
    timeline,
    timeseries,
)

# How far apart devices are, as `nvidia-smi topo -m` calls it.
DISTANCES = {
    "0": ("NVLink", BLUE),
    "1": ("PIX", BLUE),
    "2": ("PXB", SKY),
    "3": ("PHB", ORANGE),
    "4": ("NODE", ORANGE),
    "5": ("SYS", VERMILION),
}
MEANING = (
    "* on (xid) group_left (name, severity, action)"
    " max by (xid, name, severity, action) (gpu_xid_info{<one>})"
)
YES = {"0": ("no", BAD), "1": ("yes", FINE)}


def rows() -> list[Row]:
    """Return the rows, from links to the host."""
    return [_links(), _topology(), _errors(), _host()]


def _links() -> Row:
    def both(family: str, by: str) -> str:
        receive, transmit = (
            f"rate({family}_{way}_bytes_total{{<one>}}[$__rate_interval])"
            for way in ("receive", "transmit")
        )
        return f"sum by ({by}) ({receive} + {transmit})"

    return Row(
        "NVLink, PCIe, network",
        [
            timeseries(
                "NVLink traffic",
                Query(both("gpu_nvlink", "gpu"), "GPU {{gpu}}"),
                "Payload over all NVLinks of a GPU, received and sent together.",
                unit="Bps",
                low=0,
            ),
            timeseries(
                "PCIe traffic",
                Query(both("gpu_pcie", "gpu"), "GPU {{gpu}}"),
                "What each GPU receives and sends over PCIe together; the bytes of the protocol are"
                " in it where performance counters tell.",
                unit="Bps",
                low=0,
            ),
            timeseries(
                "Network traffic",
                Query(both("nic", "device"), "{{device}}"),
                "What each network device receives and sends, together. A bond counts what its"
                " ports do.",
                unit="Bps",
                low=0,
            ),
            timeline(
                "Ports",
                Query("min by (device, port) (nic_up{<one>})", "{{device}} {{port}}"),
                "Whether each port can carry traffic.",
                states={"0": ("down", BAD), "1": ("up", FINE)},
                width=8,
            ),
            timeseries(
                "NVLink errors",
                Query(
                    "sum by (cause) (increase(gpu_nvlink_errors_total{<one>}[$__rate_interval]))",
                    "{{cause}}",
                ),
                "Errors on the NVLinks of all GPUs, by cause. Recoveries that grow on a link come"
                " days before it is lost.",
                low=0,
            ),
            timeseries(
                "Traffic of rails",
                Query("max by (rail) (nic_rail_traffic_ratio{<one>})", "rail {{rail}}"),
                "Traffic of each rail over the median of the node's rails: 1 is balance. Absent"
                " while there is hardly any traffic.",
                unit="percentunit",
                low=0,
            ),
        ],
    )


def _topology() -> Row:
    return Row(
        "Topology",
        [
            matrix(
                "From GPUs to network cards",
                "max by (gpu, device) (topology_gpu_nic_distance{<one>})",
                "gpu",
                "device",
                "How far each GPU and network card are apart: PIX one PCIe switch, PXB several,"
                " PHB the host bridge, NODE the same socket, SYS another socket.",
                states=DISTANCES,
                width=12,
                height=10,
            ),
            matrix(
                "From GPU to GPU",
                "max by (gpu, peer) (topology_gpu_gpu_distance{<one>})",
                "gpu",
                "peer",
                "How far two GPUs are apart. Each pair is told once.",
                states=DISTANCES,
                width=8,
                height=10,
            ),
            table(
                "Is it as it should be",
                {"gpu": "GPU"},
                [
                    Column("NIC near", "min by (gpu) (topology_gpu_nic_ok{<one>})", states=YES),
                    Column("NVLinks", "min by (gpu) (topology_gpu_nvlink_ok{<one>})", states=YES),
                    Column(
                        "PCIe",
                        'min by (gpu) (1 - topology_pcie_link_degraded{<one>, device=""})',
                        states=YES,
                    ),
                ],
                "Whether a GPU's network card is as near as the board allows, as many NVLinks are"
                " up as on most GPUs, and PCIe has the lanes and speed that card and slot can do.",
                sort="GPU",
                descending=False,
                width=4,
                height=10,
            ),
        ],
    )


def _errors() -> Row:
    return Row(
        "Errors and alerts",
        [
            table(
                "XIDs",
                {
                    "gpu": "GPU",
                    "xid": "XID",
                    "name": "meaning",
                    "severity": "severity",
                    "action": "what to do",
                },
                [
                    Column(
                        "times",
                        f"sum by (gpu, xid) (gpu_xid_errors_total{{<one>}}) {MEANING} > 0",
                        decimals=0,
                    ),
                    Column(
                        "last",
                        "1000 * max by (gpu, xid) (gpu_xid_last_timestamp_seconds{<one>})"
                        f" {MEANING}",
                        "dateTimeFromNow",
                    ),
                ],
                "Errors of the driver, as far back as the kernel's log reaches, with what they"
                " mean. Empty: none. The lines across all panels show when each was last seen.",
                sort="times",
                width=12,
            ),
            alerts_table("<one>", width=12),
            timeseries(
                "Memory errors",
                Query(
                    "sum by (kind) (increase(gpu_ecc_errors_total{<one>,"
                    ' counter="volatile"}[$__rate_interval]))',
                    "{{kind}}",
                ),
                "Errors of device memory that were corrected, and those that could not be.",
                low=0,
                width=12,
            ),
            timeseries(
                "Rows replaced",
                Query("sum by (kind) (gpu_remapped_rows_total{<one>})", "{{kind}}"),
                "Rows of device memory replaced by spare ones since the boards were made, for"
                " corrected or uncorrected errors.",
                low=0,
                width=12,
            ),
            table(
                "Processes",
                {"gpu": "GPU", "command": "command", "pid": "process"},
                [
                    Column(
                        "memory",
                        "max by (gpu, command, pid) (gpu_process_memory_bytes{<one>})",
                        "bytes",
                    ),
                    Column(
                        "SM time",
                        "max by (gpu, command, pid) (gpu_process_sm_ratio{<one>})",
                        "percentunit",
                        decimals=0,
                    ),
                ],
                "Processes that have memory of a GPU, as the driver tells. No command: the"
                " process cannot be seen from where the daemon runs.",
                sort="GPU",
                descending=False,
                width=12,
            ),
            table(
                "Who has the GPUs",
                {
                    "gpu": "GPU",
                    "namespace": "namespace",
                    "pod": "pod",
                    "container": "container",
                },
                [
                    Column(
                        "",
                        "max by (gpu, namespace, pod, container) (gpu_allocation_info{<one>})",
                    ),
                    Column(
                        "share",
                        "sum by (gpu, namespace, pod, container)"
                        " (gpu_allocation_share_ratio{<one>})",
                        "percentunit",
                        decimals=0,
                    ),
                ],
                "Pods and containers that have a GPU, or a share of it. A line without a pod:"
                " nobody has that GPU. Empty: nobody tells, as outside of Kubernetes.",
                sort="GPU",
                descending=False,
                width=12,
            ),
        ],
    )


def _host() -> Row:
    return Row(
        "Host",
        [
            timeseries(
                "Processor",
                Query(
                    'sum by (mode) (rate(host_cpu_seconds_total{<one>, mode!="idle"}'
                    "[$__rate_interval])) / on () group_left () max(host_cpus{<one>})",
                    "{{mode}}",
                ),
                "Share of all CPUs by what they do; idle time is left out.",
                unit="percentunit",
                stacked=True,
                low=0,
            ),
            timeseries(
                "Memory available",
                Query(
                    "max(host_memory_available_bytes{<one>}) / max(host_memory_total_bytes{<one>})",
                    "available",
                    GREEN,
                ),
                "Share of the machine's memory that new programs can have without swapping.",
                unit="percentunit",
                low=0,
                high=1,
            ),
            timeseries(
                "Pressure",
                Query(
                    "sum by (resource, kind)"
                    " (rate(host_pressure_stalled_seconds_total{<one>}[$__rate_interval]))",
                    "{{resource}} {{kind}}",
                ),
                "Share of time in which some, or all (full), tasks were stalled for want of a"
                " resource.",
                unit="percentunit",
                low=0,
            ),
        ],
        collapsed=True,
    )
