"""The kernel log as a source: a device that is a FIFO here, recorded lines, and failures."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.reference import xids
from exporter.samples import Drop, Event, Fault, Sample
from exporter.sources.kmsg import KernelLogSource
from exporter.xids import XidLedger
from tests.fakes import FakeClock

LOGS = Path(__file__).parent.parent / "data" / "kmsg"
PCI = "00000000:18:00.0"
DEVICES: Mapping[str, tuple[str, str]] = {PCI: ("0", "GPU-a")}
BOOT = 1_700_000_000
XID = "NVRM: Xid (PCI:0000:18:00): {}, pid=1, name=python, text"


class FakeLog:
    """Stands below the source in the place of `os.read`: one item is one record or an errno."""

    def __init__(self, *items: bytes | int) -> None:
        self.items = deque(items)

    def __call__(self, fd: int, size: int) -> bytes:
        os.fstat(fd)  # as the kernel: a descriptor that was closed is an error
        if not self.items:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        item = self.items.popleft()
        if isinstance(item, int):
            raise OSError(item, os.strerror(item))
        assert len(item) <= size
        return item


def record(number: int, text: str, seconds: float = 1.0) -> bytes:
    """Return a record as the device gives it, with what the kernel adds about the device."""
    escaped = "".join(
        ch if " " <= ch <= "~" and ch != "\\" else "".join(f"\\x{b:02x}" for b in ch.encode())
        for ch in text
    )
    about = " SUBSYSTEM=pci\n DEVICE=+pci:0000:18:00.0\n"
    return f"3,{number},{round(seconds * 1e6)},-;{escaped}\n{about}".encode()


def xid_record(number: int, code: int = 31, seconds: float = 1.0) -> bytes:
    """Return a record with an XID."""
    return record(number, XID.format(code), seconds)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a machine's root with a boot time and an empty log."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "proc").mkdir()
    (tmp_path / "dev/kmsg").touch()
    (tmp_path / "proc/stat").write_text(f"cpu  1 2 3\nbtime {BOOT}\nprocesses 7\n")
    return tmp_path


Build = Callable[..., KernelLogSource]


@pytest.fixture
def build(root: Path) -> Iterator[Build]:
    """Return a maker of sources below `root`; all are closed at the end."""
    made: list[KernelLogSource] = []

    def make(pull: Callable[[int, int], bytes] = os.read, **options: object) -> KernelLogSource:
        given: dict[str, object] = {
            "ledger": XidLedger(xids.load()),
            "devices": lambda: DEVICES,
            "clock": FakeClock(wall=BOOT + 1000),
            "root": root,
        }
        source = KernelLogSource(**(given | options), pull=pull)  # type: ignore[arg-type]
        made.append(source)
        return source

    yield make
    for source in made:
        source.close()


def read(source: KernelLogSource) -> tuple[dict[tuple[str, int], object], list[Fault | Drop]]:
    """Return how often each code of the first GPU was seen, and what else was yielded."""
    counts: dict[tuple[str, int], object] = {}
    others: list[Fault | Drop] = []
    for item in source.read():
        if not isinstance(item, Sample):
            others.append(item)
        elif item.metric is c.GPU_XID_ERRORS_TOTAL and item.value:
            counts[item.labels[2], int(item.labels[3])] = item.value
    return counts, others


def last_seen(source: KernelLogSource, code: int = 31) -> object:
    """Return when a code was last seen."""
    return {
        item.labels[3]: item.value
        for item in source.read()
        if isinstance(item, Sample) and item.metric is c.GPU_XID_LAST_TIMESTAMP_SECONDS
    }[str(code)]


# ---------------------------------------------------------------- records


def test_errors_since_boot_count_too(build: Build) -> None:
    """The first read starts at the oldest record that the kernel has."""
    source = build(FakeLog(xid_record(5), record(6, "eth0: link up"), xid_record(7, 79)))
    assert read(source) == ({(PCI, 31): 1, (PCI, 79): 1}, [])


def test_a_later_read_goes_on_where_the_last_one_ended(build: Build) -> None:
    """New records are added to what was counted."""
    log = FakeLog(xid_record(5))
    source = build(log)
    assert read(source)[0] == {(PCI, 31): 1}
    assert read(source)[0] == {(PCI, 31): 1}
    log.items.append(xid_record(6))
    assert read(source)[0] == {(PCI, 31): 2}


def test_lines_about_the_device_are_not_part_of_the_text(build: Build) -> None:
    """What the kernel adds after the text is left out, whatever it says."""
    raw = b"6,9,1000000,-;pci 0000:18:00.0: probed\n NVRM=NVRM: Xid (PCI:0000:18:00): 79, x\n"
    assert read(build(FakeLog(raw)))[0] == {}


def test_what_user_space_writes_to_the_log_is_no_error_of_a_gpu(build: Build) -> None:
    """A thousand made-up addresses count nothing and take no room from the real ones."""
    forged = (
        f"14,{n},{n},-;NVRM: Xid (PCI:0000:{n % 256:02x}:{n // 256:02x}): 79, x\n".encode()
        for n in range(1000)
    )
    assert read(build(FakeLog(*forged, xid_record(2000)))) == ({(PCI, 31): 1}, [])


def test_a_gpu_found_dead_at_start_is_counted_from_one_record(build: Build) -> None:
    """The device escapes the line feeds of the three lines."""
    lines = (LOGS / "nvsentinel-155-fallen.txt").read_text().splitlines()
    text = "\n".join(line.rpartition("] ")[2].strip() for line in lines[:3])
    source = build(FakeLog(record(1, text)))
    fallen = [
        i for i in source.read() if isinstance(i, Sample) and i.value and "fallen" in i.metric.name
    ]
    assert fallen == [c.GPU_FALLEN_OFF_BUS_TOTAL(1, "", "", "00000000:b3:00.0")]


def test_overwritten_records_are_said_and_reading_goes_on(build: Build) -> None:
    """The kernel answers EPIPE once, then gives the oldest record that it still has."""
    source = build(FakeLog(xid_record(5), errno.EPIPE, xid_record(900)))
    assert read(source) == ({(PCI, 31): 2}, [Drop("overwritten", 1)])
    assert read(source) == ({(PCI, 31): 2}, [])


def test_a_record_too_long_for_any_buffer_costs_only_itself(build: Build) -> None:
    """The kernel answers EINVAL and goes on to the next."""
    source = build(FakeLog(xid_record(5), errno.EINVAL, xid_record(7)))
    assert read(source) == ({(PCI, 31): 2}, [Drop("malformed", 1)])


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EPIPE])
def test_a_log_that_only_fails_cannot_hold_the_thread(build: Build, error: int) -> None:
    """A read ends after as many failures as it would take records."""
    source = build(FakeLog(*[error] * 100), limit=10)
    assert sum(item.number for item in read(source)[1] if isinstance(item, Drop)) == 10


def test_a_storm_is_read_in_pieces(build: Build) -> None:
    """One read handles so many lines; the rest comes with the next reads, none is lost."""
    source = build(FakeLog(*(xid_record(n, 95) for n in range(100))), limit=90)
    seen = [read(source)[0][PCI, 95] for _ in range(5)]
    assert seen == [30, 60, 90, 100, 100]  # each of these records is three lines


def test_a_broken_log_is_a_fault_and_is_opened_anew(build: Build) -> None:
    """After an error of the device reading starts over, and nothing counts twice."""
    records = [xid_record(5), xid_record(6)]
    log = FakeLog(*records, errno.EIO)
    clock = FakeClock(wall=BOOT + 1000)
    source = build(log, clock=clock)
    before = len(os.listdir("/proc/self/fd"))
    counts, (fault,) = read(source)
    assert len(os.listdir("/proc/self/fd")) == before
    assert counts == {(PCI, 31): 2}
    assert isinstance(fault, Fault)
    assert (fault.reason, fault.part[-9:]) == ("io", "/dev/kmsg")
    log.items.extend([*records, xid_record(7)])
    clock.advance(60)
    assert read(source) == ({(PCI, 31): 3}, [])


def test_after_close_the_descriptor_is_free_and_nothing_counts_twice(build: Build) -> None:
    """Closing gives everything back; reading again works, closing twice too."""
    log = FakeLog(xid_record(5))
    source = build(log)
    before = len(os.listdir("/proc/self/fd"))
    read(source)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    source.close()
    source.close()
    assert len(os.listdir("/proc/self/fd")) == before
    log.items.extend([xid_record(5), xid_record(6)])
    assert read(source)[0] == {(PCI, 31): 2}


# ---------------------------------------------------------------- no log


def test_without_the_log_the_drivers_events_go_on_counting(root: Path, build: Build) -> None:
    """A container without the device: a fault, and all that the ledger knows."""
    (root / "dev/kmsg").unlink()
    book = XidLedger(xids.load())
    book.from_driver(Event("xid", PCI, 31, BOOT + 999))
    source = build(ledger=book)
    counts, others = read(source)
    assert counts == {(PCI, 31): 1}
    assert [(item.reason, item.part) for item in others if isinstance(item, Fault)] == [
        ("unavailable", str(root / "dev/kmsg"))
    ]
    names = {item.metric.name for item in source.read() if isinstance(item, Sample)}
    assert "gpu_xid_info" in names
    assert "gpu_fallen_off_bus_total" not in names


def test_a_log_that_may_not_be_read_is_denied(build: Build) -> None:
    """`kernel.dmesg_restrict` without CAP_SYSLOG: EPERM."""
    _, (fault,) = read(build(FakeLog(errno.EPERM)))
    assert isinstance(fault, Fault)
    assert fault.reason == "denied"


def test_a_log_that_appears_later_is_read(root: Path, build: Build) -> None:
    """It is tried again once a minute."""
    (root / "dev/kmsg").rename(root / "dev/away")
    clock = FakeClock(wall=BOOT + 1000)
    source = build(FakeLog(xid_record(5)), clock=clock)
    assert len(read(source)[1]) == 1
    (root / "dev/away").rename(root / "dev/kmsg")
    clock.advance(60)
    assert read(source) == ({(PCI, 31): 1}, [])


@pytest.mark.parametrize("error", [errno.EPERM, errno.EIO])
def test_a_log_that_is_refused_is_left_alone_for_a_minute(build: Build, error: int) -> None:
    """The fault stands at each read, so that the source is seen to be degraded all the time."""
    log = FakeLog(*[error] * 10)
    clock = FakeClock(wall=BOOT + 1000)
    source = build(log, clock=clock)
    faults = []
    for _ in range(61):
        faults += read(source)[1]
        clock.advance(1)
    assert len(log.items) == 8
    assert len(faults) == 61
    assert len(set(faults)) == 1


def test_a_log_that_is_missing_is_looked_for_once_a_minute(root: Path, build: Build) -> None:
    """It was tried five times a second, for ever."""
    (root / "dev/kmsg").unlink()
    clock = FakeClock(wall=BOOT + 1000)
    source = build(FakeLog(xid_record(5)), clock=clock)
    read(source)
    (root / "dev/kmsg").touch()
    clock.advance(59)
    counts, (fault,) = read(source)
    assert (counts, isinstance(fault, Fault)) == ({}, True)
    clock.advance(1)
    assert read(source) == ({(PCI, 31): 1}, [])


def test_another_device_in_its_place_is_not_taken_for_an_empty_log(
    root: Path, build: Build
) -> None:
    """Containers put `/dev/null` or a console there: that is no log without errors."""
    (root / "dev/kmsg").unlink()
    (root / "dev/kmsg").symlink_to("/dev/null")
    source = build()
    before = len(os.listdir("/proc/self/fd"))
    _, (fault,) = read(source)
    assert isinstance(fault, Fault)
    assert fault.reason == "unavailable"
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_in_its_place_is_a_fault(root: Path, build: Build) -> None:
    """Kubernetes makes a folder of a host path that is not there."""
    (root / "dev/kmsg").unlink()
    (root / "dev/kmsg").mkdir()
    _, (fault,) = read(build())
    assert isinstance(fault, Fault)
    assert fault.reason == "io"


# ---------------------------------------------------------------- files and FIFOs


def test_a_recorded_file_is_read_like_the_device(root: Path, build: Build) -> None:
    """Lines without numbers and times are counted; lines that come later are too."""
    log = root / "dev/kmsg"
    log.write_bytes((LOGS / "gpud-500-xid119.txt").read_bytes())
    source = build()
    assert read(source) == ({("00000000:9b:00.0", 119): 5}, [])
    with log.open("ab") as file:
        file.write(b"NVRM: Xid (PCI:0000:9b:00): 119, pid=1, na")
    assert read(source) == ({("00000000:9b:00.0", 119): 5}, [])
    with log.open("ab") as file:
        file.write(b"me=x, Timeout\n")
    assert read(source) == ({("00000000:9b:00.0", 119): 6}, [])


def test_a_fifo_is_read_without_waiting(root: Path, build: Build) -> None:
    """Neither a missing writer nor a silent one holds the thread."""
    log = root / "dev/kmsg"
    log.unlink()
    os.mkfifo(log)
    source = build()
    assert read(source) == ({}, [])
    with log.open("wb", buffering=0) as file:
        assert read(source) == ({}, [])
        file.write((LOGS / "boot-excerpt.kmsg").read_bytes() + xid_record(300, 48))
        assert read(source) == ({(PCI, 48): 1}, [])
    assert read(source) == ({(PCI, 48): 1}, [])


def test_a_line_without_end_is_left_out(root: Path, build: Build) -> None:
    """It is said once, kept nowhere, and the line after it counts."""
    line = XID.format(79).encode()
    (root / "dev/kmsg").write_bytes(line + b"x" * 100_000 + b"\n" + line + b"\n")
    assert read(build()) == ({(PCI, 79): 1}, [Drop("malformed", 1)])


def test_the_end_of_a_line_that_is_left_out_is_not_taken_for_a_line(build: Build) -> None:
    """A writer cannot hide a made-up line in the middle of an endless one."""
    line = XID.format(79).encode() + b"\n"
    source = build(FakeLog(b"x" * 8192, b"x" * 100, line, line))
    assert read(source) == ({(PCI, 79): 1}, [Drop("malformed", 1)])


# ---------------------------------------------------------------- when


def test_an_old_record_is_dated_from_the_boot(build: Build) -> None:
    """What was written before we looked is as old as its clock says."""
    assert last_seen(build(FakeLog(xid_record(5, seconds=600.5)))) == BOOT + 600.5


def test_a_new_record_is_dated_between_the_reads_although_the_clock_drifted(build: Build) -> None:
    """After weeks the log's clock is minutes late; both doors must agree within seconds."""
    clock = FakeClock(wall=BOOT + 1000)
    log = FakeLog(xid_record(5, 48, seconds=600))
    source = build(log, clock=clock)
    read(source)
    clock.advance(1)
    log.items.append(xid_record(6, seconds=700))  # 301 s behind
    assert last_seen(source) == BOOT + 1000
    log.items.append(xid_record(7, seconds=700.25))
    clock.advance(1)
    assert last_seen(source) == BOOT + 1001


