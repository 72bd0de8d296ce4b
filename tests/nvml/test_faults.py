"""What drivers do wrong, each through the real bindings and a real child process.

The faults are those that were reported for other exporters, or that the driver's own documentation
threatens with; the fake library commits them on command.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.isolate import Isolated
from exporter.samples import Event, SourceError
from tests.fake_nvml import OLD_DRIVER, Control, build
from tests.nvml_lab import Log, Page, Time, read, until

Child = Callable[..., Isolated]
STANDING = "tests.nvml_lab"
EIGHT = range(8)
UUID = "GPU-01000100-0000-4000-8000-00000000000{}".format


def up(page: Page) -> dict[int, float]:
    return page.by_gpu(c.GPU_UP)


def all_up(page: Page) -> bool:
    return up(page) == dict.fromkeys(EIGHT, 1)


def all_but(*down: int) -> Callable[[Page], bool]:
    return lambda page: up(page) == {gpu: int(gpu not in down) for gpu in EIGHT}


def fails(source: Isolated) -> SourceError:
    """Read once, which must fail with a reason; return it."""
    with pytest.raises(SourceError) as caught:
        source.read()
    return caught.value


# ---- hangs ----------------------------------------------------------------------------------


def test_one_hung_gpu_costs_the_other_seven_nothing(
    child: Child, control: Control, log: Log
) -> None:
    """It is down and named, the rest goes on, and it gets no second call until it comes back."""
    source = child("h100-sxm8", budget=2.0)
    before = until(source, all_up)

    control.add("3 * = hang")
    page = until(
        source, lambda page: all_but(3)(page) and [f.part for f in page.faults] == ["gpu3"]
    )
    assert [fault.reason for fault in page.faults] == ["timeout"]
    assert page.families(3) == {"gpu_up", "gpu_losses_total"}
    log.forget()
    for _ in range(5):
        page = until(source, all_but(3))
    assert log.lines(device="3") == [], "no second call into a GPU that hangs"
    assert log.lines("nvmlDeviceGetTotalEnergyConsumption", "4")
    old, new = before.by_gpu(c.GPU_ENERGY_JOULES_TOTAL), page.by_gpu(c.GPU_ENERGY_JOULES_TOTAL)
    assert sorted(new) == [0, 1, 2, 4, 5, 6, 7]
    assert all(new[gpu] > old[gpu] for gpu in new), "the others' values move"
    assert page.one(c.GPU_LOSSES_TOTAL, "3") == 0, "it hangs; that it is lost nobody has said"
    pid = source.pid

    control.remove("3 * = hang")
    page = until(source, lambda page: all_up(page) and page.families(3) == page.families(4))
    assert page.faults == []
    assert source.pid == pid


def test_a_gpu_that_hangs_from_the_start_costs_the_others_nothing(
    child: Child, control: Control
) -> None:
    """Not even who it is can be asked; the others are found all the same, and it later."""
    source = child("h100-sxm8", ["3 * = hang"], budget=2.0)

    others = set(EIGHT) - {3}
    page = until(source, lambda page: {g for g, v in up(page).items() if v} == others)
    assert page.one(c.GPU_DEVICES_PRESENT) == 7
    assert page.one(c.GPU_DEVICES_EXPECTED) == 8
    assert [fault.reason for fault in page.said("gpu3")] == ["timeout"]

    control.remove("3 * = hang")
    assert until(source, all_up).faults == []


def test_a_hung_start_of_the_library_is_a_timeout_and_no_second_child_is_started(
    child: Child, control: Control, log: Log
) -> None:
    """nvmlInit may never return (go-nvml 152): it is called once, in one process."""
    source = child("h100-sxm8", ["system nvmlInit_v2 = hang"], budget=0.5)

    pids = set()
    for _ in range(4):
        assert fails(source).reason == "timeout"
        pids.add(source.pid)
    assert len(pids) == 1
    assert log.counts()["nvmlInitWithFlags"] + log.counts()["nvmlInit_v2"] == 1

    control.clear()
    until(source, all_up)
    assert source.pid in pids


def test_a_hang_in_the_counters_costs_only_what_they_say(
    child: Child, control: Control, log: Log
) -> None:
    """GPM hangs everywhere: no SM activity, all else is there, and each GPU is asked once."""
    source = child("h100-sxm8", ["* nvmlGpmSampleGet = hang"], budget=1.0)

    page = until(source, lambda page: len(page.faults) == 8 and all_up(page))
    assert {fault.part for fault in page.faults} == {f"gpu{gpu}/gpm" for gpu in EIGHT}
    assert {fault.reason for fault in page.faults} == {"timeout"}
    assert page.of(c.GPU_SM_ACTIVE_RATIO) == {}
    assert sorted(page.by_gpu(c.GPU_POWER_WATTS)) == [*EIGHT]
    for _ in range(4):
        until(source, all_up)
    assert log.counts()["nvmlGpmSampleGet"] == 8

    control.clear()
    page = until(source, lambda page: len(page.of(c.GPU_SM_ACTIVE_RATIO)) == 8)
    assert page.faults == []


def test_one_gpu_that_hangs_in_the_counters_leaves_the_activity_of_the_others(
    child: Child, control: Control
) -> None:
    """It is named; the other seven are measured meanwhile, and their integrals go on."""
    source = child("h100-sxm8", budget=1.0)
    until(source, lambda page: len(page.of(c.GPU_SM_ACTIVE_SECONDS_TOTAL)) == 8)

    control.add("3 nvmlGpmSampleGet = hang")
    others = {gpu for gpu in EIGHT if gpu != "3"}
    page = until(source, lambda page: set(page.by_gpu(c.GPU_SM_ACTIVE_SECONDS_TOTAL)) == others)
    page = until(source, lambda page: bool(page.said("gpu3/gpm")))
    assert [fault.part for fault in page.faults] == ["gpu3/gpm"]
    assert all_up(page)

    control.clear()
    until(source, lambda page: len(page.of(c.GPU_SM_ACTIVE_RATIO)) == 8 and not page.faults)


def test_a_hang_in_waiting_for_events_costs_only_those(
    child: Child, control: Control, log: Log
) -> None:
    """It is told, the GPUs are read all the same, and it is not called again meanwhile."""
    source = child("h100-sxm8", budget=1.0)
    until(source, all_up)

    control.add("system nvmlEventSetWait_v2 = hang")
    page = until(source, lambda page: all_up(page) and len(page.faults) == 8)
    assert {fault.part for fault in page.faults} == {f"gpu{gpu}/events" for gpu in EIGHT}
    assert {fault.reason for fault in page.faults} == {"timeout"}
    log.forget()
    for _ in range(3):
        until(source, all_up)
    assert log.lines("nvmlEventSetWait_v2") == []

    control.clear()
    until(source, lambda page: all_up(page) and not page.faults)


@pytest.mark.parametrize("call", ["nvmlEventSetWait_v2", "nvmlDeviceGetCount_v2"])
@pytest.mark.parametrize("code", [15, 999])
def test_an_error_that_concerns_no_gpu_costs_no_gpu(
    call: str, code: int, child: Child, control: Control
) -> None:
    """Waiting for events fails as soon as any GPU is lost, says NVIDIA's manual."""
    source = child("h100-sxm8")
    read(source)

    control.add(f"system {call} = !{code}")
    page = read(source)
    assert all_up(page)
    events = [f"gpu{gpu}/events" for gpu in EIGHT]
    assert [f.part for f in page.faults] == (["library"] if "Count" in call else events)
    assert call in page.faults[0].detail

    control.clear()
    page = read(source)
    assert all_up(page)
    assert page.faults == []


