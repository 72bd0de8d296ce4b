"""Dumps of NCCL Inspector as they grow, and outputs of test tools, in one directory."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter import catalogue as c
from exporter.clock import SystemClock
from exporter.formats.nccl_inspector import Operation, read
from exporter.formats.nccl_log import Log
from exporter.profiling.folder import Directory, Folder
from exporter.samples import Drop, Fault, Gate, Malformed, Metric, Sample
from exporter.sources.nccl import NcclSource

DATA = Path(__file__).parent.parent / "data" / "fabric"
RECORD = json.loads((DATA / "nccl_inspector.log").read_text().splitlines()[0])


class Desk:
    """A source over a directory, with what it has told."""

    def __init__(self, directory: Path, **options: Any) -> None:
        folder = Folder([Directory(directory, run="llama")])
        self.source = NcclSource(folder, SystemClock(), **options)
        self.faults: list[Fault] = []
        self.dropped = 0

    def look(self, times: int = 3) -> dict[tuple[Metric, tuple[str, ...]], float]:
        for _ in range(times):
            items = list(self.source.read())
            self.faults += [item for item in items if isinstance(item, Fault)]
            self.dropped += sum(item.number for item in items if isinstance(item, Drop))
        batch, drops = Gate(10_000).admit([item for item in items if isinstance(item, Sample)])
        assert not drops
        return {sample[:2]: sample.value for sample in batch}  # type: ignore[misc]


def line(*, wall: float | None = None, rank: int = 2, **told: object) -> bytes:
    """Return a record with other figures."""
    record = json.loads(json.dumps(RECORD))
    record["header"]["rank"] = rank
    record["metadata"]["dump_timestamp_us"] = int((wall or time.time()) * 1e6)
    record["coll_perf"].update(told)
    return json.dumps(record).encode() + b"\n"


def test_a_record_is_read_in_bytes_and_seconds() -> None:
    """As the plug-in's own description has it; its bus bandwidth follows from its definition."""
    told = read(json.dumps(RECORD).encode())
    assert told == Operation(
        "AllReduce", 2, 8, 1, "0x7f8c496ae9f661", "node17:1639453", 17179869184,
        pytest.approx(0.061974), pytest.approx(485.119099e9), pytest.approx(1748030377.748202),
        transfer=False, sequence=1407, timing="kernel_gpu",
    )  # fmt: skip
    assert told.bandwidth == pytest.approx(17179869184 / 0.061974 * 2 * 7 / 8, rel=1e-4)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello", "no JSON"), ("[" * 100_000, "no JSON"), ("3", "an object"),
        ("{}", "header: an object"), ('{"header": 3}', "header: an object"),
        ('{"header": {}, "metadata": {}, "coll_perf": {}}', "coll: a name"),
        ('{"header": {}, "metadata": {}, "coll_perf": {"coll": "a b"}}', "coll: a name"),
        ('{"header": {}, "metadata": {}, "coll_perf": {"coll": "A"}}', "rank: a number"),
        ('{"header": {"rank": -1}, "metadata": {}, "coll_perf": {"coll": "A"}}', "rank: -1"),
        ('{"header": {"rank": NaN}, "metadata": {}, "coll_perf": {"coll": "A"}}', "rank: nan"),
    ],
)  # fmt: skip
def test_a_line_that_makes_no_sense_is_malformed(text: str, said: str) -> None:
    """With the name of what is wrong in it."""
    with pytest.raises(Malformed, match=said):
        read(text.encode())


def test_a_dump_becomes_counters_by_collective_and_size(tmp_path: Path) -> None:
    """The rank is that in the largest communicator."""
    (tmp_path / "node17-pid1639453.log").write_bytes((DATA / "nccl_inspector.log").read_bytes())
    page = Desk(tmp_path).look()
    large, small = ("llama", "2", "AllReduce", "inf"), ("llama", "2", "ReduceScatter", "64KiB")
    assert page[c.NCCL_OPERATIONS_TOTAL, large] == 1
    assert page[c.NCCL_OPERATION_SECONDS_TOTAL, large] == pytest.approx(0.061974)
    assert page[c.NCCL_OPERATION_BYTES_TOTAL, large] == 17179869184
    assert page[c.NCCL_BUS_BANDWIDTH_BYTES_PER_SECOND, large] == pytest.approx(485.119099e9)
    assert page[c.NCCL_OPERATION_BYTES_TOTAL, small] == 2048
    assert page[c.NCCL_OPERATIONS_TOTAL, ("llama", "2", "Send", "inf")] == 1
    # written down in 2025: nothing is said of the last minute
    assert not [key for key in page if key[0] is c.NCCL_COMMUNICATION_UPPER_BOUND_RATIO]


