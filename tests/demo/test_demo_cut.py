"""A cable of the demo's fabric breaks: the port is down, and the job waits until it is up again."""

from __future__ import annotations

import pytest

from exporter.demo import SCENARIOS, Faults
from exporter.demo.node import RAILS, Node, Port

CUT, MENDED, LATER = 60.3, 100.7, 140.0


@pytest.fixture(params=["default", "sound"])
def node(request: pytest.FixtureRequest) -> Node:
    return Node(0, 0.0, SCENARIOS[request.param])


def cut(node: Node) -> dict[str, Port]:
    """Let the cable break at `CUT`; return the ports then."""
    node.advance(CUT)
    node.inject(Faults(cut=2))
    return dict(node.fabric.ports())


def test_the_port_is_down_at_once_and_counts_it_once(node: Node) -> None:
    before = dict(node.fabric.ports())["mlx5_2"]
    after = cut(node)
    node.inject(Faults(cut=2, held=1.0))
    assert [name for name in RAILS if not after[name].up] == ["mlx5_2"]
    assert node.fabric.ports()["mlx5_2"].downs == before.downs + 1


def test_the_job_waits_from_its_next_step_on_and_then_goes_on(node: Node) -> None:
    cut(node)
    steps = node.job.steps
    node.advance(MENDED - CUT)
    stood = node.job.steps
    node.inject(Faults())
    node.advance(LATER - MENDED)
    assert stood == steps + 1
    assert node.job.steps >= stood + 5
    longest = max(lap.seconds for lap in node.job.take())
    assert MENDED - CUT - 10 < longest < MENDED - CUT + 10


def test_bytes_never_go_back_and_stand_still_while_the_job_waits(node: Node) -> None:
    sent = [cut(node)["mlx5_0"].sent]
    for second in range(80):
        if second == 40:
            node.inject(Faults())
        node.advance(1)
        sent.append(node.fabric.ports()["mlx5_0"].sent)
    assert sent == sorted(sent)
    assert sent[20] == sent[40] < sent[60]


def test_the_node_is_the_same_however_the_time_is_cut() -> None:
    ends = []
    for pieces in (1, 97):
        node = Node(0, 0.0, SCENARIOS["default"])
        for faults, seconds in ((Faults(), 60), (Faults(cut=2), 40), (Faults(), 40)):
            node.inject(faults)
            for _ in range(pieces):
                node.advance(seconds / pieces)
        ends.append((node.job.steps, node.fabric.ports(), node.fabric.phases(1)))
    assert ends[0][0] == ends[1][0]
    assert ends[0][1]["mlx5_2"].downs == ends[1][1]["mlx5_2"].downs == 1
    assert ends[0][1]["mlx5_2"].sent == pytest.approx(ends[1][1]["mlx5_2"].sent, rel=1e-4)
    assert ends[0][2] == pytest.approx(ends[1][2], abs=1e-3)
