"""Work in a child process of its own: its limits, and what comes back when it goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.clock import SystemClock
from exporter.isolate import Errand, Limits
from exporter.samples import Malformed, SourceError
from tests.fakes import FakeClock

Send = Callable[..., Errand]
MEMORY = 128 << 20


@pytest.fixture
def send() -> Iterator[Send]:
    sent: list[Errand] = []

    def begin(name: str, seconds: float = 60.0, clock: Any = None, **options: object) -> Errand:
        limits = Limits(MEMORY, seconds)
        clock = clock or SystemClock()
        sent.append(Errand(name, options, limits, clock=clock, module="tests.children"))
        return sent[-1]

    yield begin
    for errand in sent:
        errand.end()


def answer(errand: Errand, seconds: float = 30.0) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if (told := errand.poll()) is not None:
            return told
        time.sleep(0.01)
    pytest.fail("no answer")


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_an_answer_comes_back_and_the_child_ends(send: Send) -> None:
    """Polling never waits; what libraries print is no answer."""
    errand = send("echo", path="/a", number=3)
    told = answer(errand)
    assert told["given"] == {"path": "/a", "number": 3}
    assert gone(errand.pid)


def test_it_runs_when_nobody_else_wants_to(send: Send) -> None:
    """The lowest priority, and where the kernel permits it the idle class."""
    told = answer(send("echo"))
    assert told["nice"] == 19
    assert told["policy"] == os.SCHED_IDLE


def test_more_memory_than_it_may_have_is_an_error_that_says_so(send: Send) -> None:
    """The daemon's pod is not what runs out."""
    with pytest.raises(SourceError, match="needs more than 128 MiB") as caught:
        answer(send("greedy"))
    assert caught.value.reason == "unavailable"


@pytest.mark.parametrize("reason", ["io", "malformed", "bug"])
def test_what_went_wrong_comes_back_with_its_reason(send: Send, reason: str) -> None:
    """As if it had been read in the daemon."""
    with pytest.raises(SourceError, match=f"it was {reason}") as caught:
        answer(send("fails", reason=reason))
    assert caught.value.reason == reason


def test_a_child_that_is_killed_is_told_with_its_signal(send: Send) -> None:
    """By the kernel, when memory is short, or by an operator."""
    with pytest.raises(ConnectionError, match="SIGKILL"):
        answer(send("kills_itself"))


@pytest.mark.parametrize("name", ["sleeps", "spins"])
def test_a_child_that_takes_too_long_is_ended(send: Send, name: str) -> None:
    """The clock of the daemon decides."""
    clock = FakeClock()
    errand = send(name, 10.0, clock)
    assert errand.poll() is None
    clock.advance(11)
    with pytest.raises(TimeoutError, match="not done within 10 s"):
        errand.poll()
    assert gone(errand.pid)


def test_an_answer_that_is_too_long_is_refused(send: Send) -> None:
    """A child reads what comes from anywhere; it may be made to say anything."""
    assert len(answer(send("talks", size=1_000_000))) == 1_000_000
    with pytest.raises(Malformed, match="more than"):
        answer(send("talks", size=3_000_000))


def test_an_errand_that_nobody_knows_fails(send: Send) -> None:
    """The table of errands is ours: a wrong name is a bug."""
    with pytest.raises(SourceError, match="KeyError"):
        answer(send("nonsense"))


def test_a_child_does_not_outlive_the_daemon(tmp_path: Path) -> None:
    """A daemon that is killed cannot end its child; the kernel does."""
    text = (
        "import sys, time\n"
        "from exporter.clock import SystemClock\n"
        "from exporter.isolate import Errand, Limits\n"
        "errand = Errand('sleeps', {}, Limits(1 << 28, 60), clock=SystemClock(),"
        " module='tests.children')\n"
        "time.sleep(1)\n"
        "print(errand.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, text=True
    ) as daemon:
        assert daemon.stdout is not None
        pid = int(daemon.stdout.readline())
        assert not gone(pid)
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
    until = time.monotonic() + 10
    while not gone(pid) and time.monotonic() < until:
        threading.Event().wait(0.05)
    assert gone(pid)
