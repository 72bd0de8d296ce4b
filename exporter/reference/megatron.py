"""Reads what a model is made of from the arguments that a Megatron job was started with.

Names are those of the command line (`--num-layers`) or of the block of arguments that Megatron
prints at its start (`num_layers`), values numbers, truth, or the texts that stand there. What is
not given is as Megatron's own default has it. Models with layers of another kind than attention
are refused (`ValueError`), never counted as something like it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from exporter.reference.models import ModelShape, read_generic

_UNCOUNTED = (
    "hybrid_override_pattern", "hybrid_layer_pattern", "hybrid_attention_ratio", "is_hybrid_model",
    "hybrid_mlp_ratio", "experimental_attention_variant",
    "linear_attention_freq", "linear_attention_type", "attention_output_gate", "moe_latent_size",
    "heterogeneous_layers_config_path", "heterogeneous_layers_config_encoded_json",
)  # fmt: skip

ARGUMENTS = frozenset((
    "add_bias_linear", "add_qkv_bias", "disable_bias_linear", "ffn_hidden_size",
    "gated_linear_unit", "group_query_attention", "hidden_size", "kv_channels", "kv_lora_rank",
    "make_vocab_size_divisible_by", "max_position_embeddings", "moe_ffn_hidden_size",
    "moe_layer_freq", "moe_router_enable_expert_bias", "moe_router_topk", "moe_shared_expert_gate",
    "moe_shared_expert_intermediate_size", "mtp_num_layers", "multi_latent_attention",
    "normalization", "num_attention_heads", "num_experts", "num_layers", "num_query_groups",
    "padded_vocab_size", "position_embedding_type", "q_lora_rank", "qk_head_dim", "qk_layernorm",
    "qk_pos_emb_head_dim", "recompute_granularity", "recompute_method", "recompute_modules",
    "recompute_num_layers", "seq_length", "share_embeddings_and_output_weights", "softmax_type",
    "swiglu", "tensor_model_parallel_size", "untie_embeddings_and_output_weights",
    "use_rotary_position_embeddings", "v_head_dim", "vocab_size", "window_attn_skip_freq",
    "window_size", *_UNCOUNTED,
))  # fmt: skip
"""All arguments that are asked for."""

_WORDS = {"true": True, "false": False, "none": None, "null": None, "": True}
_PART = re.compile(r"\[([01](?:,[01])*)\](?:\*([0-9]{1,4}))?")
_LONGEST_PATTERN = 1000
_MOST = 10**7
_MOST_LAYERS = 1000


def is_megatron(values: Mapping[str, Any]) -> bool:
    """Tell whether some keys are arguments of Megatron rather than of a HF config."""
    return "model_type" not in values and any(_plain(key) == "num_layers" for key in values)


def read_arguments(values: Mapping[str, Any], name: str = "") -> ModelShape:
    """Return the shape that arguments of Megatron describe.

    The vocabulary is `padded_vocab_size`, else `vocab_size`, rounded up if
    `make_vocab_size_divisible_by` is given too. Raises `ValueError` with the argument for what is
    missing, makes no sense, or cannot be counted.
    """
    arguments = Arguments(values)
    for key in _UNCOUNTED:
        if arguments.get(key):
            raise ValueError(f"{key}: the work of such layers is not counted")
    return read_generic(_generic(arguments), name)


class Arguments:
    """The arguments of a Megatron job, asked for by kind."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        named = ((_plain(key), value) for key, value in values.items())
        self._values = {name: _read(value) for name, value in named if name in ARGUMENTS}

    def get(self, key: str) -> Any:
        """Return a value as it was given, nothing where there is none."""
        return self._values.get(key)

    def number(self, key: str, default: int | None = None) -> int:
        """Return a whole number, not below 0. Raises `ValueError` with the key."""
        value = self._values.get(key)
        value = default if value is None else value
        if type(value) is not int or not 0 <= value <= _MOST:
            said = "a number too long" if type(value) is int else f"{value!r:.60}"
            raise ValueError(f"{key}: a whole number is needed, not {said}")
        return value

    def optional(self, key: str) -> int | None:
        """Return a whole number if there is one. Raises `ValueError` with the key."""
        return None if self._values.get(key) is None else self.number(key)

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Return whether a switch is on."""
        value = self._values.get(key)
        return default if value is None else bool(value)


def _generic(given: Arguments) -> dict[str, Any]:
    """Return the config in the words of `read_generic`."""
    hidden, layers = given.number("hidden_size"), given.number("num_layers")
    if layers > _MOST_LAYERS:
        raise ValueError(f"num_layers: at most {_MOST_LAYERS}, not {layers}")
    heads = given.number("num_attention_heads")
    gated = given.flag("swiglu") or given.flag("gated_linear_unit")
    biases = given.flag("add_bias_linear", default=not given.flag("disable_bias_linear"))
    norm = 1 if str(given.get("normalization") or "LayerNorm").lower() == "rmsnorm" else 2
    grouped = given.flag("group_query_attention") or given.get("num_query_groups") not in (None, 1)
    # Gated, Megatron keeps the weights of an FFN of 4 h without a gate, in multiples of 64.
    ffn = hidden * 4 * 2 // 3 // 64 * 64 if gated else 4 * hidden
    tied = given.flag(
        "share_embeddings_and_output_weights",
        default=not given.flag("untie_embeddings_and_output_weights"),
    )
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": given.number("num_query_groups", 1) if grouped else heads,
        "head_dim": given.optional("kv_channels"),
        "vocab_size": _vocabulary(given),
        "tie_word_embeddings": tied,
        "intermediate_size": given.number("ffn_hidden_size", ffn),
        "gated": gated,
        "biases": biases,
        "qkv_biases": given.flag("add_qkv_bias"),
        "norm_size": norm,
        "positions": _positions(given),
        "sinks": given.get("softmax_type") == "learnable",
        "num_nextn_predict_layers": given.number("mtp_num_layers", 0),
        **_windows(given, layers),
        **_latent(given, norm),
        **_experts(given, layers, biases=biases),
    }


def _vocabulary(given: Arguments) -> int:
    padded = given.optional("padded_vocab_size")
    if padded is not None:
        return padded
    size, multiple = given.number("vocab_size"), given.number("make_vocab_size_divisible_by", 1)
    multiple *= given.number("tensor_model_parallel_size", 1) if multiple > 1 else 1
    return math.ceil(size / multiple) * multiple if multiple > 0 else size


def _positions(given: Arguments) -> int:
    kind = str(given.get("position_embedding_type") or "learned_absolute")
    rotary = given.flag("use_rotary_position_embeddings")
    return (
        given.number("max_position_embeddings") if kind == "learned_absolute" and not rotary else 0
    )


def _windows(given: Arguments, layers: int) -> dict[str, Any]:
    """Return the window and its layers; `window_size` is tokens before and after."""
    window = given.get("window_size")
    if window in (None, False):
        return {}
    sizes = re.findall(r"-?[0-9]+", str(window))
    if not sizes:
        raise ValueError(f"window_size: numbers are needed, not {window!r:.60}")
    # Megatron's window leaves the token itself out, the HF configs' has it.
    size = int(sizes[0]) + 1
    if size <= 0:
        return {}
    every = given.get("window_attn_skip_freq")
    if every in (None, False):
        windowed = [True] * layers
    elif isinstance(every, int):
        windowed = [(layer + 1) % every != 0 for layer in range(layers)]
    else:
        windowed = [bool(one) for one in _pattern("window_attn_skip_freq", every, layers)]
    kinds = ["sliding_attention" if one else "full_attention" for one in windowed]
    return {"sliding_window": size, "layer_types": kinds}


def _latent(given: Arguments, norm: int) -> dict[str, Any]:
    if not given.flag("multi_latent_attention"):
        width = given.number("kv_channels", 0) or (
            given.number("hidden_size") // max(1, given.number("num_attention_heads"))
        )
        return {"query_norms": 2 * width * norm if given.flag("qk_layernorm") else 0}
    query, keys = given.number("q_lora_rank", 0), given.number("kv_lora_rank", 32)
    return {
        "latent": True,
        "q_lora_rank": query,
        "kv_lora_rank": keys,
        "qk_nope_head_dim": given.number("qk_head_dim", 128),
        "qk_rope_head_dim": given.number("qk_pos_emb_head_dim", 64),
        "v_head_dim": given.number("v_head_dim", 128),
        "query_norms": (query + keys) * norm if given.flag("qk_layernorm") else 0,
    }


def _experts(given: Arguments, layers: int, *, biases: bool) -> dict[str, Any]:
    experts = given.number("num_experts", 0)
    if not experts:
        return {}
    every = given.get("moe_layer_freq")
    if every is None or every is True:
        sparse = layers
    elif isinstance(every, int) and every > 0:
        sparse = sum(layer % every == 0 for layer in range(layers))
    else:
        sparse = sum(_pattern("moe_layer_freq", every, layers))
    return {
        "num_experts": experts,
        "num_experts_per_tok": given.number("moe_router_topk", 2),
        "moe_intermediate_size": given.optional("moe_ffn_hidden_size"),
        "expert_layers": sparse,
        "shared_size": given.number("moe_shared_expert_intermediate_size", 0),
        "shared_gate": given.flag("moe_shared_expert_gate"),
        "router_biases": biases,
        "balances": given.flag("moe_router_enable_expert_bias"),
    }


def _pattern(key: str, told: object, layers: int) -> list[int]:
    """Return a list of zeros and ones, also from a text such as `([0]*3+[1]*58)`.

    Raises `ValueError` for anything but a sum of lists, each as often as a number says.
    """
    text = re.sub(r"\s", "", str(told))[:_LONGEST_PATTERN]
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1]
    found: list[int] = []
    for part in text.split("+"):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{key}: a pattern such as ([0]*3+[1]*58) is needed, not {told!r:.60}")
        found += [int(one) for one in match[1].split(",")] * int(match[2] or 1)
        if len(found) > layers:
            break
    if len(found) != layers:
        raise ValueError(f"{key}: a pattern of {len(found)} layers for {layers}")
    return found


def _plain(key: str) -> str:
    return str(key).lstrip("-").replace("-", "_")


def _read(value: Any) -> Any:
    """Return a value in its kind: logs hold texts, and a switch of a command line holds nothing."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if re.fullmatch(r"-?[0-9]{1,12}", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?[0-9]{1,12}\.[0-9]{0,12}", text) else text
