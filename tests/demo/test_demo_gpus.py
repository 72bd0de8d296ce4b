"""The physics of the demo's GPUs: what they show follows from what they do."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from exporter.demo.gpus import (
    FAULTY,
    HELPERS,
    HOTTEST,
    LIMIT,
    MENDING,
    RESERVED,
    SLOW,
    TOP,
    TOTAL,
    Gpu,
)
from exporter.demo.node import Node

BORN = 1.8e9
TICK = 1 / 6
SERVING, TRAINING = slice(0, 4), slice(4, 8)


def state(node: Node) -> list[dict[str, object]]:
    """Return all that a GPU holds, for each."""
    return [{**vars(gpu), "used": gpu.used} for gpu in node.gpus.all]


def ticks(node: Node, seconds: float) -> Iterator[float]:
    """Let a node go on tick by tick; yield the time of each."""
    for _ in range(round(seconds / TICK)):
        node.advance(node.gpus.next - node.now + 1e-6)
        yield node.now


def growing(gpu: Gpu) -> tuple[float, ...]:
    return (
        *gpu.sums, gpu.energy, gpu.capped, gpu.too_hot, gpu.corrected, gpu.uncorrected,
        gpu.remapped,
    )  # fmt: skip


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.fixture(scope="module")
def warmed() -> Node:
    node = Node(0, BORN)
    node.advance(60)
    return node


@pytest.fixture
def warm(warmed: Node) -> Node:
    """Return a node whose GPUs have their working temperature; no rail goes down for a minute."""
    return copy.deepcopy(warmed)


def test_the_same_seed_gives_the_same_gpus() -> None:
    """A seed decides everything; another seed gives other boards."""
    nodes = [Node(seed, BORN) for seed in (1, 1, 2)]
    for node in nodes:
        node.advance(30)
    assert state(nodes[0]) == state(nodes[1])
    assert {gpu.uuid for gpu in nodes[0].gpus.all}.isdisjoint(g.uuid for g in nodes[2].gpus.all)


@pytest.mark.parametrize("step", [0.1, 0.7, 1.0])
def test_how_time_is_cut_does_not_matter(step: float) -> None:
    """Many steps, whatever their length, lead to where one long one leads."""
    once, often = Node(1, BORN), Node(1, BORN)
    once.advance(210)
    for _ in range(round(210 / step)):
        often.advance(step)
    assert state(once) == state(often)
    assert once.gpus.xids == often.gpus.xids


def test_what_grows_never_falls() -> None:
    """Sums, energy and errors only grow."""
    node = Node(3, BORN)
    before = [growing(gpu) for gpu in node.gpus.all]
    for _ in ticks(node, 260):
        after = [growing(gpu) for gpu in node.gpus.all]
        for old, new in zip(before, after, strict=True):
            assert all(a <= b for a, b in zip(old, new, strict=True))
        before = after


def test_shares_are_shares_and_memory_has_room(warm: Node) -> None:
    """No GPU does more than all it can, or holds more than it has."""
    for _ in ticks(warm, 30):
        for gpu in warm.gpus.all:
            assert all(0 <= share <= 1 for share in gpu.rates[1:6])
            assert 0 <= gpu.rates.nvlink < 450e9
            assert 0 <= gpu.rates.sent < 63e9
            assert gpu.used + RESERVED < TOTAL
            assert gpu.sums.seconds == pytest.approx(warm.now, abs=TICK)


def test_energy_is_the_integral_of_power(warm: Node) -> None:
    """Power read each second, summed up, is the energy used."""
    energy = [gpu.energy for gpu in warm.gpus.all]
    joules = [0.0] * 8
    for _ in range(60):
        warm.advance(1)
        joules = [sum_ + gpu.average_power for sum_, gpu in zip(joules, warm.gpus.all, strict=True)]
    for gpu, before, summed in zip(warm.gpus.all, energy, joules, strict=True):
        assert gpu.energy - before == pytest.approx(summed, rel=0.01)


def test_clocks_give_way_to_the_power_limit(warm: Node) -> None:
    """A clock is below the highest only while power or heat holds it, and that time is counted."""
    gpu = warm.gpus.all[4]
    held = 0
    capped = gpu.capped
    for _ in ticks(warm, 30):
        assert gpu.power <= LIMIT
        assert (gpu.clock < TOP) == (gpu.holding != "")
        if gpu.holding == "power":
            held += 1
            assert gpu.power > 0.97 * LIMIT
    assert 0.2 < held * TICK / 30 < 0.9
    assert gpu.capped - capped == pytest.approx(held * TICK)


def test_temperature_follows_power_slowly() -> None:
    """A GPU that stops working cools down over a minute, not at once."""
    node = Node(0, BORN)
    gpu = node.gpus.all[5]
    while node.fabric.ports()["mlx5_3"].up:
        node.advance(1)
    node.advance(3)  # what was computed before the exchange is through
    begin = gpu.temperature
    node.advance(5)
    assert gpu.power < 200
    assert begin - 8 < gpu.temperature < begin - 2
    node.advance(45)
    assert gpu.temperature < begin - 12


def test_one_gpu_is_hotter_and_slower(warm: Node) -> None:
    """The badly cooled GPU slows itself down; it alone does, and the others wait for it."""
    temperatures: dict[int, list[float]] = {n: [] for n in range(4, 8)}
    clocks: dict[int, list[float]] = {n: [] for n in range(4, 8)}
    begin = {n: warm.gpus.all[n].sums for n in range(4, 8)}
    hot = warm.gpus.all[SLOW].too_hot
    for _ in ticks(warm, 60):
        for gpu in warm.gpus.all[TRAINING]:
            temperatures[gpu.index].append(gpu.temperature)
            if gpu.rates.tensor > 0.4:
                clocks[gpu.index].append(gpu.clock)
    others = [n for n in range(4, 8) if n != SLOW]
    assert mean(temperatures[SLOW]) > max(mean(temperatures[n]) for n in others) + 10
    assert max(temperatures[SLOW]) < HOTTEST + 3
    assert 0.85 < mean(clocks[SLOW]) / mean(clocks[others[0]]) < 0.97
    assert warm.gpus.all[SLOW].too_hot > hot
    assert [gpu.too_hot for gpu in warm.gpus.all if gpu.index != SLOW] == [0] * 7
    busy = {n: warm.gpus.all[n].sums.sms - begin[n].sms for n in range(4, 8)}
    assert busy[SLOW] > 1.03 * max(busy[n] for n in others)


def test_all_trainers_do_the_same_work(warm: Node) -> None:
    """Tensor activity times clock is the same on all four: they compute in step."""
    done = [0.0] * 4
    steps = warm.fabric.phases().steps
    for _ in ticks(warm, 60):
        for n, gpu in enumerate(warm.gpus.all[TRAINING]):
            done[n] += gpu.rates.tensor * gpu.clock / 1830 * 989.4e12 * TICK
    assert min(done) / max(done) > 0.96
    steps = warm.fabric.phases().steps - steps
    assert mean(done) == pytest.approx(6 * 13e9 * 16_384 * steps, rel=0.05)


def test_servers_compute_what_the_engine_counts() -> None:
    """Four GPUs together did two operations for each parameter and token of the engine's steps."""
    node = Node(4, BORN)
    done = 0.0
    for _ in ticks(node, 60):
        for gpu in node.gpus.all[SERVING]:
            done += gpu.rates.tensor * gpu.clock / 1830 * 989.4e12 * TICK
    tokens = node.vllm.seen["iteration_tokens_total"].sum
    assert done == pytest.approx(2 * node.vllm.spec.parameters * tokens, rel=0.01)


