"""Percentiles, means and rates of servers: hand-made numbers, and recorded pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from test_book import CHAT, PAGES, Board, page

from exporter import catalogue as c
from exporter.derive.serving.book import Book, Entity
from exporter.derive.serving.windows import Windows
from exporter.engines import Translator, load_engines
from exporter.formats.exposition import Reader
from exporter.samples import Drop, Gate, Health, Histogram, Metric, Sample, SourceView, View

EMPTY = View((), ())


def derived(book: Book, view: View = EMPTY, windows: Sequence[str] = ("5m",)) -> list[Sample]:
    """Return what the part yields; the page's gate accepts all of it."""
    samples = list(Windows(windows)(book, view, 0.0))
    batch, dropped = Gate(5000).admit(samples)
    assert not dropped
    assert len(batch) == len(samples)
    return samples


def values(samples: Sequence[Sample], metric: Metric, **labels: str) -> list[float]:
    """Return the values of a family whose labels are these."""
    return [
        s.value for s in samples
        if s.metric is metric
        and labels.items() <= dict(zip(metric.labels, s.labels, strict=True)).items()
        and not isinstance(s.value, Histogram)
    ]  # fmt: skip


def test_a_percentile_comes_with_its_interval_and_only_with_enough_observations() -> None:
    """Of 40 requests there is a P95 (20 are needed), but no P99 (100)."""
    board = Board()
    board.tell(0, page())
    board.tell(60, page(0, (30, 40, 40, 40), 4.5))
    samples = derived(board.book)
    of = {"signal": "ttft", "window": "5m", "server": "a"}
    assert values(samples, c.LLM_LATENCY_OBSERVATIONS, **of) == [40]
    assert values(samples, c.LLM_LATENCY_MEAN_SECONDS, method="exact", **of) == [4.5 / 40]
    p95 = {"percentile": "p95", **of}
    (point,) = values(samples, c.LLM_LATENCY_QUANTILE_SECONDS, **p95)
    (lower,) = values(samples, c.LLM_LATENCY_QUANTILE_LOWER_SECONDS, **p95)
    (upper,) = values(samples, c.LLM_LATENCY_QUANTILE_UPPER_SECONDS, **p95)
    assert 0.1 <= lower <= point <= upper <= 0.5
    assert values(samples, c.LLM_LATENCY_QUANTILE_SECONDS, percentile="p99", **of) == []
    assert values(samples, c.LLM_LATENCY_QUANTILE_UPPER_SECONDS, percentile="p99", **of) == []


def test_a_server_without_traffic_has_no_percentile_and_no_mean() -> None:
    """Nothing observed: nothing to say; rates are zero, which is known."""
    board = Board()
    board.tell(0, page(5, (1, 1, 1, 1), 0.1))
    board.tell(60, page(5, (1, 1, 1, 1), 0.1))
    samples = derived(board.book)
    assert not values(samples, c.LLM_LATENCY_QUANTILE_UPPER_SECONDS)
    assert not values(samples, c.LLM_LATENCY_MEAN_SECONDS)
    assert values(samples, c.LLM_OUTPUT_TOKENS_PER_SECOND) == [0]


def test_a_server_that_is_gone_leaves_nothing_behind() -> None:
    """Its restarts and odd increases had stayed on the page, and in memory, for ever."""
    board = Board()
    board.tell(0, page(0, (5, 6, 7, 8), 4.0, start=1.0))
    board.tell(30, page(0, (0, 1, 2, 4), 4.0, start=1015.0))
    board.tell(60, page(0, (0, 2, 3, 5), 3.0, start=1015.0))
    assert values(derived(board.book), c.LLM_RESETS_TOTAL, server="a") == [1]
    assert values(derived(board.book), c.LLM_ANOMALIES_TOTAL, server="a") == [1]
    board.book.observe(EMPTY, 70)
    assert derived(board.book) == []
    board.book.observe(EMPTY, 60 + 2 * 3600)
    assert board.book.anomalies == {}
    assert board.book.resets == {}


