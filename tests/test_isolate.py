"""Sources in child processes: what a hang, a crash or a bug over there means over here."""

from __future__ import annotations

import os
import pickle
import signal
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter import catalogue as c
from exporter import isolate
from exporter.clock import SystemClock
from exporter.isolate import Isolated
from exporter.samples import Drop, Event, Fault, Histogram, Malformed, Sample, SourceError
from tests.fakes import FakeClock

Make = Callable[..., Isolated]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Isolated] = []

    def build(name: str, deadline: float = 20.0, **options: object) -> Isolated:
        end_after = options.pop("end_after", 0.0)
        clock = options.pop("clock", None) or SystemClock()
        shared = {key: options.pop(key, None) for key in ("events", "memories", "ending")}
        source = Isolated(
            name, "host", options, deadline=deadline, clock=clock,  # type: ignore[arg-type]
            end_after=end_after, module="tests.children", **shared,  # type: ignore[arg-type]
        )  # fmt: skip
        made.append(source)
        return source

    yield build
    for source in made:
        source.close()


def value_of(source: Isolated) -> float:
    first = next(iter(source.read()))
    assert isinstance(first, Sample)
    return first.value  # type: ignore[return-value]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_everything_a_source_yields_comes_through(make: Make) -> None:
    """Samples, histograms, faults and drops arrive as they were yielded, read after read."""
    source = make("good", cpus=3)

    first, second = list(source.read()), list(source.read())

    histogram = Histogram((0.1, 1.0), (1, 2, 3), 2.5)
    assert first == [
        c.HOST_CPUS(4),
        c.HOST_LOAD_AVERAGE(0.5, "1m"),
        c.LLM_TTFT_SECONDS(histogram, "m", "", "vllm", "s"),
        Fault("gpu3", "io", "lost"),
        Drop("malformed", 2),
    ]
    assert second == [c.HOST_CPUS(5), *first[1:]]


