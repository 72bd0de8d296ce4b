"""The lines of a plan: what is bought once, and what is paid each year.

A category computes its cost from its parts. What a document states as its sum is kept beside it:
where both are there and differ, the computed one is right and the stated one is told as wrong.
Dollars; power in kilowatts, as such plans are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

HOURS = 8760.0
"""Hours of a year."""

ROUNDING = 1e-3
"""How far, in proportion, a stated sum may be from the right one and still be a rounded one."""


class Wrong(NamedTuple):
    """A stated figure that is not what its parts give.

    `as_stated` is the sum of the lines as they are stated, where some of these are wrong too.
    """

    key: str
    stated: float
    right: float
    as_stated: float | None = None


def wrong(key: str, stated: float | None, right: float) -> Iterator[Wrong]:
    """Yield what is to be said of a stated figure; nothing if it holds, or none is stated."""
    if stated is not None and abs(stated - right) > ROUNDING * abs(right):
        yield Wrong(key, stated, right)


class Line(NamedTuple):
    """Something that is bought or paid: so many at a price each."""

    name: str
    price: float
    quantity: float = 1.0

    @property
    def cost(self) -> float:
        """What it costs."""
        return self.quantity * self.price


@dataclass(frozen=True, slots=True)
class Purchase:
    """A category of what is bought once."""

    name: str
    lines: tuple[Line, ...]
    stated: float | None = None

    @property
    def cost(self) -> float:
        """The sum of the lines."""
        return sum(line.cost for line in self.lines)


class Yearly(Protocol):
    """A category of what is paid each year."""

    @property
    def name(self) -> str:
        """What the document calls it."""

    @property
    def stated(self) -> float | None:
        """What the document says it costs a year."""

    def cost(self, bought: Mapping[str, float]) -> float:
        """Return what it costs a year; `bought` is what the purchases cost, by category."""


@dataclass(frozen=True, slots=True)
class Plain:
    """Lines that are added up."""

    name: str
    lines: tuple[Line, ...]
    stated: float | None = None

    def cost(self, bought: Mapping[str, float]) -> float:
        """Return the sum of the lines."""
        del bought
        return sum(line.cost for line in self.lines)


@dataclass(frozen=True, slots=True)
class Electricity:
    """Energy: what the machines draw, what the building adds to it (PUE), and a price.

    `kilowatts` is the power of the machines, `pue` the building's power over it, `rate` dollars for
    a kilowatt-hour, `carbon` grams of CO2 for one, None where nobody says. `between` holds stated
    figures on the way by key: total_facility_power (kW), annual_consumption (kWh).
    """

    name: str
    kilowatts: float
    pue: float
    rate: float
    hours: float = HOURS
    carbon: float | None = None
    stated: float | None = None
    between: Mapping[str, float] = field(default_factory=dict)

    @property
    def facility_kilowatts(self) -> float:
        """The power of the whole building."""
        return self.kilowatts * self.pue

    @property
    def kilowatt_hours(self) -> float:
        """The energy of a year."""
        return self.facility_kilowatts * self.hours

    @property
    def carbon_tonnes(self) -> float | None:
        """Tonnes of CO2 a year; None where the grid's intensity is not stated."""
        return None if self.carbon is None else self.kilowatt_hours * self.carbon / 1e6

    def cost(self, bought: Mapping[str, float]) -> float:
        """Return what the energy of a year costs."""
        del bought
        return self.kilowatt_hours * self.rate

    def flaws(self, key: str) -> Iterator[Wrong]:
        """Yield power and energy that are stated otherwise."""
        right = {
            "total_facility_power": self.facility_kilowatts,
            "annual_consumption": self.kilowatt_hours,
        }
        for name, stated in self.between.items():
            yield from wrong(f"{key}.{name}", stated, right[name])


@dataclass(frozen=True, slots=True)
class Racks:
    """Space that is paid by rack and month."""

    name: str
    racks: float
    monthly: float
    stated: float | None = None

    def cost(self, bought: Mapping[str, float]) -> float:
        """Return the rent of a year."""
        del bought
        return self.racks * self.monthly * 12


@dataclass(frozen=True, slots=True)
class Staff:
    """People: how many of each kind, and what one costs a year with everything."""

    name: str
    people: tuple[Line, ...]
    stated: float | None = None

    @property
    def heads(self) -> float:
        """How many they are."""
        return sum(line.quantity for line in self.people)

    def cost(self, bought: Mapping[str, float]) -> float:
        """Return what they cost a year."""
        del bought
        return sum(line.cost for line in self.people)


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A share of what some categories cost when they were bought, each year."""

    name: str
    rate: float
    of: tuple[str, ...]
    stated: float | None = None

    def cost(self, bought: Mapping[str, float]) -> float:
        """Return the share."""
        return self.rate * sum(bought[name] for name in self.of)
