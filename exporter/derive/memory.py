"""What a derivation remembers between two rounds: integrals and windows, each bounded.

A `Memory` belongs to one derivation. What was not asked for during an hour is forgotten, and there
are never more than so many things: boards come and go, and their identities must not pile up.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TypeVar

HOUR = 3600.0
"""The longest that anything is remembered, in seconds; longer windows are Prometheus' to keep."""

MOST = 10_000
"""How many integrals, and how many windows, one derivation may keep."""


class Integral:
    """A counter made from a rate: the sum of rate times time, over the readings seen.

    Each reading says what the rate was on average since the reading before it. So the first one
    only sets the baseline, the same reading seen twice adds nothing, and no matter how unevenly
    readings come the sum is exact. After more than `longest_gap` seconds without one nobody knows
    what the rate was: that time is left out, and the reading is a new baseline.
    """

    __slots__ = ("_last", "_longest_gap", "total", "used")

    def __init__(self, longest_gap: float) -> None:
        self.total = 0.0
        self.used = 0.0
        self._longest_gap = longest_gap
        self._last: float | None = None

    def add(self, taken: float, rate: float) -> float:
        """Add a reading of `rate` taken at `taken` (monotonic seconds); return the sum so far.

        A rate below zero or not finite is no reading: the next one covers its time as well.
        """
        if not 0 <= rate < math.inf or (self._last is not None and taken <= self._last):
            return self.total
        if self._last is not None and taken - self._last <= self._longest_gap:
            self.total += rate * (taken - self._last)
        self._last = taken
        return self.total


class Window:
    """The readings of the last `seconds`, at most an hour, in a ring of at most `most` of them."""

    __slots__ = ("_ring", "_seconds", "used")

    def __init__(self, seconds: float, most: int) -> None:
        if not 0 < seconds <= HOUR:
            raise ValueError(f"a window is at most {HOUR:g} seconds long, not {seconds:g}")
        self.used = 0.0
        self._seconds = seconds
        self._ring: deque[tuple[float, float]] = deque(maxlen=most)

    def add(self, taken: float, value: float) -> None:
        """Remember a value read at `taken`; one that is no newer than the last is ignored."""
        if not self._ring or taken > self._ring[-1][0]:
            self._ring.append((taken, value))

    def since(self, now: float) -> list[tuple[float, float]]:
        """Return when each value of the window that ends `now` was read, and the value."""
        while self._ring and self._ring[0][0] < now - self._seconds:
            self._ring.popleft()
        return list(self._ring)


Kept = TypeVar("Kept", Integral, Window)


class Memory:
    """The named integrals and windows of one derivation. Names are tuples, often labels."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._now = -math.inf
        self._integrals: dict[tuple[str, ...], Integral] = {}
        self._windows: dict[tuple[str, ...], Window] = {}

    def begin(self, now: float) -> None:
        """Begin a round at `now`, monotonic seconds: forget what was not used for an hour.

        Where there is too much, what was used least recently goes first; a counter that went
        begins again at zero, as after a restart.
        """
        self._now = now
        _forget(self._integrals, now, self._most)
        _forget(self._windows, now, self._most)

    def integral(self, *name: str, longest_gap: float) -> Integral:
        """Return the integral of that name, new if need be; `longest_gap` is in seconds."""
        return self._keep(self._integrals, name, lambda: Integral(longest_gap))

    def window(self, *name: str, seconds: float, most: int = 3601) -> Window:
        """Return the window of that name, new if need be, over so many seconds and readings."""
        return self._keep(self._windows, name, lambda: Window(seconds, most))

    def _keep(
        self, kept: dict[tuple[str, ...], Kept], name: tuple[str, ...], make: Callable[[], Kept]
    ) -> Kept:
        found = kept.get(name)
        if found is None:
            found = kept[name] = make()
        found.used = self._now
        return found


def _forget(kept: dict[tuple[str, ...], Kept], now: float, most: int) -> None:
    for name in [name for name, one in kept.items() if now - one.used > HOUR]:
        del kept[name]
    if len(kept) > most:
        for name in sorted(kept, key=lambda name: kept[name].used)[: len(kept) - most]:
            del kept[name]
