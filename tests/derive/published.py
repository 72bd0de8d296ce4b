"""Published rows of throughput, MFU and HFU, computed again with the product's own functions.

A row names what was measured (tokens each second and GPU, or a batch and a step's time), the model
(a name, or its sizes), the formula that its source used, and what was printed. `published` returns
the same figures as we count them; `unreproduced` says why a row is for reading only.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from exporter.derive.flops import Recompute, Task, hardware_flops, token_flops
from exporter.reference.megatron import read_arguments
from exporter.reference.models import ModelShape, load, read_config

DATA = Path(__file__).parent.parent / "data/training"
MODELS: dict[str, dict[str, Any]] = json.loads((DATA / "models.json").read_text("utf-8"))
ROWS: list[dict[str, Any]] = [
    {**row, "file": path.name}
    for path in sorted(DATA.glob("mfu-tables*.json"))
    for row in json.loads(path.read_text("utf-8"))["rows"]
]

FORMULAS = {
    "llm_foundry": "palm_total",
    "6N_total": "6n_total",
    "6N": "6n",
    "palm": "palm",
    "torchtitan": "torchtitan",
    "gemm_full_mtp": "full_depths",
    "gemm_full": "full",
    "gemm_causal_mtp": "causal_depths",
    "gemm_causal_router": "causal_router",
    "gemm_causal_swa": "causal",
    "gemm_causal": "causal_unwindowed",
    "4N": "products",
    "72": "full",
    "96": "full",
}
"""Ours by the beginning of the sources' name; the first that fits."""


KNOWN = {"gpt3-175b": {"layers": 96, "hidden": 12288, "heads": 96, "vocab": 51200}}
"""Sizes of models that rows name without a config."""


ROUNDING = 0.5
"""What a share that is printed without decimals may be off by, in points."""


class Figures(NamedTuple):
    """TFLOP/s for each GPU, and per cent of the peak; nothing where the row has too little."""

    tflops: float | None = None
    mfu: float | None = None
    hfu: float | None = None


def unreproduced(row: Mapping[str, Any]) -> str | None:
    """Return why a row is for reading only, nothing if it is to be reproduced."""
    printed = row["published"]
    if not any(printed.get(key) is not None for key in ("mfu_pct", "hfu_pct", "tflops_per_gpu")):
        return "neither MFU nor HFU nor TFLOP/s is published"
    if "not reproduced" in row.get("note", ""):
        return row["note"]
    if abs(row.get("consistency_error_points") or 0) > ROUNDING:
        return f"its own figures differ by {row['consistency_error_points']} points"
    if abs(row.get("best_error_pct") or 0) > row["tolerance_pct"]:
        return f"no formula that anybody tried comes nearer than {row['best_error_pct']} %"
    known = row.get("best_formula") is not None and rate_of(row) is not None
    ratio = printed.get("tflops_per_gpu") and (printed.get("mfu_pct") or printed.get("hfu_pct"))
    if not known and not ratio:
        return "the work of this model, or its rate, is not known"
    return None


def published(row: Mapping[str, Any]) -> Figures:
    """Return a row's figures as the product counts them, in the convention of its source."""
    printed, peak = row["published"], row["peak_tflops_denominator"]
    rate, formula = rate_of(row), row.get("best_formula")
    if formula is None or rate is None:  # what is left to check is one figure against the other
        share = percent(printed["tflops_per_gpu"], peak)
        return Figures(printed["tflops_per_gpu"], share, share)
    convention = convention_of(formula)
    task = task_of(row)
    model = token_flops(task, convention) * rate / 1e12
    hardware = hardware_of(row, task, convention) * rate / 1e12
    tflops = hardware if formula.startswith("96") else model
    return Figures(tflops, percent(model, peak), percent(hardware, peak))


def percent(tflops: float, peak: float | None) -> float | None:
    """Return the share of a peak, where one is known."""
    return None if peak is None else 100 * tflops / peak


def convention_of(formula: str) -> str:
    """Return our name of a source's formula. Raises `LookupError` for one that nobody has read."""
    for name, ours in FORMULAS.items():
        if formula.startswith(name):
            return ours
    raise LookupError(f"no convention of ours is {formula!r}")


