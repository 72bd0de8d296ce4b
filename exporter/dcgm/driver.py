"""The door to libdcgm: calls go out, plain Python values come back, failures carry DCGM's code.

The library talks to a host engine (`nv-hostengine`) that runs anyway, or runs one in this process
("embedded"). Functions and structures are those of `dcgm_agent.h` and `dcgm_structs.h`; only such
are used that are the same from DCGM 3.0 to 4.7. DCGM checks structures by a number made of their
size and version, so a layout that is not its own is refused and never misread.

Values are got with `dcgmEntitiesGetLatestValues`: one request for all GPUs and fields, with a
status and a time for each value. `dcgmGetLatestValuesForFields` asks for one GPU at a time and for
no GPU instance; `dcgmGetValuesSince` would miss no sample, but costs a request for each GPU and
field.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from exporter.clock import Clock
from exporter.samples import Malformed, Reason, SourceError

BAD_PARAMETER = -1
NOT_SUPPORTED = -6
UNINITIALIZED = -10
TIMEOUT = -11
VERSION_MISMATCH = -12
UNKNOWN_FIELD = -13
NO_DATA = -14
STALE_DATA = -15
NOT_WATCHED = -16
NO_PERMISSION = -17
GPU_IS_LOST = -18
RESET_REQUIRED = -19
FUNCTION_NOT_FOUND = -20
CONNECTION_NOT_VALID = -21
GPU_NOT_SUPPORTED = -22
REQUIRES_ROOT = -29
FIELD_UNSUPPORTED_BY_API = -32
MODULE_NOT_LOADED = -33
IN_USE = -34
PROFILING_NOT_SUPPORTED = -36
PROFILING_LIBRARY_ERROR = -37
PROFILING_MULTI_PASS = -38
INSTANCE_NOT_FOUND = -45
PAUSED = -54
NVML_NOT_LOADED = -56
NVML_DRIVER_TIMEOUT = -57
GPUS_DETACHED = -67

TEXTS = {
    BAD_PARAMETER: "bad parameter",
    -3: "generic error",
    -4: "out of memory",
    NOT_SUPPORTED: "not supported",
    -7: "initialization failed",
    -8: "NVML returned an error",
    UNINITIALIZED: "not initialized",
    TIMEOUT: "timed out",
    VERSION_MISMATCH: "version mismatch: the library is another one than this was made for",
    UNKNOWN_FIELD: "unknown field",
    NO_DATA: "no data",
    STALE_DATA: "data is stale",
    NOT_WATCHED: "field is not watched",
    NO_PERMISSION: "no permission",
    GPU_IS_LOST: "GPU is lost",
    RESET_REQUIRED: "GPU requires a reset",
    FUNCTION_NOT_FOUND: "function not found",
    CONNECTION_NOT_VALID: "connection to the host engine is not valid",
    GPU_NOT_SUPPORTED: "GPU is not supported by DCGM",
    -24: "limit reached",
    REQUIRES_ROOT: "host engine runs without the privilege for it (root or CAP_SYS_ADMIN)",
    FIELD_UNSUPPORTED_BY_API: "field is not supported by this call",
    MODULE_NOT_LOADED: "module of DCGM is not loaded",
    IN_USE: "in use",
    PROFILING_NOT_SUPPORTED: "profiling is not supported for this GPU",
    PROFILING_LIBRARY_ERROR: "profiling library failed",
    PROFILING_MULTI_PASS: "these fields cannot be measured at the same time",
    INSTANCE_NOT_FOUND: "GPU instance does not exist",
    PAUSED: "host engine is paused",
    NVML_NOT_LOADED: "NVML is not loaded",
    NVML_DRIVER_TIMEOUT: "driver does not answer",
    GPUS_DETACHED: "GPUs are detached",
}
"""What DCGM's return codes mean (`dcgmReturn_t`)."""

_ABSENT = frozenset({
    NOT_SUPPORTED, UNINITIALIZED, VERSION_MISMATCH, NO_DATA, STALE_DATA, NOT_WATCHED, GPU_IS_LOST,
    RESET_REQUIRED, FUNCTION_NOT_FOUND, CONNECTION_NOT_VALID, GPU_NOT_SUPPORTED,
    MODULE_NOT_LOADED, IN_USE, PROFILING_NOT_SUPPORTED, PROFILING_LIBRARY_ERROR,
    PROFILING_MULTI_PASS, INSTANCE_NOT_FOUND, PAUSED, NVML_NOT_LOADED, GPUS_DETACHED,
})  # fmt: skip
_REASONS: dict[int, Reason] = {
    **dict.fromkeys(_ABSENT, "unavailable"),
    TIMEOUT: "timeout",
    NVML_DRIVER_TIMEOUT: "timeout",
    NO_PERMISSION: "denied",
    REQUIRES_ROOT: "denied",
}
_LOST = frozenset({CONNECTION_NOT_VALID, UNINITIALIZED})