def test_rates_are_those_of_the_window_and_of_the_gpus() -> None:
    """3000 tokens in a minute are 50 a second, on two GPUs 25 for each."""
    board = Board()
    board.tell(0, page(0, stop=0))
    board.tell(60, page(3000, stop=30))
    gpus = [c.LLM_SERVER_GPU(1, "a", str(gpu), f"GPU-{gpu}") for gpu in range(2)]
    seen = SourceView("g", "serving", "up", Health(), batch=Gate(9).admit(gpus)[0], age=0.0)
    samples = derived(board.book, View((seen,), ()))
    assert values(samples, c.LLM_OUTPUT_TOKENS_PER_SECOND) == [50]
    assert values(samples, c.LLM_OUTPUT_TOKENS_PER_SECOND_PER_GPU) == [25]
    assert values(samples, c.LLM_REQUESTS_PER_SECOND) == [0.5]
    assert values(samples, c.LLM_INPUT_TOKENS_PER_SECOND) == []
    assert values(derived(board.book), c.LLM_OUTPUT_TOKENS_PER_SECOND_PER_GPU) == []


def test_refused_and_failed_requests_are_not_served_ones() -> None:
    """They are offered, not served."""

    def told(n: int) -> list[Sample]:
        return [
            *page(),
            *(
                c.LLM_REQUESTS_TOTAL(n * share, "m", "", outcome, "vllm", "a")
                for outcome, share in (
                    ("stop", 2), ("length", 1), ("error", 5), ("rejected", 7), ("invalid", 11),
                    ("cancelled", 13), ("abort", 17),
                )
            ),
        ]  # fmt: skip

    board = Board()
    board.tell(0, told(0))
    board.tell(60, told(60))
    assert values(derived(board.book), c.LLM_REQUESTS_PER_SECOND) == [3]


def test_the_node_adds_up_observations_not_percentiles() -> None:
    """One server is fast with 99 requests of 100, one slow with one: the P50 is that of all."""
    board = Board()
    for now, n in ((0, 0), (60, 1)):
        board.tell(now, page(60 * n, (99 * n, 99 * n, 99 * n, 99 * n), 4.95 * n))
        board.tell(now, page(60 * n, (0, 0, n, n), 0.9 * n, server="b"), "inference:b")
    samples = derived(board.book)
    of = {"signal": "ttft", "percentile": "p50", "model_name": "m"}
    (upper,) = values(samples, c.LLM_NODE_LATENCY_QUANTILE_UPPER_SECONDS, **of)
    assert upper <= 0.1
    assert values(samples, c.LLM_NODE_OUTPUT_TOKENS_PER_SECOND, model_name="m") == [2]


def test_one_server_needs_no_percentiles_of_the_node() -> None:
    """They would be the same series again."""
    board = Board()
    board.tell(0, page())
    board.tell(60, page(0, (200, 200, 200, 200), 10.0))
    samples = derived(board.book)
    assert values(samples, c.LLM_LATENCY_QUANTILE_SECONDS, signal="ttft")
    assert not values(samples, c.LLM_NODE_LATENCY_QUANTILE_SECONDS)


def told_by(
    metrics: Sequence[tuple[Metric, float, tuple[str, ...]]],
) -> Callable[[int], list[Sample]]:
    """Return pages of counters that grow by so much each step."""

    def tell(step: int) -> list[Sample]:
        counters = [metric(step * rate, *labels) for metric, rate, labels in metrics]
        return [c.LLM_SERVER_INFO(1, CHAT.engine, CHAT.server, ""), *counters]

    return tell


