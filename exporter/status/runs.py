"""The training runs of the status document: progress, MFU and where the rest of the peak goes."""

from __future__ import annotations

from typing import Any

from exporter import catalogue as c
from exporter.samples import Metric
from exporter.status.facts import Facts

HEADLINE = "causal"
"""The convention that counts no work which an efficient kernel skips."""

_MOST_RANKS = 8

_FIELDS: tuple[tuple[str, Metric, dict[str, str]], ...] = (
    ("world_size", c.TRAIN_WORLD_SIZE, {}),
    ("local_ranks", c.TRAIN_LOCAL_RANKS, {}),
    ("step", c.TRAIN_STEP, {}),
    ("last_step", c.TRAIN_LAST_STEP_TIMESTAMP_SECONDS, {}),
    ("stalled", c.TRAIN_STALLED, {}),
    ("tokens", c.TRAIN_TOKENS_TOTAL, {}),
    ("tokens_per_second", c.TRAIN_TOKENS_PER_SECOND, {}),
    ("tokens_per_second_per_gpu", c.TRAIN_TOKENS_PER_SECOND_PER_GPU, {}),
    ("step_seconds", c.TRAIN_STEP_MEDIAN_SECONDS, {}),
    ("loss", c.TRAIN_LOSS, {}),
    ("gradient_norm", c.TRAIN_GRADIENT_NORM, {}),
    ("goodput_ratio", c.TRAIN_GOODPUT_RATIO, {}),
    ("elapsed_seconds", c.TRAIN_ELAPSED_SECONDS, {}),
    ("remaining_seconds", c.TRAIN_REMAINING_SECONDS, {}),
    ("last_checkpoint", c.TRAIN_LAST_CHECKPOINT_TIMESTAMP_SECONDS, {}),
    ("peak_flops_per_gpu", c.TRAIN_PEAK_FLOPS_PER_GPU, {}),
    ("flops_per_second_per_gpu", c.TRAIN_MODEL_FLOPS_PER_SECOND_PER_GPU, {"convention": HEADLINE}),
    ("exposed_communication_ratio", c.TRAIN_COMMUNICATION_RATIO, {"kind": "exposed"}),
    ("data_loading_ratio", c.TRAIN_DATA_LOADING_RATIO, {}),
    ("gpu_active_ratio", c.TRAIN_GPU_ACTIVE_RATIO, {}),
    ("hbm_utilization_ratio", c.TRAIN_HBM_BANDWIDTH_UTILIZATION_RATIO, {}),
    ("step_skew_ratio", c.TRAIN_STEP_SKEW_RATIO, {}),
    ("joules_per_token", c.TRAIN_ENERGY_JOULES_PER_TOKEN, {}),
    ("dollars", c.TRAIN_COST_DOLLARS_TOTAL, {}),
    ("dollars_per_million_tokens", c.TRAIN_COST_PER_MILLION_TOKENS_DOLLARS, {}),
    ("projected_dollars", c.TRAIN_PROJECTED_COST_DOLLARS, {}),
    ("interruptions", c.TRAIN_INTERRUPTIONS_TOTAL, {}),
)


def run_rows(facts: Facts) -> list[dict[str, Any]]:
    """Return one row for each training run; what is not known is absent.

    `mfu` has the convention of the headline first, and `losses` say where the rest of the peak of
    the run's precision goes: with the headline they add up to 1. `withheld` are reasons that keep
    MFU from being told, `gpus` the indexes on this node, `slowest` the ranks that others wait for.
    """
    rows: dict[str, dict[str, Any]] = {}
    for labels, _ in facts.all(c.TRAIN_RUN_INFO):
        if labels["run"] not in rows:
            rows[labels["run"]] = {
                "run": labels["run"], "framework": labels["framework"],
                "model_name": labels["model_name"], "precision": labels["precision"],
                "scope": labels["scope"], "mfu": [], "losses": [], "withheld": [], "gpus": [],
                "slowest": [], "lost_seconds": {},
            }  # fmt: skip
    for field, metric, where in _FIELDS:
        for run, value in facts.by(metric, "run", **where).items():
            if run in rows:
                rows[run].setdefault(field, value)
    for run, row in rows.items():
        _efficiency(facts, run, row)
        _ranks(facts, run, row)
    return list(rows.values())


def _efficiency(facts: Facts, run: str, row: dict[str, Any]) -> None:
    row["mfu"] = [
        {"convention": labels["convention"], "peak": labels["peak"], "ratio": value}
        for labels, value in sorted(
            facts.all(c.TRAIN_MFU_RATIO, run=run),
            key=lambda fact: fact.labels["convention"] != HEADLINE,
        )
    ]
    row["losses"] = [
        {"cause": labels["cause"], "evidence": labels["evidence"], "ratio": value}
        for labels, value in facts.all(c.TRAIN_MFU_LOSS_RATIO, run=run)
    ]
    row["withheld"] = [
        labels["reason"] for labels, value in facts.all(c.TRAIN_MFU_WITHHELD, run=run) if value
    ]
    for labels, value in facts.all(c.TRAIN_LOST_SECONDS_TOTAL, run=run):
        row["lost_seconds"][labels["cause"]] = value


def _ranks(facts: Facts, run: str, row: dict[str, Any]) -> None:
    row["gpus"] = [labels["gpu"] for labels, _ in facts.all(c.TRAIN_RUN_GPU, run=run)]
    scores = [
        {"rank": labels["rank"], "score": value}
        for labels, value in facts.all(c.TRAIN_STRAGGLER_SCORE, run=run)
        if value > 0
    ]
    row["slowest"] = sorted(scores, key=lambda one: -float(str(one["score"])))[:_MOST_RANKS]
