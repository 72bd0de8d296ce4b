"""The ledger of driver errors: two doors, one count."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from exporter import catalogue as c
from exporter.formats.xid import FallenLine, SxidLine, XidLine, entry, parse
from exporter.reference import xids
from exporter.samples import Drop, Event, Gate, Metric, Sample
from exporter.xids import MAX_CODES, MAX_DEVICES, XidLedger

TABLE = xids.load()
PCI = "00000000:18:00.0"
OTHER = "00000000:2a:00.0"
DEVICES: Mapping[str, tuple[str, str]] = {PCI: ("0", "GPU-a"), OTHER: ("1", "GPU-b")}
NOW = 1.8e9


def ledger() -> XidLedger:
    """Return an empty ledger over the package's own table."""
    return XidLedger(TABLE)


def told(code: int, wall: float = NOW, pci: str = PCI) -> Event:
    """Return an event as the driver's reader tells it."""
    return Event("xid", pci, code, wall)


def values(
    book: XidLedger,
    metric: Metric,
    devices: Mapping[str, tuple[str, str]] = DEVICES,
    now: float = NOW + 100,
) -> dict[tuple[str, ...], object]:
    """Return the values of one family by its labels."""
    found = samples_of(book.samples(devices, now))
    return {sample.labels: sample.value for sample in found if sample.metric is metric}


def samples_of(items: Iterable[Sample | Drop]) -> list[Sample]:
    """Return the samples, well-formed and without a duplicate; drops left out."""
    samples = [item for item in items if isinstance(item, Sample)]
    batch, flaws = Gate(100_000).admit(samples)
    assert not flaws
    return list(batch)


def count(book: XidLedger, code: int, pci: str = PCI, **asked: Any) -> dict[str, object]:
    """Return the counts of one code of one address by severity."""
    counts = values(book, c.GPU_XID_ERRORS_TOTAL, **asked)
    return {at[4]: value for at, value in counts.items() if at[2:4] == (pci, str(code))}


# ---------------------------------------------------------------- symptoms of others


def test_a_second_identical_xid_is_seen() -> None:
    """dcgm-exporter 500, 190, 502: a gauge of the last code hides a repetition; we count."""
    book = ledger()
    book.from_driver(told(31, NOW))
    assert count(book, 31) == {"warning": 1}
    book.from_driver(told(31, NOW + 60))
    assert count(book, 31) == {"warning": 2}
    assert values(book, c.GPU_XID_LAST_TIMESTAMP_SECONDS) == {("0", "GPU-a", PCI, "31"): NOW + 60}


def test_the_last_xid_does_not_stay_for_ever() -> None:
    """DCGM 112, 277: what is over can be told from what lasts: the time stands still."""
    book = ledger()
    book.from_kernel(XidLine(PCI, 79), NOW)
    for later in (1e3, 1e6):
        times = values(book, c.GPU_XID_LAST_TIMESTAMP_SECONDS, now=NOW + later)
        assert times == {("0", "GPU-a", PCI, "79"): NOW}


def test_an_older_error_that_is_read_later_does_not_turn_the_time_back() -> None:
    """The driver tells at once; the kernel log is read from its beginning."""
    book = ledger()
    book.from_driver(told(31, NOW))
    book.from_kernel(XidLine(PCI, 31), NOW - 3600)
    assert count(book, 31) == {"warning": 2}
    assert values(book, c.GPU_XID_LAST_TIMESTAMP_SECONDS) == {("0", "GPU-a", PCI, "31"): NOW}


def test_healthy_and_absent_do_not_look_alike() -> None:
    """dcgm-exporter 700: critical codes are 0 for each known GPU before anything happens."""
    counts = values(ledger(), c.GPU_XID_ERRORS_TOTAL)
    assert set(counts.values()) == {0}
    assert {at[3] for at in counts} == {str(code) for code in TABLE.critical}
    assert len(counts) == 2 * len(TABLE.critical)
    assert values(ledger(), c.GPU_XID_LAST_TIMESTAMP_SECONDS) == {}


