"""Runs over time: who is believed, what is counted once, what lives, what becomes of time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter import catalogue as c
from exporter.derive.training import OnNews, Run, Stated
from exporter.samples import Histogram, Malformed, Sample, View
from exporter.training import READERS, Facts, Moment, Step, TrackedRun
from tests.derive.training_lab import WALL, Lab, given_work, h100s


def steps(
    first: int, last: int, *, seconds: float = 2.0, attempt: str = "1", **more: Any
) -> list[Step]:
    return [
        Step(run="a", step=n, seconds=seconds, attempt=attempt, **more)
        for n in range(first, last + 1)
    ]


def lab() -> Lab:
    return Lab(work=given_work(50e9))


def total(here: Lab) -> float | None:
    return here.get(c.TRAIN_STEPS_TOTAL, "a")


# ---------------------------------------------------------------- whom to believe


def test_of_two_readers_the_better_one_is_believed() -> None:
    """A push goes before a log; both are listed."""
    here = lab()
    for step in steps(1, 20):
        here.now += 2
        here.tell("log", Step(run="a", step=step.step, seconds=2.2, loss=9.9))
        here.tell("push", Step(run="a", step=step.step, seconds=2.0, loss=1.5))
        here.look()
    chosen = here.rows(c.TRAIN_READER_CHOSEN)
    assert chosen == {("a", "push"): 1, ("a", "log"): 0}
    assert here.get(c.TRAIN_STEPS_PER_SECOND, "a") == pytest.approx(0.5)
    assert here.get(c.TRAIN_LOSS, "a") == 1.5
    assert total(here) == 20


def test_each_quantity_is_believed_of_the_best_reader_that_knows_it() -> None:
    """The push has times, the log alone has tokens and a learning rate."""
    here = lab()
    here.tell("log", Facts(run="a", world_size=4))
    for n in range(1, 20):
        here.now += 2
        here.tell("push", Step(run="a", step=n, seconds=2.0))
        here.tell("log", Step(run="a", step=n, seconds=2.5, tokens=1000, learning_rate=0.1))
        here.look()
    assert here.get(c.TRAIN_STEPS_PER_SECOND, "a") == pytest.approx(0.5)
    assert here.get(c.TRAIN_TOKENS_TOTAL, "a") == 19_000
    assert here.get(c.TRAIN_LEARNING_RATE, "a") == 0.1
    assert here.rows(c.TRAIN_READER_CHOSEN) == {("a", "push"): 1, ("a", "log"): 1}


def test_counters_go_on_when_a_better_reader_turns_up() -> None:
    """A log has told of 50 steps; the push knows the last five too, and goes on."""
    here = lab()
    here.run(steps(1, 50))
    here.tell("push", *steps(46, 50))
    here.look()
    assert total(here) == 50
    here.run(steps(51, 60), reader="push")
    assert total(here) == 60
    assert here.rows(c.TRAIN_READER_CHOSEN)["a", "push"] == 1


def test_counters_go_on_when_the_better_reader_falls_silent() -> None:
    """The client's thread died at step 50; the log knows what came since."""
    here = lab()
    for n in range(1, 101):
        here.now += 2
        if n <= 50:
            here.tell("push", Step(run="a", step=n, seconds=2.0))
        here.tell("log", Step(run="a", step=n, seconds=2.0))
        here.look()
    assert total(here) == 100
    assert here.get(c.TRAIN_STALLED, "a") == 0


def test_facts_of_the_configuration_go_before_all_others() -> None:
    """Then come those of readers, in their order, and the environment is the last."""
    here = Lab(Stated(pattern="a*", facts=Facts(run="*", world_size=64)), work=given_work(1e9))
    here.tell("environment", Facts(run="a", world_size=8, precision="fp16", tensor_parallel=2))
    here.tell("log", Facts(run="a", world_size=16, precision="bf16"))
    here.tell("log", *steps(1, 1, wall=WALL + 1000))
    here.look()
    assert here.get(c.TRAIN_WORLD_SIZE, "a") == 64
    assert here.get(c.TRAIN_PARALLEL_SIZE, "a", "tensor") == 2
    (labels,) = here.rows(c.TRAIN_RUN_INFO)
    assert dict(zip(c.TRAIN_RUN_INFO.labels, labels, strict=True))["precision"] == "bf16"


