"""Training FLOPs: against counts that others made, by hand, and refused where nobody can count."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from exporter.derive.flops import (
    TOLD,
    Task,
    count,
    hardware_flops,
    mean_window,
    token_flops,
    work_of,
)
from exporter.reference.megatron import read_arguments
from exporter.reference.models import load, read_config
from exporter.training.records import Facts
from tests.derive.published import MODELS, ROWS, unreproduced

TABLE = load()
OURS = {
    "6N_total": "6n_total",
    "6N_active": "6n",
    "palm": "palm",
    "torchtitan": "torchtitan",
    "gemm_full": "full",
    "gemm_causal": "causal_unwindowed",
    "gemm_causal_swa": "causal",
    "gemm_causal_router": "causal_router",
    "gemm_causal_mtp": "causal_depths",
    "gemm_full_mtp": "full_depths",
}
SMALL = {
    "model_type": "llama", "vocab_size": 100, "hidden_size": 8, "intermediate_size": 20,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "tie_word_embeddings": False,
}  # fmt: skip
LAYER = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 20
"""Weights of one of its layers: queries, keys and values, output, FFN."""
HEAD = 800


def small(**change: Any) -> Task:
    return Task(shape=read_config(SMALL), sequence_length=10, **change)


# ---------------------------------------------------------------- against others' counts


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_counted_exactly(name: str) -> None:
    """All, active with and without the embedding, of routers, and those that are multiplied."""
    shape, right = read_config(MODELS[name]["config"]), MODELS[name]["expected"]
    assert shape.parameters == right["total_params"]
    assert shape.active_parameters == right["active_params"]
    assert shape.unembedded == right["active_params_excluding_input_embedding"]
    assert shape.head == right["input_embedding_params"]
    assert shape.router == right["router_params"]
    assert shape.active == right["matmul_params_per_token_incl_lm_head"]


@pytest.mark.parametrize("name", MODELS)
def test_flops_are_those_that_others_counted_at_every_length(name: str) -> None:
    """Ten conventions and lengths from 2048 to 131072, to the last digit."""
    shape = read_config(MODELS[name]["config"])
    for length, figures in MODELS[name]["train_flops_per_token"].items():
        task = Task(shape=shape, sequence_length=int(length))
        assert {key: token_flops(task, OURS[key]) for key in figures} == figures


PUBLISHED: list[tuple[dict[str, Any], int]] = [
        # As their papers or model cards print them to the last digit.
        ({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257},
         124_439_808),
        ({"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "vocab_size": 50257},
         1_557_611_200),
        ({"model_type": "gpt_neox", "hidden_size": 512, "num_hidden_layers": 6, "vocab_size": 50304,
          "num_attention_heads": 8, "intermediate_size": 2048}, 70_426_624),
        ({"model_type": "gpt_neox", "hidden_size": 4096, "num_hidden_layers": 32,
          "vocab_size": 50432, "num_attention_heads": 32, "intermediate_size": 16384},
         6_857_302_016),
        ({"model_type": "opt", "hidden_size": 768, "num_hidden_layers": 12, "vocab_size": 50272,
          "num_attention_heads": 12, "ffn_dim": 3072, "max_position_embeddings": 2048},
         125_239_296),
        ({"model_type": "phi3", "vocab_size": 32064, "hidden_size": 3072, "num_hidden_layers": 32,
          "intermediate_size": 8192, "num_attention_heads": 32, "sliding_window": 2047},
         3_821_079_552),
        ({"model_type": "smollm3", "vocab_size": 128256, "hidden_size": 2048,
          "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16,
          "num_key_value_heads": 4}, 3_075_098_624),
        ({"model_type": "olmo2", "vocab_size": 100352, "hidden_size": 4096, "num_hidden_layers": 32,
          "intermediate_size": 11008, "num_attention_heads": 32}, 7_298_617_344),
        ({"model_type": "starcoder2", "vocab_size": 49152, "hidden_size": 3072,
          "intermediate_size": 12288, "num_hidden_layers": 30, "num_attention_heads": 24,
          "num_key_value_heads": 2, "sliding_window": 4096}, 3_030_371_328),
        ({"model_type": "qwen2_moe", "vocab_size": 151936, "hidden_size": 2048,
          "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16,
          "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
          "shared_expert_intermediate_size": 5632, "sliding_window": 32768}, 14_315_784_192),
]  # fmt: skip


@pytest.mark.parametrize(("config", "parameters"), PUBLISHED, ids=lambda one: str(one)[:30])
def test_models_of_other_families_have_their_published_parameters(
    config: dict[str, Any], parameters: int
) -> None:
    shape = read_config(config)
    assert shape.parameters == parameters
    assert token_flops(Task(shape=shape, sequence_length=2048), "causal") > 0


def test_all_layers_of_starcoder2_and_none_of_qwen2_moe_see_a_window() -> None:
    star = {"model_type": "starcoder2", **{k: v for k, v in SMALL.items() if k != "model_type"}}
    assert read_config({**star, "sliding_window": 16}).windowed == 3
    assert read_config(star).windowed == 0
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16}
    assert read_config({**SMALL, **experts, "model_type": "qwen2_moe"}).windowed == 0


# ---------------------------------------------------------------- by hand


def test_a_small_model_by_hand() -> None:
    """Six operations for a weight; attention 12 for each head's width, layer and token seen."""
    task = small()
    weights = 3 * LAYER + HEAD
    total = weights + HEAD + 8 * 7
    assert token_flops(task, "full") == 6 * weights + 12 * 3 * 8 * 10
    assert token_flops(task, "causal") == 6 * weights + 6 * 3 * 8 * 10
    assert token_flops(task, "6n") == 6 * total
    assert token_flops(task, "palm") == 6 * total + 12 * 3 * 8 * 10
    assert token_flops(task, "torchtitan") == 6 * (total - HEAD) + 12 * 3 * 8 * 10


