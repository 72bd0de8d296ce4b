"""The door to NVML: calls go out, plain Python values come back, failures carry the driver's code.

The library is loaded by `pynvml` (the module of nvidia-ml-py), whose structures we use. Calls that
are made each second are bound once, with their buffers kept, and timed: that costs no more than
pynvml's own functions, and a fraction where values come as fields (`benchmarks/gpu.py`). A bound
call is made by one thread at a time. ctypes releases the interpreter lock while the driver works,
so a call that hangs stops nobody else; it cannot be ended either, which is why all this runs in a
child process.
"""

from __future__ import annotations

import ctypes
import itertools
import operator
import struct
from collections import defaultdict
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, NamedTuple, Protocol

from exporter.clock import Clock
from exporter.samples import Reason, SourceError

UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26
GPU_NOT_FOUND = 28
UNKNOWN = 999

UNSUPPORTED = frozenset({
    NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, DEPRECATED,
})  # fmt: skip
"""The driver will not answer this until it is another driver: do not ask again."""

GONE = frozenset({GPU_IS_LOST, GPU_NOT_FOUND})
"""This GPU is lost, the others are not. One that waits for a reset may still answer some things."""

OVER = frozenset({UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH})
"""The whole library must be started anew."""

_REASONS: dict[int, Reason] = {
    NO_PERMISSION: "denied",
    DRIVER_NOT_LOADED: "unavailable",
    LIBRARY_NOT_FOUND: "unavailable",
    UNINITIALIZED: "unavailable",
    GPU_IS_LOST: "unavailable",
    RESET_REQUIRED: "unavailable",
    GPU_NOT_FOUND: "unavailable",
    LIB_RM_VERSION_MISMATCH: "unavailable",
    TIMEOUT: "timeout",
}


class NvmlError(SourceError):
    """A call failed; `code` is NVML's return code, `function` who said it."""

    def __init__(self, code: int, function: str, text: str = "") -> None:
        super().__init__(_REASONS.get(code, "io"), f"{function}: {text or 'error'} ({code})")
        self.code = code
        self.function = function


class Struct(NamedTuple):
    """An answer that comes in one of pynvml's structures.

    `fields` are those to return; `version` names the constant that goes into the structure's
    version field; `inputs` are values to fill in before the call.
    """

    name: str
    fields: tuple[str, ...]
    version: str = ""
    inputs: tuple[tuple[str, int], ...] = ()


class Text(NamedTuple):
    """An answer that is text, at most `size` bytes with its end."""

    size: int = 96


class Block(NamedTuple):
    """An answer of `size` u32 side by side: a structure of nothing else, filled through one
    pointer. Asked for as several numbers, the driver would write past the first of them."""

    size: int


Answer = str | tuple[str, ...] | Struct | Text | Block
"""What a call answers: `u32`, `i32`, `u64`, several of them (a pointer to each), a block of u32,
text, or fields of a structure."""

_NUMBERS: dict[str, Any] = {
    "u32": ctypes.c_uint32,
    "i32": ctypes.c_int32,
    "u64": ctypes.c_uint64,
}
Handle = Any
ALL_LINKS = 0xFFFFFFFF
"""The scope of a field that means all NVLinks together."""

# A value of nvmlDeviceGetFieldValues: id, scope, (timestamp, latency,) type, return code, value.
_FIELD = struct.Struct("=II16xiiQ")
_ANSWER = "24xiiQ"
# A sample of utilization: microseconds, and percent in the lower half of the value.
_SAMPLE = struct.Struct("=QI4x")
# What nvmlGpmMetricsGet is asked with: version, how many, two samples; then for each metric its
# number, return code and value (and pointers to its names).
_GPM_HEAD, _GPM_METRIC = struct.Struct("=IIQQ"), struct.Struct("=Iid24x")
_DOUBLE, _U32, _U64, _I64, _I32, _U16 = 0, 1, 3, 4, 5, 6
# 2 is `unsigned long`: 64 bits on every Linux that has a driver.
_LONG = 2
_UTILIZATION_SAMPLES = 1
_INIT_FLAG_NO_GPUS = 1
_FEWEST_SAMPLES = 128


class FieldAnswer(NamedTuple):
    """One value asked for by number. `code` is 0 if `value` is good; `wide` if it has 64 bits."""

    code: int
    value: float
    wide: bool


class ProcessSample(NamedTuple):
    """A process on a GPU; `memory` is bytes or None, `gi` the GPU instance or None."""

    pid: int
    memory: int | None
    gi: int | None


