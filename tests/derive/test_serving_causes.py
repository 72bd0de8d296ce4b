"""The cause of a breach: each one alone, the order of several, and evidence that does not churn."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import pytest

from exporter import catalogue as c
from exporter.derive.serving.book import Entity
from exporter.derive.serving.causes import CHECKS, Causes, step
from exporter.derive.serving.node import Node
from exporter.derive.serving.stalls import Stalls
from exporter.objectives import Objective
from exporter.samples import Histogram, Sample
from tests.derive.serving_lab import BOUNDS, Lab, entity, gpu, h100s, observed

TTFT = Objective("chat", "ttft_p95", "latency", "ttft", 0.95, 0.5, window="5m")
ITL = dataclasses.replace(TTFT, name="itl_p95", signal="itl", threshold=0.05)
ERRORS = Objective("chat", "error_rate", "error_rate", "error_rate", 0.999, window="5m")
RATE = Objective("chat", "min_tps", "throughput", "output_tokens", 0.95, 10_000, window="5m")
UPTIME = Objective("chat", "uptime", "availability", "uptime", 0.999, window="5m")
WHO = entity()

Page = Callable[[float], list[Sample]]


class Broken(NamedTuple):
    objective: Objective
    model_name: str = ""
    server: str = ""


def causes(at: Page, *broken: Broken, seconds: float = 300) -> list[tuple[str, str]]:
    """Return cause and evidence for each breach, after so long."""
    node, stalls = Node(), Stalls()
    part = Causes(lambda: broken, stalls, node)
    said = Lab().run(lambda t: [*h100s(), *at(t)], [stalls, part], seconds)
    return [key[-2:] for key in said if key[0] == c.SLA_BREACH_CAUSE.name]  # type: ignore[misc]


def cause(objective: Objective, at: Page) -> tuple[str, str]:
    (found,) = causes(at, Broken(objective))
    return found


def page(
    t: float,
    who: Entity = WHO,
    *,
    queue: float = 0.0,
    prefill: float = 0.05,
    preempted: float = 0.0,
    full: float = 0.5,
    waiting: float = 0.0,
    errors: float = 0.0,
    tokens: float = 100.0,
) -> list[Sample]:
    """Return an engine that starts two requests a second, 1 s to their first token, 3 s in all."""
    n = 2 * t
    return [
        c.LLM_SERVER_INFO(1, who.engine, who.server, ""),
        c.LLM_TTFT_SECONDS(observed(n, 1.0), *who),
        c.LLM_E2E_SECONDS(observed(n, 3.0), *who),
        c.LLM_QUEUE_SECONDS(observed(n, queue), *who),
        c.LLM_PREFILL_SECONDS_TOTAL(n * prefill, *who),
        c.LLM_PREEMPTIONS_TOTAL(n * preempted, *who),
        c.LLM_KV_CACHE_USAGE_RATIO(full, *who),
        c.LLM_WAITING_REQUESTS(waiting, *who),
        c.LLM_TOKENS_TOTAL(tokens * t, *who[:2], "output", *who[2:]),
        c.LLM_REQUESTS_TOTAL(n * (1 - errors), *who[:2], "stop", *who[2:]),
        c.LLM_REQUESTS_TOTAL(n * errors, *who[:2], "error", *who[2:]),
    ]


def hot(t: float, share: float, reason: str = "hw_thermal") -> list[Sample]:
    return [c.GPU_THROTTLED_SECONDS_TOTAL(900 + share * t, *gpu(), reason)]


def torn(t: float, *, nvlink: float = 0, port: float = 0) -> list[Sample]:
    """Return links whose error counters rise by so much over 300 s."""
    return [
        c.GPU_NVLINK_ERRORS_TOTAL(7 + round(nvlink * t / 300), *gpu(), "recovery"),
        c.NIC_ERRORS_TOTAL(40 + round(port * t / 300), "mlx5_0", "1", "symbol"),
        c.NIC_ERRORS_TOTAL(40 + t, "mlx5_0", "1", "out_of_buffer"),
    ]


# ---------------------------------------------------------------- each one alone


@pytest.mark.parametrize(
    ("objective", "at", "found"),
    [
        (TTFT, page, ("unknown", "")),
        (TTFT, lambda t: page(t, queue=0.65), ("queue", "60 %+ of the time is waiting")),
        (TTFT, lambda t: page(t, queue=0.39), ("unknown", "")),
        (TTFT, lambda t: page(t, prefill=0.9), ("prefill", "80 %+ of the time is prompts")),
        (
            TTFT,
            lambda t: page(t, queue=0.5, full=0.99, waiting=4),
            ("kv_cache_full", "above 95 % while requests wait"),
        ),
        (TTFT, lambda t: page(t, full=0.99), ("unknown", "")),
        (ITL, lambda t: page(t, preempted=0.07), ("preemption", "5 %+ of requests")),
        (ITL, lambda t: page(t, prefill=0.25), ("prefill", "prompts 40 %+ of the time")),
        (ITL, lambda t: page(t, queue=0.9), ("unknown", "")),
        (
            TTFT,
            lambda t: [*page(t), *hot(t, 0.25)],
            ("gpu_throttled", "heat or brake 20 %+ of the time"),
        ),
        (TTFT, lambda t: [*page(t), *hot(t, 0.1)], ("unknown", "")),
        (TTFT, lambda t: [*page(t), *hot(t, 1.0, "low_utilization")], ("unknown", "")),
        (
            ITL,
            lambda t: [*page(t), *hot(t, 0.7, "sw_power_cap")],
            ("gpu_throttled", "power limit 60 %+ of the time"),
        ),
        (ITL, lambda t: [*page(t), *torn(t, nvlink=1)], ("link_errors", "errors on NVLink")),
        (ITL, lambda t: [*page(t), *torn(t, port=30)], ("link_errors", "errors on network ports")),
        (ITL, lambda t: [*page(t), *torn(t, port=5)], ("unknown", "")),
        (ERRORS, lambda t: page(t, errors=0.03), ("errors", "error: 1 %+ of requests")),
        (ERRORS, lambda t: page(t, errors=0.01), ("errors", "error: 1 %+ of requests")),
        (ERRORS, lambda t: page(t, errors=0.0), ("unknown", "")),
        (RATE, lambda t: page(t, errors=0.03), ("unknown", "")),
        (RATE, lambda t: page(t, errors=0.3), ("errors", "error: 20 %+ of requests")),
    ],
)
def test_what_stands_out_is_named(objective: Objective, at: Page, found: tuple[str, str]) -> None:
    assert cause(objective, at) == found


def test_a_stalled_server_explains_everything() -> None:
    """Nothing moves from 200 s on, with a queue: latency, errors and all."""

    def at(t: float) -> list[Sample]:
        return page(min(t, 200), queue=0.9, waiting=5)

    for objective in (TTFT, ITL, ERRORS):
        assert cause(objective, at) == ("stall", "requests wait, no progress for a minute")


@pytest.mark.parametrize(
    ("objective", "errors", "queue", "found"),
    [
        (TTFT, 0.1, 0.9, ("errors", "error: 5 %+ of requests")),
        (TTFT, 0.03, 0.9, ("queue", "80 %+ of the time is waiting")),
        (TTFT, 0.03, 0.0, ("errors", "error: 1 %+ of requests")),
        (TTFT, 0.01, 0.0, ("unknown", "")),
        (ITL, 0.1, 0.0, ("unknown", "")),  # a failed request is no gap
    ],
)
def test_failures_that_a_latency_counts_as_bad_are_named(
    objective: Objective, errors: float, queue: float, found: tuple[str, str]
) -> None:
    """Of a p95 one of twenty may be bad: that many failures break it, whatever the queue."""
    assert cause(objective, lambda t: page(t, errors=errors, queue=queue)) == found


def test_refused_requests_are_failures() -> None:
    def at(t: float) -> list[Sample]:
        refused = c.LLM_REQUESTS_TOTAL(0.2 * t, *WHO[:2], "rejected", *WHO[2:])
        return [*page(t), refused]

    assert cause(TTFT, at) == ("errors", "rejected: 5 %+ of requests")


def test_codes_that_an_objective_does_not_exclude_are_failures() -> None:
    """404 is the server's doing to whoever says so."""

    def at(t: float) -> list[Sample]:
        codes = {"200": 90, "404": 60}
        return [
            *page(t),
            *(c.LLM_HTTP_RESPONSES_TOTAL(n * t / 300, k, *WHO[2:]) for k, n in codes.items()),
        ]

    strict = dataclasses.replace(ERRORS, excluded_codes=("422",))
    assert cause(strict, at) == ("errors", "404: 40 %+ of requests")
    assert cause(ERRORS, at) == ("unknown", "")