def test_xids_that_the_driver_does_not_tell_come_from_the_kernel_log() -> None:
    """DCGM 162, 235: 79, 119, 120 and 62 may never arrive as events."""
    book = ledger()
    for number, code in enumerate((79, 119, 120, 62)):
        book.from_kernel(XidLine(PCI, code, sequence=number), NOW)
        assert count(book, code) == {"critical": 1}


def test_a_gpu_off_the_bus_is_counted_without_an_xid() -> None:
    """gpud 1209, NVSentinel 155: the message has no number; it has a counter of its own."""
    book = ledger()
    assert values(book, c.GPU_FALLEN_OFF_BUS_TOTAL) == {
        ("0", "GPU-a", PCI): 0,
        ("1", "GPU-b", OTHER): 0,
    }
    book.from_kernel(FallenLine(OTHER), NOW)
    assert values(book, c.GPU_FALLEN_OFF_BUS_TOTAL)["1", "GPU-b", OTHER] == 1
    assert count(book, 79, OTHER) == {"critical": 0}


@pytest.mark.parametrize(("word", "severity"), [("fatal", "critical"), ("nonfatal", "warning")])
def test_xid_145_is_as_severe_as_its_line_says(word: str, severity: str) -> None:
    """NVSentinel 1357: a Nonfatal 145 was reported as fatal."""
    book = ledger()
    book.from_kernel(XidLine(PCI, 145, word), NOW)
    assert count(book, 145) == {severity: 1}


def test_xid_149_before_all_links_went_down_is_counted_as_critical() -> None:
    """open-gpu-kernel-modules 1150: the line says Fatal; what followed (45) is no alarm."""
    book = ledger()
    for text in (
        "NVRM: Xid (PCI:0000:18:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x025001c6 0x0)",
        "NVRM: Xid (PCI:0000:18:00): 45, pid=1, name=py, Ch 00000001 caused by previous Xid 149",
    ):
        line = parse(entry(text.encode()))
        assert line is not None
        book.from_kernel(line, NOW)
    assert count(book, 149) == {"critical": 1}
    assert count(book, 45) == {"info": 1}


# ---------------------------------------------------------------- two doors


@pytest.mark.parametrize("order", list(itertools.permutations("kd")))
def test_an_error_that_both_doors_tell_counts_once(order: tuple[str, ...]) -> None:
    """Whichever comes first, the other one within the window is the same error."""
    book = ledger()
    for door in order:
        if door == "k":
            book.from_kernel(XidLine(PCI, 31), NOW)
        else:
            book.from_driver(told(31, NOW + 5))
    assert count(book, 31) == {"warning": 1}


@pytest.mark.parametrize(
    "event",
    [told(31, NOW + 32), told(31, NOW - 7), told(43), told(31, pci=OTHER)],
    ids=["later", "earlier", "another code", "another GPU"],
)
def test_what_is_not_the_same_error_counts_apart(event: Event) -> None:
    """Time, code and address must all agree."""
    book = ledger()
    book.from_kernel(XidLine(PCI, 31), NOW)
    book.from_driver(event)
    counts = values(book, c.GPU_XID_ERRORS_TOTAL)
    assert sum(value for value in counts.values() if isinstance(value, int)) == 2


@pytest.mark.parametrize("line_first", [True, False])
def test_an_event_that_a_hung_driver_tells_late_counts_once(line_first: bool) -> None:
    """The reader of the driver hung for half a minute: its event is dated when it came through."""
    book = ledger()
    if line_first:
        book.from_kernel(XidLine(PCI, 31), NOW)
    book.from_driver(told(31, NOW + 30))
    if not line_first:
        book.from_kernel(XidLine(PCI, 31), NOW)
    assert count(book, 31) == {"warning": 1}


def test_one_event_confirms_one_line_only() -> None:
    """Three lines and two events within the window are three errors, not five and not two."""
    book = ledger()
    for at in (0.0, 0.1, 0.2):
        book.from_kernel(XidLine(PCI, 31), NOW + at)
    for at in (0.3, 0.4):
        book.from_driver(told(31, NOW + at))
    assert count(book, 31) == {"warning": 3}
    book.from_driver(told(31, NOW + 0.5))
    book.from_driver(told(31, NOW + 0.6))
    assert count(book, 31) == {"warning": 4}