def test_a_tied_head_is_work_and_counts_once_as_parameters() -> None:
    tied = Task(shape=read_config({**SMALL, "tie_word_embeddings": True}), sequence_length=10)
    assert token_flops(tied, "causal") == token_flops(small(), "causal")
    assert token_flops(tied, "6n") == token_flops(small(), "6n") - 6 * HEAD


def test_full_recomputation_repeats_the_layers_and_not_the_head() -> None:
    """Parameters-counting conventions repeat all of it: a third more, as PaLM has it."""
    task = small(recompute="full")
    core = 4 * 3 * 8 * 10 / 2
    assert hardware_flops(task, "causal") == token_flops(task, "causal") + 2 * 3 * LAYER + core
    assert hardware_flops(task, "palm") == pytest.approx(token_flops(task, "palm") * 4 / 3)


def test_selective_recomputation_repeats_the_core_of_attention() -> None:
    """A forward pass of it more: 12 l h s become 16; Korthikanti et al. print 24 (s/3h)."""
    task = small(recompute="selective")
    assert hardware_flops(task, "full") - token_flops(task, "full") == 4 * 3 * 8 * 10
    assert hardware_flops(small(recompute="none"), "full") == token_flops(task, "full")
    with pytest.raises(ValueError, match="it is not known what is recomputed"):
        hardware_flops(small(), "full")


def test_packed_documents_see_only_themselves() -> None:
    """Documents of 2 and 8 tokens: each token sees (4 + 64) / 10 of full attention on average."""
    packed = dataclasses.replace(small(), document_length=6.8)
    weights = 3 * LAYER + HEAD
    assert token_flops(packed, "causal") == pytest.approx(6 * weights + 6 * 3 * 8 * 6.8)