def test_what_is_appended_is_counted_once(tmp_path: Path) -> None:
    """Lines that come in pieces, and a dump that is begun anew under the same name."""
    path, desk = tmp_path / "x.log", Desk(tmp_path)
    path.write_bytes(line() + line()[:50])
    key = (c.NCCL_OPERATIONS_TOTAL, ("llama", "2", "AllReduce", "inf"))
    assert desk.look()[key] == 1
    with path.open("ab") as file:
        file.write(line()[50:] + line() * 3)
    assert desk.look()[key] == 5
    assert desk.look()[key] == 5
    path.write_bytes(line())
    assert desk.look()[key] == 1
    assert desk.dropped == 0


def test_counters_do_not_climb_through_the_past(tmp_path: Path) -> None:
    """A long dump is read over several reads; until its end there is no series of it."""
    (tmp_path / "x.log").write_bytes(line() * 1000)
    desk = Desk(tmp_path, budget=100_000)
    seen = {
        value
        for _ in range(20)
        for (metric, _), value in desk.look(1).items()
        if metric is c.NCCL_OPERATIONS_TOTAL
    }
    assert seen == {1000}


def test_bandwidth_is_weighted_by_time(tmp_path: Path) -> None:
    """A slow operation of a second counts a hundred times one of ten milliseconds."""
    told = line(coll_exec_time_us=1_000_000, coll_busbw_gbs=10.0)
    told += line(coll_exec_time_us=10_000, coll_busbw_gbs=400.0)
    (tmp_path / "x.log").write_bytes(told)
    page = Desk(tmp_path).look()
    key = (c.NCCL_BUS_BANDWIDTH_BYTES_PER_SECOND, ("llama", "2", "AllReduce", "inf"))
    assert page[key] == pytest.approx((10e9 + 0.01 * 400e9) / 1.01)


def test_shares_of_the_last_minute(tmp_path: Path) -> None:
    """Half of the messages small, 0.3 s of communication each second."""
    now = time.time() - 40
    told = b"".join(
        line(wall=now + at, coll_exec_time_us=200_000)
        + line(wall=now + at, coll_exec_time_us=100_000, coll_msg_size_bytes=512)
        for at in range(30)
    )
    (tmp_path / "x.log").write_bytes(told)
    page = Desk(tmp_path).look()
    labels = ("llama", "2")
    assert page[c.NCCL_SMALL_MESSAGE_RATIO, labels] == 0.5
    assert page[c.NCCL_COMMUNICATION_UPPER_BOUND_RATIO, labels] == pytest.approx(0.3)


def test_communicators_that_run_at_once_are_no_more_than_all_the_time(tmp_path: Path) -> None:
    """An upper bound of 1 says no more than that."""
    now = time.time() - 40
    (tmp_path / "x.log").write_bytes(
        b"".join(line(wall=now + at, coll_exec_time_us=900_000) * 2 for at in range(30))
    )
    page = Desk(tmp_path).look()
    assert page[c.NCCL_COMMUNICATION_UPPER_BOUND_RATIO, ("llama", "2")] == 1


def test_lines_that_make_no_sense_are_dropped_and_the_others_kept(tmp_path: Path) -> None:
    """Cut lines, a line of ten megabytes, something else."""
    bad = [b"hello\n", line()[:-30] + b"\n", b'{"x": "' + b"y" * 10_000_000 + b'"}\n', b"{}\n"]
    told = line() + b"".join(bad) + line()
    (tmp_path / "x.log").write_bytes(told)
    desk = Desk(tmp_path, budget=64 << 20)
    page = desk.look()
    assert page[c.NCCL_OPERATIONS_TOTAL, ("llama", "2", "AllReduce", "inf")] == 2
    assert desk.dropped == len(bad)


