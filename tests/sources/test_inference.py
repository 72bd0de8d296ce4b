"""Reading inference servers: recorded pages over HTTP, and everything that is no such page."""

from __future__ import annotations

import contextlib
import gzip
import io
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry

from exporter import catalogue as c
from exporter.board import Board
from exporter.clock import SystemClock
from exporter.engines import load_engines
from exporter.exposition import Exposition
from exporter.fetch import HttpFetcher, Response
from exporter.formats.exposition import Limits
from exporter.samples import (
    Drop,
    Fault,
    Gate,
    Histogram,
    Malformed,
    Metric,
    Sample,
    Snapshot,
    SourceError,
    Value,
    reason_of,
)
from exporter.sources.inference import InferenceSource
from tests.fakes import FakeClock
from tests.servers import Script, Server, chunked, reply, request, serving

SHIPPED = load_engines()
PAGES = Path(__file__).parent.parent / "data" / "engines"
VLLM = (PAGES / "vllm-0.32.0-cpu.prom").read_bytes()
LLAMA = (PAGES / "llamacpp-b10434.prom").read_bytes()

Out = list[Sample | Fault | Drop]


def value(out: Iterable[Sample | Fault | Drop], metric: Metric, **labels: str) -> Value:
    """Return the value of the one sample of a metric that has these labels."""
    (found,) = [
        item.value
        for item in out
        if isinstance(item, Sample)
        and item.metric is metric
        and labels.items() <= dict(zip(metric.labels, item.labels, strict=True)).items()
    ]
    return found


def count(out: Iterable[Sample | Fault | Drop], metric: Metric) -> float:
    found = value(out, metric)
    assert isinstance(found, Histogram)
    return found.counts[-1]


def samples(out: Iterable[Sample | Fault | Drop]) -> list[Sample]:
    return [item for item in out if isinstance(item, Sample)]


def faults(out: Out) -> list[Fault]:
    return [item for item in out if isinstance(item, Fault)]


def drops(out: Out) -> list[Drop]:
    return [item for item in out if isinstance(item, Drop)]


def over_http(server: Server, path: str = "/metrics", **options: Any) -> InferenceSource:
    """Make a source that reads this server, with options for the source or the fetcher."""
    fetching = {"timeout", "max_bytes", "token_file", "follow_redirects"}
    theirs = {key: options.pop(key) for key in fetching & set(options)}
    clock = options.pop("clock", SystemClock())
    fetch = HttpFetcher(server.url(path), **({"timeout": 20.0, "clock": clock} | theirs))
    return InferenceSource("a", fetch, SHIPPED, clock=clock, **options)


@contextlib.contextmanager
def reading(*answers: bytes | Script, **options: Any) -> Iterator[InferenceSource]:
    with serving(*answers) as server, contextlib.closing(over_http(server, **options)) as source:
        yield source


def read(body: bytes, **options: Any) -> Out:
    """Read one page over HTTP."""
    with reading(reply(body), **options) as source:
        return source.read()


class FakeFetch:
    """Hands out pages one after the other, the last one for ever, taking a time for each."""

    def __init__(self, *bodies: bytes, clock: FakeClock | None = None, takes: float = 0.0) -> None:
        self._bodies = list(bodies)
        self._clock = clock
        self._takes = takes
        self.gets = 0
        self.closed = False

    def get(self) -> Response:
        self.gets += 1
        if self._clock is not None:
            self._clock.advance(self._takes)
        body = self._bodies[min(self.gets, len(self._bodies)) - 1]
        return Response(200, "text/plain; version=0.0.4", body)

    def close(self) -> None:
        self.closed = True


def source_of(fetch: FakeFetch, **options: Any) -> InferenceSource:
    return InferenceSource("a", fetch, SHIPPED, clock=FakeClock(), **options)


# ---------------------------------------------------------------- pages of engines


