"""Kernel log lines about GPUs and switches: published ones, and anything else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.formats.xid import (
    Entry,
    FallenLine,
    Joiner,
    Line,
    SxidLine,
    XidLine,
    canonical,
    entry,
    parse,
    relevant,
)

LOGS = Path(__file__).parent.parent / "data" / "kmsg"

TORN = ("dc", "ed", "ba", "97", "dc", "ed")  # buses of the GPUs whose channels were torn down
UNKNOWN = "pid='<unknown>', name=<unknown>"


def read(text: str) -> Line | None:
    """Return what one line of text means."""
    return parse(entry(text.encode()))


def lines_of(file: str) -> list[Line]:
    """Return what the lines of a recorded log mean, read in order."""
    joiner = Joiner()
    raws = (LOGS / file).read_bytes().splitlines()
    found = [joiner.read(entry(raw)) for raw in raws if relevant(raw)]
    return [line for line in found if line is not None]


@pytest.mark.parametrize(
    ("text", "pci", "code"),
    [
        (f"NVRM: Xid (PCI:0000:05:00): 79, {UNKNOWN}, GPU has fallen off the bus.", "05", 79),
        ("NVRM: Xid (PCI:0000:05:00): 79, pid=1122, GPU has fallen off the bus.", "05", 79),
        ("NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.", "05", 79),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", "03", 14),
        ("NVRM: Xid (PCI:0000:3B:00): 48, pid=1, name=a, DBE", "3b", 48),
        ("NVRM: Xid (PCI:00000000:3b:00): 48, pid=1, name=a, DBE", "3b", 48),
        ("NVRM: Xid (PCI:0000:3b:00.0): 48, pid=1, name=a, DBE", "3b", 48),
        ("NVRM: Xid (PCI:0000:07:00 GPU-I:05): 13, pid=7, name=a b, Graphics", "07", 13),
        ("NVRM: Xid (PCI:0000:07:00 GPU-I:02 GPU-CI:01): 13, pid=7, name=a, Gra", "07", 13),
        ("NVRM: Xid (PCI:0000:9b:00): 119, pid=1, name=nvc:[driver], Timeout after 6s", "9b", 119),
        ("NVRM: Xid (PCI:0000:9b:00): 45, pid=1, name=x): 79, Ch 1 after Xid 79", "9b", 45),
        ("NVRM: Xid (PCI:0000:9b:00): 4711, something new", "9b", 4711),
        ("<3>NVRM: Xid (PCI:0000:9b:00): 62, pid=1, name=a, 0001", "9b", 62),
        ("[ 1843.308145] NVRM: Xid (PCI:0000:9b:00): 62, pid=1, name=a, 0001", "9b", 62),
        ("[Fri Aug 30 11:43:09 2024] NVRM: Xid (PCI:0000:9b:00): 62, 0001", "9b", 62),
    ],
)
def test_an_xid_is_read_in_every_form_that_drivers_have_used(
    text: str, pci: str, code: int
) -> None:
    """With or without `PCI:`, function, MIG instance, process and prefix, an XID is an XID."""
    assert read(text) == XidLine(f"00000000:{pci}:00.0", code)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NVRM: Xid",
        "NVRM: Xid (PCI:0000:18:00",
        "NVRM: Xid (PCI:0000:18:00): 7",
        "NVRM: Xid (PCI:0000:18:00): , pid",
        "NVRM: Xid (PCI:...): 145, RLW_RXPIPE Nonfatal",
        "NVRM: Xid (invalid): 79, x",
        "NVRM: Xid (PCI:0000:18:00): 123456789, x",
        "NVRM: Xid (PCI:0000:18:00): -1, x",
        "systemd[1]: NVRM: Xid (PCI:0000:18:00): 79, x",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): garbled, Fatal",
        "NVRM: The NVIDIA GPU 0000:b3:00.",
        "NVRM: fallen off the bus and is not responding to commands.",
        "NVRM: The NVIDIA GPU invalid.0\nNVRM: fallen off the bus and is not responding",
        "NVRM: GPU at PCI:0000:00:05: GPU-efbdfde9-5798-a6e7-4c46-12518fa15375",
        "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x22:0x56:894)",
    ],
)
def test_a_truncated_or_foreign_line_means_nothing(text: str) -> None:
    """A line that was cut off, perhaps within the number, or that only mentions an XID is left."""
    assert read(text) is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000)", "fatal"),
        ("149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)", "fatal"),
        ("145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)", "nonfatal"),
        (f"145, {UNKNOWN}, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2)", "nonfatal"),
        ("145, pid=7, name=x, A Fatal XC0, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0)", "nonfatal"),
        ("94, pid=7, name=Fatal, Contained: SM (0x1). RST: No, D-RST: No", ""),
    ],
)
def test_fatal_or_not_is_what_the_driver_says_and_not_a_process_name(text: str, word: str) -> None:
    """The word counts where the driver writes it, in front of the link (NVSentinel 1357)."""
    line = read(f"NVRM: Xid (PCI:0018:01:00): {text}")
    assert isinstance(line, XidLine)
    assert line.word == word


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12028, Non-fatal, Link 32 egress non-posted PRIV error (First)", (12028, "nonfatal")),
        ("24007, Fatal, Link 30 sourcetrack timeout error", (24007, "fatal")),
        ("10004, NVSWITCH Temperature 90C", (10004, "")),
        ("00123, Fatal", (123, "fatal")),
    ],
)
def test_an_sxid_is_read(text: str, expected: tuple[int, str]) -> None:
    """A switch's error has the switch's name in the kernel, a code, and perhaps a word."""
    line = read(f"nvidia-nvswitch3: SXid (PCI:0000:05:00.0): {text}")
    assert line == SxidLine("nvidia-nvswitch3", *expected)


def test_an_sxid_is_counted_once_although_it_is_printed_three_times() -> None:
    """Of the records for one error only the one that says what it is counts (nvtrust 124)."""
    assert lines_of("nvtrust-124-sxid.txt") == [SxidLine("nvidia-nvswitch3", 22013, "nonfatal")] * 3


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.",
        "NVRM: GPU 18:00.0: GPU has fallen off the bus.",
        "NVRM: GPU at 0000:18:00.0 has fallen off the bus.",
        """NVRM: The NVIDIA GPU 0000:18:00.0