def test_two_lines_of_one_door_are_two_errors() -> None:
    """The window is between doors: a driver that says it twice means two."""
    book = ledger()
    book.from_driver(told(31))
    book.from_driver(told(31))
    assert count(book, 31) == {"warning": 2}


def test_an_address_in_another_form_is_the_same_gpu() -> None:
    """NVML writes capitals; the line has no function."""
    book = ledger()
    book.from_driver(told(31, pci="00000000:AF:00.0"))
    book.from_kernel(XidLine("00000000:af:00.0", 31), NOW)
    assert count(book, 31, "00000000:af:00.0") == {"warning": 1}


def test_an_nvlink_5_event_waits_for_the_line_that_says_how_bad_it_is() -> None:
    """The driver's event has no word: it counts with the line's severity, once."""
    book = ledger()
    book.from_driver(told(145, NOW))
    assert count(book, 145, now=NOW + 2) == {}
    book.from_kernel(XidLine(PCI, 145, "fatal"), NOW + 1)
    assert count(book, 145, now=NOW + 20) == {"critical": 1}


def test_an_nvlink_5_event_without_a_line_counts_after_the_window() -> None:
    """Where the kernel log is closed to us the table's severity has to do."""
    book = ledger()
    book.from_driver(told(145, NOW))
    book.from_driver(told(145, NOW))
    assert count(book, 145, now=NOW + 4) == {}
    assert count(book, 145, now=NOW + 7) == {"warning": 2}
    assert count(book, 145, now=NOW + 9) == {"warning": 2}


def test_a_log_that_is_read_again_counts_nothing_twice() -> None:
    """After the log was opened anew it starts with what was counted before."""
    book = ledger()
    lines = [XidLine(PCI, 31, sequence=10), FallenLine(PCI, 11), SxidLine("s", 10003, "", 12)]
    for line in (*lines, *lines, XidLine(PCI, 31, sequence=13)):
        book.from_kernel(line, NOW)
    assert count(book, 31) == {"warning": 2}
    assert values(book, c.GPU_FALLEN_OFF_BUS_TOTAL)["0", "GPU-a", PCI] == 1
    assert values(book, c.GPU_NVSWITCH_SXID_ERRORS_TOTAL) == {("s", "10003", "critical"): 1}


def test_events_of_another_kind_are_not_counted() -> None:
    """The driver tells other things too."""
    book = ledger()
    book.from_driver(Event("clock", PCI, 31, NOW))
    assert count(book, 31) == {}


@pytest.mark.parametrize("event", [told(31, pci="nonsense"), told(31, float("nan"))])
def test_an_event_that_makes_no_sense_is_dropped_and_said(event: Event) -> None:
    """It is counted as malformed, once."""
    book = ledger()
    book.from_driver(event)
    assert Drop("malformed", 1) in book.samples(DEVICES, NOW)
    assert not [item for item in book.samples(DEVICES, NOW) if isinstance(item, Drop)]


# ---------------------------------------------------------------- which GPU


def test_an_address_that_is_not_a_known_gpu_has_no_name() -> None:
    """The error is not lost: index and UUID are empty, and only what happened is told."""
    book = ledger()
    book.from_kernel(XidLine("00000000:ff:00.0", 79), NOW)
    counts = values(book, c.GPU_XID_ERRORS_TOTAL, devices={})
    assert counts == {("", "", "00000000:ff:00.0", "79", "critical"): 1}
    assert values(book, c.GPU_FALLEN_OFF_BUS_TOTAL, devices={}) == {}


def test_a_gpu_that_becomes_known_later_gets_its_name() -> None:
    """The log is read before the driver has answered."""
    book = ledger()
    book.from_kernel(XidLine(PCI, 79), NOW)
    assert count(book, 79, devices={}) == {"critical": 1}
    assert values(book, c.GPU_XID_ERRORS_TOTAL)["0", "GPU-a", PCI, "79", "critical"] == 1


