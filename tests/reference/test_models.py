"""Model shapes: held against figures that others counted or published, and no shape for a guess."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from exporter.reference import models
from exporter.reference.models import Model, Models, ModelShape, load, read_config, read_file

FIGURES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "data/models/figures.json").read_text("utf-8")
)
TABLE = load()
GB, GIB = 1e9, 2**30

SMALL = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 8,
    "intermediate_size": 20,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
}


def shape_of(name: str, cache_dtype: str = "auto") -> ModelShape:
    shape = TABLE.resolve(name, cache_dtype)
    assert shape is not None
    return shape


# ---------------------------------------------------------------- against others' figures


@pytest.mark.parametrize("name", FIGURES)
def test_weights_cache_and_attention_are_those_that_others_counted(name: str) -> None:
    """All weights, active ones, cache for a token and operations of attention agree exactly."""
    shape, figures = shape_of(name, "bfloat16"), FIGURES[name]
    assert shape.parameters == figures["parameters"]
    assert shape.active == figures["active"]
    assert shape.cache_bytes == figures["cache_bytes_bf16"]
    assert shape.pair * shape.layers == figures["pair_all_layers"]


@pytest.mark.parametrize("tokens", [4096, 32768])
@pytest.mark.parametrize("name", FIGURES)
def test_a_whole_prompt_costs_a_third_of_a_training_step_over_it(name: str, tokens: int) -> None:
    """Training is three forward passes; they count the head for each token, and no routers."""
    shape, figures = shape_of(name), FIGURES[name]
    forward = shape.prompt_flops(tokens, tokens) / tokens + 2 * shape.head
    trained = figures[f"train_{tokens}_causal_windowed"] + 6 * figures["router"]
    assert 3 * forward == pytest.approx(trained, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        # gpt-oss model card, table 1: sizes of the checkpoints.
        ("openai/gpt-oss-120b", 60.8 * GIB),
        ("openai/gpt-oss-20b", 12.8 * GIB),
        # 16 bits for each of the published numbers of weights.
        ("meta-llama/Llama-3.1-8B-Instruct", 2 * 8030261248),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 2 * 46702792704),
    ],
)
def test_stored_bytes_are_the_size_of_the_checkpoint(name: str, size: float) -> None:
    assert shape_of(name).stored_bytes == pytest.approx(size, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "kilobytes"),
    [("DeepSeek-V3", 70.272), ("Qwen2.5-72B", 327.680), ("Llama-3.1-405B", 516.096)],
)
def test_the_cache_for_a_token_is_as_deepseek_published_it(name: str, kilobytes: float) -> None:
    """MLA caches one latent for all heads; GQA one pair for each group (16 bits)."""
    assert shape_of(name, "bfloat16").cache_bytes == kilobytes * 1000


@pytest.mark.parametrize(
    ("name", "bits", "tokens_per_second", "gigabytes"),
    [
        ("Llama-2-7b", 16, 104.9, 1397.31),
        ("Llama-2-7b", 8, 155.58, 1069.20),
        ("Llama-2-70b", 8, 19.13, 1322.58),
        # 4 bits, and for each 32 weights a scale and a zero point of 16 bits
        ("Llama-2-70b", 5, 25.25, 1097.66),
    ],
)
def test_bytes_of_a_step_are_those_of_gpt_fast(
    name: str, bits: float, tokens_per_second: float, gigabytes: float
) -> None:
    """gpt-fast prints bandwidth and tokens/s of batch 1; their quotient is a step's bytes."""
    shape = dataclasses.replace(shape_of(name), bits=bits)
    step = gigabytes * GB / tokens_per_second
    assert shape.weight_bytes(1) == pytest.approx(step, rel=0.02)


def test_databricks_example_of_half_the_bandwidth() -> None:
    """7B in 16 bit at 14 ms a token moves 1 TB/s: half of what a GPU with 2 TB/s can."""
    assert shape_of("Llama-2-7b").weight_bytes(1) / 0.014 / 2e12 == pytest.approx(0.5, rel=0.06)


