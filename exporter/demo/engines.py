"""The metrics pages of the made-up node's inference servers, and what serves them.

The pages are those of vLLM 0.32 and of llama.cpp of 2026: names, HELP, labels, buckets and order
are the engines' own. Left out of vLLM's page are the series of the Python client about itself and
its process (but for the start time) and the sizes and durations of HTTP exchanges.
"""

from __future__ import annotations

import http.server
import logging
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from exporter.demo.node import BLOCK, Buckets, Node, Server

log = logging.getLogger(__name__)

VLLM_TYPE = "text/plain; version=1.0.0; charset=utf-8"
LLAMACPP_TYPE = "text/plain; version=0.0.4"

_EXTERNAL = "from KV connector cross-instance cache sharing, in terms of number of"
_MFU = "(for Model Flops Utilization calculations)."
_HISTOGRAMS: Mapping[str, str] = {
    "request_prompt_tokens": "Number of prefill tokens processed.",
    "request_generation_tokens": "Number of generation tokens processed.",
    "iteration_tokens_total": "Histogram of number of tokens per engine_step.",
    "request_max_num_generation_tokens": (
        "Histogram of maximum number of requested generation tokens."
    ),
    "request_params_n": "Histogram of the n request parameter.",
    "request_params_max_tokens": "Histogram of the max_tokens request parameter.",
    "time_to_first_token_seconds": "Histogram of time to first token in seconds.",
    "inter_token_latency_seconds": "Histogram of inter-token latency in seconds.",
    "request_time_per_output_token_seconds": (
        "Histogram of time_per_output_token_seconds per request."
    ),
    "e2e_request_latency_seconds": "Histogram of e2e request latency in seconds.",
    "request_queue_time_seconds": "Histogram of time spent in WAITING phase for request.",
    "request_inference_time_seconds": "Histogram of time spent in RUNNING phase for request.",
    "request_prefill_time_seconds": "Histogram of time spent in PREFILL phase for request.",
    "request_decode_time_seconds": "Histogram of time spent in DECODE phase for request.",
    "request_num_preemptions": "Histogram of the number of times a request was preempted.",
    "request_prefill_kv_computed_tokens": (
        "Histogram of new KV tokens computed during prefill (excluding cached tokens)."
    ),
}
_OTHERS = "speculative decoding and multimodal decoding"
_TIERS = ("device", "host", "p2p", "disk", "external_unspecified")


class _Family(NamedTuple):
    """A family of vLLM's page: one value, or one for each value of the label `by`."""

    name: str
    kind: str
    help: str
    values: float | Mapping[str, float]
    by: str = ""
    engine: bool = True


def vllm_page(node: Node) -> bytes:
    """Return the page of the vLLM server."""
    server, born = node.vllm, _go(node.born)
    lines = [
        "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.",
        "# TYPE process_start_time_seconds gauge",
        f"process_start_time_seconds {born}",
    ]
    model = f'model_name="{server.spec.name}"'
    for family in _families(server):
        lines += _plain(family, model, born)
    for name, text in _HISTOGRAMS.items():
        lines += _histogram(f"vllm:{name}", text, server.seen[name], model, born)
    lines += _cache_config(server)
    lines += _responses(server, born)
    return ("\n".join(lines) + "\n").encode()


