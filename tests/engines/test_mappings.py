"""Every recorded or composed page of an engine, beside what a person read from it.

The numbers are written by hand from the pages. A key is the metric and its own labels, then the
model (and version) where a page has several; a histogram is its count and sum. What is not in a
table must not be made: an engine that does not measure something has no such sample.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter.engines import Engine, Translator, detect, load_engines
from exporter.formats.exposition import Reader
from exporter.samples import Drop, Gate, Histogram, Sample

PAGES = Path(__file__).parent.parent / "data" / "engines"
SHIPPED = load_engines()
NOTES = (
    c.LLM_SERVER_INFO,
    c.LLM_SOURCE_INFO,
    c.LLM_MAPPING_UNRESOLVED,
    c.LLM_RANK_CHANGES_TOTAL,
)

Told = dict[str, float | tuple[float, float]]

NOTHING_WRONG = {
    "requests_total abort": 0,
    "requests_total error": 0,
    "requests_total repetition": 0,
    "requests_total rejected": 0,
    "preemptions_total": 0,
}
AT_REST = {"active_requests": 0, "waiting_requests": 0, "kv_cache_usage_ratio": 0}

EXPECTED: dict[str, tuple[str, str, Told]] = {
    # ------------------------------------------------------------ vLLM
    "vllm-0.32.0-cpu.prom": (
        "vllm",
        "mid-llama",
        NOTHING_WRONG
        | AT_REST
        | {
            # Five clients went away: in no outcome, in no latency but the first.
            "ttft": (225, 555.6785793304443),
            "tpot": (220, 8.121225853063171),
            "itl": (14714, 482.8542650230024),
            "e2e": (220, 1036.0585157871246),
            "queue": (220, 484.5717295700024),
            "prefill_seconds_total": 52.17777339299573,
            "decode_seconds_total": 481.0829682830031,
            "tokens_total input": 80905,
            "tokens_total output": 14939,
            "requests_total stop": 7,
            "requests_total length": 213,
            "http_responses_total 2xx": 225,
            "http_responses_total 4xx": 11,
            "prefix_cache_queried_tokens_total": 80905,
            "prefix_cache_hit_tokens_total": 19968,
            "prefill_tokens_total": 60937,
            "finished_input_tokens_total": 80089,
            "finished_output_tokens_total": 14846,
            "engine_steps_total": 7363,
            "kv_cache_capacity_tokens": 43648,
            "server_start_time_seconds": 1795970205.99,
            "kv_cache_info auto": 1,
            "server_ranks": 1,
        },
    ),
    "vllm-0.32.0-cpu-underload.prom": (
        "vllm",
        "mid-llama",
        NOTHING_WRONG
        | {
            "ttft": (97, 181.7102291584015),
            "tpot": (91, 3.2778663778423933),
            "itl": (5439, 196.4242613400006),
            "e2e": (91, 331.18187499046326),
            "queue": (91, 114.71600357200214),
            "prefill_seconds_total": 21.798873503999857,
            "decode_seconds_total": 186.51316573900203,
            "tokens_total input": 27874,
            "tokens_total output": 5536,
            "active_requests": 6,
            "waiting_requests": 16,
            "requests_total stop": 0,
            "requests_total length": 91,
            "http_responses_total 2xx": 91,
            "kv_cache_usage_ratio": 0.07647058823529407,
            "prefix_cache_queried_tokens_total": 27874,
            "prefix_cache_hit_tokens_total": 0,
            "prefill_tokens_total": 27874,
            "finished_input_tokens_total": 25139,
            "finished_output_tokens_total": 5376,
            "engine_steps_total": 2565,
            "kv_cache_capacity_tokens": 43648,
            "server_start_time_seconds": 1795970205.99,
            "kv_cache_info auto": 1,
            "server_ranks": 1,
        },
    ),
    "vllm-0.32.0-cpu-cold.prom": (
        "vllm",
        "mid-llama",
        NOTHING_WRONG
        | AT_REST
        | {
            "ttft": (0, 0),
            "tpot": (0, 0),
            "itl": (0, 0),
            "e2e": (0, 0),
            "queue": (0, 0),
            "prefill_seconds_total": 0,
            "decode_seconds_total": 0,
            "tokens_total input": 0,
            "tokens_total output": 0,
            "requests_total stop": 0,
            "requests_total length": 0,
            "prefix_cache_queried_tokens_total": 0,
            "prefix_cache_hit_tokens_total": 0,
            "prefill_tokens_total": 0,
            "finished_input_tokens_total": 0,
            "finished_output_tokens_total": 0,
            "engine_steps_total": 0,
            "kv_cache_capacity_tokens": 43648,
            "server_start_time_seconds": 1795970205.99,
            "kv_cache_info auto": 1,
            "server_ranks": 1,
        },
    ),
    "vllm-0.32.0-cpu-dp2.prom": (
        "vllm",
        "tiny-llama",
        NOTHING_WRONG
        | AT_REST
        | {
            "ttft": (56 + 53, 2.815563678741455 + 2.5088868141174316),
            "tpot": (56 + 53, 0.38325748829353556 + 0.33938107159778386),
            "itl": (2183 + 2038, 14.879981205002423 + 13.168012435997753),
            "e2e": (56 + 53, 17.660247325897217 + 15.635509490966797),
            "queue": (56 + 53, 0.005484705000981194 + 0.001655884001593222),
            "prefill_seconds_total": 2.161697850998735 + 1.9343538990001434,
            "decode_seconds_total": 14.879981205002423 + 13.168012435997753,
            "tokens_total input": 8649 + 8712,
            "tokens_total output": 2239 + 2091,
            "requests_total stop": 0,
            "requests_total length": 56 + 53,
            "http_responses_total 2xx": 109,
            "prefix_cache_queried_tokens_total": 8649 + 8712,
            "prefix_cache_hit_tokens_total": 0,
            "prefill_tokens_total": 8649 + 8712,
            "finished_input_tokens_total": 8649 + 8712,
            "finished_output_tokens_total": 2239 + 2091,
            "engine_steps_total": 1243 + 1246,
            "kv_cache_capacity_tokens": 2 * 174720,
            "server_start_time_seconds": 1795970801.78,
            "kv_cache_info auto": 1,
            "server_ranks": 2,
        },
    ),
    "vllm-0.32.0-cpu-apiservers2.prom": (
        "vllm",
        "tiny-llama",
        NOTHING_WRONG
        | AT_REST
        | {
            "ttft": (152, 4.973933696746826),
            "tpot": (152, 0.9276039463325734),
            "itl": (5812, 35.4294644839988),
            "e2e": (152, 40.33549427986145),
            "queue": (152, 0.0012464019978324359),
            "prefill_seconds_total": 3.8804771510021965,
            "decode_seconds_total": 35.4294644839988,
            "tokens_total input": 23365,
            "tokens_total output": 5964,
            "requests_total stop": 0,
            "requests_total length": 152,
            "http_responses_total 2xx": 152,
            "prefix_cache_queried_tokens_total": 23365,
            "prefix_cache_hit_tokens_total": 0,
            "prefill_tokens_total": 23365,
            "finished_input_tokens_total": 23365,
            "finished_output_tokens_total": 5964,
            "engine_steps_total": 3085,
            "kv_cache_capacity_tokens": 174720,
            "kv_cache_info auto": 1,
            "server_ranks": 1,
        },
    ),
    "vllm-0.4.x-v0-cpu-2024-06.prom": (
        "vllm",
        "facebook/opt-125m",
        AT_REST
        | {
            "ttft": (1, 0.31326723098754883),
            "itl": (6, 0.19016313552856445),
            "e2e": (1, 0.5034303665161133),
            "tokens_total input": 5,
            "tokens_total output": 7,
            "requests_total length": 1,
            "preemptions_total": 0,
            "finished_input_tokens_total": 5,
            "finished_output_tokens_total": 7,
            "kv_cache_capacity_tokens": 7281 * 16,
            "server_start_time_seconds": 1718140558.3,
            "kv_cache_info auto": 1,
            "server_ranks": 1,
        },
    ),
    "vllm-2026-05-dp2-excerpt.prom": (
        "vllm",
        "deepseek-v4-flash-w8a8-mtp",
        {"active_requests": 0, "server_ranks": 2},
    ),
    # Histograms without their end; families of which nothing is read.
    "vllm-0.10.0-v1-excerpt-a.prom": ("vllm", "", {}),
    "vllm-0.10.0-v1-excerpt-b.prom": ("vllm", "", {}),
    "vllm-0.6.x-lora-excerpt.prom": ("vllm", "", {}),
    "vllm-docs-iteration-tokens-excerpt.prom": ("vllm", "", {}),
    "vllm-0.5.1-ttft-zero-bug-excerpt.prom": ("vllm", "", {}),
    "ray-2.32-vllm-v0-excerpt.prom": (
        "vllm",
        "neuralmagic/Meta-Llama-3.1-70B-Instruct-FP8",
        # The hit rate is -1 there, which is no rate.
        {
            "itl": (299, 16.178537607192993),
            "tokens_total input": 58,
            "tokens_total output": 300,
            "active_requests": 0,
            "waiting_requests": 0,
            "kv_cache_usage_ratio": 5.882698982295764e-05,
            "server_ranks": 1,
        },
    ),
    "llm-d-inference-sim-2026-excerpt.prom": (
        "vllm",
        "kthena-mock-test",
        {
            "active_requests": 0,
            "waiting_requests": 0,
            "prefix_cache_hit_tokens_total": 8,
            "server_ranks": 1,
        },
    ),
    # ------------------------------------------------------------ llama.cpp: no latencies at all
    "llamacpp-b10434.prom": (
        "llamacpp",
        "",
        {
            "tokens_total input": 67682 + 12288,
            "tokens_total output": 20006,
            "prefill_seconds_total": 88.8366,
            "decode_seconds_total": 343.431,
            "active_requests": 0,
            "waiting_requests": 0,
            "prefix_cache_queried_tokens_total": 67682 + 12288,
            "prefix_cache_hit_tokens_total": 12288,
            "prefill_tokens_total": 67682,
            "engine_steps_total": 11122,
            "draft_tokens_total": 0,
            "accepted_draft_tokens_total": 0,
            "server_ranks": 1,
        },
    ),
    "llamacpp-b10434-underload.prom": (
        "llamacpp",
        "",
        {
            "tokens_total input": 36748,
            "tokens_total output": 8291,
            "prefill_seconds_total": 48.3726,
            "decode_seconds_total": 173.355,
            "active_requests": 4,
            "waiting_requests": 19,
            "prefix_cache_queried_tokens_total": 36748,
            "prefix_cache_hit_tokens_total": 0,
            "prefill_tokens_total": 36748,
            "engine_steps_total": 3701,
            "draft_tokens_total": 0,
            "accepted_draft_tokens_total": 0,
            "server_ranks": 1,
        },
    ),
    "llamacpp-b10434-cold.prom": (
        "llamacpp",
        "",
        {
            "tokens_total input": 0,
            "tokens_total output": 0,
            "prefill_seconds_total": 0,
            "decode_seconds_total": 0,
            "active_requests": 0,
            "waiting_requests": 0,
            "prefix_cache_queried_tokens_total": 0,
            "prefix_cache_hit_tokens_total": 0,
            "prefill_tokens_total": 0,
            "engine_steps_total": 0,
            "draft_tokens_total": 0,
            "accepted_draft_tokens_total": 0,
            "server_ranks": 1,
        },
    ),
    "llamacpp-b11549-xllamacpp.prom": (
        "llamacpp",
        "",
        {
            "tokens_total input": 119 + 1881,
            "tokens_total output": 800,
            "prefill_seconds_total": 0.087942,
            "decode_seconds_total": 1.39297,
            "active_requests": 0,
            "waiting_requests": 0,
            "prefix_cache_queried_tokens_total": 119 + 1881,
            "prefix_cache_hit_tokens_total": 1881,
            "prefill_tokens_total": 119,
            "engine_steps_total": 800,
            "draft_tokens_total": 0,
            "accepted_draft_tokens_total": 0,
            "server_ranks": 1,
        },
    ),
    # Whether cached tokens are among the first is not known: no prefix cache, no computed tokens.
    "ik_llamacpp-2025-08.prom": (
        "llamacpp",
        "",
        {
            "tokens_total input": 6886,
            "tokens_total output": 3469,
            "prefill_seconds_total": 2903.63,
            "decode_seconds_total": 3544.27,
            "active_requests": 0,
            "waiting_requests": 0,
            "kv_cache_usage_ratio": 0.491063,
            "server_ranks": 1,
        },
    ),
    "llamacpp-b4687-cold-start-excerpt.prom": (
        "llamacpp",
        "",
        {
            "tokens_total input": 0,
            "tokens_total output": 0,
            "prefill_seconds_total": 0,
            "decode_seconds_total": 0,
            "engine_steps_total": 0,
            "server_ranks": 1,
        },
    ),
    # ------------------------------------------------------------ SGLang
    "composed-sglang-0.5.23-dp2.prom": (
        "sglang",
        "Qwen/Qwen3-32B",
        {
            "ttft": (60, 32.25),
            "tpot": (60, 0.5575),
            "itl": (13940, 131.25),
            "e2e": (60, 174.75),
            "queue": (34 + 24, 0.75),
            "tokens_total input": 80000,
            "tokens_total output": 16000,
            "finished_input_tokens_total": 75000,
            "finished_output_tokens_total": 14500,
            "prefill_tokens_total": 70000,
            "requests_total success": 60,
            "requests_total abort": 4,
            "http_responses_total 200": 65,
            "http_responses_total 400": 2,
            "http_responses_total 503": 3,
            "active_requests": 8,
            "waiting_requests": 4,
            "kv_cache_usage_ratio": 0.5,
            "kv_cache_capacity_tokens": 200000,
            "preemptions_total": 4,
            "prefix_cache_queried_tokens_total": 80000,
            "prefix_cache_hit_tokens_total": 10000,
            "estimated_gpu_flops_total": 1.5e15,
            "server_ranks": 2,
        },
    ),
    "sglang-0.4.x-docs-elided.prom": (
        "sglang",
        "meta-llama/Llama-3.1-8B-Instruct",
        {
            "ttft": (11008, 2.3518979474117756e06),
            "itl": (7.400757e06, 866964.5791549598),
            "e2e": (11228, 3.116093850019932e06),
            "tokens_total input": 8128902,
            "tokens_total output": 7557572,
            "finished_input_tokens_total": 8128902,
            "finished_output_tokens_total": 7557572,
            "requests_total success": 11228,
            "active_requests": 162,
            "waiting_requests": 2826,
            "kv_cache_usage_ratio": 0.28,
            "server_ranks": 1,
        },
    ),
    "sglang-0.5.23-collector-replay.prom": (
        "sglang",
        "tiny-llama",
        {
            "ttft": (225, 556.4858209999999),
            "tpot": (220, 8.11639),
            "itl": (14714, 482.63097700000134),
            "e2e": (220, 1036.7455200000004),
            "finished_input_tokens_total": 80089,
            "finished_output_tokens_total": 14846,
            "requests_total success": 220,
            "requests_total abort": 5,
            "server_start_time_seconds": 1795973158.86,
            "server_ranks": 1,
        },
    ),
    "sglang-0.5.x-dp-excerpt.prom": (
        "sglang",
        "deepseek-r1",
        {"waiting_requests": 0, "server_ranks": 2},
    ),
    "sglang-2025-03-pr4444-excerpt.prom": (
        "sglang",
        "Meta-Llama-3-8B-Instruct",
        {"active_requests": 0, "kv_cache_usage_ratio": 0, "server_ranks": 1},
    ),
    "sglang-prerelease-2024-09-excerpt.prom": (
        "sglang",
        "",
        {"kv_cache_usage_ratio": 0, "server_ranks": 1},
    ),
    # ------------------------------------------------------------ TGI
    "composed-tgi-3.3.prom": (
        "tgi",
        "",
        {
            "tpot": (40, 0.7),
            "itl": (699, 8.5),
            "e2e": (40, 64.5),
            "queue": (40, 1.75),
            "tokens_total input": 900,
            "tokens_total output": 750,
            "finished_output_tokens_total": 750,
            "requests_total success": 40,
            "requests_total rejected": 5,
            "requests_total invalid": 3,
            "requests_total cancelled": 2,
            "requests_total error": 2,
            "active_requests": 4,
            "waiting_requests": 3,
            "kv_cache_usage_ratio": 0.25,
            "kv_cache_capacity_tokens": 12000,
            "engine_steps_total": 712,
            "server_ranks": 1,
        },
    ),
    "tgi-3.x-excerpt.prom": (
        "tgi",
        "",
        {
            "tokens_total input": 662,
            "requests_total success": 109,
            "requests_total invalid": 2,
            "active_requests": 0,
            "waiting_requests": 0,
            "engine_steps_total": 1509 + 16,
            "server_ranks": 1,
        },
    ),
    "tgis-on-vllm-2024-excerpt.prom": (
        "tgi",
        "",
        {"active_requests": 0, "waiting_requests": 0, "server_ranks": 1},
    ),
    # ------------------------------------------------------------ TensorRT-LLM and Triton
    "composed-trtllm-serve-1.3.prom": (
        "trtllm",
        "nemotron-nano-3",
        {
            "ttft": (40, 6.25),
            "tpot": (38, 0.41),
            "e2e": (40, 62.5),
            "queue": (40, 0.75),
            "prefill_seconds_total": 3.5,
            "decode_seconds_total": 56,
            "tokens_total input": 20000,
            "tokens_total output": 4100,
            "finished_input_tokens_total": 20000,
            "finished_output_tokens_total": 4100,
            "prefix_cache_queried_tokens_total": 20000,
            "prefix_cache_hit_tokens_total": 5000,
            "requests_total stop": 30,
            "requests_total length": 8,
            "requests_total cancelled": 2,
            "requests_total invalid": 3,
            "requests_total error": 1,
            "active_requests": 3,
            "waiting_requests": 1,
            "concurrency_limit": 256,
            "kv_cache_usage_ratio": 0.125,
            "kv_cache_capacity_tokens": 4096 * 32,
            "draft_tokens_total": 3000,
            "accepted_draft_tokens_total": 2100,
            "server_ranks": 1,
        },
    ),
    "trtllm-serve-2025-07-pr5785-excerpt.prom": (
        "trtllm",
        "",
        {"requests_total stop": 2, "server_ranks": 1},
    ),
    "trtllm-serve-2026-03-unprefixed-excerpt.prom": ("trtllm", "", {}),
    "composed-triton-trtllm.prom": (
        "triton",
        "",
        {
            "ttft tensorrt_llm 1": (30, 4.3),
            "request_duration_seconds_total ensemble 1": 45,
            "request_duration_seconds_total tensorrt_llm 1": 44.250001,
            "request_queueing_seconds_total ensemble 1": 0.0006,
            "request_queueing_seconds_total tensorrt_llm 1": 0.00125,
            "requests_total ensemble 1 success": 30,
            "requests_total tensorrt_llm 1 success": 30,
            "requests_total tensorrt_llm 1 rejected": 4,
            "requests_total tensorrt_llm 1 cancelled": 2,
            "requests_total tensorrt_llm 1 error": 2,
            "active_requests tensorrt_llm 1": 4,
            "waiting_requests tensorrt_llm 1": 2,
            "concurrency_limit tensorrt_llm 1": 512,
            "kv_cache_usage_ratio tensorrt_llm 1": 0.25,
            "kv_cache_capacity_tokens tensorrt_llm 1": 6400,
            "engine_steps_total ensemble 1": 30,
            "engine_steps_total tensorrt_llm 1": 28,
            "server_ranks": 1,
        },
    ),
    "triton-trtllm-readme-excerpt.prom": (
        "triton",
        "tensorrt_llm",
        {
            "active_requests 1": 0,
            "waiting_requests 1": 1,
            "concurrency_limit 1": 512,
            "server_ranks": 1,
        },
    ),
    # ------------------------------------------------------------ NIM, LMDeploy, MindIE
    "nim-llm-1.x-2024-10.prom": (
        "nim",
        "meta/llama-3.1-8b-instruct",
        {
            "ttft": (5, 0.6119842529296875),
            "itl": (169, 1.856855869293213),
            "e2e": (5, 2.4688401222229004),
            "tokens_total input": 109,
            "tokens_total output": 174,
            "finished_input_tokens_total": 109,
            "finished_output_tokens_total": 174,
            "active_requests": 1,
            "waiting_requests": 0,
            "concurrency_limit": 64,
            "requests_total length": 5,
            "requests_total error": 0,
            "kv_cache_usage_ratio": 0.0002848191398461977,
            "server_start_time_seconds": 1730312854.9,
            "server_ranks": 1,
        },
    ),
    "composed-lmdeploy-0.16.prom": (
        "lmdeploy",
        "internlm/internlm3-8b-instruct",
        {
            "ttft": (73, 4.25),
            "tpot": (70, 0.75),
            "itl": (6929, 83.5),
            "e2e": (73, 95.5),
            "queue": (73, 1.75),
            "prefill_seconds_total": 2.5,
            "decode_seconds_total": 91.25,
            "tokens_total input": 17000,
            "tokens_total output": 7000,
            "finished_input_tokens_total": 16800,
            "finished_output_tokens_total": 6850,
            "requests_total success": 67,
            "requests_total cancelled": 3,
            "requests_total invalid": 1,
            "requests_total error": 2,
            "active_requests": 5,
            "waiting_requests": 4,
            "kv_cache_usage_ratio": 0.375,
            "engine_steps_total": 1430 + 1125,
            "draft_tokens_total": 0,
            "accepted_draft_tokens_total": 0,
            "server_ranks": 2,
        },
    ),
    "mindie-2025-04-excerpt.prom": (
        "mindie",
        "qwen2.5-0.5b-instruct-mindie",
        {
            "tokens_total input": 195,
            "tokens_total output": 578,
            "requests_total success": 4,
            "requests_total error": 0,
            "active_requests": 0,
            "preemptions_total": 0,
            "server_ranks": 1,
        },
    ),
    # ------------------------------------------------------------ what stands around engines
    "composed-dynamo-frontend-1.6.prom": (
        "dynamo",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
        {
            "ttft": (82, 9.5),
            "itl": (6100, 70.25),
            "e2e": (90, 210.5),
            "tokens_total input": 30000,
            "tokens_total output": 6400,
            "finished_input_tokens_total": 30000,
            "finished_output_tokens_total": 6180,
            "prefix_cache_queried_tokens_total": 30000,
            "prefix_cache_hit_tokens_total": 12000,
            "requests_total success": 80,
            "requests_total invalid": 3,
            "requests_total rejected": 4,
            "requests_total abort": 2,
            "requests_total error": 1,
            "active_requests": 5,
            "waiting_requests": 2,
            "concurrency_limit": 256,
            "kv_cache_capacity_tokens": 128000,
            "server_ranks": 1,
        },
    ),
    "dynamo-frontend-2026-04-mocker-cold-excerpt.prom": (
        "dynamo",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
        {"concurrency_limit": 256, "server_ranks": 1},
    ),
    "ray-2.60.0-serve-excerpt.prom": (
        "ray",
        "llm",
        {
            "e2e": (56, 9.3),
            "requests_total success": 56,
            "requests_total error": 4,
            "http_responses_total 200": 56,
            "http_responses_total 500": 4,
            "active_requests": 1,
            "waiting_requests": 0,
            "server_ranks": 1,
        },
    ),
    "litellm-1.108.7-proxy.prom": (
        "litellm",
        "tiny",
        {
            "ttft": (4, 0.165171),
            "e2e": (4, 0.8126786192016602),
            "queue": (4, 0.051720619201660156),
            "tokens_total input": 68,
            "tokens_total output": 80,
            "finished_input_tokens_total": 68,
            "finished_output_tokens_total": 80,
            "prefix_cache_queried_tokens_total": 68,
            "prefix_cache_hit_tokens_total": 48,
            "requests_total success": 4,
            "requests_total other invalid": 1,
            "http_responses_total 200": 4,
            "http_responses_total 400": 1,
            "active_requests": 1,
            "server_start_time_seconds": 1795973080.15,
            "server_ranks": 1,
        },
    ),
    # ------------------------------------------------------------ applications
    "app-prometheus-client.prom": (
        "app",
        "llama-70b",
        {
            "ttft v2": (15, 3.3125),
            "ttft v1": (3, 0.75),
            "tokens_total input": 5400,
            "tokens_total output": 1800,
            "active_requests": 2,
            "server_start_time_seconds": 1795997287.63,
            "server_ranks": 1,
        },
    ),
    "composed-opentelemetry-gen-ai.prom": (
        "opentelemetry",
        "gpt-4o-mini",
        {
            "ttft": (40, 6.5),
            "tpot": (40, 0.55),
            "e2e": (40, 77.5),
            "requests_total success": 40,
            "requests_total error": 4,
            "tokens_total input": 6200,
            "tokens_total output": 2300,
            "finished_input_tokens_total": 6200,
            "finished_output_tokens_total": 2300,
            "server_ranks": 1,
        },
    ),
}

TRITON = "triton-2023-excerpt.prom"

RESOLVED = (
    "vllm-0.32.0-cpu.prom",
    "vllm-0.32.0-cpu-cold.prom",
    "vllm-0.32.0-cpu-underload.prom",
    "vllm-0.32.0-cpu-dp2.prom",
    "vllm-0.32.0-cpu-apiservers2.prom",
    "vllm-0.4.x-v0-cpu-2024-06.prom",
    "llamacpp-b10434.prom",
    "llamacpp-b10434-cold.prom",
    "llamacpp-b10434-underload.prom",
    "llamacpp-b11549-xllamacpp.prom",
    "ik_llamacpp-2025-08.prom",
    "nim-llm-1.x-2024-10.prom",
    "litellm-1.108.7-proxy.prom",
    "app-prometheus-client.prom",
)
"""Pages that SOURCES.md calls complete."""

STAND_IN = (
    "composed-sglang-0.5.23-dp2.prom",
    "sglang-0.4.x-docs-elided.prom",
    "sglang-0.5.23-collector-replay.prom",
    "composed-tgi-3.3.prom",
    "composed-trtllm-serve-1.3.prom",
    "composed-triton-trtllm.prom",
    TRITON,
    "composed-lmdeploy-0.16.prom",
    "mindie-2025-04-excerpt.prom",
    "composed-dynamo-frontend-1.6.prom",
    "dynamo-frontend-2026-04-mocker-cold-excerpt.prom",
    "ray-2.60.0-serve-excerpt.prom",
    "composed-opentelemetry-gen-ai.prom",
)
"""Pages of engines of which there is no complete recording."""

REPEATED = "sglang-via-smg-gateway-2026-excerpt.prom"


def owner(name: str) -> str | None:
    found = detect(SHIPPED, Reader().read((PAGES / name).read_bytes()).shape)
    return None if found is None else found.name


def read(name: str, *, narrow: bool = True) -> list[Sample | Drop]:
    """Translate a page; `narrow` keeps only what its engine wants, as the source does."""
    body = (PAGES / name).read_bytes()
    engine = next(engine for engine in SHIPPED if engine.name == owner(name))
    return list(
        Translator(engine, "a").translate(Reader(engine.wanted if narrow else None).read(body))
    )


def told(samples: list[Sample | Drop], model: str) -> Told:
    """Return what was made, under keys as in the tables."""
    found: Told = {}
    for sample in samples:
        if not isinstance(sample, Sample) or sample.metric in NOTES:
            continue
        labels = dict(zip(sample.metric.labels, sample.labels, strict=True))
        kept = [v for k, v in labels.items() if k not in ("engine", "server") and v]
        words = [w for w in kept if w != model]
        metric = sample.metric.name.removeprefix("llm_")
        value = sample.value
        if isinstance(value, Histogram):
            metric = metric.removesuffix("_seconds")
            value = value.counts[-1], value.sum  # type: ignore[assignment]
        key = " ".join([metric, *words])
        assert key not in found
        found[key] = value  # type: ignore[assignment]
    return found


def unresolved(samples: list[Sample | Drop]) -> list[str]:
    return [s.labels[2] for s in samples if s[0] is c.LLM_MAPPING_UNRESOLVED]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_page_says_what_a_person_reads_from_it(name: str) -> None:
    """Engine, model and every number of it; nothing that is not measured there."""
    engine, model, wanted = EXPECTED[name]
    assert owner(name) == engine
    found = told(read(name), model)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key] == pytest.approx(value, rel=1e-12), key


def test_triton_keeps_its_models_and_versions_apart() -> None:
    """Sums only, in microseconds, for each model and version."""
    found = told(read(TRITON), "")
    assert owner(TRITON) == "triton"
    assert found["request_duration_seconds_total densenet_onnx 1"] == 1.327965
    assert found["request_queueing_seconds_total densenet_onnx 1"] == 0.000145
    assert found["requests_total densenet_onnx 1 success"] == 3
    assert found["requests_total simple 1 error"] == 0
    assert {key.split()[0] for key in found} == {
        "request_duration_seconds_total",
        "request_queueing_seconds_total",
        "requests_total",
        "waiting_requests",
        "engine_steps_total",
        "server_ranks",
    }


def test_a_gateway_that_repeats_sglang_is_not_counted() -> None:
    """Its series have the address of a worker: that worker's own page is the one to read."""
    assert owner(REPEATED) is None