def test_no_record_is_from_the_future(build: Build) -> None:
    """A clock that runs fast, or a boot time set late, is set right by the first record."""
    clock = FakeClock(wall=BOOT + 1000)
    log = FakeLog(xid_record(5, seconds=1200))
    source = build(log, clock=clock)
    assert last_seen(source) == BOOT + 1000
    clock.advance(10)
    log.items.append(xid_record(6, seconds=1204))
    assert last_seen(source) == BOOT + 1004


def test_a_record_left_over_from_a_storm_is_dated_when_it_was_written(build: Build) -> None:
    """What had to wait for the next read keeps its time."""
    clock = FakeClock(wall=BOOT + 1000)
    log = FakeLog(*(xid_record(n, seconds=990 + n / 10) for n in range(60)))
    source = build(log, clock=clock, limit=90)
    assert last_seen(source) == pytest.approx(BOOT + 992.9)
    clock.advance(8)
    assert last_seen(source) == pytest.approx(BOOT + 995.9)


def test_after_the_log_was_opened_anew_old_records_keep_their_time(build: Build) -> None:
    """That the log was once read to its end says nothing of what is read again."""
    clock = FakeClock(wall=BOOT + 1000)
    log = FakeLog(xid_record(5, 48, seconds=500))
    source = build(log, clock=clock)
    read(source)
    source.close()
    log.items.extend([xid_record(5, 48, seconds=500), xid_record(6, seconds=900)])
    assert last_seen(source) == BOOT + 900


