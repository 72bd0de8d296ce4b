"""All parts of serving over one book: what each says, and that nothing of it is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from exporter import catalogue as c
from exporter.derive import Memory
from exporter.derive.serving import serving
from exporter.derive.serving.book import Book, Entity
from exporter.derive.serving.paced import Paced
from exporter.objectives import read_inference
from exporter.reference.models import load
from exporter.samples import Metric, Sample, View
from tests.derive.serving_lab import Found, Lab, entity, get, gpu, h100s, observed, told

A = entity("a")
B = entity("b", engine="sglang")
SLA = {
    "latency": {"ttft_p50": "< 250ms", "ttft_p95": "< 500ms", "tpot_p95": "< 100ms"},
    "throughput": {"min_tps": "> 10,000 tokens/s"},
    "availability": {"uptime": "> 99.9%", "error_rate": "< 0.1%", "retry_success_rate": "> 99%"},
}
RESTART = 100.0
"""When the first server is restarted."""

ELSEWHERE = {
    # What is read from servers, by the sources that read them.
    c.LLM_SOURCE_INFO, c.LLM_MAPPING_UNRESOLVED, c.LLM_SCRAPE_DURATION_SECONDS,
    c.LLM_PROBE_UP, c.LLM_PROBE_DURATION_SECONDS, c.LLM_DISCOVERED_SERVERS,
}  # fmt: skip


def load_of(who: Entity, t: float, *, ttft: float = 0.3, queue: float = 0.1) -> Iterator[Sample]:
    """Yield an engine's counters after t seconds of two requests a second, one of 100 in error."""
    n = 2 * t
    for metric, seconds in (
        (c.LLM_TTFT_SECONDS, ttft),
        (c.LLM_TPOT_SECONDS, 0.02),
        (c.LLM_E2E_SECONDS, ttft + 2),
        (c.LLM_QUEUE_SECONDS, queue),
    ):
        yield metric(observed(n, seconds), *who)
    yield c.LLM_ITL_SECONDS(observed(100 * n, 0.02), *who)
    for metric, amount in (
        (c.LLM_PREFILL_TOKENS_TOTAL, 800 * n),
        (c.LLM_FINISHED_INPUT_TOKENS_TOTAL, 1000 * n),
        (c.LLM_FINISHED_OUTPUT_TOKENS_TOTAL, 101 * n),
        (c.LLM_PREFILL_SECONDS_TOTAL, 0.15 * n),
        (c.LLM_ENGINE_STEPS_TOTAL, 40 * t),
        (c.LLM_PREFIX_CACHE_QUERIED_TOKENS_TOTAL, 1000 * n),
        (c.LLM_PREFIX_CACHE_HIT_TOKENS_TOTAL, 200 * n),
        (c.LLM_PREEMPTIONS_TOTAL, 0),
        (c.LLM_ACTIVE_REQUESTS, 4),
        (c.LLM_WAITING_REQUESTS, 1),
        (c.LLM_KV_CACHE_USAGE_RATIO, 0.5),
    ):
        yield metric(amount, *who)
    for direction, each in (("input", 1000), ("output", 101)):
        yield c.LLM_TOKENS_TOTAL(each * n, *who[:2], direction, *who[2:])
    for outcome, share in (("stop", 0.99), ("error", 0.01)):
        yield c.LLM_REQUESTS_TOTAL(share * n, *who[:2], outcome, *who[2:])
    for outcome, share in (("success", 0.9), ("failure", 0.1)):
        yield c.LLM_RETRIES_TOTAL(share * t, *who[:2], outcome, *who[2:])