def _families(server: Server) -> Iterator[_Family]:
    """Yield vLLM's gauges and counters in the order of its page."""
    waiting = len(server.waiting)
    flops, read, written = "floating point operations", "bytes read from", "bytes written to"
    # vLLM estimates these only when it is told to
    yield _Family(
        "estimated_flops_per_gpu", "counter", f"Estimated number of {flops} per GPU {_MFU}", 0
    )
    for way, said in (("read", read), ("write", written)):
        text = f"Estimated number of {said} memory per GPU {_MFU}"
        yield _Family(f"estimated_{way}_bytes_per_gpu", "counter", text, 0)
    yield _Family(
        "num_requests_running", "gauge", "Number of requests in model execution batches.",
        len(server.running),
    )  # fmt: skip
    yield _Family(
        "num_requests_waiting", "gauge", "Number of requests waiting to be processed.", waiting
    )
    yield _Family(
        "num_requests_waiting_by_reason", "gauge",
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling"
        " capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer,"
        " blocked status). Sum of all reasons equals vllm:num_requests_waiting.",
        {"capacity": waiting, "deferred": 0}, "reason",
    )  # fmt: skip
    yield _Family(
        "engine_sleep_state", "gauge",
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake;"
        " weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.",
        {"awake": 1, "weights_offloaded": 0, "discard_all": 0}, "sleep_state",
    )  # fmt: skip
    yield _Family(
        "kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.",
        server.held / server.spec.kv_tokens,
    )  # fmt: skip
    yield _Family(
        "prefix_cache_queries", "counter",
        "Prefix cache queries, in terms of number of queried tokens.", server.queried,
    )  # fmt: skip
    yield _Family(
        "prefix_cache_hits", "counter",
        "Prefix cache hits, in terms of number of cached tokens.", server.hits,
    )  # fmt: skip
    for what, said in (("queries", "queried"), ("hits", "cached")):
        text = f"External prefix cache {what} {_EXTERNAL} {said} tokens."
        yield _Family(f"external_prefix_cache_{what}", "counter", text, 0)
    for what, said in (("queries", "queried"), ("hits", "cached")):
        text = f"Multi-modal cache {what}, in terms of number of {said} items."
        yield _Family(f"mm_cache_{what}", "counter", text, 0)
    yield _Family(
        "num_preemptions", "counter", "Cumulative number of preemption from the engine.",
        server.preempted,
    )  # fmt: skip
    yield from _token_families(server)
    reasons = {**server.finished, "abort": 0, "error": 0, "repetition": 0}
    yield _Family(
        "request_success", "counter", "Count of successfully processed requests.", reasons,
        "finished_reason",
    )  # fmt: skip
    yield _Family(
        "admission_rejections", "counter",
        "Number of admission attempts rejected by a queue limit, by reason.",
        {"max_num_queued_reqs": 0, "max_num_queued_tokens": 0}, "reason", engine=False,
    )  # fmt: skip


def _token_families(server: Server) -> Iterator[_Family]:
    yield _Family(
        "prompt_tokens", "counter", "Number of prefill tokens processed.", server.prompted
    )
    sources = {
        "local_compute": server.prompted - server.prompt_hits,
        "local_cache_hit": server.prompt_hits,
        "external_kv_transfer": 0,
    }
    yield _Family(
        "prompt_tokens_by_source", "counter", "Number of prompt tokens by source.", sources,
        "source",
    )  # fmt: skip
    yield _Family(
        "prompt_tokens_cached", "counter", "Number of cached prompt tokens (local + external).",
        server.prompt_hits,
    )  # fmt: skip
    yield _Family(
        "prompt_tokens_cached_by_source", "counter",
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host"
        " (offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or"
        " external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits +"
        " vllm:external_prefix_cache_hits.",
        {tier: server.hits if tier == "device" else 0 for tier in _TIERS}, "source",
    )  # fmt: skip
    yield _Family(
        "generation_tokens", "counter", "Number of generation tokens processed.", server.generated
    )


def _plain(family: _Family, model: str, born: str) -> Iterator[str]:
    """Yield the lines of a gauge or a counter, and when the counter was made."""
    engine = 'engine="0",' if family.engine else ""
    if isinstance(family.values, Mapping):
        rows = []
        for value, number in family.values.items():
            label = f'{family.by}="{value}"'
            pair = f"{label},{model}" if family.by < "model_name" else f"{model},{label}"
            rows.append((f"{{{engine}{pair}}}", number))
    else:
        rows = [(f"{{{engine}{model}}}", family.values)]
    counter = family.kind == "counter"
    name = f"vllm:{family.name}"
    total = f"{name}_total" if counter else name
    yield f"# HELP {total} {family.help}"
    yield f"# TYPE {total} {family.kind}"
    for labels, number in rows:
        yield f"{total}{labels} {_go(number)}"
    if counter:
        yield f"# HELP {name}_created {family.help}"
        yield f"# TYPE {name}_created gauge"
        for labels, _ in rows:
            yield f"{name}_created{labels} {born}"


