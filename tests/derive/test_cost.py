"""Dollars of GPUs: what is counted is price times time, whatever happens in between."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from exporter import catalogue as c
from exporter.derive.money.accounts import Account
from exporter.derive.money.energy import Energy
from exporter.derive.money.owners import Owner
from exporter.derive.money.pricing import Hours, Listed, Owned, Pricing, Schedule
from exporter.samples import Sample
from tests.derive.cost_lab import STEP, Daemon, Driver, Scraper, gpu, info
from tests.fakes import FakeClock

SHANGHAI = ZoneInfo("Asia/Shanghai")
TIDES = Schedule((Hours(8 * 60, 22 * 60, factor=1.5), Hours(22 * 60, 8 * 60, factor=0.5)), SHANGHAI)
TWO = Pricing(stated=[("*", 2.0)], pricing="reserved")


def daemon(
    tmp_path: Path, clock: FakeClock, driver: Driver, pricing: Pricing = TWO, life: str = "one"
) -> Daemon:
    return Daemon(clock, driver, tmp_path / "state", life=life, pricing=pricing)


def run(one: Daemon, seconds: float, scraper: Scraper | None = None) -> None:
    for _ in range(round(seconds / STEP)):
        one.clock.advance(STEP)
        one.step()
        if scraper is not None:
            scraper.scrape(one)


def by_state(one: Daemon, number: int = 0) -> dict[str, float]:
    found = one.samples(c.COST_DOLLARS_TOTAL)
    return {s.labels[2]: s.value for s in found if s.labels[:2] == gpu(number)}  # type: ignore[misc]


def tide(wall: float) -> float:
    """Return the factor of the hour, counted by hand: Shanghai is eight hours ahead of UTC."""
    hour = (wall / 3600 + 8) % 24
    return 1.5 if 8 <= hour < 22 else 0.5


class Oracle:
    """Price times time in small steps, apart from the product's arithmetic."""

    def __init__(self) -> None:
        self.dollars = 0.0
        self.seconds = 0.0

    def add(self, clock: FakeClock, seconds: float, price: float) -> None:
        begin = clock.time()
        for at in range(round(seconds / STEP)):
            self.dollars += price * tide(begin + at * STEP) * STEP / 3600
        self.seconds += seconds


def test_a_day_of_dollars_is_price_times_time_over_what_the_daemon_ran(tmp_path: Path) -> None:
    """Prices by the hour and a changed contract, a hung driver, pods that come and go, a restart
    and a crash: summed up as Prometheus does, nothing is lost but the time of no daemon."""
    clock, oracle = FakeClock(wall=1.8e9), Oracle()
    driver = Driver(clock, {0: 0.25, 1: 1.0, 2: 0.0})
    scraper, counted = Scraper(c.COST_DOLLARS_TOTAL), Scraper(c.COST_COUNTED_SECONDS_TOTAL)
    first = Pricing(stated=[("*H100*", 2.0)], schedule=TIDES)
    second = Pricing(stated=[("*H100*", 3.1)], schedule=TIDES)

    def lives(life: str, seconds: float, pricing: Pricing, price: float) -> Daemon:
        one = daemon(tmp_path, clock, driver, pricing, life)
        one.step()
        for each in (scraper, counted):
            each.scrape(one)
        goes_on(one, seconds, price)
        return one

    def goes_on(one: Daemon, seconds: float, price: float) -> None:
        oracle.add(clock, seconds, price)
        for _ in range(round(seconds / STEP)):
            clock.advance(STEP)
            one.step()
            scraper.scrape(one)
            counted.scrape(one)

    one = lives("one", 3 * 3600, first, 2.0)
    driver.hangs = True
    goes_on(one, 300, 2.0)
    driver.hangs = False
    goes_on(one, 3 * 3600 - 300, 2.0)
    one.reload(second)
    goes_on(one, 3600, 3.1)
    driver.extra = lambda _: [
        c.GPU_ALLOCATION_INFO(1, *gpu(0), "team-a", "pod-1", "main"),
        c.GPU_ALLOCATION_INFO(1, *gpu(2), "", "", ""),
    ]
    goes_on(one, 5 * 3600, 3.1)
    one.end()
    clock.advance(600)
    one = lives("two", 6 * 3600, second, 3.1)
    assert one.value(c.COST_GAP_SECONDS) == pytest.approx(600, abs=STEP)
    clock.advance(1200)  # killed: nothing was written at its end
    one = lives("three", 6 * 3600 - 1800, first, 2.0)
    assert one.value(c.COST_GAP_SECONDS) == pytest.approx(1200, abs=60 + STEP)

    for number in range(3):
        assert scraper.of(1, f"GPU-{number}") == pytest.approx(oracle.dollars, rel=1e-9)
    assert sum(counted.increase.values()) == pytest.approx(oracle.seconds)
    assert oracle.seconds == 24 * 3600 - 1800
    states = {s: scraper.increase.get((*gpu(2), s), 0.0) for s in ("busy", "idle", "unallocated")}
    assert states["busy"] == 0
    assert states["idle"] > 0
    assert states["unallocated"] > 0
    assert scraper.increase[*gpu(1), "idle"] == pytest.approx(0, abs=1e-9)