def test_a_vllm_server_is_read() -> None:
    """The engine is recognised, and its run's numbers come out, labelled with our names."""
    out = read(VLLM)
    assert count(out, c.LLM_TTFT_SECONDS) == 225
    assert count(out, c.LLM_ITL_SECONDS) == 14714
    labels = {"model_name": "mid-llama", "model_version": "", "engine": "vllm", "server": "a"}
    assert value(out, c.LLM_TOKENS_TOTAL, direction="output", **labels) == 14939
    assert faults(out) == []
    assert drops(out) == []


def test_name_and_group() -> None:
    """A source is named after its server."""
    source = source_of(FakeFetch(VLLM))
    assert (source.name, source.group) == ("inference:a", "serving")


def test_the_time_of_the_fetch_is_told() -> None:
    """What the server spent on us is measured with our clock."""
    clock = FakeClock()
    fetch = FakeFetch(VLLM, clock=clock, takes=0.25)
    out = InferenceSource("a", fetch, SHIPPED, clock=clock).read()
    assert value(out, c.LLM_SCRAPE_DURATION_SECONDS, server="a") == 0.25


def test_close_closes_the_fetcher() -> None:
    """The connection goes with the source."""
    fetch = FakeFetch(VLLM)
    source_of(fetch).close()
    assert fetch.closed


def test_a_packed_page_is_read() -> None:
    """Compression changes nothing."""
    with reading(reply(gzip.compress(VLLM), Content_Encoding="gzip")) as source:
        assert count(source.read(), c.LLM_TTFT_SECONDS) == 225


def test_pages_follow_each_other_on_one_connection() -> None:
    """A second page has its own values; a connection closed in between costs nothing."""
    later = VLLM.replace(
        b'vllm:generation_tokens_total{engine="0",model_name="mid-llama"} 14939.0',
        b'vllm:generation_tokens_total{engine="0",model_name="mid-llama"} 15000.0',
    )
    assert later != VLLM
    with serving([reply(VLLM), reply(later)], [reply(VLLM)]) as server:
        with contextlib.closing(over_http(server)) as source:
            tokens = [
                value(source.read(), c.LLM_TOKENS_TOTAL, direction="output") for _ in range(3)
            ]
        assert tokens == [14939, 15000, 14939]
        assert server.connections == 2


def test_a_restarted_server_is_read_on() -> None:
    """While it is away the read fails; then its counters begin anew, and that is passed on."""
    cold = (PAGES / "vllm-0.32.0-cpu-cold.prom").read_bytes()
    with reading([reply(VLLM)], lambda c: None, [reply(cold)]) as source:
        source.read()
        with pytest.raises(ConnectionError) as caught:
            source.read()
        assert reason_of(caught.value) == "unavailable"
        assert value(source.read(), c.LLM_TOKENS_TOTAL, direction="output") == 0


# ---------------------------------------------------------------- damaged pages


DP2 = (PAGES / "vllm-0.32.0-cpu-dp2.prom").read_bytes()
GENERATED = [line for line in DP2.split(b"\n") if line.startswith(b"vllm:generation_tokens_total{")]


def garbled(line: bytes) -> bytes:
    return DP2.replace(line, line.rsplit(b" ", 1)[0] + b" garbage")


def cut_in(line: bytes) -> bytes:
    return DP2[: DP2.index(line) + len(line) - 3]


def up_to(line: bytes) -> Limits:
    return Limits(max_series=DP2[: DP2.index(line)].count(b"\n"))


def labelled(line: bytes) -> bytes:
    return DP2.replace(line, line.replace(b"{", b'{x="%b",' % (b"a" * 2000)))


Key = tuple[Metric, tuple[str, ...]]


def falling(before: Out, after: Out) -> list[Key]:
    """Return the counters, also those within histograms, that fell from one read to the next."""
    last = {i[:2]: i.value for i in before if isinstance(i, Sample)}
    fell = []
    for item in after:
        if not isinstance(item, Sample) or item[:2] not in last:
            continue
        old, new = last[item[:2]], item.value
        if isinstance(new, Histogram) and isinstance(old, Histogram):
            if new.bounds != old.bounds or new.counts[-1] < old.counts[-1]:
                fell.append(item[:2])
        elif item.metric.kind == "counter" and new < old:  # type: ignore[operator]
            fell.append(item[:2])
    return fell


