"""What every metric is: one row for each family, and nothing else.

HELP and TYPE lines, `docs/METRICS.md` and the checks on dashboards and alerts all come out of this
table. A row is a module constant, written with its full name, so that a typo is an error at import
and an editor finds every use. Names, labels and meanings are promises to users: a `stable` row
changes only with a major version.

Labels: `gpu`, `uuid`, `mig`, `device`, `port`, `link`, `server`, `engine`, `model_name`, `run`,
`rank`. Never `job`, `instance`, `service`, `cluster`, `env`, `region`: Prometheus owns those.
"""

from __future__ import annotations

from collections.abc import Mapping

from exporter.samples import Metric

EXPORTER = "exporter"
HOST = "host"
NIC = "nic"
SERVING = "serving"

# ---------------------------------------------------------------- host: what diagnosis needs
# node_exporter stays the source for everything about the machine. These few are what explains a
# slow GPU (data loading, paging, noisy neighbours) and are sampled in step with it.

HOST_INFO = Metric(
    "host_info", "info", "The machine: kernel release, CPU architecture.",
    ("kernel", "architecture"), HOST,
)  # fmt: skip
HOST_BOOT_TIME_SECONDS = Metric(
    "host_boot_time_seconds", "gauge", "When the machine was started, in Unix seconds.",
    (), HOST, "seconds",
)  # fmt: skip
HOST_CPUS = Metric(
    "host_cpus", "gauge", "Logical CPUs that are online.", (), HOST,
)  # fmt: skip
HOST_CPU_SECONDS_TOTAL = Metric(
    "host_cpu_seconds_total", "counter",
    "CPU time of all CPUs together, by mode. Modes do not overlap.",
    ("mode",), HOST, "seconds",
)  # fmt: skip
HOST_LOAD_AVERAGE = Metric(
    "host_load_average", "gauge",
    "Processes that ran or waited (uninterruptible ones included), averaged over the window.",
    ("window",), HOST,
)  # fmt: skip
HOST_PROCESSES_RUNNING = Metric(
    "host_processes_running", "gauge", "Processes that are running or ready to run.", (), HOST,
)  # fmt: skip
HOST_PROCESSES_BLOCKED = Metric(
    "host_processes_blocked", "gauge",
    "Processes that wait for I/O and cannot be interrupted; a driver that hangs shows here.",
    (), HOST,
)  # fmt: skip
HOST_MEMORY_TOTAL_BYTES = Metric(
    "host_memory_total_bytes", "gauge", "Usable memory of the machine.", (), HOST, "bytes",
)  # fmt: skip
HOST_MEMORY_AVAILABLE_BYTES = Metric(
    "host_memory_available_bytes", "gauge",
    "Memory that new programs can have without swapping (the kernel's estimate).",
    (), HOST, "bytes",
)  # fmt: skip
HOST_SWAP_TOTAL_BYTES = Metric(
    "host_swap_total_bytes", "gauge", "Size of all swap areas.", (), HOST, "bytes",
)  # fmt: skip
HOST_SWAP_FREE_BYTES = Metric(
    "host_swap_free_bytes", "gauge", "Unused part of all swap areas.", (), HOST, "bytes",
)  # fmt: skip
HOST_PRESSURE_STALLED_SECONDS_TOTAL = Metric(
    "host_pressure_stalled_seconds_total", "counter",
    "Time in which some (or all, `full`) runnable tasks were stalled for want of the resource"
    " (Linux PSI).",
    ("resource", "kind"), HOST, "seconds",
)  # fmt: skip
HOST_NUMA_MEMORY_TOTAL_BYTES = Metric(
    "host_numa_memory_total_bytes", "gauge", "Memory of one NUMA node.",
    ("node",), HOST, "bytes",
)  # fmt: skip
HOST_NUMA_MEMORY_FREE_BYTES = Metric(
    "host_numa_memory_free_bytes", "gauge", "Free memory of one NUMA node.",
    ("node",), HOST, "bytes",
)  # fmt: skip
HOST_NUMA_MISSES_TOTAL = Metric(
    "host_numa_misses_total", "counter",
    "Pages allocated on this node although another node was wanted.",
    ("node",), HOST,
)  # fmt: skip