PALM = ModelShape(
    name="palm-540b", parameters=540_350_000_000, lookup=0, head=256_000 * 18432,
    body=540_350_000_000 - 256_000 * 18432, layers=118, pair=4 * 48 * 256, cache=2 * 256,
)  # fmt: skip


def test_prefill_mfu_is_that_of_pope_et_al() -> None:
    """PaLM 540B, 64 TPU v4 of 275 TFLOP/s, 512 prompts of 2048 tokens in 85.2 s: 76 %."""
    flops = 512 * (PALM.prompt_flops(2048, 2048) + 2 * PALM.head)
    assert flops / (64 * 275e12 * 85.2) == pytest.approx(0.76, abs=0.01)


# ---------------------------------------------------------------- by hand


def test_a_small_model_by_hand() -> None:
    """Every number of a model that is small enough to be counted on paper."""
    shape = read_config(SMALL)
    attention = 8 * 8 + 8 * 4 + 8 * 4 + 8 * 8  # q, k, v, o: heads of 2, two groups
    assert shape.body == 3 * (attention + 3 * 8 * 20)
    assert shape.head == shape.lookup == 800
    assert shape.parameters == shape.body + 1600 + 8 * (2 * 3 + 1)
    assert shape.cache_bytes == 3 * 2 * 2 * 2 * 2
    # 10 tokens before it: each of 3 layers 4 operations for each of 8 = 4 x 2 columns
    assert shape.token_flops(10) == 2 * (shape.body + 800) + 3 * 10 * 4 * 8
    # the last 4 of 10: contexts from 6 to 10, 8 on average
    assert shape.prompt_flops(4, 10) == 4 * (2 * shape.body + 3 * 8 * 4 * 8)


def test_tied_embeddings_are_one_matrix_read_as_the_head() -> None:
    shape = read_config({**SMALL, "tie_word_embeddings": True})
    assert (shape.lookup, shape.head) == (0, 800)
    assert shape.stored_bytes == shape.weight_bytes(1) == 2 * shape.parameters


def test_windowed_layers_saturate() -> None:
    """Of three layers one sees all 100 tokens and two the last 16."""
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    shape = read_config({**SMALL, "sliding_window": 16, "layer_types": kinds})
    assert shape.cache_read_bytes(100) == (100 + 2 * 16) * 4 * 2 * 2
    assert shape.cache_read_bytes(10) == 3 * 10 * 4 * 2 * 2
    assert shape.token_flops(100) - shape.token_flops(0) == (100 + 2 * 16) * 4 * 8
    # the last 10 of a prompt of 20: the window grows from 10 to 16, then stands for 4 tokens
    windowed = (6 * 13 + 4 * 16) / 10
    assert shape.prompt_flops(10, 20) == pytest.approx(
        10 * (2 * shape.body + (15 + 2 * windowed) * 4 * 8)
    )


def test_the_batch_decides_how_many_experts_are_read() -> None:
    """2 of 8 experts: one token meets 2, two tokens 3.5 on average, a large batch all."""
    experts = {"num_local_experts": 8, "num_experts_per_tok": 2}
    shape = read_config({**SMALL, "model_type": "mixtral", **experts})
    expert = 3 * 8 * 20
    rest = shape.weight_bytes(0)
    assert shape.weight_bytes(1) - rest == pytest.approx(3 * 2 * expert * 2)
    assert shape.weight_bytes(2) - rest == pytest.approx(3 * 3.5 * expert * 2)
    assert shape.weight_bytes(1000) - rest == pytest.approx(3 * 8 * expert * 2)
    assert shape.active == shape.body + 800 + 3 * 2 * expert


