"""DCGM's fields: number, names, unit, and the family that each becomes. One row for each field.

A field has a number, which `libdcgm` is asked for, and up to two names on the page of a
dcgm-exporter: the old one, with the library's unit (the exporter prints what the library says),
and the one of DCGM 4.7 and exporter 4.9, in base units. The old numbers are in every release from
3.0 on and never changed their unit, so they are what we ask the library for.

Numbers and old names are those of `dcgm_fields.h`, new names those of DCGM 4.6's `dcgm_fields.py`
(where the unit stayed) and of NVIDIA's field reference of DCGM 4.7 (where it changed). Traps are
told beside the row that avoids them. A field whose value fits no family stands here with none, so
that nobody maps it again: the last XID (230) is no counter, and no number of XIDs follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from exporter import catalogue as c
from exporter.samples import Metric

Kind = Literal["int", "double"]


class Unit(NamedTuple):
    """A unit of DCGM: a value times `times` over `over` is ours.

    Values below `least` or above `most` are not believed: no board can have them.
    """

    times: int
    over: int
    most: float
    least: float = 0.0


# A measured ratio may be a little over one: its numerator and its cycles are not read at once.
RATIO = Unit(1, 1, 1.01)
PERCENT = Unit(1, 100, 100)
FAN_PERCENT = Unit(1, 100, 200)
FAN_RATIO = Unit(1, 1, 2)
WATTS = Unit(1, 1, 100_000)
MILLIJOULES = Unit(1, 1000, 2**62)
JOULES = Unit(1, 1, 2**52)
CELSIUS = Unit(1, 1, 1000, -100)
MEGAHERTZ = Unit(1_000_000, 1, 100_000)
HERTZ = Unit(1, 1, 100_000_000_000)
MEBIBYTES = Unit(1 << 20, 1, 2**30)
BYTES = Unit(1, 1, 2**50)
# PCIe of generation 7 has a quarter of 10^12; NVLink 5 has 1.8 times that, both ways together.
BYTES_PER_SECOND = Unit(1, 1, 10**13)
NANOSECONDS = Unit(1, 1_000_000_000, 2**62)
SECONDS = Unit(1, 1, 2**33)
TIMES = Unit(1, 1, 2**62)
FEW = Unit(1, 1, 100_000)
FLAG = Unit(1, 1, 1)
BITS = Unit(1, 1, 2**32)

_INT32_BLANK, _INT32_LAST = 0x7FFFFFF0, 0x7FFFFFFF
_INT64_BLANK = 0x7FFFFFFFFFFFFFF0
_FP64_BLANK = 140737488355328.0
_UNKNOWN_U32 = 0xFFFFFFFF


class Field(NamedTuple):
    """One field.

    `name` is its old name, `unit` its unit there and in the library, `kind` how the library types
    it; `new_name` and `new_unit` are those of exporter 4.9. `metric` with `labels` (after gpu and
    uuid) is the family, `bits` its last label by bit of the value. `mig` is the family for a GPU
    instance. `whole`: what is printed for an instance is the value of its whole GPU. `integral`
    and `mig_integral` are counters that the rate adds up to. `profiling` fields are measured by
    hardware counters, which may need privileges and may be in use.
    """

    number: int
    name: str
    kind: Kind
    unit: Unit
    metric: Metric | None = None
    labels: tuple[str, ...] = ()
    new_name: str = ""
    new_unit: Unit | None = None
    mig: Metric | None = None
    whole: bool = False
    integral: Metric | None = None
    mig_integral: Metric | None = None
    profiling: bool = False
    bits: tuple[tuple[str, int], ...] = ()


def is_blank(raw: float, kind: Kind) -> bool:
    """Tell whether a value is one of the numbers by which DCGM says that it has none.

    Blanks are ranges: unspecified, not found, not supported, not permitted and more to come
    (`dcgm_structs.h`). They have been exported as 9.2e18, 1.4e14 and 2147483632
    (gpu-monitoring-tools 97, slurm-job-exporter 30 and 53). Zero is a measured zero.
    """
    if math.isnan(raw) or raw == _UNKNOWN_U32 or _INT32_BLANK <= raw <= _INT32_LAST:
        return True
    return raw >= (_INT64_BLANK if kind == "int" else _FP64_BLANK)


def native(raw: float, unit: Unit) -> float | None:
    """Return a value in our unit, or `None` if it is one that no board can have.

    Whole numbers stay whole where the unit allows, so that counters stay exact.
    """
    if not unit.least <= raw <= unit.most:
        return None
    return raw * unit.times if unit.over == 1 else raw * unit.times / unit.over


def _activity(
    number: int, name: str, new_name: str, metric: Metric, *,
    mig: Metric | None = None, integral: Metric | None = None, mig_integral: Metric | None = None,
) -> Field:  # fmt: skip
    """A share of cycles or time, from 0 to 1 under both names."""
    return Field(
        number, f"DCGM_FI_PROF_{name}", "double", RATIO, metric,
        new_name=f"DCGM_FI_PROF_{new_name}", new_unit=RATIO, mig=mig,
        integral=integral, mig_integral=mig_integral, profiling=True,
    )  # fmt: skip


def _pipe(number: int, name: str, new_name: str, pipe: str) -> Field:
    row = _activity(number, name, new_name, c.GPU_PIPE_ACTIVE_RATIO)
    return row._replace(labels=(pipe,))


def _traffic(number: int, name: str, metric: Metric | None, integral: Metric) -> Field:
    """A rate in bytes per second, although lists of counters called it a counter."""
    # A GPU instance has no PCIe or NVLink of its own: DCGM answers blanks there (DCGM 88), which
    # became huge rates elsewhere (slurm-job-exporter 52).
    return Field(
        number, f"DCGM_FI_PROF_{name}", "int", BYTES_PER_SECOND, metric, whole=True,
        integral=integral, profiling=True,
    )  # fmt: skip


def _percent(number: int, name: str, new_name: str, metric: Metric, *labels: str) -> Field:
    """A utilization in whole percent; as a ratio under the new name."""
    return Field(
        number, f"DCGM_FI_DEV_{name}", "int", PERCENT, metric, labels,
        f"DCGM_FI_DEV_{new_name}", RATIO,
    )  # fmt: skip


def _clock(number: int, name: str, new_name: str, metric: Metric, domain: str) -> Field:
    return Field(
        number, f"DCGM_FI_DEV_{name}", "int", MEGAHERTZ, metric, (domain,),
        f"DCGM_FI_DEV_{new_name}", HERTZ, whole=True,
    )  # fmt: skip


def _celsius(number: int, name: str, new_name: str, metric: Metric, *labels: str) -> Field:
    return Field(
        number, f"DCGM_FI_DEV_{name}", "int", CELSIUS, metric, labels,
        f"DCGM_FI_DEV_{new_name}", CELSIUS, whole=True,
    )  # fmt: skip


def _watts(number: int, name: str, new_name: str, metric: Metric, label: str) -> Field:
    return Field(
        number, f"DCGM_FI_DEV_{name}", "double", WATTS, metric, (label,),
        f"DCGM_FI_DEV_{new_name}", WATTS, whole=True,
    )  # fmt: skip


def _memory(
    number: int, name: str, new_name: str, metric: Metric, mig: Metric | None = None
) -> Field:
    """Memory in whole MiB; in bytes under the new name."""
    return Field(
        number, f"DCGM_FI_DEV_{name}", "int", MEBIBYTES, metric,
        new_name=f"DCGM_FI_DEV_{new_name}", new_unit=BYTES, mig=mig,
    )  # fmt: skip


def _throttled(number: int, name: str, new_name: str, reason: str) -> Field:
    """Time for which clocks were held down.

    In nanoseconds, although headers and old lists of counters say microseconds: measured, and put
    right there, by DCGM 266 and dcgm-exporter 589.
    """
    return Field(
        number, f"DCGM_FI_DEV_{name}", "int", NANOSECONDS, c.GPU_THROTTLED_SECONDS_TOTAL,
        (reason,), f"DCGM_FI_DEV_{new_name}", SECONDS, whole=True,
    )  # fmt: skip


def _plain(
    number: int, name: str, unit: Unit, metric: Metric | None, *labels: str, new_name: str = ""
) -> Field:
    """A value that has the same unit under its new name, if it has one."""
    return Field(
        number, f"DCGM_FI_DEV_{name}", "int", unit, metric, labels,
        f"DCGM_FI_DEV_{new_name}" if new_name else "", unit if new_name else None, whole=True,
    )  # fmt: skip


_KINDS: Mapping[str, str] = {"SBE": "corrected", "DBE": "uncorrected"}
_LASTING: Mapping[str, str] = {"VOL": "volatile", "AGG": "aggregate"}


def _ecc(kind: str, lasting: str, number: int) -> Field:
    return _plain(
        number, f"ECC_{kind}_{lasting}_TOTAL", TIMES, c.GPU_ECC_ERRORS_TOTAL,
        _KINDS[kind], _LASTING[lasting],
    )  # fmt: skip


def _ecc_at(place: str, location: str, first: int, aggregate: int) -> tuple[Field, ...]:
    """Errors at one place: single and double bit, volatile from `first`, aggregate further on."""
    return tuple(
        _plain(
            number, f"ECC_{kind}_{lasting}_{place}", TIMES, c.GPU_ECC_LOCATION_ERRORS_TOTAL,
            _KINDS[kind], _LASTING[lasting], location,
        )
        for lasting, start in (("VOL", first), ("AGG", aggregate))
        for number, kind in ((start, "SBE"), (start + 1, "DBE"))
    )  # fmt: skip


_REASONS = (
    ("idle", 0x1),
    ("application_clocks", 0x2),
    ("sw_power_cap", 0x4),
    ("hw_slowdown", 0x8),
    ("sync_boost", 0x10),
    ("sw_thermal", 0x20),
    ("hw_thermal", 0x40),
    ("power_brake", 0x80),
    ("display_clocks", 0x100),
)

PROFILING: tuple[Field, ...] = (
    _activity(
        1001, "GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO", c.GPU_GRAPHICS_ACTIVE_RATIO,
        mig=c.GPU_MIG_GRAPHICS_ACTIVE_RATIO,
    ),
    _activity(
        1002, "SM_ACTIVE", "SM_UTIL_RATIO", c.GPU_SM_ACTIVE_RATIO,
        mig=c.GPU_MIG_SM_ACTIVE_RATIO, integral=c.GPU_SM_ACTIVE_SECONDS_TOTAL,
        mig_integral=c.GPU_MIG_SM_ACTIVE_SECONDS_TOTAL,
    ),
    _activity(
        1003, "SM_OCCUPANCY", "SM_OCCUPANCY_RATIO", c.GPU_SM_OCCUPANCY_RATIO,
        mig=c.GPU_MIG_SM_OCCUPANCY_RATIO,
    ),
    _activity(
        1004, "PIPE_TENSOR_ACTIVE", "TENSOR_UTIL_RATIO", c.GPU_TENSOR_ACTIVE_RATIO,
        mig=c.GPU_MIG_TENSOR_ACTIVE_RATIO, integral=c.GPU_TENSOR_ACTIVE_SECONDS_TOTAL,
        mig_integral=c.GPU_MIG_TENSOR_ACTIVE_SECONDS_TOTAL,
    ),
    # This is the activity of device memory. Field 203, often taken for it, is GPU utilization.
    _activity(
        1005, "DRAM_ACTIVE", "DRAM_UTIL_RATIO", c.GPU_DRAM_ACTIVE_RATIO,
        mig=c.GPU_MIG_DRAM_ACTIVE_RATIO, integral=c.GPU_DRAM_ACTIVE_SECONDS_TOTAL,
        mig_integral=c.GPU_MIG_DRAM_ACTIVE_SECONDS_TOTAL,
    ),
    _pipe(1006, "PIPE_FP64_ACTIVE", "FP64_UTIL_RATIO", "fp64"),
    _pipe(1007, "PIPE_FP32_ACTIVE", "FP32_UTIL_RATIO", "fp32"),
    _pipe(1008, "PIPE_FP16_ACTIVE", "FP16_UTIL_RATIO", "fp16"),
    _traffic(
        1009, "PCIE_TX_BYTES", c.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND, c.GPU_PCIE_TRANSMIT_BYTES_TOTAL
    ),
    _traffic(
        1010, "PCIE_RX_BYTES", c.GPU_PCIE_RECEIVE_BYTES_PER_SECOND, c.GPU_PCIE_RECEIVE_BYTES_TOTAL
    ),
    _traffic(1011, "NVLINK_TX_BYTES", None, c.GPU_NVLINK_TRANSMIT_BYTES_TOTAL),
    _traffic(1012, "NVLINK_RX_BYTES", None, c.GPU_NVLINK_RECEIVE_BYTES_TOTAL),
    _pipe(1013, "PIPE_TENSOR_IMMA_ACTIVE", "IMMA_UTIL_RATIO", "tensor_integer"),
    _pipe(1014, "PIPE_TENSOR_HMMA_ACTIVE", "HMMA_UTIL_RATIO", "tensor_half"),
    _pipe(1015, "PIPE_TENSOR_DFMA_ACTIVE", "DFMA_UTIL_RATIO", "tensor_double"),
    _pipe(1016, "PIPE_INT_ACTIVE", "INT_UTIL_RATIO", "integer"),
)  # fmt: skip
"""What hardware counters measure. They are watched together: 1002 alone stays at 0 (DCGM 244)."""

UTILIZATION = _percent(203, "GPU_UTIL", "GPU_UTIL_RATIO", c.GPU_UTILIZATION_RATIO)
"""GPU utilization. DCGM 4.6 had the new name for the old percent: see `sources.dcgm_page`."""

DEVICE: tuple[Field, ...] = (
    _plain(66, "PERSISTENCE_MODE", FLAG, c.GPU_PERSISTENCE_MODE, new_name="GPU_PERSISTENCE_MODE"),
    _plain(67, "MIG_MODE", FLAG, c.GPU_MIG_MODE),
    _memory(90, "BAR1_TOTAL", "BAR1_CAPACITY_BYTES", c.GPU_BAR1_TOTAL_BYTES),
    _memory(92, "BAR1_USED", "BAR1_USED_BYTES", c.GPU_BAR1_USED_BYTES),
    _clock(100, "SM_CLOCK", "SM_CLOCK_HERTZ", c.GPU_CLOCK_HERTZ, "sm"),
    _clock(101, "MEM_CLOCK", "MEMORY_CLOCK_HERTZ", c.GPU_CLOCK_HERTZ, "memory"),
    _clock(102, "VIDEO_CLOCK", "VIDEO_CLOCK_HERTZ", c.GPU_CLOCK_HERTZ, "video"),
    Field(
        112, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "int", BITS, c.GPU_THROTTLE_ACTIVE, (),
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", BITS, whole=True, bits=_REASONS,
    ),
    _clock(113, "MAX_SM_CLOCK", "SM_MAX_CLOCK_HERTZ", c.GPU_CLOCK_MAX_HERTZ, "sm"),
    _clock(114, "MAX_MEM_CLOCK", "MEMORY_MAX_CLOCK_HERTZ", c.GPU_CLOCK_MAX_HERTZ, "memory"),
    _clock(115, "MAX_VIDEO_CLOCK", "VIDEO_MAX_CLOCK_HERTZ", c.GPU_CLOCK_MAX_HERTZ, "video"),
    _celsius(140, "MEMORY_TEMP", "MEMORY_TEMP_CELSIUS", c.GPU_TEMPERATURE_CELSIUS, "memory"),
    _celsius(150, "GPU_TEMP", "GPU_TEMP_CELSIUS", c.GPU_TEMPERATURE_CELSIUS, "core"),
    _celsius(
        151, "MEM_MAX_OP_TEMP", "MEMORY_MAX_OP_TEMP_CELSIUS", c.GPU_TEMPERATURE_LIMIT_CELSIUS,
        "memory",
    ),
    _celsius(
        152, "GPU_MAX_OP_TEMP", "GPU_MAX_OP_TEMP_CELSIUS", c.GPU_TEMPERATURE_LIMIT_CELSIUS, "core"
    ),
    _celsius(153, "GPU_TEMP_LIMIT", "GPU_TEMP_MARGIN_CELSIUS", c.GPU_TEMPERATURE_MARGIN_CELSIUS),
    _watts(155, "POWER_USAGE", "BOARD_POWER_WATTS", c.GPU_POWER_WATTS, "average"),
    Field(
        156, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "int", MILLIJOULES,
        c.GPU_ENERGY_JOULES_TOTAL, (), "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", JOULES, whole=True,
    ),
    _watts(157, "POWER_USAGE_INSTANT", "BOARD_POWER_RAW_WATTS", c.GPU_POWER_WATTS, "instant"),
    _celsius(
        158, "SLOWDOWN_TEMP", "GPU_TEMP_SLOWDOWN_CELSIUS", c.GPU_TEMPERATURE_LIMIT_CELSIUS,
        "slowdown",
    ),
    _celsius(
        159, "SHUTDOWN_TEMP", "GPU_TEMP_SHUTDOWN_CELSIUS", c.GPU_TEMPERATURE_LIMIT_CELSIUS,
        "shutdown",
    ),
    _watts(
        160, "POWER_MGMT_LIMIT", "BOARD_POWER_LIMIT_REQUESTED_WATTS", c.GPU_POWER_LIMIT_WATTS,
        "requested",
    ),
    _watts(
        161, "POWER_MGMT_LIMIT_MIN", "BOARD_POWER_LIMIT_MIN_WATTS", c.GPU_POWER_LIMIT_WATTS,
        "minimum",
    ),
    _watts(
        162, "POWER_MGMT_LIMIT_MAX", "BOARD_POWER_LIMIT_MAX_WATTS", c.GPU_POWER_LIMIT_WATTS,
        "maximum",
    ),
    _watts(
        163, "POWER_MGMT_LIMIT_DEF", "BOARD_POWER_LIMIT_DEFAULT_WATTS", c.GPU_POWER_LIMIT_WATTS,
        "default",
    ),
    _watts(
        164, "ENFORCED_POWER_LIMIT", "BOARD_POWER_LIMIT_ENFORCED_WATTS", c.GPU_POWER_LIMIT_WATTS,
        "enforced",
    ),
    _plain(190, "PSTATE", Unit(1, 1, 15), c.GPU_PERFORMANCE_STATE, new_name="GPU_PSTATE"),
    Field(
        191, "DCGM_FI_DEV_FAN_SPEED", "int", FAN_PERCENT, c.GPU_FAN_SPEED_RATIO, ("0",),
        "DCGM_FI_DEV_FAN_SPEED_RATIO", FAN_RATIO, whole=True,
    ),
    _plain(
        202, "PCIE_REPLAY_COUNTER", TIMES, c.GPU_PCIE_REPLAYS_TOTAL, new_name="PCIE_REPLAY_TOTAL"
    ),
    UTILIZATION,
    _percent(204, "MEM_COPY_UTIL", "MEMORY_UTIL_RATIO", c.GPU_MEMORY_BUSY_RATIO),
    _percent(206, "ENC_UTIL", "ENC_UTIL_RATIO", c.GPU_VIDEO_UTILIZATION_RATIO, "encoder"),
    _percent(207, "DEC_UTIL", "DEC_UTIL_RATIO", c.GPU_VIDEO_UTILIZATION_RATIO, "decoder"),
    _plain(230, "XID_ERRORS", TIMES, None, new_name="XID_ERROR"),
    _plain(235, "PCIE_MAX_LINK_GEN", Unit(1, 1, 20), c.GPU_PCIE_LINK_GENERATION_MAX),
    _plain(236, "PCIE_MAX_LINK_WIDTH", Unit(1, 1, 64), c.GPU_PCIE_LINK_LANES_MAX),
    _plain(237, "PCIE_LINK_GEN", Unit(1, 1, 20), c.GPU_PCIE_LINK_GENERATION),
    _plain(238, "PCIE_LINK_WIDTH", Unit(1, 1, 64), c.GPU_PCIE_LINK_LANES),
    _throttled(240, "POWER_VIOLATION", "GPU_POWER_THROTTLE_SECONDS_TOTAL", "sw_power_cap"),
    _throttled(241, "THERMAL_VIOLATION", "GPU_THERMAL_THROTTLE_SECONDS_TOTAL", "thermal"),
    _throttled(
        242, "SYNC_BOOST_VIOLATION", "GPU_SYNC_BOOST_THROTTLE_SECONDS_TOTAL", "sync_boost"
    ),
    _throttled(
        243, "BOARD_LIMIT_VIOLATION", "BOARD_LIMIT_THROTTLE_SECONDS_TOTAL", "board_limit"
    ),
    _throttled(
        244, "LOW_UTIL_VIOLATION", "GPU_LOW_UTIL_THROTTLE_SECONDS_TOTAL", "low_utilization"
    ),
    _throttled(
        245, "RELIABILITY_VIOLATION", "GPU_RELIABILITY_THROTTLE_SECONDS_TOTAL", "reliability"
    ),
    _memory(
        250, "FB_TOTAL", "FB_CAPACITY_BYTES", c.GPU_MEMORY_TOTAL_BYTES,
        c.GPU_MIG_MEMORY_TOTAL_BYTES,
    ),
    _memory(251, "FB_FREE", "FB_FREE_BYTES", c.GPU_MEMORY_FREE_BYTES),
    _memory(
        252, "FB_USED", "FB_USED_BYTES", c.GPU_MEMORY_USED_BYTES, c.GPU_MIG_MEMORY_USED_BYTES
    ),
    _memory(253, "FB_RESERVED", "FB_RESERVED_BYTES", c.GPU_MEMORY_RESERVED_BYTES),
    _plain(285, "C2C_LINK_COUNT", Unit(1, 1, 64), c.GPU_C2C_LINKS, new_name="C2C_LINK_QUANTITY"),
    _plain(300, "ECC_CURRENT", FLAG, c.GPU_ECC_MODE, new_name="ECC_MODE"),
    _ecc("SBE", "VOL", 310),
    _ecc("DBE", "VOL", 311),
    _ecc("SBE", "AGG", 312),
    _ecc("DBE", "AGG", 313),
    *_ecc_at("L1", "l1_cache", 314, 324),
    *_ecc_at("L2", "l2_cache", 316, 326),
    *_ecc_at("DEV", "dram", 318, 328),
    *_ecc_at("REG", "register_file", 320, 330),
    *_ecc_at("TEX", "texture_memory", 322, 332),
    *_ecc_at("CBU", "cbu", 336, 340),
    *_ecc_at("SRM", "sram", 342, 344),
    _plain(
        346, "THRESHOLD_SRM", FLAG, c.GPU_ECC_SRAM_THRESHOLD_EXCEEDED, new_name="SRAM_EXCEEDED"
    ),
    *(
        _plain(
            number, f"BANKS_REMAP_ROWS_AVAIL_{word}", FEW, c.GPU_ROW_REMAP_BANKS, word.lower(),
            new_name=f"BANK_REMAP_AVAIL_{word}",
        )
        for number, word in ((385, "MAX"), (386, "HIGH"), (387, "PARTIAL"), (388, "LOW"),
                             (389, "NONE"))
    ),
    _plain(
        390, "RETIRED_SBE", FEW, c.GPU_RETIRED_PAGES_TOTAL, "single_bit",
        new_name="PAGE_RETIRED_SBE_TOTAL",
    ),
    _plain(
        391, "RETIRED_DBE", FEW, c.GPU_RETIRED_PAGES_TOTAL, "double_bit",
        new_name="PAGE_RETIRED_DBE_TOTAL",
    ),
    # Called a number of pages, but the driver only says whether there are any.
    _plain(
        392, "RETIRED_PENDING", FLAG, c.GPU_RETIRED_PAGES_PENDING, new_name="PAGE_RETIRED_PENDING"
    ),
    _plain(
        393, "UNCORRECTABLE_REMAPPED_ROWS", FEW, c.GPU_REMAPPED_ROWS_TOTAL, "uncorrected",
        new_name="ROW_REMAP_UNCORRECTABLE_TOTAL",
    ),
    _plain(
        394, "CORRECTABLE_REMAPPED_ROWS", FEW, c.GPU_REMAPPED_ROWS_TOTAL, "corrected",
        new_name="ROW_REMAP_CORRECTABLE_TOTAL",
    ),
    _plain(395, "ROW_REMAP_FAILURE", FLAG, c.GPU_ROW_REMAP_FAILED, new_name="ROW_REMAP_FAILED"),
    _plain(396, "ROW_REMAP_PENDING", FLAG, c.GPU_ROW_REMAP_PENDING),
    # The two kinds of CRC are told apart before Hopper only; later GPUs answer blanks (DCGM 173).
    *(
        _plain(
            number, f"NVLINK_{name}_ERROR_COUNT_TOTAL", TIMES, c.GPU_NVLINK_ERRORS_TOTAL,
            name.lower(), new_name=f"NVLINK_{name}_ERROR_TOTAL",
        )
        for number, name in ((409, "CRC_FLIT"), (419, "CRC_DATA"), (429, "REPLAY"),
                             (439, "RECOVERY"))
    ),
    # Called a counter, and is none: received and sent together in KiB/s over 1000, at this moment
    # (dcgm-exporter 417 and 658). Adding up or differentiating it makes no sense.
    Field(
        449, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "int", Unit(1_024_000, 1, 10**7), None, (),
        "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", BYTES_PER_SECOND, whole=True,
    ),
    _plain(
        497, "NVLINK_ERROR_DL_CRC", TIMES, c.GPU_NVLINK_ERRORS_TOTAL, "crc",
        new_name="NVLINK_CRC_ERROR_TOTAL",
    ),
    _plain(
        498, "NVLINK_ERROR_DL_RECOVERY", TIMES, c.GPU_NVLINK_ERRORS_TOTAL, "recovery",
        new_name="NVLINK_RECOVERY_TOTAL",
    ),
    _plain(
        499, "NVLINK_ERROR_DL_REPLAY", TIMES, c.GPU_NVLINK_ERRORS_TOTAL, "replay",
        new_name="NVLINK_REPLAY_TOTAL",
    ),
    _plain(
        1523, "GET_GPU_RECOVERY_ACTION", Unit(1, 1, 100), c.GPU_RECOVERY_ACTION,
        new_name="GPU_RECOVERY_ACTION",
    ),
)  # fmt: skip
"""What NVML tells DCGM; read on request only, since NVML tells us itself."""

FIELDS: tuple[Field, ...] = PROFILING + DEVICE

NVML_INDEX = 52
UUID = 54
"""Text: which board it is."""