def test_a_gap_is_not_filled(tmp_path: Path) -> None:
    """After ten minutes without a daemon the counter goes on from where it was."""
    clock = FakeClock()
    driver = Driver(clock, {0: 1.0})
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 3600)
    assert by_state(one)["busy"] == pytest.approx(2.0)
    one.end()
    clock.advance(600)

    one = daemon(tmp_path, clock, driver, life="two")
    one.step()

    assert by_state(one)["busy"] == pytest.approx(2.0)
    assert one.value(c.COST_GAP_SECONDS) == pytest.approx(600)
    run(one, 1800)
    assert by_state(one)["busy"] == pytest.approx(3.0)


def test_after_a_crash_no_counter_falls_back_a_little(tmp_path: Path) -> None:
    """One that fell from 2.00 to 1.99 would be taken for 1.99 new dollars: it begins at 0."""
    clock = FakeClock()
    driver = Driver(clock, {0: 1.0})
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 3620)

    one = daemon(tmp_path, clock, driver, life="two")
    one.step()
    run(one, STEP)

    assert by_state(one)["busy"] == pytest.approx(2.0 * STEP / 3600)


def test_what_is_counted_begins_with_the_first_gpu(tmp_path: Path) -> None:
    """A driver that comes up late: time without a GPU on the board costs nothing."""
    clock = FakeClock()
    driver = Driver(clock, {0: 1.0})
    driver.hangs = True
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 200)
    driver.hangs = False
    run(one, 620)

    assert one.value(c.COST_COUNTED_SECONDS_TOTAL) == pytest.approx(600)
    assert math.fsum(by_state(one).values()) == pytest.approx(2.0 * 600 / 3600)


def test_time_without_a_price_is_a_gap_in_what_was_counted(tmp_path: Path) -> None:
    """The operator took the price away for an hour: no dollar stands for that hour."""
    clock = FakeClock()
    one = daemon(tmp_path, clock, Driver(clock, {0: 1.0}))
    one.step()
    run(one, 600)
    one.reload(Pricing())
    run(one, 3600)
    one.reload(TWO)
    run(one, 600)

    assert math.fsum(by_state(one).values()) == pytest.approx(2.0 * 1200 / 3600)
    assert one.value(c.COST_COUNTED_SECONDS_TOTAL) == pytest.approx(1200)


def test_a_price_of_the_night_alone_counts_by_night(tmp_path: Path) -> None:
    """By day nobody knows what the GPU costs."""
    clock = FakeClock()
    night = Schedule((Hours(0, 6 * 60, dollars=2.0),))
    one = daemon(tmp_path, clock, Driver(clock, {0: 1.0}), Pricing(schedule=night))
    one.step()
    run(one, 86_400)

    assert math.fsum(by_state(one).values()) == pytest.approx(12.0)
    assert one.value(c.COST_COUNTED_SECONDS_TOTAL) == pytest.approx(6 * 3600, abs=2 * STEP)


def test_dollars_that_were_switched_off_for_a_while_are_not_made_up_for(tmp_path: Path) -> None:
    """A reload without the section, and one with it again, ten minutes later."""
    clock = FakeClock()
    one = daemon(tmp_path, clock, Driver(clock, {0: 1.0}))
    one.step()
    run(one, 600)
    one._cost.source.close()
    clock.advance(600)
    one._driver.step()
    one._cost = one._derivation(TWO)
    one._cost.step()
    run(one, 600)

    assert math.fsum(by_state(one).values()) == pytest.approx(2.0 * 1200 / 3600)
    assert one.value(c.COST_GAP_SECONDS) == pytest.approx(600)


def test_a_changed_price_counts_from_then_on(tmp_path: Path) -> None:
    """What was counted at the old price stays; no counter begins anew at a reload."""
    clock = FakeClock()
    one = daemon(tmp_path, clock, Driver(clock, {0: 0.5}))
    one.step()
    run(one, 3600)
    one.reload(replace(TWO, stated=[("*", 4.0)]))
    run(one, 3600)

    found = by_state(one)
    assert found["busy"] == pytest.approx(1.0 + 2.0)
    assert found["idle"] == pytest.approx(1.0 + 2.0)
    assert found["unknown"] == 0
    assert one.value(c.COST_GAP_SECONDS) is None


def test_without_a_price_there_are_no_dollars(tmp_path: Path) -> None:
    """A product that no pattern fits, and an instance that nobody tells, cost nobody knows what."""
    clock = FakeClock()
    pricing = Pricing(stated=[("*A100*", 1.2)], table=lambda *_: Listed(9.0, dt.date(2026, 1, 1)))
    one = daemon(tmp_path, clock, Driver(clock, {0: 0.5}), pricing)
    one.step()
    run(one, 600)

    told = {s.metric.name for view in one.board.view(clock.now).sources for s in view.batch}
    assert not {name for name in told if "dollars" in name or "price" in name}


def test_time_in_which_the_driver_tells_nothing_is_paid_for_and_not_called_idle(
    tmp_path: Path,
) -> None:
    """A GPU that hangs is not given back, and nobody knows whether it works."""
    clock = FakeClock()
    driver = Driver(clock, {0: 1.0})
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 600)
    driver.hangs = True
    run(one, 600)

    found = by_state(one)
    assert found["busy"] == pytest.approx(2.0 * 600 / 3600)
    assert found["unknown"] == pytest.approx(2.0 * 600 / 3600)
    driver.hangs = False
    run(one, 600)
    found = by_state(one)
    assert found["idle"] == 0
    assert math.fsum(found.values()) == pytest.approx(2.0 * 1800 / 3600)


