"""The runner gives each source a thread, a beat, backoff, and health.

One daemon thread for one source. `step` is a plain function that reads once and says how long to
wait, so that tests need neither threads nor time. This is the only room that catches every
exception and the only one that retries: a source raises what happened and leaves the rest to it.
A read that never returns blocks its own thread and nothing else; the board lets its samples age.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from exporter.board import Slot
from exporter.clock import Clock
from exporter.samples import (
    Brought,
    Drop,
    Fault,
    Gate,
    Item,
    Releasable,
    Released,
    Sample,
    Snapshot,
    Source,
)

log = logging.getLogger(__name__)

LONGEST_BACKOFF = 60.0
_MOST_TOLD = 10


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a source is read: each `interval` seconds; a read should end within `deadline` seconds.

    `max_series` caps what one read may bring. `after` puts the beat so many seconds behind that of
    others: for a source that is about what they have read. `first` puts off the first read, and
    each that follows a failure: for a source that asks what many nodes ask.
    """

    interval: float
    deadline: float
    max_series: int = 20_000
    after: float = 0.0
    first: float = 0.0

    @property
    def max_age(self) -> float:
        """Seconds after which a snapshot is worth nothing: two intervals and a deadline."""
        return 2 * self.interval + self.deadline


class Runner:
    """Reads one source again and again and puts what it finds on the board.

    `released` tells whether the last read was refused because the driver was let go on request.
    """

    def __init__(self, source: Source, schedule: Schedule, slot: Slot, clock: Clock) -> None:
        self.source = source
        self.slot = slot
        self.releasable = isinstance(source, Releasable)
        self._schedule = schedule
        self._clock = clock
        self._gate = Gate(schedule.max_series)
        self.released = False
        self._failures = 0
        self._due = clock.monotonic()
        self._known: frozenset[tuple[str, str]] = frozenset()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._predecessor: Runner | None = None

    def start(self, predecessor: Runner | None = None) -> None:
        """Start the thread. A predecessor that is still reading the same thing is waited for."""
        self._predecessor = predecessor
        self._thread = threading.Thread(
            target=self._run, name=f"source:{self.source.name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end after the read under way. Returns at once."""
        self._stop.set()

    def join(self, seconds: float) -> bool:
        """Wait for all reading of this source to end, at most so long; tell whether it has.

        That of predecessors too: a successor may have given up waiting for one that is stuck.
        """
        if self._thread is not None:
            self._thread.join(seconds)
            if self._thread.is_alive():
                return False
        predecessor = self._predecessor
        if predecessor is not None and predecessor.join(0):
            self._predecessor = predecessor = None
        return predecessor is None

    def sources(self) -> Iterator[Source]:
        """Yield the source, and those of predecessors that have not ended before it."""
        if (predecessor := self._predecessor) is not None and not predecessor.join(0):
            yield from predecessor.sources()
        yield self.source

    def _run(self) -> None:
        # Two readers of one stuck device are worse than none: wait for the former, however long.
        while (predecessor := self._predecessor) is not None and not predecessor.join(0.5):
            self.slot.hold(self._clock.monotonic())
            if self._stop.is_set():
                return
        self._clock.wait(self._stop, self._schedule.first)
        while not self._stop.is_set():
            self._clock.wait(self._stop, self.step())
        self._guard(self.source.close)

    def step(self) -> float:
        """Read once, publish, and return the seconds to wait before the next read."""
        began, wall = self._clock.monotonic(), self._clock.time()
        self.slot.begin(began)
        brought: list[_Brought] = []
        fault = self._guard(lambda: brought.append(_sorted(self.source.read())))
        taken = self._clock.monotonic()
        if fault is not None:
            self._fail(fault, taken, wall, taken - began)
        else:
            self.released = False
            self._publish(*brought[0], taken, wall, taken - began)
        return self._wait(taken)

    def _guard(self, act: Callable[[], None]) -> Fault | None:
        """Run `act`; turn whatever it raises into a fault, logged when it is news."""
        try:
            act()
        except Exception as error:
            fault = Fault.of("", error)
            self.released = isinstance(error, Released)
            if ("", fault.reason) not in self._known:
                # A bug needs its traceback; an absent device or server needs one line.
                log.warning(
                    "source=%s reason=%s %s",
                    self.source.name, fault.reason, fault.detail,
                    exc_info=error if fault.reason == "bug" else None,
                )  # fmt: skip
            return fault
        return None

    def _fail(self, fault: Fault, taken: float, wall: float, duration: float) -> None:
        self._failures = 0 if self.released else self._failures + 1
        self._known = frozenset({("", fault.reason)})
        source = self.source
        snapshot = Snapshot(source.name, source.group, taken, wall, duration, faults=(fault,))
        self.slot.fail(snapshot, counts=not self.released)

    def _publish(
        self,
        samples: Sequence[Sample],
        others: Sequence[Item],
        taken: float,
        wall: float,
        duration: float,
    ) -> None:
        self._failures = 0
        batch, drops = self._gate.admit(samples)
        counted = dict(drops)
        faults = tuple(item for item in others if isinstance(item, Fault))
        if beyond := counted.get("cap"):
            most = f"{beyond} series beyond max_series ({self._schedule.max_series}) are left out"
            faults = (*faults, Fault("max_series", "denied", most))
        for item in others:
            if isinstance(item, Drop):
                counted[item.reason] = counted.get(item.reason, 0) + item.number
        source = self.source
        self.slot.publish(
            Snapshot(source.name, source.group, taken, wall, duration, batch, faults), counted
        )
        self._tell(faults)

    def _tell(self, faults: tuple[Fault, ...]) -> None:
        """Log what has changed since the last read: new faults, and those that are gone."""
        now = frozenset((fault.part, fault.reason) for fault in faults)
        if now == self._known:
            return
        news = [fault for fault in faults if (fault.part, fault.reason) not in self._known]
        for fault in news[:_MOST_TOLD]:
            log.warning("source=%s part=%s reason=%s %s", self.source.name, *fault)
        if len(news) > _MOST_TOLD:
            more = len(news) - _MOST_TOLD
            log.warning("source=%s %d more parts cannot be read", self.source.name, more)
        for part, reason in self._known - now:
            log.info("source=%s part=%s reason=%s recovered", self.source.name, part, reason)
        self._known = now

    def _wait(self, now: float) -> float:
        """Return the seconds until the next beat, or the backoff after failures.

        Beats are multiples of the interval by the clock, the same for all sources: threads that
        wake together find a processor that is awake and its caches warm. Eight servers that are
        read ten milliseconds apart cost a quarter more (docs/performance.md). So beats do not
        drift, and the second read comes half an interval to one and a half after the first. A beat
        that was missed is not made up for.
        """
        interval = self._schedule.interval
        if self._failures:
            # The first failure keeps the beat: most recover at once.
            doubled = interval * 2.0 ** min(self._failures - 1, 16)
            wait = max(interval, min(doubled, LONGEST_BACKOFF)) + self._schedule.first
            self._due = now + wait
            return wait
        after = self._schedule.after
        beat = round((self._due - after) / interval) * interval + after
        self._due = beat + interval * max(1, -(-(now - beat) // interval))
        return max(0.0, self._due - now)


_Brought = tuple[Sequence[Sample], Sequence[Item]]


def _sorted(brought: Iterable[Item]) -> _Brought:
    """Return the samples of a read, and everything else that it brought."""
    if isinstance(brought, Brought):
        return brought.batch, brought.others
    items = list(brought)
    samples = [item for item in items if type(item) is Sample]
    if len(samples) == len(items):
        return samples, ()
    return samples, [item for item in items if type(item) is not Sample]
