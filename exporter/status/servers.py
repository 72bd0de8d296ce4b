"""The inference servers of the status document: one row each, with its models."""

from __future__ import annotations

from typing import Any

from exporter import catalogue as c
from exporter.samples import Metric, SourceView
from exporter.status.facts import Facts

_KEY = ("server", "model_name", "model_version")
_READER = "inference:"
_PROBE = "probe:"

_FIELDS: tuple[tuple[str, Metric, dict[str, str]], ...] = (
    ("active_requests", c.LLM_ACTIVE_REQUESTS, {}),
    ("waiting_requests", c.LLM_WAITING_REQUESTS, {}),
    ("kv_cache_usage_ratio", c.LLM_KV_CACHE_USAGE_RATIO, {}),
    ("input_tokens", c.LLM_TOKENS_TOTAL, {"direction": "input"}),
    ("output_tokens", c.LLM_TOKENS_TOTAL, {"direction": "output"}),
    ("preemptions", c.LLM_PREEMPTIONS_TOTAL, {}),
    ("concurrency_limit", c.LLM_CONCURRENCY_LIMIT, {}),
    ("stalled", c.LLM_STALLED, {}),
    ("requests_per_second", c.LLM_REQUESTS_PER_SECOND, {"window": "5m"}),
    ("input_tokens_per_second", c.LLM_INPUT_TOKENS_PER_SECOND, {"window": "5m"}),
    ("output_tokens_per_second", c.LLM_OUTPUT_TOKENS_PER_SECOND, {"window": "5m"}),
    ("prefix_cache_hit_ratio", c.LLM_PREFIX_CACHE_HIT_RATIO, {"window": "5m"}),
    ("queue_time_ratio", c.LLM_QUEUE_TIME_RATIO, {"window": "5m"}),
    ("mfu_ratio", c.LLM_MFU_RATIO, {"window": "5m"}),
    ("prefill_mfu_ratio", c.LLM_PREFILL_MFU_RATIO, {"window": "5m"}),
    ("decode_mbu_ratio", c.LLM_DECODE_MBU_RATIO, {"window": "5m"}),
    ("tokens_per_joule", c.LLM_TOKENS_PER_JOULE, {"window": "5m"}),
    (
        "dollars_per_million_output_tokens", c.LLM_COST_PER_MILLION_TOKENS_DOLLARS,
        {"window": "1h", "direction": "output"},
    ),
    (
        "dollars_per_million_tokens", c.LLM_COST_PER_MILLION_TOKENS_DOLLARS,
        {"window": "1h", "direction": "blended"},
    ),
)  # fmt: skip


def server_rows(facts: Facts) -> list[dict[str, Any]]:
    """Return one row for each scraped inference server, failing ones included.

    `latency` of a model has seconds by signal and percentile over the last five minutes, between
    `lower` and `upper`: a histogram says no more. `probes` are what asking the server itself says.
    """
    models = _models(facts)
    rows = []
    for source in facts.view.sources:
        if not source.name.startswith(_READER) or source.group != c.SERVING:
            continue
        infos = [s for s in source.batch if s.metric is c.LLM_SERVER_INFO]
        engine, name, version = infos[0].labels if infos else ("", _name(source), "")
        rows.append({
            "server": name,
            "state": source.state,
            "age_seconds": source.age,
            "engine": engine,
            "version": version,
            "models": models.get(name, []),
            "unresolved": [
                labels["metric"] for labels, _ in facts.all(c.LLM_MAPPING_UNRESOLVED, server=name)
            ],
            "gpus": [labels["gpu"] for labels, _ in facts.all(c.LLM_SERVER_GPU, server=name)],
            "probes": facts.by(c.LLM_PROBE_UP, "kind", server=name),
        })  # fmt: skip
    return rows


def _name(source: SourceView) -> str:
    return source.name.removeprefix(_READER)


def _models(facts: Facts) -> dict[str, list[dict[str, Any]]]:
    models: dict[tuple[str, ...], dict[str, Any]] = {}

    def model(labels: dict[str, str]) -> dict[str, Any]:
        key = tuple([labels[name] for name in _KEY])
        return models.setdefault(key, {"model_name": key[1], "model_version": key[2]})

    for field, metric, where in _FIELDS:
        for labels, value in facts.all(metric, **where):
            model(labels).setdefault(field, value)
    for bound, metric in _LATENCY:
        for labels, value in facts.all(metric, window="5m"):
            signals = model(labels).setdefault("latency", {})
            percentiles = signals.setdefault(labels["signal"], {})
            percentiles.setdefault(labels["percentile"], {})[bound] = value
    by_server: dict[str, list[dict[str, Any]]] = {}
    for key, one in models.items():
        by_server.setdefault(key[0], []).append(one)
    return by_server


_LATENCY: tuple[tuple[str, Metric], ...] = (
    ("seconds", c.LLM_LATENCY_QUANTILE_SECONDS),
    ("lower", c.LLM_LATENCY_QUANTILE_LOWER_SECONDS),
    ("upper", c.LLM_LATENCY_QUANTILE_UPPER_SECONDS),
)
