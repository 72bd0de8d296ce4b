"""What an objective has counted for one group since it was first seen: the counters of the page.

Windows are the book's; counters are kept here, by adding up the book's steps. What has been said
once never goes back, even where it has become less certain: a counter that falls means a restart.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from exporter.derive.promise import NO_VERDICT, Verdict
from exporter.derive.serving.demand import Paces, Spell
from exporter.derive.serving.tally import (
    NO_COUNTS,
    NONE_LEFT_OUT,
    Counts,
    Excluded,
    Requests,
    exclude,
    is_certain,
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


class Reading(NamedTuple):
    """What is known of a server besides its counts, at `now`.

    `working` requests are under way, None where that is not told; `restarts` is how often it has
    been restarted so far; it has been `read` since we began.
    """

    now: float
    working: float | None
    restarts: float
    read: bool = True


STANDS = 60.0
"""Seconds after which what looks left out is taken for it: it may only not be counted yet."""


class Account(NamedTuple):
    """What one server counted, and what was made of it; `excluded` is told from `base` on."""

    work: Work
    counts: Counts = NO_COUNTS
    verdict: Verdict = NO_VERDICT
    excluded: Excluded = NONE_LEFT_OUT
    base: Excluded = NONE_LEFT_OUT


class _Standing:
    """The least that numbers have been for a minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Excluded]] = deque()

    def least(self, now: float, new: Excluded) -> Excluded:
        """Return it, with what is new now."""
        self._seen.append((now, new))
        while len(self._seen) > 1 and self._seen[1][0] <= now - STANDS:
            self._seen.popleft()
        if self._seen[0][0] > now - STANDS:
            return NONE_LEFT_OUT
        return Excluded(*map(min, zip(*(one for _, one in self._seen), strict=True)))


class Ledger:
    """The counters of one objective for one group.

    `breach` is seconds in the state violated, `since` when anything was told first; `spell` and
    `paces` are for throughput. Servers that are gone are kept as one result. Of those that are
    `doubted` it may know less than was told before.
    """

    def __init__(self) -> None:
        self.breach = 0.0
        self.doubted: set[str] = set()
        self.since: float | None = None
        self.spell = Spell()
        self.paces = Paces()
        self._accounts: dict[str, Account] = {}
        self._settled = NO_VERDICT
        self._left_out = NONE_LEFT_OUT
        self._unmeasured: dict[str, tuple[float, float]] = {}  # all, and those that were told
        self._standing: dict[str, _Standing] = {}

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
        self.doubted, self._unmeasured, self._standing = set(), {}, {}

    def doubt(self) -> None:
        """Take all of it for older than what was told last; what no server counts begins anew."""
        self.breach, self._left_out, self._unmeasured = 0.0, NONE_LEFT_OUT, {}
        self.doubted = set(self._accounts)

    def begin(self, now: float) -> None:
        """Note that something has been told."""
        if self.since is None:
            self.since = now

    def add(self, objective: Objective, server: str, new: Counts, reading: Reading) -> None:
        """Add what a server counted since the round before."""
        now, working, restarts, read = reading
        doubted = read and server in self.doubted
        known = self._accounts.get(server)
        if doubted and known is not None and restarts > known.work.restarts:
            self._start_over(server)  # what it counted meanwhile is lost with its counters
            known, doubted = None, False
        told, working = float(working is not None), working or 0.0
        account = known or Account(Work(working, working, 0.0, restarts, told))
        former = account.work
        lost = former.lost + (former.now if restarts > former.restarts else 0.0)
        work = Work(former.begun, working, lost, restarts, former.told)
        counts = account.counts + new
        excluded = exclude(objective, counts, work.now, work.begun, work.lost)
        verdict = _risen(account.verdict, judge(objective, counts, work.carried))
        account = Account(work, counts, verdict, account.excluded, account.base)
        if doubted:
            self.doubted.discard(server)
            account = self._caught_up(objective, server, account, excluded)
            excluded = account.base
        if self._unmeasured.pop(server, None):  # a histogram that has come now has counted them
            self._standing.pop(server, None)
        self._accounts[server] = self._left(server, account, excluded, now)

    def _caught_up(
        self, objective: Objective, server: str, account: Account, excluded: Excluded
    ) -> Account:
        """Return what can be told of a doubted account: what is as high as before, or zero.

        What one long step shows is less certain than what was told in small ones.
        """
        certain = objective.kind != "latency" or is_certain(objective, account.counts)
        if server in self._accounts and certain:
            return account._replace(excluded=NONE_LEFT_OUT, base=excluded)
        if server in self._accounts:
            self._start_over(server)
        work = account.work
        return Account(Work(work.now, work.now, 0.0, work.restarts, work.told))

    def _start_over(self, server: str) -> None:
        """Count from zero; so do the others that are doubted, when they have been read again."""
        others = self.doubted - {server}
        self.begin_anew()
        self.doubted = others

    def _left(self, server: str, account: Account, new: Excluded, now: float) -> Account:
        """Return an account that tells what was left out, as far as that is settled."""
        if account.base is not NONE_LEFT_OUT:
            new = Excluded(*(max(0.0, a - b) for a, b in zip(new, account.base, strict=True)))
        if not any(new):
            self._standing.pop(server, None)
            return account
        stood = self._standing.setdefault(server, _Standing()).least(now, new)
        told = new._replace(client_abort=stood.client_abort, not_measured=stood.not_measured)
        return account._replace(excluded=Excluded(*map(max, account.excluded, told)))

    def add_time(self, asked: float, kept: float) -> None:
        """Add seconds with demand, and how many of them were good."""
        self._settled += Verdict(asked, kept, kept, kept)

    def leave_out(self, server: str, unmeasured: float, now: float) -> None:
        """Add requests of a server that does not measure what the objective speaks of."""
        whole, told = self._unmeasured.get(server, (0.0, 0.0))
        new = Excluded(not_measured=whole + unmeasured)
        stood = self._standing.setdefault(server, _Standing()).least(now, new)
        more = max(0.0, stood.not_measured - told)
        self._unmeasured[server] = new.not_measured, told + more
        self._left_out += Excluded(not_measured=more)

    def settle(self, present: Iterable[str]) -> None:
        """Keep only the result of servers that are not `present`: they are gone for good."""
        here = set(present)
        for server in self._accounts.keys() - here:
            account = self._accounts.pop(server)
            self._settled += account.verdict
            self._left_out += account.excluded
        for server in self._standing.keys() - here:
            del self._standing[server]
            self._unmeasured.pop(server, None)

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
                        (
                            one.work,
                            one.counts[:4],
                            one.counts.requests,
                            one.verdict,
                            one.excluded,
                            one.base,
                        ),
                    )
                ]
                for server, one in self._accounts.items()
            },
            "settled": list(self._settled),
            "left_out": list(self._left_out),
            "unmeasured": {server: list(both) for server, both in self._unmeasured.items()},
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
        for server, account in dict(memory["accounts"]).items():
            work, counts, requests, verdict, excluded, base = account
            ledger._accounts[str(server)] = Account(
                Work(*_numbers(work)),
                Counts(*_four(counts), Requests(*_numbers(requests))),
                Verdict(*_numbers(verdict)),
                Excluded(*_numbers(excluded)),
                Excluded(*_numbers(base)),
            )
        for server, (whole, told) in dict(memory["unmeasured"]).items():
            ledger._unmeasured[str(server)] = float(whole), float(told)
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
