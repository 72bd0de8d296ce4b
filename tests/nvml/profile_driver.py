"""A driver in Python that answers from a profile of `tests/fake_nvml`: hundreds of runs a second.

It stands where `exporter.nvml.driver.Nvml` does and answers what that would over the C library; a
test compares the two. What it knows beside the profile is the shape of each function, so a reader
that asks with a buffer of another size than the driver writes fails here and not in memory. Faults
are return codes; hangs, crashes, delays and events are left to the C library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from exporter.nvml.driver import (
    ARGUMENT_VERSION_MISMATCH,
    FUNCTION_NOT_FOUND,
    INSUFFICIENT_SIZE,
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    UNINITIALIZED,
    UNSUPPORTED,
    Answer,
    Block,
    FieldAnswer,
    NvmlError,
    ProcessSample,
    Struct,
    Text,
)
from tests import fake_nvml
from tests.fake_nvml import Profile

NO_INSTANCE = 0xFFFFFFFF
ALL_ONES = 0xFFFFFFFFFFFFFFFF
TICK = 1 / 6
SAMPLES = 120


class Gpu(NamedTuple):
    """A handle of a GPU: its number in the profile."""

    number: int


class Mig(NamedTuple):
    """A handle of a MIG device."""

    number: int
    gi: int
    ci: int
    uuid: str


class Layout(NamedTuple):
    """A structure: pynvml's name, the version that the function takes, and which of a line's
    values each field is. `other` is the function whose lines hold where there are none."""

    struct: str
    version: str
    places: Mapping[str, int]
    inputs: tuple[str, ...] = ()
    other: str = ""


class Shape(NamedTuple):
    """A function: how many arguments after the handle, and what it writes."""

    arguments: int
    writes: tuple[str, ...] | Block | Text | Layout
    other: str = ""
    system: bool = False


def _each(names: str, shape: Shape) -> dict[str, Shape]:
    return dict.fromkeys(names.split(), shape)


_EVENTS = "nvmlDeviceGetCurrentClocksEventReasons"
_FABRIC = {"status": 1, "cliqueId": 2, "state": 3, "healthMask": 4}
_SRAM = (
    "aggregateUncParity", "aggregateUncSecDed", "aggregateCor", "volatileUncParity",
    "volatileUncSecDed", "volatileCor", "aggregateUncBucketL2", "aggregateUncBucketSm",
    "aggregateUncBucketPcie", "aggregateUncBucketMcu", "aggregateUncBucketOther",
    "bThresholdExceeded",
)  # fmt: skip
_BANKS = ("max", "high", "partial", "low", "none")
_MEMORY_2 = {"total": 0, "reserved": 1, "free": 2, "used": 3}

SHAPES: Mapping[str, Shape] = {
    **_each("nvmlSystemGetDriverVersion nvmlSystemGetNVMLVersion", Shape(0, Text(), system=True)),
    "nvmlSystemGetCudaDriverVersion": Shape(0, ("i32",), system=True),
    "nvmlDeviceGetCount_v2": Shape(0, ("u32",), system=True),
    **_each(
        "nvmlDeviceGetUUID nvmlDeviceGetName nvmlDeviceGetSerial nvmlDeviceGetVbiosVersion"
        " nvmlDeviceGetBoardPartNumber nvmlDeviceGetInforomImageVersion",
        Shape(0, Text()),
    ),
    **_each(
        "nvmlDeviceGetNumGpuCores nvmlDeviceGetArchitecture nvmlDeviceGetVirtualizationMode"
        " nvmlDeviceGetMinorNumber nvmlDeviceGetPowerUsage nvmlDeviceGetEnforcedPowerLimit"
        " nvmlDeviceGetPowerManagementLimit nvmlDeviceGetPowerManagementDefaultLimit"
        " nvmlDeviceGetPcieReplayCounter nvmlDeviceGetCurrPcieLinkWidth"
        " nvmlDeviceGetMaxPcieLinkWidth nvmlDeviceGetCurrPcieLinkGeneration"
        " nvmlDeviceGetMaxPcieLinkGeneration nvmlDeviceGetGpuMaxPcieLinkGeneration"
        " nvmlDeviceGetPerformanceState nvmlDeviceGetPowerState nvmlDeviceGetPersistenceMode"
        " nvmlDeviceGetComputeMode nvmlDeviceGetNumFans nvmlDeviceGetFanSpeed"
        " nvmlDeviceGetDisplayActive nvmlDeviceGetGpuInstanceId nvmlDeviceGetComputeInstanceId"
        " nvmlDeviceGetMaxMigDeviceCount",
        Shape(0, ("u32",)),
    ),
    **_each(
        "nvmlDeviceGetTemperature nvmlDeviceGetTemperatureThreshold nvmlDeviceGetClockInfo"
        " nvmlDeviceGetMaxClockInfo nvmlDeviceGetMaxCustomerBoostClock nvmlDeviceGetFanSpeed_v2"
        " nvmlDeviceGetTargetFanSpeed nvmlDeviceGetNvLinkState nvmlDeviceGetNvLinkVersion"
        " nvmlDeviceGetNvLinkRemoteDeviceType nvmlDeviceGetPcieThroughput",
        Shape(1, ("u32",)),
    ),
    "nvmlDeviceGetTotalEnergyConsumption": Shape(0, ("u64",)),
    _EVENTS: Shape(0, ("u64",)),
    "nvmlDeviceGetCurrentClocksThrottleReasons": Shape(0, ("u64",), _EVENTS),
    "nvmlDeviceGetSupportedClocksEventReasons": Shape(0, ("u64",)),
    "nvmlDeviceGetTotalEccErrors": Shape(2, ("u64",)),
    "nvmlDeviceGetMemoryErrorCounter": Shape(3, ("u64",)),
    "nvmlDeviceGetNvLinkErrorCounter": Shape(2, ("u64",)),
    **_each(
        "nvmlDeviceGetEncoderUtilization"
        " nvmlDeviceGetDecoderUtilization nvmlDeviceGetJpgUtilization nvmlDeviceGetOfaUtilization"
        " nvmlDeviceGetEccMode nvmlDeviceGetMigMode nvmlDeviceGetMinMaxFanSpeed"
        " nvmlDeviceGetPowerManagementLimitConstraints",
        Shape(0, ("u32", "u32")),
    ),
    "nvmlDeviceGetUtilizationRates": Shape(0, Block(2)),
    "nvmlDeviceGetCudaComputeCapability": Shape(0, ("i32", "i32")),
    "nvmlDeviceGetRemappedRows": Shape(0, ("u32",) * 4),
    "nvmlDeviceGetPciInfo_v3": Shape(
        0, Layout("nvmlPciInfo_t", "", {"busId": 0, "pciDeviceId": 1, "pciSubSystemId": 2})
    ),
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": Shape(
        1, Layout("nvmlPciInfo_t", "", {"busId": 0, "pciDeviceId": 1, "pciSubSystemId": 2})
    ),
    "nvmlDeviceGetMemoryInfo_v2": Shape(0, Layout("c_nvmlMemory_v2_t", "nvmlMemory_v2", _MEMORY_2)),
    "nvmlDeviceGetMemoryInfo": Shape(
        0, Layout("c_nvmlMemory_t", "", {"total": 0, "free": 1, "used": 2}),
        "nvmlDeviceGetMemoryInfo_v2",
    ),
    "nvmlDeviceGetBAR1MemoryInfo": Shape(
        0, Layout("c_nvmlBAR1Memory_t", "", {"bar1Total": 0, "bar1Free": 1, "bar1Used": 2})
    ),
    "nvmlDeviceGetTemperatureV": Shape(
        0, Layout("c_nvmlTemperature_v1_t", "nvmlTemperature_v1", {"temperature": 0},
                  ("sensorType",)),
        "nvmlDeviceGetTemperature",
    ),
    "nvmlDeviceGetMarginTemperature": Shape(
        0, Layout("c_nvmlMarginTemperature_v1_t", "nvmlMarginTemperature_v1",
                  {"marginTemperature": 0})
    ),
    "nvmlDeviceGetSramEccErrorStatus": Shape(
        0, Layout("c_nvmlEccSramErrorStatus_v1_t", "nvmlEccSramErrorStatus_v1",
                  {name: at for at, name in enumerate(_SRAM)})
    ),
    "nvmlDeviceGetRowRemapperHistogram": Shape(
        0, Layout("c_nvmlRowRemapperHistogramValues", "",
                  {name: at for at, name in enumerate(_BANKS)})
    ),
    "nvmlDeviceGetGpuFabricInfoV": Shape(
        0, Layout("c_nvmlGpuFabricInfo_v2_t", "nvmlGpuFabricInfo_v2", _FABRIC)
    ),
    "nvmlDeviceGetGpuFabricInfo": Shape(
        0, Layout("c_nvmlGpuFabricInfo_t", "", {k: v for k, v in _FABRIC.items() if v < 4}),
        "nvmlDeviceGetGpuFabricInfoV",
    ),
}  # fmt: skip
"""Functions as `nvml.h` declares them."""

LATER = {
    "c_nvmlGpuFabricInfo_v3_t": Layout(
        "c_nvmlGpuFabricInfo_v3_t", "nvmlGpuFabricInfo_v3", {**_FABRIC, "healthSummary": 5}
    )
}
"""Later structures that the same functions fill, by the version in them."""

SIGNED = frozenset({"temperature", "marginTemperature"})
LONG = frozenset({"total", "reserved", "free", "used", "bar1Total", "bar1Free", "bar1Used",
                   *_SRAM[:-1]})  # fmt: skip
_BITS = {"u8": 8, "u16": 16, "u32": 32, "i32": 32, "u64": 64, "i64": 64, "ul": 64, "f64": 64}
_WIDE = frozenset({"u64", "i64", "ul", "f64"})


class ProfileDriver:
    """NVML as a profile tells it. `now` is seconds since the epoch at which counters stand at
    their base, `wall` what the wall clock shows then; `without` are functions that are missing."""

    def __init__(
        self,
        profile: Profile | Path,
        now: Callable[[], float] = lambda: 0.0,
        *,
        wall: float = 1.8e9,
        without: Iterable[str] = (),
    ) -> None:
        self.profile = profile if isinstance(profile, Profile) else Profile.read(profile)
        self._now = now
        self._wall = wall
        self._without = frozenset(without)
        self._users = 0
        self._lines: dict[str, list[Any]] = {}
        for line in self.profile.lines:
            self._lines.setdefault(line.name, []).append(line)
        self._told: dict[Any, fake_nvml.Answer | None] = {}
        self._events = False

    @property
    def seconds(self) -> float:
        return 0.0

    def start(self) -> None:
        self._fail("nvmlInit_v2", self._best("system", "nvmlInit_v2", ()))
        self._users += 1

    def stop(self) -> None:
        self._ask("system", "nvmlShutdown")
        self._users -= 1

    # ------------------------------------------------------------ what a line says

    def _best(self, device: int | str, name: str, args: tuple[int, ...]) -> fake_nvml.Answer | None:
        """Return what is said of a call, in the library's order of precedence."""
        key = device, name, args
        if key not in self._told:
            some = [
                *self._lines.get(name, ()),
                *(self._lines.get("*", ()) if "#" not in name else ()),
            ]
            scores = [(fake_nvml._score(line, str(device), name, args), line) for line in some]
            found = [
                (score, at, line) for at, (score, line) in enumerate(scores) if score is not None
            ]
            line = max(found)[2] if found else None
            self._told[key] = None if line is None else fake_nvml._answer(line, device, args)
        return self._told[key]

    def _ask(
        self, device: int | str, name: str, args: tuple[int, ...] = (), other: str = ""
    ) -> fake_nvml.Answer | None:
        """Return what answers a call, `None` if nothing does; raise the code that it fails with."""
        if name in self._without:
            raise NvmlError(FUNCTION_NOT_FOUND, name)
        if not self._users:
            raise NvmlError(UNINITIALIZED, name)
        if other and not any(
            fake_nvml._score(line, str(device), name, args) is not None
            for line in self._lines.get(name, ())
        ):
            answer = self._best(device, other, args)
        else:
            answer = self._best(device, name, args)
        self._fail(name, answer)
        return answer

    @staticmethod
    def _fail(name: str, answer: fake_nvml.Answer | None) -> None:
        if answer is not None and answer.fault:
            if not answer.fault.startswith("!"):
                raise NotImplementedError(f"{name} = {answer.fault}: only the C library can")
            raise NvmlError(int(answer.fault[1:], 0), name)

    def _want(
        self, device: int | str, name: str, args: tuple[int, ...] = (), other: str = ""
    ) -> fake_nvml.Answer:
        answer = self._ask(device, name, args, other)
        if answer is None:
            raise NvmlError(NOT_SUPPORTED, name)
        return answer

    def _real(self, answer: fake_nvml.Answer, at: int) -> float:
        value = answer.values[at] if at < len(answer.values) else 0
        if isinstance(value, tuple):
            low, high, period = value
            return high if self._now() % period < period / 2 else low
        assert not isinstance(value, bytes)
        return value + (answer.rates[at] * self._now() if at < len(answer.rates) else 0)

    def _whole(self, answer: fake_nvml.Answer, at: int) -> int:
        """Return a value as the driver's integer, before it is cut to its size."""
        value = answer.values[at] if at < len(answer.values) else 0
        if isinstance(value, bytes):
            return 0
        if isinstance(value, int):
            return value + math.floor(answer.rates[at] * self._now() if answer.rates[at:] else 0)
        real = self._real(answer, at)
        return round(real) if math.isfinite(real) else 0

    def _average(self, answer: fake_nvml.Answer, earlier: float, later: float) -> float:
        value = answer.values[0]
        if isinstance(value, tuple):
            low, high, period = value

            def integral(until: float) -> float:
                half, periods = period / 2, math.floor(until / period)
                rest = until - periods * period
                part = rest * high if rest < half else half * high + (rest - half) * low
                return periods * half * (low + high) + part

            return (integral(later) - integral(earlier)) / (later - earlier)
        assert not isinstance(value, bytes)
        return float(value)

    # ------------------------------------------------------------ plain functions

    def bind(self, function: str, answer: Answer, *arguments: Any) -> Callable[[], Any]:
        shape = SHAPES.get(function)
        if shape is None or function in self._without:
            raise NvmlError(FUNCTION_NOT_FOUND, function)
        device: Any = "system"
        if not shape.system:
            device, *rest = arguments
            arguments = tuple(rest)
        if len(arguments) != shape.arguments:
            raise TypeError(f"{function} takes {shape.arguments} arguments, not {arguments}")
        if isinstance(shape.writes, Text):
            if not isinstance(answer, Text):
                raise TypeError(f"{function} writes text, not {answer}")
            return lambda: self._text(device, function, answer.size)
        if isinstance(shape.writes, Layout):
            if isinstance(answer, Struct) and answer.name in LATER:
                shape = shape._replace(writes=LATER[answer.name])
            assert isinstance(shape.writes, Layout)
            if not isinstance(answer, Struct) or answer.name != shape.writes.struct:
                raise TypeError(f"{function} writes {shape.writes.struct}, not {answer}")
            unknown = set(answer.fields) - shape.writes.places.keys()
            if unknown:
                raise AttributeError(f"{answer.name} has no {unknown}")
            return lambda: self._struct(device, function, shape, arguments, answer)
        kinds = (answer,) if isinstance(answer, str) else answer
        if type(kinds) is not type(shape.writes) or kinds != shape.writes:
            raise TypeError(f"{function} writes {shape.writes}, not {answer}")
        single = isinstance(answer, str)
        return lambda: self._numbers(device, function, shape, arguments, single=single)

    def _numbers(
        self, device: Any, function: str, shape: Shape, args: tuple[int, ...], *, single: bool
    ) -> Any:
        writes = shape.writes
        kinds: Any = ("u32",) * writes.size if isinstance(writes, Block) else writes
        values = self._mig_numbers(device, function) if isinstance(device, Mig) else None
        if values is None and function == "nvmlDeviceGetCount_v2":
            told = self._ask(device, function)
            values = [len(self._present())] if told is None else [self._whole(told, 0)]
        if values is None and function == "nvmlDeviceGetMaxMigDeviceCount":
            values = [self._most_instances(device)]
        if values is None:
            number = device if device == "system" else device.number
            told = self._want(number, function, args, shape.other)
            values = [self._whole(told, at) for at in range(len(kinds))]
        cut = tuple(_cut(value, kind) for value, kind in zip(values, kinds, strict=True))
        return cut[0] if single else cut

    def _mig_numbers(self, device: Mig, function: str) -> list[int]:
        self._alive(device, function)
        if function == "nvmlDeviceGetGpuInstanceId":
            return [device.gi]
        if function == "nvmlDeviceGetComputeInstanceId":
            return [device.ci]
        raise NvmlError(NOT_SUPPORTED, function)

    def _text(self, device: Any, function: str, size: int) -> str:
        if isinstance(device, Mig):
            self._alive(device, function)
            if function == "nvmlDeviceGetUUID":
                raw = device.uuid.encode("latin-1")
            elif function == "nvmlDeviceGetName":
                told = self._best(device.number, function, ())
                if told is None or told.fault or not isinstance(told.value, bytes):
                    raise NvmlError(NOT_SUPPORTED, function)
                suffix = self._instance(device).get("profile")
                raw = told.value + (f" MIG {suffix}".encode() if suffix else b"")
            else:
                raise NvmlError(NOT_SUPPORTED, function)
        else:
            told = self._want(device if device == "system" else device.number, function)
            if not told.values or not isinstance(told.value, bytes):
                raise NvmlError(NOT_SUPPORTED, function)
            raw = told.value
        if len(raw) + 1 > size:
            raise NvmlError(INSUFFICIENT_SIZE, function)
        return raw.decode("utf-8", "replace")

    def _struct(
        self, device: Any, function: str, shape: Shape, passed: tuple[int, ...], answer: Struct
    ) -> tuple[Any, ...]:
        layout = shape.writes
        assert isinstance(layout, Layout)
        given = dict(answer.inputs)
        args = (*passed, *(given.pop(name, 0) for name in layout.inputs))
        if given:
            raise AttributeError(f"{answer.name} takes no {given}")
        values = self._values(device, function, shape, args)
        newest = self._ask(device.number, "fabric_version") if "Fabric" in function else None
        needed = 3 if answer.name in LATER else 2
        old = newest is not None and self._whole(newest, 0) < needed and layout.version
        if old or answer.version != layout.version:
            raise NvmlError(ARGUMENT_VERSION_MISMATCH, function)
        return tuple(values[layout.places[name]] for name in answer.fields)

    def _values(self, device: Any, function: str, shape: Shape, args: tuple[int, ...]) -> list[Any]:
        layout = shape.writes
        assert isinstance(layout, Layout)
        if isinstance(device, Mig):
            self._alive(device, function, shape.other)
            if "MemoryInfo" not in function or "BAR1" in function:
                raise NvmlError(NOT_SUPPORTED, function)
            words = self._instance(device)
            numbers = [
                int(words.get(key, "0"), 0) for key in ("memory", "reserved", "free", "used")
            ]
        else:
            told = self._want(device.number, function, args, shape.other)
            if layout.struct == "nvmlPciInfo_t":
                return self._pci(function, told)
            if "Fabric" in function:
                kinds = ("u32",) * 4 + ("u8",)
                return [0, *(_cut(self._whole(told, 1 + at), k) for at, k in enumerate(kinds))]
            if "MemoryInfo" not in function or "BAR1" in function:
                kinds = {
                    at: "i32" if name in SIGNED else "u64" if name in LONG else "u32"
                    for name, at in layout.places.items()
                }
                return [_cut(self._whole(told, at), kinds[at]) for at in range(len(kinds))]
            numbers = [self._whole(told, at) for at in range(len(told.values))]
        total, reserved, free, used = (
            numbers if len(numbers) == 4 else (numbers[0], 0, *numbers[1:])
        )
        if function.endswith("_v2"):
            return [_cut(value, "u64") for value in (total, reserved, free, used)]
        return [_cut(value, "u64") for value in (total, free, used + reserved)]

    def _pci(self, function: str, told: fake_nvml.Answer) -> list[Any]:
        bus = told.values[0] if told.values else b""
        assert isinstance(bus, bytes)
        try:
            _ = [int(part.partition(b".")[0], 16) for part in bus.split(b":")]
        except ValueError:
            raise NvmlError(NOT_SUPPORTED, function) from None
        return [bus, *(_cut(self._whole(told, at), "u32") for at in (1, 2))]

    # ------------------------------------------------------------ handles

    def _present(self) -> list[int]:
        return [n for n in range(self.profile.devices) if n not in self.profile.gone]

    def device(self, index: int) -> Gpu:
        present, function = self._present(), "nvmlDeviceGetHandleByIndex_v2"
        if index >= len(present):
            raise NvmlError(INVALID_ARGUMENT, function)
        self._ask(present[index], function)
        return Gpu(present[index])

    def address(self, device: Gpu) -> int:
        return device.number + 1

    # ------------------------------------------------------------ fields

    def fields(
        self, device: Gpu, wanted: Sequence[tuple[int, int]]
    ) -> Callable[[], Sequence[FieldAnswer]]:
        if "nvmlDeviceGetFieldValues" in self._without:
            raise NvmlError(FUNCTION_NOT_FOUND, "nvmlDeviceGetFieldValues")

        def bound() -> Sequence[FieldAnswer]:
            if not wanted:
                raise NvmlError(INVALID_ARGUMENT, "nvmlDeviceGetFieldValues")
            self._ask(device.number, "nvmlDeviceGetFieldValues")
            return [self._field(device.number, number, scope) for number, scope in wanted]

        return bound

    def _field(self, device: int, number: int, scope: int) -> FieldAnswer:
        try:
            told = self._want(device, f"field#{number}", (scope,))
        except NvmlError as error:
            return FieldAnswer(error.code, 0, wide=False)
        fraction = bool(told.values) and isinstance(told.values[0], float)
        kind = told.kind or ("f64" if fraction else "u64")
        value = self._real(told, 0) if kind == "f64" else _cut(self._whole(told, 0), kind)
        return FieldAnswer(0, value, kind in _WIDE)

    # ------------------------------------------------------------ processes and samples

    def processes(self, device: Gpu) -> Sequence[ProcessSample]:
        found: dict[tuple[int, int | None], ProcessSample] = {}
        for kind, letter in (("Compute", "C"), ("Graphics", "G"), ("MPSCompute", "M")):
            for words in self._running(device, f"nvmlDeviceGet{kind}RunningProcesses", letter):
                memory = int(words.get("memory", "0"), 0) & ALL_ONES
                gi = int(words.get("gi", str(NO_INSTANCE)), 0) & NO_INSTANCE
                pid = int(words["pid"], 0) & 0xFFFFFFFF
                sample = ProcessSample(
                    pid, None if memory == ALL_ONES else memory, None if gi == NO_INSTANCE else gi
                )
                found.setdefault((sample.pid, sample.gi), sample)
        return list(found.values())

    def _running(self, device: Gpu, function: str, letter: str) -> list[dict[str, str]]:
        for name in (f"{function}_v3", f"{function}_v2"):
            try:
                self._ask(device.number, name, other="" if "_v3" in name else f"{function}_v3")
            except NvmlError as error:
                if error.code not in UNSUPPORTED:
                    raise
            else:
                rows = self.profile.processes(device.number)
                return [words for words in rows if words.get("type", "C") == letter]
        if letter == "C":
            raise NvmlError(NOT_SUPPORTED, function)
        return []

    def process_shares(self, device: Gpu, since: int) -> Sequence[tuple[int, int, int]]:
        try:
            self._want(device.number, "nvmlDeviceGetProcessUtilization")
        except NvmlError as error:
            if error.code in {0, NOT_FOUND}:
                return []
            raise
        newest = int((math.floor(self._now()) + self._wall) * 1e6)
        return [
            (int(words["pid"], 0) & 0xFFFFFFFF, stamp, int(words["sm"], 0) & 0xFFFFFFFF)
            for words in self.profile.processes(device.number)
            if "sm" in words
            for stamp in (newest - age * 1_000_000 for age in (2, 1, 0))
            if stamp > since
        ]

    def utilization_samples(self, device: Gpu, since: int) -> Sequence[tuple[int, int]]:
        self._ask(device.number, "nvmlDeviceGetSamples")
        told = self._want(device.number, "samples#1")
        if not told.values:
            raise NvmlError(NOT_SUPPORTED, "nvmlDeviceGetSamples")
        if (told.kind or "u32") != "u32":
            raise NvmlError(NOT_SUPPORTED, "nvmlDeviceGetSamples", f"values of type {told.kind}")
        return [row for row in self._ticks(told) if row[0] > since]

    def _ticks(self, told: fake_nvml.Answer) -> Iterator[tuple[int, int]]:
        last = math.floor(self._now() / TICK)
        for tick in range(last - SAMPLES + 1, last + 1):
            to = tick * TICK
            if isinstance(told.value, tuple):
                value = round(self._average(told, to - TICK, to))
            else:
                value = self._whole(told, 0)
            yield round((to + self._wall) * 1e6), value & 0xFFFFFFFF

    # ------------------------------------------------------------ instances

    def _mode(self, device: int) -> int:
        told = self._best(device, "nvmlDeviceGetMigMode", ())
        return 0 if told is None or told.fault else self._whole(told, 0)

    def _most_instances(self, device: Gpu) -> int:
        told = self._ask(device.number, "nvmlDeviceGetMaxMigDeviceCount")
        if told is not None:
            return self._whole(told, 0)
        return 7 if self._mode(device.number) == 1 else 0

    def mig_devices(self, device: Gpu) -> Sequence[Mig]:
        rows = self.profile.migs(device.number)
        found = []
        for index in range(self._most_instances(device)):
            self._ask(device.number, "nvmlDeviceGetMigDeviceHandleByIndex", (index,))
            for at, words in enumerate(rows):
                if int(words.get("index", str(at)), 0) == index:
                    numbers = int(words["gi"], 0), int(words["ci"], 0)
                    found.append(Mig(device.number, *numbers, words.get("uuid", "")))
                    break
        return found

    def _instance(self, device: Mig) -> dict[str, str]:
        for words in self.profile.migs(device.number):
            if (int(words["gi"], 0), int(words["ci"], 0)) == (device.gi, device.ci):
                return words
        raise NvmlError(INVALID_ARGUMENT, "")

    def _alive(self, device: Mig, function: str, other: str = "") -> None:
        """Raise what is wrong with the GPU: its faults hold for its instances."""
        self._instance(device)
        self._ask(device.number, function, other=other)

    # ------------------------------------------------------------ events

    def watch_xids(self, device: Gpu) -> Callable[[int], Sequence[int]]:
        return lambda most: []

    # ------------------------------------------------------------ GPM

    def gpm_supported(self, device: Gpu) -> bool:
        name = "nvmlGpmQueryDeviceSupport"
        try:
            told = self._ask(device.number, name)
        except NvmlError as error:
            if error.code in UNSUPPORTED:
                return False
            raise
        return told is not None and self._whole(told, 0) != 0

    def gpm_sample(self) -> dict[str, Any]:
        return {}

    def gpm_take(self, device: Gpu, sample: dict[str, Any], instance: int | None) -> None:
        if instance is None:
            self._ask(device.number, "nvmlGpmSampleGet")
        else:
            self._ask(device.number, "nvmlGpmMigSampleGet", (instance,))
        if not self.gpm_supported(device):
            raise NvmlError(NOT_SUPPORTED, "nvmlGpmSampleGet")
        if instance is not None and all(
            int(words["gi"], 0) != instance for words in self.profile.migs(device.number)
        ):
            raise NvmlError(NOT_FOUND, "nvmlGpmMigSampleGet")
        sample.update(device=device.number, instance=instance, at=self._now())

    def gpm_metrics(
        self, earlier: dict[str, Any], later: dict[str, Any], wanted: Sequence[int]
    ) -> Sequence[tuple[int, float]]:
        self._ask(later["device"], "nvmlGpmMetricsGet", (len(wanted),))
        return [self._metric(earlier, later, number) for number in wanted]

    def _metric(
        self, earlier: dict[str, Any], later: dict[str, Any], number: int
    ) -> tuple[int, float]:
        instance = later["instance"]
        name = f"gpm#{number}" if instance is None else f"gpmmig#{number}"
        try:
            told = self._want(later["device"], name, () if instance is None else (instance,))
        except NvmlError as error:
            return error.code, 0.0
        if not told.values:
            return NOT_SUPPORTED, 0.0
        if later["at"] <= earlier["at"]:
            return 0, math.nan
        return 0, self._average(told, earlier["at"], later["at"])

    def gpm_free(self, sample: dict[str, Any]) -> None:
        sample.clear()


def _cut(value: int, kind: str) -> int:
    """Return a number as the driver's type holds it."""
    bits = _BITS[kind]
    cut = value & ((1 << bits) - 1)
    return cut - (1 << bits) if kind[0] == "i" and cut >> (bits - 1) else cut