def node(t: float) -> Iterator[Sample]:
    """Yield what is read of a node at t: a server that was restarted, and one with a bad page."""
    since = t - RESTART if t >= RESTART else t
    for who, server in (
        (A, [*load_of(A, since, ttft=1.0, queue=0.6)]),
        (B, [*load_of(B, max(t, 200.0) if t != 150 else 90.0)]),
    ):
        yield c.LLM_SERVER_INFO(1, who.engine, who.server, "")
        began = RESTART if who == A and t >= RESTART else 1.0
        yield c.LLM_SERVER_START_TIME_SECONDS(began, *who[2:])
        yield from server
        for outcome, n in (("success", t - t // 10), ("failure", t // 10)):
            yield c.LLM_PROBES_TOTAL(n, who.server, "health", outcome)
    yield from h100s("a")
    yield c.GPU_ENERGY_JOULES_TOTAL(400 * t, *gpu())
    yield c.GPU_DRAM_ACTIVE_SECONDS_TOTAL(0.4 * t, *gpu())
    yield c.COST_GPU_HOUR_DOLLARS(3.6, *gpu())
    yield c.COST_DOLLARS_TOTAL(0.001 * t, *gpu(), "busy")


@pytest.fixture(scope="module")
def said() -> Found:
    """Return what is said after 400 s, by name and labels."""
    derivation = serving(("5m",), read_inference(SLA), models=load())
    lab, memory, found = Lab(), Memory(), {}
    for tick in range(81):
        view = lab.board(node(5.0 * tick))
        samples = list(derivation.function(view, memory, lab.now))
        assert {sample.metric for sample in samples} <= set(derivation.outputs)
        found = told(samples)
        lab.now += 5
    return found


def test_every_row_that_serving_derives_is_told_from_one_book(said: Found) -> None:
    names = {key[0] for key in said}
    assert {m.name for m in serving().outputs} - names == set()


def test_each_row_of_the_catalogue_is_read_or_derived() -> None:
    """A row of serving or of promises that nobody makes would be a promise of ours."""
    derivation = serving()
    rows = {row for row in vars(c).values() if isinstance(row, Metric)}
    ours = {row for row in rows if row.group in (c.SERVING, c.SLA)}
    assert ours - {*derivation.inputs, *derivation.outputs} == ELSEWHERE
    assert not set(derivation.inputs) & set(derivation.outputs)


def test_parts_see_the_same_requests(said: Found) -> None:
    """What was served in time is what b served, and no more than the first tokens in time."""
    served = get(said, c.LLM_REQUESTS_PER_SECOND, server="b", window="5m")
    for bound in (
        c.SLA_GOODPUT_LOWER_REQUESTS_PER_SECOND,
        c.SLA_GOODPUT_UPPER_REQUESTS_PER_SECOND,
    ):
        assert get(said, bound, window="5m") == pytest.approx(served)
    upper = get(said, c.SLA_GOODPUT_UPPER_RATIO, sla="inference_sla", window="5m")
    most = get(said, c.SLA_COMPLIANCE_UPPER_RATIO, objective="ttft_p95", window="5m")
    assert upper is not None and most is not None
    assert 0.4 < upper <= most


def test_each_breach_has_a_cause_and_nothing_else_has_one(said: Found) -> None:
    states = {
        key[2]
        for key, value in said.items()
        if key[0] == c.SLA_STATE.name and key[-1] == "violated" and value
    }
    causes = {key[2]: key[-2] for key in said if key[0] == c.SLA_BREACH_CAUSE.name}
    assert causes.keys() == states
    assert causes["ttft_p95"] == "queue"
    assert causes["error_rate"] == "errors"
    assert causes["min_tps"] == "unknown"
    assert "tpot_p95" not in causes


def test_a_server_without_known_gpus_has_no_utilization(said: Found) -> None:
    assert get(said, c.LLM_MFU_RATIO, server="a", method="model") is not None
    assert get(said, c.LLM_MFU_RATIO, server="b") is None


# ---------------------------------------------------------------- asked now and then


class Told:
    """A part that says when it was asked."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    def __call__(self, _book: Book, _view: View, now: float) -> list[Sample]:
        self.asked.append(now)
        return [c.LLM_DISCOVERED_SERVERS(now, "static")]


def test_a_part_is_asked_each_five_seconds_and_says_the_same_in_between() -> None:
    part = Told()
    asked = paced(part, lambda _: None)
    assert [asked(t) for t in (0.2, 1.2, 4.2, 5.2, 6.2, 9.2, 10.2)] == [
        0.2, 0.2, 0.2, 5.2, 5.2, 5.2, 10.2,
    ]  # fmt: skip
    assert part.asked == [0.2, 5.2, 10.2]


def test_parts_that_began_at_different_times_come_in_the_same_round() -> None:
    """Else each second another one would change what all of them say."""
    early, late = Told(), Told()
    first, second = paced(early, lambda _: None), paced(late, lambda _: None)
    for at in range(31):
        first(at)
        if at >= 7:
            second(at)
    assert early.asked[2:] == late.asked[1:] == [10, 15, 20, 25, 30]


def test_rounds_that_come_each_five_seconds_and_not_quite_on_time_ask_each_time() -> None:
    part = Told()
    asked = paced(part, lambda _: None)
    times = [5.1, 9.9, 15.1, 19.8, 25.2, 29.9]
    assert [asked(t) for t in times] == times


def test_a_part_is_asked_at_once_when_its_subject_has_changed() -> None:
    """A breach that has ended keeps no cause for another four seconds."""
    subject = ["breach"]
    asked = paced(Told(), lambda _: list(subject))
    assert [asked(0), asked(1)] == [0, 0]
    subject.clear()
    assert [asked(2), asked(3)] == [2, 2]


def paced(part: Told, about: Callable[[Book], object]) -> Callable[[float], Any]:
    one = Paced(part, about, every=5.0)

    def ask(now: float) -> Any:
        (sample,) = one(Book(), View((), ()), now)
        return sample.value

    return ask
