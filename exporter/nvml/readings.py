"""What is asked of a GPU, and what the answers mean: tables, one row for each thing to ask.

A row names the driver's function or field number, the unit it answers in, and the family that the
value becomes. Rows in a `Ladder` ask for the same thing in different ways, best first: each GPU
keeps the first that it supports. What a GPU does not support is not asked again. The numbers and
units are NVIDIA's (`nvml.h`); traps are told beside the row that avoids them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from exporter import catalogue as c
from exporter.nvml.driver import Answer, Block, Struct
from exporter.samples import Metric

FAST = 1
"""Asked at each read."""

SLOW = 10
"""Asked at each tenth read: what changes rarely. Values of the reads between are kept."""


class Unit(NamedTuple):
    """The driver's unit: a value times `times` over `over` is ours.

    Only values from `least` to `most` are believed, and none of `BLANKS`.
    """

    times: int
    over: int
    most: float
    least: float = 0


BLANKS = frozenset({
    2**32 - 1, 2**64 - 1, *range(2**31 - 16, 2**31 - 12), *range(2**63 - 16, 2**63 - 12),
    *range(2**47, 2**47 + 4),
})  # fmt: skip
"""Numbers that mean "none": all ones, and DCGM's for 32 bits, 64 bits and doubles (2147483632,
9.2e18, 1.4e14: gpu-monitoring-tools 97, slurm-job-exporter 30 and 53). Many are within the bounds
of a counter."""

BLANK_TEXTS = frozenset({"[N/A]", "N/A", "ERR!", "[Unknown Error]", "[Not Supported]"})

PERCENT = Unit(1, 100, 100)
FAN_PERCENT = Unit(1, 100, 200)
"""Of the highest speed while no tool overrides it; may exceed 100 (nvidia-smi)."""
MILLIWATTS = Unit(1, 1000, 100_000_000)
MILLIJOULES = Unit(1, 1000, 2**62)
CELSIUS = Unit(1, 1, 200, -200)
MEGAHERTZ = Unit(1_000_000, 1, 100_000)
BYTES = Unit(1, 1, 2**50)
BYTES_COUNTED = Unit(1, 1, 2**62)
KIBIBYTES_COUNTED = Unit(1024, 1, 2**52)
KILOBYTES_PER_SECOND = Unit(1000, 1, 2**31 - 17)
MEGABYTES_PER_SECOND = Unit(1_000_000, 1, 100_000_000)
NANOSECONDS = Unit(1, 1_000_000_000, 2**62)
TIMES = Unit(1, 1, 2**62)
FEW = Unit(1, 1, 100_000)
LANES = Unit(1, 1, 64, 1)
GENERATION = Unit(1, 1, 20, 1)
FLAG = Unit(1, 1, 1)


class Gives(NamedTuple):
    """What a value becomes: a family, its labels after gpu and uuid, and the value's unit.

    `at` is the value's place among several; `bit` asks for one bit of it.
    """

    metric: Metric
    unit: Unit
    labels: tuple[str, ...] = ()
    at: int = 0
    bit: int = 0


class Call(NamedTuple):
    """A function to call with the GPU's handle and `arguments`."""

    function: str
    answer: Answer
    gives: tuple[Gives, ...]
    arguments: tuple[int, ...] = ()
    beat: int = FAST


Version = tuple[int, int]
"""Branch and release of a driver: 580.65.06 is (580, 65)."""

ANY_DRIVER: tuple[Version, Version] = ((0, 0), (9999, 0))


class Field(NamedTuple):
    """A value to ask for by number; many go into one call.

    `drivers` are the first driver that knows the number and the first that does no longer, where
    numbers were given to something else later.
    """

    number: int
    gives: Gives
    scope: int = 0
    beat: int = FAST
    drivers: tuple[Version, Version] = ANY_DRIVER


Rung = Call | Field
Ladder = tuple[Rung, ...]


def _one(function: str, kind: Answer, gives: Gives, *arguments: int, beat: int = FAST) -> Call:
    return Call(function, kind, (gives,), arguments, beat)


_CORE, _MEMORY_SENSOR = 0, 1
_GRAPHICS, _SM, _MEM, _VIDEO = 0, 1, 2, 3
_SHUTDOWN, _SLOWDOWN, _MEM_MAX, _GPU_MAX = 0, 1, 2, 3
_CORRECTED, _UNCORRECTED = 0, 1
_VOLATILE, _AGGREGATE = 0, 1
_MODULE, _MEMORY = 1, 2

