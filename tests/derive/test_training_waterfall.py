"""Where the FLOPs go: the seed's figure, what was injected, and that nothing is hidden."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter import catalogue as c
from exporter.derive.training.boards import Activity
from exporter.derive.training.waterfall import Loss, Observed, waterfall
from exporter.training import Facts, Profile, Step
from exporter.training.records import PHASES
from tests.derive.training_lab import BF16, WALL, Lab, given_work, h100s


def by_cause(losses: list[Loss]) -> dict[str, float]:
    """Return shares by cause, in percent points of the peak."""
    found: dict[str, float] = defaultdict(float)
    for loss in losses:
        found[loss.cause] += 100 * loss.share
    return dict(found)


def profile(
    *, matmul: float, bound: float = 0, idle: float = 0, exposed: float = 0, copies: float = 0
) -> Profile:
    """Return a profile of 100 s."""
    return Profile(
        run="a", rank=0, wall=WALL + 1000, seconds=100, matmul=matmul, memory_bound=bound,
        exposed_communication=exposed, copies=copies, idle=idle, communication=exposed,
        launches=1000,
    )  # fmt: skip


def test_the_seed_s_six_causes_leave_42_percent() -> None:
    """Figure 16-2: framework 8, memory 12, communication 15, bubble 10, recomputation 8, data 5.

    A step of 100 s: 5 s for data, 10 s of bubble, 15 s waiting; of the 70 s of computing a profile
    says that the GPU had nothing to do in 8 and ran kernels bound by memory in 12; the other 50
    were spent at full rate, 8 of them for what had been computed before.
    """
    found = waterfall(
        Observed(
            mfu=0.42,
            hfu=0.50,
            phases={"data": 0.05, "bubble": 0.10, "communication": 0.15, "forward": 0.7},
            profile=profile(matmul=50, bound=12, idle=8 + 5 + 10, exposed=15),
        )
    )
    expected = {
        "framework": 8, "memory": 12, "communication": 15, "bubble": 10, "recomputation": 8,
        "data": 5, "kernels": 0, "unexplained": 0,
    }  # fmt: skip
    assert by_cause(found) == pytest.approx(expected, abs=1e-9)
    evidence = {loss.cause: loss.evidence for loss in found}
    assert evidence["data"] == evidence["communication"] == "measured"
    assert evidence["memory"] == evidence["framework"] == "profiled"


def test_counters_stand_in_for_a_profile() -> None:
    """A GPU that is idle for 18 s of 100, 10 of them for data, and has SMs without tensor work."""
    found = waterfall(
        Observed(
            mfu=0.4,
            phases={"data": 0.1, "communication": 0.15},
            activity=Activity(busy=0.82, sms=0.62, tensor=0.5, clock=0.9),
        )
    )
    # Left to compute 75; idle 8, bound by memory 12; of 55 for products a tenth to the clock.
    expected = {
        "data": 10, "communication": 15, "framework": 8, "memory": 12, "clock": 5.5,
        "kernels": 9.5, "unexplained": 0,
    }  # fmt: skip
    assert by_cause(found) == pytest.approx(expected, abs=1e-9)


def test_idle_gpus_whose_job_tells_nothing_are_idle_and_no_more() -> None:
    """Whether they waited for data or for the host, nobody says; nor how long for other ranks."""
    activity = Activity(busy=0.7, sms=0.6, tensor=0.45, clock=1.0)
    found = waterfall(Observed(mfu=0.3, activity=activity))
    expected = {"idle": 30, "memory": 15, "clock": 0, "unexplained": 25}
    assert by_cause(found) == pytest.approx(expected, abs=1e-9)
    alone = by_cause(waterfall(Observed(mfu=0.3, activity=activity, alone=True)))
    assert alone["kernels"] == pytest.approx(25)
    assert alone["unexplained"] == pytest.approx(0)


def test_without_counters_what_is_lost_within_computing_is_told_as_one() -> None:
    """A run on CPUs: the operator's peak, and phases of the job; 3 % of its time is in none."""
    phases = {"data": 0.05, "communication": 0.12, "forward": 0.3, "backward": 0.5}
    found = waterfall(Observed(mfu=0.25, phases=phases))
    expected = {"data": 5, "communication": 12, "kernels": 55, "unexplained": 3}
    assert by_cause(found) == pytest.approx(expected, abs=1e-9)


