"""What-if: the specification's ways to save (table 16-12), each a change of the plan.

A strategy does not claim a saving: it states what it assumes, changes purchases and yearly costs by
that, and the saving is what comes out. The work stays the same, so totals can be compared. Every
assumption has a default that can be overridden; none is measured here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from exporter.derive.money.depreciation import CHAPTER
from exporter.derive.money.outlays import (
    HOURS,
    Electricity,
    Line,
    Plain,
    Purchase,
    Racks,
    Staff,
    Yearly,
)
from exporter.derive.money.plan import Plan

Values = Mapping[str, float]


class Assumption(NamedTuple):
    """A number that a strategy rests on: its default, the bounds, and what it means."""

    default: float
    least: float
    most: float
    means: str


class Strategy(NamedTuple):
    """A way to save; `claim` is what table 16-12 says of it.

    `change` returns the changed plan; it raises `ValueError` where the plan has nothing to change.
    """

    name: str
    title: str
    claim: str
    assumptions: Mapping[str, Assumption]
    change: Callable[[Plan, Values], Plan]

    def values(self, stated: Values) -> dict[str, float]:
        """Return the assumptions with what is stated. Raises `ValueError` with the name."""
        for name, value in stated.items():
            if name not in self.assumptions:
                known = ", ".join(self.assumptions)
                raise ValueError(f"{self.name}: {name!r} is no assumption; there are {known}")
            one = self.assumptions[name]
            if not one.least <= value <= one.most:
                bounds = f"from {one.least:g} to {one.most:g}"
                raise ValueError(f"{self.name}: {name}: a number {bounds} is wanted, not {value:g}")
        return {name: stated.get(name, one.default) for name, one in self.assumptions.items()}


class Outcome(NamedTuple):
    """What a strategy comes to over some years: the plans before and after, and on what terms."""

    names: tuple[str, ...]
    title: str
    claim: str
    terms: tuple[str, ...]
    before: Plan
    after: Plan
    years: float

    @property
    def saved(self) -> float:
        """Dollars that are saved, residual value considered; below 0 where it costs more."""
        return self.before.net(self.years) - self.after.net(self.years)

    @property
    def share(self) -> float:
        """What is saved, of what the plan costs."""
        net = self.before.net(self.years)
        return self.saved / net if net else 0.0

    @property
    def of_electricity(self) -> float | None:
        """What is saved of the electricity; None without any."""
        before, after = self.before.electricity, self.after.electricity
        if before is None or after is None or not before.cost({}):
            return None
        return 1 - after.cost({}) / before.cost({})

    @property
    def carbon(self) -> float | None:
        """Tonnes of CO2 less in these years; None where the grid's intensity is not stated."""
        before, after = self.before.electricity, self.after.electricity
        first = None if before is None else before.carbon_tonnes
        then = None if after is None else after.carbon_tonnes
        return None if first is None or then is None else (first - then) * self.years


def what_if(plan: Plan, strategy: Strategy, stated: Values, years: float) -> Outcome:
    """Return what a strategy comes to. Raises `ValueError` where it cannot be followed."""
    values = strategy.values(stated)
    try:
        after = strategy.change(plan, values)
    except ValueError as error:
        raise ValueError(f"{strategy.name}: {error}") from None
    terms = tuple(
        f"{name} = {values[name]:g}: {one.means}" for name, one in strategy.assumptions.items()
    )
    return Outcome((strategy.name,), strategy.title, strategy.claim, terms, plan, after, years)


def together(plan: Plan, outcomes: Iterable[Outcome], stated: Mapping[str, Values]) -> Outcome:
    """Return several strategies followed one after the other, which saves less than their sum.

    Raises `ValueError` where one cannot be followed after those before it.
    """
    taken: list[str] = []
    after, years = plan, 0.0
    for one in outcomes:
        (name,) = one.names
        after = what_if(after, STRATEGIES[name], stated.get(name, {}), one.years).after
        taken, years = [*taken, name], one.years
    return Outcome(tuple(taken), "all of these together", "", (), plan, after, years)


# ---------------------------------------------------------------- the changes


def _shrunk(plan: Plan, factor: float) -> Plan:
    """Return the plan with so many times the GPUs, and what grows with them.

    Power and racks follow the GPUs, maintenance the purchases; people, storage and building stay.
    """
    if not plan.scaling:
        raise ValueError("no purchase grows with the GPUs: name them under scales_with_gpus")

    def change(one: Yearly) -> Yearly:
        if isinstance(one, Electricity):
            return _powered(one, factor)
        if isinstance(one, Racks):
            return dataclasses.replace(one, racks=one.racks * factor, stated=None)
        return one

    smaller = plan.rescaled(factor, plan.scaling).replaced(change)
    gpus = None if plan.gpus is None else plan.gpus * factor
    return dataclasses.replace(smaller, gpus=gpus)


def _powered(one: Electricity, factor: float) -> Electricity:
    return dataclasses.replace(one, kilowatts=one.kilowatts * factor, stated=None, between={})


def _electric(plan: Plan, change: Callable[[Electricity], Electricity]) -> Plan:
    if plan.electricity is None:
        raise ValueError("the plan has no electricity")
    return plan.replaced(
        lambda one: (
            dataclasses.replace(change(one), stated=None, between={})
            if isinstance(one, Electricity)
            else one
        )
    )


def _sharing(plan: Plan, values: Values) -> Plan:
    shared = values["share"]
    factor = 1 - shared + shared / values["jobs"]
    return dataclasses.replace(_shrunk(plan, factor), density=plan.density / factor)