def test_a_share_of_a_run_over_nodes_is_not_taken_for_the_run() -> None:
    """Ranks 8 to 15 of 16 push their own tokens; this node tells what is theirs alone."""
    here = lab()
    here.tell("push", Facts(run="a", world_size=16))
    for n in range(1, 20):
        here.now += 2
        for rank in range(8, 16):
            here.tell("push", Step(run="a", step=n, rank=rank, scope="rank", seconds=2.0,
                                   tokens=1000, phases={"forward": 1.0}))  # fmt: skip
        here.look()
    names = {name for name, *_ in here.said}
    assert names == {
        "train_run_info", "train_reader_chosen", "train_phase_seconds_total",
        "train_rank_step_seconds",
    }  # fmt: skip
    assert all(labels[-1] == "rank" for labels in here.rows(c.TRAIN_RUN_INFO))


def test_a_node_that_is_said_to_report_speaks_for_equal_shares() -> None:
    """Ranks 0 to 7 of 16, and the operator says that this node speaks for the run."""
    here = Lab(Stated(reporter=True), work=given_work(50e9))
    here.tell("push", Facts(run="a", world_size=16))
    for n in range(1, 20):
        here.now += 2
        for rank in range(8):
            here.tell("push", Step(run="a", step=n, rank=rank, scope="rank", seconds=2.0,
                                   tokens=1000))  # fmt: skip
        here.look()
    assert here.get(c.TRAIN_TOKENS_PER_SECOND, "a") == pytest.approx(8000)
    assert here.get(c.TRAIN_TOKENS_PER_SECOND_PER_GPU, "a") == pytest.approx(500)


def test_a_node_that_is_said_not_to_report_tells_nothing_of_the_run() -> None:
    """A log on a shared disk is read by each node of the run."""
    here = Lab(Stated(reporter=False), work=given_work(50e9))
    here.run(steps(1, 10, tokens=100))
    assert {name for name, *_ in here.said} == {"train_run_info", "train_reader_chosen"}


@pytest.mark.parametrize(
    ("framework", "ranks", "speaks"),
    [
        ("megatron-lm", range(8), False),
        ("megatron-lm", range(8, 16), True),
        ("torchtitan", range(8), True),
        ("torchtitan", range(8, 16), False),
    ],
)
def test_of_the_nodes_that_read_one_log_one_speaks(
    framework: str, ranks: range, speaks: bool
) -> None:
    """Two nodes see the same file: Megatron's last rank wrote it, torchtitan's first one."""
    here = lab()
    here.tell("environment", Facts(run="a", world_size=16, local_ranks={n: n % 8 for n in ranks}))
    here.tell("log", Facts(run="a", framework=framework))
    here.run(steps(1, 10, tokens=100))
    assert (here.get(c.TRAIN_TOKENS_PER_SECOND, "a") is not None) is speaks


def test_a_node_that_a_job_tells_of_the_whole_run_speaks_for_it() -> None:
    """Megatron's rank 0 pushes the numbers of the run; no other node gets them."""
    here = lab()
    here.tell("push", Facts(run="a", world_size=16, framework="megatron-lm", local_ranks={0: 0}))
    here.run(steps(1, 10, tokens=1600, rank=0), reader="push")
    assert here.get(c.TRAIN_TOKENS_PER_SECOND_PER_GPU, "a") == pytest.approx(50)