@pytest.mark.parametrize("damage", [garbled, cut_in, labelled])
@pytest.mark.parametrize("rank", [0, 1])
def test_tokens_do_not_fall_when_one_ranks_line_is_damaged(damage: Any, rank: int) -> None:
    """Without one rank the sum over ranks is not known: absent, then whole again, never less."""
    source = source_of(FakeFetch(DP2, damage(GENERATED[rank]), DP2))
    before, hurt, after = source.read(), source.read(), source.read()
    whole = value(before, c.LLM_TOKENS_TOTAL, direction="output")
    outputs = [i for i in hurt if i[0] is c.LLM_TOKENS_TOTAL and i[1][2] == "output"]
    assert outputs == []
    assert value(hurt, c.LLM_ACTIVE_REQUESTS) is not None or damage is cut_in
    assert not falling(before, hurt)
    assert value(after, c.LLM_TOKENS_TOTAL, direction="output") == whole


def test_tokens_are_not_half_when_one_ranks_line_is_beyond_the_limit() -> None:
    """A page that always is too long was never seen whole: what it has of a sum stays out."""
    whole = source_of(FakeFetch(DP2)).read()
    cut = source_of(FakeFetch(DP2), limits=up_to(GENERATED[1])).read()
    assert [d.reason for d in drops(cut)] == ["cap"]
    assert count(whole, c.LLM_TTFT_SECONDS) > 0
    assert [i for i in cut if i[0] is c.LLM_ACTIVE_REQUESTS] == []


def shown(out: Out) -> set[Key]:
    """Return all series but those on the page itself."""
    told = {c.LLM_SOURCE_INFO, c.LLM_MAPPING_UNRESOLVED, c.LLM_SCRAPE_DURATION_SECONDS}
    return {item[:2] for item in samples(out) if item.metric not in told}


BAD_LINE = b'vllm:num_requests_running{engine="0",model_name="tiny-llama" 1\n'
LONG_LABEL = b'vllm:num_requests_running{engine="0",model_name="%b"} 1\n' % (b"z" * 1500)


@pytest.mark.parametrize(
    ("more", "said"),
    [(BAD_LINE, "1 make no sense"), (LONG_LABEL, "1 have a label of more than 1024 bytes")],
)
@pytest.mark.parametrize("page", [VLLM, DP2])
def test_a_line_that_is_always_bad_hides_nothing_else(page: bytes, more: bytes, said: str) -> None:
    """A daemon that started afterwards showed 9 series of 182, and that all was well."""
    whole = source_of(FakeFetch(page)).read()
    source = source_of(FakeFetch(page + more))
    first, _, third = source.read(), source.read(), source.read()
    assert len(shown(first)) < len(shown(whole))
    assert shown(third) == shown(whole)
    assert not falling(whole, third)
    (fault,) = faults(third)
    assert (fault.part, fault.reason) == ("page", "malformed")
    assert said in fault.detail


def test_a_page_that_is_always_too_long_shows_what_is_within_the_limit() -> None:
    """As it says what is missing, and why."""
    source = source_of(FakeFetch(VLLM), limits=Limits(max_series=VLLM.count(b"\n") - 40))
    first, _, third = source.read(), source.read(), source.read()
    assert len(shown(first)) < 20 < len(shown(third))
    (fault,) = faults(third)
    assert "40 are beyond" in fault.detail and "max_page_series" in fault.detail


@pytest.mark.parametrize("damage", [garbled, labelled])
def test_tokens_are_never_half_though_one_ranks_line_is_always_bad(damage: Any) -> None:
    """Not before, not after it is clear that it stays so; all else is shown."""
    whole = source_of(FakeFetch(DP2)).read()
    for pages in ([damage(GENERATED[1])], [DP2, damage(GENERATED[1])]):
        source = source_of(FakeFetch(*pages))
        outs = [source.read() for _ in range(5)]
        missing = shown(whole) - shown(outs[-1])
        assert {(m, labels[2]) for m, labels in missing} == {(c.LLM_TOKENS_TOTAL, "output")}
        assert not falling(whole, outs[-1])


