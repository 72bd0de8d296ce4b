"""The runner: beats, backoff, health, and what a misbehaving source does to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

import pytest

from exporter import catalogue as c
from exporter.board import Board
from exporter.clock import SystemClock
from exporter.runner import LONGEST_BACKOFF, Runner, Schedule
from exporter.samples import Drop, Fault, Released, Sample, SourceView
from tests.fakes import FakeClock, FakeSource


class Rig:
    """A runner on a board, with a clock in hand."""

    def __init__(self, source: FakeSource, interval: float = 5.0, max_series: int = 100) -> None:
        self.clock = FakeClock()
        self.board = Board()
        schedule = Schedule(interval, 2.0, max_series)
        slot = self.board.enroll("fake", "host", 2.0, schedule.max_age, self.clock.monotonic())
        self.runner = Runner(source, schedule, slot, self.clock)

    def step(self) -> float:
        return self.runner.step()

    def view(self) -> SourceView:
        (view,) = self.board.view(self.clock.monotonic()).sources
        return view


def raising(error: BaseException) -> FakeSource:
    def act() -> Iterable[Sample]:
        raise error

    return FakeSource(act=act)


@pytest.mark.parametrize("now", [1000.0, 1001.9, 1003.1, 1004.99])
def test_sources_that_began_apart_are_read_together(now: float) -> None:
    """Beats are the clock's, from the second on; and after a failure too."""
    fails = [False, True, True, False]

    def act() -> Iterable[Sample]:
        if fails and fails.pop(0):
            raise OSError
        return [c.HOST_CPUS(4)]

    rig = Rig(FakeSource(act=act))
    rig.clock.advance(now - rig.clock.monotonic())
    rig.runner = Runner(
        rig.runner.source, Schedule(5.0, 2.0, after=0.5), rig.runner.slot, rig.clock
    )
    begun = []
    for _ in range(7):
        begun.append(rig.clock.monotonic())
        rig.clock.advance(rig.step())

    assert 2.5 <= begun[1] - begun[0] <= 7.5
    assert begun[1] % 5 == pytest.approx(0.5)
    assert begun[3] - begun[2] == 10, "it had failed twice"
    assert [at % 5 for at in begun[5:]] == [pytest.approx(0.5)] * 2


def test_a_read_is_published_with_its_faults_and_drops() -> None:
    """A partial snapshot keeps what was read well."""
    rig = Rig(FakeSource(items=[c.HOST_CPUS(4), Fault("eth0", "io", "x"), Drop("malformed", 3)]))

    rig.step()

    view = rig.view()
    assert list(view.batch) == [c.HOST_CPUS(4)]
    assert view.state == "degraded"
    assert view.health.failures == {"io": 1}
    assert view.health.drops == {"malformed": 3}


def test_beats_do_not_drift() -> None:
    """The wait makes up for the time that the read took."""
    source = FakeSource()
    rig = Rig(source)

    def act() -> Iterable[Sample]:
        rig.clock.advance(0.7)
        return [c.HOST_CPUS(4)]

    source.act = act
    waits = []
    for _ in range(3):
        waits.append(rig.step())
        rig.clock.advance(waits[-1])

    assert waits == [pytest.approx(4.3)] * 3
    assert rig.clock.monotonic() == pytest.approx(1015)


def test_a_missed_beat_is_not_made_up_for() -> None:
    """After a read of eleven seconds the next one waits for the next multiple of five."""
    source = FakeSource()
    rig = Rig(source)
    source.act = lambda: rig.clock.advance(11) or [c.HOST_CPUS(4)]  # type: ignore[func-returns-value]

    assert rig.step() == pytest.approx(4)


def test_backoff_doubles_up_to_a_minute_and_ends_with_success() -> None:
    """A dead server is not hammered; one that recovers is back on the beat at once."""
    source = raising(ConnectionRefusedError("refused"))
    rig = Rig(source)

    waits = []
    for _ in range(7):
        waits.append(rig.step())
        rig.clock.advance(waits[-1])
    source.act = None
    source.items = [c.HOST_CPUS(4)]
    back = rig.step()

    assert waits == [5, 10, 20, 40, 60, 60, 60]
    assert max(waits) == LONGEST_BACKOFF
    assert back <= 5
    assert rig.view().state == "up"


