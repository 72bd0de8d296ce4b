"""Seconds of activity: the integral of what the driver says, however the reads are spaced.

First with a driver of Python, for what the numbers mean; then through the real bindings and a real
child, whose clock and whose library's are moved by the test.
"""

from __future__ import annotations

import math
import os
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from exporter import catalogue as c
from exporter.isolate import Isolated
from exporter.nvml.device import Identity
from exporter.nvml.driver import (
    GPU_IS_LOST,
    NOT_SUPPORTED,
    UNINITIALIZED,
    UNKNOWN,
    Driver,
    NvmlError,
)
from exporter.nvml.gpm import LONGEST, SHORTEST, Gpm, Target
from exporter.nvml.gpu import Busy, House
from exporter.nvml.totals import Totals
from exporter.samples import Metric, Sample
from tests.fake_nvml import Control
from tests.fakes import FakeClock
from tests.nvml_lab import Time, read

Child = Callable[..., Isolated]
STANDING = "tests.nvml_lab"
SM, TENSOR, DRAM = 2, 5, 10


@dataclass
class Wave:
    """High in the first half of each period, low in the second; as in the fake library."""

    low: float
    high: float
    period: float

    def until(self, at: float) -> float:
        """Return the integral from 0 to `at`."""
        half = self.period / 2
        periods = math.floor(at / self.period)
        rest = at - periods * self.period
        part = rest * self.high if rest < half else half * self.high + (rest - half) * self.low
        return periods * half * (self.low + self.high) + part

    def over(self, start: float, end: float) -> float:
        return self.until(end) - self.until(start)

    def __str__(self) -> str:
        return f"wave {self.low} {self.high} {self.period}"


WAVES = {
    SM: (c.GPU_SM_ACTIVE_SECONDS_TOTAL, Wave(10, 90, 7)),
    TENSOR: (c.GPU_TENSOR_ACTIVE_SECONDS_TOTAL, Wave(0, 60, 3.3)),
    DRAM: (c.GPU_DRAM_ACTIVE_SECONDS_TOTAL, Wave(5, 45, 11)),
}


# ---- with a driver of Python ------------------------------------------------------------------


@dataclass
class Counters:
    """A driver that has GPM and samples of utilization, both over one clock."""

    clock: FakeClock
    waves: dict[int, Wave] = field(default_factory=dict)
    codes: dict[int, int] = field(default_factory=dict)
    rows: list[tuple[int, int]] = field(default_factory=list)
    error: int = 0
    free_error: int = 0
    taken: dict[int, float] = field(default_factory=dict)
    takes: int = 0
    live: set[int] = field(default_factory=set)

    def _fail(self, function: str) -> None:
        if self.error:
            raise NvmlError(self.error, function)

    def gpm_sample(self) -> int:
        number = max(self.live, default=0) + 1
        self.live.add(number)
        return number

    def gpm_take(self, device: object, sample: int, instance: int | None) -> None:
        self._fail("gpm_take")
        self.takes += 1
        self.taken[sample] = self.clock.now

    def gpm_metrics(
        self, earlier: int, later: int, wanted: Sequence[int]
    ) -> Sequence[tuple[int, float]]:
        start, end = self.taken[earlier], self.taken[later]
        return [
            (self.codes.get(number, 0), self.waves[number].over(start, end) / (end - start))
            if number in self.waves
            else (NOT_SUPPORTED, 0.0)
            for number in wanted
        ]

    def gpm_free(self, sample: int) -> None:
        if self.free_error:
            raise NvmlError(self.free_error, "gpm_free")
        self.live.remove(sample)

    def utilization_samples(self, device: object, since: int) -> Sequence[tuple[int, int]]:
        self._fail("utilization_samples")
        return [row for row in self.rows if row[0] > since]


LABELS = ("0", "GPU-0")
TARGET = Target("key", None, LABELS)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def counters(clock: FakeClock) -> Counters:
    return Counters(clock, {number: wave for number, (_, wave) in WAVES.items()})


def gpm(counters: Counters, totals: Totals | None = None) -> Gpm:
    driver: Driver = counters  # type: ignore[assignment]
    return Gpm(driver, totals or Totals(), counters.clock, detail=False)


def value(samples: Sequence[Sample], metric: Metric) -> float | None:
    return next((s.value for s in samples if s.metric is metric), None)  # type: ignore[return-value]


def test_seconds_are_exact_under_jitter(counters: Counters) -> None:
    """A thousand reads at odd times: each second is counted once, at what the driver says."""
    one, dice = gpm(counters), random.Random(1)
    assert one.read(TARGET) == [], "the first read only begins"
    began = last = counters.clock.now
    samples: list[Sample] = []
    for _ in range(1000):
        counters.clock.advance(dice.uniform(0.05, 3.0))
        taken = counters.takes
        samples = one.read(TARGET)
        if counters.takes > taken:
            last = counters.clock.now

    for metric, wave in WAVES.values():
        assert value(samples, metric) == pytest.approx(wave.over(began, last) / 100, rel=1e-9)