def test_a_round_that_comes_late_calls_nothing_unknown(tmp_path: Path) -> None:
    """A busy machine: the driver's counters went on, whoever did not look at them."""
    clock = FakeClock()
    one = daemon(tmp_path, clock, Driver(clock, {0: 0.5}))
    one.step()
    for _ in range(10):
        clock.advance(55)
        one.step()

    found = by_state(one)
    assert found["busy"] == found["idle"] == pytest.approx(550 / 3600)
    assert found["unknown"] == 0


def test_a_reading_that_is_missing_is_told_from_idle(tmp_path: Path) -> None:
    """The driver hung for twenty seconds: what its counters have counts, the rest is unknown."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.5})
    one = daemon(tmp_path, clock, driver)
    one.step()
    driver.hangs = True
    run(one, STEP)
    driver.hangs = False
    run(one, STEP)

    found = by_state(one)
    assert found["busy"] == found["unknown"] == pytest.approx(STEP * 2.0 / 3600)
    assert found["idle"] == 0


def test_idle_is_never_negative(tmp_path: Path) -> None:
    """A driver may tell of more work than time has passed (opencost 3359 shows it below 0)."""
    clock = FakeClock()
    driver = Driver(clock, {0: 1.02})
    one, before = daemon(tmp_path, clock, driver), 0.0
    one.step()
    for _ in range(30):
        run(one, STEP)
        found = by_state(one)
        assert found["idle"] >= before >= 0
        before = found["idle"]
    assert math.fsum(found.values()) == pytest.approx(2.0 * 600 / 3600)


def test_work_that_is_told_a_moment_early_is_not_lost(tmp_path: Path) -> None:
    """Source and driver look at different moments: what does not fit now belongs to the next."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.0})
    one = daemon(tmp_path, clock, driver)
    one.step()
    for at in range(30):
        driver.shares[0] = 1.1 if at % 2 == 0 else 0.9
        run(one, STEP)

    assert by_state(one)["busy"] == pytest.approx(2.0 * 600 / 3600)


def test_work_that_no_time_can_hold_is_not_carried_on_for_ever(tmp_path: Path) -> None:
    """A counter that jumped by an hour: two seconds of it at most are of the next reading."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.0})
    one = daemon(tmp_path, clock, driver)
    one.step()
    driver._active[0] += 3600.0
    run(one, 600)

    assert by_state(one)["busy"] == pytest.approx(2.0 * (STEP + 2.0) / 3600)


def test_measured_use_decides_and_not_who_has_it(tmp_path: Path) -> None:
    """A pod that does nothing is an idle GPU, for all that was requested (opencost 3900)."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.25})
    driver.extra = lambda _: [c.GPU_ALLOCATION_INFO(1, *gpu(0), "a", "pod", "main")]
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 3600)

    found = by_state(one)
    assert (found["busy"], found["idle"]) == (pytest.approx(0.5), pytest.approx(1.5))
    assert found["unallocated"] == 0


def test_two_readers_of_one_gpu_count_once(tmp_path: Path) -> None:
    """The same GPU on the pages of two readers costs what one GPU costs."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.5})
    one = daemon(tmp_path, clock, driver)
    other = Driver(clock, {0: 0.5})
    other.name = "dcgm"
    second = one._runner(other)
    one.step()
    for _ in range(round(3600 / STEP)):
        clock.advance(STEP)
        second.step()
        one.step()

    assert math.fsum(by_state(one).values()) == pytest.approx(2.0)
    assert len(one.samples(c.COST_GPU_HOUR_DOLLARS)) == 1


# ---------------------------------------------------------------- tenants


def owners(*rows: tuple[int, str, str, str]) -> Iterable[Sample]:
    return [c.GPU_ALLOCATION_INFO(1, *gpu(at), *who) for at, *who in rows]


def test_the_time_of_tenants_adds_up_to_that_of_the_gpus(tmp_path: Path) -> None:
    """Three pods share a GPU, one of them has another one too; to the nanosecond."""
    clock = FakeClock(now=1000.123456789)
    driver = Driver(clock, {0: 0.5, 1: 0.0, 2: 0.0})
    driver.extra = lambda _: owners(
        (0, "a", "p", "main"), (0, "a", "q", "main"), (0, "b", "r", "main"),
        (0, "b", "r", "sidecar"), (1, "b", "r", "main"), (2, "", "", ""),
    )  # fmt: skip
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 3600)

    pods = {s.labels: s.value for s in one.samples(c.COST_POD_GPU_SECONDS_TOTAL)}
    tenants = {s.labels: s.value for s in one.samples(c.COST_TENANT_GPU_SECONDS_TOTAL)}
    assert pods["b", "r", "reserved"] == pytest.approx(3600 / 3 + 3600, abs=1e-6)
    assert sum(round(v * 1e9) for v in pods.values()) == 2 * 3600 * 10**9  # type: ignore[misc]
    assert sum(round(v * 1e9) for v in tenants.values()) == 2 * 3600 * 10**9  # type: ignore[misc]
    unused = {s.labels[0]: s.value for s in one.samples(c.COST_TENANT_UNUSED_GPU_SECONDS_TOTAL)}
    assert unused == {
        "a": pytest.approx(1200, abs=1e-3),
        "b": pytest.approx(600 + 3600, abs=1e-3),
    }
    dollars = sum(s.value for s in one.samples(c.COST_TENANT_DOLLARS_TOTAL))  # type: ignore[misc]
    assert dollars == pytest.approx(4.0)
    assert one.value(c.COST_ALLOCATED_GPUS, "a") == pytest.approx(2 / 3)


def test_four_pods_with_a_part_of_a_gpu_each_make_one_gpu_hour(tmp_path: Path) -> None:
    """None is charged with all of it (opencost 3828), and idle does not fall below nothing because
    more was given away than there is (kubecost 1978)."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.9})
    driver.extra = lambda _: owners(*((0, "team", f"pod-{at}", "main") for at in range(4)))
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 3600)

    pods = [s.value for s in one.samples(c.COST_POD_GPU_SECONDS_TOTAL)]
    assert pods == [pytest.approx(900, abs=1e-6)] * 4
    assert one.value(c.COST_TENANT_DOLLARS_TOTAL, "team", "reserved") == pytest.approx(2.0)
    assert by_state(one)["idle"] == pytest.approx(0.2)
    assert one.value(c.COST_ALLOCATED_GPUS, "team") == pytest.approx(1.0)


