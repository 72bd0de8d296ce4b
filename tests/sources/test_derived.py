"""A derivation as a source: run by the same runner, with the same health, as any other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from exporter import catalogue as c
from exporter.board import Board, Slot
from exporter.derive import Derivation, Memory, hardware
from exporter.derive.memory import HOUR
from exporter.reference.accelerators import load
from exporter.runner import Runner, Schedule
from exporter.samples import Fault, Malformed, Remembered, Sample, Source, View
from exporter.sources.derived import DerivedSource
from tests.fakes import FakeClock, FakeSource

EACH_SECOND = Schedule(interval=1.0, deadline=1.0)


def busy(view: View, memory: Memory, now: float) -> Iterator[Sample]:
    """Yield the integral of every GPU's utilization."""
    for sample in view.samples(c.GPU_UTILIZATION_RATIO):
        integral = memory.integral(*sample.labels, longest_gap=10)
        yield c.GPU_BUSY_SECONDS_TOTAL(integral.add(now, float(sample.value)), *sample.labels)  # type: ignore[arg-type]


BUSY = Derivation("busy", c.GPU, (c.GPU_UTILIZATION_RATIO,), (c.GPU_BUSY_SECONDS_TOTAL,), busy)


def enroll(board: Board, source: Source, clock: FakeClock) -> Slot:
    return board.enroll(
        source.name, source.group, EACH_SECOND.deadline, EACH_SECOND.max_age, clock.monotonic()
    )


def test_it_is_a_source_like_any_other() -> None:
    """Its name says what is derived; its samples stand on the board beside what they come from."""
    clock, board = FakeClock(), Board()
    driver = FakeSource("nvml", c.GPU, [c.GPU_UTILIZATION_RATIO(0.5, "0", "a")])
    derived: Source = DerivedSource(BUSY, board.view, clock)
    assert (derived.name, derived.group) == ("derive:busy", "gpu")
    runners = [Runner(s, EACH_SECOND, enroll(board, s, clock), clock) for s in (driver, derived)]

    for _ in range(4):
        for runner in runners:
            runner.step()
        clock.advance(1.0)

    view = board.view(clock.monotonic())
    assert view.samples(c.GPU_BUSY_SECONDS_TOTAL) == [c.GPU_BUSY_SECONDS_TOTAL(1.5, "0", "a")]
    assert [source.state for source in view.sources] == ["up", "up"]
    derived.close()


def test_a_source_that_hangs_takes_what_is_derived_with_it() -> None:
    """Once its reading is too old, nothing is derived from it, and nothing is wrong here."""
    clock, board = FakeClock(), Board()
    driver = FakeSource("nvml", c.GPU, [c.GPU_UTILIZATION_RATIO(0.5, "0", "a")])
    derived = DerivedSource(BUSY, board.view, clock)
    slots = [enroll(board, source, clock) for source in (driver, derived)]
    Runner(driver, EACH_SECOND, slots[0], clock).step()
    runner = Runner(derived, EACH_SECOND, slots[1], clock)
    runner.step()
    assert board.view(clock.monotonic()).samples(c.GPU_BUSY_SECONDS_TOTAL)

    clock.advance(EACH_SECOND.max_age + 0.1)
    runner.step()

    view = board.view(clock.monotonic())
    assert view.samples(c.GPU_BUSY_SECONDS_TOTAL) == []
    assert [source.state for source in view.sources] == ["stale", "up"]


def test_a_derivation_that_breaks_is_a_bug_of_its_own() -> None:
    """The runner reports it under its name; what others read stays."""

    def broken(view: View, memory: Memory, now: float) -> Iterator[Sample]:
        yield c.GPU_BUSY_SECONDS_TOTAL(1 / (now - now), "0", "a")

    clock, board = FakeClock(), Board()
    derived = DerivedSource(BUSY._replace(function=broken), board.view, clock)
    Runner(derived, EACH_SECOND, enroll(board, derived, clock), clock).step()

    (seen,) = board.view(clock.monotonic()).sources
    assert (seen.state, seen.health.failures) == ("failed", {"bug": 1})


def test_its_memory_is_its_own_and_forgets() -> None:
    """Two sources of one derivation count apart; what is away for an hour begins again."""
    clock, board = FakeClock(), Board()
    driver = FakeSource("nvml", c.GPU, [c.GPU_UTILIZATION_RATIO(1.0, "0", "a")])
    runner = Runner(driver, EACH_SECOND, enroll(board, driver, clock), clock)
    first, second = (DerivedSource(BUSY, board.view, clock) for _ in range(2))

    def step(source: DerivedSource) -> float:
        runner.step()
        (sample,) = source.read()
        assert isinstance(sample, Sample)
        assert isinstance(sample.value, float)
        return sample.value

    assert step(first) == 0.0
    clock.advance(2.0)
    assert (step(first), step(second)) == (2.0, 0.0)
    clock.advance(HOUR + 1)
    assert step(first) == 0.0