_REASONS: Mapping[str, int] = {
    "sw_power_cap": 0x4,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "power_brake": 0x80,
}
_MORE_REASONS: Mapping[str, int] = {
    "idle": 0x1,
    "application_clocks": 0x2,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "display_clocks": 0x100,
}
_LOCATIONS: Mapping[str, int] = {
    "l1_cache": 0,
    "l2_cache": 1,
    "dram": 2,
    "register_file": 3,
    "texture_memory": 4,
    "cbu": 6,
    "sram": 7,
}


def _throttling(function: str, reasons: Mapping[str, int]) -> Call:
    gives = tuple(
        Gives(c.GPU_THROTTLE_ACTIVE, TIMES, (reason,), bit=bit) for reason, bit in reasons.items()
    )
    return Call(function, "u64", gives)


def _ecc(kind: str, counter: str) -> Call:
    arguments = (
        {"corrected": _CORRECTED, "uncorrected": _UNCORRECTED}[kind],
        {"volatile": _VOLATILE, "aggregate": _AGGREGATE}[counter],
    )
    gives = (Gives(c.GPU_ECC_ERRORS_TOTAL, TIMES, (kind, counter)),)
    return Call("nvmlDeviceGetTotalEccErrors", "u64", gives, arguments, SLOW)


def _ecc_at(kind: str, counter: str, location: str) -> Call:
    total = _ecc(kind, counter)
    gives = (Gives(c.GPU_ECC_LOCATION_ERRORS_TOTAL, TIMES, (kind, counter, location)),)
    return Call(
        "nvmlDeviceGetMemoryErrorCounter", "u64", gives,
        (*total.arguments, _LOCATIONS[location]), SLOW,
    )  # fmt: skip


def _throttled(number: int, reason: str, drivers: tuple[Version, Version] = ANY_DRIVER) -> Field:
    gives = Gives(c.GPU_THROTTLED_SECONDS_TOTAL, NANOSECONDS, (reason,))
    return Field(number, gives, drivers=drivers)


# These three were 251 to 253 in R575 and the first R580, whose 269 to 271 are settings of power
# smoothing; later drivers have it the other way round (nvidia-ml-py 13.580.65 and 13.580.82).
_EARLY: tuple[Version, Version] = ((575, 0), (580, 66))
_LATE: tuple[Version, Version] = ((580, 82), ANY_DRIVER[1])


def _clock(function: str, metric: Metric, domain: str, *, beat: int) -> Call:
    number = {"graphics": _GRAPHICS, "sm": _SM, "memory": _MEM, "video": _VIDEO}[domain]
    unit = _SOME_MEGAHERTZ if function == _MAX else MEGAHERTZ
    return Call(function, "u32", (Gives(metric, unit, (domain,)),), (number,), beat)


POWER_USAGE = "nvmlDeviceGetPowerUsage"
_NOW, _MAX = "nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo"
# What is never nothing: a board that does not know it answers 0.
_SOME_MEGAHERTZ = MEGAHERTZ._replace(least=1)
_SOME_MILLIWATTS = MILLIWATTS._replace(least=1)
_SOME_BYTES = BYTES._replace(least=1)
_SOME_CELSIUS = CELSIUS._replace(least=1)