def test_windowed_layers_count_at_their_mean_context() -> None:
    """The mean over tokens 1 to 100 of what each sees, with a window of 16."""
    assert mean_window(16, 100) == pytest.approx(sum(min(t, 16) for t in range(1, 101)) / 100)
    assert mean_window(0, 100) == mean_window(100, 100) == 50


def test_lora_computes_no_gradients_of_frozen_weights() -> None:
    """4 for a frozen weight, 6 for one of an adapter; attention has no weights and stays whole."""
    lora = small(frozen=True, adapter=50.0)
    weights = 3 * LAYER + HEAD
    assert token_flops(lora, "causal") == 4 * weights + 6 * 50 + 6 * 3 * 8 * 10
    work = work_of(lora)
    assert work.trainable_parameters == 50
    assert work.total_parameters == lora.shape.parameters + 50


def test_the_backward_pass_ends_at_the_first_layer_that_learns() -> None:
    """Of three layers the last learns: the others cost their forward pass alone."""
    top = small(first_trainable=2)
    forward = 2 * (3 * LAYER + HEAD) + 2 * 3 * 8 * 10
    backward = 4 * (LAYER + HEAD) + 4 * 8 * 10
    assert token_flops(top, "causal") == pytest.approx(forward + backward)
    assert work_of(top).trainable_parameters is None
    with pytest.raises(ValueError, match="first_trainable: 4 of 3 layers"):
        small(first_trainable=4)


# ---------------------------------------------------------------- Megatron's arguments

LLAMA_8B = {
    "--num-layers": 32, "--hidden-size": 4096, "--num-attention-heads": 32,
    "--group-query-attention": None, "--num-query-groups": 8, "--ffn-hidden-size": 14336,
    "--swiglu": True, "--normalization": "RMSNorm", "--disable-bias-linear": True,
    "--untie-embeddings-and-output-weights": True, "--position-embedding-type": "rope",
    "--vocab-size": 128256, "--seq-length": 8192,
}  # fmt: skip
DEEPSEEK_V3 = {
    "num_layers": 61, "hidden_size": 7168, "num_attention_heads": 128, "ffn_hidden_size": 18432,
    "swiglu": True, "normalization": "RMSNorm", "add_bias_linear": False,
    "untie_embeddings_and_output_weights": True, "position_embedding_type": "rope",
    "padded_vocab_size": 129280, "multi_latent_attention": True, "q_lora_rank": 1536,
    "kv_lora_rank": 512, "qk_head_dim": 128, "qk_pos_emb_head_dim": 64, "v_head_dim": 128,
    "qk_layernorm": True, "num_experts": 256, "moe_router_topk": 8, "moe_ffn_hidden_size": 2048,
    "moe_layer_freq": "([0]*3+[1]*58)", "moe_shared_expert_intermediate_size": 2048,
    "moe_router_enable_expert_bias": True, "mtp_num_layers": 1,
}  # fmt: skip
GPT_OSS_20B = {
    "num_layers": 24, "hidden_size": 2880, "num_attention_heads": 64, "num_query_groups": 8,
    "group_query_attention": True, "kv_channels": 64, "ffn_hidden_size": 2880, "swiglu": True,
    "normalization": "RMSNorm", "position_embedding_type": "rope", "softmax_type": "learnable",
    "untie_embeddings_and_output_weights": True, "padded_vocab_size": 201088, "num_experts": 32,
    "moe_router_topk": 4, "moe_ffn_hidden_size": 2880,
    "window_size": "(127, 0)", "window_attn_skip_freq": 2,
}  # fmt: skip
QWEN3_30B = {
    "num_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "num_query_groups": 4,
    "group_query_attention": True, "kv_channels": 128, "ffn_hidden_size": 6144, "swiglu": True,
    "normalization": "RMSNorm", "disable_bias_linear": True, "position_embedding_type": "rope",
    "untie_embeddings_and_output_weights": True, "padded_vocab_size": 151936, "qk_layernorm": True,
    "num_experts": 128, "moe_router_topk": 8, "moe_ffn_hidden_size": 768,
}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (LLAMA_8B, "llama-3.1-8b"),
        (DEEPSEEK_V3, "deepseek-v3"),
        (GPT_OSS_20B, "gpt-oss-20b"),
        (QWEN3_30B, "qwen3-30b-a3b"),
    ],
    ids=["gqa", "mla", "windows", "moe"],
)
def test_arguments_of_megatron_describe_the_model_that_its_config_does(
    arguments: dict[str, Any], name: str
) -> None:
    """Every count of the shape is the same."""
    theirs = read_config(MODELS[name]["config"])
    ours = read_arguments(arguments)
    told = {"name": "", "bits": 16, "expert_bits": 16, "plain_bits": 16, "cache_bits": 16}
    assert dataclasses.replace(ours, **told) == dataclasses.replace(theirs, **told)


