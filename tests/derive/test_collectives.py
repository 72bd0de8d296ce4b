"""The theory of collectives against what was published: nccl-tests, NCCL, the seed chapter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.derive import parallel
from exporter.derive.fabric.collectives import ALGORITHMS, FACTORS, NAMES, Fabric, algorithm
from exporter.derive.fabric.traffic import STRATEGIES, Job, Model, step
from exporter.formats import nccl_inspector
from exporter.reference.models import load

DATA = Path(__file__).parent.parent / "data"
SEED = {
    row["id"]: row
    for rows in ("numbers", "wrong")
    for row in json.loads((DATA / "training" / "seed-numbers.json").read_text("utf-8"))[rows]
}
ALL_REDUCE = {one.name: one for one in ALGORITHMS if one.collective == "all_reduce"}
SUPERPOD = Fabric()
"""Eight H100 and eight NDR ports on a node, of which protocols leave 90 %."""


# ---------------------------------------------------------------- what was measured


def test_factors_turn_the_bandwidths_of_nccl_tests_into_each_other() -> None:
    """Each row of a table that it printed, of 8 ranks: bus bandwidth over the algorithm's."""
    rows = 0
    for line in (DATA / "fabric" / "all_reduce_perf-8xh100.txt").read_text().splitlines():
        fields = line.split()
        if not line.startswith("#") and len(fields) == 13:
            assert float(fields[7]) == pytest.approx(
                float(fields[6]) * FACTORS["all_reduce"](8), rel=1e-3, abs=0.02
            )
            rows += 1
    assert rows == 3


def test_factors_are_those_of_nccl_inspector() -> None:
    """Its records hold size, time and bus bandwidth."""
    seen = set()
    for line in (DATA / "fabric" / "nccl_inspector.log").read_bytes().splitlines():
        one = nccl_inspector.read(line)
        if one is None or one.bandwidth is None:
            continue
        factor = FACTORS[NAMES[one.name]](one.ranks)
        assert one.bandwidth == pytest.approx(factor * one.size / one.seconds, rel=1e-2)
        seen.add(one.name)
    assert {"AllReduce", "ReduceScatter", "Send"} <= seen


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("all_reduce", 512, 1.99609375),
        ("reduce_scatter", 8, 0.875), ("all_gather", 8, 0.875), ("all_to_all", 8, 0.875),
        ("broadcast", 8, 1.0), ("reduce", 8, 1.0), ("send_receive", 8, 1.0),
    ],
)  # fmt: skip
def test_factors_are_those_that_nccl_tests_documents(
    collective: str, ranks: int, factor: float
) -> None:
    assert FACTORS[collective](ranks) == factor


# ---------------------------------------------------------------- the seed's 16.4.2


def test_the_seed_s_worked_example_of_a_ring_is_reproduced() -> None:
    """512 GPUs, a shard of 274 MB, 45 GB/s: 12 ms; the whole gradient of 140 GB: 6.2 s."""
    for row, size in (("allreduce-shard-ms", 0.274e9), ("allreduce-ddp-s", 140e9)):
        inputs = SEED[row]["inputs"]
        seconds = ALL_REDUCE["ring"].seconds(size, inputs["n"], inputs["bw_gbs"] * 1e9)
        assert seconds == parallel.ring_seconds(size, inputs["n"], inputs["bw_gbs"] * 1e9)
        scale = 1000 if row.endswith("ms") else 1
        assert seconds * scale == pytest.approx(SEED[row]["computed"], rel=1e-6)
        assert seconds * scale == pytest.approx(SEED[row]["expected"], abs=SEED[row]["tolerance"])


def test_the_seed_s_tree_is_one_without_sharp() -> None:
    """2 x size / bandwidth is what a tree costs; with SHARP it is size / bandwidth."""
    tree, sharp = ALL_REDUCE["tree"], ALL_REDUCE["sharp"]
    assert tree.seconds(140e9, 512, 45e9) == pytest.approx(2 * 140e9 / 45e9)
    assert sharp.seconds(140e9, 512, 45e9) == pytest.approx(140e9 / 45e9)


def test_a_ring_of_many_nodes_uses_all_ports_of_a_node() -> None:
    """So 360 GB/s and 0.78 s, where the chapter has 45 GB/s and 6.2 s."""
    group = SUPERPOD.group(512)
    assert group.bandwidth == pytest.approx(SEED["allreduce-bandwidth"]["right_value"] * 1e9)
    assert group.seconds("all_reduce", 140e9) == pytest.approx(0.776, abs=0.001)
    one_port = SUPERPOD._replace(nics_per_node=1).group(512)
    assert one_port.seconds("all_reduce", 140e9) == pytest.approx(6.21, abs=0.001)