def test_a_gpu_that_is_lost_keeps_its_series_and_its_name() -> None:
    """It falls off the bus, the driver lists it no longer, and then the line is read."""
    book = ledger()
    before = values(book, c.GPU_XID_ERRORS_TOTAL)
    book.from_kernel(XidLine(PCI, 79), NOW)
    after = values(book, c.GPU_XID_ERRORS_TOTAL, devices={OTHER: ("0", "GPU-b")})
    assert after["0", "GPU-a", PCI, "79", "critical"] == 1
    assert {at[1:] for at in before} == {at[1:] for at in after}


def test_another_board_in_the_slot_starts_anew() -> None:
    """What befell the old board is not its successor's."""
    book = ledger()
    book.from_kernel(XidLine(PCI, 79), NOW)
    assert count(book, 79) == {"critical": 1}
    counts = values(book, c.GPU_XID_ERRORS_TOTAL, devices={PCI: ("0", "GPU-new")})
    assert counts["0", "GPU-new", PCI, "79", "critical"] == 0


def test_without_the_kernel_log_nobody_says_that_no_gpu_fell_off() -> None:
    """A 0 would be a guess; XIDs are told by the driver too and stay."""
    found = samples_of(ledger().samples(DEVICES, NOW, kernel_log=False))
    assert {sample.metric for sample in found} == {c.GPU_XID_ERRORS_TOTAL, c.GPU_XID_INFO}


def test_a_node_without_gpus_has_no_series() -> None:
    """Nothing known, nothing seen, nothing said."""
    assert ledger().samples({}, NOW) == []


# ---------------------------------------------------------------- meaning


def test_each_code_on_the_page_is_explained_once() -> None:
    """One row for each code that is critical or was seen, and for no other."""
    book = ledger()
    book.from_driver(told(31))
    book.from_driver(told(31, pci=OTHER))
    book.from_kernel(XidLine(PCI, 145, "fatal"), NOW)
    book.from_kernel(XidLine(PCI, 145, "nonfatal"), NOW + 1)
    rows = list(values(book, c.GPU_XID_INFO))
    assert sorted(int(row[0]) for row in rows) == sorted({*TABLE.critical, 31, 145})
    assert ("79", "GPU no longer reachable on PCIe", "critical", "reboot_node") in rows


def test_a_code_newer_than_the_table_is_counted() -> None:
    """Its severity is unknown, which is not a guess."""
    book = ledger()
    book.from_driver(told(4711))
    assert count(book, 4711) == {"unknown": 1}
    assert ("4711", "unknown", "unknown", "unknown") in values(book, c.GPU_XID_INFO)


def test_switch_errors_have_the_severity_of_their_line() -> None:
    """The word wins; without one the guide's class stands. Also told: when."""
    book = ledger()
    for number, word in enumerate(("nonfatal", "fatal", "")):
        book.from_kernel(SxidLine("nvidia-nvswitch3", 12028, word, number), NOW + number)
    assert values(book, c.GPU_NVSWITCH_SXID_ERRORS_TOTAL) == {
        ("nvidia-nvswitch3", "12028", "info"): 2,
        ("nvidia-nvswitch3", "12028", "critical"): 1,
    }
    times = values(book, c.GPU_NVSWITCH_SXID_LAST_TIMESTAMP_SECONDS)
    assert times == {("nvidia-nvswitch3", "12028"): NOW + 2}


# ---------------------------------------------------------------- storms


def footprint(thing: object, seen: set[int]) -> int:
    """Return the bytes that an object holds, its slots, mappings and sequences included."""
    if id(thing) in seen or isinstance(thing, type) or thing is TABLE:
        return 0
    seen.add(id(thing))
    parts: list[object] = []
    if isinstance(thing, Mapping):
        parts += [*thing, *thing.values()]
    elif isinstance(thing, list | tuple | set | frozenset):
        parts += thing
    for name in (*getattr(type(thing), "__slots__", ()), *getattr(thing, "__dict__", ())):
        parts.append(getattr(thing, name, None))
    return sys.getsizeof(thing) + sum(footprint(part, seen) for part in parts)