NVRM: (PCI ID: 10de:2901) installed in this system has
NVRM: fallen off the bus and is not responding to commands.""",
        """NVRM: The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:102d)
NVRM: installed in this system has fallen off
NVRM: the bus and is not responding to commands.""",
    ],
)
def test_a_gpu_off_the_bus_is_seen_without_an_xid(text: str) -> None:
    """All wordings that drivers have used are known; a record may hold several lines."""
    assert parse(Entry(7, 0, text)) == FallenLine("00000000:18:00.0", 7)


def test_a_gpu_off_the_bus_is_seen_in_three_lines() -> None:
    """The address is in the first line, the words in the third (NVSentinel 155)."""
    assert lines_of("nvsentinel-155-fallen.txt") == [FallenLine("00000000:b3:00.0")]


def test_three_lines_are_put_together_with_others_in_between() -> None:
    """Another processor may write between the lines; an XID among them is not lost."""
    joiner = Joiner()
    texts = [
        "NVRM: The NVIDIA GPU 0000:82:00.0 (PCI ID: 10de:102d)",
        "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.",
        "NVRM: installed in this system has fallen off",
        "NVRM: the bus and is not responding to commands.",
        "NVRM: the bus and is not responding to commands.",
    ]
    assert [joiner.read(entry(text.encode())) for text in texts] == [
        None,
        XidLine("00000000:18:00.0", 79),
        None,
        FallenLine("00000000:82:00.0"),
        None,
    ]


def test_a_message_that_was_begun_does_not_wait_for_ever() -> None:
    """After a few lines of the driver the beginning is forgotten."""
    joiner = Joiner()
    assert joiner.read(Entry(None, None, "NVRM: The NVIDIA GPU 0000:82:00.0")) is None
    for _ in range(10):
        assert joiner.read(Entry(None, None, "NVRM: something else")) is None
    assert joiner.read(Entry(None, None, "NVRM: fallen off the bus and is not")) is None


@pytest.mark.parametrize(
    ("file", "codes"),
    [
        ("gpud-500-xid119.txt", [("9b:00", 119)] * 5),
        ("gpud-46-xid13.txt", [("cb:00", 13)] * 3 + [("cb:00", 109)]),
        ("akash-244-passthrough.txt", [("00:05", 43)] * 2 + [("00:07", 31), ("00:08", 94)]),
        (
            "ogkm-1150-xid45.txt",
            [(f"{bus}:00", 45) for bus in TORN],
        ),
    ],
)
def test_published_logs_are_read(file: str, codes: list[tuple[str, int]]) -> None:
    """Each XID of a published log is found, and nothing else; "caused by Xid 149" is no 149."""
    assert lines_of(file) == [XidLine(f"00000000:{pci}.0", code) for pci, code in codes]


def test_published_nvlink_5_lines_are_read() -> None:
    """NVLink 5 errors keep their own word; a domain other than 0 stays (gpud 1160, 1174)."""
    assert lines_of("gpud-1160-1174-nvlink5.txt") == [
        XidLine("00000000:01:00.0", 144, "nonfatal"),
        XidLine("00000018:01:00.0", 145, "nonfatal"),
        XidLine("00000019:01:00.0", 149, "fatal"),
        XidLine("00000000:00:00.0", 149, "fatal"),
    ]


def test_records_of_a_real_kernel_are_taken_apart() -> None:
    """Number, time and text come out; escapes are undone; none of these is about a GPU."""
    raws = (LOGS / "boot-excerpt.kmsg").read_bytes().splitlines()
    records = [entry(raw) for raw in raws if not raw.startswith(b" ")]
    assert records[1] == Entry(90, 254446, "Trampoline variant of Tasks RCU enabled.")
    assert [record.sequence for record in records] == [89, 90, 146, 187, 188, 190, 191, 197, 200]
    assert all(parse(record) is None for record in records)
    assert not any(map(relevant, raws))


@pytest.mark.parametrize(
    ("prefix", "kernel"),
    [
        ("3,7,1,-;", True), ("0,7,1,-;", True), ("7,7,1,-;", True), ("<3>", True), ("", True),
        ("[ 1843.308145] ", True), ("8,7,1,-;", False), ("14,7,1,-;", False),
        ("30,7,1,-;", False), ("2047,7,1,-;", False), ("<14>", False), ("<30>[ 1.0] ", False),
    ],
)  # fmt: skip
def test_only_the_kernel_is_believed(prefix: str, kernel: bool) -> None:
    """Who may write to `/dev/kmsg` can make up any text; the kernel notes that it was not itself.

    Its own records have facility 0, those of user space 1 and above (`devkmsg_write`).
    """
    said = entry(f"{prefix}NVRM: Xid (PCI:0000:18:00): 79, pid=1, x".encode())
    assert said.kernel is kernel
    assert (parse(said) is not None) is kernel
    assert (Joiner().read(said) is not None) is kernel


def test_user_space_cannot_finish_a_message_of_the_kernel() -> None:
    """Nor begin one: its records are as if they were not there."""
    joiner = Joiner()
    texts = [
        "3,1,0,-;NVRM: The NVIDIA GPU 0000:82:00.0 (PCI ID: 10de:102d)",
        "14,2,0,-;NVRM: The NVIDIA GPU 0000:99:00.0 (PCI ID: 10de:102d)",
        "14,3,0,-;NVRM: has fallen off the bus and is not responding to commands.",
        "3,4,0,-;NVRM: has fallen off the bus and is not responding to commands.",
    ]
    assert [joiner.read(entry(text.encode())) for text in texts] == [
        None, None, None, FallenLine("00000000:82:00.0", 4)
    ]  # fmt: skip


def test_a_record_with_line_feeds_is_one_record() -> None:
    """The device escapes what is unprintable, so a message of three lines is one record."""
    raw = (
        rb"3,1200,1843308145,-,caller=T77;NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: (PCI ID:"
        rb" 10de:26b5) installed in this system has\x0aNVRM: fallen off the bus and is not"
        b" responding to commands.\n SUBSYSTEM=pci\n DEVICE=+pci:0000:b3:00.0\n"
    )
    assert relevant(raw)
    assert parse(entry(raw)) == FallenLine("00000000:b3:00.0", 1200)
    assert entry(raw).microseconds == 1843308145


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("00000000:18:00.0", "00000000:18:00.0"),
        ("0000:18:00.0", "00000000:18:00.0"),
        ("PCI:0018:01:00", "00000018:01:00.0"),
        ("00010000:AF:1F.3", "00010000:af:1f.3"),
        ("18:00.0", "00000000:18:00.0"),
        ("", None),
        ("0000:18:00.0 ", None),
        ("0000:18:00.9", None),
        ("123456789:18:00.0", None),
    ],
)
def test_addresses_have_one_form(address: str, expected: str | None) -> None:
    """The form is NVML's bus id in lower case, as in `gpu_info`; anything else is no address."""
    assert canonical(address) == expected