# ---------------------------------------------------------------- nic: InfiniBand, RoCE, Ethernet
# `port` is the RDMA port number, empty for a network interface. A RoCE port and its interface
# (`netdev` on nic_info) both count: RDMA traffic bypasses the interface's counters.

NIC_INFO = Metric(
    "nic_info", "info",
    "A port: its link layer (InfiniBand, Ethernet, EFA), driver, firmware, board, network"
    " interface, and whether it is a virtual function.",
    ("device", "port", "link_layer", "driver", "firmware", "board", "netdev", "virtual"), NIC,
)  # fmt: skip
NIC_UP = Metric(
    "nic_up", "gauge",
    "1 while the port can carry traffic (RDMA state ACTIVE, interface operstate up), else 0."
    " EFA devices always claim to be active: judge them by their traffic and errors.",
    ("device", "port"), NIC,
)  # fmt: skip
NIC_LINK_RATE_BYTES_PER_SECOND = Metric(
    "nic_link_rate_bytes_per_second", "gauge",
    "Signalling rate of the link in one direction; absent while the link is down or its rate"
    " is made up by the driver.",
    ("device", "port"), NIC,
)  # fmt: skip
NIC_RECEIVE_BYTES_TOTAL = Metric(
    "nic_receive_bytes_total", "counter", "Bytes received.",
    ("device", "port"), NIC, "bytes",
)  # fmt: skip
NIC_TRANSMIT_BYTES_TOTAL = Metric(
    "nic_transmit_bytes_total", "counter", "Bytes sent.", ("device", "port"), NIC, "bytes",
)  # fmt: skip
NIC_RECEIVE_PACKETS_TOTAL = Metric(
    "nic_receive_packets_total", "counter", "Packets received.", ("device", "port"), NIC,
)  # fmt: skip
NIC_TRANSMIT_PACKETS_TOTAL = Metric(
    "nic_transmit_packets_total", "counter", "Packets sent.", ("device", "port"), NIC,
)  # fmt: skip
NIC_RECEIVE_DROPS_TOTAL = Metric(
    "nic_receive_drops_total", "counter", "Received packets that were thrown away.",
    ("device", "port"), NIC,
)  # fmt: skip
NIC_TRANSMIT_DROPS_TOTAL = Metric(
    "nic_transmit_drops_total", "counter", "Packets to send that were thrown away.",
    ("device", "port"), NIC,
)  # fmt: skip
NIC_ERRORS_TOTAL = Metric(
    "nic_errors_total", "counter",
    "Errors of the port, by cause; `receive` and `transmit` are the interface's own totals and"
    " include its other causes.",
    ("device", "port", "cause"), NIC,
)  # fmt: skip
NIC_TRANSMIT_WAIT_TICKS_TOTAL = Metric(
    "nic_transmit_wait_ticks_total", "counter",
    "Ticks in which data waited for credit. The length of a tick depends on the vendor:"
    " compare ports with each other or with their own past.",
    ("device", "port"), NIC,
)  # fmt: skip
NIC_RETRANSMITS_TOTAL = Metric(
    "nic_retransmits_total", "counter", "RDMA retransmissions, by cause.",
    ("device", "port", "cause"), NIC,
)  # fmt: skip
NIC_TIMEOUTS_TOTAL = Metric(
    "nic_timeouts_total", "counter",
    "RDMA acknowledgements that did not come in time: loss, a dead peer, or a pause storm.",
    ("device", "port"), NIC,
)  # fmt: skip
NIC_CONGESTION_NOTICES_TOTAL = Metric(
    "nic_congestion_notices_total", "counter",
    "Congestion notices: `sent` (we were flooded), `handled` (we slowed down), `ignored`"
    " (received and not acted on).",
    ("device", "port", "kind"), NIC,
)  # fmt: skip
NIC_ECN_MARKED_PACKETS_TOTAL = Metric(
    "nic_ecn_marked_packets_total", "counter",
    "RoCE packets that arrived marked by a congested switch.", ("device", "port"), NIC,
)  # fmt: skip
NIC_CARRIER_CHANGES_TOTAL = Metric(
    "nic_carrier_changes_total", "counter", "Times the interface's link came or went.",
    ("device", "port"), NIC,
)  # fmt: skip
NIC_SATURATED = Metric(
    "nic_saturated", "gauge",
    "1 while a narrow port counter stands at its maximum: it counts no more until an operator"
    " clears it, so its rate of 0 means nothing. Absent otherwise.",
    ("device", "port", "counter"), NIC,
)  # fmt: skip

