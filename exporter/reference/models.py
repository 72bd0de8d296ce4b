"""What a language model is made of, as far as work is counted: weights, attention, KV cache.

`read_config` turns the facts of a model's `config.json` into a `ModelShape`, which answers what one
token costs: operations, bytes of weights, bytes of KV cache. `load` reads `models.json`, the shapes
of well-known models. A served name is looked up whole or by its last part, in any case, with or
without the endings that its makers give to tuned and quantized versions; there is no guessing by
similar names. What is not known is refused (`ValueError`), never counted as something like it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

Config = Mapping[str, Any]

TUNED = (
    "-instruct", "-chat", "-hf", "-it", "-pt", "-base", "-thinking", "-2507", "-v0.1",
)  # fmt: skip
"""Endings of names that say how a model was trained: its shape stays."""

_WEIGHTS_4 = {"quant_method": "gptq", "bits": 4, "group_size": 128}
QUANTIZED: Mapping[str, Config] = {
    "-fp8": {"quant_method": "fp8"},
    "-fp8-dynamic": {"quant_method": "fp8"},
    "-awq": {"quant_method": "awq", "bits": 4, "group_size": 128},
    "-awq-int4": {"quant_method": "awq", "bits": 4, "group_size": 128},
    "-gptq-int4": _WEIGHTS_4,
    "-gptq-int8": {"quant_method": "gptq", "bits": 8, "group_size": 128},
    "-quantized.w4a16": _WEIGHTS_4,
}
"""Endings of names that say how weights are stored, as in the repositories that use them."""

_LATENT = ("deepseek_v2", "deepseek_v3", "kimi_k2")
_LLAMAS = (
    "llama", "mistral", "mixtral", "phi3", "smollm3", "qwen2", "qwen3", "qwen3_moe", "gemma",
    "gpt_oss",
)  # fmt: skip
_GEMMAS = ("gemma2", "gemma3", "gemma3_text")
_TRANSLATED = ("gpt2", "gpt_neox", "mpt", "opt", "olmo2", "starcoder2", "qwen2_moe")
FAMILIES = (*_LLAMAS, *_GEMMAS, *_LATENT, *_TRANSLATED)
"""The `model_type` of the models whose weights and operations can be counted."""

_STATES, _LINEAR, _SPARSE = "state-space layers", "linear attention", "sparse attention"
UNCOUNTED: Mapping[str, str] = {
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba"), _STATES),
    **dict.fromkeys(("jamba", "bamba", "zamba", "zamba2", "nemotron_h", "falcon_h1"), _STATES),
    **dict.fromkeys(("granitemoehybrid", "plamo2", "rwkv", "xlstm", "recurrent_gemma"), _STATES),
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_moe", "kimi_linear"), _LINEAR),
    **dict.fromkeys(("minimax", "minimax_text_01", "bailing_hybrid"), _LINEAR),
    **dict.fromkeys(("deepseek_v32", "deepseek_v4", "glm_moe_dsa"), _SPARSE),
}
"""Models whose layers need a count of their own, and what they have: to take such layers for
attention has over-counted by more than half (arXiv 2605.20799)."""

_UNCOUNTED_KEYS = {
    "hybrid_override_pattern": _STATES,
    "layers_block_type": _STATES,
    "mamba_d_state": _STATES,
    "ssm_state_size": _STATES,
    "attn_type_list": _LINEAR,
    "full_attention_interval": _LINEAR,
    "linear_num_value_heads": _LINEAR,
    "linear_attn_config": _LINEAR,
    "index_topk": _SPARSE,
    "compress_ratios": _SPARSE,
}
_KINDS = ("full_attention", "sliding_attention")

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_BITS = {"bfloat16": 16, "float16": 16, "float32": 32, "auto": 16}
# Not those with scales of their own for each token (fp8_ds_mla, int8_per_token_head, ...).
_CACHE_BITS = {
    **_BITS,
    "fp8": 8,
    "fp8_e4m3": 8,
    "fp8_e5m2": 8,
    "fp8_inc": 8,
    "int8": 8,
    "nvfp4": 4.5,
}
_PRECISIONS = {"float16": "fp16", "float32": "fp32"}

_LONGEST = 1 << 20  # bytes of a config.json
_MOST = 10**7  # what no number of a config comes near
_MOST_LAYERS = 1000


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model as its work is counted. Weights are numbers of weights; bits may be fractions.

    `parameters` are all weights; `lookup` those of an input embedding that no product reads (0
    where it is the head as well); `head` the LM head; `body` what every token is multiplied with
    between the two, routers included. Of `experts` in each of `expert_layers` a token meets
    `chosen`; each has `expert` weights. `pair` are the operations for one token, one token of its
    context and one layer; `cache` the elements that a token leaves in one layer's KV cache.
    `windowed` of the `layers` see only the last `window` tokens. `precision` is what products are
    computed in, as peaks are named: bf16, fp16, fp8, fp4, int8.

    What training alone asks for: `router` are the weights of all routers, part of `body`;
    `expert_small` the biases of one expert; `balance` biases that only choose experts, and are not
    learned; `hidden` the width between layers. `depths` are layers
    that predict a token further on, left out of all the rest: a token meets `depth` weights in each
    (head included, router not), and each has `depth_parameters` of its own.
    """

    name: str
    parameters: int
    lookup: int
    head: int
    body: int
    layers: int
    pair: int
    cache: int
    windowed: int = 0
    window: int = 0
    experts: int = 0
    chosen: int = 0
    expert: int = 0
    expert_layers: int = 0
    bits: float = 16
    expert_bits: float = 16
    plain_bits: float = 16
    cache_bits: float = 16
    precision: str = "bf16"
    hidden: int = 0
    router: int = 0
    expert_small: int = 0
    balance: int = 0
    depths: int = 0
    depth: int = 0
    depth_parameters: int = 0

    @property
    def is_dense(self) -> bool:
        """Tell whether every token meets every weight."""
        return self.experts == 0

    @property
    def active(self) -> int:
        """Return the weights that a token is multiplied with, LM head included."""
        return self.body + self.chosen * self.expert * self.expert_layers + self.head

    @property
    def multiplied(self) -> int:
        """Return `active` without routers: what most frameworks count as matrix products."""
        return self.active - self.router

    @property
    def active_parameters(self) -> int:
        """Return the parameters that a token meets, embedding, norms and biases included."""
        unmet = (self.experts - self.chosen) * self.expert_layers
        return self.parameters - self.balance - unmet * (self.expert + self.expert_small)

    @property
    def unembedded(self) -> int:
        """Return those without an input embedding that is not the head too."""
        return self.active_parameters - self.lookup

    @property
    def stored_bytes(self) -> float:
        """Return the bytes of all weights, scales of quantized ones included."""
        return self.weight_bytes(math.inf) + self.lookup * self.plain_bits / 8

    @property
    def cache_bytes(self) -> float:
        """Return the bytes that one token takes in the KV caches of all layers."""
        return self.layers * self.cache * self.cache_bits / 8

    def weight_bytes(self, tokens: float) -> float:
        """Return the bytes of weights that a step over so many tokens reads.

        All but the embedding's once, however many tokens there are; of the experts those that at
        least one token is expected to meet if all are as likely: E (1 - (1 - k/E)^tokens).
        """
        experts = self.experts * self.expert * self.expert_layers
        small = self.parameters - self.lookup - self.head - self.body - experts
        met = 1 - (1 - self.chosen / self.experts) ** tokens if self.experts else 0.0
        return (
            self.body * self.bits
            + experts * met * self.expert_bits
            + (self.head + small) * self.plain_bits
        ) / 8

    def cache_read_bytes(self, context: float) -> float:
        """Return the bytes of KV cache that a token reads which has so many before it."""
        seen = (self.layers - self.windowed) * context + self.windowed * self._held(context)
        return seen * self.cache * self.cache_bits / 8

    def token_flops(self, context: float) -> float:
        """Return the operations that generate a token which has so many before it."""
        return 2 * self.active + self._attention(context, self._held(context))

    def prompt_flops(self, tokens: float, context: float) -> float:
        """Return the operations for the last `tokens` of a prompt of `context` tokens.

        Each token attends to those before it and none after (causal). The head is left out: of a
        prompt only the last token needs it, and that makes the first token of the output.
        """
        first = context - tokens
        full = (first + context) / 2
        windowed = full
        if self.windowed and context > self.window:
            growing = max(0.0, self.window - first)
            inside = growing * (first + self.window) / 2 + (tokens - growing) * self.window
            windowed = inside / tokens if tokens else 0.0
        return tokens * (2 * (self.active - self.head) + self._attention(full, windowed))

    def _held(self, context: float) -> float:
        return min(context, self.window) if self.windowed else context

    def _attention(self, full: float, windowed: float) -> float:
        return self.pair * ((self.layers - self.windowed) * full + self.windowed * windowed)


