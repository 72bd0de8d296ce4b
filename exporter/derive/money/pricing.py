"""What an hour of each GPU costs: the first of several who know, and the time of day.

In the order of trust: what the operator states, the TCO model of owned hardware, OpenCost, the
table of list prices. Whoever is asked first and has an answer is believed. Nobody's answer means no
price: nothing is guessed, neither from a similar product nor from a similar contract.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

HOUR = 3600.0
_MINUTE = 60.0
_WEEK = 7 * 86400.0

PriceSource = Literal["config", "tco", "opencost", "listed"]

LISTED = ("on_demand", "reserved", "spot")
"""Contracts that the table of list prices knows."""


class Price(NamedTuple):
    """US dollars for an hour of one GPU, the time of day aside, and where they come from.

    `pricing` is the contract ("" if nobody says which), `since` the moment in Unix seconds from
    which on it is known, `as_of` its day as text where it has one.
    """

    dollars: float
    source: PriceSource
    pricing: str = ""
    instance_type: str = ""
    as_of: str = ""
    since: float | None = None


class Instance(NamedTuple):
    """What the node is as an instance of a cloud; "" where that is not known."""

    instance_type: str = ""
    lifecycle: str = ""


class Listed(NamedTuple):
    """A list price of one GPU: dollars an hour, and the day it is of."""

    dollars: float
    as_of: dt.date


class Offer(NamedTuple):
    """What OpenCost says: dollars an hour, the contract, and when it was read (Unix seconds)."""

    dollars: float
    pricing: str
    instance_type: str
    read: float


Table = Callable[[str, str], Listed | None]
"""Returns the list price of an instance type and contract."""


def _empty(instance_type: str, pricing: str) -> Listed | None:  # noqa: ARG001
    return None


# ---------------------------------------------------------------- the time of day


@dataclass(frozen=True, slots=True)
class Hours:
    """A part of the week: minutes of the day from `begin` until `end`, on `days` (Monday is 0).

    `end` at or before `begin` lies on the day after. In it prices are multiplied by `factor`, or
    are `dollars` whatever the price is else.
    """

    begin: int
    end: int
    days: frozenset[int] = frozenset(range(7))
    factor: float = 1.0
    dollars: float | None = None

    def holds(self, day: int, minute: int) -> bool:
        """Tell whether a minute of a day of the week lies in it."""
        if self.begin < self.end:
            return day in self.days and self.begin <= minute < self.end
        if minute >= self.begin:
            return day in self.days
        return minute < self.end and (day - 1) % 7 in self.days


@dataclass(frozen=True, slots=True)
class Schedule:
    """How prices change over the week, in a time zone. Of hours that overlap the first count."""

    hours: tuple[Hours, ...] = ()
    zone: dt.tzinfo = dt.UTC

    def at(self, wall: float, dollars: float | None) -> float | None:
        """Return the price of an hour at a moment (Unix seconds); None where there is none."""
        one = self._holding(wall)
        if one is None:
            return dollars
        if one.dollars is not None:
            return one.dollars
        return None if dollars is None else dollars * one.factor

    def states(self, wall: float) -> bool:
        """Tell whether the price at a moment is that of the hours, whatever it is else."""
        one = self._holding(wall)
        return one is not None and one.dollars is not None

    def _holding(self, wall: float) -> Hours | None:
        if not self.hours:
            return None
        now = dt.datetime.fromtimestamp(wall, self.zone)
        day, minute = now.weekday(), now.hour * 60 + now.minute
        return next((one for one in self.hours if one.holds(day, minute)), None)

    def spent(self, begin: float, end: float, dollars: float | None) -> float | None:
        """Return what the time between two moments cost; None if none of it had a price.

        Hours begin and end on whole minutes, in every time zone there is: so each minute has one
        price, also where clocks are changed.
        """
        if not self.hours:
            return None if dollars is None else dollars * (end - begin) / HOUR
        pieces = [
            price * seconds / HOUR
            for moment, seconds in _minutes(begin, end)
            if (price := self.at(moment, dollars)) is not None
        ]
        return math.fsum(pieces) if pieces else None


def _minutes(begin: float, end: float) -> Iterator[tuple[float, float]]:
    """Yield when each piece of a whole minute begins, and its seconds; of a week at most.

    What is longer is one piece: nobody keeps books over such a pause.
    """
    if end - begin > _WEEK:
        yield begin, end - begin
        return
    while begin < end:
        until = min(end, (begin // _MINUTE + 1) * _MINUTE)
        yield begin, until - begin
        begin = until


# ---------------------------------------------------------------- whom to believe


@dataclass(frozen=True, slots=True)
class Owned:
    """What the TCO model says: dollars for an owned hour of a GPU."""

    dollars: float


@dataclass(frozen=True, slots=True)
class Pricing:
    """Who is asked for a price.

    `stated` are prices by a pattern of the GPU's name, the first that fits counting; `pricing` is
    the contract and `instance_type` the instance, where the operator says so; `as_of` the day (Unix
    seconds) of what is stated.
    """

    stated: Sequence[tuple[str, float]] = ()
    pricing: str = ""
    as_of: dt.date | None = None
    owned: Owned | None = None
    instance_type: str = ""
    table: Table = _empty
    schedule: Schedule = Schedule()

    def price(self, name: str, instance: Instance, offer: Offer | None) -> Price | None:
        """Return the price of a GPU by its product's name; None if nobody knows one."""
        contract = self.contract(instance)
        kind = self.instance_type or instance.instance_type
        dollars = self._stated(name)
        if dollars is not None:
            return _dated(Price(dollars, "config", contract, kind), self.as_of)
        if self.owned is not None:
            return Price(self.owned.dollars, "tco", self.pricing or "owned", kind)
        if offer is not None:
            told = self.pricing or offer.pricing or contract
            return Price(
                offer.dollars, "opencost", told, offer.instance_type or kind, since=offer.read
            )
        listed = self.table(kind, contract) if kind and contract in LISTED else None
        if listed is None:
            return None
        return _dated(Price(listed.dollars, "listed", contract, kind), listed.as_of)

    def of_hours(self, dollars: float, contract: str, kind: str) -> Price:
        """Return a price that the hours of the schedule state."""
        return _dated(Price(dollars, "config", contract, kind), self.as_of)

    def contract(self, instance: Instance) -> str:
        """Return how GPUs are paid for, as far as that is known without a price."""
        return self.pricing or instance.lifecycle

    def _stated(self, name: str) -> float | None:
        for pattern, dollars in self.stated:
            if fnmatchcase(name.casefold(), pattern.casefold()):
                return dollars
        return None


def _dated(price: Price, day: dt.date | None) -> Price:
    return price if day is None else price._replace(as_of=day.isoformat(), since=seconds_of(day))


def seconds_of(day: dt.date) -> float:
    """Return the beginning of a day (UTC) in Unix seconds."""
    return (day - dt.date(1970, 1, 1)) / dt.timedelta(seconds=1)


def instance_of(rows: Sequence[Mapping[str, str]]) -> Instance:
    """Return the instance that rows of `spot_instance_info` tell of; none if they disagree."""
    known = {Instance(row["instance_type"], row["lifecycle"]) for row in rows}
    return known.pop() if len(known) == 1 else Instance()
