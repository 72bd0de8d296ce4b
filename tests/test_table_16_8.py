"""The specification's table 16-8: each of its problems as a fault, and the signals that show it.

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
from tests.pci_tree import PciTree, behind_a_switch

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
    (stuck,) = [one for one in node.samples(c.NIC_SATURATED) if one.labels[0] == "mlx5_1"]
    assert stuck.labels == ("mlx5_1", "1", "symbol_error")
    assert stuck.value == 1


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


@with_sources("network", "topology")
def test_row_3_a_nic_in_the_wrong_slot(node: Node) -> None:
    """After a repair a NIC is put back behind the other socket: no NIC is near to its GPU."""
    tree = PciTree(node.root)
    tree.virtual(said=False)
    slots = [behind_a_switch(at) for at in range(8)]
    for at, (gpu, nic) in enumerate(slots):
        node.gpus.addresses.append(tree.gpu(gpu, at // 4))
        tree.rdma(f"mlx5_{at}", nic, at // 4)

    def move(path: str, numa: int) -> None:
        tree.device(path, numa)
        tree.link("sys/class/infiniband/mlx5_2/device", f"sys/devices/{path}")

    elsewhere = "pci0009:70/0009:70:01.0/0009:71:00.0"
    live(node, lambda second: move(elsewhere, 1) if second == 0 else None, "nic_distance")
    fine = {one.labels[0]: one.value for one in node.samples(c.TOPOLOGY_GPU_NIC_OK)}
    assert fine == {str(at): int(at != 2) for at in range(8)}
    best = {one.labels[0]: one.labels[2:] for one in node.samples(c.TOPOLOGY_GPU_BEST_NIC_INFO)}
    assert best["1"][:2] == ("mlx5_1", "PIX")
    assert best["2"][1] != "PIX"
    move(slots[2][1], 0)
    recovers(node, "nic_distance")


@with_sources("network", "topology")
def test_row_3_a_slot_that_has_lost_half_its_lanes(node: Node) -> None:
    """The NIC's link comes up with 8 lanes of 16."""
    tree = PciTree(node.root)
    tree.virtual(said=False)
    gpu, nic = behind_a_switch(0)
    node.gpus.addresses.append(tree.gpu(gpu))
    tree.rdma("mlx5_0", nic)

    def degraded() -> dict[tuple[str, str], float]:
        return {
            (one.labels[2], one.labels[3]): float(one.value)  # type: ignore[arg-type]
            for one in node.samples(c.TOPOLOGY_PCIE_LINK_DEGRADED)
        }

    node.pass_time(90)
    assert degraded()["mlx5_0", "width"] == 0
    tree.ends(nic, 8, 16)
    node.pass_time(90)
    assert degraded()["mlx5_0", "width"] == 1
    assert degraded()["", "width"] == 0, "the GPU's own link is whole"
    tree.ends(nic, 16, 16)
    node.pass_time(90)
    assert degraded()["mlx5_0", "width"] == 0


SHARP = {"world_size": 32, "nccl": {"NCCL_COLLNET_ENABLE": "1"}}
"""A job over four nodes that has asked for the switches to add up."""


def test_row_4_sharp_was_asked_for_and_is_not_in_effect(tmp_path: Path) -> None:
    """NCCL's log says so: the subnet manager has let the group go, and rings do the work."""
    logs = tmp_path / "logs"
    logs.mkdir()
    text = (
        "diagnosis: {enabled: true}\nfabric: {enabled: true}\n"
        "sources: {nccl_environment: {enabled: true, interval: 5s},"
        f" nccl: {{directories: [{{path: {logs}, run: {RUN}}}]}}}}\n"
    )
    wanted = (*BASE, "nccl", "derive:collectives", "nccl_environment")
    with Node(tmp_path, wanted, text, facts=SHARP) as node:

        def say(second: int, *lines: str) -> None:
            """Write lines each five seconds."""
            if second % 5 == 0:
                with (logs / "nccl.node17.4711").open("a") as log:
                    log.writelines(f"node17:4711:4800 [0] NCCL {line}\n" for line in lines)
                os.utime(log.name, (node.clock.time(),) * 2)

        def choice(algorithm: str) -> str:
            return (
                f"INFO AllReduce: 268435456 Bytes -> Algo {algorithm} proto SIMPLE channel{{0..7}}"
                " comm 0x5581"
            )

        say(0, "INFO comm 0x5581 rank 0 nRanks 32 nNodes 4 localRanks 8 localRank 0 MNNVL 0")
        node.pass_time(WELL, lambda second: say(second, choice("COLLNET_DIRECT")))
        assert node.told(c.NCCL_COLLNET_ACTIVE, RUN) == 1
        assert cause(node, "sharp_unused") == 0
        node.pass_time(
            SICK,
            lambda second: say(second, "WARN SHARP group create: no memory", choice("RING")),
        )
        assert node.told(c.NCCL_COLLNET_ACTIVE, RUN) == 0
        assert node.told(c.NCCL_ENVIRONMENT_PROBLEM, RUN, "sharp_unused") == 1
        assert cause(node, "sharp_unused") == 1
        assert not node.faults()
        node.pass_time(AFTER, lambda second: say(second, choice("COLLNET_DIRECT")))
        assert node.told(c.NCCL_ENVIRONMENT_PROBLEM, RUN, "sharp_unused") == 0
        assert cause(node, "sharp_unused") == 0