def test_nothing_known_is_all_unexplained() -> None:
    """Nothing but MFU."""
    assert waterfall(Observed(mfu=0.4)) == [Loss("unexplained", "remainder", 0.6)]


def test_more_work_than_time_shows_below_zero() -> None:
    """The job computed for 30 % of its time and claims 42 % of the peak: work or peak is wrong."""
    found = by_cause(waterfall(Observed(mfu=0.42, phases={"data": 0.7, "forward": 0.3})))
    assert found["kernels"] == 0
    assert found["unexplained"] == pytest.approx(-12)


def test_phases_that_are_longer_than_the_step_lose_no_more_than_the_peak() -> None:
    """Forward and backward overlapped and were timed apart: kernels lost 167 % of the peak."""
    found = waterfall(Observed(mfu=0.3, phases={"forward": 0.5, "backward": 1.5}))
    assert by_cause(found)["kernels"] == pytest.approx(70)
    assert by_cause(found)["unexplained"] == pytest.approx(0)


def test_a_clock_above_that_of_the_peak_is_no_loss() -> None:
    """An H100 boosts to 1980 MHz; the peak belongs to 1830."""
    found = by_cause(
        waterfall(Observed(mfu=0.5, phases={"forward": 1.0}, activity=Activity(clock=1980 / 1830)))
    )
    assert found["clock"] == 0
    assert found["kernels"] == pytest.approx(50)


def test_a_bubble_by_theory_lies_where_no_phase_is() -> None:
    """A tenth of the step; the phases leave 6 points free, so 4 are taken from computing."""
    found = waterfall(Observed(mfu=0.4, phases={"forward": 0.64, "communication": 0.3}, bubble=0.1))
    expected = {"communication": 30, "bubble": 10, "kernels": 20, "unexplained": 0}
    assert by_cause(found) == pytest.approx(expected, abs=1e-9)


shares = st.floats(0, 1)
maybe = st.none() | shares
parts = st.floats(0, 50)


@st.composite
def _profiles(draw: st.DrawFn) -> Profile:
    return profile(
        matmul=draw(parts), bound=draw(parts), idle=draw(parts), exposed=draw(parts),
        copies=draw(parts),
    )  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.builds(
        Observed,
        mfu=shares,
        hfu=maybe,
        phases=st.dictionaries(st.sampled_from(PHASES), shares),
        bubble=maybe,
        activity=st.builds(
            Activity, busy=maybe, sms=maybe, tensor=maybe, clock=st.none() | st.floats(0, 1.2)
        ),
        profile=st.none() | _profiles(),
        alone=st.booleans(),
    )
)
def test_losses_and_mfu_add_up_to_1_whatever_is_known(seen: Observed) -> None:
    """And no cause but what is unexplained is below 0; none is told twice."""
    losses = waterfall(seen)
    assert math.fsum([seen.mfu, *(loss.share for loss in losses)]) == pytest.approx(1, abs=1e-12)
    assert all(loss.share >= 0 for loss in losses if loss.cause != "unexplained")
    told = [(loss.cause, loss.evidence) for loss in losses]
    assert len(set(told)) == len(told)


# ---------------------------------------------------------------- what was injected


def job(
    *, data: float = 0.03, wait: float = 0.05, slow: float = 1.0, lost: float = 0.02
) -> dict[str, float]:
    """Return the waterfall of a made-up job on two ranks, in percent points of the peak.

    A step of 1 s: `data` and `wait` seconds, `lost` in no phase, and 0.9 s of computing, of which
    0.2 are bound by memory; the clock stretches the rest to `1 / slow`.
    """
    lab = Lab(work=given_work(0.5 * BF16 / 100_000))
    lab.tell("push", Facts(run="a", world_size=2, precision="bf16"))
    computing = 0.2 + 0.7 / slow
    seconds = computing + data + wait + lost
    busy = (computing + wait) / seconds
    sms = (computing + 0.1 * wait) / seconds
    tensor = (sms * seconds - 0.2) / seconds
    for n in range(1, 90):
        lab.now += seconds
        for rank in range(2):
            phases = {"data": data, "communication": wait, "forward": computing / 3,
                      "backward": computing / 3, "optimizer": computing / 3}  # fmt: skip
            lab.tell("push", Step(run="a", step=n, rank=rank, scope="rank", seconds=seconds,
                                  tokens=100_000, phases=phases))  # fmt: skip
        lab.look(*h100s(2, lab.now, clock=1830e6 * slow, busy=busy, sms=sms, tensor=tensor))
    found: dict[str, float] = defaultdict(float)
    for (_, cause, _), share in lab.rows(c.TRAIN_MFU_LOSS_RATIO).items():
        assert isinstance(share, float)
        found[cause] += 100 * share
    mfu = lab.get(c.TRAIN_MFU_RATIO, "a", "causal", "bf16")
    assert mfu == pytest.approx(0.5 / seconds, rel=1e-6)
    assert sum(found.values()) + 100 * mfu == pytest.approx(100)
    assert abs(found["unexplained"]) < 10
    return dict(found)