def test_decoding_waits_for_memory_and_prompts_for_arithmetic() -> None:
    """The busier the tensor cores, the idler the memory: the two ends of the roofline."""
    node = Node(0, BORN)
    seen = []
    for _ in ticks(node, 200):
        rates = node.gpus.all[0].rates
        if rates.kernels > 0.8:
            seen.append((rates.tensor, rates.memory))
    decoding = [memory for tensor, memory in seen if tensor < 0.1]
    prompts = [memory for tensor, memory in seen if tensor > 0.4]
    assert len(decoding) > 50
    assert len(prompts) > 50
    assert mean(decoding) > 0.5
    assert mean(prompts) < 0.3


def test_trainers_rest_while_a_checkpoint_is_written() -> None:
    """For a few seconds no trainer runs a kernel and no rail moves; servers go on."""
    node = Node(0, BORN)
    while node.fabric.steps < 50:
        node.advance(0.5)
    assert node.fabric.ports()["mlx5_bond_0"].sent < 2.8e9
    node.advance(1)
    rails = node.fabric.moved(*range(8))
    rested = 0
    for _ in ticks(node, 2):
        assert [gpu.rates.kernels for gpu in node.gpus.all[TRAINING]] == [0] * 4
        assert all(100 < gpu.power < 200 for gpu in node.gpus.all[TRAINING])
        rested += node.gpus.all[0].rates.kernels > 0
    assert rested > 0
    assert node.fabric.moved(*range(8)) == rails
    node.advance(10)
    assert node.fabric.ports()["mlx5_bond_0"].sent > 2.8e9
    assert node.gpus.all[4].rates.kernels == pytest.approx(1)


