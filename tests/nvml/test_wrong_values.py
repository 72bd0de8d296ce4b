"""Numbers that other exporters got wrong, each through the real pynvml, the C library and a real
child process; named after the symptom, with the report that told of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from exporter import catalogue as c
from exporter.isolate import Isolated
from exporter.nvml.driver import Block
from exporter.samples import Metric, Sample
from tests.fake_nvml import Control, profile, words
from tests.nvml.conftest import Child
from tests.nvml.profile_driver import LONG, SHAPES, SIGNED, Layout
from tests.nvml.test_golden import old_library
from tests.nvml_lab import Time

__all__ = ["old_library"]  # a fixture

LAB = "tests.nvml_lab"
pytestmark = pytest.mark.usefixtures("passing")
Series = dict[tuple[str, ...], object]


class Page:
    """The samples of one read."""

    def __init__(self, source: Isolated) -> None:
        self.samples = [item for item in source.read() if isinstance(item, Sample)]

    def of(self, metric: Metric, gpu: str = "0") -> Series:
        """Return a family's values of one GPU by the labels after gpu and uuid."""
        return {
            sample.labels[2:]: sample.value
            for sample in self.samples
            if sample.metric is metric and sample.labels[0] == gpu
        }

    def families(self) -> set[str]:
        return {sample.metric.name for sample in self.samples}


def later(source: Isolated, passing: Time, seconds: float = 2.0) -> Page:
    """Let time pass and read."""
    passing.forward(seconds)
    return Page(source)


PCIE = (
    c.GPU_PCIE_RECEIVE_BYTES_TOTAL,
    c.GPU_PCIE_TRANSMIT_BYTES_TOTAL,
    c.GPU_PCIE_RECEIVE_BYTES_PER_SECOND,
    c.GPU_PCIE_TRANSMIT_BYTES_PER_SECOND,
)


# ------------------------------------------------------------ 25: zero


def test_pcie_traffic_that_nobody_measures_is_not_zero(child: Child, passing: Time) -> None:
    """A board that tells its PCIe traffic in no way has no series of it (dcgm-exporter 721)."""
    source = child(
        "h100-sxm8",
        ["devices = 1", "* field 197 = !3", "* field 198 = !3", "* gpm 20 = !3", "* gpm 21 = !3",
         "* nvmlDeviceGetPcieThroughput = !3"],
        module=LAB,
    )  # fmt: skip
    Page(source)
    page = later(source, passing)
    assert [page.of(metric) for metric in PCIE] == [{}, {}, {}, {}]


def test_pcie_traffic_that_is_measured_as_zero_is_zero(child: Child, passing: Time) -> None:
    """A quiet bus is not an unknown one (dcgm-exporter 721)."""
    source = child("t4", ["devices = 1", "* nvmlDeviceGetPcieThroughput = 0"], module=LAB)
    page = Page(source)
    assert [page.of(metric) for metric in PCIE] == [{}, {}, {(): 0}, {(): 0}]


def test_pcie_counters_of_32_bits_are_not_believed(child: Child, passing: Time) -> None:
    """They wrap twelve times a second: what GPM measured stands in (dcgm-exporter 721)."""
    lines = ["devices = 1", "* field 197 = u32 123", "* field 198 = u32 456"]
    source = child("h100-sxm8", lines, module=LAB)
    Page(source)
    page = later(source, passing)
    assert page.of(c.GPU_PCIE_TRANSMIT_BYTES_TOTAL) == {(): 1171.875 * 2**20 * 2}
    assert page.of(c.GPU_PCIE_RECEIVE_BYTES_TOTAL) == {(): 3320.3125 * 2**20 * 2}


# ------------------------------------------------------------ 26, 27: blanks

NO_READINGS = {
    "gpu_up", "gpu_info", "gpu_losses_total", "gpu_driver_info", "gpu_devices_present",
    "gpu_devices_expected", "gpu_processes", "gpu_process_memory_bytes",
    "gpu_process_sm_ratio", "gpu_fabric_state", "gpu_fabric_healthy",
    "flopwatch_driver_seconds_total",
}  # fmt: skip
KEPT = {"nvmlGpmQueryDeviceSupport", "nvmlDeviceGetProcessUtilization"}


