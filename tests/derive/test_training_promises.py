"""training_sla as a configuration states it, judged by what happens to jobs."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.derive import Derivation, Memory
from exporter.derive.training import training
from exporter.derive.training.lifecycle import Happened
from exporter.derive.training.promises import Promises
from exporter.objectives import read_training
from exporter.samples import Gate, Malformed, Sample, View
from exporter.training import Facts, Moment, Step, TrainingLedger

NOTHING = View((), ())
WALL = 1.8e9
SEED = {
    "job_start_latency_p95": "< 5 minutes",
    "job_failure_rate": "< 5%",
    "checkpoint_recovery_time": "< 2 minutes",
}
"""The specification's section."""

Said = dict[tuple[str, ...], float]


def by_name(samples: list[Sample]) -> Said:
    """Return samples by name and those labels that tell them apart."""
    batch, drops = Gate(1000).admit(samples)
    assert not drops
    return {
        (s.metric.name, *(v for n, v in zip(s.metric.labels, s.labels, strict=True)
                          if v and n not in {"sla", "signal", "statement"})): s.value
        for s in batch
    }  # type: ignore[misc]  # fmt: skip


def derived(ledger: TrainingLedger) -> Derivation:
    """Return the whole derivation, with what was promised."""
    return training(
        ledger, lambda now: WALL + now, lambda _: None, objectives=read_training(SEED)
    )  # fmt: skip


class Jobs:
    """The part alone, and what happens to jobs."""

    def __init__(self, document: dict[str, str] = SEED) -> None:
        self.happened: list[Happened] = []
        self.part = Promises(read_training(document), self._take)
        self.now = 1000.0

    def _take(self) -> list[Happened]:
        found, self.happened = self.happened, []
        return found

    def after(self, seconds: float, *events: Happened) -> Said:
        self.happened.extend(events)
        self.now += seconds
        return by_name(list(self.part.totals(self.now)))


def started(seconds: float) -> Happened:
    return Happened("llama", "first_step", seconds)


def state(said: Said, name: str) -> str:
    return next(key[2] for key, v in said.items() if key[:2] == ("sla_state", name) and v)


def test_a_promise_of_which_nothing_is_known_is_undetermined() -> None:
    """It is told that it was made, with its numbers; nothing else."""
    said = Jobs().after(5)

    for name in SEED:
        assert state(said, name) == "undetermined"
        assert said["sla_target_ratio", name] == 0.95
        assert said["sla_minimum_events", name] == 1
        assert said["sla_events_total", name] == 0
        assert ("sla_compliance_ratio", name, "1h") not in said
    assert said["sla_threshold_seconds", "job_start_latency_p95"] == 300
    assert said["sla_threshold_seconds", "checkpoint_recovery_time"] == 120


def test_jobs_that_start_in_time_and_late() -> None:
    """19 of 20 within five minutes are 95 %; 18 are not."""
    jobs, name = Jobs(), "job_start_latency_p95"
    said = jobs.after(5, *map(started, [100.0] * 18 + [299.0, 900.0]))
    assert said["sla_compliance_ratio", name, "1h"] == 0.95
    assert state(said, name) == "met"
    assert said["sla_measured_seconds", name, "1h"] == 299
    assert said["sla_error_budget_remaining_ratio", name, "1h"] == pytest.approx(0)

    said = jobs.after(5, started(900.0))
    assert state(said, name) == "violated"
    assert said["sla_compliant", name, "1h"] == 0
    assert (said["sla_events_total", name], said["sla_good_events_total", name]) == (21, 19)
    assert jobs.after(60)["sla_breach_seconds_total", name] == 60


def test_jobs_that_end_well_and_fail() -> None:
    """What is still running is no event."""
    jobs, name = Jobs(), "job_failure_rate"
    said = jobs.after(5, Happened("a", "started"), Happened("b", "started"))
    assert state(said, name) == "undetermined"
    said = jobs.after(5, Happened("a", "ended"))
    assert (state(said, name), said["sla_measured_ratio", name, "1h"]) == ("met", 0)
    said = jobs.after(5, Happened("b", "failed"))
    assert (state(said, name), said["sla_measured_ratio", name, "1h"]) == ("violated", 0.5)


