"""Boards that are slow, half alive, replaced or given away: what is said of them is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.nvml.driver import FUNCTION_NOT_FOUND, GONE, NvmlError
from exporter.nvml.totals import Totals
from exporter.samples import Fault, Metric, Sample
from exporter.sources.nvml import NvmlSource
from tests.fake_nvml import Profile, profile
from tests.fakes import FakeClock
from tests.nvml.conftest import Child
from tests.nvml.profile_driver import ProfileDriver
from tests.nvml_lab import read, until

EIGHT = range(8)


class Board:
    """The source over a profile in this process, whose lines a test may change between reads."""

    def __init__(self, folder: Path, name: str, *lines: str, **options: object) -> None:
        self.clock = FakeClock()
        self._folder = folder
        self._name = name
        epoch = self.clock.time() - self.clock.now
        self.driver = ProfileDriver(self._profile(lines), self.clock.monotonic, wall=epoch)
        self.source = NvmlSource(
            driver=self.driver,
            clock=_Real(self.clock),
            root=str(folder),
            **options,  # type: ignore[arg-type]
        )

    def _profile(self, lines: tuple[str, ...]) -> Profile:
        control = self._folder / "control"
        control.write_text("\n".join(lines) + "\n")
        return Profile.read(profile(self._name), control)

    def change(self, *lines: str) -> None:
        """Let these lines hold instead of those before."""
        driver = ProfileDriver(self._profile(lines), self.clock.monotonic)
        self.driver.profile, self.driver._lines = driver.profile, driver._lines
        self.driver._told.clear()

    def read(self, times: int = 1) -> list[Sample | Fault]:
        """Return what the last of so many reads brought, a second apart."""
        items: list[Sample | Fault] = []
        for _ in range(times):
            self.clock.advance(1)
            items = [i for i in self.source.read() if isinstance(i, Sample | Fault)]
        return items


class _Real:
    """A clock whose hand the test moves, for a source whose threads wait in real time."""

    def __init__(self, clock: FakeClock) -> None:
        self.monotonic, self.time, self.wait = clock.monotonic, clock.time, clock.wait


def values(items: list[Sample | Fault], metric: Metric) -> dict[tuple[str, ...], float]:
    return {i.labels: i.value for i in items if isinstance(i, Sample) and i.metric is metric}  # type: ignore[misc]


def faults(items: list[Sample | Fault]) -> list[tuple[str, str]]:
    return [(i.part, i.reason) for i in items if isinstance(i, Fault)]


# ---- slow, half alive -----------------------------------------------------------------------


def test_a_gpu_that_is_slow_to_set_up_is_there_in_the_end(child: Child) -> None:
    """A hundred questions at its pace take longer than one read may; it is met all the same."""
    source = child("h100-sxm8", ["3 * = sleep 0.02"], budget=0.6)
    page = until(source, lambda page: page.by_gpu(c.GPU_UP) == dict.fromkeys(EIGHT, 1))
    assert len(page.of(c.GPU_INFO)) == 8


def test_a_gpu_that_waits_for_a_reset_but_answers_some_things_is_still_read(tmp_path: Path) -> None:
    """Its ECC counts and what it asks for are needed just then."""
    board = Board(tmp_path, "h200")
    board.read(2)
    board.change("0 nvmlDeviceGetUtilizationRates = !16", "0 field 230 = u32 1")
    items = board.read(11)
    assert list(values(items, c.GPU_UP).values()) == [1]
    assert list(values(items, c.GPU_RECOVERY_ACTION).values()) == [1]
    assert ("gpu0", "unavailable") in faults(items)
    assert not values(items, c.GPU_UTILIZATION_RATIO)


def test_a_gpu_that_may_not_be_opened_is_not_asked_each_second(tmp_path: Path) -> None:
    """A container has been given one of two GPUs: the driver counts both and opens one."""
    board = Board(tmp_path, "h100-sxm8", "devices = 2", "1 * = !4")
    first, second = board.read(), board.read()
    assert faults(first) == faults(second) == [("gpu1", "denied")]
    assert list(values(second, c.GPU_UP).values()) == [1]


# ---- MIG ------------------------------------------------------------------------------------


def test_a_gpu_that_is_no_longer_split_is_read_as_a_whole_again(tmp_path: Path) -> None:
    """What a split GPU does not support (utilization, row remapping) comes back with the mode."""
    split = ("0 nvmlDeviceGetMigMode = 1 1", "0 nvmlDeviceGetUtilizationRates = !3")
    board = Board(tmp_path, "h200", *split)
    assert not values(board.read(3), c.GPU_UTILIZATION_RATIO)
    board.change()
    assert len(values(board.read(13), c.GPU_UTILIZATION_RATIO)) == 1


def test_an_odd_instance_costs_its_own_slot(child: Child) -> None:
    """The driver's list of instances has a slot that answers nonsense: the GPU is read on."""
    source = child("h100-mig", ["0 nvmlDeviceGetMigDeviceHandleByIndex 1 = !2"])
    page = until(source, lambda page: bool(page.of(c.GPU_MIG_INFO)))
    assert page.by_gpu(c.GPU_UP) == {0: 1}
    assert page.faults == []