def test_outputs_of_tests_become_metrics(tmp_path: Path) -> None:
    """nccl-tests and perftest, beside a dump; what is neither is told once."""
    for path in DATA.glob("*.txt"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "notes.txt").write_text("remember the milk")
    desk = Desk(tmp_path)
    page = desk.look()
    last = ("llama", "all_reduce", "out", "2147483648")
    assert page[c.NCCL_TEST_BUS_BANDWIDTH_BYTES_PER_SECOND, last] == 470.73e9
    average = (c.NCCL_TEST_AVERAGE_BUS_BANDWIDTH_BYTES_PER_SECOND, ("llama", "all_reduce"))
    assert page[average] == pytest.approx(310.47e9)
    assert page[c.NCCL_TEST_WRONG_VALUES, ("llama", "sendrecv")] == 3
    written = ("llama", "rdma_write", "mlx5_1")
    bandwidth = page[c.NIC_RDMA_TEST_BANDWIDTH_BYTES_PER_SECOND, (*written, "65536")]
    assert bandwidth == pytest.approx(46557.03 * 2**20)
    told = page[c.NIC_RDMA_TEST_TIMESTAMP_SECONDS, written]
    assert told == pytest.approx((tmp_path / "ib_write_bw-mib.txt").stat().st_mtime)
    assert page[c.NCCL_FILES_TOTAL, ("read",)] == 4
    assert [Path(fault.part).name for fault in desk.faults] == ["notes.txt"]


def test_the_latest_output_of_a_test_is_shown(tmp_path: Path) -> None:
    """An older file does not take its place."""
    new = (DATA / "all_reduce_perf-8xh100.txt").read_text()
    (tmp_path / "new.txt").write_text(new)
    (tmp_path / "old.txt").write_text(new.replace("470.73", "12.0"))
    os.utime(tmp_path / "old.txt", (time.time() - 5000,) * 2)
    page = Desk(tmp_path).look()
    key = (c.NCCL_TEST_BUS_BANDWIDTH_BYTES_PER_SECOND, ("llama", "all_reduce", "out", "2147483648"))
    assert page[key] == 470.73e9


def test_a_test_that_still_runs_is_read_when_it_has_ended(tmp_path: Path) -> None:
    """It writes line by line: each state that rests is read anew."""
    text = (DATA / "all_reduce_perf-8xh100.txt").read_text()
    path, desk = tmp_path / "x.txt", Desk(tmp_path)
    path.write_text(text[: text.index("  2147483648 ")])
    page = desk.look()
    assert not [key for key in page if key[1][-1:] == ("2147483648",)]
    path.write_text(text)
    assert desk.look()[c.NCCL_TEST_WRONG_VALUES, ("llama", "all_reduce")] == 0


def test_a_directory_of_thousands_of_dumps_is_bounded(tmp_path: Path) -> None:
    """So many are followed, the latest; the others are told."""
    for number in range(600):
        (tmp_path / f"{number}.log").write_bytes(line(rank=number))
    desk = Desk(tmp_path)
    page = desk.look(4)
    assert len([key for key in page if key[0] is c.NCCL_OPERATIONS_TOTAL]) == 512
    assert len(desk.faults) == 88
    assert "more than 512 dumps" in desk.faults[0].detail


def test_a_dump_that_never_rests_between_two_looks_is_followed_all_the_same(
    tmp_path: Path,
) -> None:
    """A busy job writes at each interval, which is shorter than ours."""
    desk, file = Desk(tmp_path), tmp_path / "a.log"
    for number in range(4):
        with file.open("ab") as more:
            more.write(line(coll_sn=number))
        told = desk.look(1)
    key = ("llama", "2", "AllReduce", "inf")
    assert told[c.NCCL_OPERATIONS_TOTAL, key] == 4


# ---------------------------------------------------------------- waiting


def ranks_of(directory: Path, arrivals: list[list[float]], transmission: float) -> None:
    """Write the dumps of ranks that got to collectives at such times, in seconds."""
    for rank in range(len(arrivals[0])):
        with (directory / f"rank{rank}.log").open("ab") as file:
            for number, at in enumerate(arrivals):
                took = max(at) - at[rank] + transmission
                file.write(line(
                    rank=rank, coll_sn=number, coll_exec_time_us=round(took * 1e6),
                ))  # fmt: skip