def _pue(plan: Plan, values: Values) -> Plan:
    electricity = plan.electricity
    if electricity is None:
        raise ValueError("the plan has no electricity")
    if electricity.pue <= values["target"]:
        raise ValueError(
            f"PUE is {electricity.pue:g}, no higher than {values['target']:g}: nothing to gain"
        )
    cooling = Purchase(
        "liquid cooling", (Line("cooling", values["invest"], electricity.kilowatts),)
    )
    cooled = _electric(plan, lambda one: dataclasses.replace(one, pue=values["target"]))
    return dataclasses.replace(cooled, capex=(*plan.capex, cooling))


def _carbon(plan: Plan, values: Values) -> Plan:
    moved = values["share"]

    def change(one: Electricity) -> Electricity:
        rate = one.rate * (1 - moved * (1 - values["price"]))
        carbon = None if one.carbon is None else one.carbon * (1 - moved * (1 - values["carbon"]))
        return dataclasses.replace(one, rate=rate, carbon=carbon)

    return _electric(plan, change)


def _reuse(plan: Plan, values: Values) -> Plan:
    gpus = tuple(name for name in plan.bought if name.startswith("gpu"))
    if not gpus:
        raise ValueError("no purchase is named gpu...")
    moved = values["share"]
    old = moved / values["speed"]
    left = CHAPTER.rate(values["age"])
    power = 1 - moved + old * values["power"]
    changed = plan.rescaled(1 - moved + old * left, gpus)
    return changed.replaced(
        lambda one: _powered(one, power) if isinstance(one, Electricity) else one
    )


def _open_source(plan: Plan, values: Values) -> Plan:
    kept = 1 - values["share"]
    found = False

    def change(one: Yearly) -> Yearly:
        nonlocal found
        if isinstance(one, Plain) and ("licen" in one.name or "software" in one.name):
            found = True
            lines = tuple(line._replace(quantity=line.quantity * kept) for line in one.lines)
            return dataclasses.replace(one, lines=lines, stated=None)
        if isinstance(one, Staff):
            more = one.people[0]._replace(name="for the replacement", quantity=values["engineers"])
            return dataclasses.replace(one, people=(*one.people, more), stated=None)
        return one

    changed = plan.replaced(change)
    if not found:
        raise ValueError("no yearly category is named after licences or software")
    return changed


def _burst(plan: Plan, values: Values) -> Plan:
    if plan.gpus is None or plan.utilization is None:
        raise ValueError("gpus and utilization are needed, to know the work")
    stated = values["price"]
    spot = plan.clouds.get("spot") or plan.clouds.get("on_demand")
    if not stated and spot is None:
        raise ValueError(
            "a price of the cloud is needed: price=..., or a section cloud in the plan"
        )
    price = stated or (spot.dollars if spot is not None else 0.0)
    whole = plan.gpus * plan.density * HOURS
    owned = min(plan.utilization, values["base"] * values["utilization"])
    peak = whole * (plan.utilization - owned)
    rent = Plain("cloud burst", (Line("GPU hours", price, peak),))
    smaller = _shrunk(plan, values["base"])
    return dataclasses.replace(
        smaller,
        opex=(*smaller.opex, rent),
        utilization=owned / values["base"],
        rented_hours=plan.rented_hours + peak,
    )


def _share(default: float, means: str, least: float = 0.0, most: float = 1.0) -> Assumption:
    return Assumption(default, least, most, means)


_ALL = (
    Strategy(
        "sharing", "GPUs are shared (MIG, MPS)", "20-40 %",
        {
            "share": _share(0.5, "share of the work that runs on shared GPUs"),
            "jobs": Assumption(2, 1, 7, "jobs on each of those, none slower for it"),
        },
        _sharing,
    ),
    Strategy(
        "pue", "Liquid cooling lowers the PUE", "5-10 % of electricity",
        {
            "target": Assumption(1.1, 1, 3, "PUE that is reached"),
            "invest": Assumption(1360, 0, 1e5,
                "dollars once for each kW (16.6.2: 3.5 million for 2573 kW)"),
        },
        _pue,
    ),
    Strategy(
        "carbon", "Work waits for cheap and clean hours", "5-15 % of electricity",
        {
            "share": _share(0.3, "share of the energy that can wait"),
            "price": _share(0.7, "price in those hours, over the mean one", most=2.0),
            "carbon": _share(0.6, "carbon in those hours, over the mean one", most=2.0),
        },
        _carbon,
    ),
    Strategy(
        "reuse", "Old GPUs do a part of the work", "10-20 %",
        {
            "share": _share(0.2, "share of the work that old GPUs do (inference, tests)"),
            "speed": Assumption(0.5, 0.01, 2, "their speed, over that of new ones"),
            "power": Assumption(0.57, 0, 2, "their power, over that of new ones (400 of 700 W)"),
            "age": Assumption(4, 0, 20, "their age in years, by which they are bought (16.6.4)"),
        },
        _reuse,
    ),
    Strategy(
        "open-source", "Open source instead of licences", "the licences",
        {
            "share": _share(1.0, "share of the licences that falls away"),
            "engineers": Assumption(1, 0, 1000, "engineers more who look after the replacement"),
        },
        _open_source,
    ),
    Strategy(
        "burst", "Own the base, rent the peaks", "15-25 %",
        {
            "base": Assumption(0.7, 0.01, 1, "share of the GPUs that stays owned"),
            "utilization": _share(0.9, "utilization that those reach", least=0.01),
            "price": Assumption(0, 0, 1e4,
                "dollars for a rented GPU hour (0: the plan's spot, else on-demand price)"),
        },
        _burst,
    ),
)  # fmt: skip

STRATEGIES: Mapping[str, Strategy] = {one.name: one for one in _ALL}
"""The strategies of table 16-12 by name, in its order."""