def parted(*rows: tuple[int, str, str, str, float]) -> Iterable[Sample]:
    """Return who has which part of a GPU."""
    for at, *who, share in rows:
        yield c.GPU_ALLOCATION_INFO(1, *gpu(at), *who)
        yield c.GPU_ALLOCATION_SHARE_RATIO(share, *gpu(at), *who)


def test_instances_and_replicas_are_paid_by_their_parts(tmp_path: Path) -> None:
    """Two of seven slices, by two containers, and three of seven; what nobody has nobody pays."""
    clock = FakeClock(now=1000.123456789)
    driver = Driver(clock, {0: 0.0})
    driver.extra = lambda _: parted(
        (0, "a", "p", "main", 1 / 7), (0, "a", "p", "second", 1 / 7), (0, "b", "q", "main", 3 / 7)
    )
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 3600)

    pods = {s.labels[1]: s.value for s in one.samples(c.COST_POD_GPU_SECONDS_TOTAL)}
    assert pods == {
        "p": pytest.approx(3600 * 2 / 7, abs=1e-6), "q": pytest.approx(3600 * 3 / 7, abs=1e-6)
    }  # fmt: skip
    assert one.value(c.COST_TENANT_DOLLARS_TOTAL, "b", "reserved") == pytest.approx(2 * 3 / 7)
    unused = {s.labels[0]: s.value for s in one.samples(c.COST_TENANT_UNUSED_GPU_SECONDS_TOTAL)}
    assert unused["a"] == pytest.approx(3600 * 2 / 7, abs=0.01)
    assert one.value(c.COST_ALLOCATED_GPUS, "a") == pytest.approx(2 / 7)


def test_seven_slices_make_one_gpu_to_the_nanosecond(tmp_path: Path) -> None:
    clock = FakeClock(now=1000.123456789)
    driver = Driver(clock, {0: 0.3})
    driver.extra = lambda _: parted(*((0, "a", f"pod-{n}", "main", 1 / 7) for n in range(7)))
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 3600)

    pods = [s.value for s in one.samples(c.COST_POD_GPU_SECONDS_TOTAL)]
    assert sum(round(v * 1e9) for v in pods) == 3600 * 10**9  # type: ignore[misc, operator]
    assert one.value(c.COST_ALLOCATED_GPUS, "a") == pytest.approx(1.0)


def test_where_one_part_is_not_known_parts_are_even(tmp_path: Path) -> None:
    """A fraction by another vendor's plugin beside a replica; a share of two containers."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.0})
    driver.extra = lambda _: [
        *parted((0, "a", "p", "main", 0.25)), *owners((0, "b", "q", "main")),
        *owners((0, "a", "p", "sidecar")),
    ]  # fmt: skip
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 600)

    pods = [s.value for s in one.samples(c.COST_POD_GPU_SECONDS_TOTAL)]
    assert pods == [pytest.approx(300, abs=1e-6)] * 2


def test_more_than_a_gpu_is_not_given_away(tmp_path: Path) -> None:
    """Two that are each told to have all of it pay half each."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.0})
    driver.extra = lambda _: parted((0, "a", "p", "main", 1.0), (0, "b", "q", "main", 1.0))
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 600)

    pods = [s.value for s in one.samples(c.COST_POD_GPU_SECONDS_TOTAL)]
    assert pods == [pytest.approx(300, abs=1e-6)] * 2


def test_owners_of_a_former_version_are_taken_over() -> None:
    account = Account(0.0)
    account.owners = (Owner("a", "p", 0.5),)
    told = account.memory()
    assert Account.restored(told).owners == account.owners
    told["owners"] = [["a", "p"]]
    assert Account.restored(told).owners == (Owner("a", "p"),)


def test_a_gpu_without_counters_of_activity_costs_all_the_same(tmp_path: Path) -> None:
    """One that is read from another exporter's page, one that is lost: nobody tells."""
    clock = FakeClock()
    driver = Driver(clock, {})
    driver.extra = lambda _: [c.GPU_UTILIZATION_RATIO(0.5, *gpu(0)), c.GPU_UP(0, *gpu(1))]
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 1800)

    for number in range(2):
        assert by_state(one, number) == {
            "busy": 0, "idle": 0, "unknown": pytest.approx(1.0)
        }  # fmt: skip


def instances(active: dict[str, float], *profiles: tuple[str, str]) -> Iterable[Sample]:
    """Return what is told of a GPU that is split, with the seconds that each instance worked."""
    for mig, profile in profiles:
        yield c.GPU_MIG_INFO(1, *gpu(0), mig, "0", f"MIG-{mig}", profile)
        yield c.GPU_MIG_SM_ACTIVE_SECONDS_TOTAL(active[mig], *gpu(0), mig)