def test_a_server_that_has_fewer_ranks_and_a_bad_line_is_shown_again() -> None:
    """What it once had is no measure for ever: the number of ranks is told with it."""
    one = b"".join(line + b"\n" for line in DP2.split(b"\n") if b'engine="1"' not in line)
    source = source_of(FakeFetch(DP2, one + BAD_LINE))
    before, *_, after = [source.read() for _ in range(4)]
    assert (value(before, c.LLM_SERVER_RANKS), value(after, c.LLM_SERVER_RANKS)) == (2, 1)
    assert shown(after) == shown(before)


def test_no_counter_falls_wherever_a_page_is_cut_or_a_line_is_garbled() -> None:
    """Each wanted line in turn is garbled, then the page ends in it: nothing falls."""
    source = source_of(FakeFetch(DP2))
    whole = source.read()
    lines = [line for line in DP2.split(b"\n") if line.startswith((b"vllm:", b"http_"))]
    for line in lines[::7]:
        source = source_of(FakeFetch(DP2, garbled(line), cut_in(line)))
        source.read()
        assert not falling(whole, source.read()), line
        assert not falling(whole, source.read()), line


# ---------------------------------------------------------------- destructive reads


def test_llamacpp_is_not_read_without_permission() -> None:
    """Where it is configured nothing is fetched at all: a read would reset others' averages."""
    fetch = FakeFetch(LLAMA)
    source = source_of(fetch, engine="llamacpp")
    for _ in range(2):
        with pytest.raises(SourceError, match="allow_destructive_read: true") as caught:
            source.read()
        assert caught.value.reason == "denied"
    assert fetch.gets == 0


def test_a_llamacpp_that_is_found_is_looked_at_rarely() -> None:
    """A server that turns out to be llama.cpp is read this once and at each tenth read after."""
    fetch = FakeFetch(LLAMA)
    source = source_of(fetch)
    gets = []
    for _ in range(21):
        with pytest.raises(SourceError, match="allow_destructive_read: true") as caught:
            source.read()
        assert caught.value.reason == "denied"
        gets.append(fetch.gets)
    assert gets == [1] * 10 + [2] * 10 + [3]


def test_a_server_that_was_llamacpp_once_is_read_when_another_engine_is_there() -> None:
    """The refusal was of a page, not of an address: a vLLM that moves in is found, and kept."""
    fetch = FakeFetch(VLLM, LLAMA, VLLM)
    source = source_of(fetch)
    source.read()
    for _ in range(10):
        with pytest.raises(SourceError, match="llamacpp"):
            source.read()
    for _ in range(2):
        assert value(source.read(), c.LLM_TOKENS_TOTAL, direction="output") == 14939
    assert fetch.gets == 4


def test_a_refused_server_that_is_away_when_looked_at_is_told_as_away() -> None:
    """The look again fails as any read does; nothing was read, so the next one looks as well."""
    fetch = FakeFetch(LLAMA, b"", b"", VLLM)
    source = source_of(fetch)
    for _ in range(10):
        with pytest.raises(SourceError, match="llamacpp"):
            source.read()
    for _ in range(2):
        with pytest.raises(SourceError, match="the page is empty"):
            source.read()
    assert value(source.read(), c.LLM_TOKENS_TOTAL, direction="output") == 14939


@pytest.mark.parametrize("engine", ["auto", "llamacpp"])
def test_llamacpp_is_read_with_permission(engine: str) -> None:
    """Its model's name comes from the configuration: the page has none."""
    out = read(LLAMA, engine=engine, allow_destructive_read=True, model_name="tiny")
    assert value(out, c.LLM_TOKENS_TOTAL, direction="input", model_name="tiny") == 79970


def test_llamacpp_without_a_model_name() -> None:
    """An unknown model is an empty label."""
    out = read(LLAMA, allow_destructive_read=True)
    assert value(out, c.LLM_TOKENS_TOTAL, direction="output", model_name="") == 20006