@pytest.mark.parametrize(
    ("metrics", "signal", "mean"),
    [
        # 300 s of decoding for 100 requests of 10,100 tokens: 10,000 after the first ones.
        (
            [
                (c.LLM_DECODE_SECONDS_TOTAL, 300, CHAT),
                (c.LLM_FINISHED_OUTPUT_TOKENS_TOTAL, 10_100, CHAT),
                (c.LLM_REQUESTS_TOTAL, 100, ("m", "", "stop", "vllm", "a")),
            ],
            "tpot", 0.03,
        ),
        # llama.cpp: slot seconds over tokens.
        (
            [
                (c.LLM_DECODE_SECONDS_TOTAL, 343.431, CHAT),
                (c.LLM_TOKENS_TOTAL, 20_006, ("m", "", "output", "vllm", "a")),
            ],
            "tpot", 343.431 / 20_006,
        ),
        # Only single tokens: there is no token after the first.
        (
            [
                (c.LLM_DECODE_SECONDS_TOTAL, 0, CHAT),
                (c.LLM_FINISHED_OUTPUT_TOKENS_TOTAL, 100, CHAT),
                (c.LLM_REQUESTS_TOTAL, 100, ("m", "", "stop", "vllm", "a")),
            ],
            "tpot", None,
        ),
        # Triton: sums without buckets.
        (
            [
                (c.LLM_REQUEST_DURATION_SECONDS_TOTAL, 50, CHAT),
                (c.LLM_REQUESTS_TOTAL, 100, ("m", "", "success", "vllm", "a")),
            ],
            "e2e", 0.5,
        ),
        (
            [
                (c.LLM_REQUEST_QUEUEING_SECONDS_TOTAL, 5, CHAT),
                (c.LLM_REQUESTS_TOTAL, 100, ("m", "", "success", "vllm", "a")),
            ],
            "queue", 0.05,
        ),
        ([(c.LLM_REQUEST_QUEUEING_SECONDS_TOTAL, 5, CHAT)], "queue", None),
    ],
)  # fmt: skip
def test_a_mean_follows_from_other_sums_and_says_so(
    metrics: list[tuple[Metric, float, tuple[str, ...]]], signal: str, mean: float | None
) -> None:
    """Derived, or absent where the sums do not tell."""
    board = Board()
    tell = told_by(metrics)
    board.tell(0, tell(0))
    board.tell(60, tell(1))
    found = values(derived(board.book), c.LLM_LATENCY_MEAN_SECONDS, signal=signal, method="derived")
    assert found == ([] if mean is None else [pytest.approx(mean)])


def test_tpot_follows_from_the_latencies_of_a_recorded_nim() -> None:
    """NIM 1.x has no TPOT: (E2E less TTFT) over (tokens less requests) is its mean step."""
    samples = recorded("nim-llm-1.x-2024-10.prom", "nim")
    board = Board()
    board.tell(0, [emptied(sample) for sample in samples])
    board.tell(60, samples)
    found = derived(board.book)
    (tpot,) = values(found, c.LLM_LATENCY_MEAN_SECONDS, signal="tpot", method="derived")
    (step,) = values(found, c.LLM_LATENCY_MEAN_SECONDS, signal="itl", method="exact")
    assert tpot == pytest.approx((2.4688401222229004 - 0.6119842529296875) / (174 - 5))
    assert tpot == pytest.approx(step)
    assert not values(found, c.LLM_LATENCY_MEAN_SECONDS, signal="tpot", method="exact")
    assert not values(found, c.LLM_LATENCY_QUANTILE_UPPER_SECONDS, signal="tpot")


@pytest.mark.parametrize(
    ("first", "whole", "tokens"),
    [
        # A tenth of the requests were aborted after their first token.
        ((110, 11.0), (100, 400.0), 10_100),
        # Single tokens only: none comes after the first.
        ((100, 10.0), (100, 10.5), 100),
        # Requests under way at the window's edges: the end is before the first token.
        ((100, 50.0), (100, 40.0), 10_100),
        ((0, 0.0), (0, 0.0), 0),
    ],
)
def test_tpot_does_not_follow_from_latencies_of_other_requests(
    first: tuple[int, float], whole: tuple[int, float], tokens: int
) -> None:
    """Then there is none."""
    board = Board()
    for step in range(2):
        counts = ((c.LLM_TTFT_SECONDS, first), (c.LLM_E2E_SECONDS, whole))
        latencies = [
            metric(Histogram((10.0,), (step * n, step * n), step * total), *CHAT)
            for metric, (n, total) in counts
        ]
        told = c.LLM_FINISHED_OUTPUT_TOKENS_TOTAL(step * tokens, *CHAT)
        info = c.LLM_SERVER_INFO(1, CHAT.engine, CHAT.server, "")
        board.tell(60 * step, [info, *latencies, told])
    assert not values(derived(board.book), c.LLM_LATENCY_MEAN_SECONDS, signal="tpot")


