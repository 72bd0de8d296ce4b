"""The specification's table 16-8: its problems as faults, and the signals that show them.

A node is well for two minutes, then has the fault, then is well again. What must be told is told
while the fault is there and neither before nor after it; the causes of the diagnosis follow by the
time over which it looks (a minute) and for which an answer must stand (half a minute).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.derive.diagnosis.advice import PROBLEMS
from tests.fabric_node import RUN, Node

WELL, SICK, AFTER = 120, 120, 130
"""Seconds of each time. An answer that turns takes up to a minute and a half."""

BASE = ("derive:training", "derive:diagnosis")


@pytest.fixture
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Node]:
    """Return a node with the sources that a test names."""
    text = "diagnosis: {enabled: true}\n"
    with Node(tmp_path, (*BASE, *request.param), text) as made:
        yield made


def with_sources(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("node", [names], indirect=True, ids=["+".join(names)])


def cause(node: Node, name: str) -> float | None:
    return node.told(c.DIAGNOSIS_CAUSE, RUN, name)


def live(node: Node, sick: Callable[[int], None], name: str) -> None:
    """Let the node go through its three times; the diagnosis must see a cause in the second alone.

    `sick` makes each second of the fault. Whoever wants to see more looks in between.
    """
    node.pass_time(WELL)
    assert cause(node, name) == 0, "before"
    node.pass_time(SICK, sick)
    assert cause(node, name) == 1, "while it lasts"
    assert not node.faults()


def recovers(node: Node, name: str) -> None:
    node.pass_time(AFTER)
    assert cause(node, name) == 0, "after"


@with_sources("network")
def test_row_1_errors_of_an_infiniband_link(node: Node) -> None:
    """One cable has an error each two seconds and loses acknowledgements now and then."""
    node.port("mlx5_0")
    node.port("mlx5_1")
    symbols = iter(range(1, 1000))

    def sick(second: int) -> None:
        if second % 2 == 0:
            node.port("mlx5_1", **{"counters/symbol_error": next(symbols)})
        node.port("mlx5_1", **{"hw_counters/local_ack_timeout_err": second // 20})

    live(node, sick, "link_errors")
    assert node.told(c.NIC_ERRORS_TOTAL, "mlx5_1", "1", "symbol") == pytest.approx(60, abs=3)
    assert node.told(c.NIC_ERRORS_TOTAL, "mlx5_0", "1", "symbol") == 0
    assert node.told(c.NIC_TIMEOUTS_TOTAL, "mlx5_1", "1") == 5
    rate = node.told(c.DIAGNOSIS_SIGNAL_PER_SECOND, RUN, "link_error_rate")
    assert rate == pytest.approx(0.5, rel=0.1)
    recovers(node, "link_errors")


@with_sources("network")
def test_row_1_a_counter_at_its_end_says_that_it_is_blind(node: Node) -> None:
    """It sticks at its top, and its rate falls to 0 though the cable is as bad as before."""
    node.port("mlx5_1")
    node.pass_time(30, lambda second: node.port("mlx5_1", **{"counters/symbol_error": 65_535}))
    (stuck,) = [one for one in node.samples(SATURATED) if one.labels[0] == "mlx5_1"]
    assert stuck.labels == ("mlx5_1", "1", "symbol_error")
    assert stuck.value == 1


SATURATED = getattr(c, "NIC_COUNTER_SATURATED", None) or c.NIC_SATURATED


@with_sources("ethtool")
def test_row_2_a_storm_of_pause_frames_and_who_makes_it(node: Node) -> None:
    """A port is told to stop for a fifth of the time: others are the slow ones."""
    durations = {"received": 0, "sent": 0}

    def write() -> None:
        node.card(
            "eth2", rx_prio3_pause=durations["received"] // 100, tx_prio3_pause=0,
            rx_prio3_pause_duration=durations["received"],
            tx_prio3_pause_duration=durations["sent"],
            tx_pause_storm_error_events=0, rx_prio3_marked=durations["received"] // 1000,
        )  # fmt: skip

    write()

    def sick(second: int) -> None:
        durations["received"] += 200_000
        write()

    live(node, sick, "paused")
    assert cause(node, "pausing") == 0
    share = node.told(c.DIAGNOSIS_SIGNAL_RATIO, RUN, "paused")
    assert share == pytest.approx(0.2, rel=0.1)
    seconds = node.told(c.NIC_RECEIVE_PAUSE_SECONDS_TOTAL, "eth2", "", "3")
    assert seconds == pytest.approx(SICK * 0.2, abs=3)
    assert node.told(c.NIC_TRANSMIT_PAUSE_SECONDS_TOTAL, "eth2", "", "3") == 0
    recovers(node, "paused")


@with_sources("ethtool")
def test_row_2_the_node_that_causes_the_storm_is_told_apart(node: Node) -> None:
    """It has others stop because its PCIe link is the bottleneck, until its card gives up."""
    told = {"sent": 0, "stalled": 0, "storms": 0}

    def write() -> None:
        node.card(
            "eth2", tx_prio3_pause_duration=told["sent"], rx_prio3_pause_duration=0,
            outbound_pci_stalled_wr_events=told["stalled"],
            tx_pause_storm_error_events=told["storms"],
        )  # fmt: skip

    write()

    def sick(second: int) -> None:
        told["sent"] += 50_000
        told["stalled"] += 1
        told["storms"] = second // 100
        write()

    live(node, sick, "pausing")
    assert cause(node, "paused") == 0
    assert node.told(c.NIC_PCIE_STALLED_SECONDS_TOTAL, "eth2", "", "write") == pytest.approx(
        SICK, abs=15
    )
    assert node.told(c.NIC_PAUSE_STORM_EVENTS_TOTAL, "eth2", "", "error") == 1
    recovers(node, "pausing")


@with_sources("network")
def test_row_2_marks_of_congested_switches_come_before_the_storm(node: Node) -> None:
    """Where ECN works, flows are slowed by notices instead."""
    node.port("mlx5_0", link_layer="Ethernet", **{"hw_counters/rp_cnp_handled": 0})

    def sick(second: int) -> None:
        node.port("mlx5_0", **{"hw_counters/rp_cnp_handled": 500 * (second + 1)})

    live(node, sick, "congestion")
    recovers(node, "congestion")


@with_sources()
def test_row_5_a_straggler_makes_all_wait_and_waits_least(node: Node) -> None:
    """Rank 3 works half as long again: all steps take as long, and it alone does not wait."""

    def sick(second: int) -> None:
        node.work[3] = 4.5

    live(node, sick, "straggler")
    scores = {one.labels[1]: one.value for one in node.samples(c.TRAIN_STRAGGLER_SCORE)}
    assert scores["3"] == pytest.approx(0.5)
    assert max(value for rank, value in scores.items() if rank != "3") == pytest.approx(0, abs=0.01)
    waits = {one.labels[1]: one.value for one in node.samples(c.TRAIN_RANK_WAIT_RATIO)}
    assert min(waits, key=lambda rank: waits[rank]) == "3"
    node.work[3] = 3.0
    recovers(node, "straggler")


def operation(wall: float, number: int, size: int, microseconds: float) -> str:
    """Return a line of an NCCL Inspector dump: an all-reduce over eight ranks."""
    bandwidth = size / microseconds / 1e3
    return json.dumps(
        {
            "header": {
                "id": "0x7f8c", "comm_name": "DP", "rank": 0, "n_ranks": 8, "nnodes": 1,
            },
            "metadata": {
                "inspector_output_format_version": "v4.0", "git_rev": "",
                "rec_mechanism": "nccl_profiler_interface", "hostname": "node17", "pid": 4711,
                "dump_timestamp_us": int(wall * 1e6),
            },
            "coll_perf": {
                "coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": size,
                "coll_exec_time_us": microseconds, "coll_timing_source": "kernel_gpu",
                "coll_algobw_gbs": bandwidth, "coll_busbw_gbs": bandwidth * 1.75,
            },
        }
    )  # fmt: skip


def test_row_6_many_small_messages(tmp_path: Path) -> None:
    """Gradients go out one by one instead of in buckets: each all-reduce is of 4 KiB."""
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    text = (
        "diagnosis: {enabled: true}\n"
        f"sources: {{nccl: {{directories: [{{path: {dumps}, run: {RUN}}}]}}}}\n"
    )
    with Node(tmp_path, (*BASE, "nccl"), text) as node, (dumps / "rank0.log").open("w") as dump:
        numbers = iter(range(1_000_000))

        def write(second: int, size: int, times: int) -> None:
            """Write down what has ended in five seconds, each five seconds."""
            if second % 5:
                return
            for _ in range(5 * times):
                dump.write(
                    operation(node.clock.time(), next(numbers), size, 25 + size / 4e5) + "\n"
                )
            dump.flush()
            os.utime(dump.name, (node.clock.time(),) * 2)  # the node's time, not the test's

        node.pass_time(WELL, lambda second: write(second, 64 << 20, 4))
        assert cause(node, "small_messages") == 0
        assert node.told(c.NCCL_SMALL_MESSAGE_RATIO, RUN, "0") == 0
        node.pass_time(SICK, lambda second: write(second, 4 << 10, 200))
        assert cause(node, "small_messages") == 1
        assert node.told(c.NCCL_SMALL_MESSAGE_RATIO, RUN, "0") == 1
        assert not node.faults()
        node.pass_time(AFTER, lambda second: write(second, 64 << 20, 4))
        assert cause(node, "small_messages") == 0


def test_each_row_that_has_a_signal_is_shown_here() -> None:
    """The causes of the table are those of these tests, and of no other row."""
    assert [problem.causes for problem in PROBLEMS] == [
        ("link_errors",),
        ("paused", "pausing", "congestion"),
        ("pcie_width", "pcie_errors"),
        (),
        ("straggler",),
        ("small_messages",),
    ]
