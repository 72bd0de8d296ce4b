"""The waterfall finds what was injected into the demo's training job, and where.

A fault makes a step longer, so everything else becomes a smaller share of it: each other cause is
held against what it was, by the lengths of the steps before and after.
"""

from __future__ import annotations

from statistics import fmean, median
from typing import NamedTuple, cast

import pytest

from exporter import catalogue as c
from exporter.demo import SCENARIOS, Faults
from exporter.demo.node import Node
from exporter.demo.training import Scenario
from tests.demo.training_lab import Seen, watch

BEGIN, END = 75, 110
"""Seconds between which is looked: a minute is full, and no rail of the demo is down yet."""
REFERENCE = 1830.0
"""Megahertz to which an H100's peak belongs."""


class Told(NamedTuple):
    """Means of what was told over the time: losses by cause, seconds of a step, MFU."""

    losses: dict[str, float]
    seconds: float
    mfu: float
    last: Seen


def told(scenario: str) -> Told:
    seen = [one for one in watch(scenario, END) if one.at >= BEGIN]
    losses = [one.losses() for one in seen]
    assert {tuple(sorted(one)) for one in losses} == {tuple(sorted(losses[0]))}
    return Told(
        {cause: fmean(one[cause] for one in losses) for cause in losses[0]},
        fmean(one.value(c.TRAIN_STEP_MEDIAN_SECONDS) or 0 for one in seen),
        fmean(one.value(c.TRAIN_MFU_RATIO, convention="causal", peak="bf16") or 0 for one in seen),
        seen[-1],
    )


@pytest.fixture(scope="module")
def before() -> Told:
    return told("default")


def clock_loss(scenario: str) -> float:
    """Return the share of the peak that products lose to the clock, by the demo's own model."""
    node = Node(0, 0.0, SCENARIOS[scenario])
    node.advance(60)
    gpu, begin = node.gpus.all[SCENARIOS[scenario].gpus[0]], node.fabric.phases(0)
    clocks: list[float] = []
    for _ in range(60 * 6):
        node.advance(1 / 6)
        if gpu.rates.tensor > 0.3:
            clocks.append(min(1.0, gpu.clock / REFERENCE))
    share = (node.fabric.phases(0).matmul - begin.matmul) / 60
    return share * (1 - fmean(clocks))


def injected(scenario: str, dilution: float) -> float:
    """Return the share of the step, or of the peak, that a scenario takes."""
    faults = SCENARIOS[scenario].faults
    if faults.clock is not None:
        return clock_loss(scenario) - clock_loss("default") * dilution
    return faults.data + faults.late


@pytest.mark.parametrize(
    ("scenario", "cause"),
    [("data-stall", "data"), ("late-ranks", "communication"), ("clock-cap", "clock")],
)
def test_the_cause_that_was_injected_moves_and_no_other(
    before: Told, scenario: str, cause: str
) -> None:
    after = told(scenario)
    dilution = before.seconds / after.seconds
    moved = {
        one: share - before.losses.get(one, 0.0) * dilution for one, share in after.losses.items()
    }
    assert moved.pop(cause) == pytest.approx(injected(scenario, dilution), rel=0.1), moved
    assert {one: share for one, share in moved.items() if abs(share) > 0.02} == {}
    assert abs(after.losses["unexplained"]) < 0.10
    assert after.mfu + sum(after.losses.values()) == pytest.approx(1, abs=0.001)


def test_a_small_stall_moves_its_cause_and_no_other_without_any_allowance(
    before: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that is hardly longer leaves the other shares what they were."""
    small = SCENARIOS["default"]._replace(faults=Faults(data=0.04))
    monkeypatch.setitem(cast("dict[str, Scenario]", SCENARIOS), "small-stall", small)
    after = told("small-stall")
    moved = {one: share - before.losses.get(one, 0.0) for one, share in after.losses.items()}
    assert moved.pop("data") == pytest.approx(0.04, rel=0.1), moved
    assert {one: share for one, share in moved.items() if abs(share) > 0.02} == {}


def test_the_demos_job_began_some_time_after_it_was_submitted(before: Told) -> None:
    """It was queued for 95 s, and its first step took five."""
    latency = before.last.value(c.TRAIN_START_LATENCY_SECONDS)
    assert latency == pytest.approx(95 + before.seconds, rel=0.02)


def test_nothing_is_unexplained_in_the_demo(before: Told) -> None:
    assert abs(before.losses["unexplained"]) < 0.05
    assert before.mfu + sum(before.losses.values()) == pytest.approx(1, abs=0.001)


def own_work(scenario: str) -> list[float]:
    """Return what each rank does of a step when it waits for nobody, by the demo's own model."""
    node = Node(0, 0.0, SCENARIOS[scenario])
    node.advance(110)
    parts = [node.fabric.phases(rank) for rank in range(4)]
    return [(one.data + one.framework + one.work) / one.steps for one in parts]


@pytest.mark.parametrize(("scenario", "rank"), [("default", 3), ("straggler", 1)])
def test_the_straggler_among_the_demos_ranks_is_named(scenario: str, rank: int) -> None:
    """Rank 1 works 1.4 times as long; as it is, rank 3 has the badly cooled GPU."""
    seen, own = told(scenario).last, own_work(scenario)
    scores = seen.values(c.TRAIN_STRAGGLER_SCORE, "rank")
    assert max(scores, key=scores.__getitem__) == (str(rank),)
    assert scores[str(rank),] == pytest.approx(own[rank] / median(own) - 1, abs=0.02)
    waits = seen.values(c.TRAIN_RANK_WAIT_RATIO, "rank")
    assert min(waits, key=waits.__getitem__) == (str(rank),)


def test_checkpoints_are_counted_and_cost_what_they_cost() -> None:
    last = told("checkpoints").last
    saved = last.value(c.TRAIN_CHECKPOINTS_TOTAL)
    assert saved is not None
    assert saved >= 3
    assert last.value(c.TRAIN_CHECKPOINT_SECONDS_TOTAL) == pytest.approx(4 * saved)


def test_a_job_that_hides_no_communication_has_no_overlap(before: Told) -> None:
    """Total and exposed are those of one rank: the others wait longer, which hides nothing."""
    told = before.last.values(c.TRAIN_COMMUNICATION_RATIO, "kind", evidence="measured")
    assert told["total",] == pytest.approx(told["exposed",])
    overlap = before.last.value(c.TRAIN_COMMUNICATION_OVERLAP_RATIO, evidence="measured")
    assert overlap == pytest.approx(0, abs=1e-9)


def test_time_between_steps_is_not_lost_within_them(before: Told) -> None:
    """A checkpoint each five steps: its four seconds are no time in which the host was slow."""
    after = told("checkpoints")
    for cause in ("framework", "memory", "unexplained"):
        assert after.losses[cause] == pytest.approx(before.losses[cause], abs=0.02), after.losses