def hardware_of(row: Mapping[str, Any], task: Task, convention: str) -> float:
    """Return FLOPs of a token with those done again, as the row's source counts them."""
    if row["group"] == "korthikanti" and task.recompute == "selective":
        # They write s/3h, which is all of attention twice; one forward pass more is 2s/9h.
        return 2 * token_flops(task, convention) - token_flops(task, "products")
    return hardware_flops(task, convention)


def rate_of(row: Mapping[str, Any]) -> float | None:
    """Return tokens each second and GPU: as printed, else of the batch and the step's time."""
    if row.get("tokens_per_s_per_gpu"):
        return row["tokens_per_s_per_gpu"]
    if not all(row.get(key) for key in ("step_time_s", "global_batch_sequences", "num_gpus")):
        return None
    tokens = row["global_batch_sequences"] * row["seq_len"]
    return tokens / row["step_time_s"] / row["num_gpus"]


def task_of(row: Mapping[str, Any]) -> Task:
    """Return what a row trained."""
    formula = row.get("best_formula") or ""
    shape = shape_of(row)
    if "ungated" in formula:  # a mistake of theirs: two products instead of three in an FFN
        shape = dataclasses.replace(shape, expert=shape.expert * 2 // 3)
    recompute: Recompute = "none"
    if row.get("activation_checkpointing") or formula.startswith("96"):
        recompute = "full"
    if row["group"] == "korthikanti":  # their "present work"
        recompute = "selective"
    for word in ("none", "selective", "full"):
        if word in str(row.get("recompute") or row.get("activation_recompute") or ""):
            recompute = word  # type: ignore[assignment]
    return Task(
        shape=shape,
        sequence_length=row["seq_len"],
        recompute=recompute,
        frozen=formula.startswith("4N"),
    )


def shape_of(row: Mapping[str, Any]) -> ModelShape:
    """Return the model of a row: by its sizes where there are some, else by its name."""
    arch = row.get("arch") or KNOWN.get(row["model"])
    if not arch:
        found = MODELS.get(row["model"])
        shape = load().resolve(row["model"]) if found is None else read_config(found["config"])
        assert shape is not None, row["model"]
        return shape
    known = {key.lower(): value for key, value in arch.items()}

    def size(*names: str) -> Any:
        return next((known[name] for name in names if known.get(name) is not None), None)

    width = size("heads_x_head_dim", "hidden", "hidden_size")
    if "learned_pos_embedding" in known:
        shape = read_config({
            "model_type": "mpt", "d_model": width, "n_layers": known["layers"], "n_heads": 1,
            "vocab_size": known["vocab"], "max_seq_len": known["learned_pos_embedding"],
        })  # fmt: skip
        assert shape.parameters == known["num_params"]
        return shape
    if size("num_params") is not None and size("vocab") is None:
        # Of this model only the parameters and the width of attention are published.
        weights = round(known["num_params"])
        return ModelShape(
            name=row["model"], parameters=weights, lookup=0, head=0, body=weights,
            layers=known["layers"], pair=4 * width, cache=0,
        )  # fmt: skip
    return read_arguments({
        "num_layers": size("layers", "num_layers"),
        "hidden_size": size("hidden", "hidden_size"),
        "num_attention_heads": size("heads", "num_heads", "num_attention_heads") or 1,
        "num_query_groups": size("kv_heads", "num_kv_heads", "num_key_value_heads"),
        "group_query_attention": size("kv_heads", "num_kv_heads", "num_key_value_heads") or None,
        "kv_channels": size("head_dim"),
        "ffn_hidden_size": size("ffn", "intermediate", "intermediate_size", "ffn_hidden"),
        "swiglu": bool(size("gated", "swiglu")),
        "vocab_size": size("vocab", "vocab_size"),
        "max_position_embeddings": row["seq_len"],
        "untie_embeddings_and_output_weights": size("tied", "tie_embeddings") is False,
    })  # fmt: skip