class Driver(Protocol):
    """What the readers need of NVML; the demo has one of its own. All raise `NvmlError`."""

    @property
    def seconds(self) -> float:
        """Time spent in calls so far, all threads together."""

    def start(self) -> None:
        """Load and initialise the library."""

    def stop(self) -> None:
        """Give everything back. Balanced with `start`."""

    def bind(self, function: str, answer: Answer, *arguments: Any) -> Callable[[], Any]:
        """Return a call that is ready to be made, by one thread at a time."""

    def device(self, index: int) -> Handle:
        """Return a handle for the GPU of this index."""

    def address(self, device: Handle) -> int:
        """Return a number that tells handles apart."""

    def fields(
        self, device: Handle, wanted: Sequence[tuple[int, int]]
    ) -> Callable[[], Sequence[FieldAnswer]]:
        """Return a call for field values by (number, scope), for one thread at a time."""

    def processes(self, device: Handle) -> Sequence[ProcessSample]:
        """Return the processes that compute or draw on a GPU, each once."""

    def process_shares(self, device: Handle, since: int) -> Sequence[tuple[int, int, int]]:
        """Return (pid, microseconds, percent of SM time) samples newer than `since`."""

    def utilization_samples(self, device: Handle, since: int) -> Sequence[tuple[int, int]]:
        """Return the driver's own (microseconds, percent) samples newer than `since`."""

    def mig_devices(self, device: Handle) -> Sequence[Handle]:
        """Return the MIG devices of a GPU."""

    def watch_xids(self, device: Handle) -> Callable[[int], Sequence[int]]:
        """Ask for XID events of a GPU; return a call for the codes that have come, at most so many.

        That call does not wait, and fails when the GPU is lost.
        """

    def gpm_supported(self, device: Handle) -> bool:
        """Tell whether the GPU has performance counters that need no privilege (GPM)."""

    def gpm_sample(self) -> Any:
        """Return room for one sample of the counters."""

    def gpm_take(self, device: Handle, sample: Any, instance: int | None) -> None:
        """Fill the sample, of the whole GPU or of one GPU instance."""

    def gpm_metrics(
        self, earlier: Any, later: Any, wanted: Sequence[int]
    ) -> Sequence[tuple[int, float]]:
        """Return (code, value) for each metric between two samples."""

    def gpm_free(self, sample: Any) -> None:
        """Give the room back."""


