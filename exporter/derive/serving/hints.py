"""What to do where a threshold is no bound of an engine's buckets."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from exporter.objectives import Objective

# vLLM 0.32 and newer take a list of bounds for each family of histograms.
_VLLM: Mapping[str, str] = {
    "ttft": "time_to_first_token",
    "tpot": "inter_token_latency",
    "itl": "inter_token_latency",
    "e2e": "request_latency",
    "queue": "request_latency",
}
_SGLANG: Mapping[str, str] = {
    "ttft": "--bucket-time-to-first-token",
    "tpot": "--bucket-inter-token-latency",
    "itl": "--bucket-inter-token-latency",
    "e2e": "--bucket-e2e-request-latency",
}
_DYNAMO: Mapping[str, str] = {"ttft": "TTFT", "itl": "ITL", "e2e": "REQUEST_DURATION"}


def unaligned(objective: Objective, server: str, engine: str, bounds: Sequence[float]) -> str:
    """Return a line that names the nearest bounds, and how the engine is given others."""
    name = "/".join(filter(None, (objective.sla, objective.tier, objective.name)))
    threshold = objective.threshold or 0.0
    return (
        f"{name}: {_said(threshold)} is no bound of {objective.signal} at server {server!r}"
        f" ({engine}): {_nearest(threshold, bounds)}, so compliance has a lower and an upper bound;"
        f" promise one of these, or {_remedy(objective.signal, threshold, engine, bounds)}"
    )


def _said(seconds: float) -> str:
    return f"{seconds:.12g} s"


def _nearest(threshold: float, bounds: Sequence[float]) -> str:
    at = bisect_left(bounds, threshold)
    near = [_said(bound) for bound in bounds[max(0, at - 1) : at + 1]]
    if not near:
        return "there is none"
    if len(near) == 1:
        return f"the {'first' if at == 0 else 'last'} one is {near[0]}"
    return f"the nearest are {near[0]} and {near[1]}"


def _remedy(signal: str, threshold: float, engine: str, bounds: Sequence[float]) -> str:
    """Return what to start the engine with; the other bounds stay as they are."""
    wanted = sorted((*bounds, threshold))
    if engine == "vllm" and signal in _VLLM:
        value = json.dumps({_VLLM[signal]: wanted})
        return f"start vLLM (0.32 or newer) with --custom-histogram-buckets '{value}'"
    if engine == "sglang" and signal in _SGLANG:
        return f"start SGLang with {_SGLANG[signal]} {' '.join(f'{one:g}' for one in wanted)}"
    if engine == "dynamo" and signal in _DYNAMO:
        stem = f"DYN_METRICS_{_DYNAMO[signal]}"
        return f"set {stem}_MIN, {stem}_MAX and {stem}_COUNT for the front end of Dynamo"
    return "live with the bounds: this engine has no setting for them that is known here"