class Blank(NamedTuple):
    """How a driver says "none" in a number of 32 bits, of 64, and in a double."""

    narrow: str
    wide: str
    real: str

    def of(self, kind: str) -> str:
        if kind == "i32":
            return "2147483632"  # all ones is -1, which may be
        return self.real if kind == "f64" else self.wide if kind[1:] == "64" else self.narrow


BLANKS = {
    "all ones": Blank("4294967295", "18446744073709551615", "nan"),
    "DCGM's": Blank("2147483632", "9223372036854775794", "1.40737488355328e14"),
}


def kinds(left: str, right: list[str]) -> Iterator[str]:
    """Yield what each number of a profile's line is: its type."""
    _, name, *_ = left.split()
    if name in {"field", "samples"}:
        yield right[0] if right[0] in {"u32", "i32", "u64", "f64"} else "u64"
    elif name == "gpm":
        yield "f64"
    elif (shape := SHAPES.get(name)) is not None and isinstance(shape.writes, Layout):
        for member in shape.writes.places:
            yield "u64" if member in LONG else "i32" if member in SIGNED else "u32"
    elif shape is not None and isinstance(shape.writes, Block):
        yield from ("u32",) * shape.writes.size
    elif shape is not None and isinstance(shape.writes, tuple):
        yield from shape.writes


def blanked(name: str, blank: Blank, place: Path) -> Path:
    """Return a profile of one GPU that answers each number with a blank of its size."""
    lines = ["devices = 1"]
    for line in profile(name).read_text("utf-8").splitlines():
        left, equals, right = line.partition(" = ")
        said = words(right)
        if not equals or left == "devices" or said[0][0] in '"!' or left.split()[1] in KEPT:
            lines.append("" if left == "devices" else line)
            continue
        kind = said[:1] if said[0][0] in "uif" and said[0] != "inf" else []
        numbers = [blank.of(one) for one in kinds(left, said)]
        if numbers:
            lines.append(f"{left} = {' '.join([*kind, *numbers])}")
    file = place / "blank.profile"
    file.write_text("\n".join(lines), "utf-8")
    return file


@pytest.mark.parametrize("name", ["h100-sxm8", "b200", "a100"])
@pytest.mark.parametrize("blank", BLANKS)
def test_blanks_are_not_exported(
    name: str, blank: str, child: Child, passing: Time, tmp_path: Path
) -> None:
    """9.2e18, 1.4e14 and their like mean that there is no value: a GPU that answers everything with
    one has no readings (gpu-monitoring-tools 97, slurm-job-exporter 30 and 53)."""
    source = child(blanked(name, BLANKS[blank], tmp_path), module=LAB, detail=True, links=True)
    Page(source)
    page = later(source, passing)
    assert page.families() - {"gpu_busy_seconds_total"} <= NO_READINGS
    assert {"gpu_up", "gpu_processes"} <= page.families()


def test_pcie_traffic_is_not_huge_on_a_gpu_in_instances(child: Child, passing: Time) -> None:
    """In MIG mode the driver answers with what was in memory (slurm-job-exporter 52)."""
    source = child(
        "h100-mig",
        ["* field 197 = u64 18446744073709551000", "* field 198 = u64 9223372036854775800",
         "* nvmlDeviceGetPcieThroughput = 4294960000", "* gpm 20 = 1e19", "* gpm 21 = 1e19"],
        module=LAB,
    )  # fmt: skip
    Page(source)
    page = later(source, passing)
    assert [page.of(metric) for metric in PCIE] == [{}, {}, {}, {}]


# ------------------------------------------------------------ 29, 30: readings that contradict


def test_activity_that_is_stuck_at_zero_on_a_busy_gpu_is_flagged(
    child: Child, control: Control, passing: Time
) -> None:
    """After an XID 31 the counters said 0 for hours while the GPU worked (DCGM 202, 303): after
    three windows in a row it is told, and it is told when they agree again."""
    source = child("h100-sxm8", ["devices = 2", "1 gpm 2 = 0"], module=LAB)
    Page(source)
    told = [later(source, passing).of(c.GPU_READINGS_DISAGREE, "1") for _ in range(4)]
    assert told == [{(): 0}, {(): 0}, {(): 1}, {(): 1}]
    control.remove("1 gpm 2 = 0")
    page = later(source, passing)
    assert page.of(c.GPU_READINGS_DISAGREE, "1") == page.of(c.GPU_READINGS_DISAGREE) == {(): 0}


