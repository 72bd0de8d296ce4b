"""Probes against real servers: what counts as up, what as down, and what says nothing."""

from __future__ import annotations

import json
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter import catalogue as c
from exporter.clock import Clock, SystemClock
from exporter.fetch import HttpFetcher
from exporter.samples import Fault, Remembered, Sample, SourceError
from exporter.sources.probe import Completion, Health, ProbeSource, health_path
from tests.page_engine import Engine
from tests.servers import Server, reply, serving


@pytest.fixture
def engine() -> Iterator[Engine]:
    one = Engine()
    yield one
    one.close()


MADE: list[ProbeSource] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close what a test has made, as the runner does."""
    yield
    while MADE:
        MADE.pop().close()


def made(source: ProbeSource) -> ProbeSource:
    """Return a source after its first read."""
    MADE.append(source)
    assert counts(source) == (0, 0)
    return source


def health(
    origin: str,
    timeout: float = 1.0,
    kind: str = "vllm",
    clock: Clock | None = None,
    **options: Any,
) -> ProbeSource:
    """Return a probe of a server that has had its first read."""
    clock = clock or SystemClock()

    def connect(path: str) -> HttpFetcher:
        return HttpFetcher(origin + path, timeout=timeout, clock=clock, **options)

    return made(
        ProbeSource("a", Health(connect, lambda: health_path(kind)), clock=clock, timeout=timeout)
    )


def completion(origin: str, model: str = "m", timeout: float = 1.0) -> ProbeSource:
    clock = SystemClock()
    door = HttpFetcher(f"{origin}/v1/completions", timeout=timeout, clock=clock)
    return made(ProbeSource("a", Completion(door, lambda: model), clock=clock, timeout=timeout))


def read(source: ProbeSource) -> tuple[dict[Any, float], list[Fault]]:
    items = list(source.read())
    values = {(s.metric, s.labels[-1]): s.value for s in items if isinstance(s, Sample)}
    return values, [item for item in items if isinstance(item, Fault)]  # type: ignore[return-value]


def counts(source: ProbeSource) -> tuple[float, float]:
    """Read once; return how often it has gone well and badly."""
    values, _ = read(source)
    return values[c.LLM_PROBES_TOTAL, "success"], values[c.LLM_PROBES_TOTAL, "failure"]


def test_a_server_that_answers_is_up(engine: Engine) -> None:
    """The first read is a baseline without a request; then each is one request and one success."""
    source = health(engine.origin)
    assert engine.asked == []
    values, faults = read(source)
    assert values[c.LLM_PROBE_UP, "health"] == 1
    assert 0 < values[c.LLM_PROBE_DURATION_SECONDS, "health"] < 1
    assert values[c.LLM_PROBES_TOTAL, "success"] == 1
    assert faults == []
    assert counts(source) == (2, 0)
    assert [(method, path) for method, path, _ in engine.asked] == [("GET", "/health")] * 2


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408])
def test_a_server_that_says_it_cannot_serve_is_down(engine: Engine, status: int) -> None:
    """Counted, and told with its reason; when it can again, that is counted too."""
    source = health(engine.origin)
    engine.health = status
    values, (fault,) = read(source)
    assert values[c.LLM_PROBE_UP, "health"] == 0
    assert values[c.LLM_PROBES_TOTAL, "failure"] == 1
    assert (fault.part, fault.reason) == ("health", "unavailable")
    assert f"HTTP {status}" in fault.detail
    engine.health = 200
    assert counts(source) == (1, 1)


def test_a_server_that_is_gone_is_down(engine: Engine) -> None:
    """Connections are refused."""
    source = health(engine.origin)
    assert counts(source) == (1, 0)
    source.close()
    engine.close()
    values, (fault,) = read(source)
    assert values[c.LLM_PROBES_TOTAL, "failure"] == 1
    assert fault.reason == "unavailable"


def test_a_server_that_hangs_is_down_after_the_timeout(engine: Engine) -> None:
    """It takes the connection and never answers."""
    source = health(engine.origin, timeout=0.3)
    engine.hang.clear()
    begun = time.monotonic()
    values, (fault,) = read(source)
    assert 0.3 <= time.monotonic() - begun < 1.5
    assert fault.reason == "timeout"
    assert values[c.LLM_PROBES_TOTAL, "failure"] == 1
    engine.hang.set()
    assert counts(source) == (1, 1)


@pytest.mark.parametrize(
    "answer", [b"nonsense\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"]
)
def test_an_answer_that_is_none_is_a_failure(answer: bytes) -> None:
    """Not HTTP, nothing at all, half an answer."""
    with serving(answer) as server:
        assert counts(health(server.url(""))) == (0, 1)


# ---------------------------------------------------------------- what says nothing


@pytest.mark.parametrize("status", ["404 Not Found", "405 X", "501 X", "401 X", "403 X", "400 X"])
def test_a_question_that_was_wrong_is_not_counted(status: str) -> None:
    """A path that is not there or a token that is not right is no outage."""
    with serving(*[reply(status=status)] * 2) as server:
        source = health(server.url(""))
        with pytest.raises(SourceError, match=f"HTTP {status[:3]}"):
            read(source)
        with pytest.raises(SourceError):
            read(source)


def test_a_path_that_once_answered_and_is_not_there_any_more_is_an_outage() -> None:
    """A proxy says 404 when what is behind it has gone."""
    with serving(reply(), reply(status="404 Not Found")) as server:
        source = health(server.url(""))
        assert counts(source) == (1, 0)
        assert counts(source) == (1, 1)


def test_a_redirect_elsewhere_is_not_followed_and_takes_no_secret(tmp_path: Path) -> None:
    """Neither counted nor asked; the token stays with the server that it is for."""
    (tmp_path / "token").write_text("secret-1")
    with serving(reply()) as other:
        away = reply(status="302 Found", Location=other.url("/health"))
        with serving(away) as server:
            source = health(server.url(""), token_file=tmp_path / "token")
            with pytest.raises(SourceError, match="redirects to"):
                read(source)
            assert "Authorization: Bearer secret-1" in server.requests[0]
        assert other.connections == 0


def test_a_redirect_on_the_same_host_is_followed() -> None:
    """`/health` leads to `/health/`."""
    away = reply(status="307 X", Location="/health/")
    with serving(away, reply()) as server:
        assert counts(health(server.url(""))) == (1, 0)
        assert server.requests[1].startswith("GET /health/ ")


def test_a_token_that_cannot_be_read_is_no_outage(engine: Engine, tmp_path: Path) -> None:
    """Nothing is asked."""
    source = health(engine.origin, token_file=tmp_path / "none")
    with pytest.raises(SourceError, match="token_file"):
        read(source)
    assert engine.asked == []


def test_a_machine_without_a_free_descriptor_is_no_outage(engine: Engine) -> None:
    """We could not ask: the server may be in the best of health."""
    source = health(engine.origin)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = os.open("/dev/null", os.O_RDONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
    try:
        with pytest.raises(ConnectionError, match="Too many open files"):
            read(source)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        os.close(used)
    assert counts(source) == (1, 0)


def test_a_probe_that_was_held_up_by_ourselves_is_not_counted() -> None:
    """A virtual machine that was stopped for a minute comes back after the deadline."""

    class Jumps(SystemClock):
        ahead = 0.0

        def monotonic(self) -> float:
            return super().monotonic() + self.ahead

    clock = Jumps()

    def stops(_: socket.socket) -> None:
        clock.ahead = 60.0
        threading.Event().wait(1)

    server = Server(stops)
    try:
        source = health(server.url(""), timeout=0.3, clock=clock)
        with pytest.raises(SourceError, match="not counted: it took 60"):
            read(source)
    finally:
        server.close()


# ---------------------------------------------------------------- completions


def test_a_completion_is_one_token(engine: Engine) -> None:
    """What is asked for says who asks, and costs as little as can be."""
    source = completion(engine.origin)
    assert source.name == "probe:a:completion"
    assert counts(source) == (1, 0)
    assert json.loads(engine.completions[0]) == {
        "model": "m", "prompt": "1", "max_tokens": 1, "temperature": 0, "user": "flopwatch",
    }  # fmt: skip
    ((method, path, headers),) = engine.asked
    assert (method, path, headers["User-Agent"]) == ("POST", "/v1/completions", "flopwatch")


@pytest.mark.parametrize(
    "answer", [(500, b"{}"), (503, b""), (200, b"{}"), (200, b"[]"), (200, b"<html>"), (429, b"")]
)
def test_a_completion_that_does_not_come_is_a_failure(
    engine: Engine, answer: tuple[int, bytes]
) -> None:
    """Errors, and answers with status 200 that hold no completion."""
    engine.completion = answer
    source = completion(engine.origin)
    assert counts(source) == (0, 1)


def test_a_model_that_is_not_known_is_no_outage(engine: Engine) -> None:
    """Nothing is asked before the page has named one."""
    source = completion(engine.origin, model="")
    with pytest.raises(SourceError, match="no model is known"):
        read(source)
    assert engine.asked == []


def taking(answer: bytes) -> Callable[[socket.socket], None]:
    """Return a script that takes requests with a body, and gives all of them one answer."""

    def script(connection: socket.socket) -> None:
        while True:
            said = b""
            while b'"user"' not in said or not said.endswith(b"}"):
                piece = connection.recv(4096)
                if not piece:
                    return
                said += piece
            connection.sendall(answer)
            if not answer:
                return

    return script


def test_a_completion_is_sent_once_only() -> None:
    """A server that leaves in the middle may have computed: it is not asked again."""
    with serving(taking(reply(b'{"choices": [1]}')), taking(b"")) as server:
        source = completion(server.url(""))
        assert counts(source) == (1, 0)
        assert server.connections == 1
        assert counts(source) == (1, 1)
        assert server.connections == 2


def test_a_completion_follows_no_redirect() -> None:
    """Not even on the same host: it would be asked for twice."""
    with serving(taking(reply(status="307 X", Location="/other"))) as server:
        with pytest.raises(SourceError, match="not followed"):
            read(completion(server.url("")))
        assert server.connections == 1


# ---------------------------------------------------------------- paths, successors


@pytest.mark.parametrize(
    ("kind", "path"),
    [("mine", "/health"), ("vllm", "/health"), ("triton", "/v2/health/ready"),
     ("litellm", "/health/liveliness")],
)  # fmt: skip
def test_the_path_is_the_engines(kind: str, path: str) -> None:
    """LiteLLM's `/health` would ask every model behind it."""
    with serving(reply()) as server:
        assert counts(health(server.url(""), kind=kind)) == (1, 0)
        assert server.requests[0].startswith(f"GET {path} ")


