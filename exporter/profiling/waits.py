"""Waiting in collectives apart from transmission, from what several ranks tell of the same ones.

A collective's kernel begins when its rank gets there and ends when all have what they need. So the
rank that comes last waits for nobody: its time is that of the transmission, and by how much another
rank's time is longer, so long has that one waited. Where not all ranks tell (they are on other
nodes), the last of those that do may have waited as well: what is found is a lower bound.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.formats.nccl_inspector import Operation

MOST = 16_384
"""Collectives that are waited for at most; the oldest are given up first."""
PATIENCE = 30
"""Rounds after which those that have told are enough."""
_MOST_COMMUNICATORS = 4096
_ON_KERNELS = frozenset({"kernel_gpu", "kernel_cpu"})


class Sum(NamedTuple):
    """Seconds that a process has waited for others, and in which all were there; collectives."""

    waited: float = 0.0
    moved: float = 0.0
    number: int = 0


@dataclass(slots=True)
class _Pending:
    """A collective, by who has told of it."""

    since: int
    told: dict[str, float] = field(default_factory=dict)


class Waits:
    """Matches the collectives of several processes. `who` is the process, or its dump."""

    def __init__(self, most: int = MOST, patience: int = PATIENCE) -> None:
        self._most = most
        self._patience = patience
        self._round = 0
        self._members: dict[str, set[str]] = {}
        self._pending: dict[tuple[str, str, int], _Pending] = {}
        self.sums: dict[str, Sum] = {}

    def take(self, who: str, one: Operation) -> None:
        """Take a collective that a process tells of, if its time is that of the kernel.

        Times of the host would hold what the queue before it took.
        """
        if one.transfer or one.sequence is None or one.timing not in _ON_KERNELS or one.ranks < 2:
            return
        members = self._members.get(one.communicator)
        if members is None:
            if len(self._members) >= _MOST_COMMUNICATORS:
                return
            members = self._members[one.communicator] = set()
        members.add(who)
        key = (one.communicator, one.name, one.sequence)
        pending = self._pending.get(key)
        if pending is None:
            if len(self._pending) >= self._most:
                self._settle(self._pending.pop(next(iter(self._pending))))
            pending = self._pending[key] = _Pending(self._round)
        pending.told[who] = one.seconds

    def settle(self) -> None:
        """End a round: add up the collectives of which all known processes have told."""
        self._round += 1
        done = [
            key
            for key, one in self._pending.items()
            if len(one.told) >= len(self._members[key[0]]) > 1
            or self._round - one.since > self._patience
        ]
        for key in done:
            self._settle(self._pending.pop(key))

    def _settle(self, one: _Pending) -> None:
        if len(one.told) < 2:
            return
        least = min(one.told.values())
        for who, seconds in one.told.items():
            former = self.sums.get(who, Sum())
            self.sums[who] = Sum(
                former.waited + seconds - least, former.moved + least, former.number + 1
            )

    def keep(self, there: Collection[str]) -> None:
        """Forget processes that are gone."""
        gone = {who for members in self._members.values() for who in members if who not in there}
        if not gone:
            return
        self.sums = {who: one for who, one in self.sums.items() if who not in gone}
        for members in self._members.values():
            members.difference_update(gone)
        empty = {name for name, members in self._members.items() if not members}
        self._members = {name: one for name, one in self._members.items() if name not in empty}
        self._pending = {key: one for key, one in self._pending.items() if key[0] not in empty}
