"""How often a caller may ask: buckets that fill with time, one for each address, boundedly many."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from exporter.requests import neighbours

MOST_ADDRESSES = 1024


class Bucket:
    """Holds `burst` requests at most and gains one each `interval` seconds."""

    __slots__ = ("_at", "_burst", "_interval", "_left")

    def __init__(self, interval: float, burst: int, now: float) -> None:
        self._interval = interval
        self._burst = float(burst)
        self._left = float(burst)
        self._at = now

    def take(self, now: float) -> bool:
        """Take one out; tell whether there was one."""
        self._left = min(self._burst, self._left + (now - self._at) / self._interval)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Pace(NamedTuple):
    """How fast one address may ask: requests a second, and how many at once."""

    per_second: float
    burst: int


class Callers:
    """A bucket for each address; the one that has asked least lately makes room for a new one."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._pace: Pace | None = None

    def __len__(self) -> int:
        return len(self._buckets)

    def allow(self, address: str, pace: Pace, now: float) -> bool:
        """Tell whether an address may ask now."""
        if pace != self._pace:
            self._buckets.clear()
            self._pace = pace
        key = neighbours(address)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket(1.0 / pace.per_second, pace.burst, now)
            if len(self._buckets) > MOST_ADDRESSES:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        return bucket.take(now)