def test_nothing_is_asked_while_the_engine_is_not_known(engine: Engine) -> None:
    """LiteLLM's `/health` was asked before its page had told whose it is: each model, for money."""
    source = health(engine.origin, kind="")
    for _ in range(2):
        with pytest.raises(SourceError, match="not asked: the engine is not known yet"):
            read(source)
    assert engine.asked == []


def test_a_path_that_another_engine_lacks_is_no_outage() -> None:
    """Triton moves in where vLLM was, and has its health at another port than its page."""
    paths = iter(["/health", "/v2/health/ready"])
    clock = SystemClock()
    with serving([reply()], [reply(status="404 Not Found")]) as server:

        def connect(path: str) -> HttpFetcher:
            return HttpFetcher(server.url(path), timeout=1, clock=clock)

        question = Health(connect, lambda: next(paths))
        source = made(ProbeSource("a", question, clock=clock, timeout=1))
        assert counts(source) == (1, 0)
        with pytest.raises(SourceError, match="HTTP 404"):
            read(source)


@pytest.mark.parametrize(
    ("memory", "begins"),
    [
        (Remembered([5, 2], 0.0, True), (5, 2)),
        (Remembered([5, 2], 0.0), (0, 0)),
        (Remembered([-5, 2], 0.0, True), (0, 0)),
        (Remembered("x", 0.0, True), (0, 0)),
        (None, (0, 0)),
    ],
)
def test_counts_go_on_where_the_predecessor_ended(
    engine: Engine, memory: Remembered | None, begins: tuple[int, int]
) -> None:
    """Unless it was killed and may have told more: then from zero, as of any start."""
    memories: dict[str, Any] = {"probe:a": memory}
    clock = SystemClock()

    def source() -> ProbeSource:
        def connect(path: str) -> HttpFetcher:
            return HttpFetcher(engine.origin + path, timeout=1, clock=clock)

        question = Health(connect, lambda: "/health")
        MADE.append(ProbeSource("a", question, clock=clock, timeout=1, memories=memories))
        return MADE[-1]

    first = source()
    assert counts(first) == begins
    read(first)
    assert memories["probe:a"].final is False
    first.close()
    assert counts(source()) == (begins[0] + 1, begins[1])