def test_activity_that_is_absent_is_not_compared(child: Child, passing: Time) -> None:
    """On some H100 and H200 the counters were missing (DCGM 226): no value, no contradiction."""
    source = child("h200", ["* gpm 2 = !3"], module=LAB)
    Page(source)
    page = later(source, passing)
    assert page.of(c.GPU_SM_ACTIVE_RATIO) == page.of(c.GPU_READINGS_DISAGREE) == {}
    assert page.of(c.GPU_TENSOR_ACTIVE_RATIO) != {}


def test_utilization_of_a_board_that_always_says_zero_is_not_exported(
    child: Child, passing: Time
) -> None:
    """Thor answers 0 % with success while it draws 20 W (rezolus 1105)."""
    source = child("thor", ["* samples 1 = u32 0"], module=LAB)
    Page(source)
    page = later(source, passing)
    assert page.of(c.GPU_UTILIZATION_RATIO) == page.of(c.GPU_MEMORY_BUSY_RATIO) == {}
    assert page.of(c.GPU_BUSY_SECONDS_TOTAL) == {}
    assert page.of(c.GPU_POWER_WATTS) == {("average",): 20.125}


# ------------------------------------------------------------ 31: processes


def test_processes_that_cannot_be_are_left_out(child: Child, root: Path) -> None:
    """PIDs of 2^32-1 and 0, and those of the dead, are garbage of the driver (nvitop 75 and 76,
    go-nvml 21 and 82)."""
    (root / "proc/4322").mkdir(parents=True)
    (root / "proc/4322/comm").write_text("train\n", "ascii")
    lines = [
        "process 0 pid 4294967295 memory 1024",
        "process 0 pid 0 memory 1024",
        "process 0 pid 9999999 memory 1024",
        "process 0 pid 4321 memory 1024",
        "process 0 pid 4322 memory 1073741824",
        "process 0 pid 4322 memory 1073741824 type G",
    ]
    page = Page(child("t4", ["devices = 1", *lines], module=LAB))
    assert page.of(c.GPU_PROCESS_MEMORY_BYTES) == {("", "4322", "train"): 1073741824}
    assert page.of(c.GPU_PROCESSES) == {(): 1}


def test_memory_of_a_process_that_is_not_told_is_absent(child: Child) -> None:
    """2^64-1 is not 17 million tebibytes (dcgm-exporter's per-process memory)."""
    lines = ["devices = 1", "process 0 pid 4321 memory 18446744073709551615"]
    page = Page(child("t4", lines, module=LAB))
    assert page.of(c.GPU_PROCESS_MEMORY_BYTES) == {}
    assert page.of(c.GPU_PROCESSES) == {(): 1}


def test_shares_of_processes_are_the_newest_and_at_most_all(child: Child, passing: Time) -> None:
    """A hundred samples for two processes, of processes that are gone, over 100 % (nvtop 110): one
    share for each that is listed, and none when nothing newer has come."""
    lines = [f"process 0 pid 4321 memory 1024 sm {share}" for share in range(30, 41)]
    lines += ["process 0 pid 4322 memory 1024 sm 250", "process 0 pid 4294967295 memory 1 sm 50"]
    lines += ["process 0 pid 4323 memory 1024 sm 100"]
    source = child("t4", ["devices = 1", *lines], module=LAB)
    shares = Page(source).of(c.GPU_PROCESS_SM_RATIO)
    assert set(shares) == {("4321", ""), ("4323", "")}
    assert shares["4323", ""] == 1.0
    assert 0.3 <= shares["4321", ""] <= 0.4  # type: ignore[operator]


