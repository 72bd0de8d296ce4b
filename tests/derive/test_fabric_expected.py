"""Expected bus bandwidth beside the measured one, and what it says of SHARP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exporter import catalogue as c
from exporter.derive.fabric.expected import Limits, expected
from exporter.samples import Sample
from tests.derive.fabric_lab import Told, h100, rails, rounds

NDR = 50e9
KEY = ("llama", "2", "AllReduce", "inf")


def node(*, rate: float | None = NDR, nvlink: bool = True, topology: bool = True
         ) -> Iterator[Sample]:  # fmt: skip
    """Yield eight H100 with a port of 400 Gbit/s for each."""
    for gpu in range(8):
        yield h100(str(gpu))
        if nvlink:
            yield c.GPU_NVLINK_PEAK_BANDWIDTH_BYTES_PER_SECOND(450e9, f"{gpu}", f"GPU-{gpu}")
        if rate is not None:
            yield c.NIC_LINK_RATE_BYTES_PER_SECOND(rate, f"mlx5_{gpu}", "1")
    if topology:
        yield from rails()


def operation(
    bandwidth: float, ranks: int, nodes: int, *, collective: str = "AllReduce", run: str = "llama"
) -> Iterator[Sample]:
    key = (run, "2", collective, "inf")
    yield c.NCCL_BUS_BANDWIDTH_BYTES_PER_SECOND(bandwidth, *key)
    yield c.NCCL_COMMUNICATOR_INFO(1, *key, str(ranks), str(nodes))


def told(*samples: Iterator[Sample], limits: Limits = Limits()) -> Told:  # noqa: B008
    every = [one for some in samples for one in some]
    return rounds(expected(limits), lambda _: every, 100)


def at(found: Told, metric: object, *labels: str) -> float | None:
    return found.get((metric, labels))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("ranks", "nodes", "bandwidth"),
    [
        (8, 1, 405e9),  # NVLink, of which protocols leave 90 %
        (32, 4, 360e9),  # eight ports
        (4, 4, 45e9),  # one rank on each node: one port (data parallel over tensor parallel of 8)
        (16, 4, 180e9),  # four on each
        (2, 1, 405e9),
    ],
)
def test_the_links_of_the_communicator_are_what_is_expected(
    ranks: int, nodes: int, bandwidth: float
) -> None:
    found = told(node(), operation(bandwidth / 2, ranks, nodes))
    metric = c.NCCL_EXPECTED_BUS_BANDWIDTH_BYTES_PER_SECOND
    assert at(found, metric, *KEY) == pytest.approx(bandwidth)
    assert at(found, c.NCCL_BUS_BANDWIDTH_RATIO, *KEY) == pytest.approx(0.5)


def test_an_all_to_all_over_nodes_has_a_gpu_s_own_port() -> None:
    """Bus bandwidth (n-1)/n of it, since n-m of n parts leave the node."""
    found = told(node(), operation(1e9, 32, 4, collective="AllToAll"))
    key = ("llama", "2", "AllToAll", "inf")
    metric = c.NCCL_EXPECTED_BUS_BANDWIDTH_BYTES_PER_SECOND
    assert at(found, metric, *key) == pytest.approx(45e9 * 31 / 24)


@pytest.mark.parametrize(
    "samples",
    [
        node(rate=None), node(topology=False), node(nvlink=False),
    ],
    ids=["no-rate", "no-topology", "no-nvlink"],
)  # fmt: skip
def test_without_a_link_s_rate_nothing_is_expected(samples: Iterator[Sample]) -> None:
    found = told(samples, operation(100e9, 32, 4))
    assert found == {}


def test_a_port_that_is_down_leaves_no_expectation() -> None:
    """Its rate is absent, so that nobody knows what the ring has."""
    left = (one for one in node() if one.labels[:1] != ("mlx5_3",) or one.metric is not
            c.NIC_LINK_RATE_BYTES_PER_SECOND)  # fmt: skip
    assert told(left, operation(100e9, 32, 4)) == {}


def test_operations_of_unknown_communicators_have_none() -> None:
    bare = (c.NCCL_BUS_BANDWIDTH_BYTES_PER_SECOND(1e9, *KEY) for _ in range(1))
    assert told(node(), bare) == {}


def test_ranks_that_nodes_share_unevenly_have_none() -> None:
    assert told(node(), operation(100e9, 33, 4)) == {}


def test_a_measured_reference_goes_before_the_theory() -> None:
    limits = Limits(reference=480e9)
    metric = c.NCCL_EXPECTED_BUS_BANDWIDTH_BYTES_PER_SECOND
    assert at(told(node(), operation(400e9, 32, 4), limits=limits), metric, *KEY) == 480e9
    # It is one of whole nodes.
    found = told(node(), operation(40e9, 4, 4), limits=limits)
    assert at(found, metric, *KEY) == pytest.approx(45e9)


# ---------------------------------------------------------------- SHARP


def sharp(*samples: Iterator[Sample], limits: Limits = Limits()) -> float | None:  # noqa: B008
    return at(told(*samples, limits=limits), c.NCCL_COLLNET_ACTIVE, "llama")


def logged(value: int) -> Iterator[Sample]:
    yield c.NCCL_COLLNET_LOGGED(value, "llama")


def test_more_than_the_ports_carry_is_sharp() -> None:
    """Eight ports of 50 GB/s, and 480 GB/s between four nodes."""
    assert sharp(node(), operation(480e9, 32, 4)) == 1


def test_what_the_ports_can_carry_says_nothing() -> None:
    assert sharp(node(), operation(390e9, 32, 4)) is None


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_a_tree_over_few_nodes_is_no_sharp(nodes: int) -> None:
    """Of two nodes it has almost twice the bus bandwidth of a ring."""
    assert sharp(node(), operation(480e9, 8 * nodes, nodes)) is None


def test_far_below_the_reference_is_without_sharp() -> None:
    limits = Limits(reference=480e9)
    assert sharp(node(), operation(300e9, 32, 4), limits=limits) == 0
    assert sharp(node(), operation(390e9, 32, 4), limits=limits) is None


def test_the_log_goes_before_the_bandwidth() -> None:
    assert sharp(node(), operation(480e9, 32, 4), logged(0)) == 0
    assert sharp(logged(1)) == 1


def test_one_rank_s_evidence_is_the_run_s() -> None:
    fast = operation(480e9, 32, 4)
    slow = (one._replace(labels=("llama", "3", *one.labels[2:])) for one in operation(200e9, 32, 4))
    assert sharp(node(), fast, slow, limits=Limits(reference=460e9)) == 1
