"""Threads for drivers: a call that hangs costs nobody but its own device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from exporter.clock import SystemClock
from exporter.workers import Crew, Stuck, Unbegun
from tests.fakes import FakeClock

LONG = 60.0
"""Seconds that no test waits for: who is late is kept by a gate, not by time."""


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Return what a hanging call waits for; opened at the end, whatever happened."""
    one = threading.Event()
    yield one
    one.set()


@pytest.fixture
def crew() -> Iterator[Crew]:
    one = Crew(SystemClock())
    yield one
    one.dismiss()


def hangs(gate: threading.Event) -> Callable[[], str]:
    def job() -> str:
        gate.wait()
        return "late"

    return job


def wait_for(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(3000):
        if condition():
            return
        pause.wait(0.01)
    pytest.fail("never")


def test_each_job_has_its_result(crew: Crew) -> None:
    """By name, whatever the thread that did it."""
    assert crew.run({"a": lambda: 1, "b": lambda: 2, "c": lambda: 3}, LONG) == {
        "a": 1,
        "b": 2,
        "c": 3,
    }
    assert crew.run({}, LONG) == {}


def test_the_caller_does_no_job_itself(crew: Crew) -> None:
    """A call that hangs must not hang the one that has a deadline to keep."""
    assert crew.run({"a": threading.get_ident}, LONG)["a"] != threading.get_ident()


def test_quick_jobs_share_a_thread(crew: Crew) -> None:
    """Threads that call at once only wait for one another; none is made without need."""
    before = threading.active_count()
    for _ in range(5):
        crew.run({str(name): lambda: None for name in range(8)}, LONG)

    # A second one where the first was not given its time within 20 ms.
    assert threading.active_count() - before <= 2


def test_whatever_a_job_raises_is_its_result(crew: Crew) -> None:
    """Even what ends a thread elsewhere; the others never know."""

    def raises() -> int:
        raise SystemExit(3)

    results = crew.run({"a": raises, "b": lambda: 1}, LONG)

    assert isinstance(results["a"], SystemExit)
    assert results["b"] == 1
    assert crew.run({"a": lambda: 2}, LONG) == {"a": 2}


def test_nothing_and_errors_may_be_returned(crew: Crew) -> None:
    """A job may return nothing, or an error that it does not raise."""
    error = ValueError("given back")

    assert crew.run({"a": lambda: None, "b": lambda: error}, LONG) == {"a": None, "b": error}


def test_one_that_hangs_is_stuck_at_the_deadline_and_the_others_are_back(
    crew: Crew, gate: threading.Event
) -> None:
    """Wherever it stands among them."""
    jobs: dict[str, Callable[[], str]] = {str(n): lambda: "back" for n in range(8)}
    results = crew.run({**jobs, "3": hangs(gate)}, 1.0)

    stuck = results.pop("3")
    assert isinstance(stuck, Stuck)
    assert isinstance(stuck, TimeoutError)
    assert stuck.seconds > 0
    assert results == {str(n): "back" for n in range(8) if n != 3}
    assert crew.away()


def test_all_may_hang(crew: Crew, gate: threading.Event) -> None:
    """Each is put to a thread of its own at last, and the caller goes on at the deadline."""
    results = crew.run({str(n): hangs(gate) for n in range(8)}, 1.0)

    assert len(results) == 8
    assert all(isinstance(one, Stuck) for one in results.values())
    assert crew.run({"other": lambda: 1}, LONG) == {"other": 1}


def test_one_that_is_stuck_is_not_begun_again_and_costs_no_time(gate: threading.Event) -> None:
    """The driver is not called again; how long the call has been away is told at once."""
    clock = FakeClock()
    crew = Crew(clock)
    done: list[str] = []
    crew.run({"a": hangs(gate)}, 0.1)
    assert crew.away()

    clock.advance(7)
    results = crew.run({"a": lambda: done.append("second"), "b": lambda: None}, LONG)

    stuck = results["a"]
    assert isinstance(stuck, Stuck)
    assert stuck.seconds == 7
    assert "7.0 s" in str(stuck)
    assert results["b"] is None
    gate.set()
    wait_for(lambda: not crew.away())
    assert done == [], "not put off, either"
    crew.dismiss()


def test_a_late_answer_is_thrown_away(crew: Crew, gate: threading.Event) -> None:
    """What comes after its time is old: the next job's answer is the next job's."""
    assert isinstance(crew.run({"a": hangs(gate)}, 0.1)["a"], Stuck)
    gate.set()
    wait_for(lambda: not crew.away())

    assert crew.run({"a": lambda: "new"}, LONG) == {"a": "new"}


def test_what_was_not_begun_in_time_is_never_begun(crew: Crew, gate: threading.Event) -> None:
    """Without any time everything is late, and stays undone."""
    done: list[int] = []

    results = crew.run({"a": lambda: done.append(1)}, 0.0)

    assert isinstance(results["a"], Unbegun)
    assert crew.run({"b": lambda: 2}, LONG) == {"b": 2}
    assert done == []
    assert not crew.away()


def test_threads_of_hung_calls_are_used_again(crew: Crew, gate: threading.Event) -> None:
    """A driver that hangs now and then does not make more and more threads."""
    counts = []
    for _ in range(5):
        own = threading.Event()
        crew.run({"a": hangs(own), "b": lambda: "back"}, 0.2)
        own.set()
        wait_for(lambda: not crew.away())
        counts.append(threading.active_count())

    assert counts[-1] <= counts[0] + 1


def test_who_is_dismissed_ends(gate: threading.Event) -> None:
    """At once who is free; who is stuck when its call returns. New jobs find new threads."""
    before = set(threading.enumerate())
    crew = Crew(SystemClock())
    crew.run({"a": hangs(gate), "b": lambda: 1}, 0.2)
    made = set(threading.enumerate()) - before
    assert all(one.daemon for one in made), "none of them keeps a process alive"

    crew.dismiss()
    wait_for(lambda: sum(one.is_alive() for one in made) == 1)
    assert crew.run({"b": lambda: "new"}, LONG) == {"b": "new"}
    crew.dismiss()
    gate.set()

    wait_for(lambda: not set(threading.enumerate()) - before)
