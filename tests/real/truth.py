"""What the client's records say about what a server must have counted between two readings.

A server counts an observation when the token leaves its engine; the client sees it a little later,
at most `LATE` seconds. A reading of its page falls somewhere between the start and the end of the
request for it. So near the edges of a window nobody knows which observations are in it, and where
several tokens came in one piece nobody knows when each was made. Nothing of that is left out here:
what is unknown makes bounds, and the bounds are as narrow as the counts of the server allow.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.real.load import Record

LATE = 0.05
"""Seconds within which the client sees what the server has counted."""

UNSEEN = 4
"""Steps that a server may take for a request whose client has left before it notices."""

SIGNALS = ("ttft", "itl", "tpot", "e2e")


class Observation(NamedTuple):
    """A latency as the client saw it at `at` (Unix seconds): between `low` and `high` seconds.

    `doubtful`: the server may or may not have counted it.
    """

    at: float
    low: float
    high: float
    doubtful: bool = False


class Cut(NamedTuple):
    """A reading of the server's page: made between these two moments."""

    earliest: float
    latest: float


class Gap(NamedTuple):
    """What a server counted after this reading, until it was killed, nobody has read."""

    after: Cut
    until: float


class Members(NamedTuple):
    """Observations that are in a window for certain, and those that may be."""

    certain: list[Observation]
    maybe: list[Observation]


def observations(records: Iterable[Record], signal: str) -> list[Observation]:
    """Return all observations of a signal that a server makes of these requests."""
    return sorted(one for record in records for one in _of(record, signal))


def _of(record: Record, signal: str) -> Iterable[Observation]:
    if not record.arrivals:
        return
    (first, in_first), last = record.arrivals[0], record.arrivals[-1][0]
    finished = record.outcome == "finished"
    if signal == "ttft":
        yield Observation(first, first - record.sent, first - record.sent)
    elif signal == "itl":
        yield from (Observation(first, 0.0, first - record.sent) for _ in range(in_first - 1))
        for (before, _), (at, number) in pairwise(record.arrivals):
            low = at - before if number == 1 else 0.0
            yield from (Observation(at, low, at - before) for _ in range(number))
    elif signal == "e2e" and finished:
        yield Observation(last, last - record.sent, last - record.sent)
    elif signal == "tpot" and finished and record.tokens > 1:
        # Tokens that came with the first one were made after it, some time since the start.
        spread = last - (first if in_first == 1 else record.sent)
        each = record.tokens - 1
        yield Observation(last, (last - first) / each, spread / each)
    if signal == "itl" and record.outcome in ("aborted", "broken"):
        for _ in range(UNSEEN):
            yield Observation(record.ended, 0.0, math.inf, doubtful=True)


def members(seen: Sequence[Observation], start: Cut, end: Cut, gaps: Sequence[Gap] = ()) -> Members:
    """Return which observations, sorted by time, the server counted between two readings."""
    found = Members([], [])
    for at in range(bisect_left(seen, (start.earliest,)), len(seen)):
        one = seen[at]
        if one.at - LATE > end.latest:
            break
        certain = not one.doubtful and start.latest < one.at - LATE and one.at < end.earliest
        for gap in gaps:
            if gap.after.earliest < one.at <= gap.until + LATE:
                certain = False
                if gap.after.latest < one.at - LATE and one.at < gap.until:
                    break
        else:
            (found.certain if certain else found.maybe).append(one)
    return found


def quantile(found: Members, n: int, q: float) -> tuple[float, float] | None:
    """Return between what bounds the client's q-quantile of a window with n observations lies.

    The value at rank ceil(q n). None if no choice of the doubtful ones makes n.
    """
    choose = n - len(found.certain)
    if not 0 <= choose <= len(found.maybe):
        return None
    rank = max(1, math.ceil(q * n - 1e-9))
    low = [one.low for one in found.certain] + sorted(one.low for one in found.maybe)[:choose]
    high = sorted((one.high for one in found.maybe), reverse=True)[:choose]
    high += [one.high for one in found.certain]
    return sorted(low)[rank - 1], sorted(high)[rank - 1]


def within(
    found: Members, n: int, threshold: float, transport: float, early: float = 0.0
) -> tuple[int, int]:
    """Return between what bounds the number of observations within a threshold lies.

    What the client saw up to `transport` seconds above it the server may have seen below. A time
    between two tokens is shorter for the client if the first of them was late on its way: what it
    saw up to `early` seconds below the threshold the server may have seen above.
    """
    choose = n - len(found.certain)

    def good(one: Observation) -> bool:
        return one.high <= threshold - early

    def bad(one: Observation) -> bool:
        return one.low > threshold + transport

    least = sum(map(good, found.certain)) + max(
        0, choose - sum(not good(one) for one in found.maybe)
    )
    most = sum(not bad(one) for one in found.certain) + min(
        choose, sum(not bad(one) for one in found.maybe)
    )
    return least, most


def outside(seen: tuple[float, float], lower: float, upper: float) -> float:
    """Return by how many seconds the client's value, as close as it can be, misses an interval."""
    return max(0.0, seen[0] - upper, lower - seen[1])


def bucket(bounds: Sequence[float], value: float) -> tuple[float, float]:
    """Return the bounds of the bucket that holds a value."""
    at = bisect_left(bounds, value)
    return bounds[at - 1] if at else 0.0, bounds[at] if at < len(bounds) else math.inf
