"""The families of other exporters that we can speak: their names, labels, types and units.

They are kept apart from `catalogue` on purpose. Names there follow our rules; names here follow
those of others, to the letter: capitals, MHz, MiB and millijoules, labels such as `Hostname`. They
appear only where `compat` is configured, in a group of their own, and the rules for names are not
applied to them. `derive.compat` says what each of them is made of.

Three sets. `dcgm`: dcgm-exporter until 4.8.2, whose later versions write `hostname`. `dcgm-4.9`:
the names and base units that dcgm-exporter 4.9 brought with DCGM 4.7. `nvidia_smi`:
nvidia_gpu_exporter. A family has one tuple of labels: what an instance or a GPU does not have is
empty, which Prometheus treats as absent.

Types are those that the other exporter declares, so that a change of exporter does not look like a
change of type. One is not: see `DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from exporter.samples import Kind, Metric

COMPAT = "compat"
"""The group that all of these families belong to."""

_Line = tuple[str, Kind, str, str]

_ENTITY = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID")
DCGM_LABELS = (*_ENTITY, "Hostname", "DCGM_FI_DRIVER_VERSION")
DCGM_49_LABELS = (*_ENTITY, "hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION")
SHARED_LABELS = (*_ENTITY, *DCGM_LABELS[len(_ENTITY) :], *DCGM_49_LABELS[len(_ENTITY) :])
"""Of families whose name did not change: one family cannot have two tuples of labels, so it has
those of both, and those of a set that is not asked for are empty."""

XID_LABELS = ("err_code", "err_msg")
"""What the families of the last XID have besides."""


def _table(labels: tuple[str, ...], *lines: _Line) -> dict[str, Metric]:
    return {
        name: Metric(name, kind, meaning, labels, COMPAT, unit)
        for name, kind, unit, meaning in lines
    }


# Facts: dcgm-exporter's etc/default-counters.csv and etc/dcp-metrics-included.csv, commented rows
# included, and two power limits of 4.8.4; units of DCGM's fields. Times of slowing down are in
# nanoseconds, whatever old lists said (DCGM 266).
_DCGM: tuple[_Line, ...] = (
    ("DCGM_FI_DEV_SM_CLOCK", "gauge", "MHz", "SM clock, in MHz."),
    ("DCGM_FI_DEV_MEM_CLOCK", "gauge", "MHz", "Memory clock, in MHz."),
    ("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "celsius", "Temperature of the memory, in degrees C."),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "celsius", "Temperature of the GPU, in degrees C."),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "watts", "Power drawn, in W."),
    ("DCGM_FI_DEV_POWER_MGMT_LIMIT", "gauge", "watts", "Power limit that was asked for, in W."),
    ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "gauge", "watts", "Power limit in force, in W."),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "mJ",
     "Energy used since the driver was loaded, in mJ."),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "", "PCIe transfers that were repeated."),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "percent", "GPU utilization, in percent."),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "percent", "Memory utilization, in percent."),
    ("DCGM_FI_DEV_ENC_UTIL", "gauge", "percent", "Video encoder utilization, in percent."),
    ("DCGM_FI_DEV_DEC_UTIL", "gauge", "percent", "Video decoder utilization, in percent."),
    ("DCGM_FI_DEV_POWER_VIOLATION", "counter", "ns", "Time slowed down for power, in ns."),
    ("DCGM_FI_DEV_THERMAL_VIOLATION", "counter", "ns", "Time slowed down for heat, in ns."),
    ("DCGM_FI_DEV_SYNC_BOOST_VIOLATION", "counter", "ns", "Time slowed down by sync boost, in ns."),
    ("DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", "counter", "ns",
     "Time slowed down by the board's limit, in ns."),
    ("DCGM_FI_DEV_LOW_UTIL_VIOLATION", "counter", "ns",
     "Time slowed down for want of work, in ns."),
    ("DCGM_FI_DEV_RELIABILITY_VIOLATION", "counter", "ns",
     "Time slowed down for reliability, in ns."),
    ("DCGM_FI_DEV_FB_TOTAL", "gauge", "MiB", "Device memory, in MiB."),
    ("DCGM_FI_DEV_FB_FREE", "gauge", "MiB", "Device memory that is free, in MiB."),
    ("DCGM_FI_DEV_FB_USED", "gauge", "MiB", "Device memory that is used, in MiB."),
    ("DCGM_FI_DEV_FB_RESERVED", "gauge", "MiB", "Device memory that the driver keeps, in MiB."),
    ("DCGM_FI_DEV_RETIRED_SBE", "counter", "", "Pages retired after single-bit errors."),
    ("DCGM_FI_DEV_RETIRED_DBE", "counter", "", "Pages retired after double-bit errors."),
    ("DCGM_FI_DEV_RETIRED_PENDING", "counter", "", "1 if a page waits to be retired."),
    ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "counter", "",
     "NVLink flow-control CRC errors."),
    ("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "counter", "", "NVLink data CRC errors."),
    ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "counter", "", "NVLink replays."),
    ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "counter", "", "NVLink recoveries."),
    # The one type that is not dcgm-exporter's. It says counter, but the value is a rate: received
    # and sent, KiB per second over 1000 (dcgm-exporter 417, 472 and 658). Dashboards that show the
    # value keep working; a rate() over it has never meant anything.
    ("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "gauge", "MB/s",
     "NVLink traffic of all links, both ways, in thousands of KiB per second. Not a counter."),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "",
     "Rows replaced after uncorrected errors."),
    ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "",
     "Rows replaced after corrected errors."),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "", "1 if a row could not be replaced."),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "ratio",
     "Share of time that the engine was active."),
    ("DCGM_FI_PROF_SM_ACTIVE", "gauge", "ratio", "Share of cycles that SMs had a warp."),
    ("DCGM_FI_PROF_SM_OCCUPANCY", "gauge", "ratio", "Warps on the SMs, of those they can hold."),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "ratio", "Share of cycles of the tensor pipes."),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "ratio", "Share of cycles of the memory interface."),
    ("DCGM_FI_PROF_PIPE_FP64_ACTIVE", "gauge", "ratio", "Share of cycles of the FP64 pipe."),
    ("DCGM_FI_PROF_PIPE_FP32_ACTIVE", "gauge", "ratio", "Share of cycles of the FP32 pipe."),
    ("DCGM_FI_PROF_PIPE_FP16_ACTIVE", "gauge", "ratio", "Share of cycles of the FP16 pipe."),
)  # fmt: skip

# Facts: release notes of dcgm-exporter 4.9.0, NVIDIA's field reference of DCGM 4.7, go-dcgm's test
# of names and numbers. The list of counters of 4.9 itself has not been seen: types are as before.
_DCGM_49: tuple[_Line, ...] = (
    ("DCGM_FI_DEV_SM_CLOCK_HERTZ", "gauge", "hertz", "SM clock."),
    ("DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", "gauge", "hertz", "Memory clock."),
    ("DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", "gauge", "celsius", "Temperature of the memory."),
    ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", "gauge", "celsius", "Temperature of the GPU."),
    ("DCGM_FI_DEV_BOARD_POWER_WATTS", "gauge", "watts", "Power drawn."),
    ("DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS", "gauge", "watts",
     "Power limit that was asked for."),
    ("DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", "gauge", "watts", "Power limit in force."),
    ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", "counter", "joules",
     "Energy used since the driver was loaded."),
    ("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", "counter", "", "PCIe transfers that were repeated."),
    ("DCGM_FI_DEV_GPU_UTIL_RATIO", "gauge", "ratio", "GPU utilization."),
    ("DCGM_FI_DEV_MEMORY_UTIL_RATIO", "gauge", "ratio", "Memory utilization."),
    ("DCGM_FI_DEV_ENC_UTIL_RATIO", "gauge", "ratio", "Video encoder utilization."),
    ("DCGM_FI_DEV_DEC_UTIL_RATIO", "gauge", "ratio", "Video decoder utilization."),
    ("DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL", "counter", "seconds",
     "Time slowed down for power."),
    ("DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL", "counter", "seconds",
     "Time slowed down for heat."),
    ("DCGM_FI_DEV_GPU_SYNC_BOOST_THROTTLE_SECONDS_TOTAL", "counter", "seconds",
     "Time slowed down by sync boost."),
    ("DCGM_FI_DEV_BOARD_LIMIT_THROTTLE_SECONDS_TOTAL", "counter", "seconds",
     "Time slowed down by the board's limit."),
    ("DCGM_FI_DEV_GPU_LOW_UTIL_THROTTLE_SECONDS_TOTAL", "counter", "seconds",
     "Time slowed down for want of work."),
    ("DCGM_FI_DEV_GPU_RELIABILITY_THROTTLE_SECONDS_TOTAL", "counter", "seconds",
     "Time slowed down for reliability."),
    ("DCGM_FI_DEV_FB_CAPACITY_BYTES", "gauge", "bytes", "Device memory."),
    ("DCGM_FI_DEV_FB_FREE_BYTES", "gauge", "bytes", "Device memory that is free."),
    ("DCGM_FI_DEV_FB_USED_BYTES", "gauge", "bytes", "Device memory that is used."),
    ("DCGM_FI_DEV_FB_RESERVED_BYTES", "gauge", "bytes", "Device memory that the driver keeps."),
    ("DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL", "counter", "", "Pages retired after single-bit errors."),
    ("DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL", "counter", "", "Pages retired after double-bit errors."),
    ("DCGM_FI_DEV_PAGE_RETIRED_PENDING", "counter", "", "1 if a page waits to be retired."),
    ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL", "counter", "", "NVLink flow-control CRC errors."),
    ("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL", "counter", "", "NVLink data CRC errors."),
    ("DCGM_FI_DEV_NVLINK_CRC_ERROR_TOTAL", "counter", "", "NVLink CRC errors, from Hopper on."),
    ("DCGM_FI_DEV_NVLINK_REPLAY_TOTAL", "counter", "", "NVLink replays."),
    ("DCGM_FI_DEV_NVLINK_RECOVERY_TOTAL", "counter", "", "NVLink recoveries."),
    ("DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", "gauge", "bytes/s",
     "NVLink traffic of all links, both ways."),
    ("DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", "counter", "",
     "Rows replaced after uncorrected errors."),
    ("DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL", "counter", "",
     "Rows replaced after corrected errors."),
    ("DCGM_FI_DEV_ROW_REMAP_FAILED", "gauge", "", "1 if a row could not be replaced."),
    ("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "gauge", "ratio",
     "Share of time that the engine was active."),
    ("DCGM_FI_PROF_SM_UTIL_RATIO", "gauge", "ratio", "Share of cycles that SMs had a warp."),
    ("DCGM_FI_PROF_SM_OCCUPANCY_RATIO", "gauge", "ratio",
     "Warps on the SMs, of those they can hold."),
    ("DCGM_FI_PROF_TENSOR_UTIL_RATIO", "gauge", "ratio", "Share of cycles of the tensor pipes."),
    ("DCGM_FI_PROF_DRAM_UTIL_RATIO", "gauge", "ratio", "Share of cycles of the memory interface."),
    ("DCGM_FI_PROF_FP64_UTIL_RATIO", "gauge", "ratio", "Share of cycles of the FP64 pipe."),
    ("DCGM_FI_PROF_FP32_UTIL_RATIO", "gauge", "ratio", "Share of cycles of the FP32 pipe."),
    ("DCGM_FI_PROF_FP16_UTIL_RATIO", "gauge", "ratio", "Share of cycles of the FP16 pipe."),
)  # fmt: skip

# Names that 4.9 left as they were.
_SHARED = _table(
    SHARED_LABELS,
    ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "",
     "Corrected errors since the driver started."),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "",
     "Uncorrected errors since the driver started."),
    ("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "counter", "", "Corrected errors of the board's life."),
    ("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "counter", "", "Uncorrected errors of the board's life."),
    ("DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge", "",
     "1 if a row will be replaced at the next reset."),
    ("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "bytes/s", "Sent over PCIe, in bytes per second."),
    ("DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "bytes/s",
     "Received over PCIe, in bytes per second."),
)  # fmt: skip

DCGM: Mapping[str, Metric] = MappingProxyType({
    **_table(DCGM_LABELS, *_DCGM),
    **_SHARED,
    **_table(
        (*DCGM_LABELS, *XID_LABELS),
        ("DCGM_FI_DEV_XID_ERRORS", "gauge", "", "Code of the last XID; 0 if there was none."),
    ),
})  # fmt: skip
"""dcgm-exporter until 4.8."""

DCGM_49: Mapping[str, Metric] = MappingProxyType({
    **_table(DCGM_49_LABELS, *_DCGM_49),
    **_SHARED,
    **_table(
        (*DCGM_49_LABELS, *XID_LABELS),
        ("DCGM_FI_DEV_XID_ERROR", "gauge", "", "Code of the last XID; 0 if there was none."),
    ),
})  # fmt: skip
"""dcgm-exporter 4.9."""


def _field(name: str, field: str, unit: str = "") -> _Line:
    """A field of `nvidia-smi --query-gpu`: all of them are gauges there, counters too."""
    return (f"nvidia_smi_{name}", "gauge", unit, f"As nvidia-smi's {field}.")


_PLACES = (
    "device_memory", "dram", "register_file", "l1_cache", "l2_cache", "texture_memory", "cbu",
    "sram", "total",
)  # fmt: skip

# Facts: nvidia_gpu_exporter's docs/METRICS.md and its recorded outputs of H100 and H200 (590, 610).
NVIDIA_SMI: Mapping[str, Metric] = MappingProxyType({
    **_table(
        ("uuid", "name", "driver_model_current", "driver_model_pending", "vbios_version",
         "driver_version", "pci_bus_id", "serial", "compute_cap", "pci_sub_device_id", "index",
         "cuda_version"),
        ("nvidia_smi_gpu_info", "gauge", "", "A GPU: what it is; always 1."),
    ),
    **_table(
        ("uuid",),
        _field("index", "index"),
        _field("compute_cap", "compute_cap"),
        _field("pstate", "pstate"),
        _field("utilization_gpu_ratio", "utilization.gpu", "ratio"),
        _field("utilization_memory_ratio", "utilization.memory", "ratio"),
        _field("utilization_encoder_ratio", "utilization.encoder", "ratio"),
        _field("utilization_decoder_ratio", "utilization.decoder", "ratio"),
        _field("utilization_jpeg_ratio", "utilization.jpeg", "ratio"),
        _field("utilization_ofa_ratio", "utilization.ofa", "ratio"),
        _field("memory_total_bytes", "memory.total", "bytes"),
        _field("memory_reserved_bytes", "memory.reserved", "bytes"),
        _field("memory_used_bytes", "memory.used", "bytes"),
        _field("memory_free_bytes", "memory.free", "bytes"),
        _field("temperature_gpu", "temperature.gpu", "celsius"),
        _field("temperature_gpu_tlimit", "temperature.gpu.tlimit", "celsius"),
        _field("temperature_memory", "temperature.memory", "celsius"),
        _field("fan_speed_ratio", "fan.speed", "ratio"),
        _field("power_draw_watts", "power.draw", "watts"),
        _field("power_draw_average_watts", "power.draw.average", "watts"),
        _field("power_draw_instant_watts", "power.draw.instant", "watts"),
        _field("power_limit_watts", "power.limit", "watts"),
        _field("enforced_power_limit_watts", "enforced.power.limit", "watts"),
        _field("power_default_limit_watts", "power.default_limit", "watts"),
        _field("power_min_limit_watts", "power.min_limit", "watts"),
        _field("power_max_limit_watts", "power.max_limit", "watts"),
        *(
            _field(f"clocks_current_{domain}_clock_hz", f"clocks.current.{domain}", "hertz")
            for domain in ("graphics", "sm", "memory", "video")
        ),
        *(
            _field(f"clocks_max_{domain}_clock_hz", f"clocks.max.{domain}", "hertz")
            for domain in ("graphics", "sm", "memory")
        ),
        *(
            _field(f"clocks_event_reasons_{reason}", f"clocks_event_reasons.{reason}")
            for reason in (
                "active", "gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown",
                "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown",
                "sync_boost",
            )
        ),
        *(
            _field(
                f"clocks_event_reasons_counters_{reason}_seconds",
                f"clocks_event_reasons_counters.{reason}", "seconds",
            )
            for reason in (
                "sw_power_cap", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown",
                "hw_power_brake_slowdown",
            )
        ),
        *(
            _field(f"ecc_errors_{kind}_{counter}_{place}", f"ecc.errors.{kind}.{counter}.{place}")
            for kind in ("corrected", "uncorrected")
            for counter in ("volatile", "aggregate")
            for place in _PLACES
        ),
        _field("ecc_errors_uncorrected_aggregate_sram_threshold_exceeded",
               "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded"),
        _field("ecc_mode_current", "ecc.mode.current"),
        _field("retired_pages_single_bit_ecc_count", "retired_pages.single_bit_ecc.count"),
        _field("retired_pages_double_bit_count", "retired_pages.double_bit.count"),
        _field("retired_pages_pending", "retired_pages.pending"),
        _field("remapped_rows_correctable", "remapped_rows.correctable"),
        _field("remapped_rows_uncorrectable", "remapped_rows.uncorrectable"),
        _field("remapped_rows_pending", "remapped_rows.pending"),
        _field("remapped_rows_failure", "remapped_rows.failure"),
        *(
            _field(f"remapped_rows_histogram_{share}", f"remapped_rows.histogram.{share}")
            for share in ("max", "high", "partial", "low", "none")
        ),
        _field("pcie_link_gen_current", "pcie.link.gen.current"),
        _field("pcie_link_gen_gpucurrent", "pcie.link.gen.gpucurrent"),
        _field("pcie_link_gen_max", "pcie.link.gen.max"),
        _field("pcie_link_width_current", "pcie.link.width.current"),
        _field("pcie_link_width_max", "pcie.link.width.max"),
        _field("persistence_mode", "persistence_mode"),
        _field("compute_mode", "compute_mode"),
        _field("mig_mode_current", "mig.mode.current"),
        _field("fabric_state", "fabric.state"),
        _field("gpu_recovery_action", "gpu_recovery_action"),
        ("nvidia_smi_energy_joules_total", "counter", "joules",
         "Energy used since the driver was loaded."),
        ("nvidia_smi_pcie_throughput_tx_bytes_per_second", "gauge", "bytes/s", "Sent over PCIe."),
        ("nvidia_smi_pcie_throughput_rx_bytes_per_second", "gauge", "bytes/s",
         "Received over PCIe."),
        ("nvidia_smi_compute_apps", "gauge", "", "Processes that use the GPU."),
    ),
    **_table(
        ("uuid", "pid", "process_name"),
        ("nvidia_smi_compute_app_info", "gauge", "", "A process that uses a GPU; always 1."),
        ("nvidia_smi_compute_app_used_memory_bytes", "gauge", "bytes",
         "Device memory that a process holds."),
    ),
    **_table(
        ("uuid", "xid"),
        ("nvidia_smi_xid_errors_total", "counter", "", "Driver errors (XID) by code."),
        ("nvidia_smi_xid_last_timestamp_seconds", "gauge", "seconds",
         "When the code was last seen, in Unix seconds."),
    ),
    **_table(
        ("uuid", "mig_uuid", "gpu_instance_id", "compute_instance_id", "profile"),
        ("nvidia_smi_mig_info", "gauge", "", "A MIG device: what it is; always 1."),
    ),
    **_table(
        ("uuid", "gpu_instance_id"),
        ("nvidia_smi_mig_memory_total_bytes", "gauge", "bytes", "Memory of a GPU instance."),
        ("nvidia_smi_mig_memory_used_bytes", "gauge", "bytes",
         "Memory of a GPU instance that is used."),
        ("nvidia_smi_mig_graphics_activity_ratio", "gauge", "ratio",
         "Share of time that the instance's engine was active."),
        ("nvidia_smi_mig_sm_activity_ratio", "gauge", "ratio",
         "Share of cycles that the instance's SMs had a warp."),
        ("nvidia_smi_mig_sm_occupancy_ratio", "gauge", "ratio",
         "Warps on the instance's SMs, of those they can hold."),
        ("nvidia_smi_mig_tensor_activity_ratio", "gauge", "ratio",
         "Share of cycles of the instance's tensor pipes."),
    ),
    **_table(
        (),
        ("nvidia_smi_last_collect_success", "gauge", "", "1 if the GPUs could be read, else 0."),
        ("nvidia_smi_last_collect_success_timestamp_seconds", "gauge", "seconds",
         "When the GPUs were last read, in Unix seconds."),
        ("nvidia_smi_last_collect_duration_seconds", "gauge", "seconds",
         "How long the last read of the GPUs took."),
        ("nvidia_smi_compute_apps_last_collect_success", "gauge", "",
         "1 if the processes of all GPUs could be listed, else 0."),
    ),
})  # fmt: skip
"""nvidia_gpu_exporter, with its NVML backend and all that can be switched on there."""

SETS: Mapping[str, Mapping[str, Metric]] = MappingProxyType(
    {"dcgm": DCGM, "dcgm-4.9": DCGM_49, "nvidia_smi": NVIDIA_SMI}
)
"""The sets, as `compat` calls them. A family that is in two of them is the same object in both."""

_NO_LICENCE = "the licence of a virtual GPU is not read"
_NO_WINDOW = "a count over a window of the exporter's own; use `gpu_xid_errors_total` and the like"
_NO_LINK = "only sums over all links are told; `gpu_nvlink_link_*` has each link"
_NO_INSTANCE = "not told apart for an instance"
_NO_TEXT = "a number made out of a text that is none"
_NOT_READ = "not read"

UNANSWERED: Mapping[str, Mapping[str, str]] = MappingProxyType({
    "dcgm": {
        "DCGM_FI_DEV_VGPU_LICENSE_STATUS": _NO_LICENCE,
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0": _NO_LINK,
        "DCGM_EXP_CLOCK_EVENTS_COUNT": _NO_WINDOW,
        "DCGM_EXP_XID_ERRORS_COUNT": _NO_WINDOW,
        "DCGM_EXP_GPU_HEALTH_STATUS": "DCGM's own judgement",
        "DCGM_EXP_P2P_STATUS": _NOT_READ,
    },
    "dcgm-4.9": {
        "DCGM_FI_DEV_VGPU_LICENSE_STATUS": _NO_LICENCE,
        "DCGM_EXP_CLOCK_EVENTS_COUNT": _NO_WINDOW,
        "DCGM_EXP_CLOCK_EVENTS_TOTAL": "use `gpu_throttled_seconds_total`",
        "DCGM_EXP_XID_ERRORS_COUNT": _NO_WINDOW,
        "DCGM_EXP_XID_ERRORS_TOTAL": "its labels are not known to us; use `gpu_xid_errors_total`",
        "DCGM_EXP_GPU_HEALTH_STATUS": "DCGM's own judgement",
        "DCGM_EXP_P2P_STATUS": _NOT_READ,
    },
    "nvidia_smi": {
        "nvidia_smi_command_exit_code": "no command is run",
        "nvidia_smi_nvml_return_code": 'use `flopwatch_source_failures_total{source="nvml"}`',
        "nvidia_smi_failed_scrapes_total":
            "faults of one GPU are counted here too; use `flopwatch_source_failures_total`",
        "nvidia_smi_count": "use `gpu_devices_present` and `gpu_devices_expected`",
        "nvidia_smi_name": _NO_TEXT,
        "nvidia_smi_serial": _NO_TEXT,
        "nvidia_smi_inforom_*": _NO_TEXT,
        "nvidia_smi_pci_*": "numbers of the PCI address and ids, which `nvidia_smi_gpu_info` has",
        "nvidia_smi_platform_*": _NOT_READ,
        "nvidia_smi_fabric_clique_id": _NOT_READ,
        "nvidia_smi_protected_memory_*": _NOT_READ,
        "nvidia_smi_encoder_stats_*": _NOT_READ,
        "nvidia_smi_accounting_*": _NOT_READ,
        "nvidia_smi_display_*": _NOT_READ,
        "nvidia_smi_gsp_mode_*": _NOT_READ,
        "nvidia_smi_c2c_mode": "use `gpu_c2c_links`",
        "nvidia_smi_edpp_multiplier_ratio": _NOT_READ,
        "nvidia_smi_bbx_time_run_seconds": _NOT_READ,
        "nvidia_smi_clocks_event_reasons_supported": _NOT_READ,
        "nvidia_smi_clocks_throttle_reasons_*":
            "how drivers before 535 spelled `clocks_event_reasons`, which is always used here",
        "nvidia_smi_pcie_link_gen_gpumax": _NOT_READ,
        "nvidia_smi_*_pending":
            "of what takes effect at the next reset, only pages and rows are read",
        "nvidia_smi_remapped_rows_*_inactive": _NOT_READ,
        "nvidia_smi_ecc_errors_uncorrected_*_sram_{parity,secded,l2,sm,mcu,pcie,other}": _NOT_READ,
        "nvidia_smi_mig_memory_{free,reserved}_bytes": _NO_INSTANCE,
        "nvidia_smi_mig_pcie_throughput_*": _NO_INSTANCE,
    },
})  # fmt: skip
"""What the same exporters tell and we do not, with the reason."""