def test_a_gpu_that_is_split_is_busy_by_the_parts_of_its_instances(tmp_path: Path) -> None:
    """Three sevenths at full, one seventh at half, three sevenths that nobody made."""
    clock = FakeClock()
    driver = Driver(clock, {})
    profiles = (("2", "3g.40gb"), ("9", "1g.10gb"))

    def at(now: float, name: str = "NVIDIA H100 80GB HBM3") -> Iterable[Sample]:
        seconds = now - 1000.0
        return [info(0, name), *instances({"2": seconds, "9": seconds / 2}, *profiles)]

    driver.extra = at
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 3600)
    assert by_state(one)["busy"] == pytest.approx(2.0 * 3.5 / 7)
    assert by_state(one)["idle"] == pytest.approx(2.0 * 3.5 / 7)

    driver.extra = lambda now: at(now, "NVIDIA X1000")
    one = daemon(tmp_path / "other", clock, driver)
    one.step()
    run(one, 600)
    assert by_state(one)["busy"] == 0, "into how many parts that is split nobody knows"
    assert by_state(one)["idle"] == 0


def test_an_instance_whose_part_is_not_known_makes_no_idle_gpu(tmp_path: Path) -> None:
    """Of a profile that says no number of parts nobody knows how much of the GPU it is."""
    clock = FakeClock()
    driver = Driver(clock, {})
    driver.extra = lambda now: [
        info(0),
        *instances({"2": now, "9": now}, ("2", "3g.40gb"), ("9", "odd")),
    ]
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 600)
    assert by_state(one) == {"busy": 0, "idle": 0, "unknown": pytest.approx(2.0 * 600 / 3600)}


def test_a_gpu_that_is_gone_is_paid_for_one_hour_longer_and_its_series_end(tmp_path: Path) -> None:
    """It may be stuck, and is not given back; what was taken out is not paid for ever."""
    clock = FakeClock()
    driver = Driver(clock, {0: 1.0, 1: 1.0})
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 600)
    del driver._active[1], driver.shares[1]
    run(one, 3600)
    assert by_state(one, 1)["unknown"] == pytest.approx(2.0)
    assert one.value(c.COST_DOLLARS_PER_HOUR) == 4.0
    run(one, 2 * STEP)

    assert by_state(one, 1) == {}
    assert one.value(c.COST_DOLLARS_PER_HOUR) == 2.0


def test_gpu_time_is_billed_without_a_price_too(tmp_path: Path) -> None:
    """Time is time; the contract changes with the instance and is a series of its own."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.0})
    driver.extra = lambda _: owners((0, "a", "p", "main"))
    one = daemon(tmp_path, clock, driver, Pricing())
    one.step()
    run(one, 600)
    assert one.value(c.COST_TENANT_GPU_SECONDS_TOTAL, "a", "") == pytest.approx(600)
    one.reload(Pricing(stated=[("*", 1.0)], pricing="spot"))
    run(one, 600)

    found = {s.labels: s.value for s in one.samples(c.COST_TENANT_GPU_SECONDS_TOTAL)}
    assert sum(found.values()) == pytest.approx(1200)  # type: ignore[arg-type]
    assert found["a", "spot"] == pytest.approx(600, abs=STEP)


@pytest.mark.parametrize("schedule", [Schedule(), Schedule((Hours(0, 1440, dollars=2.0),))])
def test_a_contract_that_is_stated_is_that_of_tenants_without_a_price_too(
    tmp_path: Path, schedule: Schedule
) -> None:
    """`pricing: reserved` and no price, or one of the hour: time was billed to no contract."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.0})
    driver.extra = lambda _: owners((0, "a", "p", "main"))
    one = daemon(tmp_path, clock, driver, Pricing(pricing="reserved", schedule=schedule))
    one.step()
    run(one, 600)
    found = {s.labels: s.value for s in one.samples(c.COST_TENANT_GPU_SECONDS_TOTAL)}
    assert found == {("a", "reserved"): pytest.approx(600)}


def test_what_tenants_had_is_all_seen_by_prometheus(tmp_path: Path) -> None:
    """Series begin at 0: a first value of five seconds would be lost, for each pod."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.0})
    one = daemon(tmp_path, clock, driver)
    one.step()
    scrapers = [Scraper(c.COST_TENANT_GPU_SECONDS_TOTAL), Scraper(c.COST_POD_GPU_SECONDS_TOTAL)]
    for pod in range(5):
        driver.extra = lambda _, pod=pod: owners((0, "a", f"pod-{pod}", "main"))  # type: ignore[misc]
        for _ in range(5):
            run(one, STEP)
            for scraper in scrapers:
                scraper.scrape(one)

    for scraper in scrapers:
        assert sum(scraper.increase.values()) == pytest.approx(24 * STEP)


def test_a_pod_goes_and_what_its_namespace_had_stays(tmp_path: Path) -> None:
    """Pods come and go; their series must not pile up, and bills must not shrink."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.0})
    driver.extra = lambda _: owners((0, "a", "p", "main"))
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 600)
    driver.extra = lambda _: owners((0, "", "", ""))
    run(one, 400)

    assert one.samples(c.COST_POD_GPU_SECONDS_TOTAL) == []
    assert one.value(c.COST_TENANT_GPU_SECONDS_TOTAL, "a", "reserved") == pytest.approx(
        600, abs=STEP
    )