@pytest.mark.parametrize(
    ("quantization", "bits", "expert_bits", "cache_bits", "precision"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8, 8, 16, "fp8"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4.15625, 4.15625, 16, "bf16"),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, 8.1875, 8.1875, 16, "bf16"),
        ({"quant_method": "mxfp4"}, 16, 4.25, 16, "bf16"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5, 4.5, 16, "fp4"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 8, "type": "float"},
                        "input_activations": {"num_bits": 8, "type": "float"},
                    }
                },
                "kv_cache_scheme": {"num_bits": 8, "type": "float"},
            },
            8, 8, 8, "fp8",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "weights": {"num_bits": 4, "type": "int", "group_size": 128},
                        "input_activations": None,
                    }
                },
            },
            4.125, 4.125, 16, "bf16",
        ),
    ],
)  # fmt: skip
def test_quantized_weights_have_the_width_they_are_stored_in(
    quantization: dict[str, Any],
    bits: float,
    expert_bits: float,
    cache_bits: float,
    precision: str,
) -> None:
    """Scales and zero points count; products are narrow only if activations are too."""
    shape = read_config({**SMALL, "quantization_config": quantization})
    assert (shape.bits, shape.expert_bits, shape.cache_bits) == (bits, expert_bits, cache_bits)
    assert (shape.precision, shape.plain_bits) == (precision, 16)


def test_the_cache_may_be_narrower_than_the_model() -> None:
    assert read_config(SMALL, cache_dtype="fp8").cache_bytes == 24
    with pytest.raises(ValueError, match="'fp7' is none of the types of KV caches"):
        read_config(SMALL, cache_dtype="fp7")


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    "name",
    [
        "meta-llama/Llama-3.1-8B",
        "meta-llama/Meta-Llama-3.1-8B-Instruct",
        "llama-3.1-8b-instruct",
        "/models/Llama-3.1-8B-Instruct/",
        "LLAMA-3.1-8B",
    ],
)
def test_a_model_is_found_by_repository_path_or_last_part(name: str) -> None:
    assert shape_of(name).parameters == 8030261248


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("Qwen/Qwen3-8B-FP8", 8),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", 4.15625),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", 8.1875),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", 4.15625),
        ("Qwen/Qwen3-4B-Instruct-2507", 16),
        ("meta-llama/Llama-2-7b-chat-hf", 16),
    ],
)
def test_known_endings_tell_the_quantization(name: str, bits: float) -> None:
    assert shape_of(name).bits == bits


@pytest.mark.parametrize(
    "name",
    [
        "",
        "gpt-4",
        "mid-llama",
        "llama-3.1-9b",
        "Llama-3.1-8B-Instruct-Q4_K_M.gguf",
        "my-Qwen3-8B",
        "Qwen3-8B-abliterated",
        "instruct",
        # Meta left its attention in 16 bits, others did not.
        "meta-llama/Llama-3.1-405B-Instruct-FP8",
    ],
)
def test_an_unknown_name_has_no_shape(name: str) -> None:
    """A similar name is another model, as far as anybody knows."""
    assert TABLE.resolve(name) is None


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="'a' is the name of two models"):
        Models([Model(("x/a",), SMALL), Model(("y/A",), {**SMALL})])


