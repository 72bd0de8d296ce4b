"""Threads for a process that talks to drivers: a call that hangs costs its own device, no other.

A call into a driver can be neither bounded nor ended. `Crew.run` has jobs done by a thread, one
after the other: eight threads that call at once wait for the interpreter on their way back, up to
several times the length of the calls (`benchmarks/gpu.py`). When that thread does not get on,
another one goes on with the jobs that are left. A job that is not back at the deadline is reported,
is not begun again until it is back, and its late answer is thrown away. Which jobs, and what a hang
means, is left to the source.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

from exporter.clock import Clock

T = TypeVar("T")

_PATIENCE = 0.02
"""Seconds after which one more thread is put to the jobs that are still to be begun."""


class Stuck(TimeoutError):  # noqa: N818 - said of the thread
    """A job is not back; `seconds` is for how long it has been away."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"a call into the driver has not returned for {seconds:.1f} s")
        self.seconds = seconds


class Unbegun(TimeoutError):  # noqa: N818 - said of the job
    """There was no time to begin a job: nothing is known of its device."""

    def __init__(self) -> None:
        super().__init__("not asked: other calls into the driver took all the time")


class _Round(Generic[T]):
    """The jobs of one `Crew.run`, and what came of them. `away` is who has not come back."""

    def __init__(
        self, jobs: Mapping[str, Callable[[], T]], away: dict[str, float], clock: Clock
    ) -> None:
        self.left = deque(jobs.items())
        self._away = away
        self._clock = clock
        self._lock = threading.Lock()
        self._unfinished = dict.fromkeys(jobs, clock.monotonic())
        self._results: dict[str, T | BaseException] = {}
        self._finished: queue.SimpleQueue[None] = queue.SimpleQueue()

    def begin(self) -> tuple[str, Callable[[], T]] | None:
        """Return a job to do now, by its name, if one is left."""
        with self._lock:
            if not self.left:
                return None
            name, job = self.left.popleft()
            self._away[name] = self._unfinished[name] = self._clock.monotonic()
            return name, job

    def end(self, name: str, result: T | BaseException) -> None:
        """Note what came of a job."""
        with self._lock:
            del self._away[name], self._unfinished[name]
            self._results[name] = result
            if not self._unfinished:
                self._finished.put(None)

    def wait(self, seconds: float) -> None:
        """Wait for all jobs, at most so long."""
        if self._unfinished:
            with suppress(queue.Empty):
                self._finished.get(timeout=max(0.0, seconds))

    def close(self) -> dict[str, T | BaseException]:
        """Let nothing more be begun; return what has come of each job."""
        with self._lock:
            unbegun = {name: Unbegun() for name, _ in self.left}
            self.left.clear()
            now = self._clock.monotonic()
            late = {name: Stuck(now - since) for name, since in self._unfinished.items()}
            return self._results | late | unbegun


class _Worker:
    """A thread that takes part in rounds. It is `idle` unless it is away with a job."""

    def __init__(self, name: str) -> None:
        self.idle = True
        self.rounds: queue.SimpleQueue[_Round[Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while (one := self.rounds.get()) is not None:
            while (begun := one.begin()) is not None:
                self.idle = False
                name, job = begun
                result: object
                try:
                    result = job()
                except BaseException as error:  # noqa: BLE001 - handed on to whoever waits
                    result = error
                # First this: who waits for the end may have the next round at once.
                self.idle = True
                one.end(name, result)


class Crew:
    """Threads that do named jobs; as many as are needed for one of them to be free."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._away: dict[str, float] = {}
        self._workers: list[_Worker] = []

    def run(
        self, jobs: Mapping[str, Callable[[], T]], seconds: float
    ) -> dict[str, T | BaseException]:
        """Do each job; return what each returned or raised.

        A job that is not back after `seconds`, or whose namesake is still away from before, has a
        `Stuck` as its result; one that was never begun an `Unbegun`.
        """
        now = self._clock.monotonic()
        away = {name: Stuck(now - at) for name, at in self._away.copy().items() if name in jobs}
        one = _Round({n: job for n, job in jobs.items() if n not in away}, self._away, self._clock)
        seconds = max(0.0, seconds)
        patience = min(_PATIENCE, seconds / (len(jobs) + 1))
        while one.left and seconds > 0:
            self._send_thread(one)
            one.wait(patience)
            seconds -= patience
        one.wait(seconds)
        return away | one.close()

    def _send_thread(self, one: _Round[Any]) -> None:
        """Send one that is free; if all of them are away, a new one.

        Always the first that is free: its processor still has at hand what it needs.
        """
        for worker in self._workers:
            if worker.idle:
                break
        else:
            worker = _Worker(f"driver-{len(self._workers)}")
            self._workers.append(worker)
        worker.rounds.put(one)

    def away(self) -> dict[str, float]:
        """Return the jobs that are not back, and for how many seconds."""
        now = self._clock.monotonic()
        return {name: now - since for name, since in self._away.copy().items()}

    def dismiss(self) -> None:
        """End all threads; one that is stuck ends when its call returns."""
        for worker in self._workers:
            worker.rounds.put(None)
        self._workers = []