LADDERS: tuple[Ladder, ...] = (
    (
        Call(
            "nvmlDeviceGetUtilizationRates", Block(2),
            (
                Gives(c.GPU_UTILIZATION_RATIO, PERCENT),
                Gives(c.GPU_MEMORY_BUSY_RATIO, PERCENT, at=1),
            ),
        ),
    ),
    # Version 1 counts the driver's reserve as used since R510 (nvitop 13).
    (
        Call(
            "nvmlDeviceGetMemoryInfo_v2",
            Struct("c_nvmlMemory_v2_t", ("total", "reserved", "used"), "nvmlMemory_v2"),
            (
                Gives(c.GPU_MEMORY_TOTAL_BYTES, _SOME_BYTES),
                Gives(c.GPU_MEMORY_RESERVED_BYTES, BYTES, at=1),
                Gives(c.GPU_MEMORY_USED_BYTES, BYTES, at=2),
            ),
        ),
        Call(
            "nvmlDeviceGetMemoryInfo", Struct("c_nvmlMemory_t", ("total", "used")),
            (
                Gives(c.GPU_MEMORY_TOTAL_BYTES, _SOME_BYTES),
                Gives(c.GPU_MEMORY_USED_BYTES, BYTES, at=1),
            ),
        ),
    ),
    # The plain call is cheap where the field costs milliseconds. It is an average over a second,
    # but instant on GA100 and what is older: there it is only the last resort.
    (
        _one(POWER_USAGE, "u32", Gives(c.GPU_POWER_WATTS, MILLIWATTS, ("average",))),
        Field(185, Gives(c.GPU_POWER_WATTS, MILLIWATTS, ("average",))),
        _one(POWER_USAGE, "u32", Gives(c.GPU_POWER_WATTS, MILLIWATTS, ("instant",))),
    ),
    (
        _one(
            "nvmlDeviceGetEnforcedPowerLimit", "u32",
            Gives(c.GPU_POWER_LIMIT_WATTS, _SOME_MILLIWATTS, ("enforced",)), beat=SLOW,
        ),
    ),
    (
        _one(
            "nvmlDeviceGetTotalEnergyConsumption", "u64",
            Gives(c.GPU_ENERGY_JOULES_TOTAL, MILLIJOULES),
        ),
        Field(83, Gives(c.GPU_ENERGY_JOULES_TOTAL, MILLIJOULES)),
    ),
    (
        Call(
            "nvmlDeviceGetTemperatureV",
            Struct(
                "c_nvmlTemperature_v1_t", ("temperature",), "nvmlTemperature_v1",
                (("sensorType", _CORE),),
            ),
            (Gives(c.GPU_TEMPERATURE_CELSIUS, _SOME_CELSIUS, ("core",)),),
        ),
        _one(
            "nvmlDeviceGetTemperature", "u32",
            Gives(c.GPU_TEMPERATURE_CELSIUS, _SOME_CELSIUS, ("core",)), _CORE,
        ),
    ),
    # Boards without a sensor in their memory answer 0.
    (Field(82, Gives(c.GPU_TEMPERATURE_CELSIUS, _SOME_CELSIUS, ("memory",))),),
    (
        Call(
            "nvmlDeviceGetMarginTemperature",
            Struct(
                "c_nvmlMarginTemperature_v1_t", ("marginTemperature",), "nvmlMarginTemperature_v1"
            ),
            (Gives(c.GPU_TEMPERATURE_MARGIN_CELSIUS, CELSIUS),),
        ),
    ),
    (_clock(_NOW, c.GPU_CLOCK_HERTZ, "sm", beat=FAST),),
    (_clock(_NOW, c.GPU_CLOCK_HERTZ, "memory", beat=FAST),),
    (_clock(_MAX, c.GPU_CLOCK_MAX_HERTZ, "sm", beat=SLOW),),
    # The function was renamed in R535: drivers have either or both (nvidia_gpu_exporter 123).
    (
        _throttling("nvmlDeviceGetCurrentClocksEventReasons", _REASONS),
        _throttling("nvmlDeviceGetCurrentClocksThrottleReasons", _REASONS),
    ),
    (_throttled(74, "sw_power_cap"),),
    # Older drivers count only both kinds of heat together.
    (
        _throttled(269, "sw_thermal", _LATE), _throttled(251, "sw_thermal", _EARLY),
        _throttled(75, "thermal"),
    ),
    (_throttled(270, "hw_thermal", _LATE), _throttled(252, "hw_thermal", _EARLY)),
    (_throttled(271, "power_brake", _LATE), _throttled(253, "power_brake", _EARLY)),
    (_ecc("corrected", "volatile"),),
    (_ecc("corrected", "aggregate"),),
    (_ecc("uncorrected", "volatile"),),
    (_ecc("uncorrected", "aggregate"),),
    (
        Call(
            "nvmlDeviceGetSramEccErrorStatus",
            Struct("c_nvmlEccSramErrorStatus_v1_t", ("bThresholdExceeded",),
                   "nvmlEccSramErrorStatus_v1"),
            (Gives(c.GPU_ECC_SRAM_THRESHOLD_EXCEEDED, FLAG),), beat=SLOW,
        ),
    ),
    (
        Call(
            "nvmlDeviceGetRemappedRows", ("u32", "u32", "u32", "u32"),
            (
                Gives(c.GPU_REMAPPED_ROWS_TOTAL, FEW, ("corrected",)),
                Gives(c.GPU_REMAPPED_ROWS_TOTAL, FEW, ("uncorrected",), at=1),
                Gives(c.GPU_ROW_REMAP_PENDING, FLAG, at=2),
                Gives(c.GPU_ROW_REMAP_FAILED, FLAG, at=3),
            ),
            beat=SLOW,
        ),
    ),
    (Field(29, Gives(c.GPU_RETIRED_PAGES_TOTAL, FEW, ("single_bit",)), beat=SLOW),),
    (Field(30, Gives(c.GPU_RETIRED_PAGES_TOTAL, FEW, ("double_bit",)), beat=SLOW),),
    (Field(31, Gives(c.GPU_RETIRED_PAGES_PENDING, FLAG), beat=SLOW),),
    (
        _one("nvmlDeviceGetPcieReplayCounter", "u32", Gives(c.GPU_PCIE_REPLAYS_TOTAL, TIMES),
             beat=SLOW),
        Field(94, Gives(c.GPU_PCIE_REPLAYS_TOTAL, TIMES), beat=SLOW),
    ),
    (
        _one("nvmlDeviceGetCurrPcieLinkWidth", "u32",
             Gives(c.GPU_PCIE_LINK_LANES, LANES), beat=SLOW),
    ),
    (
        _one("nvmlDeviceGetMaxPcieLinkWidth", "u32",
             Gives(c.GPU_PCIE_LINK_LANES_MAX, LANES), beat=SLOW),
    ),
    (Field(230, Gives(c.GPU_RECOVERY_ACTION, Unit(1, 1, 100)), beat=SLOW),),
    (Field(170, Gives(c.GPU_C2C_LINKS, Unit(1, 1, 64)), beat=SLOW),),
)  # fmt: skip
"""What is asked of a GPU as such. NVLink, GPM, MIG and processes have their own rooms."""

