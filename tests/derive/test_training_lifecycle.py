"""Lives of runs: starts, failures and recoveries, each counted once, whoever tells of it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from exporter.derive.training.lifecycle import Happened, Lifecycle
from exporter.derive.training.run import Run
from exporter.derive.training.stated import Stated
from exporter.samples import Gate, View
from exporter.training import Facts, Moment, MomentKind, Step, TrainingLedger

RUN = "llama"
NOTHING = View((), ())
WALL = 1.8e9
"""Unix seconds at the monotonic moment 0."""


class Lab:
    """A ledger, the part, and a clock: all moments are seconds after `WALL`."""

    def __init__(self, *, reporter: bool | None = None) -> None:
        self.ledger = TrainingLedger()
        self.part = Lifecycle(self.wall)
        self.stated = Stated(reporter=reporter)
        self.runs: dict[str, Run] = {}
        self.now = 1000.0
        self.happened: list[Happened] = []
        self.said: dict[tuple[str, ...], float] = {}
        list(self.part.totals(self.now))

    def wall(self, moment: float) -> float:
        return WALL + moment

    def moment(self, kind: MomentKind, at: float, reader: str = "push", attempt: str = "a",
               rank: int | None = None) -> None:  # fmt: skip
        one = Moment(run=RUN, kind=kind, wall=WALL + at, attempt=attempt, rank=rank)
        self.ledger.tell(reader, [one], max(self.now, at))

    def submitted(self, at: float) -> None:
        self.ledger.tell("page", [Facts(run=RUN, submitted=WALL + at)], self.now)

    def steps(
        self,
        numbers: Iterable[int],
        begin: float,
        attempt: str = "a",
        reader: str = "push",
        rank: int | None = None,
        *,
        timed: bool = True,
    ) -> float:
        """Tell of steps of two seconds each, the first of which begins at `begin`."""
        at = begin
        for number in numbers:
            at += 2.0
            one = Step(run=RUN, step=number, attempt=attempt, rank=rank, seconds=2.0,
                       wall=WALL + at if timed else None)  # fmt: skip
            self.ledger.tell(reader, [one], at)
        return at

    def round(self, now: float) -> None:
        """Have the part look at what is known at a moment."""
        self.now = now
        for tracked in self.ledger.runs(now):
            run = self.runs.setdefault(tracked.name, Run(tracked, self.stated, self.wall))
            run.observe(tracked, now)
            self.part.follow(run, now)
            said = [*self.part(run, NOTHING, now), *self.part.totals(now)]
            batch, drops = Gate(100).admit(said)
            assert not drops
            self.said = {(s.metric.name, *s.labels): s.value for s in batch}  # type: ignore[misc]
        self.happened += self.part.happened()

    @property
    def kinds(self) -> list[str]:
        return [one.kind for one in self.happened]

    @property
    def totals(self) -> tuple[float, float]:
        return self.said["train_runs_started_total",], self.said["train_runs_failed_total",]


@pytest.mark.parametrize(("world", "rank"), [(1, None), (1, 0), (8, 0)])
def test_a_start_counts_though_the_size_was_told_before_the_first_step(
    world: int, rank: int | None
) -> None:
    """A script says how many ranks there are, and that it starts; its first step takes a while."""
    lab = Lab()
    lab.ledger.tell("push", [Facts(run=RUN, world_size=world)], 1000)
    lab.moment("started", 1000, rank=rank)
    lab.round(1005)
    lab.steps(range(1, 4), 1100, rank=rank)
    lab.round(1110)
    assert lab.totals == (1, 0)


def test_the_start_of_another_node_s_rank_counts_there() -> None:
    """Rank 8 of 16 is here; that the run started is for the node of rank 0 to count."""
    lab = Lab()
    lab.ledger.tell("push", [Facts(run=RUN, world_size=16)], 1000)
    lab.moment("started", 1000, rank=8)
    lab.round(1005)
    assert lab.totals == (0, 0)


def test_a_run_starts_steps_and_ends() -> None:
    """From submission to the first step: 300 s."""
    lab = Lab()
    lab.submitted(1100)
    lab.moment("submitted", 1100)
    lab.moment("started", 1150)
    lab.round(1200)
    assert lab.kinds == ["started"]
    assert ("train_start_latency_seconds", RUN) not in lab.said
    lab.steps(range(1, 20), 1398)
    lab.round(1450)
    lab.moment("ended", 1460)
    lab.round(1500)

    assert lab.kinds == ["started", "first_step", "ended"]
    assert lab.said["train_start_latency_seconds", RUN] == pytest.approx(300)
    assert lab.totals == (1, 0)


def test_the_submission_may_be_told_when_the_run_steps_already() -> None:
    """A scheduler's page is read less often than a job pushes."""
    lab = Lab()
    lab.steps(range(1, 5), 1398)
    lab.round(1450)
    lab.submitted(1100)
    lab.round(1460)
    lab.round(1470)

    assert lab.kinds == ["started", "first_step"]
    assert lab.said["train_start_latency_seconds", RUN] == pytest.approx(300)


