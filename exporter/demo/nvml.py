"""NVIDIA's library on the made-up node: what it would answer, in its own units.

It stands in the place of the door to the real library (`exporter.nvml.driver`), below the real
reader. The board is an H100 SXM as recorded (driver 590.48): what that does not support is refused
with the library's own codes. Numbers are read from the model at the moment of the call; nothing
here counts or remembers but which errors have been told.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from exporter.demo.gpus import HOTTEST, LIMIT, RESERVED, TOP, TOTAL, Gpu, Sums
from exporter.demo.node import Node
from exporter.nvml.driver import (
    ALL_LINKS,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    UNINITIALIZED,
    Answer,
    FieldAnswer,
    NvmlError,
    ProcessSample,
    Struct,
)

_SAYS: Mapping[int, str] = {
    UNINITIALIZED: "Uninitialized",
    INVALID_ARGUMENT: "Invalid Argument",
    NOT_SUPPORTED: "Not Supported",
    FUNCTION_NOT_FOUND: "Function Not Found",
    GPU_IS_LOST: "GPU is lost",
}
_LINKS, _LINK_MEGABYTES = 18, 26_562
_SWITCH = 2
_KIB, _MIB = 1024, 1024 * 1024
_MEMORY_CLOCK, _VIDEO_CLOCK = 2619, 1545
_BANKS = 2560
_CORRECTED, _VOLATILE, _DRAM, _SRAM = 0, 0, 2, 7
_RESET_AFTER_DRAINING = 4


def _error(code: int, function: str) -> NvmlError:
    return NvmlError(code, function, _SAYS[code])


def _milli(value: float) -> int:
    return round(value * 1000)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


_SYSTEM: Mapping[str, int | str] = {
    "nvmlSystemGetDriverVersion": "590.48.01",
    "nvmlSystemGetNVMLVersion": "13.590.48.01",
    "nvmlSystemGetCudaDriverVersion": 13_010,
}

_BOARD: Mapping[str, Any] = {
    "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetVbiosVersion": "96.00.A5.00.01",
    "nvmlDeviceGetArchitecture": 9,
    "nvmlDeviceGetCudaComputeCapability": (9, 0),
    "nvmlDeviceGetNumGpuCores": 16_896,
    "nvmlDeviceGetVirtualizationMode": 0,
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetComputeMode": 0,
    "nvmlDeviceGetMigMode": (0, 0),
    "nvmlDeviceGetEccMode": (1, 1),
    "nvmlDeviceGetPerformanceState": 0,
    "nvmlDeviceGetEnforcedPowerLimit": _milli(LIMIT),
    "nvmlDeviceGetPowerManagementLimit": _milli(LIMIT),
    "nvmlDeviceGetPowerManagementDefaultLimit": _milli(LIMIT),
    "nvmlDeviceGetPowerManagementLimitConstraints": (200_000, _milli(LIMIT)),
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetPcieReplayCounter": 0,
    "nvmlDeviceGetEncoderUtilization": (0, 166_667),
    "nvmlDeviceGetDecoderUtilization": (0, 166_667),
    "nvmlDeviceGetJpgUtilization": (0, 166_667),
    "nvmlDeviceGetOfaUtilization": (0, 166_667),
    "nvmlDeviceGetSramEccErrorStatus": {"bThresholdExceeded": 0},
    "nvmlDeviceGetGpuFabricInfo": {"state": 3, "status": 0},
    # two bits for each fault, 0: not told, as recorded
    "nvmlDeviceGetGpuFabricInfoV": {
        "state": 3,
        "status": 0,
        "healthMask": 0,
        "healthSummary": 0,
    },
}
"""What all boards answer alike. Answers that come in a structure are by the structure's fields."""

_REFUSED = frozenset({"nvmlDeviceGetNumFans", "nvmlDeviceGetFanSpeed", "nvmlDeviceGetFanSpeed_v2"})


def _memory(gpu: Gpu) -> Mapping[str, int]:
    used = gpu.used
    return {"total": TOTAL, "reserved": RESERVED, "used": used, "free": TOTAL - RESERVED - used}


