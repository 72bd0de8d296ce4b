"""The ledger of training runs: each step counts once, and nothing grows without a limit."""

from __future__ import annotations

import math

import pytest

from exporter.training import Facts, Moment, Step, Track, TrainingLedger

NOW = 1000.0


def track(ledger: TrainingLedger, reader: str = "log", rank: int | None = None) -> Track:
    (run,) = ledger.runs(NOW)
    return run.tracks[reader, rank]


def test_a_step_told_twice_counts_once() -> None:
    """A push that is sent again after a lost answer changes nothing."""
    ledger = TrainingLedger()
    steps = [Step(run="a", step=n, seconds=2.0, tokens=100) for n in (1, 2)]
    assert ledger.tell("push", steps, NOW) == 2
    assert ledger.tell("push", steps, NOW) == 0
    found = track(ledger, "push")
    assert (found.steps, found.tokens, found.seconds, found.duplicates) == (2, 200, 4.0, 2)


def test_steps_after_a_restart_count_and_those_done_before_are_repeated() -> None:
    """A job that goes on from a checkpoint at step 2 does steps 3 and 4 again."""
    ledger = TrainingLedger()
    ledger.tell("log", [Step(run="a", step=n, attempt="1", seconds=1.0) for n in range(1, 5)], NOW)
    ledger.tell("log", [Step(run="a", step=n, attempt="2", seconds=1.0) for n in range(3, 7)], NOW)
    found = track(ledger)
    assert (found.steps, found.repeated, found.repeated_seconds) == (8, 2, 2.0)


def test_a_line_for_each_ten_steps_counts_ten() -> None:
    """Jobs print the mean of the steps since the last line."""
    ledger = TrainingLedger()
    for n in (10, 20):
        ledger.tell("log", [Step(run="a", step=n, steps=10, seconds=0.3, tokens=5)], NOW)
    found = track(ledger)
    assert (found.steps, found.tokens) == (20, 100)
    assert found.seconds == pytest.approx(6.0)
    assert found.histogram.counts[-1] == 20
    assert found.histogram.counts[found.histogram.bounds.index(0.5)] == 20
    assert found.histogram.counts[found.histogram.bounds.index(0.25)] == 0


def test_of_a_mean_that_overlaps_an_earlier_attempt_only_that_part_is_repeated() -> None:
    """Steps 11 to 20 after a crash at 14: four of ten were done before."""
    ledger = TrainingLedger()
    ledger.tell("log", [Step(run="a", step=14, steps=14, attempt="1")], NOW)
    ledger.tell("log", [Step(run="a", step=20, steps=10, attempt="2")], NOW)
    assert track(ledger).repeated == 4


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (Step(run="a", step=1, seconds=-1.0), "seconds"),
        (Step(run="a", step=1, tokens=math.inf), "tokens"),
        (Step(run="a", step=1, phases={"dreaming": 1.0}), "phases"),
        (Step(run="a", step=1, phases={"data": math.nan}), "phases.data"),
        (Step(run="", step=1), "run"),
        (Step(run="a\nb", step=1), "run"),
        (Facts(run="a", world_size=0), "world_size"),
        (Moment(run="a", kind="failed", wall=math.nan), "wall"),
    ],
)
def test_nonsense_is_refused_by_name(record: Step, field: str) -> None:
    """What cannot be is an error that names the field."""
    with pytest.raises(ValueError, match=f"^{field}:"):
        TrainingLedger().tell("push", [record], NOW)


def test_a_loss_that_is_not_a_number_is_news() -> None:
    """A run whose loss is NaN must show it."""
    ledger = TrainingLedger()
    assert ledger.tell("log", [Step(run="a", step=1, loss=math.nan)], NOW) == 1


def test_facts_add_up_and_later_ones_win() -> None:
    """A reader learns the world size from one line and the batch from another."""
    ledger = TrainingLedger()
    ledger.tell("log", [Facts(run="a", world_size=8, precision="bf16")], NOW)
    ledger.tell("log", [Facts(run="a", global_batch=64, precision="fp8")], NOW)
    (run,) = ledger.runs(NOW)
    facts = run.facts["log"]
    assert (facts.world_size, facts.global_batch, facts.precision) == (8, 64, "fp8")