def test_two_reads_at_once_are_one(counters: Counters, clock: FakeClock) -> None:
    """In less than half a second the counters say little: the last values stand."""
    one = gpm(counters)
    one.read(TARGET)
    clock.advance(1)
    samples = one.read(TARGET)
    takes = counters.takes

    clock.advance(SHORTEST / 2)

    assert one.read(TARGET) == samples != []
    assert counters.takes == takes


def test_missed_reads_make_a_longer_window_and_lose_nothing(
    counters: Counters, clock: FakeClock
) -> None:
    """Minutes without a read: the driver goes on counting."""
    one = gpm(counters)
    began = clock.now
    one.read(TARGET)
    for pause in (1, LONGEST - 1, 1):
        clock.advance(pause)
        samples = one.read(TARGET)

    metric, wave = WAVES[SM]
    assert value(samples, metric) == pytest.approx(wave.over(began, clock.now) / 100)


def test_a_gap_beyond_the_limit_is_not_counted(counters: Counters, clock: FakeClock) -> None:
    """What was too long ago is not guessed: the window begins anew."""
    one = gpm(counters)
    one.read(TARGET)
    clock.advance(1)
    before = one.read(TARGET)

    clock.advance(LONGEST + 1)
    assert one.read(TARGET) == []
    clock.advance(2)
    after = one.read(TARGET)

    for metric, wave in WAVES.values():
        was, is_now = value(before, metric), value(after, metric)
        assert was is not None
        assert is_now is not None
        assert is_now - was == pytest.approx(wave.over(clock.now - 2, clock.now) / 100)


def test_what_a_metric_did_not_say_is_not_counted(counters: Counters, clock: FakeClock) -> None:
    """A status other than success, NaN, more than all: absent, and nothing is added."""
    one = gpm(counters)
    one.read(TARGET)
    clock.advance(1)
    before = one.read(TARGET)

    counters.codes[SM] = UNKNOWN
    counters.waves[TENSOR] = Wave(math.nan, math.nan, 1)
    counters.waves[DRAM] = Wave(105, 105, 1)
    clock.advance(1)
    assert one.read(TARGET) == []

    counters.codes.clear()
    counters.waves = dict.fromkeys(WAVES, Wave(50, 50, 1))
    clock.advance(2)
    after = one.read(TARGET)
    for metric, _ in WAVES.values():
        was, is_now = value(before, metric), value(after, metric)
        assert was is not None
        assert is_now == pytest.approx(was + 1)


def test_a_failed_sample_ends_its_window_and_gives_everything_back(
    counters: Counters, clock: FakeClock
) -> None:
    """After an error nothing is counted over it, and no sample is kept."""
    one, totals = gpm(counters), Totals()
    one = gpm(counters, totals)
    one.read(TARGET)
    clock.advance(1)
    one.read(TARGET)
    assert len(counters.live) == 2

    counters.error = GPU_IS_LOST
    clock.advance(1)
    with pytest.raises(NvmlError):
        one.read(TARGET)
    assert counters.live == set()
    counters.error = 0
    clock.advance(5)
    assert one.read(TARGET) == []
    clock.advance(1)
    assert len(one.read(TARGET)) > 0
    assert len(counters.live) == 2
    one.forget(frozenset())
    assert counters.live == set()


def test_seconds_go_on_where_another_process_left_them(
    counters: Counters, clock: FakeClock
) -> None:
    """Totals are exported as JSON can hold them, and taken over."""
    totals = Totals()
    one = gpm(counters, totals)
    one.read(TARGET)
    clock.advance(1)
    before = value(one.read(TARGET), c.GPU_SM_ACTIVE_SECONDS_TOTAL)
    assert before is not None

    heir = Totals()
    heir.load(totals.export(), {c.GPU_SM_ACTIVE_SECONDS_TOTAL.name: c.GPU_SM_ACTIVE_SECONDS_TOTAL})
    two = gpm(counters, heir)
    two.read(TARGET)
    counters.waves[SM] = Wave(40, 40, 1)
    clock.advance(5)
    assert value(two.read(TARGET), c.GPU_SM_ACTIVE_SECONDS_TOTAL) == pytest.approx(before + 2)


def test_samples_of_a_library_that_is_over_are_forgotten(
    counters: Counters, clock: FakeClock
) -> None:
    """It will not take them back: they are not used again, and nothing is raised."""
    one = gpm(counters)
    one.read(TARGET)
    clock.advance(1)
    one.read(TARGET)
    counters.free_error = UNINITIALIZED

    one.forget(frozenset())

    counters.live.clear()
    clock.advance(1)
    assert one.read(TARGET) == [], "a new window"