# ---------------------------------------------------------------- serving: inference servers
# Names of the user's specification to the letter where it has them (llm_ttft_seconds,
# llm_tokens_total, llm_active_requests), with our labels `engine` and `server` added. Rules and
# panels select engine!="" so that an application that uses the same names is not counted twice.

_LLM = ("model_name", "model_version", "engine", "server")

LLM_SERVER_INFO = Metric(
    "llm_server_info", "info",
    "A scraped inference server: its engine, the engine's version where it says so.",
    ("engine", "server", "version"), SERVING,
)  # fmt: skip
LLM_SOURCE_INFO = Metric(
    "llm_source_info", "info",
    "How a metric of this server comes about: its quality (exact, derived, mean_only, bounded,"
    " biased), what precisely is measured, and the engine's own name for it.",
    ("engine", "server", "metric", "quality", "semantics", "source"), SERVING,
)  # fmt: skip
LLM_MAPPING_UNRESOLVED = Metric(
    "llm_mapping_unresolved", "gauge",
    "1 where a metric that this engine should offer is not on its page: the engine was upgraded,"
    " or the metric is switched off. Absent otherwise.",
    ("engine", "server", "metric"), SERVING,
)  # fmt: skip
LLM_TTFT_SECONDS = Metric(
    "llm_ttft_seconds", "histogram",
    "Time to first token: from the arrival of a request to its first output token, queueing"
    " included.",
    _LLM, SERVING, "seconds",
)  # fmt: skip
LLM_TPOT_SECONDS = Metric(
    "llm_tpot_seconds", "histogram",
    "Time per output token after the first: one observation for each request, the mean over its"
    " tokens.",
    _LLM, SERVING, "seconds",
)  # fmt: skip
LLM_ITL_SECONDS = Metric(
    "llm_itl_seconds", "histogram",
    "Inter-token latency: one observation for each gap between two outputs of a request.",
    _LLM, SERVING, "seconds",
)  # fmt: skip
LLM_E2E_SECONDS = Metric(
    "llm_e2e_seconds", "histogram",
    "End-to-end latency: from the arrival of a request to its last token; finished requests only.",
    _LLM, SERVING, "seconds",
)  # fmt: skip
LLM_QUEUE_SECONDS = Metric(
    "llm_queue_seconds", "histogram",
    "Time that a request waited before the engine first scheduled it.",
    _LLM, SERVING, "seconds",
)  # fmt: skip
LLM_PREFILL_SECONDS_TOTAL = Metric(
    "llm_prefill_seconds_total", "counter",
    "Time spent processing prompts, summed over requests.", _LLM, SERVING, "seconds",
)  # fmt: skip
LLM_DECODE_SECONDS_TOTAL = Metric(
    "llm_decode_seconds_total", "counter",
    "Time spent generating tokens, summed over requests (parallel requests each count).",
    _LLM, SERVING, "seconds",
)  # fmt: skip
LLM_TOKENS_TOTAL = Metric(
    "llm_tokens_total", "counter",
    "Tokens read from prompts (input, cached ones included) and generated (output).",
    ("model_name", "model_version", "direction", "engine", "server"), SERVING,
)  # fmt: skip
LLM_ACTIVE_REQUESTS = Metric(
    "llm_active_requests", "gauge", "Requests that the engine is working on; waiting ones not"
    " included.",
    _LLM, SERVING,
)  # fmt: skip
LLM_WAITING_REQUESTS = Metric(
    "llm_waiting_requests", "gauge", "Requests accepted and not yet scheduled.", _LLM, SERVING,
)  # fmt: skip
LLM_REQUESTS_TOTAL = Metric(
    "llm_requests_total", "counter",
    "Requests by how they ended (stop, length, abort, error, rejected ...). Whether aborted"
    " requests are in it depends on the engine: see llm_source_info.",
    ("model_name", "model_version", "outcome", "engine", "server"), SERVING,
)  # fmt: skip
LLM_HTTP_RESPONSES_TOTAL = Metric(
    "llm_http_responses_total", "counter",
    "HTTP responses of the inference routes by class of status code; the only place where"
    " refused requests show on some engines.",
    ("code", "engine", "server"), SERVING,
)  # fmt: skip
LLM_KV_CACHE_USAGE_RATIO = Metric(
    "llm_kv_cache_usage_ratio", "gauge", "Share of the KV cache that is in use, 0 to 1.",
    _LLM, SERVING, "ratio",
)  # fmt: skip
LLM_PREEMPTIONS_TOTAL = Metric(
    "llm_preemptions_total", "counter",
    "Running requests thrown out of the batch for want of KV cache, to be computed again.",
    _LLM, SERVING,
)  # fmt: skip
LLM_PREFIX_CACHE_QUERIED_TOKENS_TOTAL = Metric(
    "llm_prefix_cache_queried_tokens_total", "counter",
    "Prompt tokens looked up in the prefix cache.", _LLM, SERVING,
)  # fmt: skip
LLM_PREFIX_CACHE_HIT_TOKENS_TOTAL = Metric(
    "llm_prefix_cache_hit_tokens_total", "counter",
    "Prompt tokens found in the prefix cache, hence not computed.", _LLM, SERVING,
)  # fmt: skip
LLM_SCRAPE_DURATION_SECONDS = Metric(
    "llm_scrape_duration_seconds", "gauge",
    "Time that the last read of the server's own metrics page took, network included: what our"
    " reading may cost the server.",
    ("server",), SERVING, "seconds",
)  # fmt: skip