@pytest.mark.parametrize("text", ["cpu 1 2 3\n", f"btime {'9' * 30}\n", None])
def test_without_a_boot_time_a_record_is_dated_when_it_is_read(
    root: Path, build: Build, text: str | None
) -> None:
    """A missing or senseless `/proc/stat` costs nothing but the dates of old records."""
    if text is None:
        (root / "proc/stat").unlink()
    else:
        (root / "proc/stat").write_text(text)
    assert last_seen(build(FakeLog(xid_record(5, seconds=600)))) == BOOT + 1000


def test_an_event_and_a_line_of_a_drifted_log_are_one_error(build: Build) -> None:
    """The driver told it a moment ago; the log's clock is five minutes off."""
    clock = FakeClock(wall=BOOT + 1000)
    book = XidLedger(xids.load())
    log = FakeLog(xid_record(5, 48, seconds=600))
    source = build(log, clock=clock, ledger=book)
    read(source)
    clock.advance(2)
    book.from_driver(Event("xid", PCI, 31, clock.time() - 0.5))
    log.items.append(xid_record(6, 31, seconds=701))
    assert read(source)[0][PCI, 31] == 1


# ---------------------------------------------------------------- the whole


def test_the_page_says_what_the_docstring_shows(build: Build) -> None:
    """Each family of the group comes out for a node on which everything happened."""
    lines = (LOGS / "nvtrust-124-sxid.txt").read_text().splitlines()
    texts = [line.rpartition("] ")[2] for line in lines]
    records = [record(n, text) for n, text in enumerate(texts)]
    records += [
        xid_record(20, 79),
        record(21, "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus."),
    ]
    found = list(build(FakeLog(*records)).read())
    assert {item.metric for item in found if isinstance(item, Sample)} == {
        row for row in c.FAMILIES.values() if row.group == c.XID
    }
    assert c.GPU_NVSWITCH_SXID_ERRORS_TOTAL(3, "nvidia-nvswitch3", "22013", "info") in found
    assert c.GPU_FALLEN_OFF_BUS_TOTAL(1, "0", "GPU-a", PCI) in found
    assert c.GPU_XID_ERRORS_TOTAL(1, "0", "GPU-a", PCI, "79", "critical") in found


def test_the_devices_are_asked_at_each_read(build: Build) -> None:
    """A GPU that the driver lists later gets its zeros then."""
    devices: dict[str, tuple[str, str]] = {}
    source = build(FakeLog(), devices=lambda: devices)
    assert list(source.read()) == []
    devices[PCI] = ("0", "GPU-a")
    assert c.GPU_XID_ERRORS_TOTAL(0, "0", "GPU-a", PCI, "79", "critical") in list(source.read())


def test_this_machines_own_log_is_read_or_refused() -> None:
    """The real device, where there is one: no exception, and a known reason if it is refused."""
    source = KernelLogSource(XidLedger(xids.load()), dict, FakeClock(), limit=200)
    try:
        found = [item for _ in range(3) for item in source.read()]
    finally:
        source.close()
    assert all(
        item.reason in ("denied", "unavailable") for item in found if isinstance(item, Fault)
    )
