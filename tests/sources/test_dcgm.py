"""Reading DCGM: a fake libdcgm below the real reader, alone and in a real child process."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter import catalogue as c
from exporter.clock import SystemClock
from exporter.dcgm.fields import FIELDS
from exporter.isolate import Isolated
from exporter.samples import Drop, Fault, Gate, Metric, Sample, SourceError, reason_of
from exporter.sources.dcgm import DcgmSource
from tests import fake_dcgm
from tests.fake_dcgm import Control
from tests.fakes import FakeClock

T0 = 1_790_000_000_000_000
SM, TENSOR, DRAM, UTIL, POWER, ECC = 1002, 1004, 1005, 203, 155, 310
Items = list[Sample | Fault | Drop]


@pytest.fixture(scope="module")
def libdcgm(tmp_path_factory: pytest.TempPathFactory, tool: Callable[[str], str]) -> str:
    tool("gcc")
    return str(fake_dcgm.build(tmp_path_factory.mktemp("libdcgm")))


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Control:
    path = tmp_path / "dcgm.txt"
    monkeypatch.setenv(fake_dcgm.VARIABLE, str(path))
    return Control(path)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


Make = Callable[..., DcgmSource]


@pytest.fixture
def make(libdcgm: str, clock: FakeClock) -> Iterator[Make]:
    """Make sources that read the fake library."""
    made: list[DcgmSource] = []

    def build(address: str | None = "localhost", **options: Any) -> DcgmSource:
        source = DcgmSource(address, libdcgm, **({"clock": clock} | options))
        made.append(source)
        return source

    yield build
    for source in made:
        source.close()


def busy(control: Control, *gpus: int, at: float = 0.0) -> None:
    """Have these GPUs work hard, with values for all profiling fields, `at` seconds after T0."""
    control.set(f"time {T0 + round(at * 1e6)}")
    for gpu in gpus:
        control.gpu(gpu)
        control.value(gpu, UTIL, 97)
        for row in FIELDS:
            if row.profiling:
                control.value(gpu, row.number, 0.5 if row.kind == "double" else 1_000_000)


def values(items: Items, metric: Metric, *labels: str) -> list[float]:
    return [
        item.value  # type: ignore[misc]
        for item in items
        if isinstance(item, Sample) and item.metric is metric
        and (not labels or item.labels[: len(labels)] == labels)
    ]  # fmt: skip


def value(items: Items, metric: Metric, *labels: str) -> float:
    (found,) = values(items, metric, *labels)
    return found


def faults(items: Items) -> list[Fault]:
    return [item for item in items if isinstance(item, Fault)]


def moved(control: Control, clock: FakeClock, seconds: float) -> None:
    """Let time pass, on our clock and on DCGM's."""
    clock.advance(seconds)
    now = T0 + round((clock.now - 1000.0) * 1e6)
    control.set(f"time {now}")


# ---------------------------------------------------------------- what comes


def test_what_hardware_counters_measure(make: Make, control: Control) -> None:
    """Each GPU has its activity, under NVML's index and its identity, and nothing is at fault."""
    busy(control, 0, 4)
    control.gpu(4, index=1)
    control.value(4, TENSOR, 0.25)
    items = make().read()
    assert value(items, c.GPU_TENSOR_ACTIVE_RATIO, "0", "GPU-00000000-1234") == 0.5
    assert value(items, c.GPU_TENSOR_ACTIVE_RATIO, "1", "GPU-00000004-1234") == 0.25
    assert value(items, c.GPU_PIPE_ACTIVE_RATIO, "0", "GPU-00000000-1234", "fp64") == 0.5
    assert value(items, c.GPU_PCIE_RECEIVE_BYTES_PER_SECOND, "0") == 1_000_000
    assert faults(items) == []
    assert values(items, c.GPU_POWER_WATTS) == values(items, c.GPU_UTILIZATION_RATIO) == []


