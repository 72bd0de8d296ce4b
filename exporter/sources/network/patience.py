"""How long to leave counters alone that a driver has refused.

On the restricted functions of B200 and B300 boards each attempt writes a line to the kernel log
(node_exporter 3434, gpud 1164).
"""

from __future__ import annotations


class Patience:
    """Knows which counters of a port were refused, and at which read to ask for them again.

    What never answered rests for the longest time at once. What did may only be in the middle of a
    reset, which looks the same: it rests for a short time, then for twice as long. Times are
    numbers of reads.
    """

    def __init__(self, longest: int, shortest: int = 12) -> None:
        self._longest, self._shortest = longest, shortest
        self._resting: dict[str, tuple[int, int]] = {}
        self._answered: set[str] = set()

    def rests(self, key: str, now: int) -> bool:
        """Tell whether to leave this alone at read number `now`."""
        return bool(self._resting) and now < self._resting.get(key, (0, 0))[0]

    def refused(self, key: str, now: int, *, short: bool = False) -> None:
        """Note that the driver refused; `short` for one file of a set that answers otherwise."""
        wait = self._longest
        if short or key in self._answered:
            last = self._resting.get(key, (0, 0))[1]
            wait = min(last * 2 or self._shortest, self._longest)
        self._resting[key] = (now + wait, wait)

    def answered(self, key: str) -> None:
        """Note that the driver answered."""
        self._answered.add(key)
        self._resting.pop(key, None)

    def has_answered(self, key: str) -> bool:
        """Tell whether the driver has ever answered this."""
        return key in self._answered