@pytest.mark.parametrize(
    "nonsense",
    [
        None, "text", [["gpu_busy_seconds_total", ["0", "u"], -1.0]], [[1, 2, 3]],
        [["gpu_busy_seconds_total", ["0", 1], 1.0]], [["unheard_of_total", ["0", "u"], 1.0]],
        [["gpu_busy_seconds_total", ["0", "u"], float("nan")]],
    ],
)  # fmt: skip
def test_sums_that_make_no_sense_are_not_taken_over(nonsense: object) -> None:
    """What a former process left is looked at before it is believed."""
    totals = Totals()

    totals.load(nonsense, {c.GPU_BUSY_SECONDS_TOTAL.name: c.GPU_BUSY_SECONDS_TOTAL})

    assert totals.export() == []


# ---- utilization


IDENTITY = Identity(*LABELS)
SIXTH = 1_000_000 // 6


def busy(counters: Counters, totals: Totals | None = None, identity: Identity = IDENTITY) -> Busy:
    driver: Driver = counters  # type: ignore[assignment]
    house = House(
        driver, totals or Totals(), counters.clock.monotonic, counters.clock.time, lambda _: None
    )
    return Busy(house, None, identity)


def seconds(one: Busy, utilization: float | None = None) -> float | None:
    return next((s.value for s in one.read(utilization)), None)  # type: ignore[return-value]


def test_busy_seconds_are_the_sum_of_the_drivers_samples(counters: Counters) -> None:
    """Each of its samples counts once, for the time since the one before."""
    counters.rows = [(1_000_000, 100)]
    one = busy(counters)
    assert seconds(one) == 0, "what was before us is not ours"

    counters.rows += [(1_000_000 + n * SIXTH, 50) for n in range(1, 13)]
    assert seconds(one) == pytest.approx(12 * SIXTH / 1e6 * 0.5)
    assert seconds(one) == pytest.approx(12 * SIXTH / 1e6 * 0.5), "none is counted twice"


def test_samples_out_of_order_or_blank_do_no_harm(counters: Counters) -> None:
    """Repeated, unordered, 2^32-1: the time counts once, the blank not at all."""
    counters.rows = [(1_000_000, 0)]
    one = busy(counters)

    counters.rows += [
        (1_500_000, 100), (1_250_000, 100), (1_250_000, 100), (1_600_000, 4294967295),
        (1_750_000, 100),
    ]  # fmt: skip

    assert seconds(one) == pytest.approx(0.75)


def test_a_hole_between_samples_is_not_filled(counters: Counters) -> None:
    """A sample speaks for a second at most: what lies before was never seen."""
    counters.rows = [(1_000_000, 0)]
    one = busy(counters)

    counters.rows.append((61_000_000, 100))

    assert seconds(one) == pytest.approx(1)


def test_the_drivers_memory_covers_a_restart(counters: Counters) -> None:
    """The next process goes on after the last sample that was counted: the driver kept the rest."""
    counters.rows = [(1_000_000, 0)]
    totals = Totals()
    one = busy(counters, totals)
    counters.rows.append((1_500_000, 100))
    assert seconds(one) == pytest.approx(0.5)

    counters.rows += [(2_000_000, 100), (2_500_000, 50)]
    assert seconds(busy(counters, totals)) == pytest.approx(0.5 + 0.5 + 0.25)


def test_a_wall_clock_that_is_set_back_stops_the_counter_for_seconds_only(
    counters: Counters, clock: FakeClock
) -> None:
    """Samples bear the time of day: after a step back all would look old for an hour."""
    counters.rows = [(10_000_000_000, 100)]
    one = busy(counters)
    counters.rows = [(6_400_000_000, 100)]
    for _ in range(12):
        clock.advance(1)
        counters.rows.append((counters.rows[-1][0] + 1_000_000, 100))
        total = seconds(one)
    assert total is not None
    assert 0 < total < 2

    clock.advance(1)
    counters.rows.append((counters.rows[-1][0] + 1_000_000, 100))
    assert seconds(one) == pytest.approx(total + 1)


def test_without_samples_the_ratio_is_integrated(counters: Counters, clock: FakeClock) -> None:
    """A driver without samples: the ratio holds since the last read, but not for minutes."""
    counters.error = NOT_SUPPORTED
    one = busy(counters)
    assert seconds(one, 0.5) == 0
    clock.advance(2)
    assert seconds(one, 0.5) == pytest.approx(1)
    clock.advance(60)
    assert seconds(one, 1.0) == pytest.approx(1), "a long gap is not counted"
    clock.advance(1)
    assert seconds(one, 1.0) == pytest.approx(2)
    clock.advance(1)
    assert seconds(one, None) is None, "no ratio, no counter: nothing is made up"
    clock.advance(1)
    assert seconds(one, 1.0) == pytest.approx(2)