def test_quotas_are_held_against_what_namespaces_have(tmp_path: Path) -> None:
    """The sum over nodes is the use of a quota; without allocation there is nothing to hold."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.0, 1: 0.0})
    one = Daemon(clock, driver, tmp_path / "s", life="a", pricing=TWO, quotas={"a": 8.0, "b": 0.0})
    one.step()
    assert one.value(c.COST_QUOTA_GPUS, "a") == 8
    assert one.samples(c.COST_QUOTA_USED_RATIO) == []
    driver.extra = lambda _: owners((0, "a", "p", "main"), (1, "a", "q", "main"))
    run(one, STEP)

    assert one.value(c.COST_QUOTA_USED_RATIO, "a") == pytest.approx(0.25)
    assert one.value(c.COST_QUOTA_USED_RATIO, "b") is None


# ---------------------------------------------------------------- what a node costs


def test_what_the_node_and_its_idle_time_cost_an_hour(tmp_path: Path) -> None:
    """Idle and unallocated of the last five minutes; what is unknown is not called idle."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.25, 1: 1.0})
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 600)

    assert one.value(c.COST_DOLLARS_PER_HOUR) == pytest.approx(4.0)
    assert one.value(c.COST_IDLE_DOLLARS_PER_HOUR) == pytest.approx(1.5)
    driver.shares[0] = 1.0
    run(one, 300)
    assert one.value(c.COST_IDLE_DOLLARS_PER_HOUR) == pytest.approx(0.0, abs=1e-9)
    driver.hangs = True
    run(one, 200)
    assert one.value(c.COST_IDLE_DOLLARS_PER_HOUR) is None
    assert one.value(c.COST_DOLLARS_PER_HOUR) == pytest.approx(4.0)


def test_energy_costs_dollars_and_carbon(tmp_path: Path) -> None:
    """700 W for an hour are 0.7 kWh, times PUE; the seed's rate is 0.08 dollars."""
    clock = FakeClock()
    one = Daemon(
        clock, Driver(clock, {0: 0.5}), tmp_path / "s", life="a", pricing=Pricing(),
        energy=Energy(dollars_per_kwh=0.08, grams_per_kwh=400.0, pue=1.08),
    )  # fmt: skip
    one.step()
    run(one, 3600)

    assert one.value(c.COST_ENERGY_DOLLARS_TOTAL, *gpu(0)) == pytest.approx(0.7 * 1.08 * 0.08)
    assert one.value(c.COST_CARBON_GRAMS_TOTAL, *gpu(0)) == pytest.approx(0.7 * 1.08 * 400)


def test_energy_of_a_driver_that_was_loaded_anew_is_never_negative(tmp_path: Path) -> None:
    """The driver counts joules since it was loaded; dollars do not fall with it."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.5})
    one = Daemon(
        clock, driver, tmp_path / "s", life="a", pricing=Pricing(),
        energy=Energy(dollars_per_kwh=3600.0),
    )  # fmt: skip
    one.step()
    run(one, 600)
    driver._joules = 0.0
    run(one, 600)

    assert one.value(c.COST_ENERGY_DOLLARS_TOTAL, *gpu(0)) == pytest.approx(
        0.7 * (1200 - STEP), rel=1e-6
    )


# ---------------------------------------------------------------- prices


def test_prices_are_believed_in_the_order_of_trust(tmp_path: Path) -> None:
    """Stated, TCO, OpenCost, listed; the first that knows one; it says which it was."""
    clock = FakeClock(wall=1.8e9)
    driver = Driver(clock, {0: 0.5})
    board = [
        c.SPOT_INSTANCE_INFO(1, "aws", "spot", "p5.48xlarge", "use1-az1"),
        c.COST_OPENCOST_GPU_HOUR_DOLLARS(3.0, "p5.48xlarge", "spot"),
    ]
    driver.extra = lambda _: board
    day = dt.date(2026, 11, 9)
    table = {("p5.48xlarge", "spot"): Listed(4.0, day)}
    every = Pricing(
        stated=[("*H100*", 1.0)], owned=Owned(2.0), table=lambda *key: table.get(key),
        as_of=dt.date(2026, 11, 1),
    )  # fmt: skip
    one = daemon(tmp_path, clock, driver, every)

    def told() -> tuple[float | None, tuple[str, ...]]:
        one.step()
        (row,) = one.samples(c.COST_PRICE_INFO)
        return one.value(c.COST_GPU_HOUR_DOLLARS, *gpu(0)), row.labels[2:]

    assert told() == (1.0, ("config", "spot", "p5.48xlarge", "2026-11-01"))
    one.reload(replace(every, stated=[("*A100*", 1.0)]))
    assert told() == (2.0, ("tco", "owned", "p5.48xlarge", ""))
    one.reload(replace(every, stated=(), owned=None))
    assert told() == (3.0, ("opencost", "spot", "p5.48xlarge", ""))
    del board[1]
    clock.advance(3601)
    assert told() == (4.0, ("listed", "spot", "p5.48xlarge", "2026-11-09"))
    age = one.value(c.COST_PRICE_AGE_SECONDS, "listed")
    midnight = dt.datetime(2026, 11, 9, tzinfo=dt.UTC).timestamp()
    assert age == pytest.approx(clock.time() - midnight)


def test_a_price_of_opencost_outlives_a_failed_read(tmp_path: Path) -> None:
    """A price is one of an hour: one page that does not come is no change of the contract."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.5})
    driver.extra = lambda _: [c.COST_OPENCOST_GPU_HOUR_DOLLARS(3.0, "", "")]
    one = daemon(tmp_path, clock, driver, Pricing())
    one.step()
    driver.extra = lambda _: ()
    run(one, 3000)
    assert one.value(c.COST_GPU_HOUR_DOLLARS, *gpu(0)) == 3.0
    assert one.value(c.COST_PRICE_AGE_SECONDS, "opencost") == pytest.approx(3000)
    run(one, 700)
    assert one.value(c.COST_GPU_HOUR_DOLLARS, *gpu(0)) is None


