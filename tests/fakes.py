"""Stand-ins for time and for sources, shared by the tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from exporter.samples import Drop, Fault, Sample


class FakeClock:
    """A clock whose hand is moved by waiting and by `advance`."""

    def __init__(self, now: float = 1000.0, wall: float = 1.8e9) -> None:
        self.now = now
        self._offset = wall - now

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now + self._offset

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.now += seconds
        return event.is_set()

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class FakeSource:
    """A source that does what it is told: yields `items`, or calls `act` and yields its result."""

    name: str = "fake"
    group: str = "host"
    items: Iterable[Sample | Fault | Drop] = ()
    act: Callable[[], Iterable[Sample | Fault | Drop]] | None = None
    reads: int = 0
    closed: threading.Event = field(default_factory=threading.Event)

    def read(self) -> Iterable[Sample | Fault | Drop]:
        self.reads += 1
        return self.items if self.act is None else self.act()

    def close(self) -> None:
        self.closed.set()