GPU = 1
INSTANCE = 4
"""Kinds of entity (`dcgm_field_entity_group_t`): a GPU, a GPU instance of MIG."""

AUTO, MANUAL = 1, 2
_EMPTY_GROUP = 1
_LIVE = 1
_MAX_DEVICES = 32
_MAX_INSTANCES = 32 * 14
_BLOB = 4096
_TEXT = 256
_SONAMES = ("libdcgm.so.4", "libdcgm.so.3")


class DcgmError(SourceError):
    """A call failed; `code` is DCGM's return code, `function` who said it."""

    def __init__(self, code: int, function: str, what: str = "") -> None:
        super().__init__(reason_of_code(code), said(code, function, what))
        self.code = code
        self.function = function


class DcgmLost(ConnectionError):  # noqa: N818 - a loss, like the error it is one of
    """There is no connection to a host engine, or no longer; `code` and `function` as above."""

    def __init__(self, code: int, function: str, what: str = "") -> None:
        super().__init__(said(code, function, what))
        self.code = code
        self.function = function


def reason_of_code(code: int) -> Reason:
    """Return the one word that says why a return code means there is nothing."""
    return _REASONS.get(code, "io")


def said(code: int, function: str, what: str = "") -> str:
    """Return a return code in words, with who said it about what."""
    about = f" ({what})" if what else ""
    return f"{function}{about}: {TEXTS.get(code, 'error')} ({code})"


class Entity(NamedTuple):
    """A GPU or a GPU instance, by DCGM's own number, which need not be NVML's."""

    kind: int
    number: int


class Instance(NamedTuple):
    """A GPU instance: its entity, DCGM's number of its GPU, and its number on that GPU."""

    entity: Entity
    gpu: int
    number: int


class Value(NamedTuple):
    """One value. `status` is a return code; `micros` when it was measured, in Unix microseconds.

    `value` is `None` unless the status is 0 and the type is a number or text.
    """

    entity: Entity
    field: int
    status: int
    micros: int
    value: int | float | str | None


class Driver(Protocol):
    """What the readers need of DCGM.

    All raise `DcgmError` and, once the host engine is gone, `DcgmLost`.
    """

    @property
    def seconds(self) -> float:
        """Time spent in calls so far."""

    def open(self, address: str | None, *, timeout: float, manual: bool) -> None:
        """Connect to the host engine at `address`, or start one in this process if `None`."""

    def close(self) -> None:
        """Give everything back. Balanced with `open`; never raises for a lost engine."""

    def gpus(self) -> list[int]:
        """Return DCGM's numbers of the GPUs that it supports."""

    def instances(self) -> list[Instance]:
        """Return the GPU instances (MIG) of all GPUs."""

    def create_group(self, name: str, entities: Sequence[Entity]) -> int:
        """Make a group of entities; return its number."""

    def destroy_group(self, group: int) -> None:
        """Undo `create_group`."""

    def create_fields(self, name: str, fields: Sequence[int]) -> int:
        """Make a group of fields; return its number."""

    def destroy_fields(self, fields: int) -> None:
        """Undo `create_fields`."""

    def watch(self, group: int, fields: int, *, every: float, keep: float) -> None:
        """Have the fields measured `every` so many seconds and kept for `keep` seconds."""

    def unwatch(self, group: int, fields: int) -> None:
        """Undo `watch`."""

    def update(self) -> None:
        """Have what is due measured now, and wait for it."""

    def ask(
        self, entities: Sequence[Entity], fields: Sequence[int], *, live: bool = False
    ) -> Callable[[], list[Value]]:
        """Return what gets the latest value of each field of each entity, again and again.

        `live` asks the driver instead of what was kept; that is slow.
        """


class _ConnectParams(ctypes.Structure):  # dcgmConnectV2Params_v2
    _fields_ = (
        ("version", ctypes.c_uint),
        ("persist_after_disconnect", ctypes.c_uint),
        ("timeout_ms", ctypes.c_uint),
        ("address_is_unix_socket", ctypes.c_uint),
    )


