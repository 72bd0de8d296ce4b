"""The demo as the daemon runs it: real sources and derivations over it, on a clock of the test."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest

from exporter import catalogue as c
from exporter.config import parse
from exporter.demo import PROMISE
from exporter.exposition import Exposition
from exporter.objectives import read_inference
from exporter.plans import Estate, Plan
from exporter.plans.demo import demo_plans
from exporter.runner import Runner
from exporter.samples import Histogram, Metric, View
from tests.fakes import FakeClock
from tests.test_objectives import SEED

SECONDS = 210


class Moment(NamedTuple):
    """States of objectives, and causes of breaches, at so many seconds."""

    at: float
    states: dict[str, str]
    causes: dict[str, str]


@dataclass
class Shown:
    """What the demo has shown by the end, and what was said of its promise on the way."""

    view: View
    page: str
    moments: list[Moment] = field(default_factory=list)

    def values(self, metric: Metric, *labels: str) -> dict[tuple[str, ...], float]:
        """Return the values of a gauge by these labels."""
        return by(self.view, metric, *labels)


def by(view: View, metric: Metric, *labels: str) -> dict[tuple[str, ...], float]:
    found: dict[tuple[str, ...], float] = {}
    for sample in view.samples(metric):
        assert not isinstance(sample.value, Histogram)
        named = dict(zip(metric.labels, sample.labels, strict=True))
        found[tuple(named[label] for label in labels)] = sample.value
    return found


def promised(view: View, at: float) -> Moment:
    states = by(view, c.SLA_STATE, "objective", "state")
    causes = by(view, c.SLA_BREACH_CAUSE, "objective", "cause")
    return Moment(at, {one: state for (one, state), so in states.items() if so}, dict(causes))


def planned(text: str) -> list[Plan]:
    with demo_plans() as plans:
        return plans(parse(text, "test"), Estate(FakeClock()))


@pytest.fixture(scope="module")
def shown() -> Shown:
    """Return what an empty configuration shows; there is no state file and no library."""
    clock = FakeClock()
    estate = Estate(clock)
    with demo_plans() as plans, ExitStack() as ending:
        runners = []
        for one in plans(parse("", "test"), estate):
            source, pace = one.make(), one.schedule
            ending.enter_context(closing(source))
            slot = estate.board.enroll(one.name, one.group, pace.deadline, pace.max_age, clock.now)
            runners.append((Runner(source, pace, slot, clock), pace))
        exposition = Exposition(lambda: estate.board.view(clock.now), tuple, clock)
        moments = []
        for second in range(SECONDS + 1):
            for runner, pace in runners:
                if second % max(1, round(pace.interval)) == 0:
                    runner.step()
            moments.append(promised(estate.board.view(clock.now), second))
            clock.advance(1)
        view = estate.board.view(clock.now)
        page = exposition.page((frozenset(), False, False)).decode()
        return Shown(view, page, moments)


def test_the_demo_shows_how_well_its_gpus_are_used(shown: Shown) -> None:
    """Its vLLM works on four GPUs, its llama.cpp on none."""
    assert sorted(shown.values(c.LLM_SERVER_GPU, "server", "gpu")) == [
        ("llama-70b", gpu) for gpu in "0123"
    ]
    for metric in (c.LLM_MFU_RATIO, c.LLM_MBU_RATIO):
        told = shown.values(metric, "server", "window", "method")
        assert {key[0] for key in told} == {"llama-70b"}
        counted, measured = told["llama-70b", "5m", "model"], told["llama-70b", "5m", "gpu"]
        assert 0.02 < counted < 1
        assert measured == pytest.approx(counted, rel=0.2)
    for metric in (c.LLM_PREFILL_MFU_RATIO, c.LLM_DECODE_MBU_RATIO):
        (ratio,) = set(shown.values(metric, "server").values())
        assert 0.1 < ratio < 1


def test_the_demos_tokens_for_a_joule_are_those_of_its_gpus_power(shown: Shown) -> None:
    """Four GPUs, and what each of them draws now."""
    power = sum(shown.values(c.GPU_POWER_WATTS, "gpu")[gpu,] for gpu in "0123")
    tokens = shown.values(c.LLM_OUTPUT_TOKENS_PER_SECOND, "server", "window")["llama-70b", "5m"]
    told = shown.values(c.LLM_TOKENS_PER_JOULE, "server", "window")["llama-70b", "5m"]
    assert told == pytest.approx(tokens / power, rel=0.5)
    assert 4 * 120 < tokens / told < 4 * 700, "watts"


def test_the_demos_dollars_are_price_times_time(shown: Shown) -> None:
    """Eight GPUs at 2.50, a fifth more by day; what its run costs is what its four GPUs do."""
    prices = shown.values(c.COST_GPU_HOUR_DOLLARS, "gpu")
    assert [*prices.values()] == [pytest.approx(3.0)] * 8
    assert shown.values(c.COST_DOLLARS_PER_HOUR) == {(): pytest.approx(24.0)}
    (seconds,) = shown.values(c.COST_COUNTED_SECONDS_TOTAL).values()
    assert SECONDS - 15 < seconds <= SECONDS
    dollars = shown.values(c.COST_DOLLARS_TOTAL, "gpu", "state")
    assert sum(dollars.values()) == pytest.approx(24.0 * seconds / 3600, rel=0.01)
    assert 0 < dollars["0", "idle"] < dollars["0", "busy"]
    (idle,) = shown.values(c.COST_IDLE_DOLLARS_PER_HOUR).values()
    assert 0 < idle < 24.0
    (run,) = shown.values(c.TRAIN_COST_DOLLARS_TOTAL, "run").values()
    assert 0 < run < sum(dollars.values()) / 2
    assert shown.values(c.COST_ENERGY_DOLLARS_TOTAL, "gpu").keys() == {(at,) for at in "01234567"}


def test_a_gpu_that_two_pods_share_is_split_between_them(shown: Shown) -> None:
    """By the processes' cgroups: the third GPU serves the large model, and embeddings too."""
    memory = shown.values(c.GPU_ALLOCATION_MEMORY_USED_BYTES, "gpu", "namespace", "pod")
    server, embeddings = "llama-70b-6d5f7c9b4-x8kq2", "embeddings-7c9d8b6f5d-m2wzt"
    assert {pod for gpu, _, pod in memory if gpu == "2"} == {server, embeddings}
    assert memory["2", "serving", embeddings] < memory["2", "serving", server] / 10
    assert {pod for gpu, _, pod in memory if gpu == "5"} == {"llama2-13b-worker-0"}
    seconds = shown.values(c.GPU_ALLOCATION_SM_SECONDS_TOTAL, "gpu", "pod")
    busy = shown.values(c.GPU_BUSY_SECONDS_TOTAL, "gpu")["2",]
    split = seconds["2", server] + seconds["2", embeddings]
    assert 0 < seconds["2", embeddings] < seconds["2", server]
    assert split == pytest.approx(busy, rel=0.1), (seconds, busy)