# ---------------------------------------------------------------- which engine


def test_another_engine_behind_the_same_address_is_recognised() -> None:
    """A server may be replaced: the page that no longer fits is looked at anew."""
    source = source_of(FakeFetch(VLLM, LLAMA, VLLM), allow_destructive_read=True)
    engines = [
        next(item.labels[0] for item in source.read() if item[0] is c.LLM_SERVER_INFO)
        for _ in range(3)
    ]
    assert engines == ["vllm", "llamacpp", "vllm"]


def test_a_page_that_was_moved_is_followed() -> None:
    """LiteLLM redirects /metrics to /metrics/ on the same server."""
    page = (PAGES / "litellm-1.108.7-proxy.prom").read_bytes()
    moved = reply(b"", "307 Temporary Redirect", Location="/metrics/")
    with serving(moved, reply(page)) as server, contextlib.closing(over_http(server)) as source:
        assert value(source.read(), c.LLM_TOKENS_TOTAL, direction="output") == 80
        assert [head.split()[1] for head in server.requests] == ["/metrics", "/metrics/"]


def test_an_engine_with_bare_names_is_read_like_any_other() -> None:
    """NIM has no prefix: it is known by one name, and stays known."""
    source = source_of(FakeFetch((PAGES / "nim-llm-1.x-2024-10.prom").read_bytes()))
    for _ in range(2):
        assert value(source.read(), c.LLM_TOKENS_TOTAL, direction="output") == 174


def test_a_router_that_repeats_its_workers_says_so() -> None:
    """The label that gives it away is named; nothing is counted twice."""
    with pytest.raises(SourceError, match=r"it repeats those of .* \(label worker_addr\)"):
        read((PAGES / "sglang-via-smg-gateway-2026-excerpt.prom").read_bytes())


def test_an_application_with_our_own_names_is_read() -> None:
    """As a server of the engine `app`, over HTTP; its versions and buckets stay."""
    page = (PAGES / "app-prometheus-client.prom").read_bytes()
    with reading(reply(page), reply(page)) as source:
        outs = [source.read(), source.read()]
    for out in outs:
        of = {"model_name": "llama-70b", "engine": "app", "server": "a"}
        assert value(out, c.LLM_SERVER_INFO, engine="app", server="a") == 1
        assert value(out, c.LLM_TOKENS_TOTAL, direction="output", **of) == 1800
        assert value(out, c.LLM_ACTIVE_REQUESTS, **of) == 2
        (v2,) = [
            s.value for s in samples(out) if s.metric is c.LLM_TTFT_SECONDS and "v2" in s.labels
        ]
        assert v2 == Histogram(
            (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60), (7, 12, 14, 14, 15, 15, 15, 15, 15, 15), 3.3125
        )
        assert faults(out) == []
        assert drops(out) == []


def test_an_application_that_runs_now_is_read() -> None:
    """The specification's own three metrics, made by the official client in this process."""
    registry = CollectorRegistry()
    buckets = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0]
    names = ["model_name", "model_version"]
    ttft = prometheus_client.Histogram(
        "llm_ttft_seconds", "Time to first token", names, buckets=buckets, registry=registry
    )
    names = ["model_name", "direction"]
    tokens = prometheus_client.Counter("llm_tokens_total", "Tokens", names, registry=registry)
    active = prometheus_client.Gauge(
        "llm_active_requests", "Active requests", ["model_name"], registry=registry
    )
    ttft.labels("m", "v1").observe(0.15)
    tokens.labels("m", "output").inc(7)
    active.labels("m").set(3)
    server, thread = prometheus_client.start_http_server(0, "127.0.0.1", registry)
    try:
        fetch = HttpFetcher(
            f"http://127.0.0.1:{server.server_port}/metrics", timeout=20.0, clock=SystemClock()
        )
        source = InferenceSource("a", fetch, SHIPPED, clock=SystemClock())
        with contextlib.closing(source):
            out = source.read()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert count(out, c.LLM_TTFT_SECONDS) == 1
    assert value(out, c.LLM_TOKENS_TOTAL, direction="output", engine="app") == 7
    assert value(out, c.LLM_ACTIVE_REQUESTS, engine="app") == 3