def probed(t: float, failed: float, kind: str = "health", server: str = "a") -> list[Sample]:
    return [
        c.LLM_PROBES_TOTAL(t / 10 * (1 - failed), server, kind, "success"),
        c.LLM_PROBES_TOTAL(t / 10 * failed, server, kind, "failure"),
    ]


@pytest.mark.parametrize(
    ("at", "found"),
    [
        (lambda t: probed(t, 0.5), ("unreachable", "health: 40 %+ of probes of a server fail")),
        (
            lambda t: [*page(t, errors=0.03), *probed(t, 0.5)],
            ("unreachable", "health: 40 %+ of probes of a server fail"),
        ),
        (
            lambda t: [*page(t), *probed(t, 0), *probed(t, 0.3, "completion")],
            ("unreachable", "completion: 20 %+ of probes of a server fail"),
        ),
        (
            lambda t: [*page(t), *probed(t, 0.01), *probed(t, 1.0, server="b")],
            ("unreachable", "health: 80 %+ of probes of a server fail"),
        ),
    ],
)
def test_an_uptime_is_explained_by_the_probes_that_failed(at: Page, found: tuple[str, str]) -> None:
    """A server that is down was unknown, one that answers was blamed for one failed request."""
    assert cause(UPTIME, at) == found


def test_only_the_probes_of_servers_that_are_meant_count() -> None:
    def at(t: float) -> list[Sample]:
        return [*page(t), *probed(t, 0.1), *page(t, entity("b", "x")), *probed(t, 0.9, server="b")]

    chosen = dataclasses.replace(UPTIME, servers=("a",))
    model = dataclasses.replace(UPTIME, per="model")
    found = causes(at, Broken(UPTIME, server="a"), Broken(chosen), Broken(model, "x"))
    assert [one[1].partition(" %")[0] for one in found] == ["health: 5", "health: 5", "health: 80"]