def test_everything_on_request(make: Make, control: Control) -> None:
    """With `everything` what DCGM has from NVML comes too."""
    busy(control, 0)
    control.value(0, POWER, 412.5)
    items = make(everything=True).read()
    assert value(items, c.GPU_POWER_WATTS, "0") == 412.5
    assert value(items, c.GPU_UTILIZATION_RATIO, "0") == 0.97
    assert value(items, c.GPU_TENSOR_ACTIVE_RATIO, "0") == 0.5


def test_throttle_reasons_are_told_one_by_one(make: Make, control: Control) -> None:
    """Each bit of field 112 is a reason."""
    busy(control, 0)
    control.value(0, 112, 0x4 | 0x40)
    items = make(everything=True).read()
    flags = {
        item.labels[2]: item.value
        for item in items
        if isinstance(item, Sample) and item.metric is c.GPU_THROTTLE_ACTIVE
    }
    assert len(flags) == 9
    assert {reason for reason, flag in flags.items() if flag} == {"sw_power_cap", "hw_thermal"}


def test_no_sample_is_malformed_or_twice(make: Make, control: Control) -> None:
    """Everything passes the gate that each source's samples go through, read after read."""
    busy(control, 0, 1)
    control.set("instance 5 1 3")
    for field in (429, 499, 439, 498):  # two ways to tell of replays and recoveries each
        control.value(0, field, field)
    control.value(5, SM, 0.5, kind="instance")
    source = make(everything=True)
    for _ in range(2):
        items = source.read()
        batch, drops = Gate(10_000).admit([i for i in items if isinstance(i, Sample)])
        assert (len(batch) > 50, drops) == (True, {})
    assert value(items, c.GPU_NVLINK_ERRORS_TOTAL, "0", "GPU-00000000-1234", "replay") == 429


def test_families_that_somebody_else_reads_are_left_out(make: Make, control: Control) -> None:
    """What is left out is neither told nor watched, unless something else needs it."""
    busy(control, 0)
    names = ["gpu_sm_active_ratio", "gpu_sm_active_seconds_total", "gpu_readings_disagree"]
    items = make(leave_out=names).read()
    assert values(items, c.GPU_SM_ACTIVE_RATIO) == values(items, c.GPU_READINGS_DISAGREE) == []
    assert values(items, c.GPU_SM_ACTIVE_SECONDS_TOTAL) == []
    assert value(items, c.GPU_TENSOR_ACTIVE_SECONDS_TOTAL, "0") == 0


def test_no_gpu(make: Make, control: Control) -> None:
    """A host engine without GPUs is a failed read that says so."""
    with pytest.raises(SourceError, match="DCGM sees no GPU") as info:
        make().read()
    assert reason_of(info.value) == "unavailable"


def test_no_library(clock: FakeClock) -> None:
    """Where DCGM is not installed the read says so, each time."""
    source = DcgmSource(None, "/no/libdcgm.so.4", clock=clock)
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match="DCGM is not installed"):
            source.read()
    source.close()


@pytest.mark.parametrize("manual", [True, False])
def test_an_embedded_engine_measures_at_each_read_only_in_manual_mode(
    make: Make, control: Control, manual: bool
) -> None:
    """By itself it measures in its own time; asked to, it does when we read."""
    busy(control, 0)
    source = make(None, manual=manual)
    for _ in range(3):
        assert values(source.read(), c.GPU_SM_ACTIVE_RATIO) == [0.5]
    # Once at the beginning, so that there is something to read at once.
    assert Counter(control.calls())["dcgmUpdateAllFields"] == 1 + 3 * manual


def test_driver_time_is_told(make: Make, control: Control) -> None:
    """The time spent in the library is a counter that closing and opening do not lower."""
    busy(control, 0)
    source = make(clock=SystemClock())
    first = value(source.read(), c.FLOPWATCH_DRIVER_SECONDS_TOTAL, "dcgm")
    source.close()
    assert value(source.read(), c.FLOPWATCH_DRIVER_SECONDS_TOTAL, "dcgm") > first > 0


# ---------------------------------------------------------------- counters