def test_waiting_is_told_from_transmission(tmp_path: Path) -> None:
    """Rank 2 is late each time: it waits for nobody, and all the others for it."""
    arrivals = [[0.0, 0.01, 0.05], [0.0, 0.0, 0.02], [0.03, 0.0, 0.04]]
    ranks_of(tmp_path, arrivals, 0.1)
    told = Desk(tmp_path).look()
    for rank, waited in (("0", 0.05 + 0.02 + 0.01), ("1", 0.04 + 0.02 + 0.04), ("2", 0.0)):
        key = ("llama", rank)
        assert told[c.NCCL_WAIT_SECONDS_TOTAL, key] == pytest.approx(waited, abs=1e-5)
        assert told[c.NCCL_TRANSFER_SECONDS_TOTAL, key] == pytest.approx(0.3, abs=1e-5)
        assert told[c.NCCL_MATCHED_OPERATIONS_TOTAL, key] == 3


def test_one_rank_alone_has_waited_for_nobody_that_is_known(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(line(rank=0) + line(rank=0, coll_sn=1408))
    told = Desk(tmp_path).look(40)
    assert (c.NCCL_OPERATIONS_TOTAL, ("llama", "0", "AllReduce", "inf")) in told
    assert c.NCCL_WAIT_SECONDS_TOTAL not in {metric for metric, _ in told}


def test_times_of_the_host_are_no_waiting(tmp_path: Path) -> None:
    """They hold what the queue before took."""
    for rank, took in ((0, 1000), (1, 90_000)):
        (tmp_path / f"{rank}.log").write_bytes(line(
            rank=rank, coll_exec_time_us=took, coll_timing_source="collective_cpu",
        ))  # fmt: skip
    assert c.NCCL_WAIT_SECONDS_TOTAL not in {metric for metric, _ in Desk(tmp_path).look()}


def test_a_collective_that_one_dump_has_left_out_counts_for_the_others(tmp_path: Path) -> None:
    """The plug-in does not write down every operation."""
    ranks_of(tmp_path, [[0.0, 0.01, 0.05]], 0.1)
    for rank, took in ((0, 130_000), (1, 110_000)):
        with (tmp_path / f"rank{rank}.log").open("ab") as file:
            file.write(line(rank=rank, coll_sn=7, coll_exec_time_us=took))
    desk = Desk(tmp_path)
    assert desk.look()[c.NCCL_MATCHED_OPERATIONS_TOTAL, ("llama", "0")] == 1
    told = desk.look(40)
    assert told[c.NCCL_MATCHED_OPERATIONS_TOTAL, ("llama", "0")] == 2
    assert told[c.NCCL_WAIT_SECONDS_TOTAL, ("llama", "0")] == pytest.approx(0.05 + 0.02, abs=1e-5)


def test_collectives_of_two_communicators_are_not_mixed(tmp_path: Path) -> None:
    for rank, communicator in ((0, "0xa"), (1, "0xb")):
        record = json.loads(line(rank=rank, coll_sn=3))
        record["header"]["id"] = communicator
        (tmp_path / f"{rank}.log").write_text(json.dumps(record) + "\n")
    assert c.NCCL_WAIT_SECONDS_TOTAL not in {metric for metric, _ in Desk(tmp_path).look(40)}


# ---------------------------------------------------------------- what NCCL's log says

START = """node1:41:60 [0] NCCL INFO NCCL version 2.27.7+cuda12.9
node1:41:60 [0] NCCL INFO comm 0x55d10 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0
node1:41:60 [0] NCCL INFO comm 0x6426550 rank 0 nRanks 32 nNodes 4 localRanks 8 localRank 0 MNNVL 0
node1:41:60 [0] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels
"""
CHOICE = (
    "node1:41:41 [0] NCCL INFO AllReduce: {} Bytes -> Algo {} proto SIMPLE"
    " channel{{Lo..Hi}}={{0..23}} comm {}\n"
)
SPANS, INSIDE = "0x6426550", "0x55d10"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (START, None),  # the number of collnet channels is that of all channels
        (START + CHOICE.format(268435456, "COLLNET_DIRECT", SPANS), 1),
        (START + CHOICE.format(268435456, "COLLNET_CHAIN", SPANS), 1),
        (START + CHOICE.format(268435456, "NVLS", SPANS), 1),
        (START + CHOICE.format(268435456, "RING", SPANS), 0),
        (START + CHOICE.format(268435456, "NVLS_TREE", SPANS), 0),
        (START + CHOICE.format(4096, "TREE", SPANS), None),  # small ones never would
        (START + CHOICE.format(268435456, "RING", INSIDE), None),  # one node has none to use
        (START + CHOICE.format(268435456, "NVLS", INSIDE), None),
        (START + "node1:41:60 [0] NCCL INFO rank 0 Connected CollNet\n", 1),
        (START + "node1:41:60 [0] NCCL INFO rank 0 Connected CollNet\n"
         + CHOICE.format(268435456, "RING", SPANS), 0),
        (START + "node1:41:60 [3] sharp_plugin.c:354 NCCL WARN SHARP group create: Streaming Tree"
         " lock failed (-18)\n", 0),
        (START + "node1:41:60 [0] NCCL WARN NET/IB : Got completion with error 12\n", None),
    ],
)  # fmt: skip
def test_what_a_log_says_of_sharp(tmp_path: Path, text: str, said: int | None) -> None:
    """And nothing follows from silence."""
    (tmp_path / "nccl.node1.41").write_text(text)
    told = Desk(tmp_path).look()
    assert told.get((c.NCCL_COLLNET_LOGGED, ("llama",))) == said