def test_a_price_of_the_hour_is_not_said_to_be_opencosts(tmp_path: Path) -> None:
    """By night the operator's own price holds, whoever tells that of the day."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.5})
    driver.extra = lambda _: [c.COST_OPENCOST_GPU_HOUR_DOLLARS(3.0, "p5.48xlarge", "spot")]
    pricing = Pricing(schedule=Schedule((Hours(0, 6 * 60, dollars=1.1),)))
    one = daemon(tmp_path, clock, driver, pricing)
    one.step()
    told = set()
    for _ in range(24):
        run(one, 3600)
        (price,), (about,) = one.samples(c.COST_GPU_HOUR_DOLLARS), one.samples(c.COST_PRICE_INFO)
        told.add((price.value, *about.labels[2:5]))

    assert told == {
        (3.0, "opencost", "spot", "p5.48xlarge"),
        (1.1, "config", "spot", "p5.48xlarge"),
    }


def test_a_list_price_needs_a_contract_that_somebody_states() -> None:
    """On-demand is not assumed of an instance whose lifecycle is not known."""
    pricing = Pricing(
        instance_type="p5.48xlarge", table=lambda *_: Listed(4.0, dt.date(2026, 1, 1))
    )
    from exporter.derive.money.pricing import Instance

    assert pricing.price("H100", Instance("p5.48xlarge", ""), None) is None
    stated = replace(pricing, pricing="on_demand")
    found = stated.price("H100", Instance(), None)
    assert found is not None
    assert (found.dollars, found.source) == (4.0, "listed")


def at(zone: dt.tzinfo, *moment: int) -> float:
    return dt.datetime(*moment, tzinfo=zone).timestamp()  # type: ignore[misc, arg-type]


def test_prices_follow_the_hours_of_their_time_zone() -> None:
    """Peak by day, off-peak by night and at weekends; a window beyond midnight is of its first
    day."""
    hours = (
        Hours(0, 24 * 60, frozenset({5, 6}), factor=0.25),
        Hours(8 * 60 + 30, 22 * 60, factor=1.5),
        Hours(22 * 60, 2 * 60, frozenset({0}), dollars=0.3),
    )
    schedule = Schedule(hours, SHANGHAI)

    def price(*moment: int) -> float | None:
        return schedule.at(at(SHANGHAI, *moment), 2.0)

    assert price(2026, 11, 30, 8, 29) == 2.0  # a Monday
    assert price(2026, 11, 30, 8, 30) == 3.0
    assert price(2026, 11, 30, 22, 0) == 0.3
    assert price(2026, 12, 1, 1, 59) == 0.3
    assert price(2026, 12, 1, 2, 0) == 2.0
    assert price(2026, 12, 1, 23, 0) == 2.0
    assert price(2026, 12, 5, 12, 0) == 0.5
    assert schedule.at(at(SHANGHAI, 2026, 11, 30, 9, 0), None) is None
    assert schedule.at(at(SHANGHAI, 2026, 11, 30, 23, 0), None) == 0.3


def test_a_window_that_ends_in_between_is_divided_to_the_second() -> None:
    """Ninety seconds around ten in the evening: 30 at the price of the day, 60 at that of night."""
    schedule = Schedule((Hours(8 * 60, 22 * 60, factor=1.5),), SHANGHAI)
    begin = at(SHANGHAI, 2026, 11, 30, 21, 59, 30)
    spent = schedule.spent(begin, begin + 90, 2.0)
    assert spent == pytest.approx((30 * 3.0 + 60 * 2.0) / 3600)


def test_clocks_that_are_changed_neither_lose_nor_double_an_hour() -> None:
    """Berlin, October: the night has nine hours at the price of the night, in March seven."""
    berlin = ZoneInfo("Europe/Berlin")
    schedule = Schedule((Hours(22 * 60, 6 * 60, factor=0.5),), berlin)
    for evening, length in (((2026, 10, 24), 9), ((2026, 3, 28), 7)):
        begin = at(berlin, *evening, 12, 0)
        spent = schedule.spent(begin, begin + (16 + length) * 3600, 1.0)
        assert spent == pytest.approx(16 + length * 0.5)


# ---------------------------------------------------------------- runs


class Job:
    """A run on GPUs of the node that tells of its tokens each `every` seconds."""

    def __init__(self, clock: FakeClock, gpus: int, world: int, rate: float, every: float) -> None:
        self._clock = clock
        self._began = clock.now
        self.gpus, self.world, self.rate, self.every = gpus, world, rate, every
        self.stalled = False
        self.ended = False
        self.elsewhere = False

    def __call__(self, now: float) -> Iterable[Sample]:
        if self.ended:
            return []
        if self.elsewhere:
            rows = [c.TRAIN_LOCAL_RANKS(1, "run")]
            return rows if self.stalled else [*rows, c.TRAIN_RUN_GPU(1, "run", *gpu(0))]
        told = (now - self._began) // self.every * self.every * self.rate
        rows = [
            c.TRAIN_STALLED(int(self.stalled), "run"),
            c.TRAIN_WORLD_SIZE(self.world, "run"),
            c.TRAIN_TOKENS_TOTAL(told, "run"),
        ]
        if not self.stalled:
            rows += [c.TRAIN_RUN_GPU(1, "run", *gpu(at)) for at in range(self.gpus)]
            rows.append(c.TRAIN_REMAINING_SECONDS(7200, "run"))
        return rows


def test_a_run_costs_what_its_gpus_cost_and_its_tokens_are_of_the_same_time(
    tmp_path: Path,
) -> None:
    """Eight ranks, two of them here, tokens told each 80 seconds: no telling is cut in two."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.5, 1: 0.5, 2: 0.0})
    job = Job(clock, gpus=2, world=8, rate=10_000.0, every=80.0)
    driver.extra = job
    one = daemon(tmp_path, clock, driver)
    one.step()
    for at in range(60):
        run(one, STEP)
        found = one.value(c.TRAIN_COST_PER_MILLION_TOKENS_DOLLARS, "run")
        if at * STEP < 300:
            assert found is None
        if at * STEP > 500:
            assert found == pytest.approx(8 * 2.0 / 3600 / 10_000 * 1e6, rel=1e-6)

    so_far = one.value(c.TRAIN_COST_DOLLARS_TOTAL, "run")
    assert so_far == pytest.approx(2 * 2.0 * 1200 / 3600)
    assert one.value(c.TRAIN_PROJECTED_COST_DOLLARS, "run") == pytest.approx(
        4 * (so_far + 2 * 2.0 * 2)
    )