def _histogram(name: str, text: str, seen: Buckets, model: str, born: str) -> Iterator[str]:
    """Yield the lines of a histogram, and when it was made."""
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} histogram"
    counts = list(accumulate(seen.counts))
    bounds = (*map(_go, seen.bounds), "+Inf")
    for bound, count in zip(bounds, counts, strict=True):
        yield f'{name}_bucket{{engine="0",le="{bound}",{model}}} {_go(count)}'
    labels = f'{{engine="0",{model}}}'
    yield f"{name}_count{labels} {_go(counts[-1])}"
    yield f"{name}_sum{labels} {_go(seen.sum)}"
    yield f"# HELP {name}_created {text}"
    yield f"# TYPE {name}_created gauge"
    yield f"{name}_created{labels} {born}"


def _cache_config(server: Server) -> Iterator[str]:
    spec = server.spec
    labels = {
        "_block_size_resolved": "True", "block_size": BLOCK, "cache_dtype": "auto",
        "cache_hit_alignment_tokens": None, "effective_attention_block_size": BLOCK,
        "enable_mamba_shared_prefix_checkpoint": False, "enable_prefix_caching": True,
        "engine": 0, "gpu_memory_utilization": 0.92, "hash_block_size": None,
        "is_attention_free": False, "kv_cache_dtype_skip_layers": "[]", "kv_cache_layout": None,
        "kv_cache_max_concurrency": spec.kv_tokens / 32_768, "kv_cache_memory_bytes": None,
        "kv_cache_size_tokens": spec.kv_tokens, "kv_offloading_backend": "native",
        "kv_offloading_size": None, "kv_sharing_fast_prefill": False, "mamba_block_size": None,
        "mamba_cache_dtype": "auto", "mamba_cache_mode": "none", "mamba_page_size_padded": None,
        "mamba_ssm_cache_dtype": "float32", "num_cpu_blocks": None,
        "num_gpu_blocks": spec.kv_tokens // BLOCK, "num_gpu_blocks_override": None,
        "prefix_cache_retention_interval": 0, "prefix_caching_hash_algo": "sha256",
        "prefix_match_unit": None, "replayssm_buffer_len": 16, "skip_page_size_padded": None,
        "sliding_window": None, "swa_bounded_replay": True, "use_kda_recoverssm": False,
        "use_replayssm": False, "user_specified_block_size": False,
    }  # fmt: skip
    inside = ",".join(f'{label}="{value}"' for label, value in labels.items())
    yield "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig"
    yield "# TYPE vllm:cache_config_info gauge"
    yield f"vllm:cache_config_info{{{inside}}} 1.0"


def _responses(server: Server, born: str) -> Iterator[str]:
    """Yield the HTTP responses: the one place where refused requests show."""
    answered = server.finished["stop"] + server.finished["length"] + server.aborted
    codes = {"2xx": answered, "4xx": server.refused}
    labels = {
        code: f'{{handler="/v1/chat/completions",method="POST",status="{code}"}}'
        for code, number in codes.items()
        if number
    }
    if not labels:
        return  # the family comes with the first request
    text = "Total number of requests by method, status and handler."
    yield f"# HELP http_requests_total {text}"
    yield "# TYPE http_requests_total counter"
    for code, pair in labels.items():
        yield f"http_requests_total{pair} {_go(codes[code])}"
    yield f"# HELP http_requests_created {text}"
    yield "# TYPE http_requests_created gauge"
    for pair in labels.values():
        yield f"http_requests_created{pair} {born}"


def _go(value: float) -> str:
    """Return a number as Python's Prometheus client prints it: exponents from a million on."""
    text = repr(float(value))
    if value < 1e6:
        return text
    # always a leading zero in the exponent, also before two digits
    return f"{Decimal(text).normalize():e}".replace("e+", "e+0")