def test_opentelemetrys_names_are_read() -> None:
    """gen_ai.* after the usual conversion: failures are requests, and no latencies."""
    page = (PAGES / "composed-opentelemetry-gen-ai.prom").read_bytes()
    out = read(page)
    of = {"model_name": "gpt-4o-mini", "engine": "opentelemetry", "server": "a"}
    assert count(out, c.LLM_TTFT_SECONDS) == 40
    assert count(out, c.LLM_E2E_SECONDS) == 40
    assert value(out, c.LLM_REQUESTS_TOTAL, outcome="success", **of) == 40
    assert value(out, c.LLM_REQUESTS_TOTAL, outcome="error", **of) == 4
    assert value(out, c.LLM_TOKENS_TOTAL, direction="input", **of) == 6200
    assert faults(out) == []


@pytest.mark.parametrize("engine", ["auto", "app"])
def test_our_own_page_is_not_read_as_an_application(engine: str) -> None:
    """A daemon that is pointed at itself, or at another of us, would count every server again."""
    ours = flopwatchs_page(read(VLLM))
    assert b"llm_ttft_seconds_bucket{" in ours
    assert b"llm_active_requests{" in ours
    with pytest.raises(SourceError, match=r"up, but no metrics of .* \(label engine\)"):
        source_of(FakeFetch(ours), engine=engine).read()


def test_an_application_is_not_counted_again_through_our_page() -> None:
    """Nor together with what we say of it, as on the page of a Prometheus that has both."""
    theirs = (PAGES / "app-prometheus-client.prom").read_bytes()
    ours = flopwatchs_page(read(theirs))
    with pytest.raises(SourceError, match="label engine"):
        source_of(FakeFetch(ours)).read()
    both = source_of(FakeFetch(theirs + ours)).read()
    assert value(both, c.LLM_TOKENS_TOTAL, direction="output", model_name="llama-70b") == 1800


def flopwatchs_page(out: Iterable[Sample | Fault | Drop]) -> bytes:
    """Return the page that we make of what a server said."""
    clock, board = FakeClock(), Board()
    slot = board.enroll("a", c.SERVING, 2.0, 12.0, clock.monotonic())
    batch, drops = Gate(10_000).admit(samples(out))
    slot.publish(Snapshot("a", c.SERVING, clock.monotonic(), clock.time(), 0.01, batch), drops)
    exposition = Exposition(lambda: board.view(clock.monotonic()), list, clock)
    return exposition.page((frozenset((c.SERVING,)), False, False))


def test_a_configured_engine_is_insisted_on() -> None:
    """Another engine's page is not read for the configured one; the hint is the engine's."""
    with pytest.raises(SourceError, match=r"up, but no metrics of vllm \(.*--disable-log-stats"):
        source_of(FakeFetch(LLAMA), engine="vllm").read()


def test_an_unknown_engine_is_refused_at_once() -> None:
    """The names that exist are told."""
    with pytest.raises(ValueError, match=r"engine 'vlm' is not known \(auto, app, .*, vllm\)"):
        source_of(FakeFetch(VLLM), engine="vlm")


def test_a_page_without_a_known_engine() -> None:
    """vLLM with its statistics switched off keeps such a page."""
    out = (
        b"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.7e+09\n"
        b'http_requests_total{handler="/v1/completions",status="2xx"} 5\n'
    )
    with pytest.raises(SourceError, match="up, but no metrics of an engine") as caught:
        read(out)
    assert caught.value.reason == "unavailable"


def test_a_page_may_lose_its_metrics_and_have_them_again() -> None:
    """The engine is not forgotten over a page without metrics."""
    source = source_of(FakeFetch(VLLM, b"up 1\n", VLLM))
    source.read()
    with pytest.raises(SourceError):
        source.read()
    assert count(source.read(), c.LLM_TTFT_SECONDS) == 225


# ---------------------------------------------------------------- what is no page


