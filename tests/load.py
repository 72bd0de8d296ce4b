"""Streaming load on an inference server, and the client's own count of everything.

Threads and the standard library only. Prompts are lists of token numbers, so that the client knows
exactly how many tokens it sent; answers are streamed, so that it sees each of them arrive.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["vllm", "llamacpp"]


@dataclass
class Request:
    """One request as its client saw it. Times are seconds."""

    prompt_tokens: int
    output_tokens: int = 0
    gaps: int = 0
    ttft: float | None = None
    e2e: float | None = None
    status: int = 0


@dataclass
class Load:
    """What has been asked and answered so far."""

    requests: list[Request] = field(default_factory=list)

    @property
    def finished(self) -> list[Request]:
        return [request for request in self.requests if request.e2e is not None]

    def total(self, what: str) -> int:
        return sum(getattr(request, what) for request in self.requests)


def drive(
    port: int, kind: Kind, *, clients: int, requests: int, vocabulary: int, model: str = "",
    seed: int = 1,
) -> Load:  # fmt: skip
    """Send `requests` requests from each of `clients` clients at once; return what came of it."""
    load = Load()

    def client(number: int) -> None:
        dice = random.Random(1000 * seed + number)
        for _ in range(requests):
            ids = [dice.randrange(300, vocabulary) for _ in range(dice.randrange(8, 60))]
            load.requests.append(ask(port, kind, ids, dice.randrange(4, 24), model))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return load


def ask(port: int, kind: Kind, ids: list[int], tokens: int, model: str) -> Request:
    """Send one request and read its stream to the end."""
    request = Request(len(ids))
    path, body = _body(kind, ids, tokens, model)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    began = time.monotonic()
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    request.status = answer.status
    for event in _events(answer):
        total = _total(kind, event, request.output_tokens)
        if total > request.output_tokens:
            if request.ttft is None:
                request.ttft = time.monotonic() - began
            else:
                request.gaps += 1
            request.output_tokens = total
    if answer.status == 200:
        request.e2e = time.monotonic() - began
    connection.close()
    return request


def _body(kind: Kind, ids: list[int], tokens: int, model: str) -> tuple[str, dict[str, Any]]:
    if kind == "vllm":
        # No "seed": with chunked prefill it ends vLLM 0.32's CPU engine.
        usage = {"include_usage": True, "continuous_usage_stats": True}
        return "/v1/completions", {
            "model": model, "prompt": ids, "max_tokens": tokens, "stream": True,
            "ignore_eos": True, "temperature": 1.0, "stream_options": usage,
        }  # fmt: skip
    return "/completion", {
        "prompt": ids, "n_predict": tokens, "stream": True, "ignore_eos": True,
        "return_tokens": True, "cache_prompt": True, "temperature": 1.0,
    }  # fmt: skip


def _events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in answer:
        if line.startswith(b"data:") and line.strip() != b"data: [DONE]":
            yield json.loads(line[5:])


def _total(kind: Kind, event: dict[str, Any], so_far: int) -> int:
    if kind == "vllm":
        return int((event.get("usage") or {}).get("completion_tokens", so_far))
    if "tokens_predicted" in event:
        return int(event["tokens_predicted"])
    return so_far + len(event.get("tokens") or ())