def test_samples_of_a_product_that_lies_are_not_asked_for(counters: Counters) -> None:
    """Thor answers 0 % with success (rezolus 1105)."""
    counters.rows = [(1_000_000, 0)]
    thor = Identity(*LABELS, name="NVIDIA Thor")

    assert seconds(busy(counters, identity=thor)) is None


# ---- through the bindings and a child ---------------------------------------------------------


def totals_of(source: Isolated) -> dict[Metric, float | None]:
    page = read(source)
    counters = [metric for metric, _ in WAVES.values()]
    return {metric: page.one(metric, "0") for metric in (*counters, c.GPU_BUSY_SECONDS_TOTAL)}


def test_seconds_equal_the_truth_through_jitter_gaps_and_a_killed_child(
    child: Child, passing: Time
) -> None:
    """GPM counts what a child saw, to the last digit; utilization also what the driver kept.

    A gap of 15 s is one of missed reads; the child is killed in the middle and is away for 4 s.
    """
    utilization = Wave(0, 100, 4)
    lines = [f"0 gpm {number} = {wave}" for number, (_, wave) in WAVES.items()]
    lines.append(f"0 samples 1 = u32 {utilization}")
    source = child("h200", lines, module=STANDING, processes=False)
    dice = random.Random(7)

    read(source)
    spans = [[passing.now, passing.now]]
    for step in range(40):
        passing.forward(15.0 if step == 20 else dice.uniform(0.55, 2.5))
        if step == 30:
            assert source.pid is not None
            os.kill(source.pid, signal.SIGKILL)
            with pytest.raises(ConnectionError):
                source.read()
            passing.forward(4)
            read(source)
            spans.append([passing.now, passing.now])
        else:
            told = totals_of(source)
            spans[-1][1] = passing.now

    for metric, wave in WAVES.values():
        truth = sum(wave.over(*span) for span in spans) / 100
        assert told[metric] == pytest.approx(truth, rel=1e-9), metric.name
    # Whole percents of sixths of a second: the first and the last of them may be cut.
    truth = utilization.over(spans[0][0], spans[-1][1]) / 100
    assert told[c.GPU_BUSY_SECONDS_TOTAL] == pytest.approx(truth, abs=0.4)


def test_a_gap_beyond_the_limits_is_not_counted_through_the_child(
    child: Child, passing: Time
) -> None:
    """Eleven minutes without a read: GPM begins anew; of utilization the driver kept 20 s."""
    lines = [f"* gpm {SM} = 50.0", "* samples 1 = u32 50"]
    source = child("h200", lines, module=STANDING, processes=False)
    read(source)
    passing.forward(10)
    before = totals_of(source)
    assert before[c.GPU_SM_ACTIVE_SECONDS_TOTAL] == pytest.approx(5)

    passing.forward(660)
    after = totals_of(source)
    assert after[c.GPU_SM_ACTIVE_SECONDS_TOTAL] is None
    passing.forward(2)
    after = totals_of(source)

    assert after[c.GPU_SM_ACTIVE_SECONDS_TOTAL] == pytest.approx(5 + 1)
    was, is_now = before[c.GPU_BUSY_SECONDS_TOTAL], after[c.GPU_BUSY_SECONDS_TOTAL]
    assert was is not None
    assert is_now is not None
    assert 11 <= is_now - was < 12, "22 seconds at half, of 662"


def test_a_hang_of_one_gpu_is_counted_when_it_ends(
    child: Child, control: Control, passing: Time
) -> None:
    """A GPU that is silent for some reads keeps its window: the counters cover the silence."""
    source = child("h100-sxm8", ["* gpm 2 = 50.0"], module=STANDING, budget=1.0)
    read(source)
    passing.forward(2)
    assert read(source).one(c.GPU_SM_ACTIVE_SECONDS_TOTAL, "3") == pytest.approx(1)

    control.add("3 nvmlDeviceGetUtilizationRates = hang")
    for _ in range(3):
        passing.forward(2)
        assert read(source).one(c.GPU_SM_ACTIVE_SECONDS_TOTAL, "3") is None
    control.remove("3 nvmlDeviceGetUtilizationRates = hang")
    for _ in range(1000):
        passing.forward(0.01)
        if (page := read(source)).one(c.GPU_UP, "3"):
            break

    assert page.one(c.GPU_SM_ACTIVE_SECONDS_TOTAL, "3") == pytest.approx(
        page.one(c.GPU_SM_ACTIVE_SECONDS_TOTAL, "4"), abs=0.3
    )