@pytest.mark.parametrize("body", [b"", b"\n", b" \n\n"])
def test_an_empty_page_is_not_zeros(body: bytes) -> None:
    """vllm#8612: a server that is up and has nothing to say."""
    with pytest.raises(SourceError, match="up, but no metrics: the page is empty") as caught:
        read(body)
    assert caught.value.reason == "unavailable"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<!DOCTYPE html><html><body>vllm: 1</body></html>", "a web page"),
        (b"\n  <html>", "a web page"),
        (b"[]", "/prometheus/metrics"),
        (b'[{"iter": 1,\n "numActiveRequests": 2}]', "/prometheus/metrics"),
        (b'{"detail": "ok"}', "JSON"),
    ],
)
def test_another_kind_of_page_is_named(body: bytes, said: str) -> None:
    """Login pages, front pages and TensorRT-LLM's JSON are no metrics."""
    with pytest.raises(Malformed, match=said) as caught:
        read(body)
    assert reason_of(caught.value) == "malformed"


@pytest.mark.parametrize(
    ("answer", "reason", "said"),
    [
        (reply(b"{}", "404 Not Found"), "unavailable", "switched off"),
        (reply(b"{}", "501 Not Implemented"), "unavailable", "--metrics"),
        (reply(b"{}", "503 Service Unavailable"), "unavailable", "loading"),
        (reply(b"{}", "401 Unauthorized"), "denied", "token_file"),
        (reply(b"", "302 Found", Location="http://127.0.0.2/"), "unavailable", "redirects to"),
        (reply(VLLM[:1000], Content_Length=str(len(VLLM))), "unavailable", "broke off"),
        (reply(b"", Content_Length=str(50 << 20)), "malformed", "larger than"),
        (chunked(VLLM[:1000]), "unavailable", "broke off"),
    ],
)
def test_what_the_fetcher_says_is_passed_on(answer: bytes, reason: str, said: str) -> None:
    """A server that is not there, refuses or sends too much: the reason reaches the runner."""
    refusals = (SourceError, ConnectionError, Malformed)
    with reading(answer) as source, pytest.raises(refusals, match=said) as caught:
        source.read()
    assert reason_of(caught.value) == reason


def test_a_page_that_never_ends_is_given_up() -> None:
    """Metrics for ever: the cap on the body ends it."""

    def endless(connection: Any) -> None:
        request(connection)
        connection.sendall(chunked())
        line = b"vllm:num_requests_running 1\n" * 1000
        while True:
            connection.sendall(b"%x\r\n%s\r\n" % (len(line), line))

    with reading(endless, max_bytes=1 << 20) as source, pytest.raises(Malformed):
        source.read()


def test_a_page_that_trickles_is_given_up() -> None:
    """A line now and then does not keep us waiting beyond the deadline."""

    class Ticking(FakeClock):
        def monotonic(self) -> float:
            self.now += 0.5
            return self.now

    def trickle(connection: Any) -> None:
        request(connection)
        connection.sendall(chunked())
        pause = threading.Event()
        for _ in range(4000):
            connection.sendall(b"2\r\na\n\r\n")
            pause.wait(0.001)

    with reading(trickle, clock=Ticking()) as source, pytest.raises(TimeoutError):
        source.read()


# ---------------------------------------------------------------- odd pages


def test_a_page_that_stops_within_a_line_is_used_as_far_as_it_goes() -> None:
    """The complete lines count; that some are missing is a fault of the page."""
    cut = VLLM[: VLLM.index(b"vllm:request_success_total{") + 40]
    with reading(reply(VLLM), reply(cut)) as source:
        source.read()
        out = source.read()
    assert value(out, c.LLM_TOKENS_TOTAL, direction="output") == 14939
    assert not any(item[0] is c.LLM_MAPPING_UNRESOLVED for item in out)
    (fault,) = faults(out)
    assert (fault.part, fault.reason) == ("page", "malformed")