# ---------------------------------------------------------------- exporter: the daemon itself

FLOPWATCH_BUILD_INFO = Metric(
    "flopwatch_build_info", "info", "Version of the daemon and of the Python that runs it.",
    ("version", "python"), EXPORTER,
)  # fmt: skip
FLOPWATCH_SOURCE_UP = Metric(
    "flopwatch_source_up", "gauge",
    "1 while the source delivers (perhaps in part), else 0; absent before its first read ends.",
    ("source",), EXPORTER,
)  # fmt: skip
FLOPWATCH_SOURCE_READ_DURATION_SECONDS = Metric(
    "flopwatch_source_read_duration_seconds", "gauge", "Time that the last finished read took.",
    ("source",), EXPORTER, "seconds",
)  # fmt: skip
FLOPWATCH_SOURCE_LAST_SUCCESS_TIMESTAMP_SECONDS = Metric(
    "flopwatch_source_last_success_timestamp_seconds", "gauge",
    "When the source last delivered, in Unix seconds.", ("source",), EXPORTER, "seconds",
)  # fmt: skip
FLOPWATCH_SOURCE_READS_TOTAL = Metric(
    "flopwatch_source_reads_total", "counter", "Reads begun.", ("source",), EXPORTER,
)  # fmt: skip
FLOPWATCH_SOURCE_FAILURES_TOTAL = Metric(
    "flopwatch_source_failures_total", "counter",
    "Reads, or parts of reads, that failed: timeout, unavailable, denied, malformed, io, bug.",
    ("source", "reason"), EXPORTER,
)  # fmt: skip
FLOPWATCH_SOURCE_FAILING_PARTS = Metric(
    "flopwatch_source_failing_parts", "gauge",
    "Parts (devices, ports, files) missing from the last read.", ("source",), EXPORTER,
)  # fmt: skip
FLOPWATCH_SOURCE_BUSY_SECONDS = Metric(
    "flopwatch_source_busy_seconds", "gauge",
    "How long the read under way has been running; 0 between reads. It grows when a driver hangs.",
    ("source",), EXPORTER, "seconds",
)  # fmt: skip
FLOPWATCH_SERIES = Metric(
    "flopwatch_series", "gauge", "Series on the page, by group.", ("group",), EXPORTER,
)  # fmt: skip
FLOPWATCH_SAMPLES_DROPPED_TOTAL = Metric(
    "flopwatch_samples_dropped_total", "counter",
    "Samples left out: cap (too many series), duplicate, labels, value, malformed (lines of a"
    " scraped page).",
    ("source", "reason"), EXPORTER,
)  # fmt: skip
FLOPWATCH_SCRAPES_TOTAL = Metric(
    "flopwatch_scrapes_total", "counter", "Times that /metrics was answered.", (), EXPORTER,
)  # fmt: skip
FLOPWATCH_RENDER_SECONDS_TOTAL = Metric(
    "flopwatch_render_seconds_total", "counter",
    "Time spent writing the page (a page is written once and served to all who ask).",
    (), EXPORTER, "seconds",
)  # fmt: skip
FLOPWATCH_CONFIG_LAST_RELOAD_SUCCESSFUL = Metric(
    "flopwatch_config_last_reload_successful", "gauge",
    "1 if the last attempt to load the configuration worked, 0 if the old one was kept.",
    (), EXPORTER,
)  # fmt: skip
FLOPWATCH_CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS = Metric(
    "flopwatch_config_last_reload_success_timestamp_seconds", "gauge",
    "When the configuration in force was loaded, in Unix seconds.", (), EXPORTER, "seconds",
)  # fmt: skip
FLOPWATCH_CHILD_CPU_SECONDS_TOTAL = Metric(
    "flopwatch_child_cpu_seconds_total", "counter",
    "CPU time of the daemon's live child processes (driver readers).",
    (), EXPORTER, "seconds",
)  # fmt: skip
FLOPWATCH_CHILD_RESIDENT_MEMORY_BYTES = Metric(
    "flopwatch_child_resident_memory_bytes", "gauge",
    "Resident memory of the daemon's live child processes.", (), EXPORTER, "bytes",
)  # fmt: skip
PROCESS_CPU_SECONDS_TOTAL = Metric(
    "process_cpu_seconds_total", "counter", "CPU time of the daemon, user and system.",
    (), EXPORTER, "seconds",
)  # fmt: skip
PROCESS_START_TIME_SECONDS = Metric(
    "process_start_time_seconds", "gauge", "When the daemon was started, in Unix seconds.",
    (), EXPORTER, "seconds",
)  # fmt: skip
PROCESS_RESIDENT_MEMORY_BYTES = Metric(
    "process_resident_memory_bytes", "gauge", "Resident memory of the daemon.",
    (), EXPORTER, "bytes",
)  # fmt: skip
PROCESS_VIRTUAL_MEMORY_BYTES = Metric(
    "process_virtual_memory_bytes", "gauge", "Virtual memory of the daemon.",
    (), EXPORTER, "bytes",
)  # fmt: skip
PROCESS_OPEN_FDS = Metric(
    "process_open_fds", "gauge", "File descriptors that the daemon holds open.", (), EXPORTER,
)  # fmt: skip
PROCESS_MAX_FDS = Metric(
    "process_max_fds", "gauge", "File descriptors that the daemon may hold open.", (), EXPORTER,
)  # fmt: skip

FAMILIES: Mapping[str, Metric] = {
    row.name: row for row in tuple(globals().values()) if isinstance(row, Metric)
}
"""Every row by name, in the order above: the order of the page and of the reference."""

GROUPS: tuple[str, ...] = tuple(dict.fromkeys(row.group for row in FAMILIES.values()))
"""Every group, in the order of the page."""

ORDER: Mapping[Metric, int] = {row: i for i, row in enumerate(FAMILIES.values())}
"""Where each row stands in the table."""