def test_every_page_has_its_numbers() -> None:
    """A new page needs a table."""
    recorded = {path.name for path in PAGES.glob("*.prom")}
    assert recorded == EXPECTED.keys() | {TRITON, REPEATED}


@pytest.mark.parametrize("name", [*RESOLVED, *STAND_IN])
def test_what_is_required_is_there(name: str) -> None:
    """A complete page, or what stands in for one, offers all that its engine must have."""
    assert unresolved(read(name)) == []


def test_an_engine_without_a_complete_page_is_experimental() -> None:
    """Each engine has a page; without a complete one it says so in its file and in its notes."""
    complete, stand_in = set(map(owner, RESOLVED)), set(map(owner, STAND_IN))
    assert complete | stand_in == {engine.name for engine in SHIPPED}
    assert {e.name for e in SHIPPED if e.experimental} == stand_in - complete
    for name in (*RESOLVED, *STAND_IN):
        notes = [s.labels[4] for s in read(name) if s[0] is c.LLM_SOURCE_INFO]
        assert notes
        said = {note.endswith("experimental mapping") for note in notes}
        assert said == {owner(name) not in complete}


@pytest.mark.parametrize("name", sorted({*EXPECTED, TRITON}))
def test_nothing_that_was_translated_is_dropped_later(name: str) -> None:
    """Labels, values, cumulation, duplicates: all in order."""
    samples = read(name)
    batch, drops = Gate(10_000).admit([s for s in samples if isinstance(s, Sample)])
    assert (len(batch), dict(drops)) == (len(samples), {})