class Model(NamedTuple):
    """A model of the table: its names, its config, and names that mean several things."""

    names: tuple[str, ...]
    config: Config
    ambiguous: tuple[str, ...] = ()


class Models:
    """The table of well-known models. Raises `ValueError` if two models have one name."""

    def __init__(self, models: Iterable[Model]) -> None:
        self._configs: dict[str, Config] = {}
        self._ambiguous: set[str] = set()
        for model in models:
            self._ambiguous.update(map(_last, model.ambiguous))
            for name in map(_last, model.names):
                if self._configs.setdefault(name, model.config) is not model.config:
                    raise ValueError(f"{name!r} is the name of two models")

    def resolve(self, served: str, cache_dtype: str = "auto") -> ModelShape | None:
        """Return the shape of the model that is served by this name, or nothing.

        `served` is a repository such as `Qwen/Qwen3-8B-FP8`, a path, or the last part of either.
        """
        name = _last(served)
        if name in self._ambiguous:
            return None
        found = self._configs.get(name)
        if found is None:
            name, quantization = _unquantized(name)
            found = self._configs.get(name, self._configs.get(_untuned(name)))
            if found is not None and quantization is not None:
                found = {**found, "quantization_config": quantization}
        return None if found is None else read_config(found, served, cache_dtype)