class Nvml:
    """NVML itself. `clock` is for the time that calls take."""

    def __init__(self, clock: Clock) -> None:
        import pynvml

        self._nvml = pynvml
        self._now = clock.monotonic
        self._events: list[Any] = []
        self._symbols: dict[str, Any] = {}
        self._texts: dict[int, str] = {}
        self._spent: defaultdict[int, float] = defaultdict(float)
        self._samplers: dict[int, Callable[[int], Sequence[tuple[int, int]]]] = {}
        self._gpm_requests: dict[tuple[int, ...], tuple[Any, bytes]] = {}

    @property
    def seconds(self) -> float:
        """Time spent in calls so far, all threads together."""
        return sum(self._spent.copy().values())

    def start(self) -> None:
        """Load and initialise the library.

        A library that is not installed is `unavailable`, as is a driver that is not loaded.
        """
        # Without the flag a driver that has no GPU (left) refuses to start: none could be told.
        self._own("nvmlInitWithFlags", _INIT_FLAG_NO_GPUS)

    def stop(self) -> None:
        """Free the events and shut the library down."""
        self._samplers.clear()
        events, self._events = self._events, []
        try:
            for one in events:
                self._own("nvmlEventSetFree", one)
        finally:
            self._own("nvmlShutdown")

    def bind(self, function: str, answer: Answer, *arguments: Any) -> Callable[[], Any]:
        """Return a call with its arguments and buffers in place.

        Raises `NvmlError` with `FUNCTION_NOT_FOUND` if this driver has no such function.
        """
        call, now, spent = self._symbol(function), self._now, self._spent
        buffers, value = self._buffers(answer)
        given = (*arguments, *buffers)

        # All in one: a hundred of these are made for each read of eight GPUs.
        def bound() -> Any:
            began = now()
            code = call(*given)
            spent[get_ident()] += now() - began
            if code:
                raise self._error(code, function)
            return value()

        return bound

    def _buffers(self, answer: Answer) -> tuple[tuple[Any, ...], Callable[[], Any]]:
        match answer:
            case str():
                one = _NUMBERS[answer]()
                return (ctypes.byref(one),), lambda: one.value
            case Text():
                text = ctypes.create_string_buffer(answer.size)
                # A board's name need not be UTF-8 (reported for nvitop): shown as well as can be.
                return (text, ctypes.c_uint32(answer.size)), lambda: text.value.decode(
                    "utf-8", "replace"
                )
            case Struct():
                return self._struct(answer)
            case Block():
                block = (ctypes.c_uint32 * answer.size)()
                return (block,), lambda: tuple(block)
            case _:
                many = tuple(_NUMBERS[kind]() for kind in answer)
                return tuple(map(ctypes.byref, many)), lambda: tuple([m.value for m in many])

    def _struct(self, answer: Struct) -> tuple[tuple[Any, ...], Callable[[], Any]]:
        room = self._known(answer.name)()
        preset = dict(answer.inputs)
        if answer.version:
            preset["version"] = self._known(answer.version)
        for name, number in preset.items():
            setattr(room, name, number)
        # Past pynvml's own access to attributes, which looks for text in each.
        fields = [getattr(type(room), name).__get__ for name in answer.fields]
        return (ctypes.byref(room),), lambda: tuple([field(room) for field in fields])

    def device(self, index: int) -> Handle:
        """Return a handle for the GPU of this index."""
        return self._own("nvmlDeviceGetHandleByIndex", index)

    def address(self, device: Handle) -> int:
        """Return where the handle points."""
        return ctypes.cast(device, ctypes.c_void_p).value or 0

    def fields(
        self, device: Handle, wanted: Sequence[tuple[int, int]]
    ) -> Callable[[], Sequence[FieldAnswer]]:
        """Return a call for all these fields at once.

        The array is kept and unpacked as a whole: nvidia-ml-py makes it anew each time and is
        slower than single calls.
        """
        call = self._checked("nvmlDeviceGetFieldValues")
        blank = b"".join(_FIELD.pack(number, scope, 0, 0, 0) for number, scope in wanted)
        room = ctypes.create_string_buffer(blank, len(blank))
        count = ctypes.c_int32(len(wanted))
        unpack = struct.Struct("=" + _ANSWER * len(wanted)).unpack_from
        kinds: tuple[int, ...] = ()
        wide: tuple[bool, ...] = ()
        masks: tuple[int, ...] | None = None

        def bound() -> Sequence[FieldAnswer]:
            nonlocal kinds, wide, masks
            call(device, count, room)
            columns = unpack(room)
            if columns[::3] != kinds:  # a field may change its type with its first good value
                kinds = columns[::3]
                wide = tuple([kind in _WIDE for kind in kinds])
                plain = all(kind in _MASKS for kind in kinds)
                masks = tuple([_MASKS[kind] for kind in kinds]) if plain else None
            raw = columns[2::3]
            values = map(_number, kinds, raw) if masks is None else map(operator.and_, raw, masks)
            # In C over the columns: a third of the time of a loop over the fields.
            answers = zip(columns[1::3], values, wide, strict=True)
            return list(map(tuple.__new__, itertools.repeat(FieldAnswer), answers))

        return bound

    def processes(self, device: Handle) -> Sequence[ProcessSample]:
        """Return the processes that compute or draw on a GPU, each once.

        The newest layout that the driver has: older ones number the fields differently, and
        reading them with the wrong one gives scrambled PIDs (nvitop 75). Some R535 drivers have a
        field more in the newest one than all others; their lists are left alone.
        """
        if self._has("nvmlDeviceGetConfComputeMemSizeInfo") and not self._has(
            "nvmlDeviceGetRunningProcessDetailList"
        ):
            raise NvmlError(NOT_SUPPORTED, "nvmlDeviceGetComputeRunningProcesses_v3", "R535 layout")
        found: dict[tuple[int, int | None], ProcessSample] = {}
        for kind in ("Compute", "Graphics", "MPSCompute"):
            for sample in self._processes(device, f"nvmlDeviceGet{kind}RunningProcesses"):
                found.setdefault((sample.pid, sample.gi), sample)
        return list(found.values())

    def _processes(self, device: Handle, function: str) -> list[ProcessSample]:
        rows = None
        for version in ("_v3", "_v2"):
            try:
                if hasattr(self._nvml, function + version):
                    rows = self._own(function + version, device)
                    break
            except NvmlError as error:
                if error.code not in UNSUPPORTED:
                    raise
        if rows is None:
            if function.startswith("nvmlDeviceGetCompute"):
                raise NvmlError(NOT_SUPPORTED, function, "Not Supported")
            return []
        return [
            ProcessSample(row.pid, row.usedGpuMemory, _instance(row.gpuInstanceId)) for row in rows
        ]

    def process_shares(self, device: Handle, since: int) -> Sequence[tuple[int, int, int]]:
        """Return (pid, microseconds, percent of SM time) samples newer than `since`."""
        try:
            rows = self._own("nvmlDeviceGetProcessUtilization", device, since)
        except NvmlError as error:
            # Success without room for a sample reaches us as code 0: nothing has run.
            if error.code in {0, NOT_FOUND}:
                return []
            raise
        return [(row.pid, row.timeStamp, row.smUtil) for row in rows]

    def utilization_samples(self, device: Handle, since: int) -> Sequence[tuple[int, int]]:
        """Return the driver's own (microseconds, percent) samples newer than `since`."""
        address = self.address(device)
        sampler = self._samplers.get(address)
        if sampler is None:
            sampler = self._samplers[address] = self._sampler(device)
        try:
            return sampler(since)
        except NvmlError as error:
            if error.code == NOT_FOUND:  # nothing newer yet
                return []
            raise

    def _sampler(self, device: Handle) -> Callable[[int], Sequence[tuple[int, int]]]:
        """Return a call for samples of utilization, with room for all that the driver keeps."""
        call = self._checked("nvmlDeviceGetSamples")
        after, kind, count = ctypes.c_uint64(), ctypes.c_uint32(), ctypes.c_uint32()
        given = (device, _UTILIZATION_SAMPLES, after, ctypes.byref(kind), ctypes.byref(count))
        call(*given, None)
        most = max(count.value, _FEWEST_SAMPLES)
        room = ctypes.create_string_buffer(most * _SAMPLE.size)

        def sampler(since: int) -> Sequence[tuple[int, int]]:
            after.value, count.value = since, most
            call(*given, room)
            if kind.value != _U32:
                raise NvmlError(
                    NOT_SUPPORTED, "nvmlDeviceGetSamples", f"values of type {kind.value}"
                )
            told = memoryview(room)[: count.value * _SAMPLE.size]
            return [(stamp, value) for stamp, value in _SAMPLE.iter_unpack(told) if stamp > since]

        return sampler

    def mig_devices(self, device: Handle) -> Sequence[Handle]:
        """Return the MIG devices of a GPU; the driver's list has holes."""
        most = self.bind("nvmlDeviceGetMaxMigDeviceCount", "u32", device)()
        found = []
        for index in range(most):
            try:
                found.append(self._own("nvmlDeviceGetMigDeviceHandleByIndex", device, index))
            except NvmlError as error:
                # A hole in the list is not found, or an invalid argument: it costs its own slot.
                if error.code in GONE | OVER:
                    raise
        return found

    def watch_xids(self, device: Handle) -> Callable[[int], Sequence[int]]:
        """Ask for XID events of a GPU; return a call for the codes that have come, at most so many.

        Each GPU has a set of its own: waiting on one set for all of them fails for all as soon as
        one GPU has fallen off the bus. A GPU that has no such events yields none.
        """
        kind, event = self._nvml.nvmlEventTypeXidCriticalError, self._nvml.c_nvmlEventData_t()
        function = "nvmlEventSetWait_v2"
        wait = self._timed(function)
        events = self._own("nvmlEventSetCreate")
        try:
            self._own("nvmlDeviceRegisterEvents", device, kind, events)
        except NvmlError as error:
            # After some of its errors the set is in no defined state (nvml.h).
            self._own("nvmlEventSetFree", events)
            if error.code in UNSUPPORTED:
                return lambda _: ()
            raise
        self._events.append(events)

        def come(most: int) -> Sequence[int]:
            codes: list[int] = []
            while len(codes) < most:
                code = wait(events, ctypes.byref(event), 0)
                if code == TIMEOUT or (code and codes):
                    break
                if code:
                    raise self._error(code, function)
                if event.eventType == kind:
                    codes.append(event.eventData)
            return codes

        return come

    def gpm_supported(self, device: Handle) -> bool:
        """Tell whether the GPU has performance counters that need no privilege (GPM)."""
        try:
            told = self._own("nvmlGpmQueryDeviceSupport", device)
        except NvmlError as error:
            if error.code in UNSUPPORTED:
                return False
            raise
        return bool(told.isSupportedDevice)

    def gpm_sample(self) -> Any:
        """Return room for one sample of the counters."""
        return self._own("nvmlGpmSampleAlloc")

    def gpm_take(self, device: Handle, sample: Any, instance: int | None) -> None:
        """Fill the sample, of the whole GPU or of one GPU instance."""
        if instance is None:
            self._own("nvmlGpmSampleGet", device, sample)
        else:
            self._own("nvmlGpmMigSampleGet", device, instance, sample)

    def gpm_metrics(
        self, earlier: Any, later: Any, wanted: Sequence[int]
    ) -> Sequence[tuple[int, float]]:
        """Return (code, value) for each metric between two samples.

        The code of each metric counts: a call that succeeds may hold metrics that did not.
        """
        request, blank = self._gpm_request(tuple(wanted))
        # Blank each time: what the driver leaves out must not stay as it was.
        ctypes.memmove(ctypes.byref(request), blank, len(blank))
        request.sample1, request.sample2 = earlier, later
        self._own("nvmlGpmMetricsGet", request)
        told = ctypes.string_at(ctypes.byref(request), len(blank))[_GPM_HEAD.size :]
        return [(code, value) for _, code, value in _GPM_METRIC.iter_unpack(told)]

    def _gpm_request(self, wanted: tuple[int, ...]) -> tuple[Any, bytes]:
        """Return room for these metrics, kept for the next time, and how it looks before a call."""
        kept = self._gpm_requests.get(wanted)
        if kept is None:
            version = self._nvml.NVML_GPM_METRICS_GET_VERSION
            blank = _GPM_HEAD.pack(version, len(wanted), 0, 0)
            blank += b"".join(_GPM_METRIC.pack(number, 0, 0.0) for number in wanted)
            kept = self._gpm_requests[wanted] = self._nvml.c_nvmlGpmMetricsGet_t(), blank
        return kept

    def gpm_free(self, sample: Any) -> None:
        """Give the room back."""
        self._own("nvmlGpmSampleFree", sample)

    def _symbol(self, function: str) -> Any:
        found = self._symbols.get(function)
        if found is None:
            try:
                found = self._symbols[function] = getattr(self._nvml.nvmlLib, function)
            except AttributeError:
                raise NvmlError(FUNCTION_NOT_FOUND, function, "Function Not Found") from None
        return found

    def _checked(self, function: str) -> Callable[..., None]:
        """Return a function of the library that raises the error it answers, and counts its time.

        Raises `NvmlError` if the library has no such function.
        """
        call = self._timed(function)

        def checked(*arguments: Any) -> None:
            if code := call(*arguments):
                raise self._error(code, function)

        return checked

    def _timed(self, function: str) -> Callable[..., int]:
        """Return a function of the library whose time is counted; it returns NVML's code."""
        call, now, spent = self._symbol(function), self._now, self._spent

        def timed(*arguments: Any) -> int:
            began = now()
            code: int = call(*arguments)
            spent[get_ident()] += now() - began
            return code

        return timed

    def _own(self, function: str, *arguments: Any) -> Any:
        """Make a call through pynvml's own function; its errors become ours."""
        call = self._known(function)
        began = self._now()
        try:
            return call(*arguments)
        except self._nvml.NVMLError as error:
            raise self._error(error.value, function) from None
        finally:
            self._spent[get_ident()] += self._now() - began

    def _has(self, function: str) -> bool:
        return hasattr(self._nvml.nvmlLib, function)

    def _known(self, name: str) -> Any:
        """Return something of pynvml's; an older one may lack it, which is as if the driver did."""
        try:
            return getattr(self._nvml, name)
        except AttributeError:
            raise NvmlError(FUNCTION_NOT_FOUND, name, "not in this nvidia-ml-py") from None

    def _error(self, code: int, function: str) -> NvmlError:
        text = self._texts.get(code)
        if text is None:
            text = self._texts[code] = str(self._nvml.NVMLError(code))
        return NvmlError(code, function, text)


_WIDE = frozenset({_LONG, _U64, _I64, _DOUBLE})
_PACKED = struct.Struct("=Q")
# The value is a union that may hold old bytes above a narrow number.
_MASKS = {_U32: 0xFFFFFFFF, _LONG: (1 << 64) - 1, _U64: (1 << 64) - 1, _U16: 0xFFFF}
_READ: dict[int, Callable[[int], float]] = {
    _DOUBLE: lambda raw: struct.unpack("=d", _PACKED.pack(raw))[0],
    _I64: lambda raw: raw - (1 << 64) if raw >> 63 else raw,
    _I32: lambda raw: (raw & 0xFFFFFFFF) - (1 << 32) if raw & 0x80000000 else raw & 0xFFFFFFFF,
}


def _number(kind: int, raw: int) -> float:
    """Return a field's value by its type."""
    if kind in _MASKS:
        return raw & _MASKS[kind]
    read = _READ.get(kind)
    return float("nan") if read is None else read(raw)


def _instance(number: int) -> int | None:
    return None if number == 0xFFFFFFFF else number
