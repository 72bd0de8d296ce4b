"""Exporter health: whether the daemons themselves and their sources are well."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.parts import (
    BAD,
    COLORS,
    FINE,
    WARNING,
    Column,
    Query,
    Row,
    alerts_table,
    board,
    cluster,
    datasource,
    heatmap,
    node,
    stat,
    table,
    timeline,
    timeseries,
)

UP = {"0": ("failed", BAD), "1": ("delivers", FINE)}


# The large ones, each with a colour.
GROUPS = (
    "gpu", "nic", "training", "serving", "sla", "cost", "topology",
    "fabric", "diagnosis", "exporter", "host", "nccl", "spot", "xid",
)  # fmt: skip


def build() -> Dashboard:
    """Return the board."""
    return board(
        "flopwatch-exporter",
        "Whether the daemons and what they read are well: sources, failures, cost of reading,"
        " size of the page.",
        [datasource(), cluster(), node()],
        [_state(), _sources(), _page(), _process()],
    )


def _state() -> Row:
    return Row(
        "Daemons",
        [
            stat(
                "Daemons that answer",
                "count(flopwatch_build_info{<node>})",
                "Daemons whose page Prometheus could read. One that is down is not counted here:"
                " see the alert ExporterDown.",
            ),
            stat(
                "Sources that fail",
                "sum(1 - flopwatch_source_up{<node>})",
                "Sources that do not deliver. The table below names them.",
                steps={1: BAD},
            ),
            stat(
                "Failing parts",
                "sum(flopwatch_source_failing_parts{<node>})",
                "Devices, ports or files that were missing from the last reads of sources that"
                " otherwise deliver.",
                steps={1: WARNING},
            ),
            stat(
                "Configuration",
                "min(flopwatch_config_last_reload_successful{<node>})",
                "Whether every daemon runs with the configuration that was last given to it. A"
                " file with an error is refused, and the old one stays in force.",
                states={"0": ("old one kept", BAD), "1": ("in force", FINE)},
                trend=False,
            ),
            stat(
                "Series",
                "sum(flopwatch_series{<node>})",
                "Series on all pages together. A node of eight GPUs has about 2,500, and 3,000"
                " at most by default.",
            ),
            stat(
                "Samples left out",
                "sum(increase(flopwatch_samples_dropped_total{<node>}[$__range]))",
                "Samples that were left out within the time shown: too many series, duplicates,"
                " impossible values. A daemon that leaves out none does not tell of it.",
                steps={1: WARNING},
                nothing="none",
            ),
        ],
    )


def _sources() -> Row:
    return Row(
        "Sources",
        [
            timeline(
                "Sources over time",
                Query("min by (source) (flopwatch_source_up{<node>})", "{{source}}"),
                "Each source on the chosen nodes: it fails where it fails on any of them. A gap"
                " means that no daemon tells of it.",
                states=UP,
                height=12,
            ),
            table(
                "Sources now",
                {"instance": "node", "source": "source"},
                [
                    Column(
                        "state",
                        "max by (instance, source) (flopwatch_source_up{<node>})",
                        states=UP,
                    ),
                    Column(
                        "age",
                        "time() - max by (instance, source)"
                        " (flopwatch_source_last_success_timestamp_seconds{<node>})",
                        "s",
                        decimals=0,
                    ),
                    Column(
                        "read takes",
                        "max by (instance, source)"
                        " (flopwatch_source_read_duration_seconds{<node>})",
                        "s",
                    ),
                    Column(
                        "failing parts",
                        "max by (instance, source) (flopwatch_source_failing_parts{<node>})",
                        steps={1: WARNING},
                    ),
                ],
                "Each source: whether it delivers, how long ago it last did, what its last read"
                " took, and how many of its devices or files were missing.",
                sort="state",
                descending=False,
                height=12,
            ),
            heatmap(
                "Time that a read takes",
                Query(
                    "max by (source) (flopwatch_source_read_duration_seconds{<node>})", "{{source}}"
                ),
                "How long the last read of each source took, the slowest of the chosen nodes: the"
                " brighter, the longer; one line for each source.",
                unit="s",
                low=0,
                width=12,
                height=12,
            ),
            timeseries(
                "Failed reads",
                Query(
                    "sum by (source, reason)"
                    " (rate(flopwatch_source_failures_total{<node>}[$__rate_interval])) > 0",
                    "{{source}}: {{reason}}",
                ),
                "Reads, or parts of reads, that failed, by source and reason. Nothing is drawn for"
                " sources that do not fail.",
                unit="cps",
                low=0,
                width=6,
                height=12,
            ),
            timeseries(
                "Reads that hang",
                Query(
                    "max by (source) (flopwatch_source_busy_seconds{<node>})",
                    "{{source}}",
                ),
                "How long the read under way has been running. It grows when a driver or a server"
                " hangs; other sources go on.",
                unit="s",
                low=0,
                width=6,
                height=12,
            ),
        ],
    )


def _page() -> Row:
    return Row(
        "Page",
        [
            timeseries(
                "Series by group",
                Query("sum by (group) (flopwatch_series{<node>})", "{{group}}"),
                "Series on the page, by group of metrics.",
                colors=dict(zip(GROUPS, COLORS, strict=True)),
                stacked=True,
                low=0,
            ),
            timeseries(
                "Scrapes",
                Query("sum(rate(flopwatch_scrapes_total{<node>}[$__rate_interval]))", "scrapes"),
                "Times that the page was asked for. More than one Prometheus may ask.",
                unit="reqps",
                low=0,
            ),
            timeseries(
                "Samples left out",
                Query(
                    "sum by (source, reason)"
                    " (rate(flopwatch_samples_dropped_total{<node>}[$__rate_interval])) > 0",
                    "{{source}}: {{reason}}",
                ),
                "Samples left out, by source and reason; nothing is drawn while there are none.",
                unit="cps",
                low=0,
            ),
        ],
    )


def _process() -> Row:
    return Row(
        "What it costs",
        [
            timeseries(
                "Processor time",
                [
                    Query(
                        "max(rate(process_cpu_seconds_total{<node>}[$__rate_interval])"
                        " and on (job, instance) flopwatch_build_info{<node>})",
                        "daemon",
                    ),
                    Query(
                        "max(rate(flopwatch_child_cpu_seconds_total{<node>}[$__rate_interval]))",
                        "its child processes",
                    ),
                    Query(
                        "max(sum by (instance)"
                        " (rate(flopwatch_driver_seconds_total{<node>}[$__rate_interval])))",
                        "waiting for drivers",
                    ),
                ],
                "Share of one CPU core, of the node that needs most.",
                unit="percentunit",
                low=0,
            ),
            timeseries(
                "Memory",
                [
                    Query(
                        "max(process_resident_memory_bytes{<node>}"
                        " and on (job, instance) flopwatch_build_info{<node>})",
                        "daemon",
                    ),
                    Query(
                        "max(flopwatch_child_resident_memory_bytes{<node>})",
                        "its child processes",
                    ),
                ],
                "Resident memory, of the node that needs most.",
                unit="bytes",
                low=0,
            ),
            timeseries(
                "Open files",
                Query(
                    "max(process_open_fds{<node>}"
                    " and on (job, instance) flopwatch_build_info{<node>})",
                    "open",
                ),
                "File descriptors that a daemon holds open, of the node that has most.",
                low=0,
            ),
            alerts_table('cluster=~"$cluster", component="exporter"', width=24),
        ],
    )
