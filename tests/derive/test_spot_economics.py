"""Spot instances: published checkpoint intervals, a simulated job, and what is saved in the end."""

from __future__ import annotations

import math
import random

import pytest

from exporter.derive.money.spot import (
    HOUR,
    Job,
    Part,
    announced_share,
    between_interruptions,
    daly,
    effective_price,
    effective_saving,
    lost_work,
    mixed_price,
    rough_share,
    saving,
    useful_share,
    way,
    young,
)

MINUTE = 60.0
CALM = Job(gpus=1000, gpus_per_instance=8, checkpoint=60, restart=135)


# ---------------------------------------------------------------- checkpoints


@pytest.mark.parametrize(
    ("between", "published"), [(24 * HOUR, 117), (6 * HOUR, 57), (15 * MINUTE, 9.1)]
)
def test_dalys_own_figures_come_out(between: float, published: float) -> None:
    """J. T. Daly (2006), figures 3 to 5: a dump of 5 minutes, a restart of 10."""
    digits = 1 if published < 10 else 0
    assert round(daly(5 * MINUTE, between) / MINUTE, digits) == published


def test_youngs_interval_is_the_first_order_of_dalys() -> None:
    """For rare interruptions both are one; for frequent ones the first order waits too long."""
    assert young(5 * MINUTE, 24 * HOUR) == pytest.approx(120 * MINUTE)
    assert daly(1, 1e8) == pytest.approx(young(1, 1e8), rel=1e-3)
    assert daly(5 * MINUTE, 15 * MINUTE) < young(5 * MINUTE, 15 * MINUTE)


def test_where_a_checkpoint_takes_longer_than_two_interruptions_are_apart() -> None:
    """Daly's formula ends there, at the time between interruptions; and it has no step there."""
    assert daly(200, 100) == 100
    assert daly(199.99, 100) == pytest.approx(200 * (1 + 1 / 3 + 1 / 9) - 200, rel=1e-3)
    assert daly(60, math.inf) == math.inf


def best_by_trying(checkpoint: float, restart: float, between: float) -> float:
    """Return the highest useful share of any interval, by looking at many."""
    tries = (10 ** (at / 400) for at in range(2400))
    return max(useful_share(one, checkpoint, restart, between) for one in tries)


@pytest.mark.parametrize("between", [200.0, 900.0, HOUR, 6 * HOUR, 24 * HOUR, 1e6])
@pytest.mark.parametrize("checkpoint", [5.0, 60.0, 300.0])
def test_no_interval_is_better_than_dalys(checkpoint: float, between: float) -> None:
    """Within a hundredth (two, where a checkpoint takes longer than interruptions are apart)."""
    ours = useful_share(daly(checkpoint, between), checkpoint, 120, between)
    best = best_by_trying(checkpoint, 120, between)
    assert ours <= best * (1 + 1e-5)
    assert ours == pytest.approx(best, rel=0.02 if checkpoint > between else 0.01)


