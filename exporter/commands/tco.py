"""`flopwatch tco FILE`: what a cluster costs, by category and by the hour, and what would save.

The sums are the plan's own; stated ones that do not hold are named. What-ifs say what they assume.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from exporter.commands.money import columns, millions, percent, plain, price
from exporter.config import ConfigError, load_document
from exporter.derive.money.outlays import Wrong
from exporter.derive.money.plan import Plan, Rent
from exporter.derive.money.strategies import STRATEGIES, Outcome, Values, together, what_if
from exporter.derive.money.tco import read_tco

VIEWS = (3, 5)
"""Years of the views that are shown unless one is asked for."""


class Wish(NamedTuple):
    """A strategy that is asked for, with the assumptions that are stated."""

    name: str
    values: Values


class Answer(NamedTuple):
    """What is to be shown. `refused` are strategies that the plan cannot follow, and why."""

    file: str
    plan: Plan
    years: tuple[int, ...]
    outcomes: tuple[Outcome, ...]
    refused: tuple[str, ...]


def answer(
    path: Path,
    years: Sequence[int] = VIEWS,
    wishes: Sequence[Wish] = (),
    gpus: float | None = None,
    utilization: float | None = None,
) -> Answer:
    """Return what a file says, with the number of GPUs and the utilization on top if stated.

    Raises `ConfigError` naming file and key.
    """
    try:
        plan = read_tco(load_document(path))
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    plan = dataclasses.replace(
        plan,
        gpus=plan.gpus if gpus is None else gpus,
        utilization=plan.utilization if utilization is None else utilization,
    )
    found, refused = _outcomes(plan, wishes, max(years))
    return Answer(str(path), plan, tuple(years), found, refused)


def wish(text: str) -> list[Wish]:
    """Return what `NAME`, `NAME:key=value,key=value` or `all` asks for. Raises `ConfigError`."""
    name, _, rest = text.partition(":")
    if name == "all" and not rest:
        return [Wish(one, {}) for one in STRATEGIES]
    if name not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise ConfigError(f"--what-if: {name!r} is not known; there are {known}, all")
    values = {}
    for part in filter(None, rest.split(",")):
        key, _, number = part.partition("=")
        try:
            values[key] = float(number)
        except ValueError:
            raise ConfigError(f"--what-if: {name}: {part!r} is not key=number") from None
    try:
        STRATEGIES[name].values(values)
    except ValueError as error:
        raise ConfigError(f"--what-if: {error}") from None
    return [Wish(name, values)]


def _outcomes(
    plan: Plan, wishes: Sequence[Wish], years: int
) -> tuple[tuple[Outcome, ...], tuple[str, ...]]:
    found: list[Outcome] = []
    refused = []
    for one in wishes:
        try:
            found.append(what_if(plan, STRATEGIES[one.name], one.values, years))
        except ValueError as error:
            refused.append(str(error))
    if len(found) > 1:
        try:
            found.append(together(plan, found, {one.name: one.values for one in wishes}))
        except ValueError as error:
            refused.append(f"all of these together: {error}")
    return tuple(found), tuple(refused)


# ---------------------------------------------------------------- for people


def lines(answer: Answer) -> Iterator[str]:
    """Yield what is printed for people."""
    plan = answer.plan
    yield f"Total cost of ownership: {answer.file}"
    for years in answer.years:
        yield ""
        yield from _view(plan, years)
    if plan.wrong:
        yield ""
        yield "Stated sums that do not hold (the tables above rest on the right ones)"
        yield from (f"  {_told(one)}" for one in plan.wrong)
    if plan.depreciation is not None:
        yield ""
        yield from _value(plan, max(answer.years))
    for years in answer.years:
        if rents := plan.rent(years):
            yield ""
            yield from _clouds(plan, rents, years)
    if answer.outcomes or answer.refused:
        yield ""
        yield from _what_if(answer)


def _view(plan: Plan, years: int) -> Iterator[str]:
    yield f"Over {years} years, millions of dollars" if years > 1 else "Over a year, in millions"
    rows: list[tuple[str, ...]] = [("", "CapEx", "OpEx", "total", "share")]
    rows += [
        (row.name, millions(row.capex), millions(row.opex), millions(row.total), percent(row.share))
        for row in plan.table(years)
    ]
    whole = (plan.capex_total, plan.opex_annual * years, plan.total(years))
    rows.append(("total", *map(millions, whole), percent(1)))
    if plan.depreciation is not None:
        left = f"less what {', '.join(plan.depreciation.of)} still fetch"
        rows.append((left, "", "", millions(-plan.residual(years)), ""))
        rows.append(("net", "", "", millions(plan.net(years)), ""))
    yield from columns(rows)
    yield from _hours(plan, years)
    if plan.electricity is not None and (carbon := plan.electricity.carbon_tonnes) is not None:
        yield f"  {carbon * years:,.0f} tonnes of CO2"


def _hours(plan: Plan, years: int) -> Iterator[str]:
    owned, used = plan.cost_per_owned_gpu_hour(years), plan.cost_per_used_gpu_hour(years)
    if plan.gpus is None:
        yield "  no cost of a GPU hour: the plan does not say how many GPUs (gpus: N, or --gpus N)"
        return
    yield f"  {price(owned)} dollars per owned GPU hour ({plan.gpus:,.0f} GPUs)"
    if used is None:
        yield "  no cost of a used GPU hour: utilization is not stated (--utilization 0.75)"
        return
    share = percent(plan.utilization or 0.0)
    yield f"  {price(used)} dollars per used GPU hour (utilization {share})"


def _value(plan: Plan, years: int) -> Iterator[str]:
    yield "What the hardware still fetches, millions of dollars"
    rows = [("after years", "generation", "share", "value")]
    rows += [
        (str(row["years"]), row["generation"], percent(row["share"]), millions(row["dollars"]))
        for row in _left(plan, years)
    ]
    yield from columns(rows)


def _left(plan: Plan, years: int) -> list[dict[str, Any]]:
    """Return what is left of the purchases that lose value, year by year."""
    fall = plan.depreciation
    if fall is None:
        return []
    return [
        {
            "years": year,
            "generation": fall.generation(year),
            "share": fall.rate(year),
            "dollars": plan.residual(year),
        }
        for year in range(1, years + 1)
    ]


def _told(one: Wrong) -> str:
    more = one.stated - one.right
    text = f"{one.key}: {one.stated:,.0f} is stated, {one.right:,.0f} is right"
    text += f" ({abs(more):,.0f} too {'much' if more > 0 else 'little'})"
    if one.as_stated is not None and round(one.as_stated) != round(one.right):
        text += f"; its parts as they are stated make {one.as_stated:,.0f}"
    return text


def _clouds(plan: Plan, rents: Sequence[Rent], years: int) -> Iterator[str]:
    yield f"The same work in a cloud, {years} years, millions of dollars"
    rows = [("", "GPU hour", "used hours", "all hours", "paid", "times owning")]
    rows += [
        (
            one.pricing, price(one.rate.dollars), millions(one.used), millions(one.all_hours),
            "all hours" if one.pricing == "reserved" else "used hours", f"{one.times:.1f}",
        )
        for one in rents
    ]  # fmt: skip
    yield from columns(rows)
    for one in rents:
        even = plan.even_at(years, one.rate.dollars)
        told = "" if even is None else _even(even, whole=one.pricing == "reserved")
        yield f"  {one.pricing}: {one.rate.source}{told}"


def _even(utilization: float, *, whole: bool) -> str:
    """Say when owning is cheaper; what is paid as a `whole` costs the same at any utilization."""
    if utilization > 1:
        return "; cheaper than owning at any utilization"
    if whole:
        return "; owning is cheaper at any utilization"
    return f"; owning is cheaper from a utilization of {percent(utilization)} on"


def _what_if(answer: Answer) -> Iterator[str]:
    years = max(answer.years)
    yield f"What if, over {years} years (nothing of this is measured; each line says its terms)"
    for one in answer.outcomes:
        name = one.names[0] if one.terms else "together"
        yield f"  {name}: {one.title}"
        verb = "saves" if one.saved >= 0 else "costs"
        hour = one.after.cost_per_used_gpu_hour(years)
        text = (
            f"    {verb} {millions(abs(one.saved))} million, {percent(abs(one.share))} of the cost"
        )
        text += "" if hour is None else f"; {price(hour)} dollars per used GPU hour"
        yield text
        if "electricity" in one.claim and one.of_electricity is not None:
            yield f"    {percent(one.of_electricity)} of the electricity"
        if one.carbon:
            yield f"    {one.carbon:,.0f} tonnes of CO2 less"
        if one.claim:
            yield f"    the specification says: {one.claim}"
        yield from (f"    {term}" for term in one.terms)
    yield from (f"  not possible: {reason}" for reason in answer.refused)


# ---------------------------------------------------------------- for programs


def as_json(answer: Answer) -> dict[str, Any]:
    """Return the same for programs; dollars, not millions."""
    plan = answer.plan
    return {
        "file": answer.file,
        "gpus": plan.gpus,
        "utilization": plan.utilization,
        "views": [_view_json(plan, years) for years in answer.years],
        "wrong": [one._asdict() for one in plan.wrong],
        "value_left": _left(plan, max(answer.years)),
        "what_if": [_outcome_json(one) for one in answer.outcomes],
        "refused": list(answer.refused),
    }


def _view_json(plan: Plan, years: int) -> dict[str, Any]:
    tonnes = None if plan.electricity is None else plan.electricity.carbon_tonnes
    return {
        "years": years,
        "categories": [row._asdict() | {"total": row.total} for row in plan.table(years)],
        "capex": plan.capex_total,
        "opex": plan.opex_annual * years,
        "total": plan.total(years),
        "residual": plan.residual(years),
        "net": plan.net(years),
        "dollars_per_owned_gpu_hour": plain(plan.cost_per_owned_gpu_hour(years)),
        "dollars_per_used_gpu_hour": plain(plan.cost_per_used_gpu_hour(years)),
        "carbon_tonnes": None if tonnes is None else tonnes * years,
        "cloud": [
            {
                "pricing": one.pricing,
                "dollars_per_gpu_hour": one.rate.dollars,
                "source": one.rate.source,
                "used_hours": one.used,
                "all_hours": one.all_hours,
                "paid": one.paid,
                "times_owning": one.times,
            }
            for one in plan.rent(years)
        ],
    }


def _outcome_json(one: Outcome) -> dict[str, Any]:
    return {
        "strategies": list(one.names),
        "years": one.years,
        "assumptions": list(one.terms),
        "saved": one.saved,
        "share": one.share,
        "electricity_share": one.of_electricity,
        "carbon_tonnes_less": one.carbon,
        "net": one.after.net(one.years),
        "dollars_per_used_gpu_hour": plain(one.after.cost_per_used_gpu_hour(one.years)),
        "specification": one.claim,
    }