def test_steps_whose_time_nobody_tells_are_timed_by_when_they_come() -> None:
    """torchtitan prints neither a time nor a time zone; its file is looked at each 2 s."""
    here = lab()
    here.tell("log", Facts(run="a", world_size=4))
    number = 0
    for look in range(1, 60):
        here.now += 2.0
        lines = [Step(run="a", step=number + n, tgs=500) for n in range(1, 2 + look % 3)]
        here.tell("log", *lines)
        number += len(lines)
        here.look()
    # 118 steps in 118 s, in lots of 1, 2 and 3.
    assert here.get(c.TRAIN_STEPS_PER_SECOND, "a") == pytest.approx(1.0, rel=0.05)
    assert here.get(c.TRAIN_UPDATE_INTERVAL_SECONDS, "a") == pytest.approx(1.0, rel=0.05)
    assert here.get(c.TRAIN_TOKENS_PER_SECOND_PER_GPU, "a") == pytest.approx(500)
    times = here.rows(c.TRAIN_STEP_SECONDS)["a",]
    assert isinstance(times, Histogram)
    assert times.sum == pytest.approx(2.0 * 58)
    # 500 tokens each second and GPU, in the 116 s after the first line.
    assert here.get(c.TRAIN_TOKENS_TOTAL, "a") == pytest.approx(500 * 4 * 116)


# ---------------------------------------------------------------- what lives


def test_a_run_stalls_after_ten_steps_of_silence_and_a_minute_at_least() -> None:
    """Steps of 10 s: 99 s are no reason to worry, 101 s are."""
    here = lab()
    here.run(steps(1, 20, seconds=10.0))
    here.now += 99
    here.look()
    assert here.get(c.TRAIN_STALLED, "a") == 0
    assert here.get(c.TRAIN_STEPS_PER_SECOND, "a") == pytest.approx(0.1)
    here.now += 2
    here.look()
    assert here.get(c.TRAIN_STALLED, "a") == 1
    assert here.get(c.TRAIN_STEPS_PER_SECOND, "a") is None
    assert here.get(c.TRAIN_STEP, "a") == 20
    here.run(steps(21, 21, seconds=10.0))
    assert here.get(c.TRAIN_STALLED, "a") == 0


def test_a_line_for_each_hundred_steps_is_no_stall() -> None:
    """Each line comes after 200 s, which are more than ten steps of 2 s."""
    here = lab()
    here.run(Step(run="a", step=n, steps=100, seconds=2.0) for n in range(100, 1000, 100))
    here.now += 190
    here.look()
    assert here.get(c.TRAIN_STALLED, "a") == 0


def test_yesterday_s_log_is_no_run_of_today() -> None:
    """It is read from its beginning when the daemon starts; its stamps are a day old."""
    here = lab()
    here.tell("log", *[
        Step(run="a", step=n, seconds=2.0, wall=WALL + here.now - 86_400 + 2 * n)
        for n in range(1, 200)
    ])  # fmt: skip
    assert not here.look()


def test_a_log_without_stamps_is_believed_when_it_grows() -> None:
    """What is found at the start may be of last year; a line that comes after that is of now."""
    here = lab()
    here.tell("log", *steps(1, 100))
    assert not here.look()
    here.now += 5
    here.tell("log", *steps(101, 102))
    here.look()
    assert total(here) == 102
    assert here.get(c.TRAIN_STEPS_PER_SECOND, "a") == pytest.approx(0.5)


def test_stamps_of_another_time_zone_do_not_hide_a_run() -> None:
    """A log says 8 o'clock while it is 10; its lines keep coming in."""
    here = lab()
    for n in range(1, 60):
        here.now += 4
        here.tell("log", Step(run="a", step=n, seconds=4.0, wall=WALL + here.now - 7200))
        here.look()
    assert here.get(c.TRAIN_STALLED, "a") == 0
    assert here.get(c.TRAIN_STEPS_PER_SECOND, "a") == pytest.approx(0.25)
    here.now += 100
    here.look()
    assert here.get(c.TRAIN_STALLED, "a") == 1
    assert lost(here)("stalled") == pytest.approx(100)