def test_activity_adds_up_by_dcgm_s_clock(make: Make, control: Control, clock: FakeClock) -> None:
    """Late and early reads do not change the counters: 0.5 over 4 s of DCGM's time are 2 s."""
    busy(control, 0)
    source = make()
    source.read()
    for late in (0.3, 0.0, 0.7, 0.1):
        moved(control, clock, 1.0)
        clock.advance(late)
        items = source.read()
        clock.advance(-late)
        source.read()  # the same measurement again
    assert value(items, c.GPU_SM_ACTIVE_SECONDS_TOTAL, "0") == pytest.approx(2.0)
    assert value(items, c.GPU_TENSOR_ACTIVE_SECONDS_TOTAL, "0") == pytest.approx(2.0)
    assert value(items, c.GPU_DRAM_ACTIVE_SECONDS_TOTAL, "0") == pytest.approx(2.0)
    assert value(items, c.GPU_NVLINK_TRANSMIT_BYTES_TOTAL, "0") == pytest.approx(4_000_000)
    assert value(items, c.GPU_NVLINK_RECEIVE_BYTES_TOTAL, "0") == pytest.approx(4_000_000)
    assert value(items, c.GPU_PCIE_TRANSMIT_BYTES_TOTAL, "0") == pytest.approx(4_000_000)
    assert value(items, c.GPU_PCIE_RECEIVE_BYTES_TOTAL, "0") == pytest.approx(4_000_000)


def test_counters_go_on_after_a_restart(make: Make, control: Control, clock: FakeClock) -> None:
    """What a successor is handed as `memory`, through JSON, continues the counters."""
    busy(control, 0)
    source = make()
    source.read()
    moved(control, clock, 2.0)
    assert value(source.read(), c.GPU_SM_ACTIVE_SECONDS_TOTAL, "0") == 1.0
    memory = json.loads(json.dumps(source.memory()))
    source.close()
    moved(control, clock, 2.0)
    items = make(memory=memory).read()
    assert value(items, c.GPU_SM_ACTIVE_SECONDS_TOTAL, "0") == 2.0
    assert value(items, c.FLOPWATCH_DRIVER_SECONDS_TOTAL) >= memory["driver_seconds"]


@pytest.mark.parametrize("memory", [None, 3, [], {"totals": 1}, {"driver_seconds": "x"}])
def test_a_memory_that_makes_no_sense(make: Make, control: Control, memory: Any) -> None:
    """Counters start at zero, and reading works."""
    busy(control, 0)
    assert value(make(memory=memory).read(), c.GPU_SM_ACTIVE_SECONDS_TOTAL, "0") == 0


def test_counters_go_on_after_the_host_engine_restarts(
    make: Make, control: Control, clock: FakeClock
) -> None:
    """A lost connection is a failed read; the next one connects anew and counts on."""
    busy(control, 0)
    control.set("epoch 1")
    source = make()
    source.read()
    moved(control, clock, 2.0)
    control.set("epoch 2")
    with pytest.raises(ConnectionError, match="not valid") as info:
        source.read()
    assert reason_of(info.value) == "unavailable"
    items = source.read()
    assert value(items, c.GPU_SM_ACTIVE_SECONDS_TOTAL, "0") == 1.0
    assert value(items, c.GPU_SM_ACTIVE_RATIO, "0") == 0.5


# ---------------------------------------------------------------- symptoms that others had


def test_nvlink_bandwidth_is_no_counter(make: Make, control: Control, clock: FakeClock) -> None:
    """dcgm-exporter 417: a rate that is called a counter never becomes one here."""
    busy(control, 0)
    control.value(0, 449, 153_211)
    source = make(everything=True)
    source.read()
    moved(control, clock, 1.0)
    assert 153_211 not in [i.value for i in source.read() if isinstance(i, Sample)]


