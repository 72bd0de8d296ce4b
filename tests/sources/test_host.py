"""The machine itself: a recorded tree, a fake machine, and files that fail."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from exporter.files import Files
from exporter.samples import Drop, Fault, Gate, Sample
from exporter.sources.host import HostSource

TREE = Path(__file__).parent.parent / "data" / "host" / "linux-6.18"

Values = dict[tuple[str, ...], object]


class FakeMachine:
    """A machine whose every answer is set by the test; an answer that is an error is raised."""

    def __init__(self) -> None:
        self.times: Mapping[str, float] | OSError = {
            "user": 100.0, "nice": 7.0, "system": 30.0, "idle": 900.0, "iowait": 5.0, "irq": 1.0,
            "softirq": 2.0, "steal": 3.0, "guest": 40.0, "guest_nice": 2.0,
        }  # fmt: skip
        self.memory: tuple[int, int] | OSError = (2 << 40, 1 << 40)
        self.boots = 0

    def cpu_times(self) -> Mapping[str, float]:
        if isinstance(self.times, OSError):
            raise self.times
        return self.times

    def cpu_count(self) -> int | None:
        return 192

    def virtual_memory(self) -> tuple[int, int]:
        if isinstance(self.memory, OSError):
            raise self.memory
        return self.memory

    def swap_memory(self) -> tuple[int, int]:
        return (8 << 30, 6 << 30)

    def getloadavg(self) -> tuple[float, float, float]:
        return (12.5, 11.0, 9.25)

    def boot_time(self) -> float:
        self.boots += 1
        return 1_795_975_700.0

    def kernel(self) -> tuple[str, str]:
        return ("6.8.0-45-generic", "x86_64")


class Failing(Files):
    """Files of which some, known by the end of their path, fail."""

    def __init__(self, errors: Mapping[str, int]) -> None:
        super().__init__()
        self._errors = dict(errors)

    def read(self, path: str) -> bytes:
        for end, code in self._errors.items():
            if path.endswith(end):
                raise OSError(code, "made by the test", path)
        return super().read(path)


def sort(items: Iterable[Sample | Fault | Drop]) -> tuple[Values, list[tuple[str, str]]]:
    """Return the samples of a read by name and labels, and its faults by part and reason."""
    found: Values = {}
    faults = []
    for item in items:
        if isinstance(item, Sample):
            found[item.metric.name, *item.labels] = item.value
        elif isinstance(item, Fault):
            faults.append((item.part, item.reason))
    return found, faults


def read(
    root: Path = TREE, machine: FakeMachine | None = None, files: Files | None = None
) -> tuple[Values, list[tuple[str, str]]]:
    """Read a machine once."""
    source = HostSource(root, machine=machine or FakeMachine(), files=files)
    found = sort(source.read())
    source.close()
    return found


def test_golden() -> None:
    """Every series of a recorded tree and a fake machine, compared by eye with the files."""
    found, faults = read()
    assert not faults
    assert found == {
        ("host_info", "6.8.0-45-generic", "x86_64"): 1,
        ("host_boot_time_seconds",): 1_795_975_700.0,
        ("host_cpus",): 192,
        ("host_cpu_seconds_total", "user"): 60.0,
        ("host_cpu_seconds_total", "nice"): 5.0,
        ("host_cpu_seconds_total", "system"): 30.0,
        ("host_cpu_seconds_total", "idle"): 900.0,
        ("host_cpu_seconds_total", "iowait"): 5.0,
        ("host_cpu_seconds_total", "irq"): 1.0,
        ("host_cpu_seconds_total", "softirq"): 2.0,
        ("host_cpu_seconds_total", "steal"): 3.0,
        ("host_cpu_seconds_total", "guest"): 40.0,
        ("host_cpu_seconds_total", "guest_nice"): 2.0,
        ("host_load_average", "1m"): 12.5,
        ("host_load_average", "5m"): 11.0,
        ("host_load_average", "15m"): 9.25,
        ("host_memory_total_bytes",): 2 << 40,
        ("host_memory_available_bytes",): 1 << 40,
        ("host_swap_total_bytes",): 8 << 30,
        ("host_swap_free_bytes",): 6 << 30,
        ("host_processes_running",): 3,
        ("host_processes_blocked",): 0,
        ("host_pressure_stalled_seconds_total", "cpu", "some"): 60.63769,
        ("host_pressure_stalled_seconds_total", "io", "some"): 15.992986,
        ("host_pressure_stalled_seconds_total", "io", "full"): 13.294251,
        ("host_pressure_stalled_seconds_total", "memory", "some"): 0.0,
        ("host_pressure_stalled_seconds_total", "memory", "full"): 0.0,
        ("host_numa_memory_total_bytes", "0"): 9267412 * 1024,
        ("host_numa_memory_free_bytes", "0"): 6219288 * 1024,
        ("host_numa_misses_total", "0"): 0,
    }


def test_cpu_modes_do_not_overlap() -> None:
    """Guest time is inside user time for the kernel; here the modes add up to all time once."""
    machine = FakeMachine()
    found, _ = read(machine=machine)
    assert isinstance(machine.times, dict)
    all_time = sum(machine.times.values()) - machine.times["guest"] - machine.times["guest_nice"]
    modes = [value for key, value in found.items() if key[0] == "host_cpu_seconds_total"]
    assert sum(modes) == pytest.approx(all_time)  # type: ignore[arg-type]


def test_modes_that_a_kernel_lacks_are_absent() -> None:
    """Only what the machine tells is published."""
    machine = FakeMachine()
    machine.times = {"user": 100.0, "system": 30.0, "idle": 900.0}
    found, _ = read(machine=machine)
    modes = {key[1] for key in found if key[0] == "host_cpu_seconds_total"}
    assert modes == {"user", "system", "idle"}


def test_cpu_time_that_goes_back_a_little_stands_still() -> None:
    """The kernel's idle time may decrease a little; a counter that does would be a restart."""
    machine = FakeMachine()
    source = HostSource(TREE, machine=machine)
    seen = []
    for idle in (900.0, 899.5, 901.0, 10.0):
        assert isinstance(machine.times, dict)
        machine.times = {**machine.times, "idle": idle}
        seen.append(sort(source.read())[0]["host_cpu_seconds_total", "idle"])
    source.close()
    assert seen == [900.0, 900.0, 901.0, 10.0]