def test_a_run_whose_last_step_is_done_has_ended() -> None:
    """Nobody says so; the number of steps was known."""
    here = lab()
    here.tell("log", Facts(run="a", last_step=30))
    here.run(steps(1, 20))
    assert here.get(c.TRAIN_REMAINING_SECONDS, "a") == pytest.approx(20)
    here.run(steps(21, 30))
    assert here.rows(c.TRAIN_STALLED) == {}
    here.now += 301
    assert not here.look()


def test_a_run_that_failed_and_began_again_lives() -> None:
    """Torchrun starts it anew; steps 15 to 20 are done twice."""
    here = lab()
    here.run(steps(1, 20))
    here.tell("log", Moment(run="a", kind="failed", attempt="1"))
    here.look()
    assert here.rows(c.TRAIN_STALLED) == {}
    here.run(steps(15, 25, attempt="2"), pause=1.0)
    assert here.get(c.TRAIN_STALLED, "a") == 0
    assert total(here) == 31
    assert here.get(c.TRAIN_REPEATED_STEPS_TOTAL, "a") == 6


# ---------------------------------------------------------------- counted once, for ever


def test_counters_go_on_over_a_restart_of_the_daemon() -> None:
    """The log is read on; its reader tells the last lines once more."""
    here = lab()
    here.tell("log", Facts(run="a", world_size=1))
    here.run(steps(1, 50, tokens=100, phases={"data": 0.5}))
    here.restart(down=0)
    here.tell("log", *steps(41, 50, tokens=100, phases={"data": 0.5}))
    here.look()
    here.run(steps(51, 60, tokens=100, phases={"data": 0.5}))
    assert total(here) == 60
    assert here.get(c.TRAIN_TOKENS_TOTAL, "a") == 6000
    assert here.get(c.TRAIN_PHASE_SECONDS_TOTAL, "a", "", "data") == pytest.approx(30)
    times = here.rows(c.TRAIN_STEP_SECONDS)["a",]
    assert isinstance(times, Histogram)
    assert (times.counts[-1], times.sum) == (60, 120)


def test_after_a_crash_of_the_daemon_counters_begin_anew_and_count_nothing_twice() -> None:
    """What was told after the last save is not known: 40 would be less than the 50 of before.

    Prometheus takes a counter that falls for one that began at 0, and would count 40 once more.
    """
    here = lab()
    here.tell("push", Facts(run="a", world_size=1))
    here.run(steps(1, 50, tokens=100), reader="push")
    productive = here.get(c.TRAIN_PRODUCTIVE_SECONDS_TOTAL, "a")
    here.restart(down=0, final=False)
    here.tell("push", Facts(run="a", world_size=1))
    here.run(steps(46, 60, tokens=100), reader="push")
    assert total(here) == 10
    assert here.get(c.TRAIN_TOKENS_TOTAL, "a") == 1000
    assert productive is not None
    assert (here.get(c.TRAIN_PRODUCTIVE_SECONDS_TOTAL, "a") or 0) < productive / 2
    assert here.get(c.TRAIN_GOODPUT_RATIO, "a") == pytest.approx(118 / 130, abs=0.03)


@pytest.mark.parametrize(
    "nonsense", [[], {"runs": {"a": {"steps": 3}}}, {"Goodput": {"a": {"seconds": {"x": -1}}}}]
)
def test_a_memory_of_nonsense_is_refused_and_costs_nothing_else(nonsense: object) -> None:
    """The state file was written by somebody else."""
    here = lab()
    assert here.derivation.restore is not None
    with pytest.raises(Malformed, match="not taken over"):
        here.derivation.restore(nonsense, here.now, 5.0, True)
    here.run(steps(1, 10))
    assert total(here) == 10


def test_what_was_missed_between_two_looks_is_counted() -> None:
    """5,000 lines at once, of which the ledger remembers 2,048."""
    here = lab()
    here.run(steps(1, 10))
    here.tell("log", *steps(11, 5010, tokens=100))
    here.look()
    assert total(here) == 5010