def test_pcie_always_zero_is_a_measured_zero(make: Make, control: Control) -> None:
    """dcgm-exporter 721: 0 is shown as 0, and what DCGM cannot measure is absent, not 0."""
    busy(control, 0, 1)
    control.value(0, 1009, 0)
    control.status(1, 1009, -6)
    control.value(1, 1010, 0x7FFFFFFFFFFFFFF2)
    items = make().read()
    assert values(items, c.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND) == [0]
    assert values(items, c.GPU_PCIE_RECEIVE_BYTES_PER_SECOND) == [1_000_000]
    assert faults(items) == []


@pytest.mark.parametrize(
    "blank", [140737488355328.0, 140737488355330.0, 1.5e14, 0x7FFFFFF0, 0x7FFFFFFFFFFFFFF2]
)
def test_blanks_are_exported_as_huge_numbers(make: Make, control: Control, blank: float) -> None:
    """gpu-monitoring-tools 97, slurm-job-exporter 30: a blank is absent, and adds up to nothing."""
    busy(control, 0)
    control.value(0, SM, blank)
    items = make().read()
    assert values(items, c.GPU_SM_ACTIVE_RATIO) == []
    assert values(items, c.GPU_SM_ACTIVE_SECONDS_TOTAL) == []
    assert value(items, c.GPU_TENSOR_ACTIVE_RATIO, "0") == 0.5


def test_huge_pcie_rates_with_mig(make: Make, control: Control) -> None:
    """slurm-job-exporter 52: instances are not even asked for PCIe, which would be blanks."""
    busy(control, 0)
    control.set("instance 5 0 3")
    control.value(5, SM, 0.5, kind="instance")
    control.value(5, 1009, 0x7FFFFFFFFFFFFFF2, kind="instance")
    items = make().read()
    assert values(items, c.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND) == [1_000_000]
    assert value(items, c.GPU_MIG_SM_ACTIVE_RATIO, "0", "GPU-00000000-1234", "3") == 0.5


def test_profiling_stuck_at_zero_while_busy(make: Make, control: Control, clock: FakeClock) -> None:
    """DCGM 303: after XID 31 counters said 0 while the GPU was at 100 %. The readings disagree."""
    busy(control, 0, 1)
    source = make()
    assert values(source.read(), c.GPU_READINGS_DISAGREE) == [0, 0]
    control.value(1, SM, 0.0)
    flags = []
    for _ in range(3):
        moved(control, clock, 1.0)
        items = source.read()
        flags.append(values(items, c.GPU_READINGS_DISAGREE))
    # One moment proves nothing: the two are not measured at the same time.
    assert flags == [[0, 0], [0, 0], [0, 1]]
    control.value(1, SM, 0.5)
    moved(control, clock, 1.0)
    assert values(source.read(), c.GPU_READINGS_DISAGREE) == [0, 0]


def test_blank_profiling_after_xid_until_somebody_watches_anew(
    make: Make, control: Control, clock: FakeClock
) -> None:
    """DCGM 202, 226: watched, but without values, is a fault of that GPU, and is watched anew."""
    busy(control, 0, 1)
    source = make()
    source.read()
    for row in FIELDS:
        if row.profiling:
            control.value(1, row.number, 140737488355328.0)
    seen = []
    for _ in range(31):
        moved(control, clock, 10.0)
        items = source.read()
        seen.append([(f.part, f.reason) for f in faults(items)])
        assert values(items, c.GPU_TENSOR_ACTIVE_RATIO) == [0.5]
    assert seen[0] == []
    assert seen[1] == [("gpu 1 profiling", "unavailable")]
    # Only that GPU's watch was renewed, once, after five minutes.
    assert Counter(control.calls())["dcgmUnwatchFields"] == 1


def test_one_field_that_a_gpu_does_not_have_takes_the_others_along(
    make: Make, control: Control
) -> None:
    """KempnerPulse 13: on an L40S 1006 refuses the whole watch. Only this field is absent."""
    busy(control, 0, 1)
    control.set("refuse gpu 0 1006 -6")
    items = make().read()
    pipes = [
        item.labels[2]
        for item in items
        if isinstance(item, Sample) and item.metric is c.GPU_PIPE_ACTIVE_RATIO
        and item.labels[0] == "0"
    ]  # fmt: skip
    assert "fp64" not in pipes
    assert "fp32" in pipes
    assert values(items, c.GPU_SM_ACTIVE_RATIO) == [0.5, 0.5]
    assert value(items, c.GPU_PIPE_ACTIVE_RATIO, "1", "GPU-00000001-1234", "fp64") == 0.5
    assert faults(items) == []  # it is nobody's fault