def test_fsdp_sends_three_times_the_model_and_not_a_shard() -> None:
    """70B in 16 bits on 1024 GPUs: the chapter has 137 MB and 5.5 ms."""
    row = SEED["fsdp-traffic"]
    raw = Fabric(efficiency=1.0)
    sent = step(Job(Model("70B", 70e9), data=1024), raw, "fsdp")
    assert [(one.collective, one.times) for one in sent] == [
        ("all_gather", 2), ("reduce_scatter", 1),
    ]  # fmt: skip
    assert sum(one.sent for one in sent) == pytest.approx(3 * 140e9, rel=2e-3)
    right = row["right_value"]
    assert sum(one.seconds for one in sent) == pytest.approx(right[1], abs=0.01)
    single = raw._replace(nics_per_node=1)
    slow = step(Job(Model("70B", 70e9), data=1024), single, "fsdp")
    assert sum(one.seconds for one in slow) == pytest.approx(right[0], abs=0.02)


# ---------------------------------------------------------------- algorithms


def test_switches_that_add_up_bring_what_their_factors_say() -> None:
    """NVLS of 8 GPUs 1.56 times a ring, SHARP of 512 almost twice."""
    ring, nvls, sharp = (ALL_REDUCE[name] for name in ("ring", "nvls", "sharp"))
    assert ring.seconds(1e9, 8, 450e9) / nvls.seconds(1e9, 8, 450e9) == pytest.approx(1.5556, 1e-3)
    assert ring.seconds(1e9, 512, 45e9) / sharp.seconds(1e9, 512, 45e9) == pytest.approx(
        1.996, 1e-3
    )
    assert sharp.bus_bandwidth(512, 45e9) > 45e9


def test_measured_bus_bandwidth_of_nvls_lies_between_ring_and_ideal() -> None:
    """485 GB/s of 8 H100 (NCCL Inspector's own example) is above their 450 GB/s of NVLink."""
    measured = 485.119099e9
    assert ALL_REDUCE["ring"].bus_bandwidth(8, 450e9) < measured
    assert measured < ALL_REDUCE["nvls"].bus_bandwidth(8, 450e9)


def test_latency_is_what_small_messages_cost_and_a_tree_has_fewer_steps() -> None:
    """8 bytes on 512 ranks: 1022 steps of a ring, 18 of a tree."""
    assert ALL_REDUCE["ring"].seconds(8, 512, 45e9, 5e-6) == pytest.approx(1022 * 5e-6, rel=1e-3)
    assert ALL_REDUCE["tree"].seconds(8, 512, 45e9, 5e-6) == pytest.approx(18 * 5e-6, rel=1e-3)


@pytest.mark.parametrize("how", ALGORITHMS, ids=lambda one: f"{one.collective}-{one.name}")
def test_one_rank_alone_needs_no_time(how: object) -> None:
    assert how.seconds(1e9, 1, 45e9, 1e-6) == 0  # type: ignore[attr-defined]


def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather() -> None:
    parts = [algorithm(name).seconds(1e9, 16, 45e9) for name in ("reduce_scatter", "all_gather")]
    assert algorithm("all_reduce").seconds(1e9, 16, 45e9) == pytest.approx(sum(parts))


# ---------------------------------------------------------------- groups


@pytest.mark.parametrize(
    ("ranks", "stride", "local", "bandwidth"),
    [
        (8, 1, 8, 405e9),  # a node
        (512, 1, 8, 360e9),  # all of the cluster: eight ports
        (64, 8, 1, 45e9),  # data parallel over tensor parallel of 8: each GPU its own port
        (128, 4, 2, 90e9),  # two of a node's GPUs, and their share of its ports
        (4, 2, 4, 405e9),  # every other GPU of one node
    ],
)
def test_a_group_has_its_share_of_the_ports(
    ranks: int, stride: int, local: int, bandwidth: float
) -> None:
    """The other GPUs of the node are in groups like it, at the same time."""
    group = SUPERPOD.group(ranks, stride)
    assert group.local == local
    assert group.bandwidth == pytest.approx(bandwidth)


def test_nvlink_limits_a_ring_where_ports_are_faster() -> None:
    fast = Fabric(nic=100e9, nvlink=300e9)
    assert fast.group(64).bandwidth == pytest.approx(270e9)


def test_tokens_for_other_nodes_do_not_go_over_nvlink() -> None:
    """All-to-all over 64 ranks of 8 nodes: 56 of 64 parts go through the GPU's own port."""
    seconds = SUPERPOD.group(64).seconds("all_to_all", 1e9)
    assert seconds == pytest.approx(56 / 64 * 1e9 / 45e9)


