"""The door to libdcgm, against a fake library through ctypes."""

from __future__ import annotations

import contextlib
import ctypes
from collections import Counter
from collections.abc import Iterator

import pytest

from exporter.clock import SystemClock
from exporter.dcgm.driver import (
    GPU,
    INSTANCE,
    DcgmError,
    DcgmLost,
    Entity,
    Instance,
    Library,
    Value,
)
from exporter.samples import Malformed, reason_of
from tests.fake_dcgm import Control

ZERO = Entity(GPU, 0)


@pytest.fixture
def library(libdcgm: str, control: Control) -> Iterator[Library]:
    control.set("time 1790000000000000")
    library = Library(libdcgm, SystemClock())
    yield library
    library.close()


def opened(library: Library, address: str | None = "localhost", *, manual: bool = False) -> Library:
    library.open(address, timeout=1.0, manual=manual)
    return library


def watched(library: Library, *fields: int, entities: tuple[Entity, ...] = (ZERO,)) -> int:
    group = library.create_group("g", entities)
    library.watch(group, library.create_fields("f", fields), every=1.0, keep=30.0)
    return group


def test_a_library_that_is_not_there() -> None:
    """The error says what was tried; it is the kind that means `unavailable`."""
    with pytest.raises(FileNotFoundError, match=r"libdcgm cannot be loaded .*/no/such/lib") as info:
        Library("/no/such/libdcgm.so.4", SystemClock())
    assert reason_of(info.value) == "unavailable"


def test_the_library_of_version_4_is_preferred_and_3_will_do() -> None:
    """Without a path both are looked for, and both are named if neither is there."""
    for name in ("libdcgm.so.4", "libdcgm.so.3"):
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
            pytest.skip("DCGM is installed here")
    with pytest.raises(FileNotFoundError, match=r"libdcgm\.so\.4.*libdcgm\.so\.3"):
        Library("", SystemClock())


def test_a_missing_function_is_named() -> None:
    """A library that lacks a function: the error names it (nvidia_gpu_exporter 476)."""
    with pytest.raises(DcgmError, match=r"dcgmInit \(not in the library\).*\(-20\)"):
        opened(Library("libc.so.6", SystemClock()))


def test_nobody_listens(library: Library, control: Control) -> None:
    """Where no host engine is the error names the address, and means `unavailable`."""
    control.set("listen localhost")
    with pytest.raises(DcgmLost, match=r"dcgmConnect_v2 \(elsewhere:5555\).*\(-21\)") as info:
        opened(library, "elsewhere:5555")
    assert reason_of(info.value) == "unavailable"
    assert control.calls() == ["dcgmInit", "dcgmConnect_v2", "dcgmShutdown"]


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("localhost", "localhost"),
        ("10.0.0.7:5555", "10.0.0.7:5555"),
        ("tcp://localhost:5555", "localhost:5555"),
        ("unix:///run/nv.sock", "unix:/run/nv.sock"),
        ("/run/nv.sock", "unix:/run/nv.sock"),
    ],
)
def test_addresses(library: Library, control: Control, address: str, reached: str) -> None:
    """A host, a host and port, and two ways to say a socket reach what they name."""
    control.set(f"listen {reached}", "gpu 0 0 GPU-a")
    assert opened(library, address).gpus() == [0]


@pytest.mark.parametrize("manual", [True, False])
def test_an_embedded_engine(library: Library, control: Control, manual: bool) -> None:
    """Without an address an engine is started in this process, and stopped again."""
    control.set("gpu 0 0 GPU-a")
    assert opened(library, None, manual=manual).gpus() == [0]
    library.close()
    assert control.calls() == [
        "dcgmInit", "dcgmStartEmbedded_v2", "dcgmGetAllSupportedDevices", "dcgmStopEmbedded",
        "dcgmShutdown",
    ]  # fmt: skip


def test_everything_is_given_back(library: Library, control: Control) -> None:
    """What was made is unmade, and a library can be opened again after that (pyJoules 50)."""
    control.set("gpu 0 0 GPU-a")
    for _ in range(3):
        group = opened(library).create_group("g", [ZERO])
        fields = library.create_fields("f", [155])
        library.watch(group, fields, every=1.0, keep=30.0)
        library.unwatch(group, fields)
        library.destroy_fields(fields)
        library.destroy_group(group)
        library.close()
        library.close()
    calls = Counter(control.calls())
    for begin, end in (
        ("dcgmInit", "dcgmShutdown"),
        ("dcgmConnect_v2", "dcgmDisconnect"),
        ("dcgmWatchFields", "dcgmUnwatchFields"),
        ("dcgmGroupCreate", "dcgmGroupDestroy"),
        ("dcgmFieldGroupCreate", "dcgmFieldGroupDestroy"),
    ):
        assert calls[begin] == calls[end] == 3