# ---------------------------------------------------------------- what an operator may hand in


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "mamba"}, "model_type: 'mamba' has state-space layers"),
        ({"model_type": None}, "model_type: a word is needed"),
        (
            {"hidden_size": None},
            "hidden_size: a whole number from 1 to 10000000 is needed, not None",
        ),
        ({"hidden_size": "8"}, "hidden_size: a whole number from 1 to 10000000 is needed, not '8'"),
        ({"hidden_size": True}, "hidden_size: a whole number .* not True"),
        ({"hidden_size": 0}, "hidden_size: a whole number .* not 0"),
        ({"num_hidden_layers": -1}, "num_hidden_layers: a whole number from 1 to 1000 .* not -1"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: a whole number from 1 to 1000 .* not 0"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: .* not 1000000000"),
        ({"intermediate_size": 0}, "intermediate_size: a whole number"),
        ({"vocab_size": 0}, "vocab_size: a whole number"),
        ({"head_dim": 0}, "head_dim: a whole number"),
        ({"num_attention_heads": 0}, "num_attention_heads: a whole number .* not 0"),
        ({"num_attention_heads": 3}, "num_key_value_heads: 3 heads cannot share 2 evenly"),
        (
            {"num_attention_heads": 6, "num_key_value_heads": 2},
            "head_dim: is needed, since 6 heads do not divide 8",
        ),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings: true or false is needed, not 'no'"),
        ({"text_config": [1]}, r"text_config: a mapping is needed, not \[1\]"),
        ({"quantization_config": "awq"}, "quantization_config: a mapping is needed, not 'awq'"),
        (
            {"quantization_config": {"quant_method": "gptq", "bits": 10**6, "group_size": 128}},
            "quantization_config: bits must be a whole number",
        ),
        ({"torch_dtype": "int3"}, "torch_dtype: 'int3' is none of"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "num_experts_per_tok: 9 of 8 experts"),
        ({"num_experts": 8, "num_experts_per_tok": 2, "mlp_only_layers": [1]}, "mlp_only_layers"),
        ({"quantization_config": {"quant_method": "magic"}}, "'magic' is not known"),
        ({"quantization_config": {"quant_method": "awq"}}, "bits must be a whole number"),
        (
            {"quantization_config": {"quant_method": "compressed-tensors"}},
            "0 config_groups, only 1 can be counted",
        ),
        (
            {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": [4]}},
            r"config_groups must be a mapping, not \[4\]",
        ),
        (
            {"quantization_config": {"quant_method": "gptq", "bits": 0, "group_size": 128}},
            "bits must be above 0",
        ),
        ({"hidden_size": 10**400}, "hidden_size: a whole number .* is needed, not 1000"),
        ({"sliding_window": 8, "layer_types": ["full_attention"]}, "layer_types: 1 for 3 layers"),
    ],
)
def test_a_config_that_cannot_be_counted_is_refused_with_the_key(
    change: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        read_config({**SMALL, **change})


def test_a_model_with_a_vision_tower_is_counted_by_its_text() -> None:
    assert read_config({"model_type": "llava", "text_config": SMALL}) == read_config(SMALL)


def test_a_nonsense_config_never_ends_in_anything_but_a_value_error() -> None:
    """Keys of real configs are replaced by what a slip of the pen leaves; some are left out."""
    path = Path(models.__file__).with_name("models.json")
    configs = [entry["config"] for entry in json.loads(path.read_text("utf-8"))["models"]]
    odd: tuple[Any, ...] = (None, 0, -1, 1.5, "x", [], {}, [1], True, math.nan, 2**80, 10**400)
    for config in configs:
        for key in config:
            for value in odd:
                try:
                    shape = read_config({**config, key: value})
                except ValueError:
                    continue
                costs = shape.stored_bytes, shape.cache_bytes, shape.prompt_flops(10, 100)
                assert all(math.isfinite(cost) and cost >= 0 for cost in costs), (key, value)


# ---------------------------------------------------------------- from a file


def test_a_config_json_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL))
    assert read_file(path, "mine") == read_config(SMALL, "mine")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", ":1:1: not JSON: expecting value"),
        (b'{"a": 1,\n "b" 2}', ":2:6: not JSON: expecting ':' delimiter"),
        (b"[]", ": not a JSON object"),
        (b"\xff\xfe", r": not UTF-8 text \(byte 0\)"),
        (b"[" * 100_000, ": nested too deep"),
        (b" " * (1 << 21), ": longer than 1048576 bytes"),
        (b'{"model_type": "mamba"}', ": model_type: 'mamba' has state-space layers"),
        (
            b'{"model_type": "llama"}',
            ": hidden_size: a whole number from 1 to 10000000 is needed, not None",
        ),
        (b'{"model_type": "llama", "hidden_size": ' + b"9" * 5000 + b"}", ": "),
    ],
)
def test_a_file_that_is_no_config_is_refused_with_its_path(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(path)) + said):
        read_file(path)


def test_a_file_that_is_not_there_is_refused_with_its_path(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(ValueError, match=re.escape(str(path)) + ": (No such file|Is a dir)"):
            read_file(path)
