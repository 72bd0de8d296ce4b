"""Which operators took memory: allocations of a trace, given to the innermost that ran then.

A trace tells allocations after all operators, so that it is read twice: the first time for these,
the second time for the operators. 21 bytes are kept for each allocation. There is a limit to both
the number of allocations and the work of finding whose they are; beyond it nothing is told.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from exporter.profiling.timeline import Total

_WORK = 20_000_000
_NAMES = 4096
_OTHERS = "(others)"
_NOBODY = "(no operator)"


class _Thread:
    """The allocations of one thread, by time, and the operators that they belong to."""

    def __init__(self) -> None:
        self.times = array("q")
        self.sizes = array("q")
        self.starts = array("q")
        self.names = array("H")

    def sort(self) -> None:
        order = sorted(range(len(self.times)), key=self.times.__getitem__)
        self.times = array("q", [self.times[at] for at in order])
        self.sizes = array("q", [self.sizes[at] for at in order])
        self.starts = array("q", bytes(8 * len(order)))
        self.names = array("H", bytes(2 * len(order)))


class Allocations:
    """Takes allocations, then operators, and tells how much each operator took.

    `room` is how many allocations are kept.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._threads: dict[str, _Thread] = {}
        self._number = 0
        self._work = 0
        self._names: dict[str, int] = {_NOBODY: 0, _OTHERS: 1}
        self._sorted = False

    def __bool__(self) -> bool:
        return self._number > 0

    @property
    def crowded(self) -> bool:
        """Whether there was too much of it, so that nothing is told."""
        return self._number > self._room or self._work > _WORK

    def add(self, thread: str, when: int, size: int) -> None:
        """Add an allocation of so many bytes."""
        self._number += 1
        if self.crowded:
            self._threads.clear()
            return
        one = self._threads.setdefault(thread, _Thread())
        one.times.append(when)
        one.sizes.append(size)

    def operator(self, thread: str, start: int, end: int, name: str) -> None:
        """Give an operator what was allocated while it ran, unless one within it has that."""
        if not self._sorted:
            for each in self._threads.values():
                each.sort()
            self._sorted = True
        one = self._threads.get(thread)
        if one is None or self.crowded:
            return
        first, last = bisect_left(one.times, start), bisect_right(one.times, end)
        if first >= last:
            return
        self._work += last - first
        number = self._names.get(name)
        if number is None:
            number = self._names[name] = len(self._names) if len(self._names) < _NAMES else 1
        starts, names = one.starts, one.names
        for at in range(first, last):
            # The innermost of those that ran is the one that began last.
            if not names[at] or start >= starts[at]:
                starts[at], names[at] = start, number

    def totals(self) -> dict[str, Total]:
        """Return numbers and bytes of allocations by operator; nothing if there were too many."""
        if self.crowded:
            return {}
        names = {number: name for name, number in self._names.items()}
        names[1] = _OTHERS
        found: dict[str, Total] = {}
        for one in self._threads.values():
            for number, size in zip(one.names, one.sizes, strict=True):
                former = found.get(names[number], Total(0, 0.0))
                found[names[number]] = Total(former.number + 1, 0.0, former.bytes + size)
        return found
