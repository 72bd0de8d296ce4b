"""Percentiles, means and rates of each server over rolling windows, and of a model on the node.

A percentile comes with the interval that the engine's buckets leave open, and only with enough
observations; `quantiles` has the mathematics. Over several servers observations are added up
before a percentile is taken: percentiles cannot be averaged. A mean is exact where the engine sums
up what it observes. Where it does not, one may follow from other sums; that is said, `derived`.

    llm_latency_quantile_seconds{...,server="a",signal="ttft",percentile="p95",window="5m"} 0.41
    llm_latency_quantile_lower_seconds{...,signal="ttft",percentile="p95",window="5m"} 0.25
    llm_latency_quantile_upper_seconds{...,signal="ttft",percentile="p95",window="5m"} 0.5
    llm_latency_mean_seconds{...,signal="tpot",window="5m",method="exact"} 0.021
    llm_output_tokens_per_second{...,server="a",window="5m"} 2211.5
    llm_node_output_tokens_per_second{model_name="m",window="5m"} 4375.0
    llm_window_filled_ratio{server="a",window="1h"} 0.4
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from exporter import catalogue as c
from exporter.derive.serving.book import WINDOWS, Book, Entity
from exporter.derive.serving.increase import Increase
from exporter.derive.serving.paced import EVERY, due
from exporter.derive.serving.quantiles import estimates, merge
from exporter.derive.serving.tally import SIGNALS, is_served
from exporter.samples import Metric, Sample, View

PERCENTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
"""The quantiles, by the value of the label `percentile`."""

OUTPUTS: tuple[Metric, ...] = (
    c.LLM_WINDOW_FILLED_RATIO,
    c.LLM_WINDOW_SECONDS,
    c.LLM_LATENCY_QUANTILE_SECONDS,
    c.LLM_LATENCY_QUANTILE_LOWER_SECONDS,
    c.LLM_LATENCY_QUANTILE_UPPER_SECONDS,
    c.LLM_LATENCY_MEAN_SECONDS,
    c.LLM_LATENCY_OBSERVATIONS,
    c.LLM_NODE_LATENCY_QUANTILE_SECONDS,
    c.LLM_NODE_LATENCY_QUANTILE_LOWER_SECONDS,
    c.LLM_NODE_LATENCY_QUANTILE_UPPER_SECONDS,
    c.LLM_REQUESTS_PER_SECOND,
    c.LLM_INPUT_TOKENS_PER_SECOND,
    c.LLM_OUTPUT_TOKENS_PER_SECOND,
    c.LLM_OUTPUT_TOKENS_PER_SECOND_PER_GPU,
    c.LLM_PEAK_ACTIVE_REQUESTS,
    c.LLM_PREFIX_CACHE_HIT_RATIO,
    c.LLM_QUEUE_TIME_RATIO,
    c.LLM_NODE_REQUESTS_PER_SECOND,
    c.LLM_NODE_INPUT_TOKENS_PER_SECOND,
    c.LLM_NODE_OUTPUT_TOKENS_PER_SECOND,
    c.LLM_RESETS_TOTAL,
    c.LLM_ANOMALIES_TOTAL,
)
"""What this part yields."""

_OF_SERVER = (
    c.LLM_LATENCY_QUANTILE_SECONDS,
    c.LLM_LATENCY_QUANTILE_LOWER_SECONDS,
    c.LLM_LATENCY_QUANTILE_UPPER_SECONDS,
)
_OF_NODE = (
    c.LLM_NODE_LATENCY_QUANTILE_SECONDS,
    c.LLM_NODE_LATENCY_QUANTILE_LOWER_SECONDS,
    c.LLM_NODE_LATENCY_QUANTILE_UPPER_SECONDS,
)
_RATES = (
    (c.LLM_REQUESTS_PER_SECOND, c.LLM_NODE_REQUESTS_PER_SECOND),
    (c.LLM_INPUT_TOKENS_PER_SECOND, c.LLM_NODE_INPUT_TOKENS_PER_SECOND),
    (c.LLM_OUTPUT_TOKENS_PER_SECOND, c.LLM_NODE_OUTPUT_TOKENS_PER_SECOND),
)

_ALIKE = 0.05
"""Two counts that differ by more than this share of one are not of the same requests."""


class Windows:
    """Yields what the servers' windows hold. `windows` are those that are published.

    A window is worked out anew after a thirtieth of its length, `every` seconds at most, and when a
    server comes, goes or is restarted: an hour does not look different a second later.
    """

    def __init__(self, windows: Sequence[str] = ("5m", "1h"), *, every: float = EVERY) -> None:
        self._windows = tuple(windows)
        self._every = every
        self._state: object = None
        self._looked: dict[str, float] = {}
        self._kept: dict[str, list[Sample]] = {}
        self._left_out: list[Sample] = []
        self._said: tuple[Sample, ...] = ()

    def __call__(self, book: Book, view: View, now: float, /) -> tuple[Sample, ...]:
        """Return the samples of this round."""
        gpus = Counter(sample.labels[0] for sample in view.samples(c.LLM_SERVER_GPU))
        state = book.entities(), dict(book.resets), gpus
        if state != self._state:
            self._state, self._looked = state, {}
        news = [
            window
            for window in self._windows
            if due(now, self._looked.get(window), min(self._every, WINDOWS[window] / 30))
        ]
        for window in news:
            self._looked[window] = now
            self._kept[window] = list(_window(book, window, gpus))
        former, self._left_out = self._left_out, list(_left_out(book))
        if news or former != self._left_out:
            self._said = (*self._left_out, *chain.from_iterable(self._kept.values()))
        return self._said


def _window(book: Book, window: str, gpus: Mapping[str, int]) -> Iterator[Sample]:
    rates: dict[tuple[Metric, str], float] = {}
    found: dict[tuple[str, str], list[Increase]] = {}
    for server in book.servers():
        yield c.LLM_WINDOW_FILLED_RATIO(book.filled(server, window), server, window)
        yield c.LLM_WINDOW_SECONDS(book.seconds(server, window), server, window)
    for entity in book.entities():
        yield from _latencies(book, entity, window, found)
        yield from _rates(book, entity, window, rates, gpus.get(entity.server, 0))
        yield from _shares(book, entity, window)
    yield from _of_node(window, rates, found)


def _left_out(book: Book) -> Iterator[Sample]:
    """Tell of restarts, and of what was left out."""
    for server in book.servers():
        yield c.LLM_RESETS_TOTAL(book.told.get(server, 0), server)
    servers = set(book.servers())
    for (server, kind), number in book.anomalies.items():
        if server not in servers:
            continue
        yield c.LLM_ANOMALIES_TOTAL(number, server, kind)


# ---------------------------------------------------------------- latencies


def _latencies(
    book: Book, entity: Entity, window: str, found: dict[tuple[str, str], list[Increase]]
) -> Iterator[Sample]:
    for signal, metric in SIGNALS.items():
        increase = book.histogram(metric, entity, window)
        mean = None
        if increase is not None:
            found.setdefault((entity.model_name, signal), []).append(increase)
            yield c.LLM_LATENCY_OBSERVATIONS(increase.n, *entity, signal, window)
            yield from _percentiles(_OF_SERVER, increase, (*entity, signal), window)
            mean = increase.total / increase.n if increase.n else None
        method = "exact" if increase is not None else "derived"
        if increase is None:
            mean = derived_mean(book, entity, signal, window)
        if mean is not None:
            yield c.LLM_LATENCY_MEAN_SECONDS(mean, *entity, signal, window, method)


def _percentiles(
    metrics: tuple[Metric, Metric, Metric], increase: Increase, of: tuple[str, ...], window: str
) -> Iterator[Sample]:
    point, lower, upper = metrics
    results = estimates(increase, PERCENTILES.values())
    for percentile, result in zip(PERCENTILES, results, strict=True):
        if result is None:
            continue
        labels = (*of, percentile, window)
        if result.point is not None:
            yield Sample(point, labels, result.point)
        yield Sample(lower, labels, result.lower)
        if result.upper < math.inf:
            yield Sample(upper, labels, result.upper)


def derived_mean(book: Book, entity: Entity, signal: str, window: str) -> float | None:
    """Return the mean of a latency that the engine has no histogram of, where other sums tell it.

    TPOT: the time spent decoding over the tokens after the first of each request, of those that
    finished; of an engine that does not count those, over all tokens; of an engine that does not
    sum up decoding, the time after the first token instead. E2E and queue: sums that an engine
    keeps without buckets, over the requests served.
    """
    if signal == "tpot":
        return _mean_per_token(book, entity, window)
    sums = {
        "e2e": c.LLM_REQUEST_DURATION_SECONDS_TOTAL,
        "queue": c.LLM_REQUEST_QUEUEING_SECONDS_TOTAL,
    }
    if signal not in sums:
        return None
    return _quotient(book.increase(sums[signal], entity, window), served(book, entity, window))


def _mean_per_token(book: Book, entity: Entity, window: str) -> float | None:
    decode = book.increase(c.LLM_DECODE_SECONDS_TOTAL, entity, window)
    tokens = book.increase(c.LLM_FINISHED_OUTPUT_TOKENS_TOTAL, entity, window)
    if decode is None:
        return None if tokens is None else _mean_after_first(book, entity, window, tokens)
    if tokens is None:
        output = book.increase(c.LLM_TOKENS_TOTAL, entity, window, direction="output")
        return _quotient(decode, output)
    requests = served(book, entity, window)
    return None if requests is None else _quotient(decode, tokens - requests)


def _mean_after_first(book: Book, entity: Entity, window: str, tokens: float) -> float | None:
    """Return E2E less TTFT over the tokens less one, of the mean request.

    Only where both latencies speak of the same requests: aborted ones have a first token and no
    end (vllm#31503), some engines time first tokens of streams only.
    """
    first = book.histogram(c.LLM_TTFT_SECONDS, entity, window)
    whole = book.histogram(c.LLM_E2E_SECONDS, entity, window)
    if first is None or whole is None or not first.n or not whole.n:
        return None
    if abs(first.n - whole.n) > _ALIKE * whole.n:
        return None
    after = whole.total / whole.n - first.total / first.n
    return _quotient(after, tokens / whole.n - 1) if after > 0 else None


def served(book: Book, entity: Entity, window: str) -> float | None:
    """Return how many requests were served to their end, as far as the engine tells."""
    outcomes = book.by(c.LLM_REQUESTS_TOTAL, entity, "outcome", window)
    if outcomes:
        return sum(n for outcome, n in outcomes.items() if is_served(outcome))
    finished = book.histogram(c.LLM_E2E_SECONDS, entity, window)
    return None if finished is None else finished.n


# ---------------------------------------------------------------- rates and shares


def _rates(
    book: Book, entity: Entity, window: str, rates: dict[tuple[Metric, str], float], gpus: int
) -> Iterator[Sample]:
    seconds = book.seconds(entity.server, window)
    if not seconds > 0:
        return
    counts = (
        served(book, entity, window),
        book.increase(c.LLM_TOKENS_TOTAL, entity, window, direction="input"),
        book.increase(c.LLM_TOKENS_TOTAL, entity, window, direction="output"),
    )
    for (metric, of_node), count in zip(_RATES, counts, strict=True):
        if count is None:
            continue
        rate = count / seconds
        key = of_node, entity.model_name
        rates[key] = rates.get(key, 0.0) + rate
        yield metric(rate, *entity, window)
    if counts[-1] is not None and gpus:
        rate = counts[-1] / seconds / gpus
        yield c.LLM_OUTPUT_TOKENS_PER_SECOND_PER_GPU(rate, *entity, window)


def _shares(book: Book, entity: Entity, window: str) -> Iterator[Sample]:
    active = book.gauge(c.LLM_ACTIVE_REQUESTS, entity, window)
    if active is not None:
        yield c.LLM_PEAK_ACTIVE_REQUESTS(active.maximum, *entity, window)
    hits = _quotient(
        book.increase(c.LLM_PREFIX_CACHE_HIT_TOKENS_TOTAL, entity, window),
        book.increase(c.LLM_PREFIX_CACHE_QUERIED_TOKENS_TOTAL, entity, window),
    )
    if hits is not None and hits <= 1:
        yield c.LLM_PREFIX_CACHE_HIT_RATIO(hits, *entity, window)
    waited = _quotient(
        _time(book, entity, window, c.LLM_QUEUE_SECONDS, c.LLM_REQUEST_QUEUEING_SECONDS_TOTAL),
        _time(book, entity, window, c.LLM_E2E_SECONDS, c.LLM_REQUEST_DURATION_SECONDS_TOTAL),
    )
    if waited is not None and waited <= 1:
        yield c.LLM_QUEUE_TIME_RATIO(waited, *entity, window)


def _time(
    book: Book, entity: Entity, window: str, histogram: Metric, counter: Metric
) -> float | None:
    """Return a time summed over the requests of a window."""
    increase = book.histogram(histogram, entity, window)
    return book.increase(counter, entity, window) if increase is None else increase.total


def _quotient(part: float | None, whole: float | None) -> float | None:
    """Return a quotient; nothing where it has no denominator."""
    if part is None or whole is None or not whole > 0:
        return None
    return part / whole


def _of_node(
    window: str,
    rates: Mapping[tuple[Metric, str], float],
    found: Mapping[tuple[str, str], list[Increase]],
) -> Iterator[Sample]:
    for (metric, model), rate in rates.items():
        yield metric(rate, model, window)
    for (model, signal), increases in found.items():
        together = merge(increases) if len(increases) > 1 else None
        if together is not None:
            yield from _percentiles(_OF_NODE, together, (model, signal), window)