# ---- lost -----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [15, 16, 28])
def test_a_lost_gpu_is_missed_and_comes_back(
    code: int, child: Child, control: Control, log: Log, passing: Time
) -> None:
    """Lost, in need of a reset, not found: counted once, the rest goes on, tried again later."""
    source = child("h100-sxm8", module=STANDING)
    assert all_up(read(source))
    passing.forward(1)

    control.add(f"3 * = !{code}")
    for _ in range(3):
        page = read(source)
        assert all_but(3)(page)
        assert [fault.reason for fault in page.faults] == ["unavailable"]
        assert page.said("gpu3")
        assert page.by_gpu(c.GPU_LOSSES_TOTAL) == {gpu: int(gpu == 3) for gpu in EIGHT}
        assert page.one(c.GPU_DEVICES_EXPECTED) == 8
        assert page.one(c.GPU_DEVICES_PRESENT) == 7
        assert sorted(page.by_gpu(c.GPU_POWER_WATTS)) == [0, 1, 2, 4, 5, 6, 7]
        passing.forward(1)
    assert log.counts()["nvmlInitWithFlags"] == 1, "the library is not started anew for one GPU"
    log.forget()
    assert all_but(3)(read(source))
    assert log.lines(device="3") == [], "not asked at each read"

    passing.forward(30)
    assert all_but(3)(read(source)), "asked again, and still lost"
    assert log.lines(device="3")
    control.remove(f"3 * = !{code}")
    passing.forward(31)
    page = read(source)
    assert all_up(page)
    assert page.faults == []
    assert page.one(c.GPU_LOSSES_TOTAL, "3") == 1

    control.add(f"3 * = !{code}")
    assert read(source).one(c.GPU_LOSSES_TOTAL, "3") == 2