def test_a_failed_read_takes_the_former_samples_along() -> None:
    """Unknown is absent: never the last value."""
    source = FakeSource(items=[c.HOST_CPUS(4)])
    rig = Rig(source)
    rig.step()

    source.act = raising(PermissionError("no")).act
    rig.step()

    assert len(rig.view().batch) == 0
    assert rig.view().health.failures == {"denied": 1}
    assert rig.view().state == "failed"


def test_a_bug_is_told_once_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Log a change, not a cycle."""
    rig = Rig(raising(KeyError("surprise")))

    with caplog.at_level(logging.INFO):
        for _ in range(5):
            rig.step()

    assert len(caplog.records) == 1
    assert caplog.records[0].exc_info is not None


def test_recovery_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """An operator who saw the failure sees its end."""
    source = raising(ConnectionRefusedError("refused"))
    rig = Rig(source)
    with caplog.at_level(logging.INFO):
        rig.step()
        source.act, source.items = None, [c.HOST_CPUS(4)]
        rig.step()

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "recovered" in caplog.text


def test_more_series_than_the_cap_are_dropped() -> None:
    """The cap keeps a source from flooding the page."""
    rig = Rig(FakeSource(items=[c.HOST_LOAD_AVERAGE(1.0, str(i)) for i in range(7)]), max_series=5)

    rig.step()

    assert len(rig.view().batch) == 5
    assert rig.view().health.drops == {"cap": 2}
    assert rig.view().faults == (
        Fault("max_series", "denied", "2 series beyond max_series (5) are left out"),
    )


def test_the_thread_ends_and_closes_its_source() -> None:
    """`stop` returns at once; the thread ends after its read."""
    source = FakeSource(items=[c.HOST_CPUS(4)])
    board = Board()
    clock = SystemClock()
    slot = board.enroll("fake", "host", 2.0, 12.0, clock.monotonic())
    runner = Runner(source, Schedule(3600, 2.0), slot, clock)

    runner.start()
    runner.stop()

    assert runner.join(10)
    assert source.closed.is_set()


def test_a_replacement_waits_for_its_stuck_predecessor() -> None:
    """Never two readers of one stuck device."""
    gate = threading.Event()

    def hang() -> Iterable[Sample]:
        gate.wait(30)
        return []

    board, clock = Board(), SystemClock()
    slot = board.enroll("fake", "host", 2.0, 12.0, clock.monotonic())
    old = Runner(FakeSource(act=hang), Schedule(3600, 2.0), slot, clock)
    replacement = FakeSource(items=[c.HOST_CPUS(4)])
    new = Runner(replacement, Schedule(3600, 2.0), slot, clock)
    old.start()

    old.stop()
    new.start(old)
    threading.Event().wait(0.2)
    assert replacement.reads == 0

    gate.set()
    assert old.join(10)
    for _ in range(500):
        if replacement.reads:
            break
        threading.Event().wait(0.02)
    new.stop()
    assert new.join(10)
    assert replacement.reads == 1


def test_a_successor_of_a_successor_waits_as_well() -> None:
    """Removed and added again and again: still one reader in the stuck device."""
    gate, inside = threading.Event(), []

    def hang() -> Iterable[Sample]:
        inside.append(1)
        gate.wait(30)
        return []

    board, clock = Board(), SystemClock()
    slot = board.enroll("fake", "host", 2.0, 12.0, clock.monotonic())
    runners: list[Runner] = []
    for _ in range(5):
        runner = Runner(FakeSource(act=hang), Schedule(3600, 2.0), slot, clock)
        runner.start(runners[-1] if runners else None)
        threading.Event().wait(0.05)
        runner.stop()
        runners.append(runner)
    assert not runners[-1].join(0.2), "the first one still reads"

    gate.set()

    assert all(runner.join(10) for runner in runners)
    assert len(inside) == 1


def test_a_source_that_was_asked_to_pause_is_read_again_in_time() -> None:
    """Refusals while a driver is released are no failures to back off from."""

    def released() -> Iterable[Sample]:
        raise Released(30)

    rig = Rig(FakeSource(act=released), interval=1.0)

    waits = []
    for _ in range(10):
        waits.append(rig.step())
        rig.clock.advance(waits[-1])

    assert waits == [1.0] * 10
    assert rig.board.view(rig.clock.monotonic()).sources[0].state == "failed"