COUNTERS = (
    c.TRAIN_STEPS_TOTAL,
    c.TRAIN_TOKENS_TOTAL,
    c.TRAIN_REPEATED_STEPS_TOTAL,
    c.TRAIN_SKIPPED_STEPS_TOTAL,
    c.TRAIN_PRODUCTIVE_SECONDS_TOTAL,
    c.TRAIN_LOST_SECONDS_TOTAL,
    c.TRAIN_PHASE_SECONDS_TOTAL,
    c.TRAIN_CHECKPOINTS_TOTAL,
    c.TRAIN_CHECKPOINT_SECONDS_TOTAL,
)

moves = st.one_of(
    st.tuples(st.just("step"), st.sampled_from(READERS[:6]), st.integers(1, 12)),
    st.tuples(st.just("quiet"), st.just(""), st.integers(1, 200)),
    st.tuples(st.just("crash"), st.just(""), st.integers(0, 20)),
    st.tuples(st.just("restart"), st.just(""), st.integers(0, 60)),
    st.tuples(st.just("save"), st.sampled_from(READERS[:6]), st.integers(0, 30)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(moves, max_size=60))
def test_counters_never_fall_and_never_count_a_step_twice(
    happened: list[tuple[str, str, int]],
) -> None:
    """A job goes on; readers tell of it late or not at all; job and daemon begin anew."""
    here = lab()
    job, attempt, truth = 0, 1, 0
    told: dict[str, tuple[int, int]] = {}
    history: dict[int, int] = {}
    before: dict[tuple[str, ...], float] = {}
    for kind, reader, number in happened:
        match kind:
            case "step":
                job, truth, here.now = job + number, truth + number, here.now + 2.0 * number
                history[attempt] = job
                at, last = told.get(reader, (attempt, max(0, job - number - 5)))
                if at != attempt:
                    last = max(0, job - number)
                here.tell(reader, *steps(last + 1, job, attempt=str(attempt), tokens=10,
                                         phases={"data": 0.5}))  # fmt: skip
                told[reader] = (attempt, job)
            case "quiet":
                here.now += number
            case "crash":
                job, attempt = max(0, job - number), attempt + 1
            case "restart":
                here.restart(down=float(number))
            case "save":
                saved = Moment(
                    run="a", kind="checkpoint_saved", step=job, attempt=str(attempt),
                    seconds=float(number), wall=WALL + here.now,
                )  # fmt: skip
                here.tell(reader, saved)
        said = here.look()
        now = {
            key: value
            for metric in COUNTERS
            for key, value in said.items()
            if key[0] == metric.name and not isinstance(value, Histogram)
        }
        for key, value in now.items():
            assert value >= before.get(key, 0), key
        before |= now
        assert (total(here) or 0) <= truth


# ---------------------------------------------------------------- what becomes of time


def lost(here: Lab) -> Callable[[str], float]:
    return lambda cause: here.get(c.TRAIN_LOST_SECONDS_TOTAL, "a", cause) or 0.0


def test_goodput_puts_each_second_to_one_account() -> None:
    """A run of an hour, by hand.

    Started at 0, the first step ends at 120 s (it compiles); 99 steps of 10 s, of which 2 s wait
    for data; a checkpoint holds it up for 30 s; it fails, and 300 s later the first step of the new
    attempt has compiled; steps 91 to 100 are done again, and then 100 more.
    """
    here = lab()
    begin = here.now
    here.tell("push", Moment(run="a", kind="started", wall=WALL + begin, attempt="1"))

    def go(first: int, last: int, attempt: str) -> None:
        for n in range(first, last + 1):
            here.now += 10
            here.tell("push", Step(run="a", step=n, seconds=10.0, attempt=attempt,
                                   phases={"data": 2.0}, wall=WALL + here.now))  # fmt: skip
            here.look()

    here.now += 120
    here.tell("push", Step(run="a", step=1, seconds=60.0, attempt="1", wall=WALL + here.now))
    here.look()
    go(2, 50, "1")
    here.now += 30
    here.tell("push", Moment(run="a", kind="checkpoint_saved", step=50, seconds=30.0,
                             wall=WALL + here.now, attempt="1"))  # fmt: skip
    go(51, 100, "1")
    here.now += 300
    here.tell("push", Step(run="a", step=90, seconds=60.0, attempt="2", wall=WALL + here.now))
    go(91, 200, "2")

    of = lost(here)
    wall = 120 + 49 * 10 + 30 + 50 * 10 + 300 + 110 * 10
    assert here.now - begin == wall
    assert of("start") == pytest.approx(120)
    assert of("checkpoint") == pytest.approx(30)
    assert of("restart") == pytest.approx(300)
    assert of("repeated") == pytest.approx(100)
    assert of("data") == pytest.approx(2 * (49 + 50 + 100))
    assert of("stalled") == of("unknown") == pytest.approx(0)
    productive = here.get(c.TRAIN_PRODUCTIVE_SECONDS_TOTAL, "a")
    assert productive == pytest.approx(8 * (49 + 50 + 100))
    assert here.get(c.TRAIN_GOODPUT_RATIO, "a") == pytest.approx(8 * 199 / wall)
    assert here.get(c.TRAIN_ELAPSED_SECONDS, "a") == pytest.approx(wall)
    assert here.get(c.TRAIN_CHECKPOINTS_TOTAL, "a") == 1
    assert here.get(c.TRAIN_CHECKPOINT_SECONDS_TOTAL, "a") == 30
    saved = here.get(c.TRAIN_LAST_CHECKPOINT_TIMESTAMP_SECONDS, "a")
    assert saved == pytest.approx(WALL + begin + 120 + 490 + 30)


def test_a_log_that_is_read_from_its_beginning_is_put_to_account_as_it_happened() -> None:
    """The daemon starts late: 50 steps of 10 s, 10 minutes of nothing, and 20 more."""
    here = lab()
    stamp = WALL + here.now - 50 * 10 - 600 - 20 * 10
    told: list[Step] = []
    for n in range(1, 71):
        stamp += 10 if n != 51 else 610
        told.append(Step(run="a", step=n, seconds=10.0, wall=stamp, attempt=str(1 + (n > 50))))
    here.tell("log", *told)
    here.look()
    of = lost(here)
    assert of("start") == pytest.approx(10)
    assert of("restart") == pytest.approx(610)
    assert here.get(c.TRAIN_PRODUCTIVE_SECONDS_TOTAL, "a") == pytest.approx(490 + 190)
    assert of("unknown") == pytest.approx(0)
    assert here.get(c.TRAIN_ELAPSED_SECONDS, "a") == pytest.approx(1300)


def test_a_stall_is_lost_time_while_it_lasts() -> None:
    """Half an hour without a step; then the step that took so long is told."""
    here = lab()
    for n in range(1, 31):
        here.now += 4
        here.tell("log", Step(run="a", step=n, seconds=4.0, wall=WALL + here.now))
        here.look()
    for _ in range(180):
        here.now += 10
        here.look()
    assert lost(here)("stalled") == pytest.approx(1800)
    here.tell("log", Step(run="a", step=31, seconds=1800.0, wall=WALL + here.now))
    here.look()
    assert lost(here)("stalled") == pytest.approx(1800)
    assert here.get(c.TRAIN_PRODUCTIVE_SECONDS_TOTAL, "a") == pytest.approx(29 * 4)


def test_a_checkpoint_told_by_two_readers_is_one() -> None:
    """The log prints it and the client pushes it, one for each rank."""
    here = lab()
    here.run(steps(1, 10), reader="push")
    saved = {"run": "a", "kind": "checkpoint_saved", "step": 10, "attempt": "1"}
    here.tell("log", Moment(**saved))
    here.tell("push", *[Moment(**saved, rank=rank, seconds=3.0) for rank in range(4)])
    here.look()
    assert here.get(c.TRAIN_CHECKPOINTS_TOTAL, "a") == 1
    assert here.get(c.TRAIN_CHECKPOINT_SECONDS_TOTAL, "a") == 3


def test_experts_are_told_as_the_job_tells_them() -> None:
    """The busiest expert has 1.8 times the mean, and 300 of 10,000 tokens found no room."""
    here = lab()
    here.tell("log", Facts(run="a", schedule="DualPipe", expert_parallel=8))
    here.run(steps(1, 20, tokens=10_000, expert_imbalance=1.8, dropped_tokens=300))
    assert here.get(c.TRAIN_EXPERT_IMBALANCE_RATIO, "a") == 1.8
    assert here.get(c.TRAIN_DROPPED_TOKENS_RATIO, "a") == pytest.approx(0.03)
    assert here.get(c.TRAIN_PARALLEL_SIZE, "a", "expert") == 8
    (labels,) = here.rows(c.TRAIN_RUN_INFO)
    assert dict(zip(c.TRAIN_RUN_INFO.labels, labels, strict=True))["schedule"] == "DualPipe"


# ---------------------------------------------------------------- the whole


def eight_ranks(here: Lab, run: str, n: int) -> None:
    phases = {
        "data": 0.05,
        "forward": 0.3,
        "backward": 0.5,
        "communication": 0.1,
        "optimizer": 0.05,
    }
    for rank in range(8):
        here.tell("push", Step(run=run, step=n, rank=rank, scope="rank", seconds=1.0, loss=2.0,
                               tokens=4096, phases=phases, memory_bytes=60e9, attempt="1",
                               gradient_norm=1.0, learning_rate=1e-4))  # fmt: skip


def test_a_run_of_eight_ranks_keeps_to_its_series() -> None:
    """180 with everything that such a run tells, histogram and ranks included."""
    here = Lab()
    here.tell("push", Facts(run="a", world_size=8, model="meta-llama/Llama-3.1-8B",
                            sequence_length=4096, precision="bf16", recompute="full",
                            framework="torch", local_ranks={n: n for n in range(8)},
                            data_parallel=8, tensor_parallel=1, pipeline_parallel=1))  # fmt: skip
    for n in range(1, 90):
        here.now += 1
        eight_ranks(here, "a", n)
        here.look(*h100s(8, here.now))
    series = sum(
        len(value.counts) + 2 if isinstance(value, Histogram) else 1 for value in here.said.values()
    )
    assert here.get(c.TRAIN_HFU_RATIO, "a", "causal", "bf16") is not None
    assert series <= 180, series


def test_no_series_is_told_of_what_is_not_known() -> None:
    """A reader that knows nothing but the number of the step."""
    here = lab()
    here.run([Step(run="a", step=n, wall=WALL + 1000) for n in range(1, 3)], reader="trainer_state")
    names = {name for name, *_ in here.said}
    assert names == {
        "train_run_info", "train_reader_chosen", "train_step", "train_stalled",
        "train_last_step_timestamp_seconds", "train_steps_total", "train_skipped_steps_total",
        "train_repeated_steps_total", "train_mfu_withheld", "train_flops_per_token",
    }  # fmt: skip


def test_a_part_is_asked_again_when_something_was_told() -> None:
    """Or after a minute; what it said stands meanwhile."""
    asked: list[float] = []

    def part(run: Run, view: View, now: float) -> list[Sample]:
        asked.append(now)
        return [c.TRAIN_STEP(now, run.name)]

    tracked = TrackedRun("a", 0.0, 0.0)
    run, on_news, view = Run(tracked, Stated(), lambda now: now), OnNews(part), View((), ())
    for now in (0.0, 5.0, 59.0, 61.0):
        assert [sample.value for sample in on_news(run, view, now)] == [0 if now < 60 else 61]
    run.observe(TrackedRun("a", 0.0, 0.0), 62.0)
    on_news(run, view, 62.0)
    assert asked == [0, 61, 62]


def test_records_that_were_refused_are_counted() -> None:
    """A reader met nonsense."""
    here = lab()
    here.ledger.refuse("log", "nonsense", 3)
    here.look()
    assert here.get(c.TRAIN_RECORDS_REFUSED_TOTAL, "log", "nonsense") == 3
