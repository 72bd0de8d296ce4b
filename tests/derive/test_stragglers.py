"""Stragglers among the ranks of a node: told by their own work, over the same steps."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from exporter import catalogue as c
from exporter.derive.training.stragglers import stragglers
from exporter.samples import Gate
from exporter.training import Step, TrainingLedger

RUN = "llama"


def told(
    ledger: TrainingLedger,
    steps: Iterable[int],
    own: dict[int, float],
    *,
    reader: str = "push",
    waits: bool = True,
    attempt: str = "a",
    of: int = 1,
) -> float:
    """Tell of synchronous steps, two seconds each; return when the last was told.

    All ranks take as long as the slowest works, and a tenth of a second of exchange.
    """
    now = 0.0
    whole = max(own.values()) + 0.1
    for step in steps:
        now = 1000 + 2.0 * step
        for rank, work in own.items():
            phases = {"forward": work, "communication": whole - work} if waits else {}
            ledger.tell(
                reader,
                [Step(run=RUN, step=step, rank=rank, attempt=attempt, seconds=whole,
                      phases=phases, steps=of)],
                now,
            )  # fmt: skip
    return now


def found(ledger: TrainingLedger, now: float) -> dict[tuple[str, ...], float]:
    """Return what is said of the run, by name and rank."""
    (run,) = ledger.runs(now)
    batch, drops = Gate(1000).admit(list(stragglers(run, now)))
    assert not drops
    return {(s.metric.name, *s.labels[1:]): s.value for s in batch}  # type: ignore[misc]


def scores(ledger: TrainingLedger, now: float) -> dict[str, float]:
    name = c.TRAIN_STRAGGLER_SCORE.name
    return {key[1]: v for key, v in found(ledger, now).items() if key[0] == name}


def test_the_straggler_waits_least() -> None:
    """Step times say nothing: they are the same for all. Its own work is 30 % more."""
    ledger = TrainingLedger()
    work = dict.fromkeys(range(8), 1.0) | {5: 1.3}
    now = told(ledger, range(1, 41), work)

    said = found(ledger, now)

    assert [said["train_rank_step_seconds", str(n)] for n in range(8)] == pytest.approx([1.4] * 8)
    waits = {n: said["train_rank_wait_ratio", str(n)] for n in range(8)}
    assert min(waits, key=waits.__getitem__) == 5
    assert waits[5] == pytest.approx(0.1 / 1.4)
    assert waits[0] == pytest.approx(0.4 / 1.4)
    assert scores(ledger, now) == {str(n): pytest.approx(0.3 if n == 5 else 0.0) for n in range(8)}
    assert said[("train_step_skew_ratio",)] == pytest.approx(0.3)


def test_noise_makes_no_straggler() -> None:
    """Ranks that are alike stay within their noise of the median."""
    ledger, dice = TrainingLedger(), random.Random(7)
    for step in range(1, 61):
        now = told(ledger, [step], {n: 1.0 + dice.gauss(0, 0.02) for n in range(8)})

    assert max(map(abs, scores(ledger, now).values())) < 0.02


def test_a_rank_that_is_lost_is_left_out() -> None:
    """The others are compared without it, whether it never told or fell silent."""
    ledger = TrainingLedger()
    told(ledger, range(1, 61), dict.fromkeys(range(5), 1.0))
    now = told(ledger, range(61, 121), {0: 1.0, 1: 1.0, 2: 1.5, 3: 1.0})

    assert scores(ledger, now) == {"0": 0, "1": 0, "2": pytest.approx(0.5), "3": 0}


def test_a_rank_that_was_lost_at_a_higher_step_does_not_hide_the_others() -> None:
    """After a restart the others count from an older checkpoint on."""
    ledger = TrainingLedger()
    told(ledger, range(1, 100), dict.fromkeys(range(5), 1.0))
    now = told(ledger, range(101, 103), {4: 1.0})
    for step in range(20, 40):
        now += 2
        for rank, work in {0: 1.0, 1: 1.0, 2: 1.5, 3: 1.0}.items():
            one = Step(run=RUN, step=step, rank=rank, attempt="b", seconds=1.6,
                       phases={"communication": 1.6 - work})  # fmt: skip
            ledger.tell("push", [one], now)

    assert scores(ledger, now) == {"0": 0, "1": 0, "2": pytest.approx(0.5), "3": 0}


def test_a_rank_that_has_only_begun_does_not_narrow_the_comparison() -> None:
    """One step of a new rank is no ground to judge the others by that step alone."""
    ledger = TrainingLedger()
    told(ledger, range(1, 40), {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.4})
    now = told(ledger, [40], {0: 1.0, 1: 1.0, 2: 3.0, 3: 1.0, 4: 1.0})

    assert set(scores(ledger, now)) == {"0", "1", "2", "3"}
    assert scores(ledger, now)["3"] > 0.3


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_too_few_ranks_have_times_and_no_scores(ranks: int) -> None:
    """Of three the one in the middle is the median itself."""
    ledger = TrainingLedger()
    now = told(ledger, range(1, 20), {n: 1.0 + n for n in range(ranks)})

    assert scores(ledger, now) == {}
    assert ("train_step_skew_ratio",) not in found(ledger, now)
    assert len(found(ledger, now)) == 2 * ranks


def test_without_waiting_told_nothing_is_said_of_who_waits() -> None:
    """Times alone are the same for all ranks: no score, no share."""
    ledger = TrainingLedger()
    now = told(ledger, range(1, 20), {n: 1.0 + n for n in range(6)}, waits=False)

    assert {key[0] for key in found(ledger, now)} == {"train_rank_step_seconds"}


def test_an_earlier_attempt_does_not_count() -> None:
    """The slow node was replaced, and the run has begun again from step 30."""
    ledger = TrainingLedger()
    told(ledger, range(1, 40), dict.fromkeys(range(8), 1.0) | {5: 2.0})
    now = told(ledger, range(30, 45), dict.fromkeys(range(8), 1.0), attempt="b")

    assert max(scores(ledger, now).values()) == pytest.approx(0, abs=1e-9)


def test_what_was_told_long_ago_says_nothing() -> None:
    """A run that stands still has no straggler that is known."""
    ledger = TrainingLedger()
    now = told(ledger, range(1, 40), dict.fromkeys(range(8), 1.0) | {5: 2.0})

    assert found(ledger, now + 60)
    assert found(ledger, now + 3000) == {}


def test_the_best_reader_that_tells_of_ranks_counts() -> None:
    """A log tells of the run as a whole; a trace of ranks, less well than a push."""
    ledger = TrainingLedger()
    told(ledger, range(1, 20), dict.fromkeys(range(8), 1.0) | {1: 2.0}, reader="trace")
    now = told(ledger, range(1, 20), dict.fromkeys(range(8), 1.0) | {5: 1.5}, reader="push")
    ledger.tell("log", [Step(run=RUN, step=19, seconds=2.1)], now)

    assert max(scores(ledger, now), key=scores(ledger, now).__getitem__) == "5"


def test_means_of_several_steps_weigh_as_many() -> None:
    """Ranks that tell of each tenth step only."""
    ledger = TrainingLedger()
    now = told(ledger, range(10, 110, 10), dict.fromkeys(range(8), 1.0) | {2: 1.2}, of=10)

    assert scores(ledger, now)["2"] == pytest.approx(0.2)