# ---- links ----------------------------------------------------------------------------------


def errors(items: list[Sample | Fault]) -> dict[str, float]:
    return {labels[2]: v for labels, v in values(items, c.GPU_NVLINK_ERRORS_TOTAL).items()}


def counts(*unread: int, base: int = 100) -> list[str]:
    """Return lines of a recovery counter for each link, some of which cannot be read."""
    return [
        f"0 field 162 {link} = " + ("!999" if link in unread else f"u64 {base}")
        for link in range(18)
    ]


def test_a_sum_over_links_does_not_fall_because_one_is_not_read(tmp_path: Path) -> None:
    """After a restart one link cannot be read: no sum is told, rather than a smaller one."""
    assert errors(Board(tmp_path, "h200", *counts()).read())["recovery"] == 1800
    again = Board(tmp_path, "h200", *counts(3))
    assert "recovery" not in errors(again.read())
    again.change(*counts())
    assert errors(again.read(11))["recovery"] == 1800


def test_a_link_that_stops_answering_keeps_its_share(tmp_path: Path) -> None:
    """The sum was told with it: it goes on from there."""
    board = Board(tmp_path, "h200", *counts())
    board.read()
    board.change(*counts(3, base=101))
    assert errors(board.read(11))["recovery"] == 17 * 101 + 100


def test_a_sum_is_not_told_while_no_link_answers(tmp_path: Path) -> None:
    """A frozen sum would say that there are no new errors."""
    board = Board(tmp_path, "h200", *counts())
    board.read()
    board.change(*counts(*range(18)))
    assert "recovery" not in errors(board.read(11))


def test_links_are_found_although_the_first_one_is_down(tmp_path: Path) -> None:
    """A link that is down answers nothing: what the others count is read."""
    lines = [f"0 field {number} 0 = !3" for number in (138, 139, 161, 162, 163, 164)]
    board = Board(tmp_path, "h200", "0 nvmlDeviceGetNvLinkState 0 = 0", *lines, *counts()[1:])
    items = board.read()
    assert errors(items)["recovery"] == 1700
    assert list(values(items, c.GPU_NVLINK_LINKS_UP).values()) == [17]


# ---- which boards there are -----------------------------------------------------------------


def card(root: Path, address: str, driver: str) -> None:
    """Put a GPU on the PCI bus, held by a driver."""
    device = root / "sys/bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    (device / "driver").symlink_to(root / "sys/bus/pci/drivers" / driver)


def test_gpus_given_to_virtual_machines_are_not_missing(tmp_path: Path) -> None:
    """Four are bound to vfio-pci: four are expected, four are present."""
    for n in range(8):
        card(tmp_path, f"0000:{n:02x}:00.0", "nvidia" if n < 4 else "vfio-pci")
    items = Board(tmp_path, "h100-sxm8", "devices = 4").read()
    assert values(items, c.GPU_DEVICES_EXPECTED) == {(): 4}
    assert values(items, c.GPU_DEVICES_PRESENT) == {(): 4}


def test_what_the_operator_expects_wins(tmp_path: Path) -> None:
    """Eight are on the bus and this container has two: `expected: 2`."""
    for n in range(8):
        card(tmp_path, f"0000:{n:02x}:00.0", "nvidia")
    board = Board(tmp_path, "h100-sxm8", "devices = 2", expected=2)
    assert values(board.read(), c.GPU_DEVICES_EXPECTED) == {(): 2}