# ---------------------------------------------------------------- steps

LLAMA = Model.of(load().resolve("Llama-2-70b"))  # type: ignore[arg-type]
DEEPSEEK = Model.of(load().resolve("DeepSeek-V3"))  # type: ignore[arg-type]


def test_a_model_s_experts_are_apart() -> None:
    """671 B weights of DeepSeek-V3, 654 B of them in 58 layers of 256 experts."""
    assert DEEPSEEK.dense + DEEPSEEK.experts == pytest.approx(671.03e9, rel=1e-4)
    assert DEEPSEEK.experts == 58 * 256 * 44040192
    assert LLAMA.experts == 0


def test_ddp_reduces_all_gradients_once() -> None:
    (one,) = step(Job(LLAMA, data=512, micro_batches=8), SUPERPOD, "ddp")
    assert (one.collective, one.times) == ("all_reduce", 1)
    assert one.sent == pytest.approx(2 * 511 / 512 * LLAMA.dense * 2)


def test_tensor_and_pipeline_parallel_ranks_reduce_only_their_part() -> None:
    (one,) = step(Job(LLAMA, data=32, tensor=4, pipeline=4), SUPERPOD, "ddp")
    assert one.size == pytest.approx(LLAMA.dense * 2 / 16)
    assert one.group.local == 2


def test_hsdp_gathers_within_a_node_and_reduces_shards_between_nodes() -> None:
    sent = step(Job(LLAMA, data=512), SUPERPOD, "hsdp")
    assert [(one.collective, one.group.ranks, one.group.within) for one in sent] == [
        ("all_gather", 8, True), ("reduce_scatter", 8, True), ("all_reduce", 64, False),
    ]  # fmt: skip
    assert sent[2].size == pytest.approx(LLAMA.dense * 2 / 8)
    assert sent[2].group.bandwidth == pytest.approx(45e9)


def test_hsdp_of_one_group_is_fsdp() -> None:
    fsdp = step(Job(LLAMA, data=8), SUPERPOD, "fsdp")
    hsdp = step(Job(LLAMA, data=8, shard=8), SUPERPOD, "hsdp")
    assert [one.sent for one in hsdp] == [one.sent for one in fsdp]


def test_tensor_parallelism_reduces_activations_four_times_a_layer() -> None:
    """80 layers, 2 micro-batches of 4096 tokens, 8192 wide, 2 bytes: 64 MiB each time."""
    (one,) = step(Job(LLAMA, tensor=8, micro_batches=2), SUPERPOD, "tp")
    assert (one.times, one.size) == (4 * 80 * 2, 4096 * 8192 * 2)
    assert one.group.within


def test_a_stage_sends_each_micro_batch_on_and_its_gradient_back() -> None:
    (one,) = step(Job(LLAMA, data=8, pipeline=4, micro_batches=16), SUPERPOD, "pp")
    assert (one.collective, one.times, one.size) == ("send_receive", 32, 4096 * 8192 * 2)
    (twice,) = step(Job(LLAMA, data=8, pipeline=4, micro_batches=16, virtual_stages=2), SUPERPOD,
                    "pp")  # fmt: skip
    assert twice.times == 64


def test_tokens_go_to_their_experts_and_back_forward_and_backward() -> None:
    """8 of 256 experts for each of 4096 tokens of 7168 numbers, in 58 layers."""
    (one,) = step(Job(DEEPSEEK, data=64, expert=64), SUPERPOD, "ep")
    assert (one.collective, one.times) == ("all_to_all", 4 * 58)
    assert one.size == 4096 * 8 * 7168 * 2


def test_gradients_of_experts_are_reduced_among_those_that_hold_the_same() -> None:
    dense, experts = step(Job(DEEPSEEK, data=64, expert=8), SUPERPOD, "ddp")
    assert (dense.group.ranks, experts.group.ranks) == (64, 8)
    assert experts.size == pytest.approx(DEEPSEEK.experts * 2 / 8)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_gpu_sends_nothing(strategy: str) -> None:
    assert step(Job(LLAMA), SUPERPOD, strategy) == []


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (Job(LLAMA, data=8, expert=2), "expert: Llama-2-70b has no experts"),
        (Job(DEEPSEEK, data=8, expert=3), "expert: 3 does not divide the 8"),
        (Job(DEEPSEEK, data=512, expert=512), "expert: the model has 256 experts"),
        (Job(LLAMA, data=8, shard=3), "shard: 3 does not divide"),
        (Job(LLAMA, pipeline=81), "pipeline: 80 layers are not enough"),
    ],
)
def test_sizes_that_do_not_fit_together_are_named(job: Job, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        step(job, SUPERPOD, "ddp")
