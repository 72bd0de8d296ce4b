"""What every derivation is: a function of the board, with a bounded memory."""

from __future__ import annotations

import math
import random

import pytest

from exporter import catalogue as c
from exporter.derive import DERIVATIONS, HOUR, Integral, Memory, Window, readings
from exporter.reference.accelerators import load
from exporter.samples import Gate, Health, Sample, SourceView, View


def board(*sources: tuple[float, list[Sample]]) -> View:
    """Return a view of sources, each with its age in seconds and what it read."""
    return View(
        tuple(
            SourceView(f"s{i}", "gpu", "up", Health(), batch=Gate(100).admit(samples)[0], age=age)
            for i, (age, samples) in enumerate(sources)
        ),
        (),
    )


# ---------------------------------------------------------------- the table


@pytest.mark.parametrize("name", DERIVATIONS)
def test_a_row_of_the_table_says_what_it_is(name: str) -> None:
    """Name, group, inputs and outputs fit each other and the catalogue."""
    derivation = DERIVATIONS[name](load())
    assert derivation.name == name
    assert derivation.outputs
    assert {metric.group for metric in derivation.outputs} == {derivation.group}
    assert not set(derivation.inputs) & set(derivation.outputs), "it would feed itself"
    rows = [getattr(c, row) for row in dir(c) if row.isupper()]
    assert all(
        any(metric is row for row in rows) for metric in (*derivation.inputs, *derivation.outputs)
    )


@pytest.mark.parametrize("name", DERIVATIONS)
def test_an_empty_board_gives_nothing(name: str) -> None:
    """No input, no output."""
    derivation = DERIVATIONS[name](load())
    assert list(derivation.function(board(), Memory(), 1000.0)) == []


# ---------------------------------------------------------------- readings


def test_readings_know_when_they_were_taken() -> None:
    """A reading carries the time of its own source, not that of the round."""
    view = board(
        (0.25, [c.GPU_TENSOR_ACTIVE_RATIO(0.5, "0", "a")]),
        (2.0, [c.GPU_TENSOR_ACTIVE_RATIO(0.7, "1", "b"), c.HOST_CPUS(4)]),
    )
    assert list(readings(view, c.GPU_TENSOR_ACTIVE_RATIO, 1000.0)) == [
        (("0", "a"), 0.5, 999.75),
        (("1", "b"), 0.7, 998.0),
    ]


def test_what_is_not_a_finite_number_is_no_reading() -> None:
    """A NaN or an infinite gauge is left out, and its neighbours are not."""
    values = [math.nan, math.inf, 0.0]
    view = board((0, [c.GPU_TENSOR_ACTIVE_RATIO(v, str(i), "") for i, v in enumerate(values)]))
    assert [r.value for r in readings(view, c.GPU_TENSOR_ACTIVE_RATIO, 1000.0)] == [0.0]


# ---------------------------------------------------------------- integrals


def test_the_first_reading_is_a_baseline() -> None:
    """Nobody knows how long the first rate had held: it adds nothing."""
    integral = Integral(longest_gap=10)
    assert integral.add(100.0, 5.0) == 0.0
    assert integral.add(101.0, 5.0) == 5.0


def test_an_integral_is_exact_under_jitter() -> None:
    """However unevenly readings come, the sum is each rate times the time since the last one."""
    dice = random.Random(7)
    integral, taken, exact = Integral(longest_gap=10), 100.0, 0.0
    integral.add(taken, 1.0)
    for _ in range(1000):
        step, rate = dice.uniform(0.01, 9.0), dice.uniform(0, 1e15)
        taken += step
        exact += step * rate
        integral.add(taken, rate)
        integral.add(taken, rate)  # seen twice
    assert integral.total == pytest.approx(exact, rel=1e-9)


def test_a_gap_is_not_integrated() -> None:
    """Longer than the limit without a reading: unknown, so left out; then it goes on from there."""
    integral = Integral(longest_gap=10)
    integral.add(100.0, 1.0)
    assert integral.add(110.0, 1.0) == 10.0, "just within the limit"
    assert integral.add(120.1, 1.0) == 10.0, "beyond it"
    assert integral.add(121.1, 3.0) == 13.0


@pytest.mark.parametrize("rate", [-1.0, math.nan, math.inf])
def test_a_rate_that_makes_no_sense_is_no_reading(rate: float) -> None:
    """The counter neither falls nor stops being a number; the next reading covers the time."""
    integral = Integral(longest_gap=10)
    integral.add(100.0, 1.0)
    assert integral.add(101.0, rate) == 0.0
    assert integral.add(102.0, 2.0) == 4.0


def test_an_integral_never_goes_back() -> None:
    """A reading older than the last one is ignored."""
    integral = Integral(longest_gap=10)
    integral.add(100.0, 1.0)
    integral.add(102.0, 1.0)
    assert integral.add(101.0, 9.0) == 2.0
    assert integral.add(103.0, 1.0) == 3.0


# ---------------------------------------------------------------- windows


def test_a_window_holds_its_seconds() -> None:
    """What is older than the window is gone; what is no newer than the last never came."""
    window = Window(seconds=5, most=100)
    for taken in (1.0, 2.0, 2.0, 1.5, 6.0, 7.0):
        window.add(taken, taken * 10)
    assert window.since(7.0) == [(2.0, 20.0), (6.0, 60.0), (7.0, 70.0)]
    assert window.since(20.0) == []


def test_a_window_is_a_ring() -> None:
    """It never holds more than so many readings, whatever comes in its time."""
    window = Window(seconds=HOUR, most=10)
    for i in range(100):
        window.add(float(i), i)
    assert [value for _, value in window.since(100.0)] == list(range(90, 100))


@pytest.mark.parametrize("seconds", [0, -1, 3601])
def test_a_window_is_at_most_an_hour(seconds: float) -> None:
    """Longer ones are for recording rules."""
    with pytest.raises(ValueError, match="at most 3600 seconds"):
        Memory().window("w", seconds=seconds)


# ---------------------------------------------------------------- memory


def test_memory_finds_things_by_name() -> None:
    """The same name is the same thing, another one is not; integrals and windows are apart."""
    memory = Memory()
    one = memory.integral("0", "a", longest_gap=10)
    assert memory.integral("0", "a", longest_gap=10) is one
    assert memory.integral("0", "b", longest_gap=10) is not one
    window = memory.window("0", "a", seconds=60)
    assert memory.window("0", "a", seconds=60) is window


def test_memory_forgets_what_is_not_used_for_an_hour() -> None:
    """A board that came back sooner goes on counting where it stood."""
    memory = Memory()
    memory.begin(1000.0)
    kept = memory.integral("kept", longest_gap=10)
    gone = memory.integral("gone", longest_gap=10)
    memory.begin(1000.0 + HOUR)
    assert memory.integral("kept", longest_gap=10) is kept
    memory.begin(1001.0 + HOUR)
    assert memory.integral("kept", longest_gap=10) is kept
    assert memory.integral("gone", longest_gap=10) is not gone


def test_memory_is_bounded() -> None:
    """A flood of identities leaves only so many: those that were used last."""
    memory = Memory(most=10)
    first = memory.integral("first", longest_gap=10)
    for i in range(100):
        memory.begin(1000.0 + i)
        memory.integral(f"uuid-{i}", longest_gap=10).add(1.0, 1.0)
        memory.window(f"uuid-{i}", seconds=60)
    memory.begin(2000.0)
    assert len(memory._integrals) == len(memory._windows) == 10
    assert memory.integral("first", longest_gap=10) is not first
    assert ("uuid-99",) in memory._integrals