def test_row_4_bus_bandwidth_far_below_what_was_measured_with_sharp(tmp_path: Path) -> None:
    """No log: an all-reduce over whole nodes has 45 % of what it had when it was measured."""
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    text = (
        "diagnosis: {enabled: true}\nfabric: {enabled: true, reference_bandwidth: 400G}\n"
        "sources: {nccl_environment: {enabled: true, interval: 5s},"
        f" nccl: {{directories: [{{path: {dumps}, run: {RUN}}}]}}}}\n"
    )
    wanted = (*BASE, "nccl", "derive:collectives", "nccl_environment")
    with (
        Node(tmp_path, wanted, text, facts=SHARP) as node,
        (dumps / "rank0.log").open("w") as dump,
    ):
        node.gpus.addresses = [f"0000:{n:02x}:00.0" for n in range(8)]
        numbers = iter(range(1_000_000))

        def write(second: int, gigabytes: float) -> None:
            if second % 5:
                return
            for _ in range(50):
                # bus bandwidth over 32 ranks is 2 * 31/32 of what the operation itself has
                size, factor = 1 << 28, 2 * 31 / 32
                line = operation(
                    node.clock.time(), next(numbers), size, size * factor / gigabytes / 1e3,
                    ranks=32, nodes=4, factor=factor,
                )  # fmt: skip
                dump.write(line + "\n")
            dump.flush()
            os.utime(dump.name, (node.clock.time(),) * 2)

        node.pass_time(WELL, lambda second: write(second, 405))
        assert cause(node, "slow_collectives") == 0
        node.pass_time(SICK, lambda second: write(second, 180))
        assert node.told(c.NCCL_BUS_BANDWIDTH_RATIO, RUN, "0", "AllReduce", "inf") == (
            pytest.approx(0.45, abs=0.01)
        )
        assert node.told(c.NCCL_COLLNET_ACTIVE, RUN) == 0
        assert node.told(c.NCCL_ENVIRONMENT_PROBLEM, RUN, "sharp_unused") == 1
        assert cause(node, "slow_collectives") == 1
        assert cause(node, "sharp_unused") == 1
        assert not node.faults()
        node.pass_time(AFTER, lambda second: write(second, 405))
        assert cause(node, "slow_collectives") == 0


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


def operation(
    wall: float, number: int, size: int, microseconds: float,
    *, ranks: int = 8, nodes: int = 1, factor: float = 1.75,
) -> str:  # fmt: skip
    """Return a line of an NCCL Inspector dump: an all-reduce."""
    bandwidth = size / microseconds / 1e3
    return json.dumps(
        {
            "header": {
                "id": "0x7f8c", "comm_name": "DP", "rank": 0, "n_ranks": ranks, "nnodes": nodes,
            },
            "metadata": {
                "inspector_output_format_version": "v4.0", "git_rev": "",
                "rec_mechanism": "nccl_profiler_interface", "hostname": "node17", "pid": 4711,
                "dump_timestamp_us": int(wall * 1e6),
            },
            "coll_perf": {
                "coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": size,
                "coll_exec_time_us": microseconds, "coll_timing_source": "kernel_gpu",
                "coll_algobw_gbs": bandwidth, "coll_busbw_gbs": bandwidth * factor,
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
        ("nic_distance", "pcie_width", "pcie_errors"),
        ("sharp_unused",),
        ("straggler", "late_ranks"),
        ("small_messages",),
    ]