@pytest.mark.parametrize("name", sorted({*EXPECTED, TRITON}))
def test_what_is_wanted_is_enough(name: str) -> None:
    """The engine is recognised among the telling names, and read from the wanted ones alone."""
    telling = [word for engine in SHIPPED for word in engine.telling]
    found = detect(SHIPPED, Reader(telling).read((PAGES / name).read_bytes()).shape)
    assert found is not None
    assert found.name == owner(name)
    assert read(name) == read(name, narrow=False)


@pytest.mark.parametrize(
    ("name", "personal"),
    [
        ("litellm-1.108.7-proxy.prom", ("litellm_proxy_master_key", "curl/", "default_user_id")),
        (TRITON, ("GPU-",)),
        ("tgis-on-vllm-2024-excerpt.prom", ("{",)),
    ],
)
def test_no_label_of_a_person_gets_out(name: str, personal: tuple[str, ...]) -> None:
    """Labels that are not ours are not passed on: LiteLLM's have users, keys and addresses."""
    body = (PAGES / name).read_text()
    told_of = " ".join(label for s in read(name) if isinstance(s, Sample) for label in s.labels)
    for word in personal:
        assert word in body
        assert word not in told_of


def test_bounds_are_in_seconds_and_as_the_engine_has_them() -> None:
    """Milliseconds lose no digit, the noise of TGI's bounds stays as it is."""
    by_name = {}
    for name in ("composed-triton-trtllm.prom", "composed-tgi-3.3.prom"):
        for sample in read(name):
            if isinstance(sample, Sample) and isinstance(sample.value, Histogram):
                by_name[name, sample.metric.name] = sample.value.bounds
    ttft = by_name["composed-triton-trtllm.prom", "llm_ttft_seconds"]
    assert ttft == (0.1, 0.5, 2.0, 5.0)
    noisy = by_name["composed-tgi-3.3.prom", "llm_e2e_seconds"]
    assert noisy[0] == 0.00015000000000000001
    assert len(noisy) == 35
    assert math.isclose(noisy[-1], 145.61096060497135)