def test_a_run_fails_is_started_again_under_the_same_name_and_goes_on() -> None:
    """Recovery lasts from the failure to the end of the first step after it."""
    lab = Lab()
    lab.moment("started", 1010)
    end = lab.steps(range(1, 50), 1020)
    lab.round(end + 1)
    lab.moment("failed", 1130)
    lab.round(1140)
    assert lab.totals == (1, 1)
    lab.moment("started", 1180, attempt="b")
    lab.steps(range(40, 50), 1200, attempt="b")
    lab.round(1300)

    assert lab.kinds == ["started", "failed", "started", "recovered"]
    assert lab.said["train_recovery_seconds", RUN] == pytest.approx(72)
    assert lab.totals == (2, 1)


def test_a_run_that_was_killed_without_a_word_failed_with_its_last_step() -> None:
    """Nobody tells of a SIGKILL: the next attempt shows it."""
    lab = Lab()
    end = lab.steps(range(1, 50), 1020)
    lab.round(end + 300)
    assert lab.totals == (1, 0), "silence alone is no failure"
    lab.steps(range(40, 50), end + 400, attempt="b")
    lab.round(end + 500)

    assert lab.kinds == ["started", "failed", "started", "recovered"]
    assert lab.said["train_recovery_seconds", RUN] == pytest.approx(402)
    assert lab.totals == (2, 1)


def test_a_run_that_did_its_last_step_and_begins_anew_has_not_failed() -> None:
    """The same name is used again; the number of steps was known."""
    lab = Lab()
    lab.ledger.tell("log", [Facts(run=RUN, last_step=20)], 1000)
    end = lab.steps(range(1, 21), 1020)
    lab.round(end + 1)
    lab.steps(range(1, 5), end + 400, attempt="b")
    lab.round(end + 500)

    assert lab.kinds == ["started", "ended", "started"]
    assert ("train_recovery_seconds", RUN) not in lab.said


def test_several_readers_and_ranks_tell_of_one_start_and_one_failure() -> None:
    """A log, and eight ranks that push, each under an attempt of its own."""
    lab = Lab()
    lab.moment("started", 1009, reader="log", attempt="")
    for rank in range(8):
        lab.moment("started", 1010 + rank / 10, attempt=f"a{rank}", rank=rank)
        lab.steps(range(1, 30), 1020, attempt=f"a{rank}", rank=rank)
    lab.steps(range(1, 30), 1020, reader="log", attempt="")
    lab.round(1085)
    for rank in range(8):
        lab.moment("failed", 1090 + rank, attempt=f"a{rank}", rank=rank)
    lab.moment("failed", 1091, reader="log", attempt="")
    lab.round(1100)
    assert lab.kinds == ["started", "failed"]
    for rank in range(8):
        lab.moment("started", 1101 + rank / 10, attempt=f"b{rank}", rank=rank)
    lab.round(1105)
    lab.moment("failed", 1099.5, attempt="a7", rank=7)  # told late, of the life before
    lab.moment("started", 1102, reader="log", attempt="")
    lab.steps(range(25, 40), 1110, attempt="b0", rank=0)
    lab.round(1200)

    assert lab.kinds == ["started", "failed", "started", "recovered"]
    assert lab.said["train_recovery_seconds", RUN] == pytest.approx(22)


def test_a_failure_told_with_the_last_steps_is_no_recovery() -> None:
    """A log is read some seconds later: its steps have no time of their own."""
    lab = Lab()
    lab.steps(range(1, 20), 1020, reader="log", timed=False)
    lab.round(1060)
    lab.moment("failed", 1061, reader="log", attempt="")
    lab.steps([20], 1063, reader="log", timed=False)
    lab.round(1070)

    assert lab.kinds == ["started", "failed"]