def simulated(
    interval: float, checkpoint: float, restart: float, between: float, notice: bool = False
) -> float:
    """Return the useful share of a job that is run through 20,000 interruptions."""
    chance = random.Random(7)
    work = wall = 0.0
    for _ in range(20_000):
        left = chance.expovariate(1 / between)
        wall += left
        done = int(left // (interval + checkpoint))
        if notice:
            share = interval / (interval + checkpoint)
            work += left * share
            wall += checkpoint
        else:
            work += done * interval
        while (again := chance.expovariate(1 / between)) < restart:
            wall += again
        wall += restart
    return work / wall


@pytest.mark.parametrize("interval", [120.0, 600.0, 1800.0])
@pytest.mark.parametrize("between", [900.0, HOUR, 6 * HOUR])
def test_the_useful_share_is_what_a_simulated_job_gets(interval: float, between: float) -> None:
    """Interruptions at random while it works, writes a checkpoint and restarts."""
    ours = useful_share(interval, 60, 135, between)
    assert ours == pytest.approx(simulated(interval, 60, 135, between), rel=0.03)


def test_a_notice_saves_the_work_since_the_last_checkpoint() -> None:
    """What is left to pay is the last checkpoint and the restart."""
    ours = announced_share(60, 135, HOUR)
    assert ours == pytest.approx(simulated(1e9, 60, 135, HOUR, notice=True), rel=0.02)
    job = CALM._replace(rate=0.01, notice=120)
    blind = CALM._replace(rate=0.01)
    spot = [Part("spot", 1.0, 3.0)]
    assert way("", spot, job, 12).useful > way("", spot, blind, 12).useful + 0.1
    assert CALM._replace(rate=0.01, notice=30).announced is False


def test_nothing_lasts_where_interruptions_come_too_often() -> None:
    """A share of 0 and a price without end, not an overflow."""
    assert useful_share(HOUR, 60, 135, 0.5) == 0.0
    assert announced_share(60, 135, 0.1) == 0.0
    assert effective_price(3.0, 0.0) == math.inf
    assert way("", [Part("spot", 1, 3.0)], CALM._replace(whole=1e6), 12).effective > 1e6


def test_without_interruptions_nothing_is_lost() -> None:
    assert useful_share(math.inf, 60, 135, math.inf) == 1
    assert useful_share(540, 60, 135, math.inf) == pytest.approx(0.9)
    assert announced_share(60, 135, math.inf) == 1
    assert between_interruptions(0, 125) == math.inf
    assert between_interruptions(0.05, 125) == pytest.approx(576)


# ---------------------------------------------------------------- what is saved


def test_the_first_order_says_the_same_where_little_is_lost() -> None:
    interval = daly(10, 100 * HOUR)
    rough = rough_share(1 / 100, lost_work(interval, 60)) * interval / (interval + 10)
    assert useful_share(interval, 10, 60, 100 * HOUR) == pytest.approx(rough, rel=1e-3)
    assert rough_share(10, HOUR) == 0


def test_the_specifications_sixty_to_sixty_five_per_cent() -> None:
    """16.7.2: 70 % off, 10 to 15 % interrupted and 5 % of recovery leave 62 to 65 %."""
    assert effective_saving(0.7, 0.15) == pytest.approx(0.647, abs=5e-4)
    assert effective_saving(0.7, 0.20) == pytest.approx(0.625, abs=5e-4)
    assert effective_saving(0.7, 0.10) == pytest.approx(0.667, abs=5e-4), "5 % + 5 %: above 65"


def test_a_job_that_is_interrupted_each_hour_saves_what_the_specification_says() -> None:
    """A checkpoint in a minute, a restart in the 135 s between those of 16.7.2."""
    found = way("spot", [Part("spot", 1, 3.69)], CALM._replace(whole=1), 12.29)
    assert 0.60 < found.saved < 0.65
    assert found.interval == pytest.approx(618, abs=1)


def test_an_interruption_an_hour_leaves_less_than_the_specification_says() -> None:
    """16.7.2: 6.5 to 13 minutes each, from 95 %: 74 to 85 %, not 85 to 90 %."""
    few, many = 5 * MINUTE + 30 + MINUTE, 10 * MINUTE + MINUTE + 2 * MINUTE
    assert 0.95 * rough_share(1, few) == pytest.approx(0.847, abs=1e-3)
    assert 0.95 * rough_share(1, many) == pytest.approx(0.744, abs=1e-3)


def test_many_instances_are_interrupted_often() -> None:
    """5 % an hour for an instance, as 16.7.2 has it, are one each ten minutes for 125 of them."""
    small = way("", [Part("spot", 1, 3.69)], CALM._replace(gpus=8, rate=0.05), 12.29)
    large = way("", [Part("spot", 1, 3.69)], CALM._replace(rate=0.05), 12.29)
    assert small.saved > 0.66
    assert large.useful < 0.5
    assert large.saved < 0.4


def test_a_mixture_is_interrupted_less_and_costs_more() -> None:
    job = CALM._replace(whole=1)
    parts = [Part("spot", 0.8, 3.69), Part("on_demand", 0.2, 12.29)]
    spot, mixed = way("", [Part("spot", 1, 3.69)], job, 12.29), way("", parts, job, 12.29)
    assert mixed.price == pytest.approx(mixed_price([(0.8, 3.69), (0.2, 12.29)]))
    assert mixed.between == pytest.approx(spot.between / 0.8)
    assert mixed.useful > spot.useful
    assert 0 < mixed.saved < spot.saved


def test_on_demand_saves_nothing_against_itself() -> None:
    """With failures of other kinds too: both sides have them."""
    job = CALM._replace(rate=0.05, failures=100 * HOUR)
    found = way("on_demand", [Part("on_demand", 1, 12.29)], job, 12.29)
    assert found.saved == pytest.approx(0)
    assert 0.9 < found.useful < 1
    assert found.between == math.inf
    reserved = way("reserved", [Part("reserved", 1, 7.37)], job, 12.29)
    assert reserved.saved == pytest.approx(saving(12.29, 7.37))


def test_an_interval_of_ones_own_counts() -> None:
    found = way("", [Part("spot", 1, 3.0)], CALM._replace(whole=1, interval=3000), 12.0)
    best = way("", [Part("spot", 1, 3.0)], CALM._replace(whole=1), 12.0)
    assert found.interval == 3000
    assert found.useful < best.useful