def load() -> Models:
    """Return the table that comes with the package."""
    text = Path(__file__).with_name("models.json").read_text("utf-8")
    return Models(
        Model(tuple(entry["names"]), entry["config"], tuple(entry.get("ambiguous", ())))
        for entry in json.loads(text)["models"]
    )


def read_file(path: Path, name: str = "") -> ModelShape:
    """Return the shape that a `config.json` describes.

    Raises `ValueError` with the path, and the key where it is one, for whatever is wrong with it.
    """
    config = read_document(path)
    try:
        return read_config(config, name)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_document(path: Path) -> Config:
    """Return the keys of a `config.json`. Raises `ValueError` with the path if there are none."""
    try:
        return _document(path)
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg.lower()}"
        ) from None
    except RecursionError:
        raise ValueError(f"{path}: nested too deep") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _document(path: Path) -> Config:
    with path.open("rb") as file:
        text = file.read(_LONGEST + 1)
    if len(text) > _LONGEST:
        raise ValueError(f"longer than {_LONGEST} bytes, so no model's configuration")
    config = json.loads(text.decode("utf-8"))
    if not isinstance(config, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004
    return config


def read_config(config: Config, name: str = "", cache_dtype: str = "auto") -> ModelShape:
    """Return the shape that a `config.json` in the manner of Hugging Face describes.

    `cache_dtype` is what the engine stores its KV cache in, in vLLM's words; `auto` is the model's
    own type, or what its quantization says. Raises `ValueError`, with the key, for a family or a
    quantization whose work cannot be counted, and for what is missing or makes no sense.
    """
    facts = _Facts({**config, **_optional(config, "text_config")})
    family = facts.word("model_type")
    _refuse_uncounted(facts, family)
    if family not in FAMILIES:
        raise ValueError(f"model_type: {family!r} is none of {', '.join(FAMILIES)}")
    if family in _TRANSLATED:
        facts, family = _Facts({**facts.values, **_translated(facts, family)}), GENERIC
    shape = _count(facts, family, name)
    shape = _stored(shape, facts)
    if facts.values.get("quantization_config") is not None:
        shape = _quantized(shape, _optional(facts.values, "quantization_config"))
    return cached(shape, cache_dtype)


class _Facts:
    """The keys of a config, asked for by kind."""

    def __init__(self, values: Config) -> None:
        self.values = values

    def word(self, key: str) -> str:
        value = self.values.get(key)
        if not isinstance(value, str):
            raise ValueError(f"{key}: a word is needed, not {_shown(value)}")  # noqa: TRY004
        return value

    def number(
        self, key: str, default: int | None = None, *, least: int = 0, most: int = _MOST
    ) -> int:
        value = self.values.get(key)
        value = default if value is None else value
        if type(value) is not int or not least <= value <= most:
            wanted = f"a whole number from {least} to {most}"
            raise ValueError(f"{key}: {wanted} is needed, not {_shown(value)}")
        return value

    def size(self, key: str, default: int | None = None) -> int:
        """Return a number without which there is no model."""
        return self.number(key, default, least=1)

    @property
    def layers(self) -> int:
        return self.number("num_hidden_layers", least=1, most=_MOST_LAYERS)

    def flag(self, key: str, *, default: bool = False) -> bool:
        value = self.values.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise ValueError(f"{key}: true or false is needed, not {_shown(value)}")  # noqa: TRY004
        return value


def _optional(config: Config, key: str) -> Config:
    """Return a mapping, an empty one where there is none."""
    value = config.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{key}: a mapping is needed, not {_shown(value)}")
    return value or {}


def read_generic(values: Config, name: str = "") -> ModelShape:
    """Return the shape of a transformer told in plain words, for readers of other formats.

    Keys are those of a HF config, and: `latent`, `gated` (a gate in the FFN), `biases` (in all
    linear layers), `qkv_biases`, `norm_size` (vectors in a norm: 2 with a bias), `query_norms`
    (widths of the norms of queries and keys, together), `sinks`, `positions` (learned ones),
    `expert_layers` (how many layers have experts), `shared_size` (width of the experts that every
    token meets, together), `shared_gate`, `router_biases`, `balances` (biases for
    experts that are not learned). Raises `ValueError` with the key, as `read_config`.
    """
    facts = _Facts(values)
    return _stored(_count(facts, GENERIC, name), facts)


GENERIC = ""
"""The family of what `read_generic` reads."""


def _refuse_uncounted(facts: _Facts, family: str) -> None:
    """Raise `ValueError` if some layers are neither attention nor FFN as they are counted here."""
    if family in UNCOUNTED:
        raise ValueError(f"model_type: {family!r} has {UNCOUNTED[family]}: its work is not counted")
    for key, why in _UNCOUNTED_KEYS.items():
        if facts.values.get(key):
            raise ValueError(f"{key}: stands for {why}: the work of such layers is not counted")


def _translated(facts: _Facts, family: str) -> Config:
    """Return the config of a model in the words of `read_generic`."""
    match family:
        case "gpt2":
            return _gpt2(facts)
        case "mpt":
            return _mpt(facts)
        case "opt":
            return _opt(facts)
        case "gpt_neox":
            return _gpt(tied=facts.flag("tie_word_embeddings"))
        case "olmo2":
            heads = facts.size("num_attention_heads")
            size = facts.size("hidden_size") // heads
            groups = facts.size("num_key_value_heads", heads)
            return {"query_norms": size * (heads + groups)}
        case "starcoder2":
            tied = facts.flag("tie_word_embeddings", default=True)
            biased = facts.flag("use_bias", default=True)
            kinds = ["sliding_attention"] * facts.layers
            return _gpt(tied=tied, biased=biased) | {"norm_size": 2, "layer_types": kinds}
    if facts.flag("use_sliding_window"):
        raise ValueError("use_sliding_window: cannot be counted for qwen2_moe")
    shared = facts.number("shared_expert_intermediate_size", 0)
    return {
        "qkv_biases": True, "shared_size": shared, "shared_gate": shared > 0,
        "sliding_window": None,
    }  # fmt: skip


def _gpt(*, tied: bool, biased: bool = True) -> dict[str, Any]:
    """Return what models in the manner of GPT have in common."""
    norm = 2 if biased else 1
    return {"norm_size": norm, "gated": False, "biases": biased, "tie_word_embeddings": tied}


def _gpt2(facts: _Facts) -> Config:
    hidden = facts.size("n_embd")
    return _gpt(tied=facts.flag("tie_word_embeddings", default=True)) | {
        "hidden_size": hidden,
        "num_hidden_layers": facts.values.get("n_layer"),
        "num_attention_heads": facts.values.get("n_head"),
        "intermediate_size": facts.size("n_inner", 4 * hidden),
        "positions": facts.number("n_positions", 1024),
    }


def _opt(facts: _Facts) -> Config:
    hidden = facts.size("hidden_size")
    if facts.number("word_embed_proj_dim", hidden) != hidden:
        raise ValueError("word_embed_proj_dim: only hidden_size can be counted")
    return _gpt(tied=facts.flag("tie_word_embeddings", default=True)) | {
        "intermediate_size": facts.size("ffn_dim"),
        "positions": facts.number("max_position_embeddings", 2048) + 2,
    }


def _mpt(facts: _Facts) -> Config:
    hidden, attention = facts.size("d_model"), _optional(facts.values, "attn_config")
    tied = facts.flag("tie_word_embeddings", default=True)
    learned = facts.flag("learned_pos_emb", default=True)
    return _gpt(tied=tied, biased=not facts.flag("no_bias")) | {
        "hidden_size": hidden,
        "num_hidden_layers": facts.values.get("n_layers"),
        "num_attention_heads": facts.values.get("n_heads"),
        "num_key_value_heads": attention.get("kv_n_heads"),
        "intermediate_size": facts.size("expansion_ratio", 4) * hidden,
        "positions": facts.number("max_seq_len", 2048) if learned else 0,
    }


def _count(facts: _Facts, family: str, name: str) -> ModelShape:
    """Return the shape with the numbers of weights, as if all were stored in 16 bits."""
    hidden, layers = facts.size("hidden_size"), facts.layers
    vocabulary = facts.size("vocab_size") * hidden
    tied = facts.flag(
        "tie_word_embeddings", default=family.startswith("gemma") or family == "smollm3"
    )
    generic = family == GENERIC
    latent = family in _LATENT or (generic and facts.flag("latent"))
    attention = _latent(facts, family) if latent else _grouped(facts, family)
    gates = 3 if facts.flag("gated", default=True) or not generic else 2
    experts = _experts(facts, family, gates)
    sparse = experts.layers
    dense = gates * hidden * facts.size("intermediate_size")
    gate = generic and sparse > 0 and facts.flag("shared_gate")
    router = (experts.number + gate) * hidden
    norm = facts.number("norm_size", 1, least=1, most=2) if generic else 1
    biased = generic and facts.flag("biases")
    wide = facts.size("intermediate_size")
    unit = (4 if family in _GEMMAS else 2) * norm * hidden + attention.small
    plain = unit + ((gates - 1) * wide + hidden if biased else 0)
    expert_small = experts.biases(hidden, gates, biased=biased or family == "gpt_oss")
    mixed = unit + experts.number * expert_small
    if biased and experts.shared:
        mixed += (gates - 1) * facts.number("shared_size", 0) + hidden
    if family == "gpt_oss" or (generic and facts.flag("router_biases")):
        mixed += experts.number
    balances = family == "deepseek_v3" or (generic and facts.flag("balances"))
    mixed += experts.number if balances else 0
    body = layers * attention.weights + (layers - sparse) * dense
    body += sparse * (experts.shared + router)
    small = (layers - sparse) * plain + sparse * mixed + norm * hidden
    small += facts.number("positions", 0) * hidden if generic else 0
    lookup = 0 if tied else vocabulary
    met = experts.shared + experts.chosen * experts.weights if sparse else dense
    held = experts.shared + router + experts.number * experts.weights if sparse else dense
    return ModelShape(
        name=name,
        parameters=body + sparse * experts.number * experts.weights + vocabulary + lookup + small,
        lookup=lookup,
        head=vocabulary,
        body=body,
        layers=layers,
        pair=attention.pair,
        cache=attention.cache,
        windowed=_windowed(facts, family, layers),
        window=facts.number("sliding_window", 0),
        experts=experts.number,
        chosen=experts.chosen,
        expert=experts.weights,
        expert_layers=sparse,
        hidden=hidden,
        router=sparse * router,
        expert_small=expert_small,
        balance=sparse * experts.number if balances else 0,
        depths=facts.number("num_nextn_predict_layers", 0, most=_MOST_LAYERS),
        depth=attention.weights + met + 2 * hidden * hidden + vocabulary,
        # A layer, its projection of two hidden states to one, and three norms.
        depth_parameters=attention.weights
        + held
        + (mixed if sparse else plain)
        + 2 * hidden * hidden
        + 3 * norm * hidden,
    )


class _Attention(NamedTuple):
    """One layer's attention: weights, norms and biases, operations of a pair, cached elements."""

    weights: int
    small: int
    pair: int
    cache: int


def _grouped(facts: _Facts, family: str) -> _Attention:
    """Return attention whose heads share keys and values in groups."""
    hidden, heads = facts.size("hidden_size"), facts.size("num_attention_heads")
    groups = facts.size("num_key_value_heads", heads)
    if heads % groups:
        raise ValueError(f"num_key_value_heads: {heads} heads cannot share {groups} evenly")
    # The classes of gemma have 256; for gemma-2-2b hidden over heads would be 288, and wrong.
    gemma = family.startswith("gemma")
    if not gemma and facts.values.get("head_dim") is None and hidden % heads:
        raise ValueError(f"head_dim: is needed, since {heads} heads do not divide {hidden}")
    width = 256 if gemma else hidden // heads
    size = facts.size("head_dim", width)
    keys = groups * size
    small = 0
    if family == GENERIC:
        biased = facts.flag("biases")
        small += heads * size + 2 * keys if biased or facts.flag("qkv_biases") else 0
        small += hidden if biased else 0
        small += facts.number("query_norms", 0) + (heads if facts.flag("sinks") else 0)
    elif family == "qwen2" or facts.flag("attention_bias"):
        small += heads * size + 2 * keys
    if family not in ("qwen2", GENERIC) and facts.flag("attention_bias"):
        small += hidden
    if family in ("qwen3", "qwen3_moe", "gemma3", "gemma3_text"):
        small += 2 * size
    if family == "gpt_oss":
        small += heads  # a sink for each head
    return _Attention(
        weights=hidden * (2 * heads * size + 2 * keys),
        small=small,
        pair=4 * heads * size,
        cache=2 * keys,
    )


def _latent(facts: _Facts, family: str) -> _Attention:
    """Return multi-head latent attention: what is cached is compressed, and one for all heads."""
    hidden, heads = facts.size("hidden_size"), facts.size("num_attention_heads")
    plain, rope = facts.size("qk_nope_head_dim"), facts.size("qk_rope_head_dim")
    value, rank = facts.size("v_head_dim"), facts.size("kv_lora_rank")
    query_rank = facts.number("q_lora_rank", 0)
    queries = heads * (plain + rope)
    asking = query_rank * (hidden + queries) if query_rank else hidden * queries
    return _Attention(
        weights=asking
        + hidden * (rank + rope)
        + rank * heads * (plain + value)
        + heads * value * hidden,
        small=facts.number("query_norms", 0) if family == GENERIC else query_rank + rank,
        pair=2 * heads * (plain + rope + value),
        cache=rank + rope,
    )


class _Experts(NamedTuple):
    """Experts of a layer, how many a token meets, weights of one, layers, shared weights."""

    number: int = 0
    chosen: int = 0
    weights: int = 0
    layers: int = 0
    shared: int = 0

    def biases(self, hidden: int, gates: int, *, biased: bool) -> int:
        """Return the biases of one expert."""
        return (gates - 1) * self.weights // (gates * hidden) + hidden if biased else 0


def _experts(facts: _Facts, family: str, gates: int) -> _Experts:
    """Return the experts, none for a dense model."""
    experts = next((facts.number(key) for key in _EXPERTS if facts.values.get(key)), 0)
    if not experts:
        return _Experts()
    hidden, layers = facts.size("hidden_size"), facts.layers
    size = facts.size("moe_intermediate_size", facts.size("intermediate_size"))
    chosen = facts.number("num_experts_per_tok")
    if not 0 < chosen <= experts:
        raise ValueError(f"num_experts_per_tok: {chosen} of {experts} experts")
    sparse = layers
    if family in _LATENT:
        if facts.number("moe_layer_freq", 1) != 1:
            raise ValueError("moe_layer_freq: only 1 can be counted")
        sparse -= facts.number("first_k_dense_replace", 0)
        if sparse < 0:
            raise ValueError(f"first_k_dense_replace: more than {layers} layers")
    if facts.number("decoder_sparse_step", 1) != 1 or facts.values.get("mlp_only_layers"):
        raise ValueError("mlp_only_layers, decoder_sparse_step: only experts in each layer count")
    weights = gates * hidden * size
    if family == GENERIC:
        shared = gates * hidden * facts.number("shared_size", 0)
        layered = facts.number("expert_layers", layers, most=layers)
        return _Experts(experts, chosen, weights, layered, shared)
    shared = facts.number("n_shared_experts", 0) * weights
    return _Experts(experts, chosen, weights, sparse, shared)


def _windowed(facts: _Facts, family: str, layers: int) -> int:
    """Return how many layers see only the last `sliding_window` tokens."""
    kinds = facts.values.get("layer_types")
    if not facts.values.get("sliding_window"):
        if isinstance(kinds, list):
            _refuse_kinds(kinds)
        return 0
    if isinstance(kinds, list):
        if len(kinds) != layers:
            raise ValueError(f"layer_types: {len(kinds)} for {layers} layers")
        _refuse_kinds(kinds)
        return sum(kind == "sliding_attention" for kind in kinds)
    if family == "gemma2":
        return (layers + 1) // 2
    if family in ("gemma3", "gemma3_text"):
        return layers - layers // (facts.number("sliding_window_pattern", 6) or 1)
    if family in ("qwen2", "qwen3", "qwen3_moe"):
        if not facts.flag("use_sliding_window"):
            return 0
        return max(0, layers - facts.number("max_window_layers", layers))
    if family == "gpt_oss":
        return (layers + 1) // 2
    return layers if family in ("mistral", "mixtral", "phi3") else 0


def _refuse_kinds(kinds: list[Any]) -> None:
    odd = next((kind for kind in kinds if kind not in _KINDS), None)
    if odd is not None:
        raise ValueError(f"layer_types: the work of {_shown(odd)} layers is not counted")


def _stored(shape: ModelShape, facts: _Facts) -> ModelShape:
    """Return the shape stored in the type that the config names; without one, in 16 bits."""
    dtype = str(facts.values.get("torch_dtype") or facts.values.get("dtype") or "bfloat16")
    if dtype not in _BITS:
        raise ValueError(f"torch_dtype: {dtype!r} is none of {', '.join(_BITS)}")
    bits = _BITS[dtype]
    return dataclasses.replace(
        shape,
        bits=bits,
        expert_bits=bits,
        plain_bits=bits,
        cache_bits=bits,
        precision=_PRECISIONS.get(dtype, "bf16"),
    )


def cached(shape: ModelShape, dtype: str) -> ModelShape:
    """Return a shape whose KV cache is stored in a type, in vLLM's words; `auto` leaves it.

    Raises `ValueError` for a type whose width is not known.
    """
    if dtype == "auto":
        return shape
    if dtype not in _CACHE_BITS:
        raise ValueError(f"{dtype!r} is none of the types of KV caches: {', '.join(_CACHE_BITS)}")
    return dataclasses.replace(shape, cache_bits=_CACHE_BITS[dtype])


def _quantized(shape: ModelShape, quantization: Config) -> ModelShape:
    """Return the shape with the widths of quantized weights; embedding and head stay as they are.

    A scale of 16 bits for each group of weights counts as theirs, and with AWQ and GPTQ a zero
    point of as many bits as a weight has.
    """
    method = str(quantization.get("quant_method"))
    algorithm = str(quantization.get("quant_algo"))
    if method in ("fp8", "fbgemm_fp8") or (method == "modelopt" and algorithm == "FP8"):
        return dataclasses.replace(shape, bits=8, expert_bits=8, precision="fp8")
    if method == "modelopt" and algorithm == "NVFP4":
        return dataclasses.replace(shape, bits=4.5, expert_bits=4.5, precision="fp4")
    if method == "mxfp4":  # of gpt-oss: the experts alone, a scale of 8 bits for each 32 weights
        return dataclasses.replace(shape, expert_bits=4.25)
    if method in ("awq", "gptq"):
        width = _width(quantization, "bits")
        per = _width(quantization, "group_size")
        stored = width + ((16 + width) / per if per > 0 else 0)
        return dataclasses.replace(shape, bits=stored, expert_bits=stored)
    if method == "compressed-tensors":
        return _compressed(shape, quantization)
    raise ValueError(f"quantization_config: {method!r} is not known")


def _compressed(shape: ModelShape, quantization: Config) -> ModelShape:
    """Return the shape by the words of compressed-tensors: one group of weights, all alike."""
    groups = list(_part(quantization, "config_groups").values())
    if len(groups) != 1:
        raise ValueError(f"quantization_config: {len(groups)} config_groups, only 1 can be counted")
    group = _part({"config_groups": groups[0]}, "config_groups")
    weights, inputs = _part(group, "weights"), _part(group, "input_activations")
    width, kind = _width(weights, "num_bits"), str(weights.get("type"))
    per = weights.get("group_size")
    scale = 8 if kind == "float" and width == 4 else 16
    stored = width + (scale / per if isinstance(per, int) and per > 0 else 0)
    shape = dataclasses.replace(shape, bits=stored, expert_bits=stored)
    if inputs:  # products are computed in the narrow type only if what comes in is narrow too
        narrow = "fp" if kind == "float" else "int"
        shape = dataclasses.replace(shape, precision=f"{narrow}{_width(inputs, 'num_bits')}")
    cache = quantization.get("kv_cache_scheme")
    if isinstance(cache, Mapping):
        shape = dataclasses.replace(shape, cache_bits=_width(cache, "num_bits"))
    return shape


def _part(facts: Config, key: str) -> Config:
    """Return a mapping within a quantization; an empty one where there is none."""
    value = facts.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"quantization_config: {key} must be a mapping, not {_shown(value)}")  # noqa: TRY004
    return value