def test_a_run_that_goes_on_in_place_has_recovered_and_not_started() -> None:
    """Ranks were restarted within the job: the attempt is the same."""
    lab = Lab()
    lab.steps(range(1, 20), 1020)
    lab.moment("failed", 1060)
    lab.round(1061)
    lab.steps(range(20, 25), 1118)
    lab.round(1200)

    assert lab.kinds == ["started", "failed", "recovered"]
    assert lab.said["train_recovery_seconds", RUN] == pytest.approx(60)
    assert lab.totals == (1, 1)


def test_a_run_that_is_found_in_its_midst_has_not_started_here() -> None:
    """The daemon was upgraded meanwhile; its submission of days ago is no latency of a restart."""
    lab = Lab()
    lab.submitted(-100_000)
    lab.steps(range(5000, 5010), 1020)
    lab.round(1060)
    assert lab.happened == []
    lab.steps(range(5005, 5010), 1200, attempt="b")
    lab.round(1300)

    assert lab.kinds == ["failed", "started", "recovered"]
    assert ("train_start_latency_seconds", RUN) not in lab.said


def test_what_happened_before_the_daemon_is_known_and_not_counted() -> None:
    """A log is read from its beginning: what it tells of yesterday was counted yesterday."""
    lab = Lab()
    lab.submitted(-5000)
    lab.steps(range(1, 20), -4000, reader="log")
    lab.moment("failed", -3000, reader="log")
    lab.steps(range(15, 19), -2500, reader="log", attempt="b")
    lab.round(1000)

    assert lab.happened == []
    assert lab.said["train_start_latency_seconds", RUN] == pytest.approx(1002)
    assert lab.said["train_recovery_seconds", RUN] == pytest.approx(502)
    assert lab.totals == (0, 0)


def test_a_node_that_does_not_speak_for_the_run_counts_nothing() -> None:
    """Of a hundred nodes one does: a sum over nodes counts once."""
    lab = Lab(reporter=False)
    lab.moment("started", 1010)
    lab.steps(range(1, 20), 1020)
    lab.moment("failed", 1060)
    lab.round(1100)

    assert lab.happened == []
    assert lab.totals == (0, 0)


def test_a_job_that_fails_before_its_first_step_has_failed() -> None:
    """Out of memory while loading: no step, and no latency."""
    lab = Lab()
    lab.submitted(1000)
    lab.moment("started", 1010)
    lab.moment("failed", 1030)
    lab.moment("started", 1040, attempt="b")
    lab.moment("failed", 1050, attempt="b")
    lab.round(1100)

    assert lab.kinds == ["started", "failed", "started", "failed"]
    assert lab.totals == (2, 2)


def test_the_first_step_alone_may_be_told() -> None:
    """By a reader that tells of moments only."""
    lab = Lab()
    lab.submitted(1000)
    lab.moment("started", 1010, reader="wandb", attempt="")
    lab.moment("first_step", 1040, reader="wandb", attempt="")
    lab.round(1100)

    assert lab.kinds == ["started", "first_step"]
    assert lab.said["train_start_latency_seconds", RUN] == pytest.approx(40)


def test_moments_do_not_pile_up() -> None:
    """A job that is restarted for ever keeps what is remembered of it bounded."""
    lab = Lab()
    for attempt in range(1500):
        lab.moment("started", 1010 + attempt, attempt=str(attempt))
        lab.moment("failed", 1010.5 + attempt, attempt=str(attempt))
        lab.round(1011 + attempt)

    assert lab.totals == (1500, 1500)
    assert len(lab.part._taken[RUN]._moments) <= 512
    assert len(lab.part._lives[RUN]._former) <= 512
    lab.part.forget(RUN)
    assert RUN not in lab.part._lives


def test_a_file_without_stamps_that_is_found_is_no_start() -> None:
    """It may be years old; one that is seen to grow from its first line on is."""
    lab = Lab()
    for number in range(1, 20):
        one = Step(run=RUN, step=number, seconds=2.0)
        lab.ledger.tell("log", [one], 1050.0)
    lab.round(1060)
    assert lab.happened == []

    other = Lab()
    other.steps(range(1, 5), 1020, reader="log", timed=False)
    other.round(1060)
    assert other.kinds == ["started"]