@pytest.mark.parametrize(
    ("cause", "injected", "changes"),
    [
        ("data", 0.08, {"data": 0.11}),
        ("communication", 0.08, {"wait": 0.13}),
        ("clock", 0.7 / 0.9 - 0.7, {"slow": 0.9}),
    ],
)
def test_what_is_injected_is_found_in_its_cause(
    cause: str, injected: float, changes: dict[str, float]
) -> None:
    """The share of the step that was added, within a tenth; no other cause by 2 points."""
    before, after = job(), job(**changes)
    share = 100 * injected / (1 + injected)
    moved = {name: after[name] - before[name] for name in before}
    assert moved.pop(cause) == pytest.approx(share, rel=0.1)
    assert all(abs(points) < 2 for name, points in moved.items()), moved


def test_the_rank_that_waits_least_tells_what_the_step_is_spent_on() -> None:
    """Rank 1 alone waits for data; rank 0 waits for rank 1, and its network is not to blame."""
    lab = Lab(work=given_work(0.5 * BF16 / 100_000))
    lab.tell("push", Facts(run="a", world_size=2, precision="bf16"))
    for n in range(1, 90):
        lab.now += 1.0
        for rank, data in enumerate((0.02, 0.22)):
            phases = {"data": data, "communication": 0.25 - data, "forward": 0.75}
            lab.tell("push", Step(run="a", step=n, rank=rank, scope="rank", seconds=1.0,
                                  tokens=100_000, phases=phases))  # fmt: skip
        lab.look(*h100s(2, lab.now))
    assert lab.get(c.TRAIN_MFU_LOSS_RATIO, "a", "data", "measured") == pytest.approx(0.22)
    assert lab.get(c.TRAIN_MFU_LOSS_RATIO, "a", "communication", "measured") == pytest.approx(0.03)


def test_kernels_that_wait_for_others_are_not_taken_for_work_bound_by_memory() -> None:
    """They have SMs too, while nothing is computed: what the work needs is not given to memory."""
    seen = Observed(
        mfu=0.20,
        phases={"communication": 0.5, "forward": 0.4, "data": 0.1},
        activity=Activity(busy=0.9, sms=0.38 + 0.5 * 0.13, tensor=0.2, clock=1.0),
    )
    found = by_cause(waterfall(seen))
    assert found["memory"] == pytest.approx(20)
    assert found["unexplained"] == pytest.approx(0, abs=1e-9)


def test_what_the_host_does_beside_is_not_counted_twice() -> None:
    """A tenth of the step nothing was launched: the job says so, and the GPU had no kernel."""
    seen = Observed(
        mfu=0.40,
        phases={"other": 0.1, "forward": 0.9},
        activity=Activity(busy=0.9, sms=0.9, tensor=0.4, clock=1.0),
    )
    found = by_cause(waterfall(seen))
    assert found["framework"] == pytest.approx(10)
    assert found["memory"] == pytest.approx(50)


def test_the_clock_is_the_mean_of_the_window_and_not_that_of_the_moment() -> None:
    """It swings between full and half: a quarter of the time for products is lost to it."""
    here = Lab(work=given_work(50e9))
    here.tell("log", Facts(run="a", world_size=8))
    here.run(
        [Step(run="a", step=n, seconds=2.0, tokens=1e4, phases={"forward": 2.0})
         for n in range(1, 62)],
        board=lambda now: h100s(8, now, clock=1830e6 if now // 2 % 2 else 915e6),
    )  # fmt: skip
    loss = here.get(c.TRAIN_MFU_LOSS_RATIO, "a", "clock", "counters")
    assert loss == pytest.approx((1 - 0.3) * 0.25, rel=0.05)  # 0.3 is memory's, by the counters