def test_a_gpu_off_the_bus_is_missed_without_any_xid(
    child: Child, control: Control, log: Log, passing: Time
) -> None:
    """After a new start the driver lists one less, and nobody said why (gpud 1209)."""
    told: list[Event] = []
    source = child("h100-sxm8", module=STANDING, events=told.append)
    read(source)

    control.add("gone = 3")
    for _ in range(2):
        passing.forward(1)
        page = read(source)
        alive = {labels[1]: value for labels, value in page.of(c.GPU_UP).items()}
        assert alive == {UUID(gpu): int(gpu != 3) for gpu in EIGHT}
        assert page.one(c.GPU_DEVICES_EXPECTED) == 8
        assert page.one(c.GPU_DEVICES_PRESENT) == 7
        losses = {labels[1]: n for labels, n in page.of(c.GPU_LOSSES_TOTAL).items() if n}
        assert losses == {UUID(3): 1}
        assert [fault.reason for fault in page.faults] == ["unavailable"]
    assert told == []
    assert log.counts()["nvmlInitWithFlags"] == 2

    control.remove("gone = 3")
    passing.forward(31)
    page = read(source)
    assert all_up(page)
    assert page.faults == []


def test_what_is_on_the_bus_and_not_listed_is_expected(child: Child, root: Path) -> None:
    """A GPU that the driver never listed is missed, as the kernel has it on its PCI bus."""
    for slot in range(9):
        device = root / f"sys/bus/pci/devices/0000:{slot:02x}:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")

    page = read(child("h100-sxm8"))

    assert page.one(c.GPU_DEVICES_EXPECTED) == 9
    assert page.one(c.GPU_DEVICES_PRESENT) == 8


# ---- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [3, 4])
def test_what_is_refused_is_asked_once(code: int, child: Child, log: Log, passing: Time) -> None:
    """NOT_SUPPORTED and NO_PERMISSION: absent, no fault, and not asked again."""
    lines = [f"* nvmlDeviceGetTotalEccErrors = !{code}", f"* field 82 = !{code}"]
    source = child("h100-sxm8", lines, module=STANDING)

    for _ in range(12):
        page = read(source)
        passing.forward(1)
        assert page.faults == []
        assert page.of(c.GPU_ECC_ERRORS_TOTAL) == {}
        assert {labels[2] for labels in page.of(c.GPU_TEMPERATURE_CELSIUS)} == {"core"}
    assert len(log.lines("nvmlDeviceGetTotalEccErrors")) == 8 * 4, "four kinds, once for each GPU"
    with_82 = [x for x in log.lines("nvmlDeviceGetFieldValues", "0") if "82" in x.split()[2:]]
    assert len(with_82) == 1


def test_what_becomes_unsupported_is_dropped_and_asked_no_more(
    child: Child, control: Control, log: Log
) -> None:
    """A driver that takes a function away at run time: a MIG layout does that to utilization."""
    source = child("h100-sxm8")
    assert len(read(source).of(c.GPU_UTILIZATION_RATIO)) == 8

    control.add("* nvmlDeviceGetUtilizationRates = !3")
    page = read(source)
    assert page.of(c.GPU_UTILIZATION_RATIO) == {}
    assert page.faults == []
    assert all_up(page)
    log.forget()
    assert all_up(read(source))
    assert log.lines("nvmlDeviceGetUtilizationRates") == []