def test_one_rank_that_is_started_anew_is_no_start_of_the_run() -> None:
    """The others waited for it, and go on in their attempts."""
    lab = Lab()
    for rank in range(4):
        lab.moment("started", 1010 + rank / 10, attempt=f"a{rank}", rank=rank)
    lab.steps(range(1, 20), 1020, attempt="a0", rank=0)
    lab.round(1060)
    lab.moment("failed", 1061, attempt="a3", rank=3)
    lab.moment("started", 1090, attempt="b3", rank=3)
    lab.round(1095)
    lab.steps(range(20, 30), 1100, attempt="a0", rank=0)
    lab.round(1130)
    lab.moment("ended", 1140, attempt="a0", rank=0)
    lab.round(1150)

    assert lab.kinds == ["started", "failed", "recovered", "ended"]
    assert lab.said["train_recovery_seconds", RUN] == pytest.approx(41)


# ---------------------------------------------------------------- interruptions


def interruptions(lab: Lab) -> tuple[float, float, float]:
    """Return interruptions, recoveries, and the seconds that these took."""
    return (
        lab.said["train_interruptions_total", RUN],
        lab.said["train_interruption_recoveries_total", RUN],
        lab.said["train_interruption_seconds_total", RUN],
    )


def test_an_interruption_is_no_failure_and_its_recovery_is_timed() -> None:
    """Interrupted at 1130, saved until 1140, begun anew at 1150, its first step ends at 1172."""
    lab = Lab()
    lab.moment("started", 1100)
    lab.round(1101)
    lab.steps(range(1, 11), 1110)
    lab.round(1131)
    assert interruptions(lab) == (0, 0, 0)
    lab.moment("interrupted", 1130)
    lab.moment("checkpoint_saved", 1140)
    lab.round(1145)
    assert interruptions(lab) == (1, 0, 0)
    lab.moment("started", 1150, attempt="b")
    lab.steps(range(11, 14), 1170, attempt="b")
    lab.round(1180)
    assert interruptions(lab) == (1, 1, 42)
    assert lab.said["train_recovery_seconds", RUN] == 42
    assert lab.totals == (2, 0)
    assert lab.kinds == ["started", "interrupted", "started", "recovered"]


def test_each_rank_s_word_of_an_interruption_counts_once() -> None:
    """And the same word again, told by the attempt that follows, too."""
    lab = Lab()
    lab.moment("started", 1100, rank=0)
    lab.steps(range(1, 11), 1110, rank=0)
    for rank in range(4):
        lab.moment("interrupted", 1130 + rank / 10, rank=rank)
    lab.round(1140)
    lab.moment("interrupted", 1130, rank=0)
    lab.moment("started", 1150, attempt="b", rank=0)
    lab.steps(range(11, 14), 1170, attempt="b", rank=0)
    lab.round(1180)
    assert interruptions(lab) == (1, 1, 42)


@pytest.mark.parametrize("late", [False, True])
def test_a_run_that_goes_on_at_another_node_is_timed_there(late: bool) -> None:
    """The other node hears of it from the job, before its start or after; it does not count it."""
    lab = Lab()
    if late:
        lab.moment("started", 1150, attempt="b")
        lab.round(1151)
    lab.moment("interrupted", 1130, attempt="a")
    lab.moment("started", 1150, attempt="b")
    lab.round(1155)
    lab.moment("first_step", 1172, attempt="b")
    lab.steps(range(11, 14), 1170, attempt="b")
    lab.round(1180)
    assert interruptions(lab) == (0, 1, 42)
    assert "failed" not in lab.kinds
    assert lab.totals == (1, 0)


def test_an_old_interruption_says_nothing_of_a_run_that_goes_on() -> None:
    """A job that tells of one long after its first step has recovered from nothing."""
    lab = Lab()
    lab.moment("started", 1150, attempt="b")
    lab.steps(range(11, 14), 1170, attempt="b")
    lab.round(1180)
    lab.moment("interrupted", 1130, attempt="a")
    lab.round(1185)
    lab.steps(range(14, 16), 1180, attempt="b")
    lab.round(1190)
    assert interruptions(lab) == (0, 0, 0)


def test_a_failure_after_an_interruption_is_a_failure_again() -> None:
    lab = Lab()
    lab.moment("started", 1100)
    lab.steps(range(1, 11), 1110)
    lab.moment("interrupted", 1130)
    lab.round(1131)
    lab.moment("started", 1150, attempt="b")
    lab.steps(range(11, 14), 1150, attempt="b")
    lab.moment("failed", 1160, attempt="b")
    lab.round(1161)
    lab.moment("started", 1170, attempt="c")
    lab.steps(range(14, 16), 1170, attempt="c")
    lab.round(1180)
    assert interruptions(lab) == (1, 1, 22)
    assert lab.totals == (3, 1)
    assert lab.kinds[-1] == "recovered"
    assert not lab.happened[-1].planned
