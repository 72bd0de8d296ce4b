"""Outputs of nccl-tests and perftest: the units, above all."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.formats.bandwidth_tests import Report, Result, read
from exporter.samples import Malformed

DATA = Path(__file__).parent.parent / "data" / "fabric"
HEADER = "#  size  count  type  redop  root  time  algbw  busbw  #wrong\n"


def report(name: str) -> Report:
    return read((DATA / name).read_text(), name)


def test_a_table_of_nccl_tests_is_in_units_of_1e9_bytes() -> None:
    """In and out of place, the mean, the number of wrong values, and which collective it was."""
    told = report("all_reduce_perf-8xh100.txt")
    assert (told.tool, told.test) == ("nccl", "all_reduce")
    assert told.results[-2:] == (
        Result(2147483648, "out", 470.73e9), Result(2147483648, "in", 470.63e9),
    )  # fmt: skip
    assert len(told.results) == 6
    assert told.average == pytest.approx(310.47e9)
    assert told.wrong == 0


def test_bus_bandwidth_is_what_its_definition_says() -> None:
    """All-reduce over n ranks: bytes over time, times 2 (n - 1) / n."""
    told = report("all_reduce_perf-8xh100.txt")
    algorithm = 2147483648 / 7983.5e-6
    assert told.results[-2].bandwidth == pytest.approx(algorithm * 2 * 7 / 8, rel=0.002)


def test_an_old_table_with_prefixes_of_mpirun_is_read() -> None:
    """Rows have no root and an empty redop; the file's name says which test it was."""
    told = report("sendrecv_perf-old-mpirun.txt")
    assert told.test == "sendrecv"
    assert told.results[-1] == Result(134217728, "in", 3.15e9)
    assert told.wrong == 3


def test_perftest_in_mib_and_in_gbit() -> None:
    """MiB are 2^20 bytes, Gb 1e9 bits; a warning between header and row is no row."""
    told = report("ib_write_bw-mib.txt")
    assert (told.tool, told.test, told.device) == ("perftest", "rdma_write", "mlx5_1")
    assert told.results == (Result(65536, "", 46557.03 * 2**20),)
    # as the tool's own message rate has it
    assert told.results[0].bandwidth == pytest.approx(0.744912e6 * 65536, rel=1e-4)
    told = report("ib_read_bw-gbits.txt")
    assert (told.test, told.device) == ("rdma_read", "mlx5_0")
    assert told.results[-1] == Result(65536, "", 390.55e9 / 8)
    assert len(told.results) == 2


def test_what_perftest_called_mb_was_mib() -> None:
    """1024 bytes at 5.67734 million a second were printed as 5544.28 MB/sec (perftest 65)."""
    text = (
        "#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
        " 1024       1000             0.00               5544.28            5.677340\n"
    )
    assert read(text).results[0].bandwidth == pytest.approx(1024 * 5.67734e6, rel=1e-4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "neither"),
        ("hello\nworld\n", "neither"),
        (HEADER, "without rows"),
        (HEADER + "8 2 float sum -1 nan nan nan 0\n", "no figure"),
        (HEADER + "8 2 float sum -1 3 1 -3 0\n", "no figure"),
        (HEADER + "8 2 float sum -1 3 1 3\n", "8 fields under 9 columns"),
        (HEADER + "8 2 float sum -1 3 1\n", "7 fields under 9 columns"),
        (HEADER + "8 2 float sum -1 3 1 3 0\n" * 5000, "more than 4096"),
        (" #bytes #iterations  BW peak[MiB/sec]  BW average[MiB/sec]\n", "without rows"),
        (" #bytes #iterations  BW peak[TB/sec]  BW average[TB/sec]\n 8 5 1.0 1.0\n", "in TB"),
    ],
)
def test_what_is_cut_off_or_senseless_is_said_to_be(text: str, said: str) -> None:
    """Not a figure of half a table."""
    with pytest.raises(Malformed, match=said):
        read(text)
