"""The texts of /sys and /proc."""

from __future__ import annotations

import pytest

from exporter.formats import sysfs
from exporter.samples import Malformed


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"0\n", 0),
        (b"317548853677\n", 317548853677),
        (b" 15 \n", 15),
        (b"N/A (no PMA)\n", None),
        (b"", None),
        (b"\n", None),
        (b"-1\n", None),
        (b"12 packets\n", None),
        (b"0x10\n", None),
        (b"\xff\n", None),
    ],
)
def test_a_counter_is_one_whole_number(text: bytes, value: int | None) -> None:
    """Anything but one number of at least 0 is no reading."""
    assert sysfs.number(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [(b"4: ACTIVE\n", 4), (b"1: DOWN\n", 1), (b"5: LinkUp\n", 5), (b"ACTIVE\n", None), (b"", None)],
)
def test_a_state_is_its_number(text: bytes, value: int | None) -> None:
    """The number of a state counts, whatever word follows it."""
    assert sysfs.state(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"400 Gb/sec (4X NDR)\n", 50e9),
        (b"200 Gb/sec (2X NDR)\n", 25e9),
        (b"10 Gb/sec (4X)\n", 1.25e9),
        (b"2.5 Gb/sec (1X SDR)\n", 312.5e6),
        (b"", None),
        (b"unknown\n", None),
    ],
)
def test_a_rate_is_bytes_per_second(text: bytes, value: float | None) -> None:
    """Gigabits per second become bytes per second; the speed's name may be missing."""
    assert sysfs.rate(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"100000\n", 12.5e9),
        (b"1000\n", 125e6),
        (b"-1\n", None),
        (b"0\n", None),
        (b"65535\n", None),
        (b"4294967295\n", None),
    ],
)
def test_a_speed_is_bytes_per_second(text: bytes, value: float | None) -> None:
    """Megabits per second become bytes per second; -1 and 0 are no speed, nor -1 as old
    kernels and some drivers print it, without its sign."""
    assert sysfs.speed(text) == value


def test_pressure_is_seconds() -> None:
    """`total=` is microseconds."""
    text = (
        b"some avg10=0.03 avg60=0.52 avg300=1.18 total=15992986\n"
        b"full avg10=0.03 avg60=0.44 avg300=0.97 total=13294251\n"
    )
    assert sysfs.stalled(text) == {"some": 15.992986, "full": 13.294251}
    assert sysfs.stalled(b"some avg10=0.00\nnonsense\n") == {}


def test_node_memory_is_bytes() -> None:
    """A NUMA node's kB are 1024 bytes; lines without a unit are counts and left out."""
    text = b"Node 0 MemTotal:        9267412 kB\nNode 0 HugePages_Total:     0\n"
    assert sysfs.node_memory(text) == {"MemTotal": 9_489_829_888}


def test_fields_are_lines_of_a_name_and_a_number() -> None:
    """Lines with more or other things in them are left out."""
    text = b"cpu  1 2 3\nintr 5 0 0\nprocs_running 3\nprocs_blocked 0\nnonsense\n"
    assert sysfs.fields(text) == {"procs_running": 3, "procs_blocked": 0}


def test_a_word_is_printable() -> None:
    """Identity texts lose white space and NUL bytes, and never fail to decode."""
    assert sysfs.word(b" MT_0000000838 \n\0") == "MT_0000000838"
    assert sysfs.word(b"\xff") == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (b"mlx5_0\n", "mlx5_0"),
        (b" MT_0000000838\0\n", "MT_0000000838"),
        (b"ib\xff0", "ib\ufffd0"),
        (b"a\x1b[31mb", "a\ufffd[31mb"),
        (b"a\nb", "a\ufffdb"),
        ("caf\u00e9".encode(), "caf\u00e9"),
    ],
)
def test_a_word_can_be_printed(text: bytes, shown: str) -> None:
    """Whatever a driver wrote: control characters and bytes that are no text are replaced."""
    assert sysfs.word(text) == shown
    assert shown.isprintable()


