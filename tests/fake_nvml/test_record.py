"""Recording a machine: what is written down is played back as the machine that it was.

Run as a program it is the recorder with a clock that moves only while it waits, the fake library's
with it: what is measured over that time is exact.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from exporter import catalogue as c
from exporter.clock import SystemClock
from exporter.isolate import Isolated
from exporter.samples import Fault, Sample
from tests.fake_nvml import Answer, Control, Profile, build, environment, profile
from tests.fake_nvml.record import (
    Masks,
    Question,
    Recording,
    UnreachableError,
    grown,
    joined,
    lines_of,
    main,
    parsed,
    written,
)
from tests.fakes import FakeClock
from tests.nvml.units import PROFILE as UNITS
from tests.nvml_lab import CLOCK, Log, Time

SECONDS = 2.0
Key = tuple[str, tuple[str, ...]]


class WaitedClock:
    """A clock that waiting moves; the control file keeps the library's at the same second."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._now = 0.0
        self._show()

    def monotonic(self) -> float:
        return self._now

    def time(self) -> float:
        return 1.8e9 + self._now

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self._now += seconds
        self._show()
        return event.is_set()

    def _show(self) -> None:
        others = [line for line in self._control.lines if not line.startswith("clock")]
        self._control.set(*others, f"clock = {self._now!r}")


class Page(NamedTuple):
    """What the source says at its second read, and how its counters have grown since the first."""

    values: dict[Key, float]
    grown: dict[Key, float]
    faults: Sequence[tuple[str, str]]
    asked: list[str]