def test_a_board_in_the_place_of_another_has_replaced_it(tmp_path: Path) -> None:
    """It is swapped while we are away: eight are expected, not nine."""
    board = Board(tmp_path, "h100-sxm8", "devices = 1")
    board.read()
    former = board.source.memory()
    swapped = Board(
        tmp_path, "h100-sxm8", "devices = 1", '0 nvmlDeviceGetUUID = "GPU-new"', memory=former
    )
    items = swapped.read()
    assert values(items, c.GPU_DEVICES_EXPECTED) == {(): 1}
    assert [labels[1] for labels in values(items, c.GPU_UP)] == ["GPU-new"]


def test_two_boards_that_say_they_are_one_are_told(tmp_path: Path) -> None:
    """The second one is missing and the reason is there."""
    board = Board(tmp_path, "h100-sxm8", "devices = 2", '* nvmlDeviceGetUUID = "GPU-same"')
    for items in (board.read(), board.read()):
        assert list(values(items, c.GPU_UP)) == [("0", "GPU-same")]
        assert faults(items) == [("gpu1", "malformed")]


def test_our_counters_are_a_boards_whatever_its_index() -> None:
    """The board before it has gone, and its index is another one: the integral goes on."""
    totals = Totals()
    totals.add(c.GPU_BUSY_SECONDS_TOTAL, ("4", "GPU-a"), 10.0)
    assert totals.add(c.GPU_BUSY_SECONDS_TOTAL, ("3", "GPU-a"), 1.0) == 11.0
    totals.add(c.GPU_MIG_SM_ACTIVE_SECONDS_TOTAL, ("4", "GPU-a", "1"), 5.0)
    again = Totals()
    families = {m.name: m for m in (c.GPU_BUSY_SECONDS_TOTAL, c.GPU_MIG_SM_ACTIVE_SECONDS_TOTAL)}
    again.load(totals.export(), families)
    assert again.add(c.GPU_BUSY_SECONDS_TOTAL, ("0", "GPU-a"), 0.0) == 11.0
    assert again.add(c.GPU_MIG_SM_ACTIVE_SECONDS_TOTAL, ("0", "GPU-a", "1"), 0.0) == 5.0


def test_no_gpu_at_all_is_a_statement_too(child: Child) -> None:
    """The driver is loaded and has none (left): present 0, and no failure to start."""
    page = read(child("h100-sxm8", ["devices = 0"]))
    assert page.of(c.GPU_DEVICES_PRESENT) == {(): 0}
    assert page.faults == []


# ---- processes ------------------------------------------------------------------------------


def test_shares_of_processes_come_back_after_the_clock_was_set_back(tmp_path: Path) -> None:
    """What was seen last lies in the future then: it must not hide what comes."""
    board = Board(tmp_path, "h200")
    assert values(board.read(), c.GPU_PROCESS_SM_RATIO)
    processes = board.source._known[next(iter(board.source._known))].unit._processes  # type: ignore[union-attr]
    hour = int(3600e6)
    processes._seen += hour
    assert values(board.read(11), c.GPU_PROCESS_SM_RATIO)
    assert processes._seen < int((board.clock.time() + 60) * 1e6)


def test_process_lists_of_odd_r535_drivers_are_left_alone(
    child: Child, fake_library: Path, tmp_path: Path
) -> None:
    """Their newest layout has a field more: read as usual, PIDs and memory are scrambled."""
    exported = fake_library.read_bytes()
    odd = b"nvmlDeviceGetRunningProcessDetailList" not in exported
    asked = b"nvmlDeviceGetConfComputeMemSizeInfo" in exported
    page = until(child("h200"), lambda page: bool(page.of(c.GPU_UTILIZATION_RATIO)))
    assert bool(page.of(c.GPU_PROCESSES)) != (odd and asked)


# ---- nvidia-ml-py ---------------------------------------------------------------------------


def test_an_older_nvidia_ml_py_lacks_some_readings_and_nothing_else() -> None:
    """A structure that the bindings do not know is a function that is not there."""
    from exporter.nvml.driver import Nvml, Struct

    driver = Nvml(FakeClock())
    with pytest.raises(NvmlError) as caught:
        driver._struct(Struct("c_nvmlOfTheFuture_t", ("x",)))
    assert caught.value.code == FUNCTION_NOT_FOUND
    assert caught.value.code not in GONE
