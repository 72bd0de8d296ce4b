"""Open-loop streaming load on an inference server, and what its client saw of each request.

    python -m tests.real.load PORT KIND MODEL PLAN.json RECORDS.jsonl

Requests come when they come (Poisson arrivals, and bursts), not when the one before has ended: a
client that waits for a slow server hides the slowness. A process of its own, one thread, and no
parsing while it runs, so that arrival times are those of the socket. Times are Unix seconds with
the steadiness of the monotonic clock; each request becomes one line of RECORDS.jsonl when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

from tests.real.priority import hurry

Kind = Literal["vllm", "llamacpp"]
Outcome = Literal["finished", "aborted", "rejected", "broken", "unreachable"]

GIVE_UP = 120.0
CONTEXT = 1024
"""Tokens that the servers of these tests accept for prompt and answer together."""


class Phase(NamedTuple):
    """A stretch of load. Seconds, requests a second; shares of requests are from 0 to 1.

    Every `burst_every` seconds `burst` more requests come at once. Lengths are drawn from `prompt`
    (evenly between two) and `output` (one of these). `aborts`: the client leaves in mid-answer;
    only answers longer than that of `PATIENCE` tokens, so that the server cannot be done by then.
    `too_long` and `bad_model` are requests that the server refuses.
    """

    name: str
    seconds: float
    rate: float
    burst: int = 0
    burst_every: float = 0.0
    prompt: tuple[int, int] = (16, 200)
    output: tuple[int, ...] = (1, 8, 32, 96)
    aborts: float = 0.0
    too_long: float = 0.0
    bad_model: float = 0.0


PATIENCE = 60


@dataclass
class Record:
    """One request as its client saw it.

    `arrivals` holds when each piece of the answer came, and how many tokens were in it; `ended`
    when the connection was closed, by whoever did it.
    """

    number: int
    phase: str
    wanted: str
    sent: float
    prompt_tokens: int
    max_tokens: int
    status: int = 0
    outcome: Outcome = "unreachable"
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    ended: float = 0.0
    cached_tokens: int = 0
    error: str = ""

    @property
    def tokens(self) -> int:
        return sum(number for _, number in self.arrivals)


class Order(NamedTuple):
    """A request that is due `at` seconds after the start."""

    at: float
    phase: str
    wanted: str
    prompt_tokens: int
    max_tokens: int
    leave_after: int


def orders(phases: list[Phase], seed: int) -> Iterator[Order]:
    """Yield what will be asked and when; the same seed asks the same."""
    dice = random.Random(seed)
    began = 0.0
    for phase in phases:
        times = []
        at = dice.expovariate(phase.rate) if phase.rate else phase.seconds
        while at < phase.seconds:
            times.append(at)
            at += dice.expovariate(phase.rate)
        if phase.burst:
            bursts = int(phase.seconds / phase.burst_every)
            times += [phase.burst_every * (n + 0.5) for n in range(bursts)] * phase.burst
        for at in sorted(times):
            yield _order(phase, began + at, dice)
        began += phase.seconds


def _order(phase: Phase, at: float, dice: random.Random) -> Order:
    wanted = "answer"
    fate = dice.random()
    for name in ("too_long", "bad_model"):
        share = getattr(phase, name)
        if 0 <= fate < share:
            wanted = name
        fate -= share
    prompt = CONTEXT + 64 if wanted == "too_long" else dice.randint(*phase.prompt)
    tokens = dice.choice(phase.output)
    leaves = tokens > PATIENCE and wanted == "answer" and dice.random() < phase.aborts
    after = dice.randint(2, tokens - PATIENCE + 2) if leaves else 0
    return Order(at, phase.name, wanted, prompt, tokens, after)


class Exchange(asyncio.Protocol):
    """One request on a connection of its own: when which bytes came."""

    def __init__(self, request: bytes, leave_after: int) -> None:
        self.pieces: list[tuple[float, bytes]] = []
        self.left = False
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._request = request
        self._leave_after = leave_after
        self._events = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.pieces.append((time.monotonic(), data))
        if self._leave_after:
            self._events += data.count(b"\ndata: {") + data.startswith(b"data: {")
            if self._events >= self._leave_after and self._transport is not None:
                self.left = True
                self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result("" if exc is None or self.left else repr(exc))


class Client:
    """Sends what is ordered to one server and writes down what came."""

    def __init__(self, port: int, kind: Kind, model: str, vocabulary: int, out: IO[str]) -> None:
        self._port = port
        self._kind: Kind = kind
        self._model = model
        self._vocabulary = vocabulary
        self._out = out
        self._numbers = count(1)
        self._offset = time.time() - time.monotonic()

    async def run(self, todo: list[Order], seed: int) -> None:
        """Send every order when it is due; return when the last answer has ended.

        SIGTERM: nothing more is sent.
        """
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        dice = random.Random(seed)
        bodies = [self._request(order, dice) for order in todo]
        began = time.monotonic()
        tasks = set()
        for order, body in zip(todo, bodies, strict=True):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), max(0.0, began + order.at - time.monotonic()))
            if stop.is_set():
                break
            tasks.add(asyncio.create_task(self._one(order, body)))
        await asyncio.gather(*tasks)

    async def _one(self, order: Order, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        sent = time.monotonic()
        record = Record(
            next(self._numbers), order.phase, order.wanted, sent + self._offset,
            order.prompt_tokens, order.max_tokens,
        )  # fmt: skip
        exchange = Exchange(request, order.leave_after)
        try:
            transport, _ = await loop.create_connection(lambda: exchange, "127.0.0.1", self._port)
        except OSError as error:
            record.error = repr(error)
        else:
            done, _ = await asyncio.wait([exchange.ended], timeout=GIVE_UP)
            record.error = exchange.ended.result() if done else "gave up"
            transport.abort()
            self._read(record, exchange)
        record.ended = time.monotonic() + self._offset
        self._out.write(json.dumps(asdict(record)) + "\n")
        self._out.flush()

    def _read(self, record: Record, exchange: Exchange) -> None:
        """Find out from the bytes what came when."""
        finished = False
        for at, line in lines(exchange.pieces):
            if line.startswith(b"HTTP/1.") and not record.status:
                record.status = int(line.split()[1])
            elif line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if "error" in event:
                    record.error = json.dumps(event["error"])
                    continue
                new = _total(self._kind, event, record.tokens) - record.tokens
                if new > 0:
                    record.arrivals.append((at + self._offset, new))
                finished = finished or _finished(self._kind, event)
                record.cached_tokens = _cached(event) or record.cached_tokens
        if exchange.left:
            record.outcome = "aborted"
        elif finished:
            record.outcome = "finished"
        else:
            record.outcome = "rejected" if 400 <= record.status < 500 else "broken"

    def _request(self, order: Order, dice: random.Random) -> bytes:
        ids = [dice.randrange(300, self._vocabulary) for _ in range(order.prompt_tokens)]
        if self._kind == "vllm":
            path = "/v1/completions"
            # No "seed": with chunked prefill it ends vLLM 0.32's CPU engine.
            body: dict[str, Any] = {
                "model": "no-such-model" if order.wanted == "bad_model" else self._model,
                "prompt": ids, "max_tokens": order.max_tokens, "stream": True, "ignore_eos": True,
                "temperature": 1.0,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            }  # fmt: skip
        else:
            path = "/completion"
            body = {
                "prompt": None if order.wanted == "bad_model" else ids,
                "n_predict": order.max_tokens, "stream": True, "ignore_eos": True,
                "return_tokens": True, "cache_prompt": True, "temperature": 1.0,
            }  # fmt: skip
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        return head.encode() + content


def lines(pieces: list[tuple[float, bytes]]) -> Iterator[tuple[float, bytes]]:
    """Yield each line with the time at which its end came.

    Sizes of HTTP chunks come out as lines of their own: servers write an event as one chunk.
    """
    rest = b""
    for at, data in pieces:
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield at, line.rstrip(b"\r")


def _total(kind: Kind, event: dict[str, Any], so_far: int) -> int:
    """Return how many tokens the answer has after an event."""
    if kind == "vllm":
        return int((event.get("usage") or {}).get("completion_tokens", so_far))
    if "tokens_predicted" in event:
        return int(event["tokens_predicted"])
    return so_far + len(event.get("tokens") or ())


def _finished(kind: Kind, event: dict[str, Any]) -> bool:
    if kind == "vllm":
        return any(choice.get("finish_reason") for choice in event.get("choices", ()))
    return bool(event.get("stop"))


def _cached(event: dict[str, Any]) -> int:
    details = (event.get("usage") or {}).get("prompt_tokens_details") or {}
    return int(details.get("cached_tokens") or event.get("timings", {}).get("cache_n") or 0)


def main() -> None:
    port, kind, model, plan, out = sys.argv[1:]
    wanted = json.loads(Path(plan).read_text())
    phases = [Phase(**phase) for phase in wanted["phases"]]
    # The client must not wait for the CPU that the server takes, nor for its own garbage.
    hurry(os.getpid(), "talks")
    gc.disable()
    assert kind in ("vllm", "llamacpp")
    with Path(out).open("w") as file:
        client = Client(int(port), kind, model, wanted["vocabulary"], file)
        asyncio.run(client.run(list(orders(phases, wanted["seed"])), wanted["seed"]))


if __name__ == "__main__":
    main()