def test_arguments_may_be_texts_as_logs_print_them() -> None:
    texts = {key: str(value) for key, value in LLAMA_8B.items() if value is not None}
    texts["--group-query-attention"] = "True"
    assert read_arguments(texts) == read_arguments(LLAMA_8B)


def test_vocabularies_are_padded_where_the_arguments_say_so() -> None:
    """50257 tokens, in multiples of 128 for each of 8 ranks."""
    padded = {**LLAMA_8B, "vocab_size": 50257, "make_vocab_size_divisible_by": 128}
    padded.pop("--vocab-size")
    shape = read_arguments({**padded, "tensor_model_parallel_size": 8})
    assert shape.head == 51200 * 4096


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"--num-layers": 0}, "num_hidden_layers: a whole number from 1"),
        ({"--hidden-size": 0}, "hidden_size: a whole number from 1"),
        ({"--hidden-size": "wide"}, "hidden_size: a whole number is needed, not 'wide'"),
        ({"--vocab-size": None}, "vocab_size: a whole number is needed, not None"),
        ({"--hybrid-override-pattern": "M-M*"}, "hybrid_override_pattern: the work of such layers"),
        ({"--num-experts": 8, "--moe-layer-freq": "__import__('os')"}, "moe_layer_freq: a pattern"),
        ({"--num-experts": 8, "--moe-layer-freq": "[0]*9999"}, "moe_layer_freq: a pattern of 9999"),
        ({"--num-experts": 8, "--moe-router-topk": 9}, "num_experts_per_tok: 9 of 8"),
    ],
)
def test_arguments_that_cannot_be_counted_are_refused_with_the_name(
    change: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        read_arguments({**LLAMA_8B, **change})


def test_a_nonsense_config_of_these_families_ends_in_a_value_error_or_a_count() -> None:
    odd: tuple[Any, ...] = (None, 0, -1, 1.5, "x", [], {}, [1], True, float("nan"), 2**80)
    extra = {"attn_config": {}, "n_inner": 1, "use_bias": True, "no_bias": False, "layer_types": []}
    for config, _ in PUBLISHED:
        for key in {**config, **extra}:
            for value in odd:
                try:
                    shape = read_config({**config, key: value})
                except ValueError:
                    continue
                assert shape.parameters > 0


def test_a_nonsense_argument_never_ends_in_anything_but_a_value_error() -> None:
    odd: tuple[Any, ...] = (None, 0, -1, 1.5, "x", "", [], {}, [1], True, float("nan"), 2**80)
    for arguments in (LLAMA_8B, DEEPSEEK_V3, GPT_OSS_20B):
        for key in arguments:
            for value in odd:
                try:
                    read_arguments({**arguments, key: value})
                except ValueError:
                    continue


# ---------------------------------------------------------------- of a run's facts


def test_a_run_is_counted_by_its_config() -> None:
    facts = Facts(
        run="a", config=MODELS["llama-3.1-8b"]["config"], sequence_length=8192, recompute="none"
    )
    work = count(facts, TABLE)
    assert tuple(work.model) == TOLD
    figures = MODELS["llama-3.1-8b"]["train_flops_per_token"]["8192"]
    keys = ("gemm_causal_swa", "palm", "gemm_full", "6N_active")
    assert list(work.model.values()) == [figures[key] for key in keys]
    assert work.hardware == work.model
    assert work.total_parameters == work.trainable_parameters == 8_030_261_248


def test_a_run_is_counted_by_its_models_name() -> None:
    by_name = count(Facts(run="a", model="meta-llama/Llama-3.1-8B", sequence_length=8192), TABLE)
    by_config = count(Facts(run="a", config=LLAMA_8B), TABLE)
    assert by_name.model == by_config.model
    assert by_name.hardware == {}, "nobody told whether anything is recomputed"
    assert by_config.hardware == by_config.model, "Megatron's default is not to"


def test_without_a_length_only_parameters_are_counted() -> None:
    work = count(Facts(run="a", model="Llama-3.1-8B"), TABLE)
    assert set(work.model) == {"6n"}


def test_sizes_alone_do_not_hide_a_model_that_is_named() -> None:
    """Megatron's telemetry sends some sizes, and not whether there is a gate or experts."""
    sizes = {"num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 128256}
    named = Facts(run="a", config=sizes, model="Llama-3.1-8B", sequence_length=8192)
    assert count(named, TABLE).total_parameters == 8_030_261_248
    with pytest.raises(ValueError, match="model_type: a word is needed, not None"):
        count(Facts(run="a", config=sizes), TABLE)


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ({}, 0.0),
        ({"--recompute-granularity": "full"}, 2 * (8_030_261_248 - 2 * 128256 * 4096)),
        ({"--recompute-granularity": "full", "--recompute-method": "block",
          "--recompute-num-layers": 4}, None),
        ({"--recompute-granularity": "selective"}, 0.0),
        ({"--recompute-granularity": "selective", "--recompute-modules": "['core_attn']"}, 0.0),
        ({"--recompute-granularity": "selective", "--recompute-modules": "['moe_act']"}, None),
    ],
)  # fmt: skip
def test_what_megatron_recomputes_is_told_by_several_arguments(
    change: dict[str, Any], again: float | None
) -> None:
    """HFU is absent where a part is recomputed whose share nobody tells; a log tells the word."""
    word = change.get("--recompute-granularity")
    facts = Facts(run="a", config={**LLAMA_8B, **change}, recompute=word)
    work = count(facts, TABLE)
    if again is None:
        assert work.hardware == {}
        return
    core = 2 * 32 * 4096 * 8192 if word else 0
    told = work.hardware["causal"] - work.model["causal"]
    assert told == pytest.approx(again + core, rel=1e-3)