def test_one_bad_field_makes_the_others_not_available(make: Make, control: Control) -> None:
    """dcgm-exporter 581, DCGM 265: a field that fails is told of, and costs no other."""
    busy(control, 0)
    control.status(0, ECC, -8)
    control.value(0, POWER, 412.5)
    items = make(everything=True).read()
    assert value(items, c.GPU_POWER_WATTS, "0") == 412.5
    (fault,) = faults(items)
    assert fault.part == "gpu 0"
    assert "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL: NVML returned an error (-8)" in fault.detail


def test_fields_that_cannot_be_measured_together(make: Make, control: Control) -> None:
    """Of two that exclude each other the first one stays, and the other is told of."""
    busy(control, 0)
    control.set("apart 1004 1016 -38")
    items = make().read()
    assert value(items, c.GPU_TENSOR_ACTIVE_RATIO, "0") == 0.5
    assert values(items, c.GPU_PIPE_ACTIVE_RATIO, "0", "GPU-00000000-1234", "integer") == []
    (fault,) = faults(items)
    assert (fault.part, fault.reason) == ("gpu 0 profiling", "unavailable")
    assert "fields 1016" in fault.detail


@pytest.mark.parametrize(
    ("code", "reason", "text"),
    [
        (-36, "unavailable", "profiling is not supported for this GPU"),
        (-29, "denied", "without the privilege for it (root or CAP_SYS_ADMIN)"),
        (-33, "unavailable", "module of DCGM is not loaded"),
        (-37, "unavailable", "profiling library failed"),
        (-34, "unavailable", "in use"),
        (-6, "unavailable", "not supported"),
    ],
)
def test_profiling_is_refused(
    make: Make, control: Control, code: int, reason: str, text: str
) -> None:
    """That GPU's profiling is at fault and why; its other fields and other GPUs go on."""
    busy(control, 0, 1)
    control.set(f"refuse gpu 0 0 {code}")
    control.value(0, POWER, 412.5)
    items = make(everything=True).read()
    (fault,) = faults(items)
    assert (fault.part, fault.reason) == ("gpu 0 profiling", reason)
    assert text in fault.detail
    assert value(items, c.GPU_POWER_WATTS, "0") == 412.5
    assert values(items, c.GPU_SM_ACTIVE_RATIO, "1") == [0.5]


def test_a_mixed_node_is_judged_by_its_first_gpu(make: Make, control: Control) -> None:
    """dcgm-exporter asks GPU 0 only: here each GPU has what it has, whichever comes first."""
    for refusing, other in ((0, 1), (1, 0)):
        busy(control, 0, 1)
        control.set(f"refuse gpu {refusing} 0 -36")
        items = make().read()
        assert values(items, c.GPU_SM_ACTIVE_RATIO, str(other)) == [0.5]
        assert values(items, c.GPU_SM_ACTIVE_RATIO, str(refusing)) == []
        control.unset("refuse")


def test_privileges_that_come_later_are_noticed(
    make: Make, control: Control, clock: FakeClock
) -> None:
    """What was refused is asked for again after five minutes; nothing else is disturbed."""
    busy(control, 0, 1)
    control.set("refuse gpu 0 0 -29")
    source = make()
    source.read()
    control.unset("refuse")
    moved(control, clock, 299.0)
    assert values(source.read(), c.GPU_SM_ACTIVE_RATIO, "0") == []
    moved(control, clock, 1.0)
    source.read()
    items = source.read()
    assert values(items, c.GPU_SM_ACTIVE_RATIO) == [0.5, 0.5]
    assert faults(items) == []
    assert "dcgmUnwatchFields" not in control.calls()