def test_recoveries_in_time_and_late() -> None:
    """From the failure to the first step after it."""
    jobs, name = Jobs(), "checkpoint_recovery_time"
    assert state(jobs.after(5, Happened("a", "recovered", 96.0)), name) == "met"
    assert state(jobs.after(5, Happened("a", "recovered", 400.0)), name) == "violated"


def test_what_is_over_for_an_hour_counts_in_the_counters_alone() -> None:
    """And the state is open again."""
    jobs, name = Jobs(), "job_failure_rate"
    jobs.after(5, Happened("b", "failed"))
    said = jobs.after(3700)

    assert state(said, name) == "undetermined"
    assert ("sla_compliance_ratio", name, "1h") not in said
    assert said["sla_events_total", name] == 1


def test_no_burn_rate_is_told_of_a_handful_of_jobs() -> None:
    """One that fails would burn at twenty times the budget, and page."""
    said = Jobs().after(5, Happened("b", "failed"))
    assert not [key for key in said if key[0].startswith("sla_burn_rate")]


def test_what_was_counted_outlives_the_daemon() -> None:
    """Counters and the hour go on; a promise that has changed begins anew."""
    jobs = Jobs()
    jobs.after(5, Happened("b", "failed"), Happened("c", "ended"), started(10.0))
    jobs.after(60)
    kept = jobs.part.memory()

    other = Jobs({**SEED, "job_start_latency_p95": "< 6 minutes"})
    other.part.restore(kept, other.now, 30)
    said = other.after(5)
    assert said["sla_events_total", "job_failure_rate"] == 2
    assert said["sla_compliance_ratio", "job_failure_rate", "1h"] == 0.5
    assert said["sla_breach_seconds_total", "job_failure_rate"] == 60
    assert said["sla_events_total", "job_start_latency_p95"] == 0
    assert state(other.after(3600), "job_failure_rate") == "undetermined"


@pytest.mark.parametrize(
    "damage", [None, 7, [[]], [[repr(read_training(SEED)[0]), [1, 2], 0, None, []]]]
)
def test_a_memory_that_makes_no_sense_is_refused_and_the_rest_goes_on(damage: Any) -> None:
    """The derivation tells of it; nothing that was counted meanwhile is lost."""
    derivation = derived(TrainingLedger())
    assert derivation.restore is not None
    with pytest.raises(Malformed, match="Promises"):
        derivation.restore({"Promises": damage}, 1000.0, 5.0, True)
    assert by_name(list(derivation.function(NOTHING, Memory(), 1000.0)))


def test_the_sla_of_a_run_from_its_readers_to_the_page() -> None:
    """A job is submitted, steps late, is killed, and goes on after 90 s."""
    ledger = TrainingLedger()
    derivation = derived(ledger)
    derivation.function(NOTHING, Memory(), 1000.0)
    ledger.tell("page", [Facts(run="llama", submitted=WALL + 1010)], 1010)
    ledger.tell("push", [Moment(run="llama", kind="started", wall=WALL + 1020, attempt="a")], 1020)
    for step, at in ((1, 1400.0), (2, 1402.0), (3, 1404.0)):
        one = Step(run="llama", step=step, attempt="a", seconds=2, wall=WALL + at)
        ledger.tell("push", [one], at)
    for step, at in ((3, 1494.0), (4, 1496.0)):
        one = Step(run="llama", step=step, attempt="b", seconds=2, wall=WALL + at)
        ledger.tell("push", [one], at)

    said = by_name(list(derivation.function(NOTHING, Memory(), 1500.0)))

    assert {name: state(said, name) for name in SEED} == {
        "job_start_latency_p95": "violated",
        "job_failure_rate": "violated",
        "checkpoint_recovery_time": "met",
    }
    assert said["train_recovery_seconds", "llama"] == pytest.approx(90)
    assert said["sla_measured_seconds", "job_start_latency_p95", "1h"] == pytest.approx(390)
    outputs = {metric.name for metric in derivation.outputs}
    assert {key[0] for key in said} <= outputs