def test_a_name_that_is_not_utf8_can_be_printed() -> None:
    """The system hands such names out with lone surrogates, which no file or socket takes."""
    name = b"eth\xff\n".decode("utf-8", "surrogateescape")
    assert sysfs.printable(name) == "eth\ufffd\ufffd"
    assert sysfs.printable("eth0") == "eth0"


HUGE = b"9" * 400
ABSURD = b"9" * 5000


@pytest.mark.parametrize("digits", [HUGE, ABSURD], ids=["400 digits", "5000 digits"])
def test_an_absurd_number_is_malformed_where_a_file_has_many(digits: bytes) -> None:
    """No counter of the kernel has more than the 20 digits of 64 bits."""
    with pytest.raises(Malformed, match="digits"):
        sysfs.stalled(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=" + digits + b"\n")
    with pytest.raises(Malformed, match="digits"):
        sysfs.node_memory(b"Node 0 MemTotal:  " + digits + b" kB\n")
    with pytest.raises(Malformed, match="digits"):
        sysfs.fields(b"procs_running " + digits + b"\n")


@pytest.mark.parametrize("digits", [HUGE, ABSURD], ids=["400 digits", "5000 digits"])
def test_an_absurd_number_alone_is_no_reading(digits: bytes) -> None:
    """As anything else that is not a value."""
    assert sysfs.number(digits) is None
    assert sysfs.state(digits + b": ACTIVE") is None
    assert sysfs.rate(digits + b" Gb/sec (4X NDR)") is None
    assert sysfs.speed(digits) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"32.0 GT/s PCIe\n", 32e9),
        (b"2.5 GT/s\n", 2.5e9),  # kernels before 5.6
        (b"Unknown speed\n", None),
        (b"Unknown\n", None),
        (b"", None),
        (b"\xff", None),
    ],
)
def test_the_speed_of_a_pcie_link(text: bytes, value: float | None) -> None:
    assert sysfs.transfers(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [(b"16\n", 16), (b"1\n", 1), (b"0\n", None), (b"255\n", None), (b"63\n", None), (b"", None)],
)
def test_the_lanes_of_a_pcie_link(text: bytes, value: int | None) -> None:
    """0 and 255 are those of a link that is down, 63 of none."""
    assert sysfs.lanes(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [(b"0x1003\n", 0x1003), (b"0x0", 0), (b"1003", None), (b"0x", None), (b"0x" + b"f" * 17, None)],
)
def test_a_hexadecimal_number(text: bytes, value: int | None) -> None:
    """Flags of an interface; anything else is not known."""
    assert sysfs.hexadecimal(text) == value


def test_the_interfaces_of_default_routes() -> None:
    """Both families; a route to a network, and one that refuses, lead nowhere."""
    head = b"Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    rows = (
        b"bond0\t00000000\t0100A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
        b"ens9\t0000A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0\nodd\n"
    )
    assert sysfs.default_routes(head + rows) == {"bond0"}
    assert sysfs.default_routes(b"") == frozenset()
    zeros = b"0" * 32
    v6 = b"\n".join(
        (
            zeros
            + b" 00 "
            + zeros
            + b" 00 "
            + zeros
            + b" 00000400 00000001 00000000 00000003 eth0",
            zeros + b" 00 " + zeros + b" 00 " + zeros + b" ffffffff 00000001 00000000 00200200 lo",
            b"fe80" + b"0" * 28 + b" 40 " + zeros + b" 00 " + zeros + b" 100 1 0 00000001 eth1",
        )
    )
    assert sysfs.default_routes_v6(v6) == {"eth0"}


def test_the_names_in_a_table_of_interfaces() -> None:
    """Two lines of head, then one for each."""
    text = b"Inter-| Receive\n face |bytes\n    lo: 1 2\neth0.7:12 3\nodd\n"
    assert sysfs.interface_names(text) == {"lo", "eth0.7"}