DETAILS: tuple[Ladder, ...] = (
    (Call("nvmlDeviceGetMigMode", ("u32", "u32"), (Gives(c.GPU_MIG_MODE, FLAG),), beat=SLOW),),
    (Field(186, Gives(c.GPU_POWER_WATTS, MILLIWATTS, ("instant",))),),
    (
        _one(
            "nvmlDeviceGetPowerManagementDefaultLimit", "u32",
            Gives(c.GPU_POWER_LIMIT_WATTS, _SOME_MILLIWATTS, ("default",)), beat=SLOW,
        ),
    ),
    (_clock(_MAX, c.GPU_CLOCK_MAX_HERTZ, "memory", beat=SLOW),),
    (
        _one(
            "nvmlDeviceGetPerformanceState", "u32", Gives(c.GPU_PERFORMANCE_STATE, Unit(1, 1, 15))
        ),
    ),
    (
        _one("nvmlDeviceGetCurrPcieLinkGeneration", "u32",
             Gives(c.GPU_PCIE_LINK_GENERATION, GENERATION), beat=SLOW),
    ),
    (
        _one("nvmlDeviceGetMaxPcieLinkGeneration", "u32",
             Gives(c.GPU_PCIE_LINK_GENERATION_MAX, GENERATION), beat=SLOW),
    ),
    (_one("nvmlDeviceGetPersistenceMode", "u32", Gives(c.GPU_PERSISTENCE_MODE, FLAG), beat=SLOW),),
    (
        Call("nvmlDeviceGetEccMode", ("u32", "u32"), (Gives(c.GPU_ECC_MODE, FLAG),), beat=SLOW),
    ),
    (
        Call(
            "nvmlDeviceGetMemoryInfo_v2",
            Struct("c_nvmlMemory_v2_t", ("free",), "nvmlMemory_v2"),
            (Gives(c.GPU_MEMORY_FREE_BYTES, BYTES),),
        ),
        Call(
            "nvmlDeviceGetMemoryInfo", Struct("c_nvmlMemory_t", ("free",)),
            (Gives(c.GPU_MEMORY_FREE_BYTES, BYTES),),
        ),
    ),
    (
        Call(
            "nvmlDeviceGetBAR1MemoryInfo", Struct("c_nvmlBAR1Memory_t", ("bar1Total", "bar1Used")),
            (Gives(c.GPU_BAR1_TOTAL_BYTES, BYTES), Gives(c.GPU_BAR1_USED_BYTES, BYTES, at=1)),
            beat=SLOW,
        ),
    ),
    *(
        (
            Call(
                f"nvmlDeviceGet{name}Utilization", ("u32", "u32"),
                (Gives(c.GPU_VIDEO_UTILIZATION_RATIO, PERCENT, (unit,)),),
            ),
        )
        for name, unit in (
            ("Encoder", "encoder"), ("Decoder", "decoder"), ("Jpg", "jpeg"), ("Ofa", "optical_flow")
        )
    ),
    *(
        (
            Field(
                number, Gives(c.GPU_PART_POWER_WATTS, MILLIWATTS, (part, kind)), scope
            ),
        )
        for part, scope in (("module", _MODULE), ("memory", _MEMORY))
        for number, kind in ((185, "average"), (186, "instant"))
    ),
    (
        Call(
            "nvmlDeviceGetPowerManagementLimit", "u32",
            (Gives(c.GPU_POWER_LIMIT_WATTS, _SOME_MILLIWATTS, ("requested",)),), beat=SLOW,
        ),
    ),
    (
        Call(
            "nvmlDeviceGetPowerManagementLimitConstraints", ("u32", "u32"),
            (
                Gives(c.GPU_POWER_LIMIT_WATTS, _SOME_MILLIWATTS, ("minimum",)),
                Gives(c.GPU_POWER_LIMIT_WATTS, _SOME_MILLIWATTS, ("maximum",), at=1),
            ),
            beat=SLOW,
        ),
    ),
    *(
        (
            Call(
                "nvmlDeviceGetTemperatureThreshold", "u32",
                (Gives(c.GPU_TEMPERATURE_LIMIT_CELSIUS, _SOME_CELSIUS, (limit,)),),
                (number,), SLOW,
            ),
        )
        for limit, number in (
            ("shutdown", _SHUTDOWN), ("slowdown", _SLOWDOWN), ("memory", _MEM_MAX),
            ("core", _GPU_MAX),
        )
    ),
    *(
        (
            Field(number, Gives(c.GPU_TEMPERATURE_MARGIN_LIMIT_CELSIUS, CELSIUS, (limit,)),
                  beat=SLOW),
        )
        for number, limit in ((193, "shutdown"), (194, "slowdown"), (195, "memory"), (196, "core"))
    ),
    (_clock(_NOW, c.GPU_CLOCK_HERTZ, "graphics", beat=FAST),),
    (_clock(_NOW, c.GPU_CLOCK_HERTZ, "video", beat=FAST),),
    (_clock(_MAX, c.GPU_CLOCK_MAX_HERTZ, "graphics", beat=SLOW),),
    (_clock(_MAX, c.GPU_CLOCK_MAX_HERTZ, "video", beat=SLOW),),
    (
        _throttling("nvmlDeviceGetCurrentClocksEventReasons", _MORE_REASONS),
        _throttling("nvmlDeviceGetCurrentClocksThrottleReasons", _MORE_REASONS),
    ),
    *(
        (_throttled(number, reason),)
        for number, reason in (
            (75, "thermal"), (76, "sync_boost"), (77, "board_limit"), (78, "low_utilization"),
            (79, "reliability"),
        )
    ),
    *(
        (_ecc_at(kind, counter, location),)
        for kind in ("corrected", "uncorrected")
        for counter in ("volatile", "aggregate")
        for location in _LOCATIONS
    ),
    *(
        (Field(number, Gives(c.GPU_PCIE_ERRORS_TOTAL, TIMES, (cause,)), beat=SLOW),)
        for number, cause in (
            (173, "correctable"), (174, "naks_received"), (175, "receiver"), (176, "bad_tlp"),
            (177, "naks_sent"), (178, "bad_dllp"), (179, "non_fatal"), (180, "fatal"),
            (181, "unsupported_request"), (182, "lcrc"), (183, "lane"), (169, "l0_to_recovery"),
        )
    ),
    (
        Call("nvmlDeviceGetComputeMode", "u32", (Gives(c.GPU_COMPUTE_MODE, Unit(1, 1, 3)),),
             beat=SLOW),
    ),
)  # fmt: skip
"""What is asked as well with `detail: true`: what few need each day, and what the names of other
exporters stand for."""