class Lab:
    """Records a profile, and reads pages of the original and of the recording."""

    def __init__(self, library: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._library = library
        self._place = place
        self._monkeypatch = monkeypatch

    def _play(self, name: str, file: Path, lines: Iterable[str]) -> tuple[Control, Path]:
        place = self._place / name
        place.mkdir(exist_ok=True)
        control, log = Control(place / "control"), place / "log"
        control.set(*lines)
        chosen = environment(self._library, file, control=control.path, log=log)
        for key, value in {**chosen, CLOCK: str(place / "clock")}.items():
            if os.environ.get(key) != value:
                self._monkeypatch.setenv(key, value)
        return control, place

    def record(self, file: Path, *options: str, lines: Iterable[str] = ()) -> Path:
        """Record what the library plays; return the file."""
        self._play("recorder", file, lines)
        chosen = parsed(["--seconds", repr(SECONDS), *options])
        recording = Recording(chosen, FakeClock(), "tests.fake_nvml.test_record")
        made = self._place / "made.profile"
        made.write_text("".join(f"{line}\n" for line in recording.lines()), "utf-8")
        return made

    def page(self, name: str, file: Path, lines: Iterable[str] = ()) -> Page:
        """Read twice, two seconds apart, in a child whose clocks stand still in between."""
        control, place = self._play(name, file, lines)
        time = Time(place / "clock", control)
        options = {"budget": 60.0, "root": str(place), "detail": True, "links": True}
        source = Isolated(
            "nvml", c.GPU, options, deadline=90.0, clock=SystemClock(), end_after=0.0,
            module="tests.nvml_lab",
        )  # fmt: skip
        first = _values(source.read())
        time.forward(SECONDS)
        items = list(source.read())
        source.close()
        second = _values(items)
        growth = {key: value - first[key] for key, value in second.items() if key in first}
        faults = [item[:2] for item in items if isinstance(item, Fault)]
        return Page(second, growth, faults, Log(place / "log").lines())


def _values(items: Iterable[object]) -> dict[Key, float]:
    found = [item for item in items if isinstance(item, Sample)]
    return {(item.metric.name, item.labels): item.value for item in found}  # type: ignore[misc]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, tool: Callable[[str], str]) -> Path:
    """Return the path of the fake libnvidia-ml.so.1."""
    tool("gcc")
    return build(tmp_path_factory.mktemp("recorded-libnvidia-ml"))


@pytest.fixture
def lab(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Return what records and plays."""
    return Lab(library, tmp_path, monkeypatch)


# ------------------------------------------------------------ the same machine again

TWO = ("devices = 2",)
CASES: dict[str, tuple[str, ...]] = {
    "h100-sxm8": TWO,
    "h100-mig": (),
    "b200": TWO,
    "t4": TWO,
    "units": (),
    "gb200": TWO,
    "old-driver": (),
    "hostile": ('2 nvmlDeviceGetUUID = "GPU-00000bad-0000-4000-8000-000000000002"',),
}
_TIMED = c.GPU_BUSY_SECONDS_TOTAL.name
"""From samples that bear this machine's time of day."""


@pytest.mark.parametrize("name", CASES)
def test_a_recording_is_read_as_the_machine_was(name: str, lab: Lab) -> None:
    """Same series, same values, same faults. Counters stand where they stood when their GPU was
    recorded, which is two seconds later for each GPU, and grow as they did."""
    file = UNITS if name == "units" else profile(name)
    made = lab.record(file, "--identity", lines=CASES[name])
    told, again = lab.page("told", file, CASES[name]), lab.page("again", made)
    assert told.values.keys() ^ again.values.keys() == set()
    assert again.faults == told.faults
    for (family, labels), value in told.values.items():
        if family == _TIMED:
            continue
        growth = told.grown.get((family, labels), 0)
        passed = int(labels[0]) if growth and c.FAMILIES[family].kind == "counter" else 0
        assert again.values[family, labels] == pytest.approx(value + growth * passed), family
        assert again.grown.get((family, labels), 0) == pytest.approx(growth), (family, labels)


_LISTS = re.compile(
    r"nvmlDeviceGet\w+RunningProcesses_v\d|nvmlGpm\w+|nvmlEvent\w+|nvmlDevice\w*Events"
)
_ANSWERED = {
    "nvmlInit_v2", "nvmlInitWithFlags", "nvmlShutdown", "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetMigDeviceHandleByIndex",
}  # fmt: skip
"""What the grammar answers without a line."""


@pytest.mark.parametrize(
    ("name", "without"),
    [("h100-sxm8", set()), ("h100-mig", set()), ("units", {"3 nvmlDeviceGetMemoryInfo_v2"})],
)
def test_the_recording_has_a_line_for_everything_that_the_reader_asks(
    name: str, without: set[str], lab: Lab
) -> None:
    """What is left to the grammar's own answers would be forgotten when the reader asks more. Only
    where instances answer what their GPU does not must there be none."""
    file = UNITS if name == "units" else profile(name)
    made = Profile.read(lab.record(file, lines=CASES[name]))
    missing = set()
    for line in lab.page("told", file, CASES[name]).asked:
        function, who, *arguments = line.split()
        if function in _ANSWERED or _LISTS.fullmatch(function) or "/" in who:
            continue
        if function == "nvmlDeviceGetFieldValues":
            keys = [word.partition(":")[::2] for word in arguments]
            asked = [Question(f"field#{one}", (int(scope or 0),)) for one, scope in keys]
        elif function == "nvmlDeviceGetSamples":
            asked = [Question("samples#1")]
        else:
            asked = [Question(function, tuple(int(one) for one in arguments))]
        device = "system" if who == "-" else int(who)
        missing |= {
            one.of(who) for one in asked if made.function(device, one.name, *one.arguments) is None
        }
    assert missing == without


def test_a_lost_gpu_is_recorded_as_lost(lab: Lab) -> None:
    """And the others as they are."""
    lines = ("devices = 3", "1 * = !15")
    made = lab.record(profile("t4"), "--identity", lines=lines)
    told, again = lab.page("told", profile("t4"), lines), lab.page("again", made)
    assert again.values.keys() == told.values.keys()
    assert again.faults == told.faults != []


def test_a_refusal_is_written_with_its_code(lab: Lab) -> None:
    """Not permitted is something else than not supported; a field is refused like a function."""
    lines = (*TWO, "0 nvmlDeviceGetTotalEccErrors 1 0 = !4", "0 field 82 = !999")
    made = Profile.read(lab.record(profile("h100-sxm8"), lines=lines))
    told = (
        made.function(0, "nvmlDeviceGetTotalEccErrors", 1, 0), made.field(0, 82),
        made.function(0, "nvmlDeviceGetNumFans"), made.field(0, 170),
    )  # fmt: skip
    assert [one and one.fault for one in told] == ["!4", "!999", "!3", "!3"]


# ------------------------------------------------------------ what is measured


def test_counters_are_written_with_their_growth(lab: Lab) -> None:
    """Energy, payload of a link, and a counter that stands still; a reading that is no counter
    has no growth."""
    made = Profile.read(lab.record(profile("h100-sxm8"), lines=("devices = 1",)))
    told = Profile.read(profile("h100-sxm8"))
    counted = ((83, 0), (138, 3), (198, 0), (94, 0))
    assert [made.field(0, *key) for key in counted] == [told.field(0, *key) for key in counted]
    assert any(answer.rates[0] > 0 for key in counted if (answer := made.field(0, *key)))
    energy = made.function(0, "nvmlDeviceGetTotalEnergyConsumption")
    assert energy == told.function(0, "nvmlDeviceGetTotalEnergyConsumption")


def test_what_changes_all_the_time_is_averaged(lab: Lab) -> None:
    """GPM and samples of utilization over the window; what is told of the moment stays as it was
    at first."""
    lines = (
        "devices = 1", "0 gpm 5 = wave 20 60 0.5", "0 samples 1 = u32 wave 10 50 0.5",
        "0 nvmlDeviceGetUtilizationRates = wave 10 50 0.5 41",
    )  # fmt: skip
    made = Profile.read(lab.record(profile("h100-sxm8"), lines=lines))
    gpm, samples = made.gpm(0, 5), made.function(0, "samples#1")
    assert gpm is not None
    assert gpm.value == pytest.approx(40)
    assert samples is not None
    assert (samples.kind, samples.value) == ("u32", 30)
    assert made.function(0, "nvmlDeviceGetUtilizationRates") == Answer((50, 41), rates=(0.0, 0.0))


# ------------------------------------------------------------ hangs and crashes


def test_a_hung_call_is_written_as_such_and_costs_nothing_else(lab: Lab) -> None:
    """The rest of the GPU is asked by another child, and the other GPUs as well."""
    lines = (*TWO, "0 nvmlDeviceGetPowerUsage = hang")
    made = Profile.read(lab.record(profile("t4"), "--patience", "2", lines=lines))
    whole = Profile.read(profile("t4"))
    hung = made.function(0, "nvmlDeviceGetPowerUsage")
    assert hung is not None
    assert hung.fault == "hang"
    assert made.function(0, "nvmlDeviceGetRemappedRows") == Answer(fault="!3")
    for gpu in (0, 1):
        assert made.field(gpu, 94) == whole.field(gpu, 94)
        assert len(made.processes(gpu)) == 1
    assert made.function(1, "nvmlDeviceGetPowerUsage") == whole.function(
        1, "nvmlDeviceGetPowerUsage"
    )


def test_a_crash_is_written_as_such_and_costs_nothing_else(lab: Lab) -> None:
    """A field is told by its number, though the reader asks for many in one call."""
    lines = (*TWO, "1 field 186 = crash")
    made = Profile.read(lab.record(profile("t4"), lines=lines))
    assert made.field(1, 186) == Answer(fault="crash")
    for gpu in (0, 1):
        assert made.field(gpu, 94) == Profile.read(profile("t4")).field(gpu, 94)
        assert made.function(gpu, "samples#1") == Answer((64,), "u32", rates=(0.0,))


def test_a_gpu_on_which_everything_crashes_is_given_up(lab: Lab) -> None:
    """After three calls, which a comment says; the next GPU is recorded."""
    lines = (
        *TWO,
        *(f"0 nvmlDeviceGet{name} = crash" for name in ("Name", "Serial", "ComputeMode")),
    )
    text = lab.record(profile("t4"), lines=lines).read_text("utf-8")
    assert "# not complete: crash at 0 nvmlDeviceGetComputeMode" in text
    assert "1 nvmlDeviceGetSerial = " in text


def test_a_driver_that_is_not_loaded_leaves_no_profile(
    lab: Lab, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command fails and says why."""
    with pytest.raises(UnreachableError, match="nvmlInit"):
        lab.record(profile("t4"), lines=("system nvmlInit_v2 = !9",))
    assert "the driver cannot be asked" in capfd.readouterr().err


class Scripted(Recording):
    """A recording whose children say what a test has written for them."""

    def __init__(self, *children: list[list[str]]) -> None:
        super().__init__(parsed([]), FakeClock())
        self._children = iter(children)

    def _child(self) -> Iterator[list[str]]:
        return iter(next(self._children))


OPENING = [["=", "devices", "2"], ["=", "system nvmlSystemGetDriverVersion", '"1.2"'], ["done"]]


def test_a_driver_that_no_longer_starts_costs_nothing_that_has_been_said() -> None:
    """After a hang not even the library may come up again: what is there of the GPU is written."""
    recording = Scripted(
        [*OPENING, ["=", "0 nvmlA", "1"], ["?", "0 nvmlB"], ["failed", "hang"]],
        [["?", "system nvmlInit_v2"], ["failed", "hang"]],
    )
    told: list[str] = []
    with pytest.raises(UnreachableError, match="nvmlInit_v2"):
        told.extend(recording.lines())
    assert told[-4:] == [
        "# GPU 0", "# not complete: hang at system nvmlInit_v2", "0 nvmlA = 1", "0 nvmlB = hang",
    ]  # fmt: skip


def test_a_child_that_fails_for_another_reason_costs_its_gpu_only() -> None:
    """A mistake in the recorder is none of the driver: not a crash, and not tried again."""
    recording = Scripted(
        [*OPENING, ["=", "0 nvmlA", "1"], ["?", "0 nvmlB"], ["failed", "exit code 1"]],
        [["=", "1 nvmlA", "2"], ["done"]],
    )
    assert list(recording.lines())[-6:] == [
        "# GPU 0", "# not complete: exit code 1 at 0 nvmlB", "0 nvmlA = 1",
        "", "# GPU 1", "1 nvmlA = 2",
    ]  # fmt: skip


# ------------------------------------------------------------ masks


def test_identities_are_masked_unless_asked_for(lab: Lab) -> None:
    """No UUID, serial number or process name of the machine is in the file; PCI addresses are."""
    told = lab.record(profile("h100-mig"), "--identity").read_text("utf-8")
    secrets = [
        "GPU-00000101", "1650000000101", "MIG-00000001-0000-4000-8000-000000000009", "gpu_burn",
    ]  # fmt: skip
    assert [secret in told for secret in secrets] == [True] * 4
    masked = lab.record(profile("h100-mig")).read_text("utf-8")
    assert [secret in masked for secret in secrets] == [False] * 4
    assert '0 nvmlDeviceGetPciInfo_v3 = "00000000:00:09.0"' in masked
    assert "# Masked: UUIDs" in masked
    assert len(lab.page("masked", lab._place / "made.profile").values) > 100


def test_a_mask_is_the_same_for_the_same_text() -> None:
    """Two boards with one UUID, or in one fabric, stay so; what means no text stays as it is."""
    masks = Masks()
    one, other = (f'"GPU-0000{i}000-1111-2222-3333-444444444444"' for i in range(2))
    made = [masks.line("0 nvmlDeviceGetUUID", text) for text in (one, other, one)]
    assert made[0] == made[2] != made[1]
    assert made[0] == '"GPU-00000000-0000-4000-8000-000000000001"'
    old = masks.row(f'mig 0 1 0 index 0 uuid "MIG-{one[1:-1]}/1/0" memory 5')
    assert old == f'mig 0 1 0 index 0 uuid "MIG-{made[0][1:-1]}/1/0" memory 5'
    for name, text in (("nvmlDeviceGetSerial", '"N/A"'), ("nvmlDeviceGetUUID", '""'),
                       ("nvmlDeviceGetGpuFabricInfoV",
                        '"00000000-0000-0000-0000-000000000000" 0 0 3 0'),
                       ("nvmlDeviceGetName", '"GPU-like"')):  # fmt: skip
        assert masks.line(f"0 {name}", text) == text
    assert masks.line("0 nvmlDeviceGetSerial", '"1324"') == '"0003"'


# ------------------------------------------------------------ lines


@pytest.mark.parametrize(
    "answer",
    [
        Answer((1, -2, 0x1234567890), rates=(0.0, 0.0, 12.5)),
        Answer((0.000216,), "f64", rates=(0.0,)),
        Answer((b'a "quoted" \\ b\n\x80\xff#', 7), rates=(0.0, 0.0)),
        Answer(fault="!15"),
        Answer(fault="hang"),
    ],
)
def test_what_is_written_is_read_back(answer: Answer, tmp_path: Path) -> None:
    """Numbers with their growth, texts that are no UTF-8, faults."""
    file = tmp_path / "one.profile"
    file.write_text(f"0 nvmlX = {written(answer)}\n", "utf-8")
    assert Profile.read(file).function(0, "nvmlX") == answer


def test_neighbours_of_one_value_are_one_line() -> None:
    """Where the grammar has ranges: not for metrics, not over a gap, not for other values."""
    lines = [("0 field 161 0", "1"), ("0 field 161 1", "1"), ("0 field 161 3", "1"),
             ("0 field 162 4", "1"), ("0 nvmlX 5 0", "2"), ("0 nvmlX 5 1", "3"),
             ("0 gpm 4", "0"), ("0 gpm 5", "0"), ("0 nvmlY", "0"), ("devices", "8")]  # fmt: skip
    assert list(joined(lines)) == [
        "0 field 161 0-1 = 1", "0 field 161 3 = 1", "0 field 162 4 = 1", "0 nvmlX 5 0 = 2",
        "0 nvmlX 5 1 = 3", "0 gpm 4 = 0", "0 gpm 5 = 0", "0 nvmlY = 0", "devices = 8",
    ]  # fmt: skip


def test_only_a_counter_that_rose_has_growth() -> None:
    """Not one that was set back, not one that is blank, not another value beside it."""
    rows = Question("nvmlDeviceGetRemappedRows")
    first, second = Answer((8, 5, 0, 0)), Answer((12, 3, 1, 0))
    assert grown(rows, first, second, 2.0).rates == (2.0, 0.0, 0.0, 0.0)
    blank = Answer((2**64 - 1,), "u64")
    assert grown(Question("field", (83, 0)), Answer((7,), "u64"), blank, 2.0).rates == (0.0,)


def test_a_silent_child_is_noticed() -> None:
    """After its first line, which is waited for: a start takes what it takes."""
    reading, writing = os.pipe()
    os.write(writing, b"ready\nhalf")
    with os.fdopen(reading, "rb") as pipe, os.fdopen(writing, "wb"):
        found = lines_of(pipe, 0.01)
        assert next(found) == b"ready"
        with pytest.raises(TimeoutError):
            next(found)


# ------------------------------------------------------------ the command


def test_the_command_writes_a_profile_that_it_can_check(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the clocks of this machine."""
    lab._play("command", profile("t4"), TWO)
    command = [sys.executable, "-m", "tests.fake_nvml.record", "--seconds", "0.2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    assert "driver 550.163.01,\n# kernel " in done.stdout
    file = tmp_path / "t4.profile"
    file.write_text(done.stdout, "utf-8")
    assert main(["--check", str(file)], FakeClock()) == 0
    count = sum(line[:1] not in ("", "#") for line in done.stdout.splitlines())
    assert capsys.readouterr().out == f"2 GPUs, {count - 1} lines\n"


def test_what_is_no_profile_does_not_pass_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line is named."""
    file = tmp_path / "broken.profile"
    file.write_text("devices = 1\n0 nvmlDeviceGetName = nonsense\n", "utf-8")
    assert main(["--check", str(file)], FakeClock()) == 1
    assert "broken.profile:2" in capsys.readouterr().err


if __name__ == "__main__":
    clock = WaitedClock(Control(Path(os.environ["FAKE_NVML_CONTROL"])))
    sys.exit(main(sys.argv[1:], clock, "tests.fake_nvml.test_record"))
