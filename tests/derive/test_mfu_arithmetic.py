"""How others got MFU wrong (notes on GPU exporters, section 4.7): each mistake, and that it is none
of ours. Named after what a user saw."""

from __future__ import annotations

import pytest

from exporter.derive import parallel
from exporter.derive.flops import Task, count, token_flops, utilization
from exporter.reference.accelerators import load as load_accelerators
from exporter.reference.models import load, read_config
from exporter.training.records import Facts
from tests.derive.published import MODELS

TABLE, PRODUCTS = load(), load_accelerators()


def task(name: str, length: int = 4096) -> Task:
    return Task(shape=read_config(MODELS[name]["config"]), sequence_length=length)


def peak(name: str, precision: str = "bf16") -> float:
    match = PRODUCTS.resolve(name)
    assert match is not None
    return match.accelerator.peaks[precision]


def test_64_mfu_of_a_mixture_of_experts_is_18_times_too_high() -> None:
    """prime-rl 778: all parameters of DeepSeek-V3 were counted, though a token meets 5.6 %."""
    deepseek = task("deepseek-v3")
    active, everything = token_flops(deepseek, "6n"), token_flops(deepseek, "6n_total")
    assert everything / active == pytest.approx(17.9, abs=0.1)
    told = count(
        Facts(run="a", config=MODELS["deepseek-v3"]["config"], sequence_length=4096), TABLE
    )
    assert told.model["6n"] == active
    assert all(flops < everything / 10 for flops in told.model.values())


def test_65_mfu_is_156_percent_with_context_parallelism() -> None:
    """NeMo RL 1015: sequences are cut over ranks, so a GPU's tokens are fewer, their work the same.

    Work per token depends on the whole sequence and on no dimension of parallelism; tokens are
    divided by all GPUs.
    """
    facts = {"run": "a", "model": "Llama-3.1-8B", "sequence_length": 131072}
    plain = count(Facts(**facts), TABLE)  # type: ignore[arg-type]
    cut = count(
        Facts(**facts, context_parallel=8, tensor_parallel=2, pipeline_parallel=4),  # type: ignore[arg-type]
        TABLE,
    )
    assert plain.model == cut.model
    assert parallel.tokens_per_gpu(16, 131072, 10.0, 64) == 16 * 131072 / 10 / 64


def test_66_mfu_on_an_a100_is_3_times_too_low() -> None:
    """nanochat PR147, autoresearch 5: the peak of an H100 was written into the code."""
    a100, h100 = peak("NVIDIA A100-SXM4-80GB"), peak("NVIDIA H100 80GB HBM3")
    assert h100 / a100 == pytest.approx(3.17, abs=0.01)
    work = token_flops(task("llama-3.1-8b"), "causal")
    # 6 x 7.504e9 weights in products and 6 x 32 x 4096 x 4096 of attention, by hand.
    assert utilization(3000, work, a100) == pytest.approx(3000 * 48.25e9 / 312e12, rel=1e-3)


def test_67_mfu_is_half_of_what_it_should_be_by_the_datasheet() -> None:
    """miles PR2353: the figure with 2:4 sparsity, twice the dense one, was the denominator."""
    printed = {"NVIDIA H100 80GB HBM3": 1979e12, "NVIDIA H200": 1979e12}
    for name, sparse in printed.items():
        assert peak(name) == pytest.approx(sparse / 2, rel=1e-3)


def test_67_mfu_is_told_for_a_card_that_nobody_knows() -> None:
    """The same: an unknown device took another's peak. Here it has none until one is stated."""
    for name in ("NVIDIA H100", "NVIDIA H1000", "NVIDIA A100-SXM4-80GB-X", "", "cpu"):
        found = PRODUCTS.resolve(name)
        assert found is None or name in found.accelerator.names
    assert PRODUCTS.resolve("NVIDIA H1000") is None
    assert PRODUCTS.find("H100") is None


def test_68_mfu_is_8_times_too_low_with_gradient_accumulation() -> None:
    """bionemo-recipes PR1548: the tokens of one micro-batch were divided by the time of a step."""
    batch = parallel.global_batch(micro_batch=1, micro_batches=8, data=256)
    right = parallel.tokens_per_gpu(batch, 4096, 8.2, 1024)
    forgotten = parallel.tokens_per_gpu(parallel.global_batch(1, 1, 256), 4096, 8.2, 1024)
    assert right / forgotten == 8
    assert right == pytest.approx(999, abs=0.1)


def test_69_mfu_is_6_percent_too_high_by_the_embedding() -> None:
    """tt-metal PR50114: looking tokens up was counted as a product of matrices."""
    llama = task("llama-3.1-8b")
    looked_up = 6 * llama.shape.lookup
    assert looked_up / token_flops(llama, "causal") == pytest.approx(0.064, abs=0.002)
    weights = llama.shape.parameters - llama.shape.lookup
    small = weights - llama.shape.multiplied
    assert small / weights < 1e-4, "norms alone"
    assert token_flops(llama, "products") == 6 * llama.shape.multiplied
    tied = task("qwen3-0.6b")
    assert tied.shape.lookup == 0, "a tied matrix is the head, which is a product"


def test_70_mfu_falls_by_the_tensor_parallel_size() -> None:
    """torchtitan 1989: ranks of a tensor-parallel group work on the same tokens.

    The tokens of a step are those of the data-parallel groups, divided by all GPUs.
    """
    world = parallel.world_size(data=8, tensor=4, pipeline=2)
    batch = parallel.global_batch(1, 4, 8)
    assert world == 64
    assert parallel.tokens_per_gpu(batch, 8192, 2.0, world) == 32 * 8192 / 2 / 64