BANKS = Call(
    "nvmlDeviceGetRowRemapperHistogram",
    Struct("c_nvmlRowRemapperHistogramValues", ("max", "high", "partial", "low", "none")),
    tuple(
        Gives(c.GPU_ROW_REMAP_BANKS, FEW, (name,), at)
        for at, name in enumerate(("max", "high", "partial", "low", "none"))
    ),
    beat=SLOW,
)  # fmt: skip
"""Not asked of a vGPU: its kernel writes a warning each time (nvidia_gpu_exporter 384)."""


class LinkField(NamedTuple):
    """A value of one NVLink: field number, and the cause that it counts."""

    number: int
    cause: str


LINK_STATE = Call(
    "nvmlDeviceGetNvLinkState", "u32", (Gives(c.GPU_NVLINK_LINK_UP, FLAG),), beat=SLOW
)
LINK_PEERS: Mapping[int, str] = {0: "gpu", 1: "cpu", 2: "switch"}
"""nvmlDeviceGetNvLinkRemoteDeviceType. 255 is unknown."""

LINK_COUNT = 91
LINK_RATE = (164, MEGABYTES_PER_SECOND)
"""NVML_FI_DEV_NVLINK_GET_SPEED: megabytes per second and link, for all its name in the header."""

LINK_BYTES: tuple[tuple[int, int, Unit], ...] = (
    (204, 202, BYTES_COUNTED),
    (139, 138, KIBIBYTES_COUNTED),
)
"""Received and sent payload of a link, and its unit: NVLink 5 in bytes, before it in KiB. NVLink 5
first: whether it still counts by the old numbers nobody has said."""