def test_nvlink_failure_ends_the_exporter(make: Make, control: Control) -> None:
    """dcgm-exporter 473: what fails at the beginning is one part, not the whole."""
    busy(control, 0)
    control.set("fail dcgmGetGpuInstanceHierarchy -6")
    control.status(0, 429, -3)
    items = make(everything=True).read()
    assert value(items, c.GPU_SM_ACTIVE_RATIO, "0") == 0.5
    assert [fault.part for fault in faults(items)] == ["gpu 0"]


@pytest.mark.parametrize("code", [-18, -19, -57])
def test_a_lost_gpu_costs_the_others_nothing(make: Make, control: Control, code: int) -> None:
    """Asked for together all would fail: they are asked one by one, and the lost one is told of."""
    busy(control, 0, 1, 2)
    control.set(f"lose gpu 1 {code}")
    source = make()
    control.unset("lose")
    source.read()
    control.set(f"lose gpu 1 {code}")
    items = source.read()
    assert values(items, c.GPU_SM_ACTIVE_RATIO) == [0.5, 0.5]
    assert {fault.part for fault in faults(items)} == {"gpu 1"}


def test_a_gpu_that_does_not_say_who_it_is(make: Make, control: Control) -> None:
    """Without an identity there are no series with an empty label: it is a fault."""
    busy(control, 0, 1)
    control.set("value gpu 1 54 s <<<NOT_SUPPORTED>>>")
    items = make().read()
    assert values(items, c.GPU_SM_ACTIVE_RATIO) == [0.5]
    assert [(fault.part, fault.reason) for fault in faults(items)] == [("gpu 1", "unavailable")]


def test_values_that_are_hours_old(make: Make, control: Control, clock: FakeClock) -> None:
    """gpu-monitoring-tools 188: what DCGM stops renewing is absent after a few intervals."""
    busy(control, 0)
    source = make()
    source.read()
    clock.advance(9.0)
    assert values(source.read(), c.GPU_SM_ACTIVE_RATIO) == [0.5]
    clock.advance(2.0)
    items = source.read()
    assert values(items, c.GPU_SM_ACTIVE_RATIO) == []
    assert values(items, c.GPU_SM_ACTIVE_SECONDS_TOTAL) == []
    moved(control, clock, 0.0)
    assert values(source.read(), c.GPU_SM_ACTIVE_RATIO) == [0.5]


def test_a_gpu_that_is_not_measured_any_more_is_told_of(
    make: Make, control: Control, clock: FakeClock
) -> None:
    """Values that stopped do not just go away: for each watch there is a fault, until they come."""
    busy(control, 0)
    source = make(everything=True)
    assert faults(source.read()) == []
    clock.advance(9.0)
    assert faults(source.read()) == []
    clock.advance(12.0)
    told = faults(source.read())
    assert [(fault.part, fault.reason) for fault in told] == [
        ("gpu 0 profiling", "unavailable"),
        ("gpu 0", "unavailable"),
    ]
    assert "nothing was measured for 12 s" in told[1].detail
    assert "another profiler" in told[0].detail
    moved(control, clock, 0.0)
    assert faults(source.read()) == []


def test_what_cannot_be_is_counted(make: Make, control: Control) -> None:
    """A ratio of 7 is no ratio."""
    busy(control, 0)
    control.value(0, SM, 7.0)
    items = make().read()
    assert values(items, c.GPU_SM_ACTIVE_RATIO) == []
    assert Drop("value", 1) in items


# ---------------------------------------------------------------- GPU instances, and changes