class _EmbeddedParams(ctypes.Structure):
    """dcgmStartEmbeddedV2Params_v1: of its three versions the one that every release knows."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("mode", ctypes.c_int),
        ("handle", ctypes.c_size_t),
        ("log_file", ctypes.c_char_p),
        ("severity", ctypes.c_int),
        ("deny_count", ctypes.c_uint),
        ("deny", ctypes.c_uint * 10),
    )


class _Entity(ctypes.Structure):  # dcgmGroupEntityPair_t
    _fields_ = (("kind", ctypes.c_int), ("number", ctypes.c_uint))


class _HierarchyEntry(ctypes.Structure):  # dcgmMigHierarchyInfo_v2
    _fields_ = (
        ("entity", _Entity),
        ("parent", _Entity),
        ("gpu_uuid", ctypes.c_char * 128),
        ("gpu_index", ctypes.c_uint),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
        ("profile", ctypes.c_uint),
        ("slices", ctypes.c_uint),
    )


class _Hierarchy(ctypes.Structure):  # dcgmMigHierarchy_v2
    _fields_ = (
        ("version", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("entries", _HierarchyEntry * _MAX_INSTANCES),
    )


# dcgmFieldValue_v2: version, kind and number of the entity, field, type, status, unused, time, and
# the value in a union of 4096 bytes.
_HEAD = struct.Struct("=IIIHHiIq")
_INT = struct.Struct("=q")
_DOUBLE = struct.Struct("=d")
_VALUE_SIZE = _HEAD.size + _BLOB
_VALUE_VERSION = _VALUE_SIZE | 2 << 24
_TYPE_INT, _TYPE_DOUBLE, _TYPE_TEXT, _TYPE_TIME = b"idst"


def _version(structure: ctypes.Structure, number: int) -> int:
    return ctypes.sizeof(structure) | number << 24


class Library:
    """libdcgm itself, behind `Driver`. Belongs to one thread.

    `path` is where it is; "" means the system's, version 4 before version 3. Raises
    `FileNotFoundError` if it cannot be loaded.
    """

    def __init__(self, path: str, clock: Clock) -> None:
        self._library = _load((path,) if path else _SONAMES)
        self._clock = clock
        self.seconds = 0.0
        self._handle = ctypes.c_size_t(0)
        self._initialized = False
        self._stop = ""

    def open(self, address: str | None, *, timeout: float, manual: bool) -> None:
        """Connect to the host engine at `address`, or start one in this process if `None`.

        An address is a host with or without port, `unix://` and a path, or a path. Raises
        `DcgmLost` if nobody is there, within `timeout` seconds.
        """
        self._call("dcgmInit")
        self._initialized = True
        try:
            if address is None:
                self._embed(AUTO if not manual else MANUAL)
            else:
                self._connect(address, timeout)
        except (SourceError, ConnectionError):
            self.close()
            raise

    def close(self) -> None:
        """Disconnect, or stop the embedded engine, and shut the library down.

        What the other side says to it is not heard: a lost engine has nothing to be given back.
        """
        stop, self._stop = self._stop, ""
        if stop:
            self._function(stop)(self._handle)
        if self._initialized:
            self._initialized = False
            self._function("dcgmShutdown")()

    def gpus(self) -> list[int]:
        """Return DCGM's numbers of the GPUs that it supports."""
        numbers = (ctypes.c_uint * _MAX_DEVICES)()
        count = ctypes.c_int(0)
        self._call("dcgmGetAllSupportedDevices", self._handle, numbers, ctypes.byref(count))
        return list(numbers[: count.value])

    def instances(self) -> list[Instance]:
        """Return the GPU instances (MIG) of all GPUs; none where DCGM knows no MIG."""
        hierarchy = _Hierarchy()
        hierarchy.version = _version(hierarchy, 2)
        try:
            self._call(
                "dcgmGetGpuInstanceHierarchy", self._handle, ctypes.byref(hierarchy)
            )  # fmt: skip
        except DcgmError as error:
            if error.code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
                return []
            raise
        return [
            Instance(Entity(INSTANCE, entry.entity.number), entry.parent.number, entry.instance)
            for entry in hierarchy.entries[: hierarchy.count]
            if entry.entity.kind == INSTANCE
        ]

    def create_group(self, name: str, entities: Sequence[Entity]) -> int:
        """Make a group of entities; return its number. The name is unique in the host engine."""
        group = ctypes.c_size_t(0)
        self._call(
            "dcgmGroupCreate", self._handle, _EMPTY_GROUP, name.encode(), ctypes.byref(group)
        )
        for kind, number in entities:
            self._call(
                "dcgmGroupAddEntity", self._handle, group, kind, ctypes.c_uint(number)
            )  # fmt: skip
        return group.value

    def destroy_group(self, group: int) -> None:
        """Undo `create_group`."""
        self._call("dcgmGroupDestroy", self._handle, ctypes.c_size_t(group))

    def create_fields(self, name: str, fields: Sequence[int]) -> int:
        """Make a group of fields; return its number. The name is unique in the host engine."""
        numbers = (ctypes.c_ushort * len(fields))(*fields)
        group = ctypes.c_size_t(0)
        self._call(
            "dcgmFieldGroupCreate", self._handle, len(fields), numbers, name.encode(),
            ctypes.byref(group),
        )  # fmt: skip
        return group.value

    def destroy_fields(self, fields: int) -> None:
        """Undo `create_fields`."""
        self._call("dcgmFieldGroupDestroy", self._handle, ctypes.c_size_t(fields))

    def watch(self, group: int, fields: int, *, every: float, keep: float) -> None:
        """Have the fields measured `every` so many seconds and kept for `keep` seconds.

        All or nothing: one field that a GPU of the group does not have fails the whole call.
        """
        self._call(
            "dcgmWatchFields", self._handle, ctypes.c_size_t(group), ctypes.c_size_t(fields),
            ctypes.c_longlong(round(every * 1e6)), ctypes.c_double(keep), 0,
        )  # fmt: skip

    def unwatch(self, group: int, fields: int) -> None:
        """Undo `watch`."""
        self._call(
            "dcgmUnwatchFields", self._handle, ctypes.c_size_t(group), ctypes.c_size_t(fields)
        )

    def update(self) -> None:
        """Have what is due measured now, and wait for it."""
        self._call("dcgmUpdateAllFields", self._handle, 1)

    def ask(
        self, entities: Sequence[Entity], fields: Sequence[int], *, live: bool = False
    ) -> Callable[[], list[Value]]:
        """Return what gets the latest value of each field of each entity, again and again.

        It raises `Malformed` if the answer is not laid out as agreed. Values come in no particular
        order.
        """
        name = "dcgmEntitiesGetLatestValues"
        number = len(entities) * len(fields)
        buffer = ctypes.create_string_buffer(number * _VALUE_SIZE)
        arguments = (
            (_Entity * len(entities))(*(_Entity(*entity) for entity in entities)),
            ctypes.c_uint(len(entities)),
            (ctypes.c_ushort * len(fields))(*fields),
            ctypes.c_uint(len(fields)),
            ctypes.c_uint(_LIVE if live else 0),
            buffer,
        )

        def get() -> list[Value]:
            self._call(name, self._handle, *arguments)
            view = memoryview(buffer)
            return [_value(view, at) for at in range(0, number * _VALUE_SIZE, _VALUE_SIZE)]

        return get

    def _embed(self, mode: int) -> None:
        params = _EmbeddedParams()
        params.version = _version(params, 1)
        params.mode = mode
        self._call("dcgmStartEmbedded_v2", ctypes.byref(params))
        self._handle = ctypes.c_size_t(params.handle)
        self._stop = "dcgmStopEmbedded"

    def _connect(self, address: str, timeout: float) -> None:
        params = _ConnectParams()
        params.version = _version(params, 2)
        params.timeout_ms = round(timeout * 1000)
        where = address.removeprefix("tcp://")
        if address.startswith(("unix://", "/")):
            where = address.removeprefix("unix://")
            params.address_is_unix_socket = 1
        self._call(
            "dcgmConnect_v2", where.encode(), ctypes.byref(params), ctypes.byref(self._handle),
            what=address,
        )  # fmt: skip
        self._stop = "dcgmDisconnect"

    def _call(self, name: str, *arguments: Any, what: str = "") -> None:
        """Call a function that returns a code, and raise what the code means."""
        function = self._function(name)
        began = self._clock.monotonic()
        code = function(*arguments)
        self.seconds += self._clock.monotonic() - began
        if code in _LOST:
            raise DcgmLost(code, name, what)
        if code != 0:
            raise DcgmError(code, name, what)

    def _function(self, name: str) -> Callable[..., int]:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise DcgmError(FUNCTION_NOT_FOUND, name, "not in the library") from None
        return function  # type: ignore[no-any-return]


def _load(names: Sequence[str]) -> ctypes.CDLL:
    faults = []
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            faults.append(str(error))
    raise FileNotFoundError(
        f"libdcgm cannot be loaded ({'; '.join(faults)}): DCGM is not installed here, or `library`"
        " is another path"
    )


def _value(view: memoryview, at: int) -> Value:
    version, kind, number, field, form, status, _, micros = _HEAD.unpack_from(view, at)
    if version != _VALUE_VERSION:
        raise Malformed(
            f"libdcgm returned a value of version {version:#x}, not {_VALUE_VERSION:#x}"
        )
    value: int | float | str | None = None
    if status == 0:
        start = at + _HEAD.size
        if form in (_TYPE_INT, _TYPE_TIME):
            (value,) = _INT.unpack_from(view, start)
        elif form == _TYPE_DOUBLE:
            (value,) = _DOUBLE.unpack_from(view, start)
        elif form == _TYPE_TEXT:
            text = bytes(view[start : start + _TEXT]).partition(b"\0")[0]
            value = text.decode("utf-8", "replace")
    return Value(Entity(kind, number), field, status, micros, value)