def test_failures_that_only_show_in_http_are_named_by_their_code() -> None:
    def at(t: float) -> list[Sample]:
        codes = {"2xx": 90, "4xx": 200, "5xx": 60}
        return [
            *page(t),
            *(c.LLM_HTTP_RESPONSES_TOTAL(n * t / 300, k, *WHO[2:]) for k, n in codes.items()),
        ]

    assert cause(ERRORS, at) == ("errors", "5xx: 5 %+ of requests")


# ---------------------------------------------------------------- order


def test_what_makes_a_queue_comes_before_the_queue() -> None:
    """All at once: heat, then links, then the cache, then waiting; the power limit is last."""

    def at(t: float, *, heat: float = 0, nvlink: float = 0, full: float = 0.5) -> list[Sample]:
        engine = page(t, queue=0.9, full=full, waiting=4)
        power = hot(t, 0.9, "sw_power_cap")
        return [*engine, *hot(t, heat), *power, *torn(t, nvlink=nvlink)]

    assert cause(TTFT, lambda t: at(t, heat=0.5, nvlink=5, full=0.99))[0] == "gpu_throttled"
    assert cause(TTFT, lambda t: at(t, nvlink=5, full=0.99))[0] == "link_errors"
    assert cause(TTFT, lambda t: at(t, full=0.99))[0] == "kv_cache_full"
    assert cause(TTFT, at)[0] == "queue"


def test_the_larger_of_waiting_and_prompts_is_named() -> None:
    assert cause(TTFT, lambda t: page(t, queue=0.5, prefill=0.45))[0] == "queue"
    assert cause(TTFT, lambda t: page(t, queue=0.45, prefill=0.5))[0] == "prefill"


def test_every_check_names_a_cause_that_the_catalogue_tells_of() -> None:
    for check in CHECKS:
        assert check.cause in c.SLA_BREACH_CAUSE.help


# ---------------------------------------------------------------- whose breach


def test_only_the_servers_that_are_meant_are_looked_at() -> None:
    """b waits; a does not. For all: the mean of both is short of a cause."""
    a, b = entity("a"), entity("b")

    def at(t: float) -> list[Sample]:
        return [*page(t, a), *page(t, b, queue=0.7)]

    found = causes(at, Broken(TTFT, server="a"), Broken(TTFT, server="b"), Broken(TTFT))
    assert [one[0] for one in found] == ["unknown", "queue", "unknown"]
    chosen = dataclasses.replace(TTFT, servers=("b",))
    assert cause(chosen, at)[0] == "queue"


def test_heat_of_another_server_s_gpu_is_no_cause() -> None:
    def at(t: float) -> list[Sample]:
        hot_one = c.GPU_THROTTLED_SECONDS_TOTAL(0.9 * t, *gpu(1), "hw_thermal")
        return [*page(t), hot_one, *page(t, entity("b")), *h100s("b", first=1)]

    found = causes(at, Broken(TTFT, server="a"), Broken(TTFT, server="b"))
    assert [one[0] for one in found] == ["unknown", "gpu_throttled"]


def test_without_a_breach_there_is_no_cause() -> None:
    assert causes(lambda t: page(t, queue=0.9)) == []


def test_a_server_that_is_gone_leaves_the_cause_unknown() -> None:
    assert cause(TTFT, lambda t: page(t, queue=0.9) if t < 300 else []) == ("unknown", "")


# ---------------------------------------------------------------- evidence


@pytest.mark.parametrize(
    ("share", "words"),
    [(1.0, "80 %+"), (0.8, "80 %+"), (0.79, "60 %+"), (0.05, "5 %+"), (0.004, "0.1 %+")],
)
def test_shares_are_told_in_coarse_steps(share: float, words: str) -> None:
    """Evidence is a label: a share that wanders must not make a series a second."""
    assert step(share) == words


def test_a_wandering_queue_makes_one_series() -> None:
    """Waiting goes up and down between 65 and 75 % of the time: one label value."""
    part = Causes(lambda: [Broken(TTFT)], Stalls(), Node())
    lab, seen, total = Lab(), set(), 0.0
    for tick in range(120):
        total += 10 * (0.65 + 0.05 * (tick // 20 % 3))
        engine = [s for s in page(5.0 * tick) if s.metric is not c.LLM_QUEUE_SECONDS]
        counts = observed(10 * (tick + 1), 0.7).counts
        queue = c.LLM_QUEUE_SECONDS(Histogram(BOUNDS, counts, total), *WHO)
        view = lab.show([*engine, queue])
        seen |= {s.labels[-2:] for s in part(lab.book, view, lab.now) if tick > 5}
        lab.now += 5
    assert seen == {("queue", "60 %+ of the time is waiting")}