def llamacpp_page(node: Node) -> bytes:
    """Return the page of the llama.cpp server.

    As in the original, the two throughput gauges are means since the page was last read, so
    reading it changes the next page.
    """
    server = node.llamacpp
    prompting, predicting = server.speeds()
    counters = (
        ("prompt_tokens_total", "Number of prompt tokens processed, excluding cached tokens",
         server.prompted - server.prompt_hits),
        ("prompt_tokens_cached_total", "Number of prompt tokens reused from the cache",
         server.prompt_hits),
        ("prompt_seconds_total", "Total time spent processing prompts", server.prompt_seconds),
        ("tokens_predicted_total", "Number of generation tokens processed", server.ended_tokens),
        ("tokens_predicted_seconds_total", "Total time spent generating tokens",
         server.decode_seconds),
        ("n_decode_total", f"Total number of llama_decode() calls, excluding {_OTHERS}",
         server.steps),
        ("n_tokens_max", "Largest observed sequence length (prompt + generation)", server.longest),
        ("spec_decode_num_draft_tokens_total", "Speculative: Total draft tokens generated", 0),
        ("spec_decode_num_accepted_tokens_total",
         "Speculative: Total draft tokens accepted by the target model", 0),
        ("spec_decode_num_drafts_total",
         "Speculative: Total speculative decoding verification steps", 0),
    )  # fmt: skip
    gauges = (
        ("prompt_tokens_seconds", "Average prompt throughput in tokens/s", prompting),
        ("predicted_tokens_seconds", "Average generation throughput in tokens/s", predicting),
        ("requests_processing", "Number of requests processing", len(server.running)),
        ("requests_deferred", "Number of requests deferred", len(server.waiting)),
        ("n_busy_slots_per_decode", "Average number of busy slots per llama_decode() call",
         server.busy_slots / max(1, server.steps)),
    )  # fmt: skip
    lines = []
    for kind, rows in (("counter", counters), ("gauge", gauges)):
        for name, text, value in rows:
            lines.append(f"# HELP llamacpp:{name} {text}")
            lines.append(f"# TYPE llamacpp:{name} {kind}")
            # six significant digits: beyond a million the last ones are lost, as in the original
            lines.append(f"llamacpp:{name} {value:.6g}")
    return ("\n".join(lines) + "\n").encode()


class PageServer:
    """Serves one page at `url`, on the loopback interface and a free port.

    Has no thread of its own: whoever has one calls `serve_forever` in it, which returns after
    `shutdown`. One exchange at a time, one exchange for each connection, so that a client that
    keeps its connection open keeps nobody else waiting. `page` is called in that thread. `handler`
    answers in place of the one for pages.
    """

    def __init__(
        self,
        page: Callable[[], bytes],
        content_type: str = VLLM_TYPE,
        handler: Callable[..., http.server.BaseHTTPRequestHandler] | None = None,
    ) -> None:
        answer: Any = handler or partial(_Handler, page, content_type)
        self._server = _Listener(("127.0.0.1", 0), answer)
        self._lock = threading.Lock()
        self._closed = self._served = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/metrics"

    def serve_forever(self) -> None:
        """Answer until `shutdown` is called, at once if it was."""
        with self._lock:
            if self._closed:
                return
            self._served = True
        self._server.serve_forever(poll_interval=0.2)

    def shutdown(self) -> None:
        """Stop answering and give the port back; not from the thread that serves."""
        with self._lock:
            self._closed = True
        if self._served:  # else the call would wait for a loop that never began
            self._server.shutdown()
        self._server.server_close()


class _Listener(socketserver.TCPServer):
    """A listener without the look-up of its own name that `http.server` makes."""

    request_queue_size = 16

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        log.debug("client=%s: exchange broke off: %r", client_address, sys.exception())


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers one request; a client that asks nothing is left after five seconds."""

    timeout = 5.0

    def __init__(self, page: Callable[[], bytes], content_type: str, *exchange: Any) -> None:
        self._page = page
        self._content_type = content_type
        super().__init__(*exchange)  # which answers at once

    def do_GET(self) -> None:
        """Answer with the page, to `/health` with nothing, or 404 for any other path."""
        path = self.path.partition("?")[0]
        if path not in {"/metrics", "/health"}:
            self.send_error(404)
            return
        body = self._page() if path == "/metrics" else b""
        self.send_response(200)
        self.send_header("Content-Type", self._content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        log.debug(format, *args)