def test_the_hardware_on_a_real_board() -> None:
    """Peaks and counter through runner and board: an H100 at half activity for three seconds."""
    clock, board = FakeClock(), Board()
    key = ("0", "GPU-0")
    driver = FakeSource(
        "nvml",
        c.GPU,
        [
            c.GPU_INFO(
                1, *key, "NVIDIA H100 80GB HBM3", "", "2330", "", "", "", "16896", "", "", "none"
            ),
            c.GPU_CLOCK_HERTZ(1830e6, *key, "sm"),
            c.GPU_TENSOR_ACTIVE_RATIO(0.5, *key),
        ],
    )
    derived = DerivedSource(hardware(load()), board.view, clock)
    runners = [Runner(s, EACH_SECOND, enroll(board, s, clock), clock) for s in (driver, derived)]

    for _ in range(4):
        for runner in runners:
            runner.step()
            clock.advance(0.01)  # the round sees a reading that is a little old
        clock.advance(0.98)

    view = board.view(clock.monotonic())
    (total,) = view.samples(c.GPU_ESTIMATED_FLOPS_TOTAL)
    assert total.labels == (*key, "bf16")
    assert isinstance(total.value, float)
    assert abs(total.value / (3 * 0.5 * 989.4e12) - 1) < 1e-9
    (peak,) = [s for s in view.samples(c.GPU_PEAK_FLOPS) if s.labels[-1] == "bf16"]
    assert peak.value == 989_400_000_000_000


# ---------------------------------------------------------------- what outlives it


class Counts:
    """Counts its rounds, and remembers them."""

    def __init__(self) -> None:
        self.rounds = 0
        self.restored: tuple[object, float, float, bool] | None = None

    def derivation(self) -> Derivation:
        def restore(memory: object, now: float, age: float, final: bool) -> None:
            self.restored = memory, now, age, final
            if not isinstance(memory, int):
                raise Malformed("no number")
            self.rounds = memory

        return BUSY._replace(function=self.run, memory=lambda: self.rounds, restore=restore)

    def run(self, view: View, memory: Memory, now: float) -> Iterator[Sample]:
        self.rounds += 1
        yield c.GPU_BUSY_SECONDS_TOTAL(self.rounds, "0", "a")


def kept_by(
    clock: FakeClock, memories: dict[str, Any], **more: Any
) -> tuple[Counts, DerivedSource]:
    counts = Counts()
    source = DerivedSource(counts.derivation(), Board().view, clock, memories=memories, **more)
    return counts, source


def test_a_successor_goes_on_after_a_reload() -> None:
    """What the predecessor knew at its last round, with its age; nothing was told after it."""
    clock, memories = FakeClock(100.0), dict[str, Any]()
    _, first = kept_by(clock, memories)
    first.read()
    first.read()
    assert memories == {}
    first.close()
    clock.advance(7)
    counts, second = kept_by(clock, memories)
    assert list(second.read()) == [c.GPU_BUSY_SECONDS_TOTAL(3, "0", "a")]
    assert counts.restored == (2, 107.0, 7.0, True)
    assert memories["derive:busy"].final is False  # from now on more is told
    second.close()
    assert memories["derive:busy"] == Remembered(3, 107.0, True)


def test_what_was_told_since_the_last_round_is_known_to_the_successor() -> None:
    """Steps that a job pushed in the last seconds were answered: none comes again."""
    clock, memories = FakeClock(100.0), dict[str, Any]()
    _, source = kept_by(clock, memories, last_round=True)
    source.read()
    clock.advance(4)
    source.close()
    assert memories["derive:busy"] == Remembered(2, 104.0, True)


def test_a_last_round_that_fails_leaves_what_was_known_before() -> None:
    """The daemon ends all the same."""
    clock, memories = FakeClock(100.0), dict[str, Any]()
    counts, source = kept_by(clock, memories, last_round=True)
    source.read()
    source._view = lambda now: View(1 / 0, ())  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        source.close()
    assert memories["derive:busy"] == Remembered(1, 100.0, True)
    assert counts.rounds == 1


def test_it_is_kept_every_so_often_for_those_who_come_after_a_kill() -> None:
    """Not at each round: writing costs; and not before the interval has passed."""
    clock, memories = FakeClock(100.0), dict[str, Any]()
    _, source = kept_by(clock, memories, keep_every=10)
    seen = []
    for _ in range(25):
        source.read()
        seen.append(memories.get("derive:busy"))
        clock.advance(1)
    assert set(seen) == {None, Remembered(11, 110.0), Remembered(21, 120.0)}


def test_what_an_earlier_process_has_left_is_fetched_before_the_first_round() -> None:
    """Once; later rounds do not ask again."""
    clock, memories = FakeClock(100.0), dict[str, Any]()
    asked = []

    def recall() -> None:
        asked.append(clock.now)
        memories["derive:busy"] = Remembered(41, 95.0)

    counts, source = kept_by(clock, memories, recall=recall)
    source.read()
    source.read()
    assert asked == [100.0]
    assert counts.restored == (41, 100.0, 5.0, False)


def test_a_memory_that_is_refused_costs_nothing_but_that() -> None:
    """Told once, as a part that could not be read; the round goes on from nothing."""
    clock = FakeClock(100.0)
    _, source = kept_by(clock, {"derive:busy": Remembered("x", 99.0, True)})
    sample, fault = source.read()
    assert fault == Fault("memory", "malformed", "Malformed: no number")
    assert sample == c.GPU_BUSY_SECONDS_TOTAL(1, "0", "a")
    assert list(source.read()) == [c.GPU_BUSY_SECONDS_TOTAL(2, "0", "a")]


def test_one_that_never_had_a_round_leaves_what_it_was_given() -> None:
    """A daemon that is stopped at once does not forget."""
    clock = FakeClock(100.0)
    memories: dict[str, Any] = {"derive:busy": Remembered(5, 90.0, True)}
    kept_by(clock, memories)[1].close()
    assert memories["derive:busy"] == Remembered(5, 90.0, True)