def _width(facts: Config, key: str) -> int:
    value = facts.get(key)
    most = _MOST if key == "group_size" else 32
    if type(value) is not int or not -1 <= value <= most:  # -1: one group for each channel
        raise ValueError(f"quantization_config: {key} must be a whole number, not {_shown(value)}")
    if value <= 0 and key != "group_size":
        raise ValueError(f"quantization_config: {key} must be above 0")
    return value


def _shown(value: object) -> str:
    """Return a value as a message shows it: not a page of it."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write out very long numbers
        return "a number of more than 4000 digits"
    return text if len(text) <= 60 else f"{text[:60]}..."


def _last(name: str) -> str:
    """Return the last part of a repository or path, in small letters."""
    return name.rstrip("/").rpartition("/")[2].lower()


def _unquantized(name: str) -> tuple[str, Config | None]:
    """Return a name without the ending that tells its quantization, and what that is."""
    for ending in sorted(QUANTIZED, key=len, reverse=True):
        if name.endswith(ending):
            return name.removesuffix(ending), QUANTIZED[ending]
    return name, None


def _untuned(name: str) -> str:
    """Return a name without the endings that tell how the model was trained."""
    while ending := next((end for end in TUNED if name.endswith(end)), ""):
        name = name.removesuffix(ending)
    return name