def test_runs_and_ranks_beyond_the_limit_are_counted_and_left_out() -> None:
    """A job that invents a name for each step costs no memory."""
    ledger = TrainingLedger(max_runs=2, max_ranks=2)
    for n in range(5):
        ledger.tell("push", [Step(run=f"r{n}", step=1)], NOW)
    for rank in range(5):
        ledger.tell("push", [Step(run="r0", step=2, rank=rank)], NOW)
    assert len(ledger.runs(NOW)) == 2
    assert ledger.refused() == {("push", "runs"): 3, ("push", "ranks"): 4}


def test_the_65th_short_job_of_an_hour_is_taken_since_the_first_have_ended() -> None:
    """Each of a search's jobs takes a minute, and says that it has ended."""
    ledger = TrainingLedger()
    for n in range(80):
        at = NOW + 60 * n
        assert ledger.tell("push", [Step(run=f"trial-{n}", step=1)], at) == 1
        ledger.tell("push", [Moment(run=f"trial-{n}", kind="ended", wall=at)], at + 50)
    names = [run.name for run in ledger.runs(NOW + 80 * 60)]
    assert len(names) == 64
    assert names[0] == "trial-16"
    assert not ledger.refused()


def test_a_flood_of_names_takes_no_place_from_runs_that_go_on() -> None:
    """Nor from one that has been silent for a quarter of an hour: its evaluation takes long."""
    ledger = TrainingLedger(max_runs=2)
    ledger.tell("push", [Step(run="a", step=1)], NOW)
    ledger.tell("push", [Step(run="b", step=1)], NOW + 900)
    for n in range(10):
        assert ledger.tell("push", [Step(run=f"junk-{n}", step=1)], NOW + 900) == 0
    assert [run.name for run in ledger.runs(NOW + 900)] == ["a", "b"]
    assert ledger.tell("push", [Step(run="c", step=1)], NOW + 1801) == 1
    assert [run.name for run in ledger.runs(NOW + 1801)] == ["b", "c"]


def test_a_run_of_which_nothing_is_told_any_more_is_forgotten() -> None:
    """Runs come and go; their series must not stay."""
    ledger = TrainingLedger()
    ledger.tell("log", [Step(run="a", step=1)], NOW)
    assert ledger.runs(NOW + 7000.0)
    assert not ledger.runs(NOW + 7300.0)


def test_what_a_reader_of_the_ledger_holds_does_not_change() -> None:
    """Copies are handed out: the next step does not alter them."""
    ledger = TrainingLedger()
    ledger.tell("log", [Step(run="a", step=1, phases={"data": 1.0})], NOW)
    before = track(ledger)
    ledger.tell("log", [Step(run="a", step=2, phases={"data": 1.0})], NOW)
    assert (before.steps, before.phases, len(before.recent)) == (1, {"data": 1.0}, 1)


def test_a_step_of_an_earlier_attempt_told_again_late_counts_once() -> None:
    """An answer was lost, the job began anew, and then the old process sent its last step again."""
    ledger = TrainingLedger()
    ledger.tell("push", [Step(run="a", step=5, rank=0, attempt="1", tokens=10)], NOW)
    ledger.tell("push", [Step(run="a", step=6, rank=0, attempt="2", tokens=10)], NOW)
    assert ledger.tell("push", [Step(run="a", step=5, rank=0, attempt="1", tokens=10)], NOW) == 0
    assert ledger.tell("push", [Step(run="a", step=6, rank=0, attempt="2", tokens=10)], NOW) == 0
    assert track(ledger, "push", 0).tokens == 20


def test_a_job_that_invents_attempts_costs_no_memory() -> None:
    """Attempts are remembered up to a limit."""
    ledger = TrainingLedger()
    for n in range(100):
        ledger.tell("push", [Step(run="a", step=n, attempt=str(n))], NOW)
    assert len(track(ledger, "push").former) == 8


def test_each_rank_of_a_node_tells_its_own_gpu() -> None:
    """What rank 1 tells of itself does not take rank 0's GPU away."""
    ledger = TrainingLedger()
    ledger.tell("push", [Facts(run="a", local_ranks={8: 0}), Facts(run="a", local_ranks={9: 1})], 1)
    (run,) = ledger.runs(NOW)
    assert run.facts["push"].local_ranks == {8: 0, 9: 1}


def test_a_number_of_a_thousand_digits_is_refused_by_name() -> None:
    """JSON knows no limit for whole numbers; floating point does."""
    with pytest.raises(ValueError, match=r"^tokens: a number of 3322 bits"):
        TrainingLedger().tell("push", [Step(run="a", step=1, tokens=10**1000)], NOW)