def test_an_unknown_error_costs_one_reading_once(child: Child, control: Control) -> None:
    """999 may pass (nvitop 145 crashed on it): this reading is missing, told, and back later."""
    source = child("h100-sxm8")
    before = read(source)

    control.add("2 nvmlDeviceGetTotalEnergyConsumption = !999")
    page = read(source)
    assert all_up(page)
    assert [(fault.part, fault.reason) for fault in page.faults] == [("gpu2", "io")]
    assert "nvmlDeviceGetTotalEnergyConsumption" in page.faults[0].detail
    assert before.families(2) - page.families(2) == {"gpu_energy_joules_total"}
    assert len(page.of(c.GPU_ENERGY_JOULES_TOTAL)) == 7

    control.clear()
    page = read(source)
    assert page.faults == []
    assert len(page.of(c.GPU_ENERGY_JOULES_TOTAL)) == 8


def test_one_bad_field_leaves_the_others_alone(child: Child, control: Control) -> None:
    """Fields come in one answer; one of them failing is told and costs only itself.

    dcgm-exporter 581 and DCGM 265: a single bad field made all others N/A.
    """
    source = child("h100-sxm8")
    before = read(source)

    control.add("2 field 74 = !999")
    page = read(source)
    gone = {sample[:2] for sample in before.samples} - {sample[:2] for sample in page.samples}
    assert [(metric, labels[0], labels[2:]) for metric, labels in gone] == [
        (c.GPU_THROTTLED_SECONDS_TOTAL, "2", ("sw_power_cap",))
    ]
    assert all_up(page)
    assert [(fault.part, fault.reason) for fault in page.faults] == [("gpu2", "io")]
    assert "74" in page.faults[0].detail

    control.clear()
    page = read(source)
    assert page.families(2) >= before.families(2), "what needs two samples may have come meanwhile"
    assert page.faults == []


# ---- other drivers --------------------------------------------------------------------------

ESSENTIAL = {
    "nvmlInit_v2", "nvmlInitWithFlags", "nvmlShutdown", "nvmlErrorString", "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID",
}  # fmt: skip


def test_a_library_that_lacks_nearly_everything_still_lists_its_gpus(
    child: Child, fake_library: Path, tmp_path: Path
) -> None:
    """One missing symbol must not end the process (nvidia_gpu_exporter PR 476): here all miss."""
    names = {
        word.decode() for word in fake_library.read_bytes().split(b"\0") if word[:4] == b"nvml"
    }
    assert len(names) > 100, "the names of functions were found in the library"
    bare = build(tmp_path / "bare", names - ESSENTIAL)

    page = read(child("h100-sxm8", library=bare))

    assert all_up(page)
    assert page.faults == []
    assert page.families(0) == {"gpu_up", "gpu_info", "gpu_losses_total"}


def test_an_old_driver_is_read_as_far_as_it_goes(child: Child, tmp_path: Path) -> None:
    """The 460 series has no second version of many functions and no GPM: rows are absent."""
    source = child("old-driver", library=build(tmp_path / "old", OLD_DRIVER))

    page = read(source)
    page = read(source)

    assert page.faults == []
    assert set(page.by_gpu(c.GPU_UP).values()) == {1}
    assert page.by_gpu(c.GPU_MEMORY_USED_BYTES), "the first version of the memory's answer"
    assert page.of(c.GPU_MEMORY_RESERVED_BYTES) == {}, "which does not tell the reserve"
    assert page.of(c.GPU_SM_ACTIVE_RATIO) == {}
    assert page.of(c.GPU_FABRIC_STATE) == {}


def test_a_refused_struct_version_falls_back_to_the_older_one(child: Child, log: Log) -> None:
    """A driver that knows no second version of the fabric's struct (gpud 1183 crashed)."""
    page = read(child("h100-sxm8", ["* fabric_version = 1"]))

    assert set(page.by_gpu(c.GPU_FABRIC_STATE).values()) == {3}
    assert set(page.by_gpu(c.GPU_FABRIC_HEALTHY).values()) == {1}
    assert page.faults == []
    assert log.lines("nvmlDeviceGetGpuFabricInfo", "0")