def test_pids_are_not_scrambled_by_a_driver_with_the_older_layout(
    child: Child, old_library: Path
) -> None:
    """Version 3 of the list has other fields than what is there (nvitop 75, pynvml 43 and 50)."""
    page = Page(child("old-driver", module=LAB, library=old_library))
    assert page.of(c.GPU_PROCESS_MEMORY_BYTES) == {("", "7460", ""): 7516192768}
    assert page.of(c.GPU_PROCESS_MEMORY_BYTES, "1") == {("", "7461", ""): 20000000000}


# ------------------------------------------------------------ 33, 34: memory, margins


def test_reserved_memory_is_not_counted_as_used(child: Child) -> None:
    """The driver's reserve is apart where the driver tells it apart (nvitop 13)."""
    page = Page(child("h200", module=LAB))
    assert page.of(c.GPU_MEMORY_USED_BYTES) == {(): 32362 * 2**20}
    assert page.of(c.GPU_MEMORY_RESERVED_BYTES) == {(): 614 * 2**20}


def test_used_memory_says_when_it_may_hold_the_reserve(child: Child) -> None:
    """Where only the older function answers there is no series of the reserve (nvitop 13)."""
    lines = [
        "* nvmlDeviceGetMemoryInfo_v2 = !25",
        "* nvmlDeviceGetMemoryInfo = 150754820096 116178026496 34576793600",
    ]
    page = Page(child("h200", lines, module=LAB))
    assert page.of(c.GPU_MEMORY_RESERVED_BYTES) == {}
    assert page.of(c.GPU_MEMORY_USED_BYTES) == {(): 34576793600}


def test_a_negative_temperature_margin_is_a_value(child: Child) -> None:
    """Three degrees beyond the point where it slows down: hot, no fault (gpud 1208)."""
    page = Page(child("h200", ["* nvmlDeviceGetMarginTemperature = -3"], module=LAB, detail=True))
    assert page.of(c.GPU_TEMPERATURE_MARGIN_CELSIUS) == {(): -3}
    assert page.of(c.GPU_TEMPERATURE_MARGIN_LIMIT_CELSIUS)["shutdown",] == -8


# ------------------------------------------------------------ 35: error states


def test_not_available_in_words_is_no_label_value(child: Child) -> None:
    """Some drivers spell it out (nvidia_gpu_exporter 68)."""
    lines = ['* nvmlDeviceGetSerial = "[N/A]"', '* nvmlDeviceGetVbiosVersion = "ERR!"']
    page = Page(child("h200", lines, module=LAB))
    (info,) = page.of(c.GPU_INFO)
    assert "" in info
    assert not {"[N/A]", "ERR!"} & set(info)


def test_a_gpu_in_an_error_state_is_a_series_and_recovers(
    child: Child, control: Control, passing: Time
) -> None:
    """What nvidia-smi shows as ERR! was invisible (nvidia_gpu_exporter 393), and after an error the
    values never came back (65)."""
    source = child("t4", module=LAB)
    Page(source)
    control.add("1 * = !15")
    page = later(source, passing)
    assert [page.of(c.GPU_UP, gpu)[()] for gpu in "0123"] == [1, 0, 1, 1]
    assert page.of(c.GPU_LOSSES_TOTAL, "1") == {(): 1}
    assert page.of(c.GPU_TEMPERATURE_CELSIUS, "1") == {}
    control.remove("1 * = !15")
    page = later(source, passing, 60)
    assert page.of(c.GPU_UP, "1") == {(): 1}
    assert page.of(c.GPU_TEMPERATURE_CELSIUS, "1") == {("core",): 64}


# ------------------------------------------------------------ 63: NVLink by generation


@pytest.mark.parametrize(
    ("name", "causes"),
    [
        ("a100", {"replay", "recovery", "crc_flit", "crc_data"}),
        ("h100-sxm8", {"replay", "recovery", "crc"}),
        ("b200", {
            "malformed_packet", "buffer_overrun", "receive", "receive_remote", "receive_general",
            "local_link_integrity", "transmit_discard", "recovery_successful", "recovery_failed",
            "recovery", "effective", "symbol",
        }),
    ],
)  # fmt: skip
def test_nvlink_errors_are_those_that_the_generation_counts(
    name: str, causes: set[str], child: Child
) -> None:
    """Hopper has no CRC flit errors to tell (DCGM 149, 316), Blackwell no replays: what is not
    counted is absent and never zero, and one recovery counter is not shown as another."""
    page = Page(child(name, ["devices = 1"], module=LAB))
    assert {cause for (cause,) in page.of(c.GPU_NVLINK_ERRORS_TOTAL)} == causes