def test_a_log_is_read_on_as_it_grows(tmp_path: Path) -> None:
    """A later word takes the place of an earlier one."""
    file = tmp_path / "nccl.node1.41"
    file.write_text(START + CHOICE.format(268435456, "RING", SPANS))
    desk = Desk(tmp_path)
    assert desk.look()[c.NCCL_COLLNET_LOGGED, ("llama",)] == 0
    with file.open("a") as more:
        more.write(CHOICE.format(268435456, "COLLNET_DIRECT", SPANS))
    assert desk.look()[c.NCCL_COLLNET_LOGGED, ("llama",)] == 1
    assert not desk.faults


def test_a_test_s_output_with_nccl_s_log_in_it_is_a_test_s_output(tmp_path: Path) -> None:
    text = (DATA / "all_reduce_perf-8xh100.txt").read_text().splitlines(keepends=True)
    (tmp_path / "all_reduce_perf.txt").write_text("".join(text[:4]) + START + "".join(text[4:]))
    desk = Desk(tmp_path)
    told = desk.look()
    assert c.NCCL_TEST_BUS_BANDWIDTH_BYTES_PER_SECOND in {metric for metric, _ in told}
    assert not desk.faults


@given(st.lists(st.one_of(
    st.binary(max_size=80),
    st.sampled_from([one.encode() for one in (*START.splitlines(), CHOICE)]),
), max_size=20))  # fmt: skip
def test_no_line_of_a_log_is_trouble(lines: list[bytes]) -> None:
    log = Log()
    for one in lines:
        log.take(one)
    assert log.sharp in (None, True, False)


def test_a_line_that_is_made_to_be_slow_is_not() -> None:
    """A megabyte of what the patterns begin with."""
    log, began = Log(), time.process_time()
    for start in (b"NCCL WARN ", b"AllReduce: 1 Bytes -> Algo A proto B ", b"comm 0x1 nNodes "):
        log.take(start * 100_000)
    assert time.process_time() - began < 1


# ---------------------------------------------------------------- communicators


def test_the_communicator_of_large_messages_is_told_where_it_is_one(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(line() + line(coll_sn=1408))
    desk = Desk(tmp_path)
    key = ("llama", "2", "AllReduce", "inf")
    assert (c.NCCL_COMMUNICATOR_INFO, (*key, "8", "1")) in desk.look()
    record = json.loads(line())
    record["header"].update(n_ranks=32, nnodes=4)
    with file.open("ab") as more:
        more.write(json.dumps(record).encode() + b"\n")
    told = desk.look()
    assert (c.NCCL_BUS_BANDWIDTH_BYTES_PER_SECOND, key) in told
    assert c.NCCL_COMMUNICATOR_INFO not in {metric for metric, _ in told}