def _memory_with_reserve(gpu: Gpu) -> Mapping[str, int]:
    used = gpu.used + RESERVED  # the older function counts the reserve as used
    return {"total": TOTAL, "used": used, "free": TOTAL - used}


def _utilization(gpu: Gpu) -> tuple[int, int]:
    return gpu.utilization[-1][1], round(100 * gpu.rates.memory)


def _clock(gpu: Gpu, domain: int) -> int:
    return (gpu.clock, gpu.clock, _MEMORY_CLOCK, _VIDEO_CLOCK)[domain]


def _max_clock(_: Gpu, domain: int) -> int:
    return (TOP, TOP, _MEMORY_CLOCK, _VIDEO_CLOCK)[domain]


def _reasons(gpu: Gpu) -> int:
    idle = 0x1 * (gpu.utilization[-1][1] == 0)
    return idle | {"cap": 0x2, "power": 0x4, "heat": 0x20}.get(gpu.holding, 0)


def _threshold(_: Gpu, which: int) -> int:
    return (HOTTEST + 8, HOTTEST + 2, 95, HOTTEST)[which]


def _errors(gpu: Gpu, kind: int, counter: int) -> int:
    if kind == _CORRECTED:
        return gpu.corrected + (0 if counter == _VOLATILE else gpu.corrected_before)
    return gpu.uncorrected + (0 if counter == _VOLATILE else gpu.uncorrected_before)


def _errors_at(gpu: Gpu, kind: int, counter: int, location: int) -> int:
    if location not in (_DRAM, _SRAM):
        raise _error(NOT_SUPPORTED, "nvmlDeviceGetMemoryErrorCounter")
    return _errors(gpu, kind, counter) if location == _DRAM else 0


def _spare_rows(gpu: Gpu) -> Mapping[str, int]:
    high = gpu.remapped
    return {"max": _BANKS - high, "high": high, "partial": 0, "low": 0, "none": 0}


def _pcie_rate(gpu: Gpu, direction: int) -> int:
    return round((gpu.rates.sent, gpu.rates.received)[direction] / 1000)


def _link_state(_: Gpu, link: int) -> int:
    if link >= _LINKS:
        raise _error(INVALID_ARGUMENT, "nvmlDeviceGetNvLinkState")
    return 1


def _link_peer(gpu: Gpu, link: int) -> int:
    _link_state(gpu, link)
    return _SWITCH


def _link_errors(gpu: Gpu, link: int, _: int) -> int:
    _link_state(gpu, link)
    return 0


_GPU: Mapping[str, Callable[..., Any]] = {
    "nvmlDeviceGetUUID": lambda gpu: gpu.uuid,
    "nvmlDeviceGetSerial": lambda gpu: gpu.serial,
    "nvmlDeviceGetPciInfo_v3": lambda gpu: {
        "busId": f"0000{gpu.address.upper()}",
        "pciDeviceId": 0x233010DE,
    },
    "nvmlDeviceGetUtilizationRates": _utilization,
    "nvmlDeviceGetMemoryInfo_v2": _memory,
    "nvmlDeviceGetMemoryInfo": _memory_with_reserve,
    "nvmlDeviceGetBAR1MemoryInfo": lambda gpu: {
        "bar1Total": 131_072 * _MIB,
        "bar1Used": gpu.used + _MIB,
    },
    "nvmlDeviceGetPowerUsage": lambda gpu: _milli(gpu.average_power),
    "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: _milli(gpu.energy),
    "nvmlDeviceGetTemperature": lambda gpu, _: round(gpu.temperature),
    "nvmlDeviceGetTemperatureV": lambda gpu: {"temperature": round(gpu.temperature)},
    "nvmlDeviceGetMarginTemperature": lambda gpu: {
        "marginTemperature": HOTTEST - round(gpu.temperature)
    },
    "nvmlDeviceGetTemperatureThreshold": _threshold,
    "nvmlDeviceGetClockInfo": _clock,
    "nvmlDeviceGetMaxClockInfo": _max_clock,
    "nvmlDeviceGetCurrentClocksEventReasons": _reasons,
    "nvmlDeviceGetCurrentClocksThrottleReasons": _reasons,
    "nvmlDeviceGetTotalEccErrors": _errors,
    "nvmlDeviceGetMemoryErrorCounter": _errors_at,
    "nvmlDeviceGetRemappedRows": lambda gpu: (0, gpu.remapped, int(gpu.remap_pending), 0),
    "nvmlDeviceGetRowRemapperHistogram": _spare_rows,
    "nvmlDeviceGetPcieThroughput": _pcie_rate,
    "nvmlDeviceGetNvLinkState": _link_state,
    "nvmlDeviceGetNvLinkRemoteDeviceType": _link_peer,
    "nvmlDeviceGetNvLinkErrorCounter": _link_errors,
}
"""What each GPU answers for itself; arguments after the GPU are the library's."""