def test_a_list_of_processes_that_grows_while_it_is_read_is_left_out_once(
    child: Child, control: Control
) -> None:
    """The buffer was right when it was measured and is too short now: no crash, and told."""
    source = child("h100-sxm8", ["* nvmlDeviceGetComputeRunningProcesses_v3 = !7"])

    page = read(source)
    assert all_up(page)
    assert page.of(c.GPU_PROCESSES) == {}
    assert {(fault.part, fault.reason) for fault in page.faults} == {
        (f"gpu{gpu}", "io") for gpu in EIGHT
    }

    control.clear()
    page = until(source, lambda page: len(page.of(c.GPU_PROCESSES)) == 8, pause=0)
    assert page.faults == []


def test_blank_values_are_not_values(child: Child, passing: Time) -> None:
    """A driver that answers nonsense with success: what cannot be true is absent.

    2^32-1, 2147483632, 2^63-14, 1.4e14, NaN (gpu-monitoring-tools 97, slurm-job-exporter 53).
    """
    source = child("hostile", module=STANDING, detail=True, links=True)

    for _ in range(11):
        page = read(source)
        passing.forward(1)
        for metric, labels, value in page.samples:
            assert isinstance(value, int | float)
            assert math.isfinite(value), (metric.name, labels)
            most = 1.01 if metric.unit == "ratio" or metric.name.endswith("_ratio") else 1e13
            assert value <= most, (metric.name, labels, value)
            least = -1000 if metric.unit == "celsius" else 0
            assert value >= least, (metric.name, labels, value)
        for absent in (
            c.GPU_POWER_WATTS, c.GPU_ENERGY_JOULES_TOTAL, c.GPU_CLOCK_HERTZ,
            c.GPU_ECC_ERRORS_TOTAL, c.GPU_REMAPPED_ROWS_TOTAL, c.GPU_SM_ACTIVE_RATIO,
            c.GPU_TENSOR_ACTIVE_RATIO, c.GPU_DRAM_ACTIVE_RATIO,
        ):  # fmt: skip
            assert page.of(absent) == {}, absent.name
        # 1.4e14 ns are 39 hours: that may be so.
        reasons = {labels[2] for labels in page.of(c.GPU_THROTTLED_SECONDS_TOTAL)}
        assert not reasons & {"sw_power_cap", "thermal", "sync_boost"}
        assert set(page.by_gpu(c.GPU_UP).values()) == {1}


# ---- crashes and reloads --------------------------------------------------------------------


def test_a_crash_in_the_driver_takes_only_the_child(
    child: Child, control: Control, passing: Time
) -> None:
    """The signal is told, the next read starts another child, and our counters go on."""
    source = child("h100-sxm8", module=STANDING)
    read(source)
    passing.forward(10)
    before = read(source)
    assert before.one(c.GPU_BUSY_SECONDS_TOTAL, "3") == pytest.approx(10, abs=0.2)
    assert before.one(c.GPU_SM_ACTIVE_SECONDS_TOTAL, "0") == pytest.approx(9.55)
    pid = source.pid

    control.add("2 nvmlDeviceGetUtilizationRates = crash")
    with pytest.raises(ConnectionError, match=signal.Signals.SIGSEGV.name):
        source.read()
    control.remove("2 nvmlDeviceGetUtilizationRates = crash")

    read(source)
    passing.forward(10)
    after = read(source)
    assert source.pid != pid
    assert all_up(after)
    for counter, gained in (
        (c.GPU_SM_ACTIVE_SECONDS_TOTAL, 9.55),
        (c.GPU_TENSOR_ACTIVE_SECONDS_TOTAL, 6.25),
        (c.GPU_DRAM_ACTIVE_SECONDS_TOTAL, 3.875),
        (c.GPU_BUSY_SECONDS_TOTAL, 10),
    ):
        was, is_now = before.one(counter, "0"), after.one(counter, "0")
        assert was is not None
        assert is_now is not None
        assert is_now - was == pytest.approx(gained, abs=0.2), counter.name
    spent, more = (page.one(c.FLOPWATCH_DRIVER_SECONDS_TOTAL, "nvml") for page in (before, after))
    assert spent is not None
    assert more is not None
    assert more >= spent


def test_a_loss_is_not_counted_again_by_the_next_child(
    child: Child, control: Control, passing: Time
) -> None:
    """A GPU that was lost before a crash is still the same loss after it."""
    source = child("h100-sxm8", module=STANDING)
    read(source)
    control.add("3 * = !15")
    assert read(source).one(c.GPU_LOSSES_TOTAL, "3") == 1
    assert source.pid is not None
    os.kill(source.pid, signal.SIGKILL)
    with pytest.raises(ConnectionError):
        source.read()

    page = read(source)

    assert all_but(3)(page)
    assert page.one(c.GPU_LOSSES_TOTAL, "3") == 1
    assert page.one(c.GPU_DEVICES_EXPECTED) == 8