LINK_ERRORS: tuple[tuple[LinkField, ...], ...] = (
    # NVLink 5 (Blackwell). Its drivers also answer 161 and 162, with something else than the
    # header says (nvidia-resiliency-ext 302): one generation's counters only.
    (
        LinkField(206, "malformed_packet"), LinkField(207, "buffer_overrun"),
        LinkField(208, "receive"), LinkField(209, "receive_remote"),
        LinkField(210, "receive_general"), LinkField(211, "local_link_integrity"),
        LinkField(212, "transmit_discard"), LinkField(213, "recovery_successful"),
        LinkField(214, "recovery_failed"), LinkField(215, "recovery"),
        LinkField(219, "effective"), LinkField(221, "symbol"),
    ),
    (LinkField(161, "replay"), LinkField(162, "recovery"), LinkField(163, "crc")),
)  # fmt: skip

LINK_ERROR_CALLS: tuple[tuple[int, str], ...] = (
    (0, "replay"), (1, "recovery"), (2, "crc_flit"), (3, "crc_data"), (4, "ecc_data"),
)  # fmt: skip
"""nvmlDeviceGetNvLinkErrorCounter, for generations that have no fields (Volta, Ampere)."""

PCIE_BYTES: tuple[tuple[int, Metric], ...] = (
    (198, c.GPU_PCIE_RECEIVE_BYTES_TOTAL),
    (197, c.GPU_PCIE_TRANSMIT_BYTES_TOTAL),
)
"""Counters of bytes; believed where they have 64 bits. 32 bits wrap twelve times a second."""

PCIE_RATES: tuple[tuple[int, Metric], ...] = (
    (1, c.GPU_PCIE_RECEIVE_BYTES_PER_SECOND),
    (0, c.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND),
)
"""nvmlDeviceGetPcieThroughput: KB/s over 20 ms in which the call blocks. Rarely, and as a last
resort: for eight GPUs it is 320 ms."""

C2C_STATUS, C2C_BANDWIDTH = 171, (172, MEGABYTES_PER_SECOND)
C2C_ERRORS: tuple[tuple[int, str], ...] = (
    (231, "crc"), (232, "replay"), (233, "replay_back_to_back"),
)  # fmt: skip


FABRIC_STATE = Unit(1, 1, 3, 1)
FABRIC: tuple[tuple[str, Struct], ...] = (
    (
        "nvmlDeviceGetGpuFabricInfoV",
        Struct(
            "c_nvmlGpuFabricInfo_v3_t",
            ("state", "status", "healthMask", "healthSummary"),
            "nvmlGpuFabricInfo_v3",
        ),
    ),
    (
        "nvmlDeviceGetGpuFabricInfoV",
        Struct(
            "c_nvmlGpuFabricInfo_v2_t", ("state", "status", "healthMask"), "nvmlGpuFabricInfo_v2"
        ),
    ),
    ("nvmlDeviceGetGpuFabricInfo", Struct("c_nvmlGpuFabricInfo_t", ("state", "status"))),
)
"""State (0: not supported), status and, in newer ones, the mask of faults and their summary."""