def recorded(name: str, engine: str) -> list[Sample]:
    """Return what a recorded page says."""
    known = next(one for one in load_engines() if one.name == engine)
    page = Reader(known.wanted).read((PAGES / name).read_bytes())
    return [one for one in Translator(known, "a").translate(page) if not isinstance(one, Drop)]


def emptied(sample: Sample) -> Sample:
    """Return a counter or a histogram as it was before the first request."""
    value = sample.value
    if isinstance(value, Histogram):
        return sample._replace(value=Histogram(value.bounds, tuple(0 for _ in value.counts), 0.0))
    return sample._replace(value=0) if sample.metric.kind == "counter" else sample


def test_shares_of_a_recorded_vllm() -> None:
    """Prefix hits, peak of requests in work and the share of waiting, as the pages have it."""
    vllm = next(engine for engine in load_engines() if engine.name == "vllm")
    translator, reader = Translator(vllm, "a"), Reader(vllm.wanted)
    board = Board()
    pages = ("vllm-0.32.0-cpu-cold.prom", "vllm-0.32.0-cpu-underload.prom", "vllm-0.32.0-cpu.prom")
    for step, name in enumerate(pages):
        read = translator.translate(reader.read((PAGES / name).read_bytes()))
        board.tell(30 * step, [item for item in read if not isinstance(item, Drop)])
    samples = derived(board.book)
    text = (PAGES / "vllm-0.32.0-cpu.prom").read_text()

    def total(name: str) -> float:
        lines = [line for line in text.splitlines() if line.startswith(f"vllm:{name}{{")]
        assert lines, name
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    (hits,) = values(samples, c.LLM_PREFIX_CACHE_HIT_RATIO)
    assert hits == total("prefix_cache_hits_total") / total("prefix_cache_queries_total")
    (waited,) = values(samples, c.LLM_QUEUE_TIME_RATIO)
    assert waited == pytest.approx(
        total("request_queue_time_seconds_sum") / total("e2e_request_latency_seconds_sum")
    )
    underload = (PAGES / pages[1]).read_text()
    (running,) = [
        float(line.rpartition(" ")[2])
        for line in underload.splitlines()
        if line.startswith("vllm:num_requests_running{")
    ]
    assert values(samples, c.LLM_PEAK_ACTIVE_REQUESTS) == [running]
    assert running > 0


def test_restarts_and_nonsense_are_told() -> None:
    """A restart of the server, and a counter that fell without one."""
    board = Board()
    board.tell(0, page(100, start=1.0))
    board.tell(5, page(90, start=1.0))
    board.tell(30, page(10, start=1025.0))
    samples = derived(board.book)
    assert values(samples, c.LLM_RESETS_TOTAL, server="a") == [1]
    assert values(samples, c.LLM_ANOMALIES_TOTAL, server="a", kind="decrease") == [1]


def test_a_server_that_is_gone_has_no_series() -> None:
    """Its past is in the book; it is not the present."""
    board = Board()
    board.tell(0, page())
    board.tell(60, page(60, (200, 200, 200, 200), 10.0))
    board.silence()
    board.look(90)
    samples = derived(board.book)
    assert not [s for s in samples if s.metric is not c.LLM_ANOMALIES_TOTAL]
    assert Entity("m", "", "vllm", "a") in board.book.known()


def test_a_window_is_worked_out_anew_when_it_can_have_changed() -> None:
    """Five minutes as often as was asked for; and at once when a server comes, or is restarted."""
    board, part = Board(), Windows(("5m",), every=5.0)

    def rate(now: float) -> list[float]:
        return values(list(part(board.book, EMPTY, now)), c.LLM_OUTPUT_TOKENS_PER_SECOND)

    board.tell(0, page(0, start=1.0))
    board.tell(10, page(100, start=1.0))
    assert rate(10) == [10]
    board.tell(12, page(240, start=1.0))
    assert rate(12) == [10]
    board.tell(15, page(240, start=1.0))
    assert rate(15) == [16]
    board.tell(16, page(80, start=1015.5))
    assert rate(16) == [20]
    board.tell(17, page(0, server="b"), "inference:b")
    board.tell(18, page(20, server="b"), "inference:b")
    assert rate(18) == [20, 20]