def test_layers_that_predict_further_count_where_megatron_trains_them() -> None:
    """A HF config tells of them too, but its own trainer leaves them out."""
    arguments = count(Facts(run="a", config=DEEPSEEK_V3, sequence_length=4096), TABLE)
    config = count(
        Facts(run="a", config=MODELS["deepseek-v3"]["config"], sequence_length=4096), TABLE
    )
    figures = MODELS["deepseek-v3"]["train_flops_per_token"]["4096"]
    assert arguments.model["causal"] == figures["gemm_causal_mtp"]
    assert config.model["causal"] == figures["gemm_causal"]
    assert arguments.total_parameters is not None
    # The checkpoint of 685 B holds embedding and head of that layer once more.
    assert arguments.total_parameters + 2 * 129280 * 7168 == pytest.approx(685e9, rel=2e-3)


def test_a_figure_given_outright_is_the_headline() -> None:
    work = count(Facts(run="a", flops_per_token=5e10, recompute="full"), TABLE)
    assert work.model == {"causal": 5e10}
    assert work.hardware == {"causal": pytest.approx(5e10 * 4 / 3)}
    known = Facts(run="a", flops_per_token=5e10, model="Llama-3.1-8B", sequence_length=8192)
    assert count(known, TABLE).model["causal"] == 5e10
    right = MODELS["llama-3.1-8b"]["train_flops_per_token"]["8192"]["gemm_full"]
    assert count(known, TABLE).model["full"] == right