def test_a_storm_is_counted_and_costs_neither_memory_nor_series() -> None:
    """NVSentinel 1120: 800,000 lines of code 95. Here an eighth of it, told by both doors."""
    book = ledger()
    storm = range(100_000)
    for number in storm[:1000]:
        book.from_kernel(XidLine(PCI, 95, sequence=number), NOW + number / 1000)
    series, size = len(book.samples(DEVICES, NOW)), footprint(book, set())
    for number in storm[1000:]:
        book.from_kernel(XidLine(PCI, 95, sequence=number), NOW + number / 1000)
        if number % 2:
            book.from_driver(told(95, NOW + number / 1000))
    assert count(book, 95) == {"critical": len(storm)}
    assert len(book.samples(DEVICES, NOW)) == series
    assert footprint(book, set()) < size + 16384


def test_work_for_a_line_does_not_grow_with_the_storm() -> None:
    """The last ten thousand lines of a storm touch as little as the first: counted, not timed."""
    book = ledger()

    def calls(start: int) -> int:
        """Return how many calls and lines of Python a thousand lines of the log take."""
        steps = 0

        def step(*_: object) -> object:
            nonlocal steps
            steps += 1
            return step

        usual = sys.gettrace()
        sys.settrace(step)  # type: ignore[arg-type]
        try:
            for number in range(start, start + 1000):
                book.from_kernel(XidLine(PCI, 95, sequence=number), NOW + number / 1000)
        finally:
            sys.settrace(usual)
        return steps

    first = calls(0)
    for number in range(1000, 50_000):
        book.from_kernel(XidLine(PCI, 95, sequence=number), NOW + number / 1000)
    assert calls(50_000) <= first + 1000


def test_a_flood_of_different_codes_is_cut_and_said() -> None:
    """The first codes are counted; the rest is dropped aloud, not lumped together."""
    book = ledger()
    for code in range(1000, 1000 + MAX_CODES + 7):
        book.from_kernel(XidLine(PCI, code), NOW)
    book.from_kernel(XidLine(PCI, 79), NOW)
    found = book.samples(DEVICES, NOW)
    assert [item for item in found if isinstance(item, Drop)] == [Drop("cap", 7)]
    assert count(book, 79) == {"critical": 1}
    seen = [at for at in values(book, c.GPU_XID_LAST_TIMESTAMP_SECONDS) if at[2] == PCI]
    assert len(seen) == MAX_CODES + 1


def test_a_flood_of_addresses_is_cut_and_costs_known_gpus_nothing() -> None:
    """Made-up addresses and switches cannot fill the page; a GPU that the driver lists can come."""
    book = ledger()
    for number in range(MAX_DEVICES + 5):
        book.from_kernel(XidLine(f"000000{number:02x}:01:00.0", 31), NOW)
        book.from_kernel(SxidLine(f"nvidia-nvswitch{number}", 10003), NOW)
        book.from_kernel(FallenLine(f"000000{number:02x}:01:00.0"), NOW)
    assert Drop("cap", 15) in book.samples({}, NOW)
    assert len(values(book, c.GPU_FALLEN_OFF_BUS_TOTAL)) == MAX_DEVICES + len(DEVICES)
    assert len(values(book, c.GPU_NVSWITCH_SXID_ERRORS_TOTAL)) == MAX_DEVICES


def test_the_default_page_of_eight_gpus_is_small() -> None:
    """Ten codes and one message for each GPU, and what the codes mean: 98 of 600 series."""
    node = {f"00000000:{n:02x}:00.0": (str(n), f"GPU-{n}") for n in range(8)}
    assert len(ledger().samples(node, NOW)) == 8 * (10 + 1) + 10


def test_two_threads_lose_no_event() -> None:
    """The kernel log and the driver are read by different threads."""
    book = ledger()
    rounds = 3000

    def drive() -> None:
        for number in range(rounds):
            book.from_driver(told(31, NOW + number * 10, pci=OTHER))

    other = threading.Thread(target=drive)
    other.start()
    for number in range(rounds):
        book.from_kernel(XidLine(OTHER, 31, sequence=number), NOW + 1e6 + number * 10)
        if number % 500 == 0:
            samples_of(book.samples(DEVICES, NOW))
    other.join()
    assert count(book, 31, OTHER) == {"warning": 2 * rounds}