@pytest.mark.parametrize("what", ["tokens", "gpus"])
def test_a_run_that_begins_anew_has_no_cost_of_tokens_over_its_start(
    tmp_path: Path, what: str
) -> None:
    """Its tokens count from 0, or it goes on with other GPUs: it is five minutes until the next."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.5, 1: 0.5})
    job = Job(clock, gpus=1, world=1, rate=10_000.0, every=STEP)
    driver.extra = job
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 600)
    assert one.value(c.TRAIN_COST_PER_MILLION_TOKENS_DOLLARS, "run") is not None
    if what == "gpus":
        job.gpus = 2
    else:
        job._began = clock.now
    run(one, 240)
    assert one.value(c.TRAIN_COST_PER_MILLION_TOKENS_DOLLARS, "run") is None
    run(one, 240)
    # One rank on two GPUs: each of them is taken for a half of it.
    assert one.value(c.TRAIN_COST_PER_MILLION_TOKENS_DOLLARS, "run") == pytest.approx(
        2.0 / 3600 / 10_000 * 1e6
    )


def test_runs_that_share_a_gpu_share_what_is_to_come_too(tmp_path: Path) -> None:
    """Each was charged half so far, and all of the rest."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.5})
    driver.extra = lambda _: [
        sample
        for run in ("a", "b")
        for sample in (
            c.TRAIN_RUN_GPU(1, run, *gpu(0)),
            c.TRAIN_WORLD_SIZE(1, run),
            c.TRAIN_REMAINING_SECONDS(3600, run),
        )
    ]
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 3600)
    for name in ("a", "b"):
        assert one.value(c.TRAIN_PROJECTED_COST_DOLLARS, name) == pytest.approx(1.0 + 1.0)


def test_a_stalled_run_still_costs_and_one_that_ended_does_not(tmp_path: Path) -> None:
    """The GPUs of a job that hangs are not given back."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.5})
    job = Job(clock, gpus=1, world=1, rate=1.0, every=10.0)
    driver.extra = job
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 600)
    job.stalled = True
    run(one, 600)
    assert one.value(c.TRAIN_COST_DOLLARS_TOTAL, "run") == pytest.approx(2.0 * 1200 / 3600)
    assert one.value(c.TRAIN_COST_PER_MILLION_TOKENS_DOLLARS, "run") is None
    job.ended = True
    run(one, 600)
    assert one.value(c.TRAIN_COST_DOLLARS_TOTAL, "run") == pytest.approx(
        2.0 * 1200 / 3600, abs=2.0 * STEP / 3600
    )


def test_a_stalled_run_costs_on_nodes_that_do_not_speak_for_it_too(tmp_path: Path) -> None:
    """Another node tells that it is stalled; here its processes tell that it has its GPU."""
    clock = FakeClock()
    driver = Driver(clock, {0: 0.5})
    job = Job(clock, gpus=1, world=16, rate=1.0, every=10.0)
    job.elsewhere = True
    driver.extra = job
    one = daemon(tmp_path, clock, driver)
    one.step()
    run(one, 600)
    job.stalled = True
    run(one, 600)
    assert one.value(c.TRAIN_COST_DOLLARS_TOTAL, "run") == pytest.approx(2.0 * 1200 / 3600)


def test_a_memory_that_makes_no_sense_costs_nothing_but_itself(tmp_path: Path) -> None:
    """A state file of another kind: said, and counted from 0."""
    from exporter.derive.money.cost import cost
    from exporter.samples import Malformed

    one = cost(TWO, lambda now: now, "life")
    assert one.restore is not None
    for memory in (None, [], {}, {"life": "x", "accounts": {"g": {"until": "soon"}}}):
        with pytest.raises(Malformed, match="not taken over"):
            one.restore(memory, 0.0, 0.0, True)
    assert info(0).labels