PIECES = st.sampled_from(
    [
        "NVRM: ", "Xid ", "(PCI:", "0000:18:00", ".0", "): ", "79", ", ", "pid=1, name=", "\n",
        "\\x0a", "nvidia-nvswitch1: SXid (", "Fatal", " XC0 i0 Link ", "The NVIDIA GPU ",
        "GPU has ", "fallen off the bus", "3,1,2,-;", "\0", "é", "\udcff",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES).map("".join)


@given(st.binary() | TEXTS.map(lambda text: text.encode("utf-8", "replace")))
def test_no_text_makes_the_reader_raise(raw: bytes) -> None:
    """Whatever stands in the log, it means something well-formed or nothing."""
    record = entry(raw)
    line = parse(record)
    if isinstance(line, XidLine):
        assert canonical(line.pci) == line.pci
        assert 0 <= line.code < 100_000
        assert line.word in ("", "fatal", "nonfatal")
    elif isinstance(line, SxidLine):
        assert line.device.startswith("nvidia-nvswitch")
    elif line is not None:
        assert canonical(line.pci) == line.pci


@given(st.lists(TEXTS))
def test_no_sequence_of_texts_makes_the_joiner_raise(texts: list[str]) -> None:
    """A log of any lines can be read through."""
    joiner = Joiner()
    for text in texts:
        joiner.read(Entry(None, None, text))


@given(st.integers(0, 2**32 - 1), st.integers(0, 255), st.integers(0, 31), st.integers(0, 99_999))
def test_every_line_of_the_driver_is_read(domain: int, bus: int, device: int, code: int) -> None:
    """Any address and code in the driver's own format comes back."""
    text = f"NVRM: Xid (PCI:{domain:04x}:{bus:02x}:{device:02x}): {code}, pid=1, name=a, text"
    assert read(text) == XidLine(f"{domain:08x}:{bus:02x}:{device:02x}.0", code)


def test_most_lines_are_put_aside_without_a_closer_look() -> None:
    """Every form that means something passes the first, cheap look."""
    assert relevant(b"NVRM: Xid (PCI:0000:05:00): 79, x")
    assert relevant(b"nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal")
    assert not relevant(b"6,770,11664445550,-;drop_caches: 1")
