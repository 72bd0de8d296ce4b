"""What each foreign family is made of: tables, one row for each family.

A row names series of ours, and how their value becomes the other exporter's. Where a family of
ours has no like elsewhere, or one of theirs is more than a value converted (the last XID, the
processes, what a GPU is), it is not here but in `dcgm` and `nvidia_smi`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from exporter import catalogue as c
from exporter import foreign as f
from exporter.samples import Metric


class Native(NamedTuple):
    """A series of ours: its family, and the labels after gpu and uuid."""

    metric: Metric
    labels: tuple[str, ...] = ()


class Scale(NamedTuple):
    """How our value becomes theirs, and how to say so."""

    said: str
    convert: Callable[[float], float]


def _unchanged(value: float) -> float:
    return value


# DCGM cuts off what is less than a whole unit where it divides (DcgmCacheManager.cpp); what the
# driver told in whole units comes out whole again, so there rounding only undoes our division.
SAME = Scale("", _unchanged)
PERCENT = Scale("times 100", lambda ratio: round(ratio * 100))
MEGAHERTZ = Scale("over 10^6", lambda hertz: round(hertz / 1_000_000))
MEBIBYTES = Scale("over 2^20, cut off", lambda size: int(size) // (1 << 20))
MILLIJOULES = Scale("times 1000", lambda joules: round(joules * 1000))
NANOSECONDS = Scale("times 10^9", lambda seconds: round(seconds * 1_000_000_000))
WHOLE = Scale("cut off", int)
KIBIBYTES_BY_1000 = Scale("over 1024 over 1000, cut off", lambda rate: int(rate / 1_024_000))


class Row(NamedTuple):
    """What a foreign family is made of.

    The first of `natives` that a GPU has; with `weights` all of them, each times its weight, added
    up. Where it has none, the growth per second of `counters`, added up, if it has all of those.
    `instance` is the family of ours for a GPU instance. A GPU with such a series has none for the
    whole: so does dcgm-exporter, and a sum over GPUs counts nothing twice.
    """

    family: Metric
    natives: tuple[Native, ...] = ()
    scale: Scale = SAME
    weights: tuple[int, ...] = ()
    counters: tuple[Native, ...] = ()
    instance: Metric | None = None


class _Made(NamedTuple):
    """A row of the tables of DCGM, which serves both sets."""

    old: str
    new: str
    natives: tuple[Native, ...] = ()
    scale: Scale = SAME
    counters: tuple[Native, ...] = ()
    instance: Metric | None = None
    new_scale: Scale = SAME


_POWER = (Native(c.GPU_POWER_WATTS, ("average",)), Native(c.GPU_POWER_WATTS, ("instant",)))
"""What nvmlDeviceGetPowerUsage says: an average, but on GA100 and what is older the moment."""

_NVLINK = (Native(c.GPU_NVLINK_RECEIVE_BYTES_TOTAL), Native(c.GPU_NVLINK_TRANSMIT_BYTES_TOTAL))


def _dev(old: str, new: str, *natives: Native, scale: Scale = SAME) -> _Made:
    return _Made(f"DCGM_FI_DEV_{old}", f"DCGM_FI_DEV_{new}", natives, scale)


def _prof(old: str, new: str, native: Native, instance: Metric | None = None) -> _Made:
    names = (f"DCGM_FI_PROF_{old}", f"DCGM_FI_PROF_{new}")
    return _Made(*names, (native,), instance=instance)


def _ecc(name: str, *labels: str) -> _Made:
    return _dev(name, name, Native(c.GPU_ECC_ERRORS_TOTAL, labels))


def _throttled(old: str, new: str, reason: str) -> _Made:
    native = Native(c.GPU_THROTTLED_SECONDS_TOTAL, (reason,))
    return _dev(old, f"{new}_THROTTLE_SECONDS_TOTAL", native, scale=NANOSECONDS)


def _pcie(name: str, rate: Metric, total: Metric) -> _Made:
    full = f"DCGM_FI_PROF_PCIE_{name}_BYTES"
    return _Made(full, full, (Native(rate),), WHOLE, (Native(total),), new_scale=WHOLE)


_DCGM: tuple[_Made, ...] = (
    _dev("SM_CLOCK", "SM_CLOCK_HERTZ", Native(c.GPU_CLOCK_HERTZ, ("sm",)), scale=MEGAHERTZ),
    _dev("MEM_CLOCK", "MEMORY_CLOCK_HERTZ", Native(c.GPU_CLOCK_HERTZ, ("memory",)),
         scale=MEGAHERTZ),
    _dev("MEMORY_TEMP", "MEMORY_TEMP_CELSIUS", Native(c.GPU_TEMPERATURE_CELSIUS, ("memory",))),
    _dev("GPU_TEMP", "GPU_TEMP_CELSIUS", Native(c.GPU_TEMPERATURE_CELSIUS, ("core",))),
    _dev("POWER_USAGE", "BOARD_POWER_WATTS", *_POWER),
    _dev("POWER_MGMT_LIMIT", "BOARD_POWER_LIMIT_REQUESTED_WATTS",
         Native(c.GPU_POWER_LIMIT_WATTS, ("requested",))),
    _dev("ENFORCED_POWER_LIMIT", "BOARD_POWER_LIMIT_ENFORCED_WATTS",
         Native(c.GPU_POWER_LIMIT_WATTS, ("enforced",))),
    _dev("TOTAL_ENERGY_CONSUMPTION", "GPU_ENERGY_JOULES_TOTAL",
         Native(c.GPU_ENERGY_JOULES_TOTAL), scale=MILLIJOULES),
    _dev("PCIE_REPLAY_COUNTER", "PCIE_REPLAY_TOTAL", Native(c.GPU_PCIE_REPLAYS_TOTAL)),
    _dev("GPU_UTIL", "GPU_UTIL_RATIO", Native(c.GPU_UTILIZATION_RATIO), scale=PERCENT),
    _dev("MEM_COPY_UTIL", "MEMORY_UTIL_RATIO", Native(c.GPU_MEMORY_BUSY_RATIO), scale=PERCENT),
    _dev("ENC_UTIL", "ENC_UTIL_RATIO", Native(c.GPU_VIDEO_UTILIZATION_RATIO, ("encoder",)),
         scale=PERCENT),
    _dev("DEC_UTIL", "DEC_UTIL_RATIO", Native(c.GPU_VIDEO_UTILIZATION_RATIO, ("decoder",)),
         scale=PERCENT),
    _throttled("POWER_VIOLATION", "GPU_POWER", "sw_power_cap"),
    _throttled("THERMAL_VIOLATION", "GPU_THERMAL", "thermal"),
    _throttled("SYNC_BOOST_VIOLATION", "GPU_SYNC_BOOST", "sync_boost"),
    _throttled("BOARD_LIMIT_VIOLATION", "BOARD_LIMIT", "board_limit"),
    _throttled("LOW_UTIL_VIOLATION", "GPU_LOW_UTIL", "low_utilization"),
    _throttled("RELIABILITY_VIOLATION", "GPU_RELIABILITY", "reliability"),
    _dev("FB_TOTAL", "FB_CAPACITY_BYTES", Native(c.GPU_MEMORY_TOTAL_BYTES),
         scale=MEBIBYTES)._replace(instance=c.GPU_MIG_MEMORY_TOTAL_BYTES),
    _dev("FB_FREE", "FB_FREE_BYTES", Native(c.GPU_MEMORY_FREE_BYTES), scale=MEBIBYTES),
    _dev("FB_USED", "FB_USED_BYTES", Native(c.GPU_MEMORY_USED_BYTES),
         scale=MEBIBYTES)._replace(instance=c.GPU_MIG_MEMORY_USED_BYTES),
    _dev("FB_RESERVED", "FB_RESERVED_BYTES", Native(c.GPU_MEMORY_RESERVED_BYTES),
         scale=MEBIBYTES),
    _ecc("ECC_SBE_VOL_TOTAL", "corrected", "volatile"),
    _ecc("ECC_DBE_VOL_TOTAL", "uncorrected", "volatile"),
    _ecc("ECC_SBE_AGG_TOTAL", "corrected", "aggregate"),
    _ecc("ECC_DBE_AGG_TOTAL", "uncorrected", "aggregate"),
    _dev("RETIRED_SBE", "PAGE_RETIRED_SBE_TOTAL",
         Native(c.GPU_RETIRED_PAGES_TOTAL, ("single_bit",))),
    _dev("RETIRED_DBE", "PAGE_RETIRED_DBE_TOTAL",
         Native(c.GPU_RETIRED_PAGES_TOTAL, ("double_bit",))),
    _dev("RETIRED_PENDING", "PAGE_RETIRED_PENDING", Native(c.GPU_RETIRED_PAGES_PENDING)),
    _dev("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "NVLINK_CRC_FLIT_ERROR_TOTAL",
         Native(c.GPU_NVLINK_ERRORS_TOTAL, ("crc_flit",))),
    _dev("NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "NVLINK_CRC_DATA_ERROR_TOTAL",
         Native(c.GPU_NVLINK_ERRORS_TOTAL, ("crc_data",))),
    _dev("", "NVLINK_CRC_ERROR_TOTAL", Native(c.GPU_NVLINK_ERRORS_TOTAL, ("crc",))),
    _dev("NVLINK_REPLAY_ERROR_COUNT_TOTAL", "NVLINK_REPLAY_TOTAL",
         Native(c.GPU_NVLINK_ERRORS_TOTAL, ("replay",))),
    _dev("NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "NVLINK_RECOVERY_TOTAL",
         Native(c.GPU_NVLINK_ERRORS_TOTAL, ("recovery",))),
    _dev("NVLINK_BANDWIDTH_TOTAL", "NVLINK_THROUGHPUT_BYTES_PER_SECOND",
         scale=KIBIBYTES_BY_1000)._replace(counters=_NVLINK, new_scale=WHOLE),
    _dev("UNCORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_UNCORRECTABLE_TOTAL",
         Native(c.GPU_REMAPPED_ROWS_TOTAL, ("uncorrected",))),
    _dev("CORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_CORRECTABLE_TOTAL",
         Native(c.GPU_REMAPPED_ROWS_TOTAL, ("corrected",))),
    _dev("ROW_REMAP_FAILURE", "ROW_REMAP_FAILED", Native(c.GPU_ROW_REMAP_FAILED)),
    _dev("ROW_REMAP_PENDING", "ROW_REMAP_PENDING", Native(c.GPU_ROW_REMAP_PENDING)),
    _prof("GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO", Native(c.GPU_GRAPHICS_ACTIVE_RATIO),
          c.GPU_MIG_GRAPHICS_ACTIVE_RATIO),
    _prof("SM_ACTIVE", "SM_UTIL_RATIO", Native(c.GPU_SM_ACTIVE_RATIO), c.GPU_MIG_SM_ACTIVE_RATIO),
    _prof("SM_OCCUPANCY", "SM_OCCUPANCY_RATIO", Native(c.GPU_SM_OCCUPANCY_RATIO),
          c.GPU_MIG_SM_OCCUPANCY_RATIO),
    _prof("PIPE_TENSOR_ACTIVE", "TENSOR_UTIL_RATIO", Native(c.GPU_TENSOR_ACTIVE_RATIO),
          c.GPU_MIG_TENSOR_ACTIVE_RATIO),
    _prof("DRAM_ACTIVE", "DRAM_UTIL_RATIO", Native(c.GPU_DRAM_ACTIVE_RATIO),
          c.GPU_MIG_DRAM_ACTIVE_RATIO),
    _prof("PIPE_FP64_ACTIVE", "FP64_UTIL_RATIO", Native(c.GPU_PIPE_ACTIVE_RATIO, ("fp64",))),
    _prof("PIPE_FP32_ACTIVE", "FP32_UTIL_RATIO", Native(c.GPU_PIPE_ACTIVE_RATIO, ("fp32",))),
    _prof("PIPE_FP16_ACTIVE", "FP16_UTIL_RATIO", Native(c.GPU_PIPE_ACTIVE_RATIO, ("fp16",))),
    _pcie("TX", c.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND, c.GPU_PCIE_TRANSMIT_BYTES_TOTAL),
    _pcie("RX", c.GPU_PCIE_RECEIVE_BYTES_PER_SECOND, c.GPU_PCIE_RECEIVE_BYTES_TOTAL),
)  # fmt: skip

OLD_ROWS = tuple(
    Row(f.DCGM[m.old], m.natives, m.scale, counters=m.counters, instance=m.instance)
    for m in _DCGM
    if m.old in f.DCGM
)
NEW_ROWS = tuple(
    Row(f.DCGM_49[m.new], m.natives, m.new_scale, counters=m.counters, instance=m.instance)
    for m in _DCGM
)


def _smi(name: str, *natives: Native) -> Row:
    return Row(f.NVIDIA_SMI[f"nvidia_smi_{name}"], natives, SAME)


def _smi_instance(name: str, metric: Metric) -> Row:
    return Row(f.NVIDIA_SMI[f"nvidia_smi_mig_{name}"], (), SAME, instance=metric)


_BITS: Mapping[str, int] = {
    "idle": 0x1,
    "application_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "power_brake": 0x80,
    "display_clocks": 0x100,
}
"""The bits of nvmlClocksEventReasons (nvml.h). There are no others."""

_REASONS: Mapping[str, str] = {
    "gpu_idle": "idle",
    "applications_clocks_setting": "application_clocks",
    "sw_power_cap": "sw_power_cap",
    "hw_slowdown": "hw_slowdown",
    "hw_thermal_slowdown": "hw_thermal",
    "hw_power_brake_slowdown": "power_brake",
    "sw_thermal_slowdown": "sw_thermal",
    "sync_boost": "sync_boost",
}
_COUNTED = (
    "sw_power_cap", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
)  # fmt: skip
_LOCATIONS: Mapping[str, str] = {
    "device_memory": "dram",  # nvml.h gives both the same number
    "dram": "dram",
    "register_file": "register_file",
    "l1_cache": "l1_cache",
    "l2_cache": "l2_cache",
    "texture_memory": "texture_memory",
    "cbu": "cbu",
    "sram": "sram",
}

SMI_ROWS: tuple[Row, ...] = (
    _smi("pstate", Native(c.GPU_PERFORMANCE_STATE)),
    _smi("utilization_gpu_ratio", Native(c.GPU_UTILIZATION_RATIO)),
    _smi("utilization_memory_ratio", Native(c.GPU_MEMORY_BUSY_RATIO)),
    *(
        _smi(f"utilization_{name}_ratio", Native(c.GPU_VIDEO_UTILIZATION_RATIO, (unit,)))
        for name, unit in (("encoder", "encoder"), ("decoder", "decoder"), ("jpeg", "jpeg"),
                           ("ofa", "optical_flow"))
    ),
    _smi("memory_total_bytes", Native(c.GPU_MEMORY_TOTAL_BYTES)),
    _smi("memory_reserved_bytes", Native(c.GPU_MEMORY_RESERVED_BYTES)),
    _smi("memory_used_bytes", Native(c.GPU_MEMORY_USED_BYTES)),
    _smi("memory_free_bytes", Native(c.GPU_MEMORY_FREE_BYTES)),
    _smi("temperature_gpu", Native(c.GPU_TEMPERATURE_CELSIUS, ("core",))),
    _smi("temperature_gpu_tlimit", Native(c.GPU_TEMPERATURE_MARGIN_CELSIUS)),
    _smi("temperature_memory", Native(c.GPU_TEMPERATURE_CELSIUS, ("memory",))),
    _smi("fan_speed_ratio", Native(c.GPU_FAN_SPEED_RATIO, ("0",))),
    _smi("power_draw_watts", *_POWER),
    _smi("power_draw_average_watts", Native(c.GPU_POWER_WATTS, ("average",))),
    _smi("power_draw_instant_watts", Native(c.GPU_POWER_WATTS, ("instant",))),
    *(
        _smi(f"{name}_watts", Native(c.GPU_POWER_LIMIT_WATTS, (limit,)))
        for name, limit in (
            ("power_limit", "requested"), ("enforced_power_limit", "enforced"),
            ("power_default_limit", "default"), ("power_min_limit", "minimum"),
            ("power_max_limit", "maximum"),
        )
    ),
    *(
        _smi(f"clocks_current_{domain}_clock_hz", Native(c.GPU_CLOCK_HERTZ, (domain,)))
        for domain in ("graphics", "sm", "memory", "video")
    ),
    *(
        _smi(f"clocks_max_{domain}_clock_hz", Native(c.GPU_CLOCK_MAX_HERTZ, (domain,)))
        for domain in ("graphics", "sm", "memory")
    ),
    _smi(
        "clocks_event_reasons_active", *(Native(c.GPU_THROTTLE_ACTIVE, (one,)) for one in _BITS)
    )._replace(weights=tuple(_BITS.values())),
    *(
        _smi(f"clocks_event_reasons_{name}", Native(c.GPU_THROTTLE_ACTIVE, (reason,)))
        for name, reason in _REASONS.items()
    ),
    *(
        _smi(
            f"clocks_event_reasons_counters_{name}_seconds",
            Native(c.GPU_THROTTLED_SECONDS_TOTAL, (_REASONS[name],)),
        )
        for name in _COUNTED
    ),
    *(
        _smi(
            f"ecc_errors_{kind}_{counter}_{name}",
            Native(c.GPU_ECC_LOCATION_ERRORS_TOTAL, (kind, counter, location)),
        )
        for kind in ("corrected", "uncorrected")
        for counter in ("volatile", "aggregate")
        for name, location in _LOCATIONS.items()
    ),
    *(
        _smi(f"ecc_errors_{kind}_{counter}_total", Native(c.GPU_ECC_ERRORS_TOTAL, (kind, counter)))
        for kind in ("corrected", "uncorrected")
        for counter in ("volatile", "aggregate")
    ),
    _smi("ecc_errors_uncorrected_aggregate_sram_threshold_exceeded",
         Native(c.GPU_ECC_SRAM_THRESHOLD_EXCEEDED)),
    _smi("ecc_mode_current", Native(c.GPU_ECC_MODE)),
    _smi("retired_pages_single_bit_ecc_count", Native(c.GPU_RETIRED_PAGES_TOTAL, ("single_bit",))),
    _smi("retired_pages_double_bit_count", Native(c.GPU_RETIRED_PAGES_TOTAL, ("double_bit",))),
    _smi("retired_pages_pending", Native(c.GPU_RETIRED_PAGES_PENDING)),
    _smi("remapped_rows_correctable", Native(c.GPU_REMAPPED_ROWS_TOTAL, ("corrected",))),
    _smi("remapped_rows_uncorrectable", Native(c.GPU_REMAPPED_ROWS_TOTAL, ("uncorrected",))),
    _smi("remapped_rows_pending", Native(c.GPU_ROW_REMAP_PENDING)),
    _smi("remapped_rows_failure", Native(c.GPU_ROW_REMAP_FAILED)),
    *(
        _smi(f"remapped_rows_histogram_{share}", Native(c.GPU_ROW_REMAP_BANKS, (share,)))
        for share in ("max", "high", "partial", "low", "none")
    ),
    _smi("pcie_link_gen_current", Native(c.GPU_PCIE_LINK_GENERATION)),
    _smi("pcie_link_gen_gpucurrent", Native(c.GPU_PCIE_LINK_GENERATION)),
    _smi("pcie_link_gen_max", Native(c.GPU_PCIE_LINK_GENERATION_MAX)),
    _smi("pcie_link_width_current", Native(c.GPU_PCIE_LINK_LANES)),
    _smi("pcie_link_width_max", Native(c.GPU_PCIE_LINK_LANES_MAX)),
    _smi("persistence_mode", Native(c.GPU_PERSISTENCE_MODE)),
    _smi("compute_mode", Native(c.GPU_COMPUTE_MODE)),
    _smi("mig_mode_current", Native(c.GPU_MIG_MODE)),
    _smi("fabric_state", Native(c.GPU_FABRIC_STATE)),
    _smi("gpu_recovery_action", Native(c.GPU_RECOVERY_ACTION)),
    _smi("energy_joules_total", Native(c.GPU_ENERGY_JOULES_TOTAL)),
    _smi(
        "pcie_throughput_tx_bytes_per_second", Native(c.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND)
    )._replace(counters=(Native(c.GPU_PCIE_TRANSMIT_BYTES_TOTAL),)),
    _smi(
        "pcie_throughput_rx_bytes_per_second", Native(c.GPU_PCIE_RECEIVE_BYTES_PER_SECOND)
    )._replace(counters=(Native(c.GPU_PCIE_RECEIVE_BYTES_TOTAL),)),
    _smi("compute_apps", Native(c.GPU_PROCESSES)),
    _smi_instance("memory_total_bytes", c.GPU_MIG_MEMORY_TOTAL_BYTES),
    _smi_instance("memory_used_bytes", c.GPU_MIG_MEMORY_USED_BYTES),
    _smi_instance("graphics_activity_ratio", c.GPU_MIG_GRAPHICS_ACTIVE_RATIO),
    _smi_instance("sm_activity_ratio", c.GPU_MIG_SM_ACTIVE_RATIO),
    _smi_instance("sm_occupancy_ratio", c.GPU_MIG_SM_OCCUPANCY_RATIO),
    _smi_instance("tensor_activity_ratio", c.GPU_MIG_TENSOR_ACTIVE_RATIO),
)  # fmt: skip
