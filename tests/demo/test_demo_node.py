"""The model of the demo's node: its numbers hold together whatever the caller's steps are."""

from __future__ import annotations

from random import Random

import pytest

from exporter.demo.node import BOUNDS, RAILS, Buckets, Node, Port, Server, Spec, Traffic

BORN = 1.8e9


def counters(server: Server) -> dict[str, float]:
    """Return everything of a server that may only grow."""
    numbers = {
        name: value
        for name, value in vars(server).items()
        if isinstance(value, int | float) and name != "held" and not name.startswith("_")
    }
    numbers |= server.finished
    for name, seen in server.seen.items():
        numbers[f"{name} sum"] = seen.sum
        numbers |= {f"{name} {at}": count for at, count in enumerate(seen.counts)}
    return numbers


def state(node: Node) -> object:
    """Return all that can be seen of a node."""
    servers = [
        (counters(server), server.held, len(server.waiting), len(server.running))
        for server in (node.vllm, node.llamacpp)
    ]
    return servers, node.fabric.ports(), node.fabric.interfaces()


def moved(port: Port) -> tuple[int, ...]:
    return port.sent, port.received, port.waits, port.symbols, port.downs, port.resent


@pytest.fixture(scope="module")
def busy() -> Node:
    """Return a node that has been through bursts and a port that was down."""
    node = Node(0, BORN)
    node.advance(900)
    return node


def test_counters_never_fall() -> None:
    """Whatever a scraper takes for a counter only grows."""
    node = Node(3, BORN)
    before = counters(node.vllm) | {f"small {k}": v for k, v in counters(node.llamacpp).items()}
    ports = node.fabric.ports()
    for _ in range(300):
        node.advance(1)
        after = counters(node.vllm) | {f"small {k}": v for k, v in counters(node.llamacpp).items()}
        assert [name for name, value in before.items() if after[name] < value] == []
        now = node.fabric.ports()
        for name in ports:
            assert all(a >= b for a, b in zip(moved(now[name]), moved(ports[name]), strict=True))
        before, ports = after, now


def test_the_same_seed_gives_the_same_node() -> None:
    """A seed decides everything; another seed gives something else."""
    nodes = [Node(seed, BORN) for seed in (1, 1, 2)]
    for node in nodes:
        node.advance(60)
    assert state(nodes[0]) == state(nodes[1])
    assert state(nodes[0]) != state(nodes[2])


def test_how_time_is_cut_does_not_matter() -> None:
    """Many small steps lead to where one large step leads."""
    once, often = Node(1, BORN), Node(1, BORN)
    once.advance(200)
    for _ in range(2000):
        often.advance(0.1)
    assert state(once) == state(often)


def test_time_does_not_go_back() -> None:
    """A negative step is refused."""
    with pytest.raises(ValueError, match="go back"):
        Node(0).advance(-1)


def test_each_request_is_counted_where_it_belongs(busy: Node) -> None:
    """First tokens are of all requests that began, outcomes and latencies of those that ended."""
    server = busy.vllm
    ended = sum(server.finished.values())
    begun = sum(1 for r in (*server.running, *server.waiting) if r.produced)
    count = {name: sum(seen.counts) for name, seen in server.seen.items()}
    assert count.pop("time_to_first_token_seconds") == ended + server.aborted + begun
    assert count.pop("inter_token_latency_seconds") == (
        server.generated - ended - server.aborted - begun
    )
    assert count.pop("iteration_tokens_total") in (server.steps, server.steps - 1)
    assert set(count.values()) == {ended}
    assert server.aborted > 0


@pytest.fixture(scope="module")
def tight() -> Server:
    """Return a server whose KV cache is too small for its bursts."""
    spec = Node(0, BORN).vllm.spec._replace(kv_tokens=160_000)
    traffic = Traffic(Random(1), rate=3.6, agents=0.3, longest=32_000)
    server = Server(spec, traffic, Random(2))
    server.advance(600)
    assert server.preempted > 0
    return server


@pytest.mark.parametrize("which", ["busy", "tight"])
def test_tokens_are_the_sum_over_requests(which: str, busy: Node, tight: Server) -> None:
    """No token is lost or counted twice, preempted and aborted requests included."""
    server = tight if which == "tight" else busy.vllm
    open_requests = [*server.running, *server.waiting]
    assert server.generated == server.ended_tokens + sum(r.produced for r in open_requests)
    assert server.held == sum(r.context for r in server.running)
    # the input of those that were aborted is in the counter and not in the histogram
    prompts = server.seen["request_prompt_tokens"].sum
    assert prompts < server.prompted < prompts * 1.2


def test_latencies_are_those_of_a_real_server(busy: Node) -> None:
    """Means lie where an operator expects them, in light and in heavy load."""

    def mean(name: str) -> float:
        seen = busy.vllm.seen[name]
        return seen.sum / sum(seen.counts)

    assert 0.1 < mean("time_to_first_token_seconds") < 2
    assert 0.015 < mean("request_time_per_output_token_seconds") < 0.06
    assert 0.015 < mean("inter_token_latency_seconds") < 0.06
    assert mean("e2e_request_latency_seconds") == pytest.approx(
        mean("request_queue_time_seconds") + mean("request_inference_time_seconds")
    )
    small = busy.llamacpp
    assert 0.01 < small.decode_seconds / small.ended_tokens < 0.06


def test_a_step_takes_as_long_as_its_roofline_says() -> None:
    """Few tokens wait for memory, many for arithmetic."""
    spec = Spec("m", 1e9, 2e9, 1e12, 1e12, 1e5, 1000, 8, 512, 0.001)
    assert spec.seconds(1, 0) == pytest.approx(0.003)
    assert spec.seconds(1, 10_000) == pytest.approx(0.004)
    assert spec.seconds(500, 0) == pytest.approx(1.001)


def test_a_value_at_a_bound_belongs_below_it() -> None:
    """Buckets count as Prometheus does: less than or equal."""
    seen = Buckets((1.0, 2.0))
    for value in (1.0, 1.5, 2.0, 3.0):
        seen.observe(value)
    assert (seen.counts, seen.sum) == ([1, 2, 1], 7.5)
    assert all(list(bounds) == sorted(bounds) for bounds in BOUNDS.values())


def test_a_port_goes_down_and_comes_back() -> None:
    """Rail 3 is down for a while, counts it, and the job stands still meanwhile."""
    node = Node(0, BORN)
    down: list[tuple[int, int]] = []
    for _ in range(400):
        node.advance(1)
        port = node.fabric.ports()["mlx5_3"]
        if not port.up:
            down.append((port.downs, port.sent))
    assert 55 < len(down) < 125
    assert len(set(down)) == 1
    assert node.fabric.ports()["mlx5_3"].up
    assert node.fabric.ports()["mlx5_3"].sent > down[0][1]
    assert sum(port.downs for port in node.fabric.ports().values()) == 1


def test_all_rails_move_the_same_and_the_slow_one_is_seen(busy: Node) -> None:
    """Volume does not tell a slow rail from the others; its waiting and its errors do."""
    ports = busy.fabric.ports()
    sent = [ports[name].sent for name in RAILS]
    assert max(sent) - min(sent) <= max(sent) / busy.fabric.steps  # at most one step's worth
    worst = max(RAILS, key=lambda name: ports[name].waits)
    assert worst == max(RAILS, key=lambda name: ports[name].symbols) == "mlx5_5"
    seconds, line = busy.now, 50e9
    assert all(0.1 < ports[name].sent / seconds / line < 0.9 for name in RAILS)