NEWEST = {
    "dynamo": "composed-dynamo-frontend-1.6.prom",
    "litellm": "litellm-1.108.7-proxy.prom",
    "llamacpp": "llamacpp-b11549-xllamacpp.prom",
    "lmdeploy": "composed-lmdeploy-0.16.prom",
    "nim": "nim-llm-1.x-2024-10.prom",
    "opentelemetry": "composed-opentelemetry-gen-ai.prom",
    "ray": "ray-2.60.0-serve-excerpt.prom",
    "sglang": "composed-sglang-0.5.23-dp2.prom",
    "tgi": "composed-tgi-3.3.prom",
    "triton": "composed-triton-trtllm.prom",
    "trtllm": "composed-trtllm-serve-1.3.prom",
    "vllm": "vllm-0.32.0-cpu.prom",
}
"""The page of each engine's newest version; of `app` and MindIE there is none with everything."""

SIGNALS = {
    "TTFT": "llm_ttft_seconds",
    "TPOT": "llm_tpot_seconds",
    "ITL": "llm_itl_seconds",
    "E2E": "llm_e2e_seconds",
    "queue": "llm_queue_seconds",
    "tokens": "llm_tokens_total",
    "outcomes": "llm_requests_total",
    "active": "llm_active_requests",
    "waiting": "llm_waiting_requests",
    "KV cache": "llm_kv_cache_usage_ratio",
    "preemptions": "llm_preemptions_total",
    "prefix hits": "llm_prefix_cache_hit_tokens_total",
}
"""The columns of the table in docs/serving.md."""


def qualities(engine: Engine) -> dict[str, str]:
    """Return how good each metric is: on the newest page, else by the file's first way to it."""
    if engine.name in NEWEST:
        notes = [s.labels for s in read(NEWEST[engine.name]) if s[0] is c.LLM_SOURCE_INFO]
        return {metric: quality for _, _, metric, quality, *_ in notes}
    return {row.metric.name: row.sources[0].quality for row in engine.rows}


def test_the_table_of_engines_says_what_is_so() -> None:
    """Each cell is the quality of that metric, or none."""
    lines = (PAGES.parents[2] / "docs/serving.md").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| engine | TTFT"))
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[start:]]
    head, _, *rows = table[: table.index([])]
    assert head == ["engine", *SIGNALS]
    made = [
        [
            f"`{e.name}`" + "*" * e.experimental,
            *(qualities(e).get(m, "-") for m in SIGNALS.values()),
        ]
        for e in SHIPPED
    ]
    assert rows == made