def test_a_driver_that_prints_does_not_disturb_replies(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the child writes to standard output ends on standard error."""
    source = make("good", cpus=3)

    list(source.read())

    out, err = capfd.readouterr()
    assert out == ""
    assert "and one from C" in err


def test_a_hung_child_is_a_timeout_and_gets_no_second_request(make: Make, tmp_path: Path) -> None:
    """While the child hangs each read says so at once; when it answers, reading goes on."""
    gate = tmp_path / "gate"
    source = make("hangs", gate=str(gate), end_after=None)
    assert [value_of(source), value_of(source)] == [1, 2]
    source._deadline = 0.2
    pid = source.pid

    with pytest.raises(TimeoutError):
        source.read()
    with pytest.raises(TimeoutError):
        source.read()
    assert source.pid == pid, "no second child beside a stuck one"

    gate.touch()
    source._deadline = 20.0
    pause = threading.Event()
    for _ in range(200):
        try:
            value = value_of(source)
        except TimeoutError:
            pause.wait(0.05)
            continue
        break
    assert value == 4, "the late reply (3) is thrown away, it is old"


def test_a_child_that_hangs_too_long_is_ended_once(make: Make, tmp_path: Path) -> None:
    """With `end_after` a silent child is killed, and the next read starts a new one."""
    source = make("hangs", gate=str(tmp_path / "never"), end_after=0.0)
    assert [value_of(source), value_of(source)] == [1, 2]
    source._deadline = 0.1
    with pytest.raises(TimeoutError):
        source.read()

    with pytest.raises((ConnectionError, TimeoutError)):
        source.read()
    source._deadline = 20.0
    for _ in range(50):
        try:
            value = value_of(source)
        except (ConnectionError, TimeoutError):
            threading.Event().wait(0.05)
            continue
        break

    assert value == 1


def test_a_segmentation_fault_takes_only_the_child(make: Make) -> None:
    """A crash is reported with its signal, and the next read starts a new child."""
    source = make("crashes")
    assert value_of(source) == 1

    with pytest.raises(ConnectionError, match="SIGSEGV"):
        source.read()

    assert value_of(source) == 1


@pytest.mark.parametrize(
    ("kind", "reason", "text"),
    [("denied", "denied", "no rights"), ("bug", "bug", "Traceback")],
)
def test_a_failed_read_keeps_its_reason(make: Make, kind: str, reason: str, text: str) -> None:
    """What is raised in the child is raised here with the same reason; a bug with its traceback."""
    source = make("raises", kind=kind)

    with pytest.raises(SourceError, match=text) as caught:
        source.read()

    assert caught.value.reason == reason


def test_a_source_that_cannot_be_built_says_why(make: Make) -> None:
    """A missing driver library is `unavailable`, at each read, without a new child each time."""
    source = make("unmakeable")
    pids = set()

    for _ in range(2):
        with pytest.raises(SourceError, match=r"libdriver\.so\.1") as caught:
            source.read()
        assert caught.value.reason == "unavailable"
        pids.add(source.pid)

    assert len(pids) == 1


def test_closing_ends_the_child(make: Make) -> None:
    """After `close` there is no process left."""
    source = make("good", cpus=1)
    list(source.read())
    pid = source.pid
    assert pid is not None

    source.close()

    assert not alive(pid)


def test_closing_kills_a_stuck_child_only_if_that_is_allowed(make: Make, tmp_path: Path) -> None:
    """A child that may not be ended (DCGM: dcgm-exporter 84) is left behind."""
    gate = tmp_path / "gate"
    source = make("hangs", gate=str(gate), end_after=None)
    assert [value_of(source), value_of(source)] == [1, 2]
    source._deadline = 0.1
    with pytest.raises(TimeoutError):
        source.read()
    child, pid = source._child, source.pid
    assert child is not None
    assert pid is not None

    source.close()

    assert alive(pid)
    gate.touch()
    child.wait(20)  # it finds its pipe closed and ends by itself


def stuck(make: Make, gate: Path, **options: object) -> Isolated:
    """Return a source whose child hangs until `gate` exists."""
    source = make("hangs", gate=str(gate), **options)
    assert [value_of(source), value_of(source)] == [1, 2]
    source._deadline = 0.1
    with pytest.raises(TimeoutError):
        source.read()
    return source


def test_a_stuck_child_is_not_forgotten_when_its_source_is_closed(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload lets its source go: closing lasts as long as the child lives, and nobody lies."""
    monkeypatch.setattr(isolate, "_PARTING", 0.1)
    gate = tmp_path / "gate"
    source = stuck(make, gate, end_after=None, ending=threading.Event())
    pid = source.pid
    assert pid is not None
    closer = threading.Thread(target=source.close)
    closer.start()

    closer.join(1.0)

    assert closer.is_alive()
    assert source.pid == pid
    assert source.release(60) is False
    gate.touch()
    closer.join(20)
    assert not closer.is_alive()
    assert not alive(pid)
    assert source.release(60) is True


def test_a_stuck_child_that_is_closed_is_not_killed_before_its_time(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload does not shorten `end_after`; when that is over the child is ended."""
    clock = FakeClock()
    source = stuck(make, tmp_path / "never", end_after=300.0, clock=clock, ending=threading.Event())
    child, began = source._child, clock.now
    assert child is not None
    kills: list[float] = []
    kill = child.kill

    def killed() -> None:
        kills.append(clock.now - began)
        kill()

    monkeypatch.setattr(child, "kill", killed)

    source.close()

    assert child.returncode == -signal.SIGKILL
    assert len(kills) == 1
    assert 300 < kills[0] < 301


@pytest.mark.parametrize("end_after", [300.0, None])
def test_a_stuck_child_does_not_hold_up_the_end_of_the_daemon(
    end_after: float | None, make: Make, tmp_path: Path
) -> None:
    """Whoever waits in `close` gives up at once: the child is ended if that is allowed."""
    gate, ending = tmp_path / "gate", threading.Event()
    source = stuck(make, gate, end_after=end_after, ending=ending)
    child = source._child
    assert child is not None
    closer = threading.Thread(target=source.close)
    closer.start()

    ending.set()
    closer.join(20)

    assert not closer.is_alive()
    if end_after is None:
        assert child.poll() is None
        assert source.pid == child.pid, "and is not forgotten even then"
    gate.touch()
    assert child.wait(20) == (0 if end_after is None else -signal.SIGKILL)


def test_the_second_child_that_hangs_is_ended_as_well(make: Make, tmp_path: Path) -> None:
    """Each is ended once: a driver that hangs again after days must not be silent for good."""
    source = make("hangs", gate=str(tmp_path / "never"), end_after=0.0)
    pause = threading.Event()
    codes = []
    for _ in range(2):
        source._deadline = 20.0
        assert [value_of(source), value_of(source)] == [1, 2]
        source._deadline = 0.1
        child = source._child
        assert child is not None
        for _ in range(200):
            with pytest.raises((ConnectionError, TimeoutError)) as caught:
                source.read()
            if caught.type is ConnectionError:
                break
            pause.wait(0.02)
        codes.append(child.returncode)

    assert codes == [-signal.SIGKILL] * 2


def test_a_reply_may_hold_no_classes(make: Make) -> None:
    """The parent refuses anything but plain values, whatever wrote it."""
    source = make("good", cpus=1)

    with pytest.raises(Malformed, match="may not hold"):
        source._unpack(pickle.dumps(Path("/")))


def test_a_child_that_talks_nonsense_is_ended(make: Make) -> None:
    """A length beyond all reason does not make the parent wait for gigabytes."""
    source = make("good", cpus=1)
    list(source.read())
    source._inbox += struct.pack("<I", 2**32 - 1)

    with pytest.raises(ConnectionError, match=signal.Signals.SIGKILL.name):
        source.read()


def test_a_child_that_closes_its_pipe_and_lives_on_is_silent(make: Make) -> None:
    """It is not waited for, and no second child is started beside it."""
    source = make("mute", end_after=None)
    with pytest.raises(TimeoutError, match="lives on"):
        source.read()
    pid = source.pid

    with pytest.raises(TimeoutError):
        source.read()

    assert source.pid == pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


# ---- what outlives a child ------------------------------------------------------------------


def killed(source: Isolated) -> None:
    """Kill the child and let the parent find out."""
    assert source.pid is not None
    os.kill(source.pid, signal.SIGKILL)
    with pytest.raises(ConnectionError):
        source.read()


def test_what_a_child_remembers_goes_to_its_successor(make: Make) -> None:
    """Counters that a child makes go on after it was killed: the last reply has their state."""
    source = make("remembers")
    assert [value_of(source), value_of(source)] == [1, 2]

    killed(source)

    assert [value_of(source), value_of(source)] == [3, 4]


def test_a_failed_read_does_not_forget(make: Make, tmp_path: Path) -> None:
    """A reply without memory leaves that of the reply before."""
    fail = tmp_path / "fail"
    source = make("remembers", fail=str(fail))
    assert [value_of(source), value_of(source)] == [1, 2]
    fail.touch()
    with pytest.raises(SourceError, match="no rights"):
        source.read()
    fail.unlink()

    killed(source)

    assert value_of(source) == 3


def test_more_than_can_be_handed_over_is_forgotten(make: Make) -> None:
    """Options go through a pipe that nobody reads yet: too much would stop the parent."""
    source = make("remembers", size=40_000)
    assert [value_of(source), value_of(source)] == [1, 2]
    killed(source)
    assert value_of(source) == 3, "much is handed over"

    source = make("remembers", size=200_000)
    assert [value_of(source), value_of(source)] == [1, 2]
    killed(source)
    assert value_of(source) == 1, "too much is not"


def test_what_is_remembered_is_forgotten_at_no_reload(make: Make) -> None:
    """The successor of a source goes on where that left off, whatever has changed about it."""
    memories: dict[str, object] = {}
    former = make("remembers", memories=memories)
    assert [value_of(former), value_of(former)] == [1, 2]
    successor = make("remembers", size=10, memories=memories)
    former.close()

    assert value_of(successor) == 3
    assert value_of(make("remembers")) == 1, "and nobody else"


def test_memory_that_has_grown_too_large_is_told_once_and_the_former_kept(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    """It had been lost without a word."""
    source = make("grows")
    assert [value_of(source) for _ in range(5)] == [1, 2, 3, 4, 5]
    killed(source)

    assert value_of(source) == 3, "as far as the last that could be handed over"
    said = capfd.readouterr().err
    assert said.count("too much to be remembered") == 2, "once by each child"
    assert "child=grows" in said


# ---- what happened --------------------------------------------------------------------------


def test_events_are_handed_on_once_and_are_no_samples(make: Make, tmp_path: Path) -> None:
    """Whoever counts such things hears of each; the reader of samples does not."""
    told: list[Event] = []
    source = make("tells", gate=str(tmp_path / "gate"), events=told.append)

    items = [*source.read(), *source.read()]

    assert told == [Event("xid", "0000:1a:00.0", 1, 1.5), Event("xid", "0000:1a:00.0", 2, 1.5)]
    assert not any(isinstance(item, Event) for item in items)


def test_events_nobody_wants_do_no_harm(make: Make, tmp_path: Path) -> None:
    """Without anyone to hear them they are left out."""
    source = make("tells", gate=str(tmp_path / "gate"))

    assert not any(isinstance(item, Event) for item in source.read())


def test_events_of_a_late_reply_are_not_lost(make: Make, tmp_path: Path) -> None:
    """Its samples are old and thrown away; what happened has happened."""
    gate = tmp_path / "gate"
    told: list[Event] = []
    source = make("tells", gate=str(gate), events=told.append, end_after=None)
    list(source.read())
    list(source.read())
    source._deadline = 0.1
    with pytest.raises(TimeoutError):
        source.read()
    assert [event.code for event in told] == [1, 2]

    gate.touch()
    source._deadline = 20.0
    pause = threading.Event()
    for _ in range(400):
        try:
            list(source.read())
        except TimeoutError:
            pause.wait(0.05)
            continue
        break

    assert [event.code for event in told] == [1, 2, 3, 4]


# ---- letting go -----------------------------------------------------------------------------


def test_a_child_that_can_never_read_again_ends_and_another_is_started(
    make: Make, tmp_path: Path
) -> None:
    """It says so itself, closes what it has, and the next read finds a new one with its memory."""
    closed = tmp_path / "closed"
    source = make("wears", closed=str(closed))
    assert value_of(source) == 1
    pid = source.pid
    assert pid is not None

    with pytest.raises(SourceError, match="the driver was replaced") as caught:
        source.read()

    assert caught.value.reason == "unavailable"
    assert source.pid is None
    assert not alive(pid)
    assert closed.exists()
    assert value_of(source) == 2


def test_releasing_ends_the_child_and_refuses_reads_for_a_while(make: Make, tmp_path: Path) -> None:
    """The child closes what it has; reads say for how long; then another one goes on."""
    closed, clock = tmp_path / "closed", FakeClock()
    source = make("remembers", closed=str(closed), clock=clock)
    assert source.release(1) is True, "nothing to release"
    clock.advance(1)
    assert [value_of(source), value_of(source)] == [1, 2]
    pid = source.pid
    assert pid is not None

    assert source.release(60) is True

    assert not alive(pid)
    assert closed.exists()
    clock.advance(20)
    with pytest.raises(SourceError, match="another 40 s") as caught:
        source.read()
    assert caught.value.reason == "unavailable"
    assert source.pid is None
    clock.advance(40)
    assert value_of(source) == 3


def test_a_child_that_hangs_is_not_called_released(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has its handles still, and stays the only one; when it comes back, it ends."""
    monkeypatch.setattr(isolate, "_PARTING", 0.1)
    gate, clock = tmp_path / "gate", FakeClock()
    source = make("hangs", gate=str(gate), end_after=None, clock=clock)
    assert [value_of(source), value_of(source)] == [1, 2]
    source._deadline = 0.1
    with pytest.raises(TimeoutError):
        source.read()
    child, pid = source._child, source.pid
    assert child is not None

    assert source.release(60) is False
    with pytest.raises(TimeoutError, match="does not end"):
        source.read()
    clock.advance(61)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            source.read()
        assert source.pid == pid

    gate.touch()
    child.wait(20)
    source._deadline = 20.0
    with pytest.raises(ConnectionError, match="exit status 0"):
        source.read()
    assert value_of(source) == 1
    assert source.pid != pid


def test_releasing_waits_for_a_read_under_way(make: Make, tmp_path: Path) -> None:
    """Two threads do not talk to the child at once."""
    gate = tmp_path / "gate"
    source = make("hangs", gate=str(gate))
    assert [value_of(source), value_of(source)] == [1, 2]
    answers: list[object] = []
    reader = threading.Thread(target=lambda: answers.append(value_of(source)))
    reader.start()
    pause = threading.Event()
    while source._asked is None:
        pause.wait(0.01)
    releaser = threading.Thread(target=lambda: answers.append(source.release(60)))
    releaser.start()
    pause.wait(0.1)
    assert answers == []

    gate.touch()
    reader.join(20)
    releaser.join(20)

    assert answers == [3, True]