ODD = {
    "invalid UTF-8": b'vllm:num_requests_running{model_name="m",path="\xff\xfe"} 3\n',
    "timestamps": b'vllm:num_requests_running{model_name="m"} 3 1795970205990\n',
    "duplicate HELP": (
        b"# HELP vllm:num_requests_running a\n# TYPE vllm:num_requests_running gauge\n"
        b"# HELP vllm:num_requests_running b\n# TYPE vllm:num_requests_running gauge\n"
        b'vllm:num_requests_running{model_name="m"} 3\n'
    ),
    "no HELP": b'vllm:num_requests_running{model_name="m"} 3\n',
    "blank lines": b'\n\nvllm:num_requests_running{model_name="m"} 3\n\n',
    "carriage returns": b'vllm:num_requests_running{model_name="m"} 3\r\n',
    "a bad line": (
        b'vllm:num_requests_waiting{model_name= 7\nvllm:num_requests_running{model_name="m"} 3\n'
    ),
    "trailing comma": b'vllm:num_requests_running{model_name="m",} 3\n',
    "exponent": b'vllm:num_requests_running{model_name="m"} 3e+000\n',
}


@pytest.mark.parametrize("body", ODD.values(), ids=ODD)
def test_an_odd_page_gives_its_value(body: bytes) -> None:
    """What real servers write, within the format or beside it, does not cost the number."""
    assert value(read(body), c.LLM_ACTIVE_REQUESTS, model_name="m") == 3


def test_bad_lines_are_counted() -> None:
    """A line that makes no sense is left out and counted, and the others stay."""
    out = read(ODD["a bad line"])
    assert Drop("malformed", 1) in drops(out)


def test_open_metrics_with_exemplars() -> None:
    """vLLM's Rust front end answers OpenMetrics whatever is asked for."""
    bucket = 'vllm:time_to_first_token_seconds_bucket{{model_name="m",le="{0}"}} {1}{2}\n'
    body = (
        "# TYPE vllm:time_to_first_token_seconds histogram\n"
        "# UNIT vllm:time_to_first_token_seconds seconds\n"
        + bucket.format("0.1", 2, ' # {trace_id="ab"} 0.05 1795970205.99')
        + bucket.format("+Inf", 5, "")
        + 'vllm:time_to_first_token_seconds_sum{model_name="m"} 4.5\n'
        'vllm:time_to_first_token_seconds_count{model_name="m"} 5\n'
        "# TYPE vllm:generation_tokens counter\n"
        'vllm:generation_tokens_total{model_name="m"} 7 1795970205.99\n'
        "# EOF\n"
    ).encode()
    answer = reply(body, Content_Type="application/openmetrics-text; version=1.0.0; charset=utf-8")
    with reading(answer) as source:
        out = source.read()
    assert value(out, c.LLM_TTFT_SECONDS) == Histogram((0.1,), (2, 5), 4.5)
    assert value(out, c.LLM_TOKENS_TOTAL, direction="output") == 7


def test_nan_is_absence() -> None:
    """A gauge that is NaN gives no sample and no fault."""
    out = read(b'vllm:num_requests_running{model_name="m"} NaN\n')
    assert not any(item[0] is c.LLM_ACTIVE_REQUESTS for item in out)
    assert faults(out) == []
    assert drops(out) == []


def test_a_million_series_are_capped() -> None:
    """Series beyond the limit are not kept: they are counted, and the models are bounded."""
    written = io.BytesIO()
    with gzip.GzipFile(fileobj=written, mode="wb", compresslevel=1) as packed:
        for start in range(0, 1_000_000, 10_000):
            packed.write(
                b"".join(
                    b'vllm:prompt_tokens_total{model_name="%d"} 1\n' % i
                    for i in range(start, start + 10_000)
                )
            )
    answer = reply(written.getvalue(), Content_Encoding="gzip")
    with reading(answer, max_bytes=64 << 20, limits=Limits(max_series=5000)) as source:
        out = source.read()
    totals = [item for item in out if isinstance(item, Sample) and item[0] is c.LLM_TOKENS_TOTAL]
    # `other` is a sum of what was never seen whole.
    assert len(totals) == 64
    assert drops(out) == [Drop("cap", 995_000)]
