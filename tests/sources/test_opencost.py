"""The price that OpenCost tells of this node: over HTTP, with what such pages hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exporter import catalogue as c
from exporter.clock import SystemClock
from exporter.fetch import HttpFetcher
from exporter.samples import Drop, Fault, Malformed, Sample, SourceError
from exporter.sources.opencost import OpenCostSource
from tests.servers import Server, reply

ROW = (
    '{{arch="amd64",instance="{node}",instance_type="{kind}",node="{node}",'
    'provider_id="aws:///use1-az1/i-0",region="us-east-1",uid="7"}} {value}\n'
)
"""The labels that OpenCost gives to what it tells of a node."""


def page(*rows: tuple[str, str, str], spot: str = "0") -> bytes:
    """Return a page with nodes, their instance types and the prices of their GPUs."""
    text = "# HELP node_gpu_hourly_cost node_gpu_hourly_cost hourly cost for each gpu\n"
    text += "# TYPE node_gpu_hourly_cost gauge\n"
    for node, kind, value in rows:
        text += "node_gpu_hourly_cost" + ROW.format(node=node, kind=kind, value=value)
    text += "# TYPE node_total_hourly_cost gauge\nnode_total_hourly_cost" + ROW.format(
        node="gpu-1", kind="p5.48xlarge", value="99"
    )
    text += "# TYPE kubecost_node_is_spot gauge\nkubecost_node_is_spot" + ROW.format(
        node="gpu-1", kind="p5.48xlarge", value=spot
    )
    return text.encode()


@pytest.fixture
def read() -> Iterator[object]:
    servers: list[Server] = []

    def ask(*answers: bytes) -> list[Sample | Fault | Drop]:
        server = Server([*answers])
        servers.append(server)
        fetcher = HttpFetcher(server.url(), timeout=5, clock=SystemClock())
        source = OpenCostSource(fetcher, "gpu-1")
        try:
            return list(source.read())
        finally:
            source.close()

    yield ask
    for server in servers:
        server.close()


def test_the_price_of_this_node_is_taken_and_no_other(read) -> None:  # type: ignore[no-untyped-def]
    """One page tells of all nodes; the price is of one GPU, not of the node."""
    body = page(
        ("cpu-1", "m7i.large", "0"), ("gpu-1", "p5.48xlarge", "6.88"), ("gpu-2", "g6.xlarge", "0.8")
    )
    assert read(reply(body)) == [c.COST_OPENCOST_GPU_HOUR_DOLLARS(6.88, "p5.48xlarge", "")]


def test_a_spot_node_is_said_to_be_one(read) -> None:  # type: ignore[no-untyped-def]
    body = page(("gpu-1", "p5.48xlarge", "2.5"), spot="1")
    assert read(reply(body)) == [c.COST_OPENCOST_GPU_HOUR_DOLLARS(2.5, "p5.48xlarge", "spot")]


def test_nought_is_no_price(read) -> None:  # type: ignore[no-untyped-def]
    """OpenCost tells 0 where it knows of no GPU."""
    assert read(reply(page(("gpu-1", "m7i.large", "0")))) == []


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
def test_what_cannot_be_a_price_is_refused(read, value: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Malformed, match="is no price"):
        read(reply(page(("gpu-1", "p5.48xlarge", value))))


def test_two_prices_of_one_node_are_none(read) -> None:  # type: ignore[no-untyped-def]
    """A node that was replaced under its old name, seen twice with different prices."""
    body = page(("gpu-1", "p5.48xlarge", "6.88"), ("gpu-1", "p4d.24xlarge", "2.7"))
    with pytest.raises(Malformed, match="2 prices of node 'gpu-1'"):
        read(reply(body))


def test_a_page_without_the_node_names_the_key_that_says_which(read) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SourceError, match=r"no row of it has node='gpu-1' \(sources.opencost.node"):
        read(reply(page(("gpu-2", "g6.xlarge", "0.8"))))


def test_another_servers_page_is_said_to_be_one(read) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SourceError, match="no OpenCost"):
        read(reply(b"# TYPE up gauge\nup 1\n"))
