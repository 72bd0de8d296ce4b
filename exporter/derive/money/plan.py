"""A cluster as money: what it costs over some years, and what an hour of one of its GPUs costs.

An hour that is owned and an hour that is used are two prices, and named apart: the second is the
first over the utilization. Dollars; years are of 8,760 hours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.derive.money.depreciation import Depreciation
from exporter.derive.money.outlays import (
    HOURS,
    Electricity,
    Line,
    Plain,
    Purchase,
    Wrong,
    Yearly,
    wrong,
)


class Rate(NamedTuple):
    """What one GPU costs an hour in a cloud, and who says so."""

    dollars: float
    source: str


class Row(NamedTuple):
    """A line of the table of costs; `share` is of what all lines cost together."""

    name: str
    capex: float
    opex: float
    share: float

    @property
    def total(self) -> float:
        """Both together."""
        return self.capex + self.opex


class Rent(NamedTuple):
    """The same work in a cloud.

    `used` is what the hours of work cost, `all_hours` what every hour of as many GPUs costs.
    `paid` is which of them is paid: a reservation costs every hour, whether it is used or not.
    `times` is that over what owning costs.
    """

    pricing: str
    rate: Rate
    used: float
    all_hours: float
    times: float

    @property
    def paid(self) -> float:
        """What is paid."""
        return self.all_hours if self.pricing == "reserved" else self.used


def rented(gpus: float, dollars: float, hours: float) -> float:
    """Return what so many GPUs cost for so many hours at a price for a GPU and hour."""
    return gpus * dollars * hours


def discounted(price: float, discount: float) -> float:
    """Return a price less a share of it."""
    return price * (1 - discount)


def per_gpu(dollars: float, gpus: float) -> float:
    """Return what one GPU of an instance costs."""
    return dollars / gpus


def times(one: float, other: float) -> float:
    """Return how many times as much the one is."""
    return one / other


@dataclass(frozen=True, slots=True)
class Plan:
    """What is bought, what is paid each year, and what is got for it.

    `gpus` and `utilization` (the share of owned hours that work is done in) are None where nobody
    states them. `rented_hours` are GPU hours a year that are rented on top; what they cost stands
    among `opex`. `density` is the work of an hour in which a GPU is used: more than 1 where several
    jobs share it. `clouds` has what a GPU costs elsewhere, by pricing model. `scaling` are the
    purchases that grow with the number of GPUs.
    """

    capex: tuple[Purchase, ...]
    opex: tuple[Yearly, ...]
    gpus: float | None = None
    utilization: float | None = None
    depreciation: Depreciation | None = None
    clouds: Mapping[str, Rate] = field(default_factory=dict)
    scaling: tuple[str, ...] = ()
    density: float = 1.0
    rented_hours: float = 0.0
    stated_capex: float | None = None
    stated_opex: float | None = None

    # ---------------------------------------------------------------- sums

    @property
    def bought(self) -> dict[str, float]:
        """What each category of purchases costs."""
        return {one.name: one.cost for one in self.capex}

    @property
    def yearly(self) -> dict[str, float]:
        """What each category costs a year."""
        bought = self.bought
        return {one.name: one.cost(bought) for one in self.opex}

    @property
    def capex_total(self) -> float:
        """What is paid once."""
        return sum(self.bought.values())

    @property
    def opex_annual(self) -> float:
        """What is paid a year."""
        return sum(self.yearly.values())

    @property
    def electricity(self) -> Electricity | None:
        """The energy; None if the plan has none."""
        return next((one for one in self.opex if isinstance(one, Electricity)), None)

    def total(self, years: float) -> float:
        """Return what is paid over some years."""
        return self.capex_total + self.opex_annual * years

    def residual(self, years: float) -> float:
        """Return what the hardware is still worth after some years; 0 where nothing is assumed."""
        if self.depreciation is None:
            return 0.0
        bought = self.bought
        price = sum(bought[name] for name in self.depreciation.of)
        return price * self.depreciation.rate(years)

    def net(self, years: float) -> float:
        """Return what is paid over some years, less what the hardware is still worth."""
        return self.total(years) - self.residual(years)

    def table(self, years: float) -> list[Row]:
        """Return what each category costs over some years, with its share of the total."""
        rows = [(name, cost, 0.0) for name, cost in self.bought.items()]
        rows += [(name, 0.0, cost * years) for name, cost in self.yearly.items()]
        whole = self.total(years)
        return [Row(*row, (row[1] + row[2]) / whole if whole else 0.0) for row in rows]

    # ---------------------------------------------------------------- by the hour

    def owned_gpu_hours(self, years: float) -> float | None:
        """Return the GPU hours that are owned; None where the number of GPUs is not stated."""
        return None if self.gpus is None else self.gpus * HOURS * years

    def used_gpu_hours(self, years: float) -> float | None:
        """Return the GPU hours that are worked, rented ones included; None where unknown."""
        owned = self.owned_gpu_hours(years)
        if owned is None or self.utilization is None:
            return None
        return owned * self.utilization * self.density + self.rented_hours * years

    def cost_per_owned_gpu_hour(self, years: float) -> float | None:
        """Return dollars for each GPU hour that is owned, used or not; None where unknown."""
        return _over(self.net(years), self.owned_gpu_hours(years))

    def cost_per_used_gpu_hour(self, years: float) -> float | None:
        """Return dollars for each GPU hour that is worked; None where unknown."""
        return _over(self.net(years), self.used_gpu_hours(years))

    # ---------------------------------------------------------------- against a cloud

    def rent(self, years: float) -> list[Rent]:
        """Return what the same work costs in a cloud; nothing where the work is not known."""
        used, owned = self.used_gpu_hours(years), self.owned_gpu_hours(years)
        own = self.net(years)
        if used is None or owned is None or own <= 0:
            return []
        found = []
        for pricing, rate in self.clouds.items():
            row = Rent(pricing, rate, rate.dollars * used, rate.dollars * owned, 0.0)
            found.append(row._replace(times=times(row.paid, own)))
        return found

    def even_at(self, years: float, dollars: float) -> float | None:
        """Return the utilization from which owning is cheaper than such a price by the hour."""
        owned = self.cost_per_owned_gpu_hour(years)
        return None if owned is None else _over(owned, dollars)

    # ---------------------------------------------------------------- what is stated

    @property
    def wrong(self) -> list[Wrong]:
        """The stated figures that are not what their parts give."""
        found: list[Wrong] = []
        for purchase in self.capex:
            found += wrong(f"capex.{purchase.name}.subtotal", purchase.stated, purchase.cost)
        for one in self.opex:
            key = f"opex_annual.{one.name}"
            if isinstance(one, Electricity):
                found += one.flaws(key)
            found += wrong(f"{key}.annual_cost", one.stated, one.cost(self.bought))
        said = self.as_stated()
        for key, stated, right, as_stated in (
            ("capex.total_capex", self.stated_capex, self.capex_total, said.capex_total),
            ("opex_annual.total_annual_opex", self.stated_opex, self.opex_annual, said.opex_annual),
        ):
            found += (one._replace(as_stated=as_stated) for one in wrong(key, stated, right))
        return found

    def as_stated(self) -> Plan:
        """Return the plan with each category's stated sum believed; totals are still computed."""
        capex = tuple(
            one if one.stated is None
            else dataclasses.replace(one, lines=(Line(one.name, one.stated),))
            for one in self.capex
        )  # fmt: skip
        opex: tuple[Yearly, ...] = tuple(
            one if one.stated is None else Plain(one.name, (Line(one.name, one.stated),))
            for one in self.opex
        )
        return dataclasses.replace(self, capex=capex, opex=opex)

    # ---------------------------------------------------------------- changes

    def replaced(self, change: Callable[[Yearly], Yearly]) -> Plan:
        """Return the plan with each yearly category changed."""
        return dataclasses.replace(self, opex=tuple(map(change, self.opex)))

    def rescaled(self, factor: float, names: tuple[str, ...]) -> Plan:
        """Return the plan with so many times as much of some purchases."""

        def scaled(one: Purchase) -> Purchase:
            more = (line._replace(quantity=line.quantity * factor) for line in one.lines)
            return dataclasses.replace(one, lines=tuple(more), stated=None)

        capex = tuple(scaled(one) if one.name in names else one for one in self.capex)
        return dataclasses.replace(self, capex=capex)


def _over(value: float, hours: float | None) -> float | None:
    return value / hours if hours else None
