"""Goodput: bounds by hand, against true requests, and what counts as bad."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from exporter import catalogue as c
from exporter.derive.serving.book import Entity
from exporter.derive.serving.goodput import Goodput, strictest
from exporter.objectives import Objective
from exporter.samples import Histogram, Sample
from tests.derive.serving_lab import BOUNDS, Found, Lab, entity, get, observed

TTFT = Objective("chat", "ttft_p95", "latency", "ttft", 0.95, 0.5, minimum_events=1)
TPOT = Objective("chat", "tpot_p95", "latency", "tpot", 0.95, 0.1, minimum_events=1)
E2E = Objective("chat", "e2e_p95", "latency", "e2e", 0.95, 2.5, minimum_events=1)
METRICS = {"ttft": c.LLM_TTFT_SECONDS, "tpot": c.LLM_TPOT_SECONDS, "e2e": c.LLM_E2E_SECONDS}


def page(
    who: Entity,
    *,
    outcomes: dict[str, float],
    codes: dict[str, float] | None = None,
    **latencies: Histogram,
) -> list[Sample]:
    """Return what an engine tells of its requests; latencies by signal."""
    return [
        c.LLM_SERVER_INFO(1, who.engine, who.server, ""),
        *(c.LLM_REQUESTS_TOTAL(n, *who[:2], o, *who[2:]) for o, n in outcomes.items()),
        *(c.LLM_HTTP_RESPONSES_TOTAL(n, k, *who[2:]) for k, n in (codes or {}).items()),
        *(METRICS[signal](h, *who) for signal, h in latencies.items()),
    ]


def scaled(samples: Iterable[Sample], share: float) -> list[Sample]:
    """Return a page on the way: this share of each counter."""
    found = []
    for metric, labels, value in samples:
        if isinstance(value, Histogram):
            counts = tuple(share * n for n in value.counts)
            found.append(metric(Histogram(value.bounds, counts, share * value.sum), *labels))
        else:
            found.append(metric(value if metric.kind == "info" else value * share, *labels))
    return found


def goodput(objectives: Sequence[Objective], *pages: list[Sample], seconds: float = 100) -> Found:
    """Return what is said after pages that rose from 0 to these within so many seconds."""
    whole = [sample for one in pages for sample in one]
    return Lab().run(
        lambda t: scaled(whole, t / seconds), [Goodput(objectives)], seconds, every=seconds / 20
    )


def mixed(*times: tuple[float, float]) -> Histogram:
    """Return a histogram of latencies: pairs of number and seconds."""
    parts = [observed(number, seconds) for number, seconds in times]
    counts = tuple(map(sum, zip(*(part.counts for part in parts), strict=True)))
    return Histogram(BOUNDS, counts, sum(part.sum for part in parts))


# ---------------------------------------------------------------- by hand


def test_the_bounds_are_those_of_frechet_by_hand() -> None:
    """Of 100 requests 10 were slow to the first token and 20 slow after it: 70 to 80 were neither.

    A product would say 72. Over 100 s that is 0.7 to 0.8 a second.
    """
    told = page(
        entity(),
        outcomes={"stop": 100},
        ttft=mixed((90, 0.3), (10, 0.7)),
        tpot=mixed((80, 0.05), (20, 0.2)),
    )
    said = goodput([TTFT, TPOT], told)
    assert get(said, c.SLA_GOODPUT_LOWER_RATIO, window="5m") == pytest.approx(0.70)
    assert get(said, c.SLA_GOODPUT_UPPER_RATIO, window="5m") == pytest.approx(0.80)
    assert get(said, c.SLA_GOODPUT_LOWER_REQUESTS_PER_SECOND, window="5m") == pytest.approx(0.7)
    assert get(said, c.SLA_GOODPUT_UPPER_REQUESTS_PER_SECOND, window="5m") == pytest.approx(0.8)


def test_the_lower_bound_is_never_below_nothing() -> None:
    told = page(
        entity(),
        outcomes={"stop": 100},
        ttft=mixed((40, 0.3), (60, 0.7)),
        tpot=mixed((30, 0.05), (70, 0.2)),
    )
    said = goodput([TTFT, TPOT], told)
    assert get(said, c.SLA_GOODPUT_LOWER_RATIO, window="5m") == 0.0
    assert get(said, c.SLA_GOODPUT_UPPER_RATIO, window="5m") == pytest.approx(0.3)


def test_failures_are_bad_and_the_client_s_doing_counts_nowhere() -> None:
    """80 served in time, 10 refused, 10 failed: 80 of 100. 40 cancelled, 50 answered 4xx."""
    told = page(
        entity(),
        outcomes={"stop": 80, "rejected": 10, "error": 10, "cancelled": 40},
        codes={"2xx": 80, "4xx": 50, "5xx": 15},
        ttft=mixed((80, 0.3)),
    )
    said = goodput([TTFT], told)
    assert get(said, c.SLA_GOODPUT_LOWER_RATIO, window="5m") == pytest.approx(0.8)
    assert get(said, c.SLA_GOODPUT_UPPER_RATIO, window="5m") == pytest.approx(0.8)


def test_a_single_token_has_no_time_per_token_to_be_slow_in() -> None:
    """Of 100 requests 30 had one token: they are good in tpot, unmeasured though they are."""
    told = page(
        entity(), outcomes={"stop": 100}, ttft=mixed((100, 0.3)), tpot=mixed((60, 0.05), (10, 0.2))
    )
    said = goodput([TTFT, TPOT], told)
    assert get(said, c.SLA_GOODPUT_LOWER_RATIO, window="5m") == pytest.approx(0.9)
    assert get(said, c.SLA_GOODPUT_UPPER_RATIO, window="5m") == pytest.approx(0.9)


def test_slow_first_tokens_may_be_those_of_clients_that_went_away() -> None:
    """110 first tokens, 15 of them slow, 100 served: 5 to 15 of these were slow (vllm#31503)."""
    told = page(entity(), outcomes={"stop": 100}, ttft=mixed((95, 0.3), (15, 0.7)))
    said = goodput([TTFT], told)
    assert get(said, c.SLA_GOODPUT_LOWER_RATIO, window="5m") == pytest.approx(0.85)
    assert get(said, c.SLA_GOODPUT_UPPER_RATIO, window="5m") == pytest.approx(0.95)


def test_a_threshold_between_two_bounds_widens_the_interval() -> None:
    """0.4 s lies in the bucket from 0.25 to 0.5 that 50 of 100 are in, at 0.3 s on average."""
    told = page(entity(), outcomes={"stop": 100}, ttft=mixed((50, 0.2), (50, 0.3)))
    said = goodput([dataclasses.replace(TTFT, threshold=0.4)], told)
    lower = get(said, c.SLA_GOODPUT_LOWER_RATIO, window="5m")
    assert lower is not None
    assert 0.5 <= lower < 1.0
    assert get(said, c.SLA_GOODPUT_UPPER_RATIO, window="5m") == pytest.approx(1.0)


def test_a_signal_that_an_engine_does_not_measure_leaves_the_lower_bound_open() -> None:
    told = page(entity(), outcomes={"stop": 100}, ttft=mixed((90, 0.3), (10, 0.7)))
    said = goodput([TTFT, TPOT], told)
    assert get(said, c.SLA_GOODPUT_LOWER_RATIO, window="5m") == 0.0
    assert get(said, c.SLA_GOODPUT_UPPER_RATIO, window="5m") == pytest.approx(0.9)


def test_nothing_measured_is_nothing_said() -> None:
    assert goodput([TTFT, TPOT], page(entity(), outcomes={"stop": 100})) == {}
    assert goodput([], page(entity(), outcomes={"stop": 100}, ttft=mixed((100, 0.3)))) == {}


def test_few_requests_are_not_enough() -> None:
    objective = dataclasses.replace(TTFT, minimum_events=20)
    told = page(entity(), outcomes={"stop": 19}, ttft=mixed((19, 0.3)))
    assert goodput([objective], told) == {}


def test_a_server_that_fails_all_its_requests_is_not_left_out() -> None:
    """100 in time at a, 100 refused at b before anything could be measured: a half, not all."""
    nothing = observed(0, 0.3)
    both = [
        page(entity("a"), outcomes={"stop": 100}, ttft=mixed((100, 0.3))),
        page(entity("b"), outcomes={"stop": 0, "error": 100}, ttft=nothing),
    ]
    said = goodput([TTFT], *both)
    assert get(said, c.SLA_GOODPUT_LOWER_RATIO, window="5m") == pytest.approx(0.5)
    assert get(said, c.SLA_GOODPUT_UPPER_RATIO, window="5m") == pytest.approx(0.5)


def test_a_server_that_measures_no_latency_has_no_part() -> None:
    both = [
        page(entity("a"), outcomes={"stop": 100}, ttft=mixed((90, 0.3), (10, 0.7))),
        page(entity("b", engine="llamacpp"), outcomes={"stop": 100}),
    ]
    said = goodput([TTFT], *both)
    assert get(said, c.SLA_GOODPUT_UPPER_RATIO, window="5m") == pytest.approx(0.9)


# ---------------------------------------------------------------- which objectives, which servers


def test_the_promise_with_the_largest_share_speaks_for_its_signal() -> None:
    """p50 below 0.2 s does not mean that a request of 0.3 s is bad; p99 below 1 s does say so."""
    p50 = dataclasses.replace(TTFT, name="ttft_p50", target=0.5, threshold=0.2)
    p99 = dataclasses.replace(TTFT, name="ttft_p99", target=0.99, threshold=1.0)
    assert strictest([p50, p99, TTFT, TPOT]) == [p99, TPOT]


def test_what_is_no_latency_of_a_request_has_no_part() -> None:
    """Gaps between tokens are no requests; error rates are counted anyway."""
    itl = dataclasses.replace(TTFT, name="itl_p95", signal="itl")
    errors = Objective("chat", "error_rate", "error_rate", "error_rate", 0.999)
    told = page(entity(), outcomes={"stop": 100}, ttft=mixed((100, 0.3)))
    assert goodput([itl, errors], told) == {}


def test_servers_are_added_up_or_kept_apart_as_the_objective_says() -> None:
    """100 requests with 10 bad ones at a, 300 with 30 and another model at b."""
    both = [
        page(entity("a"), outcomes={"stop": 100}, ttft=mixed((90, 0.3), (10, 0.7))),
        page(entity("b", "m"), outcomes={"stop": 300}, ttft=mixed((270, 0.3), (30, 0.7))),
    ]
    pooled = goodput([TTFT], *both)
    assert get(pooled, c.SLA_GOODPUT_LOWER_RATIO, window="5m", server="") == pytest.approx(0.9)
    rate = get(pooled, c.SLA_GOODPUT_UPPER_REQUESTS_PER_SECOND, window="5m", model_name="")
    assert rate == pytest.approx(3.6)
    each = goodput([dataclasses.replace(TTFT, per="server")], *both)
    rate = get(each, c.SLA_GOODPUT_UPPER_REQUESTS_PER_SECOND, window="5m", server="b")
    assert rate == pytest.approx(2.7)
    chosen = goodput([dataclasses.replace(TTFT, per="model", models=("m",))], *both)
    rate = get(chosen, c.SLA_GOODPUT_UPPER_REQUESTS_PER_SECOND, window="5m")
    assert rate == pytest.approx(2.7)


# ---------------------------------------------------------------- against the truth


@pytest.mark.parametrize("seed", range(8))
def test_the_true_goodput_lies_between_the_bounds(seed: int) -> None:
    """Requests whose latencies go together more or less, as they do under load."""
    rng = random.Random(seed)
    together = seed / 8
    requests = [_request(rng, together) for _ in range(2000)]
    good = sum(ttft <= 0.5 and tpot <= 0.1 and e2e <= 2.5 for ttft, tpot, e2e in requests)
    columns: dict[str, Any] = {
        signal: _histogram([one[i] for one in requests])
        for i, signal in enumerate(("ttft", "tpot", "e2e"))
    }
    said = goodput([TTFT, TPOT, E2E], page(entity(), outcomes={"stop": 2000}, **columns))
    lower = get(said, c.SLA_GOODPUT_LOWER_RATIO, window="5m")
    upper = get(said, c.SLA_GOODPUT_UPPER_RATIO, window="5m")
    assert lower is not None and upper is not None
    assert lower - 1e-9 <= good / 2000 <= upper + 1e-9
    assert upper - lower < 1


def _request(rng: random.Random, together: float) -> tuple[float, float, float]:
    """Return a request's latencies; `together` says how much one load is behind all of them."""
    load = rng.gauss(0, 1)
    ttft, tpot = (
        mean * 2 ** (together * load + (1 - together) * rng.gauss(0, 1)) for mean in (0.3, 0.05)
    )
    return ttft, tpot, ttft + 20 * tpot


def _histogram(values: list[float]) -> Histogram:
    counts = [float(sum(value <= bound for value in values)) for bound in BOUNDS]
    return Histogram(BOUNDS, (*counts, float(len(values))), sum(values))