class GpmMetric(NamedTuple):
    """A GPM metric: number, unit, family for the whole GPU and for an instance, and integrals."""

    number: int
    unit: Unit
    metric: Metric
    labels: tuple[str, ...] = ()
    total: Metric | None = None
    mig: Metric | None = None
    mig_total: Metric | None = None


GPM_PERCENT = Unit(1, 100, 101)
"""GPM's percentages are fractions of the driver's own; a hair above 100 is rounding."""

GPM_MEBIBYTES_PER_SECOND = Unit(1024 * 1024, 1, 2**31)

GPM: tuple[GpmMetric, ...] = (
    GpmMetric(2, GPM_PERCENT, c.GPU_SM_ACTIVE_RATIO, (), c.GPU_SM_ACTIVE_SECONDS_TOTAL,
              c.GPU_MIG_SM_ACTIVE_RATIO, c.GPU_MIG_SM_ACTIVE_SECONDS_TOTAL),
    GpmMetric(3, GPM_PERCENT, c.GPU_SM_OCCUPANCY_RATIO, mig=c.GPU_MIG_SM_OCCUPANCY_RATIO),
    GpmMetric(5, GPM_PERCENT, c.GPU_TENSOR_ACTIVE_RATIO, (), c.GPU_TENSOR_ACTIVE_SECONDS_TOTAL,
              c.GPU_MIG_TENSOR_ACTIVE_RATIO, c.GPU_MIG_TENSOR_ACTIVE_SECONDS_TOTAL),
    GpmMetric(10, GPM_PERCENT, c.GPU_DRAM_ACTIVE_RATIO, (), c.GPU_DRAM_ACTIVE_SECONDS_TOTAL,
              c.GPU_MIG_DRAM_ACTIVE_RATIO, c.GPU_MIG_DRAM_ACTIVE_SECONDS_TOTAL),
    GpmMetric(7, GPM_PERCENT, c.GPU_PIPE_ACTIVE_RATIO, ("tensor_half",)),
)  # fmt: skip

GPM_DETAILS: tuple[GpmMetric, ...] = (
    GpmMetric(1, GPM_PERCENT, c.GPU_GRAPHICS_ACTIVE_RATIO, mig=c.GPU_MIG_GRAPHICS_ACTIVE_RATIO),
    *(
        GpmMetric(number, GPM_PERCENT, c.GPU_PIPE_ACTIVE_RATIO, (pipe,))
        for number, pipe in (
            (4, "integer"), (6, "tensor_dfma"), (8, "tensor_dmma"), (9, "tensor_integer"),
            (11, "fp64"), (12, "fp32"), (13, "fp16"),
        )
    ),
)  # fmt: skip

GPM_BYTES: tuple[tuple[int, Metric], ...] = (
    (21, c.GPU_PCIE_RECEIVE_BYTES_TOTAL),
    (20, c.GPU_PCIE_TRANSMIT_BYTES_TOTAL),
    (60, c.GPU_NVLINK_RECEIVE_BYTES_TOTAL),
    (61, c.GPU_NVLINK_TRANSMIT_BYTES_TOTAL),
)
"""Rates in MiB/s over the window, whose integral stands in where the hardware's own counters of
bytes cannot be read."""

LIARS: Mapping[str, frozenset[str]] = {
    # 0 % and success while it draws 20 W (rezolus 1105).
    "NVIDIA Thor": frozenset({"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetSamples"}),
}
"""Functions that a product answers with something false, by the product's exact name."""

ARCHITECTURES: Mapping[int, str] = {
    2: "kepler", 3: "maxwell", 4: "pascal", 5: "volta", 6: "turing", 7: "ampere", 8: "ada",
    9: "hopper", 10: "blackwell", 13: "rubin",
}  # fmt: skip
LAST_INSTANT = (8, 0)
"""Up to this compute capability (GA100) nvmlDeviceGetPowerUsage is instant, then an average over a
second (nvml.h)."""


def is_true_of(rung: Rung, capability: tuple[int, int] | None) -> bool:
    """Tell whether a row's labels are true on a GPU of this compute capability."""
    if not isinstance(rung, Call) or rung.function != POWER_USAGE or capability is None:
        return True
    return (rung.gives[0].labels == ("instant",)) == (capability <= LAST_INSTANT)


VIRTUALIZATION: Mapping[int, str] = {
    0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga",
}  # fmt: skip