def test_instances_have_families_of_their_own(
    make: Make, control: Control, clock: FakeClock
) -> None:
    """Ratios, memory and counters of instances stand under their GPU and their own number."""
    busy(control, 0, 1)
    control.set("instance 5 1 3", "instance 6 1 9")
    for number, active in ((5, 0.5), (6, 0.25)):
        for field in (1001, SM, 1003, TENSOR, DRAM):
            control.value(number, field, active, kind="instance")
        control.value(number, 252, 100, kind="instance")
        control.value(number, 250, 9864, kind="instance")
    source = make(everything=True)
    source.read()
    moved(control, clock, 2.0)
    items = source.read()
    uuid = "GPU-00000001-1234"
    for metric in (
        c.GPU_MIG_GRAPHICS_ACTIVE_RATIO, c.GPU_MIG_SM_ACTIVE_RATIO, c.GPU_MIG_SM_OCCUPANCY_RATIO,
        c.GPU_MIG_TENSOR_ACTIVE_RATIO, c.GPU_MIG_DRAM_ACTIVE_RATIO,
    ):  # fmt: skip
        assert value(items, metric, "1", uuid, "3") == 0.5
        assert value(items, metric, "1", uuid, "9") == 0.25
    for metric in (
        c.GPU_MIG_SM_ACTIVE_SECONDS_TOTAL, c.GPU_MIG_TENSOR_ACTIVE_SECONDS_TOTAL,
        c.GPU_MIG_DRAM_ACTIVE_SECONDS_TOTAL,
    ):  # fmt: skip
        assert value(items, metric, "1", uuid, "3") == 1.0
    assert value(items, c.GPU_MIG_MEMORY_USED_BYTES, "1", uuid, "9") == 100 << 20
    assert value(items, c.GPU_MIG_MEMORY_TOTAL_BYTES, "1", uuid, "9") == 9864 << 20
    assert faults(items) == []


def test_a_new_layout_of_instances_is_noticed(
    make: Make, control: Control, clock: FakeClock
) -> None:
    """Instances that went are gone, new ones come, within ten seconds, and none is there twice."""
    busy(control, 0)
    control.set("instance 5 0 3")
    control.value(5, SM, 0.5, kind="instance")
    source = make()
    assert values(source.read(), c.GPU_MIG_SM_ACTIVE_RATIO, "0") == [0.5]
    control.unset("instance 5")
    control.set("instance 7 0 9")
    control.value(7, SM, 0.25, kind="instance")
    moved(control, clock, 10.0)
    items = source.read()
    assert values(items, c.GPU_MIG_SM_ACTIVE_RATIO) == [0.25]
    assert values(items, c.GPU_SM_ACTIVE_RATIO) == [0.5]


def test_an_instance_that_is_gone_is_looked_for_at_once(
    make: Make, control: Control, clock: FakeClock
) -> None:
    """DCGM says that an instance does not exist: the next read looks at what there is."""
    busy(control, 0)
    control.set("instance 5 0 3")
    control.value(5, SM, 0.5, kind="instance")
    source = make()
    source.read()
    control.unset("instance 5")
    for field in (1001, SM, 1003, TENSOR, DRAM):
        control.status(5, field, -45, kind="instance")
    moved(control, clock, 1.0)
    assert faults(source.read()) == []
    control.calls()
    before = Counter(control.calls())["dcgmGetGpuInstanceHierarchy"]
    source.read()
    assert Counter(control.calls())["dcgmGetGpuInstanceHierarchy"] == before + 1


def test_gpus_that_come_and_go(make: Make, control: Control, clock: FakeClock) -> None:
    """A GPU that is added is read within ten seconds, one that is gone is not any more."""
    busy(control, 0)
    source = make()
    source.read()
    busy(control, 0, 1, at=10.0)
    clock.advance(10.0)
    assert len(values(source.read(), c.GPU_SM_ACTIVE_RATIO)) == 2
    control.unset("gpu 0")
    moved(control, clock, 10.0)
    assert values(source.read(), c.GPU_SM_ACTIVE_RATIO, "1") == [0.5]