class _Field(NamedTuple):
    """A field by number: how a value is read from a GPU and a scope, and whether it has 64 bits."""

    read: Callable[[Gpu, int], int]
    wide: bool = False


def _always(value: int) -> _Field:
    return _Field(lambda _gpu, _scope: value)


def _held(read: Callable[[Gpu], float]) -> _Field:
    return _Field(lambda gpu, _: _nanoseconds(read(gpu)), wide=True)


def _average_power(gpu: Gpu, scope: int) -> int:
    if scope == 1:
        raise _error(NOT_SUPPORTED, "nvmlDeviceGetFieldValues")
    return _milli(gpu.average_power if scope == 0 else gpu.memory_power)


def _instant_power(gpu: Gpu, scope: int) -> int:
    if scope != 0:
        raise _error(NOT_SUPPORTED, "nvmlDeviceGetFieldValues")
    return _milli(gpu.power)


def _of_links(gpu: Gpu, scope: int, total: int) -> int:
    """Return the share of one link, or of all together if that is the scope."""
    if scope == ALL_LINKS:
        return total // _LINKS * _LINKS
    _link_state(gpu, scope)
    return total // _LINKS


def _link_kibibytes(gpu: Gpu, scope: int) -> int:
    return _of_links(gpu, scope, int(gpu.sums.nvlink) // _KIB)


_FIELDS: Mapping[int, _Field] = {
    74: _held(lambda gpu: gpu.capped),
    75: _held(lambda gpu: gpu.too_hot),
    76: _held(lambda _: 0),
    77: _held(lambda _: 0),
    78: _held(lambda _: 0),
    79: _held(lambda _: 0),
    82: _Field(lambda gpu, _: round(gpu.memory_temperature)),
    83: _Field(lambda gpu, _: _milli(gpu.energy), wide=True),
    91: _always(_LINKS),
    94: _always(0),
    138: _Field(_link_kibibytes, wide=True),
    139: _Field(_link_kibibytes, wide=True),
    **{n: _Field(lambda gpu, scope: _of_links(gpu, scope, 0), wide=True) for n in (161, 162, 163)},
    164: _always(_LINK_MEGABYTES),
    169: _always(0),
    **{n: _always(0) for n in range(173, 184)},
    185: _Field(_average_power),
    186: _Field(_instant_power),
    193: _always(-8),
    194: _always(-2),
    195: _always(0),
    196: _always(0),
    197: _Field(lambda gpu, _: int(gpu.sums.sent), wide=True),
    198: _Field(lambda gpu, _: int(gpu.sums.received), wide=True),
    # a contained memory error asks for this (nvidia-smi's manual)
    230: _Field(lambda gpu, _: _RESET_AFTER_DRAINING * gpu.remap_pending),
    269: _held(lambda gpu: gpu.too_hot),
    270: _held(lambda _: 0),
    271: _held(lambda _: 0),
}

_GPM: Mapping[int, tuple[str, float]] = {
    1: ("kernels", 100), 2: ("sms", 100), 3: ("warps", 100), 4: ("sms", 11), 5: ("tensor", 100),
    6: ("tensor", 0), 7: ("tensor", 100), 8: ("tensor", 0), 9: ("tensor", 0), 10: ("memory", 100),
    11: ("sms", 0), 12: ("sms", 14), 13: ("sms", 3), 20: ("sent", 1 / _MIB),
    21: ("received", 1 / _MIB), 60: ("nvlink", 1 / _MIB), 61: ("nvlink", 1 / _MIB),
}  # fmt: skip
"""Which integral a metric is the slope of, and what the slope is multiplied with."""


class GpmSample:
    """Room for the integrals of one GPU at one moment."""

    def __init__(self) -> None:
        self.gpu: Gpu | None = None
        self.sums = Sums()


class DemoNvml:
    """The library over a node that moves: each answer is taken while `lock` is held.

    A handle is the model's own `Gpu`. The latest tick counts: a sixth of a second old at most.
    """

    def __init__(self, node: Node, lock: threading.Lock) -> None:
        self._node = node
        self._lock = lock
        self._started = 0

    @property
    def seconds(self) -> float:
        """No time: nothing here waits for hardware."""
        return 0.0

    def start(self) -> None:
        """Begin to answer."""
        with self._lock:
            self._started += 1

    def stop(self) -> None:
        """Answer no more, once it has been called as often as `start`."""
        with self._lock:
            self._check("nvmlShutdown")
            self._started -= 1

    def bind(self, function: str, answer: Answer, *arguments: Any) -> Callable[[], Any]:
        """Return a call that is ready to be made; a function that there is not is refused now."""
        ask = self._ask(function, arguments)

        def bound() -> Any:
            with self._lock:
                self._check(function, *arguments[:1])
                told = ask()
            if isinstance(answer, Struct):
                return tuple(told[name] for name in answer.fields)
            return told

        return bound

    def _ask(self, function: str, arguments: tuple[Any, ...]) -> Callable[[], Any]:
        if function == "nvmlDeviceGetCount_v2":
            return lambda: len(self._node.gpus.all)
        if function in _SYSTEM:
            return lambda: _SYSTEM[function]
        if function in _BOARD:
            return lambda: _BOARD[function]
        if function in _GPU:
            read = _GPU[function]
            return lambda: read(*arguments)
        if function not in _REFUSED:
            raise _error(FUNCTION_NOT_FOUND, function)

        def refuse() -> Any:
            raise _error(NOT_SUPPORTED, function)

        return refuse

    def device(self, index: int) -> Gpu:
        """Return a handle for the GPU of this index."""
        with self._lock:
            found = self._node.gpus.all[index]
            self._check("nvmlDeviceGetHandleByIndex_v2", found)
            return found

    def address(self, device: Gpu) -> int:
        """Return a number that tells handles apart."""
        return device.index

    def fields(
        self, device: Gpu, wanted: Sequence[tuple[int, int]]
    ) -> Callable[[], Sequence[FieldAnswer]]:
        """Return a call for field values by (number, scope)."""

        def bound() -> Sequence[FieldAnswer]:
            with self._lock:
                self._check("nvmlDeviceGetFieldValues", device)
                return [_field(device, number, scope) for number, scope in wanted]

        return bound

    def processes(self, device: Gpu) -> Sequence[ProcessSample]:
        """Return the processes on a GPU."""
        with self._lock:
            self._check("nvmlDeviceGetComputeRunningProcesses_v3", device)
            return [ProcessSample(one.pid, one.memory, None) for one in device.processes]

    def process_shares(self, device: Gpu, since: int) -> Sequence[tuple[int, int, int]]:
        """Return (pid, microseconds, percent of SM time) of the last sample, if it is newer."""
        with self._lock:
            self._check("nvmlDeviceGetProcessUtilization", device)
            moment, percent = device.utilization[-1]
            stamp = self._stamp(moment)
            return [
                (one.pid, stamp, round(percent * one.share))
                for one in device.processes
                if stamp > since
            ]

    def utilization_samples(self, device: Gpu, since: int) -> Sequence[tuple[int, int]]:
        """Return the (microseconds, percent) samples newer than `since`, one for each tick."""
        with self._lock:
            self._check("nvmlDeviceGetSamples", device)
            stamped = [(self._stamp(moment), percent) for moment, percent in device.utilization]
        return [sample for sample in stamped if sample[0] > since]

    def _stamp(self, moment: float) -> int:
        return round((self._node.born + moment) * 1e6)

    def mig_devices(self, device: Gpu) -> Sequence[Any]:
        """Return nothing: no GPU is split."""
        with self._lock:
            self._check("nvmlDeviceGetMaxMigDeviceCount", device)
        return ()

    def watch_xids(self, device: Gpu) -> Callable[[int], Sequence[int]]:
        """Return a call for the codes of this GPU that have come since now, each once."""
        with self._lock:
            self._check("nvmlEventSetCreate")
            told = max((xid.number for xid in self._node.gpus.xids), default=0)

        def come(most: int) -> Sequence[int]:
            nonlocal told
            with self._lock:
                self._check("nvmlEventSetWait_v2")
                xids = self._node.gpus.xids
                new = [x for x in xids if x.number > told and x.gpu == device.index][:most]
                told = new[-1].number if new else told
            return [xid.code for xid in new]

        return come

    def gpm_supported(self, device: Gpu) -> bool:
        """Tell that the counters are there, as on every Hopper."""
        with self._lock:
            self._check("nvmlGpmQueryDeviceSupport", device)
        return True

    def gpm_sample(self) -> GpmSample:
        """Return room for one sample of the counters."""
        with self._lock:
            self._check("nvmlGpmSampleAlloc")
        return GpmSample()

    def gpm_take(self, device: Gpu, sample: GpmSample, instance: int | None) -> None:
        """Fill the sample with the integrals up to now. There are no instances."""
        with self._lock:
            self._check("nvmlGpmSampleGet", device)
            if instance is not None:
                raise _error(NOT_SUPPORTED, "nvmlGpmMigSampleGet")
            sample.gpu, sample.sums = device, device.sums

    def gpm_metrics(
        self, earlier: GpmSample, later: GpmSample, wanted: Sequence[int]
    ) -> Sequence[tuple[int, float]]:
        """Return (code, value) for each metric: the average between two samples.

        If no tick has passed in between, the last tick's is what there is.
        """
        with self._lock:
            self._check("nvmlGpmMetricsGet")
            gpu, before, after = later.gpu, earlier.sums, later.sums
            if gpu is None or gpu is not earlier.gpu or after.seconds < before.seconds:
                raise _error(INVALID_ARGUMENT, "nvmlGpmMetricsGet")
            if after.seconds == before.seconds:
                before, after = Sums(), gpu.rates
        return [_slope(number, before, after) for number in wanted]

    def gpm_free(self, sample: GpmSample) -> None:
        """Give the room back; it cannot be used for metrics any more."""
        with self._lock:
            self._check("nvmlGpmSampleFree")
            sample.gpu = None

    def _check(self, function: str, device: object = None) -> None:
        if not self._started:
            raise _error(UNINITIALIZED, function)
        if isinstance(device, Gpu) and device.index == self._node.gpus.lost:
            raise _error(GPU_IS_LOST, function)


def _field(gpu: Gpu, number: int, scope: int) -> FieldAnswer:
    field = _FIELDS.get(number)
    if field is None:
        return FieldAnswer(NOT_SUPPORTED, math.nan, wide=False)
    try:
        return FieldAnswer(0, field.read(gpu, scope), field.wide)
    except NvmlError as error:
        return FieldAnswer(error.code, math.nan, wide=False)


def _slope(number: int, before: Sums, after: Sums) -> tuple[int, float]:
    if number not in _GPM:
        return NOT_SUPPORTED, math.nan
    name, times = _GPM[number]
    grown: float = getattr(after, name) - getattr(before, name)
    return 0, times * grown / (after.seconds - before.seconds)