def test_a_machine_without_pressure_and_numa_has_neither(tmp_path: Path) -> None:
    """Kernels without them leave the series out, and nothing is wrong."""
    (tmp_path / "proc").mkdir()
    shutil.copy(TREE / "proc/stat", tmp_path / "proc/stat")
    found, faults = read(tmp_path)
    assert not faults
    assert not any("pressure" in key[0] or "numa" in key[0] for key in found)
    assert found["host_processes_running",] == 3


@pytest.mark.parametrize(
    ("code", "faults"),
    [
        (errno.EOPNOTSUPP, []),
        (errno.EACCES, [("pressure/io", "denied")]),
        (errno.EIO, [("pressure/io", "io")]),
    ],
)
def test_pressure_that_is_switched_off_is_absent(code: int, faults: list[tuple[str, str]]) -> None:
    """A kernel booted without PSI says EOPNOTSUPP, which is no fault; other errors are."""
    found, seen = read(files=Failing({"pressure/io": code}))
    assert seen == faults
    resources = {key[1] for key in found if key[0] == "host_pressure_stalled_seconds_total"}
    assert resources == {"cpu", "memory"}


def test_a_part_that_fails_costs_no_other() -> None:
    """CPU times, memory and `/proc/stat` fail; what is left is read."""
    machine = FakeMachine()
    machine.times = PermissionError("no")
    machine.memory = OSError(errno.EIO, "broken")
    found, faults = read(machine=machine, files=Failing({"proc/stat": errno.ENOENT}))
    assert faults == [("cpu", "denied"), ("memory", "io"), ("processes", "unavailable")]
    assert found["host_cpus",] == 192
    assert found["host_swap_total_bytes",] == 8 << 30
    assert ("host_memory_total_bytes",) not in found
    assert found["host_numa_misses_total", "0"] == 0


def test_a_numa_node_that_fails_costs_no_other(tmp_path: Path) -> None:
    """Each node stands for itself, and other names in the folder are no nodes."""
    shutil.copytree(TREE, tmp_path, dirs_exist_ok=True)
    nodes = tmp_path / "sys/devices/system/node"
    shutil.copytree(nodes / "node0", nodes / "node1")
    found, faults = read(tmp_path, files=Failing({"node0/meminfo": errno.EIO}))
    assert faults == [("numa/node0", "io")]
    assert {key[1] for key in found if key[0].startswith("host_numa")} == {"1"}


def test_lines_that_make_no_sense_are_absent(tmp_path: Path) -> None:
    """Files of an unexpected form give no samples and no faults."""
    shutil.copytree(TREE, tmp_path, dirs_exist_ok=True)
    for name in ("proc/stat", "proc/pressure/cpu", "sys/devices/system/node/node0/meminfo"):
        (tmp_path / name).write_bytes(b"\xff nonsense\n\n")
    found, faults = read(tmp_path)
    assert not faults
    assert ("host_processes_running",) not in found
    assert ("host_pressure_stalled_seconds_total", "cpu", "some") not in found
    assert ("host_numa_memory_total_bytes", "0") not in found


@pytest.mark.parametrize("digits", ["9" * 400, "9" * 5000], ids=["400 digits", "5000 digits"])
def test_an_absurd_number_in_a_pressure_file_costs_that_file_only(
    tmp_path: Path, digits: str
) -> None:
    """It failed the whole source as a bug once."""
    shutil.copytree(TREE, tmp_path, dirs_exist_ok=True)
    text = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={digits}\n"
    (tmp_path / "proc/pressure/io").write_text(text)
    (tmp_path / "proc/stat").write_text(f"procs_running {digits}\n")
    (tmp_path / "sys/devices/system/node/node0/meminfo").write_text(
        f"Node 0 MemTotal:  {digits} kB\n"
    )
    found, faults = read(tmp_path)
    assert faults == [
        ("processes", "malformed"), ("pressure/io", "malformed"), ("numa/node0", "malformed"),
    ]  # fmt: skip
    assert ("host_pressure_stalled_seconds_total", "memory", "some") in found
    assert ("host_cpus",) in found


def test_boot_time_is_asked_for_rarely() -> None:
    """It moves only with a corrected clock, so it is looked up every `relist` reads."""
    machine = FakeMachine()
    source = HostSource(TREE, machine=machine, relist=4)
    for _ in range(8):
        assert sort(source.read())[0]["host_boot_time_seconds",] == 1_795_975_700.0
    source.close()
    assert machine.boots == 2


def test_the_machine_that_we_run_on() -> None:
    """The real machine answers without a fault, in well-formed samples."""
    source = HostSource()
    items = list(source.read())
    source.close()
    samples = [item for item in items if isinstance(item, Sample)]
    batch, drops = Gate(1000).admit(samples)
    assert len(batch) == len(items)
    assert drops == {}
    found, _ = sort(items)
    assert found["host_cpus",] >= 1  # type: ignore[operator]
    assert 0 < found["host_memory_available_bytes",] <= found["host_memory_total_bytes",]  # type: ignore[operator]
