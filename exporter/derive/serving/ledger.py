"""What an objective has counted for one group since it was first seen: the counters of the page.

Windows are the book's; counters are kept here, by adding up the book's steps. What has been said
once never goes back, even where it has become less certain: a counter that falls means a restart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from exporter.derive.serving.demand import Paces, Spell
from exporter.derive.serving.tally import (
    NO_COUNTS,
    NO_VERDICT,
    NONE_LEFT_OUT,
    Counts,
    Excluded,
    Requests,
    Verdict,
    exclude,
    judge,
)
from exporter.objectives import Objective


class Work(NamedTuple):
    """Requests under way at a server: when it was first seen, now, and at its restarts.

    `restarts` is how many of those the book knew of. Whether requests that were under way at one
    were served is not known. `told` is 0 where the server does not say what is under way.
    """

    begun: float = 0.0
    now: float = 0.0
    lost: float = 0.0
    restarts: float = 0.0
    told: float = 0.0

    @property
    def carried(self) -> float:
        """Return the most requests that were under way when it was first seen."""
        return self.begun if self.told else math.inf


class Account(NamedTuple):
    """What one server counted, and what was made of it."""

    work: Work
    counts: Counts = NO_COUNTS
    verdict: Verdict = NO_VERDICT
    excluded: Excluded = NONE_LEFT_OUT


class Ledger:
    """The counters of one objective for one group.

    `breach` is seconds in the state violated, `since` when anything was told first; `spell` and
    `paces` are for throughput. Servers that are gone are kept as one result. While it is in `doubt`
    it may know less than was told before.
    """

    def __init__(self) -> None:
        self.breach = 0.0
        self.doubt = False
        self.since: float | None = None
        self.spell = Spell()
        self.paces = Paces()
        self._accounts: dict[str, Account] = {}
        self._settled = NO_VERDICT
        self._left_out = NONE_LEFT_OUT

    @property
    def verdict(self) -> Verdict:
        """All events, and how many of them were good."""
        return sum((one.verdict for one in self._accounts.values()), self._settled)

    @property
    def excluded(self) -> Excluded:
        """All events that were left out."""
        return sum((one.excluded for one in self._accounts.values()), self._left_out)

    @property
    def servers(self) -> set[str]:
        """The servers that have an account."""
        return set(self._accounts)

    def begin_anew(self) -> None:
        """Count from zero, as Prometheus knows it of a start. What windows rest on stays."""
        self.breach = 0.0
        self._accounts, self._settled, self._left_out = {}, NO_VERDICT, NONE_LEFT_OUT

    def begin(self, now: float) -> None:
        """Note that something has been told."""
        if self.since is None:
            self.since = now

    def add(
        self,
        objective: Objective,
        server: str,
        new: Counts,
        working: float | None,
        restarts: float,
    ) -> None:
        """Add what a server counted since the round before.

        `working` requests are under way, None where that is not told; `restarts` is how often it
        has been restarted so far.
        """
        known = self._accounts.get(server)
        if self.doubt and known is not None and restarts > known.work.restarts:
            self.begin_anew()  # what it counted meanwhile is lost with its counters
            known = None
        told, working = float(working is not None), working or 0.0
        account = known or Account(Work(working, working, 0.0, restarts, told))
        former = account.work
        lost = former.lost + (former.now if restarts > former.restarts else 0.0)
        work = Work(former.begun, working, lost, restarts, former.told)
        counts = account.counts + new
        excluded = exclude(objective, counts, work.now, work.begun, work.lost)
        self._accounts[server] = Account(
            work,
            counts,
            _risen(account.verdict, judge(objective, counts, work.carried)),
            Excluded(*map(max, account.excluded, excluded)),
        )

    def add_time(self, asked: float, kept: float) -> None:
        """Add seconds with demand, and how many of them were good."""
        self._settled += Verdict(asked, kept, kept, kept)

    def leave_out(self, unmeasured: float) -> None:
        """Add requests of servers that do not measure what the objective speaks of."""
        self._left_out += Excluded(not_measured=unmeasured)

    def settle(self, present: Iterable[str]) -> None:
        """Keep only the result of servers that are not `present`: they are gone for good."""
        for server in self._accounts.keys() - set(present):
            account = self._accounts.pop(server)
            self._settled += account.verdict
            self._left_out += account.excluded

    def memory(self, now: float) -> dict[str, Any]:
        """Return all of it as plain values; times are ages in seconds."""
        return {
            "breach": self.breach,
            "since": None if self.since is None else now - self.since,
            "spell": self.spell.memory(now),
            "accounts": {
                server: [
                    *map(
                        list,
                        (one.work, one.counts[:4], one.counts.requests, one.verdict, one.excluded),
                    )
                ]
                for server, one in self._accounts.items()
            },
            "settled": list(self._settled),
            "left_out": list(self._left_out),
        }

    @classmethod
    def restored(cls, memory: Mapping[str, Any], then: float) -> Ledger:
        """Return what `memory` told at `then`.

        Raises `KeyError`, `TypeError` or `ValueError` if that makes no sense.
        """
        ledger = cls()
        ledger.breach = _numbers([memory["breach"]])[0]
        since = memory["since"]
        ledger.since = None if since is None else then - float(since)
        ledger.spell = Spell.restored(memory["spell"], then)
        for server, (work, counts, requests, verdict, excluded) in dict(memory["accounts"]).items():
            ledger._accounts[str(server)] = Account(
                Work(*_numbers(work)),
                Counts(*_four(counts), Requests(*_numbers(requests))),
                Verdict(*_numbers(verdict)),
                Excluded(*_numbers(excluded)),
            )
        ledger._settled = Verdict(*_numbers(memory["settled"]))
        ledger._left_out = Excluded(*_numbers(memory["left_out"]))
        return ledger


def _four(values: Iterable[Any]) -> tuple[float, float, float, float]:
    one, two, three, four = _numbers(values)
    return one, two, three, four


def _numbers(values: Iterable[Any]) -> list[float]:
    found = [float(value) for value in values]
    if not all(math.isfinite(value) and value >= 0 for value in found):
        raise ValueError("a counter is no number, or negative")
    return found


def _risen(said: Verdict, new: Verdict) -> Verdict:
    """Return counters that have not gone back: what is certain can become less so."""
    total, least, likely, most = map(max, said, new)
    most = min(most, total)
    return Verdict(total, min(least, most), min(likely, most), most)
