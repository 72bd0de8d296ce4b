"""The dollars of one GPU: price times time, by what the GPU did meanwhile.

Time is booked from reading to reading of the counters of activity, so that what a GPU did between
two looks is in the books whatever the beat; a price that changes counts from then on. Where nobody
can tell whether the GPU worked, its time is booked as `unknown`, and costs what it costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from exporter.derive.money.owners import Owner, Owners
from exporter.derive.money.pricing import Price, Schedule

STATES = ("busy", "idle", "unknown", "unallocated")

PATIENCE = 60.0
"""Seconds after which a GPU that tells nothing is booked without it."""

_OWED = 2.0
"""Seconds of work that may be told too early: source and driver do not look at the same moment."""


class Activity(NamedTuple):
    """A reading of the counters of activity: SMs with work, and kernels, each if it is told."""

    taken: float
    sms: float | None
    kernels: float | None


class Booked(NamedTuple):
    """What was booked in a round: nanoseconds, of which so many idle, and dollars.

    Times are whole numbers, so that they can be divided and added up again without a rest.
    `dollars` are None where there was no price.
    """

    nanoseconds: int = 0
    idle: int = 0
    dollars: float | None = None
    waste: float | None = None
    """The dollars of what is known to have been idle; None where that is not known."""


class Account:
    """One GPU. `price`, `contract` and `owners` hold from `until` on: up to then all is booked.

    `contract` is how the GPU is paid for, whether there is a price or not. `owners` is None where
    it is not known who has the GPU. `dollars` are by state, and `counts` says whether there has
    been a price; `shared` whether owners have been known.
    """

    def __init__(self, now: float) -> None:
        self.until = now
        self.gpu = ""
        self.uuid = ""
        self.name = ""
        self.price: Price | None = None
        self.contract = ""
        self.owners: Owners | None = None
        self.counts = False
        self.shared = False
        self.seen = now
        self.dollars = dict.fromkeys(STATES, 0.0)
        self._begun = False
        self._heard = now
        self._missed = False
        self._last: Activity | None = None
        self._owed = 0.0

    def book(
        self, now: float, activity: Activity | None, schedule: Schedule, offset: float, gap: float
    ) -> Booked:
        """Book the time up to a new reading; up to `now` if there is none, or none for too long.

        `offset` turns moments into Unix seconds. Where a reading was missing in between, or they
        lie further apart than `gap` seconds, work may be left out.
        """
        self._missed = self._missed or activity is None
        if not self._begun:
            self._begun, self._heard, self._missed = True, now, False
            if activity is not None:
                self.until, self._last = activity.taken, activity
            return Booked()
        if activity is not None and activity.taken > self.until:
            busy, known = self._worked(activity, gap)
            booked = self._put(activity.taken, busy, schedule, offset, known=known)
            self._last, self._heard, self._missed = activity, activity.taken, False
            return booked
        silent = self._last is None or now - self._heard > gap
        if silent and now > self.until:
            self._last, self._owed = None, 0.0
            return self._put(now, 0.0, schedule, offset, known=False)
        return Booked()

    def _worked(self, new: Activity, gap: float) -> tuple[float, bool]:
        """Return for how long it was busy since `until`, and whether the rest is known as idle."""
        elapsed, last = new.taken - self.until, self._last
        if last is None or last.taken != self.until:
            return 0.0, False
        rise = _rise(last.sms, new.sms)
        if rise is None:
            rise = _rise(last.kernels, new.kernels)
        if rise is None:
            self._owed = 0.0
            return 0.0, False
        rise += self._owed
        busy = min(rise, elapsed)
        self._owed = min(rise - busy, _OWED)
        return busy, not self._missed and elapsed <= gap

    def _put(
        self, until: float, busy: float, schedule: Schedule, offset: float, *, known: bool
    ) -> Booked:
        elapsed = until - self.until
        base = None if self.price is None else self.price.dollars
        total = schedule.spent(self.until + offset, until + offset, base)
        whole = _nanoseconds(until) - _nanoseconds(self.until)
        self.until = until
        idle = min(whole, _nanoseconds(elapsed - busy)) if known else 0
        if total is None:
            return Booked(whole, idle)
        self.counts = True
        worked = total * busy / elapsed
        rest = self._rest(known=known)
        self.dollars["busy"] += worked
        self.dollars[rest] += total - worked
        return Booked(whole, idle, total, None if rest == "unknown" else total - worked)

    def _rest(self, *, known: bool) -> str:
        if self.owners == ():
            return "unallocated"
        return "idle" if known else "unknown"

    # ------------------------------------------------------------ what outlives it

    def memory(self) -> dict[str, Any]:
        """Return all of it as plain values; moments are of the monotonic clock."""
        return {
            "until": self.until, "gpu": self.gpu, "uuid": self.uuid, "name": self.name,
            "price": None if self.price is None else list(self.price), "seen": self.seen,
            "contract": self.contract,
            "owners": None if self.owners is None else [list(one) for one in self.owners],
            "counts": self.counts, "shared": self.shared, "dollars": dict(self.dollars),
            "last": None if self._last is None else list(self._last), "owed": self._owed,
            "heard": self._heard,
        }  # fmt: skip

    @classmethod
    def restored(cls, memory: Mapping[str, Any]) -> Account:
        """Return an account as `memory` told it. Raises for what is no such memory."""
        account = cls(float(memory["until"]))
        account.gpu, account.uuid = str(memory["gpu"]), str(memory["uuid"])
        account.name, account.seen = str(memory["name"]), float(memory["seen"])
        account.price = None if memory["price"] is None else Price(*memory["price"])
        account.contract = str(memory.get("contract", ""))
        owners = memory["owners"]
        account.owners = None if owners is None else tuple(map(_owner, owners))
        account.counts, account.shared = bool(memory["counts"]), bool(memory["shared"])
        for state in STATES:
            account.dollars[state] = amount(memory["dollars"][state])
        last = memory["last"]
        account._last = None if last is None else Activity(*last)
        account._owed, account._begun = amount(memory["owed"]), True
        account._heard = float(memory["heard"])
        return account

    def begin_anew(self, now: float, *, final: bool) -> None:
        """Go on in another process: what was in between is not counted.

        Dollars stay if nothing was told after them: a counter that falls back a little would be
        taken for all of it anew, one that begins at 0 is understood.
        """
        self.until, self.seen, self._last, self._owed = now, now, None, 0.0
        self.price, self.contract, self.owners, self._begun = None, "", None, False
        if not final:
            self.dollars = dict.fromkeys(STATES, 0.0)


def _owner(memory: Sequence[Any]) -> Owner:
    """Return an owner as plain values tell it; of former versions without its part."""
    namespace, pod, *share = memory
    known = share and share[0] is not None
    return Owner(str(namespace), str(pod), amount(share[0]) if known else None)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _rise(before: float | None, after: float | None) -> float | None:
    """Return by how much a counter rose; None if it is not told or began anew."""
    if before is None or after is None or after < before:
        return None
    return after - before


def amount(value: object) -> float:
    """Return a number that is no less than 0. Raises `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is no amount")
    return float(value)