def test_a_figure_given_outright_saves_a_run_whose_model_cannot_be_counted() -> None:
    hybrid = Facts(run="a", config={"model_type": "nemotron_h"}, flops_per_token=5e10)
    assert count(hybrid, TABLE).model == {"causal": 5e10}


def test_plain_figures_are_enough() -> None:
    work = count(Facts(run="a", active_parameters=8e9, recompute="full"), TABLE)
    assert work.model == {"6n": 48e9}
    assert work.hardware == {"6n": pytest.approx(64e9)}
    whole = Facts(run="a", active_parameters=8e9, attention_flops_per_token=3e9)
    assert count(whole, TABLE).model == {"6n": 48e9, "causal": 51e9}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({}, "model: neither a config nor a name nor flops_per_token is known"),
        ({"model": "mystery-7b"}, "model: 'mystery-7b' is not in the table; its config is needed"),
        ({"config": {"model_type": "nemotron_h"}}, "'nemotron_h' has state-space layers"),
        ({"config": {"model_type": "qwen3_next"}}, "'qwen3_next' has linear attention"),
        ({"config": {"model_type": "deepseek_v4"}}, "'deepseek_v4' has sparse attention"),
        (
            {"config": {**SMALL, "full_attention_interval": 4}},
            "full_attention_interval: stands for",
        ),
        (
            {"config": {**SMALL, "layer_types": ["linear_attention"] * 3}},
            "layer_types: the work of 'linear_attention' layers",
        ),
        ({"config": {**SMALL, "hidden_size": 0}}, "hidden_size: a whole number from 1"),
        ({"flops_per_token": 0}, "flops_per_token: a number above 0"),
        (
            {"config": SMALL, "sequence_length": 10, "document_length": 11.0},
            "document_length: 11.0 is longer than a sequence",
        ),
    ],
)
def test_what_cannot_be_counted_is_refused_with_the_reason(
    facts: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        count(Facts(run="a", **facts), TABLE)


# ---------------------------------------------------------------- the documentation


def test_the_table_of_the_documentation_is_what_is_computed() -> None:
    """Each row: GFLOP per token by convention, their disagreement, and full recomputation."""
    text = (Path(__file__).parent.parent.parent / "docs/training.md").read_text("utf-8")
    rows = re.findall(r"^\| ([\w.-]+), ([0-9]+) \| (.*) \|$", text, re.MULTILINE)
    assert len(rows) == 7
    for name, length, cells in rows:
        shape = TABLE.resolve(name)
        assert shape is not None
        one = Task(shape=shape, sequence_length=int(length), recompute="full")
        giga = {key: token_flops(one, key) / 1e9 for key in TOLD}
        told = [f"{giga[key]:,.1f}" for key in ("causal", "full", "palm", "6n")]
        told.append(f"{giga['palm'] / giga['causal'] - 1:+.0%}")
        told.append(f"{hardware_flops(one, 'causal') / 1e9:,.1f}")
        assert cells.split(" | ") == told, name


def test_the_documentation_tells_how_many_rows_are_reproduced() -> None:
    text = (Path(__file__).parent.parent.parent / "docs/training.md").read_text("utf-8")
    dev = [row for row in ROWS if row["file"] == "mfu-tables-dev.json"]
    counted = Counter(row["group"] for row in dev if unreproduced(row) is None)
    assert f"computes {counted.total()} published rows" in text
    for group, name in (("llm-foundry-mpt", "of\nllm-foundry"), ("megatron-bridge", "of Mega")):
        assert f"{counted[group]} {name}" in text