def test_nothing_is_left_behind(make: Make, control: Control, clock: FakeClock) -> None:
    """After changes, refusals and closing, what was made in the host engine is unmade."""
    busy(control, 0, 1)
    control.set("refuse gpu 0 1006 -6", "instance 5 1 3")
    source = make(everything=True)
    source.read()
    control.unset("instance 5")
    moved(control, clock, 10.0)
    source.read()
    source.close()
    calls = Counter(control.calls())
    for begin, end in (
        ("dcgmInit", "dcgmShutdown"),
        ("dcgmConnect_v2", "dcgmDisconnect"),
        ("dcgmGroupCreate", "dcgmGroupDestroy"),
        ("dcgmFieldGroupCreate", "dcgmFieldGroupDestroy"),
    ):
        assert calls[begin] == calls[end] > 0


# ---------------------------------------------------------------- in a child process


@pytest.fixture
def isolated(libdcgm: str, control: Control) -> Iterator[Callable[..., Isolated]]:
    """Read the fake library in a real child process, never ended by us."""
    made: list[Isolated] = []

    def build(deadline: float = 20.0, **options: Any) -> Isolated:
        source = Isolated(
            "dcgm", "gpu", {"address": "localhost", "library": libdcgm} | options,
            deadline=deadline, clock=SystemClock(), end_after=None, module="tests.dcgm_child",
        )  # fmt: skip
        made.append(source)
        return source

    yield build
    for source in made:
        source.close()


def test_dcgm_in_a_child_process(isolated: Callable[..., Isolated], control: Control) -> None:
    """Samples, faults and counters come through; the library is loaded over there only."""
    busy(control, 0, 1)
    control.set("refuse gpu 1 0 -29")
    source = isolated()
    source.read()
    control.set(f"time {T0 + 2_000_000}")
    items = list(source.read())
    assert value(items, c.GPU_SM_ACTIVE_SECONDS_TOTAL, "0") == 1.0
    assert [(f.part, f.reason) for f in faults(items)] == [("gpu 1 profiling", "denied")]


def test_a_hanging_library_is_a_timeout_and_nothing_else(
    isolated: Callable[..., Isolated], control: Control
) -> None:
    """While the driver hangs each read says so; afterwards reading goes on in the same child."""
    busy(control, 0)
    source = isolated(deadline=20.0)
    source.read()
    pid = source.pid
    control.set("hang dcgmEntitiesGetLatestValues")
    source._deadline = 0.2
    for _ in range(2):
        with pytest.raises(TimeoutError):
            source.read()
    control.unset("hang")
    source._deadline = 20.0
    pause = threading.Event()
    for _ in range(200):
        try:
            items = list(source.read())
            break
        except TimeoutError:
            pause.wait(0.05)
    assert value(items, c.GPU_SM_ACTIVE_RATIO, "0") == 0.5
    assert source.pid == pid


def test_a_crash_of_the_library_costs_one_read(
    isolated: Callable[..., Isolated], control: Control
) -> None:
    """The child dies of it; the next read starts another, whose counters go on."""
    busy(control, 0)
    source = isolated()
    source.read()
    control.set(f"time {T0 + 2_000_000}")
    assert value(list(source.read()), c.GPU_SM_ACTIVE_SECONDS_TOTAL, "0") == 1.0
    control.set("crash dcgmEntitiesGetLatestValues")
    with pytest.raises(ConnectionError, match="SIGABRT"):
        source.read()
    control.unset("crash")
    control.set(f"time {T0 + 4_000_000}")
    assert value(list(source.read()), c.GPU_SM_ACTIVE_SECONDS_TOTAL, "0") == 2.0


def test_a_missing_library_in_a_child(isolated: Callable[..., Isolated]) -> None:
    """The reason comes through: unavailable, with what was looked for."""
    with pytest.raises(SourceError, match=r"/no/libdcgm\.so\.4") as info:
        isolated(library="/no/libdcgm.so.4").read()
    assert info.value.reason == "unavailable"


def test_a_child_that_ends_gives_everything_back(
    isolated: Callable[..., Isolated], control: Control
) -> None:
    """Closing the source disconnects from the host engine, and shuts the library down."""
    busy(control, 0)
    source = isolated()
    source.read()
    source.close()
    assert control.calls()[-2:] == ["dcgmDisconnect", "dcgmShutdown"]