def test_the_demo_keeps_and_breaks_what_was_promised_within_a_minute(shown: Shown) -> None:
    """Met, violated with a cause, undetermined, and a budget that is overdrawn."""
    early = next(one for one in shown.moments if one.at == 60)
    assert early.states["ttft_p50"] == early.states["ttft_p99"] == "met"
    assert early.states["ttft_p95"] == "violated"
    assert early.causes.keys() == {("ttft_p95", "prefill")}
    assert early.states["retry_success_rate"] == "undetermined", "there is no gateway"
    budgets = shown.values(c.SLA_ERROR_BUDGET_REMAINING_RATIO, "objective", "window")
    assert budgets["ttft_p50", "1h"] > 0


def test_the_demo_recovers(shown: Shown) -> None:
    """A breach ends when the burst has passed, and its cause with it."""
    last = shown.moments[-1]
    assert last.states["ttft_p95"] == "met"
    assert ("ttft_p95", "prefill") not in last.causes


def test_nothing_of_the_demo_is_over_a_budget_of_series(shown: Shown) -> None:
    """No source drops anything, none of a group's own either."""
    assert [(one.name, one.health.drops) for one in shown.view.sources if one.health.drops] == []
    assert {one.name: one.faults for one in shown.view.sources if one.faults} == {}


def test_promtool_accepts_the_demos_page(shown: Shown, tool: Callable[[str], str]) -> None:
    result = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=shown.page, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")


def test_the_demos_promise_is_the_specifications() -> None:
    assert read_inference(PROMISE) == parse(SEED, "test").inference_sla


@pytest.mark.parametrize(
    ("text", "objectives"),
    [
        ("", {"inference_sla"}),
        ("sla: {mine: {objectives: {ttft_p95: '< 1s'}}}", {"mine"}),
        ("training_sla: {job_failure_rate: '< 5%'}", {"training_sla"}),
    ],
)
def test_the_demo_takes_the_users_objectives_where_there_are_any(
    text: str, objectives: set[str]
) -> None:
    judges = {"derive:serving", "derive:training"}
    said = " ".join(one.fingerprint for one in planned(text) if one.name in judges)
    known = ("inference_sla", "training_sla", "mine")
    assert {name for name in known if f"sla='{name}'" in said} == objectives


def test_the_demo_writes_no_state_whatever_is_configured() -> None:
    plans = planned("state_directory: /nonexistent/state")
    assert "state" not in {one.name for one in plans}


def test_gpus_are_told_with_their_pods_and_tenants_pay_for_them(shown: Shown) -> None:
    """Four serve, one of them for two pods, and four train; each tenant pays half of the node."""
    pods = shown.values(c.GPU_ALLOCATION_INFO, "gpu", "pod")
    assert sorted(gpu for gpu, _ in pods) == sorted([*map(str, range(8)), "2"])
    shares = shown.values(c.GPU_ALLOCATION_SHARE_RATIO, "gpu", "namespace", "container")
    assert shares["2", "serving", "vllm"] == shares["2", "serving", "server"] == 0.5
    assert sum(shares.values()) == 8
    assert shown.values(c.COST_ALLOCATED_GPUS, "namespace") == {("serving",): 4, ("research",): 4}
    dollars = shown.values(c.COST_TENANT_DOLLARS_TOTAL, "namespace")
    assert dollars["serving",] == pytest.approx(dollars["research",], rel=0.1)
    assert dollars["serving",] > 0