@pytest.mark.parametrize(
    "where", ["system nvmlDeviceGetCount_v2", "3 nvmlDeviceGetMemoryInfo_v2", "0 nvmlGpmSampleGet"]
)
def test_a_replaced_driver_ends_the_child_and_the_next_one_reads(
    where: str, child: Child, control: Control, passing: Time
) -> None:
    """LIB_RM_VERSION_MISMATCH: this library can never work again in this process."""
    source = child("h100-sxm8", module=STANDING)
    read(source)
    passing.forward(10)
    before = read(source)
    pid = source.pid

    control.add(f"{where} = !18")
    passing.forward(1)
    error = fails(source)
    assert error.reason == "unavailable"
    assert source.pid is None, "the old child has ended"
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)

    control.remove(f"{where} = !18")
    page = read(source)
    assert all_up(page)
    assert source.pid not in (None, pid)
    for counter in (c.GPU_SM_ACTIVE_SECONDS_TOTAL, c.GPU_BUSY_SECONDS_TOTAL):
        passing.forward(1)
        page = read(source)
        was, is_now = before.one(counter, "5"), page.one(counter, "5")
        assert was is not None
        assert is_now is not None
        assert is_now > was


WHERE = ("system nvmlDeviceGetCount_v2", "3 nvmlDeviceGetMemoryInfo_v2", "0 nvmlGpmSampleGet")


@pytest.mark.parametrize("line", [f"{where} = !{code}" for where in WHERE for code in (1, 9)])
def test_a_library_that_has_to_be_started_anew_is(
    line: str, child: Child, control: Control, log: Log, passing: Time
) -> None:
    """UNINITIALIZED, DRIVER_NOT_LOADED, whoever says so: shut down, and started at a next read."""
    source = child("h100-sxm8", module=STANDING)
    assert all_up(read(source))
    pid = source.pid
    passing.forward(1)

    control.add(line)
    assert fails(source).reason == "unavailable"
    control.remove(line)
    log.forget()

    page = read(source)
    assert all_up(page)
    assert source.pid == pid
    counts = log.counts()
    assert counts["nvmlInitWithFlags"] == 1
    # GetCount refused at the new start as well, which was shut down then.
    assert counts["nvmlShutdown"] == int("GetCount" not in line)


def test_a_driver_that_is_not_loaded_is_waited_for(
    child: Child, control: Control, log: Log
) -> None:
    """Each read tries once, in the same process, and the GPUs are there when the driver is."""
    source = child("h100-sxm8", ["system nvmlInit_v2 = !9"])
    pids = set()
    for _ in range(3):
        assert fails(source).reason == "unavailable"
        pids.add(source.pid)
    assert len(pids) == 1

    control.clear()

    assert all_up(read(source))
    source.close()
    assert log.counts()["nvmlShutdown"] == 1, "only what was started is shut down"