def test_waiting_looks_busy_and_does_nothing() -> None:
    """While a rail is down, kernels run all the time and no tensor core works."""
    node = Node(0, BORN)
    while node.fabric.ports()["mlx5_3"].up:
        node.advance(1)
    node.advance(5)
    for gpu in node.gpus.all[TRAINING]:
        assert gpu.utilization[-1][1] == 100
        assert gpu.rates.tensor == 0 < gpu.rates.sms < 0.2


def test_links_carry_what_the_rails_brought(warm: Node) -> None:
    """Each trainer hands its rails' bytes to three others, and they go over PCIe once."""
    before = [gpu.sums for gpu in warm.gpus.all[TRAINING]]
    warm.advance(30)
    for old, gpu in zip(before, warm.gpus.all[TRAINING], strict=True):
        assert gpu.sums.nvlink - old.nvlink == pytest.approx(3 * (gpu.sums.sent - old.sent))
    sent = sum(gpu.sums.sent for gpu in warm.gpus.all[TRAINING])
    assert sent == pytest.approx(warm.fabric.moved(*range(8))[0], rel=0.02)


def test_errors_are_where_they_belong() -> None:
    """One GPU has corrected errors now and then, then one that is not and an XID for it."""
    node = Node(0, BORN)
    faulty = node.gpus.all[FAULTY]
    assert [gpu.index for gpu in node.gpus.all if gpu.remap_pending] == [MENDING]
    while not node.gpus.xids:
        node.advance(1)
    assert 90 <= node.now < 200
    (xid,) = node.gpus.xids
    assert (xid.number, xid.gpu, xid.code, xid.pid) == (1, FAULTY, 94, HELPERS[0].pid)
    assert node.now - 1 - TICK < xid.at <= node.now
    assert (faulty.uncorrected, faulty.remap_pending) == (1, True)
    assert [process.name for process in faulty.processes] == ["VLLM::Worker_TP"]
    node.advance(30)
    assert faulty.processes[1:] == (HELPERS[1],)
    node.advance(1900)
    assert len(node.gpus.xids) in (2, 3)
    assert [xid.number for xid in node.gpus.xids] == list(range(1, len(node.gpus.xids) + 1))
    assert 15 < faulty.corrected < 75
    assert sum(gpu.corrected + gpu.uncorrected for gpu in node.gpus.all) == (
        faulty.corrected + faulty.uncorrected
    )


def test_memory_is_weights_and_cache_or_the_trainer(warm: Node) -> None:
    """A vLLM worker holds its share of both and what vLLM keeps free of the rest."""
    spec = warm.vllm.spec
    (worker,) = warm.gpus.all[0].processes
    assert worker.memory > (spec.weights + spec.kv_bytes * spec.kv_tokens) / 4
    assert worker.memory / TOTAL == pytest.approx(0.92, abs=0.01)
    assert len({process.pid for gpu in warm.gpus.all for process in gpu.processes}) == 9