def test_values_of_all_types(library: Library, control: Control) -> None:
    """Whole numbers, doubles and text come as what they are, with entity, field and time."""
    control.set("gpu 0 3 GPU-abc")
    control.value(0, 156, 2**53 + 1)
    control.value(0, 155, 412.5, micros=1790000000123456)
    opened(library)
    watched(library, 52, 54, 155, 156)
    values = library.ask([ZERO], [52, 54, 155, 156])()
    when = 1790000000000000
    assert sorted(values) == [
        Value(ZERO, 52, 0, when, 3),
        Value(ZERO, 54, 0, when, "GPU-abc"),
        Value(ZERO, 155, 0, when + 123456, 412.5),
        Value(ZERO, 156, 0, when, 2**53 + 1),
    ]


def test_a_value_with_a_status_has_no_value(library: Library, control: Control) -> None:
    """What DCGM leaves in the value of a failed field is never taken for one."""
    control.set("gpu 0 0 GPU-a")
    control.status(0, 155, -6)
    opened(library)
    watched(library, 155, 156)
    answers = {(v.field, v.status, v.value) for v in library.ask([ZERO], [155, 156, 157])()}
    assert answers == {(155, -6, None), (156, -14, None), (157, -16, None)}


def test_live_values_need_no_watch(library: Library, control: Control) -> None:
    """The driver is asked directly, for what does not change."""
    control.set("gpu 0 2 GPU-a")
    assert {v.value for v in opened(library).ask([ZERO], [52, 54], live=True)()} == {2, "GPU-a"}


def test_a_layout_that_is_not_ours_is_refused(library: Library, control: Control) -> None:
    """Values of another version are an error, never misread (gpud 1183)."""
    control.set("gpu 0 0 GPU-a", "version 0x03001020")
    ask = opened(library).ask([ZERO], [52], live=True)
    with pytest.raises(Malformed, match="0x3001020, not 0x2001020"):
        ask()


def test_instances(library: Library, control: Control) -> None:
    """GPU instances come with their GPU and their number on it; without MIG there are none."""
    opened(library)
    assert library.instances() == []
    control.set("instance 5 1 3", "instance 6 1 9")
    assert library.instances() == [
        Instance(Entity(INSTANCE, 5), 1, 3),
        Instance(Entity(INSTANCE, 6), 1, 9),
    ]


FUNCTIONS = {
    "dcgmGetAllSupportedDevices": lambda library: library.gpus(),
    "dcgmGetGpuInstanceHierarchy": lambda library: library.instances(),
    "dcgmGroupCreate": lambda library: library.create_group("g", [ZERO]),
    "dcgmGroupAddEntity": lambda library: library.create_group("g", [ZERO]),
    "dcgmGroupDestroy": lambda library: library.destroy_group(1),
    "dcgmFieldGroupCreate": lambda library: library.create_fields("f", [1]),
    "dcgmFieldGroupDestroy": lambda library: library.destroy_fields(1),
    "dcgmWatchFields": lambda library: watched(library, 155),
    "dcgmUnwatchFields": lambda library: library.unwatch(1, 1),
    "dcgmUpdateAllFields": lambda library: library.update(),
    "dcgmEntitiesGetLatestValues": lambda library: library.ask([ZERO], [155])(),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_each_return_code_is_looked_at(library: Library, control: Control, function: str) -> None:
    """A function that fails is an error with its name, the code, and what the code means."""
    opened(library)
    control.set(f"fail {function} -17")
    with pytest.raises(DcgmError, match=rf"{function}: no permission \(-17\)") as info:
        FUNCTIONS[function](library)
    assert (info.value.function, info.value.code) == (function, -17)
    assert reason_of(info.value) == "denied"


@pytest.mark.parametrize("function", ["dcgmInit", "dcgmConnect_v2"])
def test_opening_that_fails_leaves_nothing_behind(
    library: Library, control: Control, function: str
) -> None:
    """The library is shut down again if it was started, and can be opened later."""
    control.set(f"fail {function} -7", "gpu 0 0 GPU-a")
    with pytest.raises(DcgmError, match=function):
        opened(library)
    control.unset(f"fail {function}")
    assert opened(library).gpus() == [0]
    library.close()
    calls = Counter(control.calls())
    assert calls["dcgmInit"] - (function == "dcgmInit") == calls["dcgmShutdown"]


def test_a_restarted_host_engine_is_a_lost_connection(library: Library, control: Control) -> None:
    """Calls fail as a connection does; closing then raises nothing."""
    control.set("gpu 0 0 GPU-a", "epoch 1")
    opened(library)
    control.set("epoch 2")
    with pytest.raises(ConnectionError, match=r"dcgmGetAllSupportedDevices.*not valid"):
        library.gpus()
    library.close()
    assert opened(library).gpus() == [0]


def test_time_spent_in_calls_is_counted(library: Library, control: Control) -> None:
    """The daemon tells its own cost from the driver's."""
    control.set("gpu 0 0 GPU-a")
    opened(library).gpus()
    assert library.seconds > 0