def test_a_library_that_is_not_installed_is_unavailable(
    child: Child, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node without a driver: one reason, no crash."""
    source = child("h100-sxm8")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))

    error = fails(source)

    assert error.reason == "unavailable"
    assert "libnvidia-ml.so.1" in str(error)


# ---- MIG ------------------------------------------------------------------------------------

MIG = 'mig 0 {gi} 0 profile "{profile}" uuid "MIG-{uuid}" memory 1000 reserved 0 used 10 free 990'


def mig(gi: int, profile: str, uuid: str) -> str:
    return MIG.format(gi=gi, profile=profile, uuid=uuid)


def layout(page: Page) -> dict[tuple[str, str], str]:
    """Return the profile of each instance by its number and UUID."""
    return {(ls[2], ls[4]): ls[5] for ls in page.of(c.GPU_MIG_INFO)}


def test_a_new_mig_layout_is_seen_at_run_time(
    child: Child, control: Control, passing: Time
) -> None:
    """New instances appear, old ones vanish, and no series is there twice.

    dcgm-exporter 443 and 747 crashed; gpu-monitoring-tools 142 kept the old ones.
    """
    source = child("h100-mig", module=STANDING)
    read(source)
    passing.forward(1)
    before = read(source)
    assert {gi for gi, _ in layout(before)} == {"2", "3", "9", "10"}
    ratios = {ls[2]: v for ls, v in before.of(c.GPU_MIG_SM_ACTIVE_RATIO).items()}
    assert ratios["2"] == pytest.approx(0.9425)

    # 2 is given to another profile, 3 goes, 9 and 10 stay, 7 and 8 are new.
    control.add(
        mig(2, "1g.10gb", "second"), mig(9, "1g.10gb", "00000001-0000-4000-8000-000000000009"),
        mig(7, "1g.10gb", "seven"), mig(8, "1g.10gb", "eight"),
        "0 gpm 2 mig 2 = 10.0", "0 gpm 2 mig 7 = 20.0", "0 gpm 2 mig 8 = 30.0",
    )  # fmt: skip
    seen = []
    for _ in range(4):
        passing.forward(1)
        seen.append(read(source))
        assert not [fault for fault in seen[-1].faults if fault.part == "gpu0"]
    after = seen[-1]
    assert layout(after) == {
        ("2", "MIG-second"): "1g.10gb",
        ("7", "MIG-seven"): "1g.10gb",
        ("8", "MIG-eight"): "1g.10gb",
        ("9", "MIG-00000001-0000-4000-8000-000000000009"): "1g.10gb",
    }
    assert {ls[2] for ls in after.of(c.GPU_MIG_MEMORY_USED_BYTES)} == {"2", "7", "8", "9"}
    first = next(page for page in seen if ("2", "MIG-second") in layout(page))
    assert {labels[2] for labels in first.of(c.GPU_MIG_SM_ACTIVE_RATIO)} == set(), "new windows"
    for page in seen:
        for labels, ratio in page.of(c.GPU_MIG_SM_ACTIVE_RATIO).items():
            mine = {"2": (0.1, 0.9425), "7": (0.2,), "8": (0.3,)}.get(labels[2], (0,))
            assert any(ratio == pytest.approx(one) for one in mine), "no window over two layouts"
    total = {ls[2]: v for ls, v in after.of(c.GPU_MIG_SM_ACTIVE_SECONDS_TOTAL).items()}
    assert set(total) == {"2", "7", "8", "9"}
    assert total["2"] >= 0.9425, "the number's counter goes on: it may never fall"
    assert up(after) == {0: 1}


def test_mig_switched_on_at_run_time_brings_its_instances(
    child: Child, control: Control, passing: Time
) -> None:
    """From no MIG to seven dense slices and back (gpu-operator 2482)."""
    off = ["* nvmlDeviceGetMigMode = 0 0", "mig 0 none"]
    source = child("h100-mig", off, module=STANDING)
    assert layout(read(source)) == {}

    control.remove(*off)
    slices = [mig(7 + n, "1g.10gb", f"slice-{n}") for n in range(7)]
    control.add(*slices)
    for _ in range(11):
        passing.forward(1)
        page = read(source)
    assert len(layout(page)) == 7
    assert len(page.of(c.GPU_MIG_MEMORY_TOTAL_BYTES)) == 7

    control.remove(*slices)
    control.add(*off)
    for _ in range(11):
        passing.forward(1)
        page = read(source)
    assert layout(page) == {}
    assert page.of(c.GPU_MIG_MEMORY_TOTAL_BYTES) == {}
    assert page.of(c.GPU_MIG_SM_ACTIVE_SECONDS_TOTAL) == {}
    assert page.faults == []


# ---- events ---------------------------------------------------------------------------------

CRITICAL = 8


def test_an_xid_arrives_once_with_its_gpus_address(child: Child, control: Control) -> None:
    """Each event is handed on once, with the PCI address by which the kernel log speaks."""
    told: list[Event] = []
    source = child("h100-sxm8", events=told.append)
    page = read(source)
    at = c.GPU_INFO.labels.index("pci_bus_id")
    address = {labels[0]: labels[at] for labels in page.of(c.GPU_INFO)}
    assert told == []

    control.add(f"event 1 3 {CRITICAL} 79", f"event 2 5 {CRITICAL} 31", "event 3 5 2 13")
    read(source)
    assert [(e.kind, e.about, e.code) for e in told] == [
        ("xid", address["3"], 79), ("xid", address["5"], 31),
    ]  # fmt: skip
    assert all(event.wall > 1.6e9 for event in told)
    assert "4b:00.0" in told[0].about
    read(source)
    assert len(told) == 2

    control.add(f"event 4 3 {CRITICAL} 79")
    read(source)
    assert [(e.about, e.code) for e in told[2:]] == [(address["3"], 79)], "the same one again"


def test_a_storm_of_events_is_taken_in_portions_and_none_is_lost(
    child: Child, control: Control
) -> None:
    """300 at once: a read takes a bounded number, the next one goes on."""
    told: list[Event] = []
    source = child("h100-sxm8", events=told.append)
    read(source)

    control.add(*(f"event {n} {n % 8} {CRITICAL} {1000 + n}" for n in range(300)))
    read(source)
    assert 0 < len(told) < 300
    read(source)
    read(source)
    assert sorted(event.code for event in told) == [1000 + n for n in range(300)]


def test_events_that_came_with_a_failed_read_are_not_lost(
    child: Child, control: Control, passing: Time
) -> None:
    """The driver falls over and says why at the same moment: the reason arrives later."""
    told: list[Event] = []
    source = child("h100-sxm8", events=told.append, module=STANDING)
    read(source)
    passing.forward(1)

    control.add(f"event 1 3 {CRITICAL} 79 live", "4 * = !9")
    fails(source)
    control.remove("4 * = !9")
    until(source, all_up, pause=0)
    assert [event.code for event in told] == [79]


# ---- GPM ------------------------------------------------------------------------------------


def test_a_metric_that_is_no_number_costs_only_itself(
    child: Child, control: Control, log: Log, passing: Time
) -> None:
    """GPM's answer as a whole succeeds; each metric in it has a status and may be NaN."""
    source = child("h100-sxm8", module=STANDING)
    read(source)
    passing.forward(1)
    before = read(source)
    assert before.by_gpu(c.GPU_SM_ACTIVE_RATIO)[0] == pytest.approx(0.955)

    control.add("* gpm 2 = nan", "0 gpm 5 = !999", "0 gpm 10 = !3")
    passing.forward(1)
    page = read(source)
    assert page.of(c.GPU_SM_ACTIVE_RATIO) == {}
    assert sorted(page.by_gpu(c.GPU_TENSOR_ACTIVE_RATIO)) == [1, 2, 3, 4, 5, 6, 7]
    assert sorted(page.by_gpu(c.GPU_DRAM_ACTIVE_RATIO)) == [1, 2, 3, 4, 5, 6, 7]
    assert sorted(page.by_gpu(c.GPU_SM_OCCUPANCY_RATIO)) == [*EIGHT]

    control.remove("* gpm 2 = nan", "0 gpm 5 = !999", "0 gpm 10 = !3")
    log.forget()
    passing.forward(1)
    page = read(source)
    sm, tensor = page.by_gpu(c.GPU_SM_ACTIVE_RATIO), page.by_gpu(c.GPU_TENSOR_ACTIVE_RATIO)
    assert sm[0] == pytest.approx(0.955)
    assert tensor[0] == pytest.approx(0.625)
    assert 0 not in page.by_gpu(c.GPU_DRAM_ACTIVE_RATIO), "refused for good: not asked again"
    asked = {line.split()[1]: int(line.split()[2]) for line in log.lines("nvmlGpmMetricsGet")}
    assert asked["0"] == asked["1"] - 1
    for counter in (c.GPU_SM_ACTIVE_SECONDS_TOTAL, c.GPU_TENSOR_ACTIVE_SECONDS_TOTAL):
        was, is_now = before.by_gpu(counter), page.by_gpu(counter)
        assert all(is_now[gpu] >= was[gpu] for gpu in EIGHT)


def test_a_gpu_that_refuses_its_counters_has_none_and_no_fault(
    child: Child, log: Log, passing: Time
) -> None:
    """It says that it has GPM and refuses each sample: absent, asked once."""
    source = child("h100-sxm8", ["* nvmlGpmSampleGet = !3"], module=STANDING)
    for _ in range(3):
        page = read(source)
        passing.forward(1)
        assert page.faults == []
        assert all_up(page)
        assert page.of(c.GPU_SM_ACTIVE_RATIO) == {}
    assert len(log.lines("nvmlGpmSampleGet")) == 8
