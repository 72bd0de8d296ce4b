"""What a histogram gained between two readings: observations in each bucket, and their sum.

How to get one out of pages, with resets and restarts, is left to `book`; what it tells, to
`quantiles`.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Increase(NamedTuple):
    """Observations that fell into a window.

    `bounds` are the finite upper bounds, ascending, none negative. `counts` has one more entry:
    the observations in each bucket, whole numbers and not cumulative, the last one beyond all
    bounds. An observation that equals a bound is in the bucket below it. `total` is the sum of the
    observations in seconds, NaN when unknown; `slack` is by how much it may be off beyond
    `quantiles.TOLERANCE`, as `rounding` says.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float
    slack: float = 0.0

    @property
    def n(self) -> float:
        """All observations."""
        return sum(self.counts)


def rounding(counter: float, additions: float) -> float:
    """Return by how much the increase of a float counter may be off.

    Each of `additions` was rounded to the counter's own grid, and so is the difference of two
    readings: half a unit in the last place at most. After months a counter of seconds is so large
    that the sum of a minute's short waits is off by more than a millionth. The counter is the later
    reading; for a sum of several counters add up what this returns for each.
    """
    return (additions + 2) * math.ulp(counter)