@pytest.mark.parametrize(
    ("name", "received"),
    [("a100", sum(2_000_000 + 65536 * 1002 + 1000 * n for n in range(12)) * 1024),
     ("h100-sxm8", sum(2_000_000 + 1048576 * 1002 + 1000 * n for n in range(18)) * 1024),
     ("b200", sum(768_000_000_000 + 134217728 * 1002 + 1000 * n for n in range(18)))],
)  # fmt: skip
def test_nvlink_bytes_need_no_profiling(
    name: str, received: int, child: Child, passing: Time
) -> None:
    """Profiling counts NVLink traffic on Hopper and newer only (DCGM 119, 173); the links' own
    counters are there before, in KiB up to NVLink 4 and in bytes after."""
    source = child(name, ["devices = 1"], module=LAB)
    Page(source)
    page = later(source, passing)
    assert page.of(c.GPU_NVLINK_RECEIVE_BYTES_TOTAL) == {(): received}


def test_nvlink_traffic_that_nobody_counts_is_absent(child: Child, passing: Time) -> None:
    """A driver of the 460 series on an A100: links that are up, and no bytes, not zero bytes."""
    numbers = ("0-11", "4294967295")  # each link, and all together
    lines = ["devices = 1", *(f"* field {n} {at} = !3" for n in (138, 139) for at in numbers)]
    source = child("a100", lines, module=LAB)
    Page(source)
    page = later(source, passing)
    assert page.of(c.GPU_NVLINK_LINKS_UP) == {(): 12}
    assert page.of(c.GPU_NVLINK_RECEIVE_BYTES_TOTAL) == {}


# ------------------------------------------------------------ 36, 38: names and units

PLAUSIBLE = {
    "ratio": (0, 1), "watts": (1, 20_000), "celsius": (-60, 130), "hertz": (1e8, 2e10),
    "bytes": (0, 2e15), "joules": (1, 1e13), "seconds": (0, 1e8),
}  # fmt: skip
"""What a board can say in each unit. A value in the driver's own (percent, milliwatts, megahertz,
nanoseconds) lies outside."""


@pytest.mark.parametrize("name", ["h100-sxm8", "a100", "b200", "gb200", "l40s", "t4"])
def test_38_a_value_is_in_the_unit_that_its_name_ends_with(
    name: str, child: Child, passing: Time
) -> None:
    """Another exporter had milliseconds under a name in seconds (node_exporter's RDMA lifespan)."""
    source = child(name, ["devices = 1"], module=LAB, detail=True, links=True)
    Page(source)
    page = later(source, passing)
    seen = set()
    for metric, labels, value in page.samples:
        stem = metric.name.removesuffix("_total")
        if (unit := stem.rpartition("_")[2]) in PLAUSIBLE:
            assert metric.unit == unit
            least, most = PLAUSIBLE[unit]
            assert isinstance(value, int | float)
            assert least <= value <= most, (metric.name, labels, value)
            seen.add(unit)
    assert seen == set(PLAUSIBLE)


def test_36_a_function_that_was_renamed_gives_the_same_series(
    child: Child, old_library: Path
) -> None:
    """Throttle reasons became event reasons in R535: drivers with the former name only say the
    same under our names, and dashboards need not know (nvidia_gpu_exporter 123)."""
    lines = ["devices = 1", "* nvmlDeviceGetCurrentClocksEventReasons = 0x24"]
    new = Page(child("a100", lines, module=LAB))
    old = Page(child("a100", lines, module=LAB, library=old_library))
    for page in (new, old):
        assert page.of(c.GPU_THROTTLE_ACTIVE) == {
            ("sw_power_cap",): 1, ("sw_thermal",): 1, ("hw_thermal",): 0, ("power_brake",): 0
        }  # fmt: skip
