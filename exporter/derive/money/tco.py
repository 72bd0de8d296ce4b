"""Reads a plan of total cost of ownership, as the seed chapter prints one (16.6.2).

Sums are computed, never taken over: a stated `subtotal`, `annual_cost` or total is kept to be
compared. A stated sum without parts is all that is known, and counts. Kinds of yearly costs are
recognised by their keys, so names are the operator's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from exporter.derive.money.depreciation import CHAPTER, Curve, Depreciation, Point
from exporter.derive.money.outlays import (
    HOURS,
    Electricity,
    Line,
    Maintenance,
    Plain,
    Purchase,
    Racks,
    Staff,
    Yearly,
)
from exporter.derive.money.plan import Plan, Rate, discounted, per_gpu
from exporter.reference.prices import PRICINGS, ListPrice, listed

__all__ = ["Plan", "read_tco"]

Listed = Callable[[str, str], ListPrice | None]
_Reader = Callable[[str, Mapping[str, Any], str, tuple[Purchase, ...]], Yearly]

KEYS = frozenset({
    "capex", "opex_annual", "gpus", "utilization", "depreciation", "cloud", "scales_with_gpus",
})  # fmt: skip
HARDWARE_NOT = ("facility", "infrastructure", "building", "datacenter")
"""Purchases that `annual_rate` of the hardware does not mean, unless `of` names them."""
GROWING = ("gpu", "network")
"""How names of purchases begin that grow with the GPUs, unless `scales_with_gpus` says."""

LARGEST = 1e15
"""Numbers are below this: no plan has more dollars, and no arithmetic overflows."""


def read_tco(document: object, prices: Listed = listed) -> Plan:
    """Return the plan that a document describes.

    `prices` looks up the list price of an instance where the document names one without a price.
    Raises `ValueError` with the key that is wrong.
    """
    top = _mapping(document, "the document")
    _known(top, KEYS, "")
    if "capex" not in top and "opex_annual" not in top:
        raise ValueError("capex, opex_annual: at least one of these keys is needed")
    bought = _mapping(top.get("capex", {}), "capex")
    paid = _mapping(top.get("opex_annual", {}), "opex_annual")
    capex = tuple(_purchase(name, value) for name, value in _categories(bought, "total_capex"))
    opex = tuple(
        _yearly(name, value, capex) for name, value in _categories(paid, "total_annual_opex")
    )
    names = [one.name for one in capex]
    return Plan(
        capex=capex,
        opex=opex,
        gpus=_gpus(top, bought),
        utilization=_optional(top, "utilization", "", most=1.0, above=0.0),
        depreciation=_depreciation(top.get("depreciation"), capex),
        clouds=_clouds(top.get("cloud"), prices),
        scaling=_scaling(top.get("scales_with_gpus"), names),
        stated_capex=_optional(bought, "total_capex", "capex"),
        stated_opex=_optional(paid, "total_annual_opex", "opex_annual"),
    )


# ---------------------------------------------------------------- purchases


def _categories(section: Mapping[str, Any], total: str) -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if not isinstance(name, str):
            raise ValueError(f"{name}: the name of a category must be a word")  # noqa: TRY004
        if name != total:
            yield name, value


def _purchase(name: str, value: object) -> Purchase:
    key = f"capex.{name}"
    if not isinstance(value, Mapping):
        return Purchase(name, (Line(name, _number(value, key)),))
    stated = _optional(value, "subtotal", key)
    lines = tuple(_lines(name, value, key, ("subtotal", "gpus_per_server")))
    return Purchase(name, lines or _only(name, stated, key, "subtotal"), stated)


def _lines(
    name: str, value: Mapping[str, Any], key: str, not_lines: tuple[str, ...]
) -> Iterator[Line]:
    """Yield what is bought or paid: `quantity` at `unit_price`, and each other key."""
    many = _pair(value, key, "quantity", "unit_price")
    if many is not None:
        yield Line(name, many[1], many[0])
    for part, what in value.items():
        if part in (*not_lines, "quantity", "unit_price"):
            continue
        where = f"{key}.{part}"
        if not isinstance(what, Mapping):
            yield Line(part, _number(what, where))
            continue
        _known(what, ("quantity", "unit_price"), where)
        pair = _pair(what, where, "quantity", "unit_price")
        if pair is None:
            raise ValueError(f"{where}: quantity and unit_price, or a number, are wanted")
        yield Line(part, pair[1], pair[0])


def _only(name: str, stated: float | None, key: str, what: str) -> tuple[Line, ...]:
    if stated is None:
        raise ValueError(f"{key}: has neither lines nor {what}")
    return (Line(name, stated),)


def _gpus(top: Mapping[str, Any], bought: Mapping[str, Any]) -> float | None:
    said = _optional(top, "gpus", "", above=0.0)
    counted = 0.0
    for name, value in bought.items():
        if isinstance(value, Mapping) and "gpus_per_server" in value:
            key = f"capex.{name}"
            each = _needed(value, "gpus_per_server", key, above=0.0)
            counted += each * _needed(value, "quantity", key)
    if said is not None and counted and said != counted:
        raise ValueError(f"gpus: {said:g}, but gpus_per_server and quantity make {counted:g}")
    return said or counted or None


def _scaling(value: object, names: list[str]) -> tuple[str, ...]:
    if value is None:
        return tuple(name for name in names if name.startswith(GROWING))
    return _names(value, "scales_with_gpus", names)


# ---------------------------------------------------------------- each year


def _yearly(name: str, value: object, capex: tuple[Purchase, ...]) -> Yearly:
    key = f"opex_annual.{name}"
    if not isinstance(value, Mapping):
        return Plain(name, (Line(name, _number(value, key)),))
    for mark, reader in _KINDS.items():
        if mark in value:
            return reader(name, value, key, capex)
    stated = _optional(value, "annual_cost", key)
    lines = tuple(_lines(name, value, key, ("annual_cost",)))
    return Plain(name, lines or _only(name, stated, key, "annual_cost"), stated)


def _electricity(
    name: str, value: Mapping[str, Any], key: str, capex: tuple[Purchase, ...]
) -> Electricity:
    del capex
    between = ("total_facility_power", "annual_consumption")
    _known(
        value,
        (
            "it_power",
            "pue",
            "electricity_rate",
            "hours",
            "carbon_intensity",
            "annual_cost",
            *between,
        ),
        key,
    )
    return Electricity(
        name=name,
        kilowatts=_needed(value, "it_power", key),
        pue=_needed(value, "pue", key, least=1.0),
        rate=_needed(value, "electricity_rate", key),
        hours=_optional(value, "hours", key, above=0.0, most=HOURS + 24) or HOURS,
        carbon=_optional(value, "carbon_intensity", key),
        stated=_optional(value, "annual_cost", key),
        between={one: _needed(value, one, key) for one in between if one in value},
    )


def _racks(name: str, value: Mapping[str, Any], key: str, capex: tuple[Purchase, ...]) -> Racks:
    del capex
    _known(value, ("rack_count", "per_rack_monthly", "annual_cost"), key)
    racks, monthly = _needed(value, "rack_count", key), _needed(value, "per_rack_monthly", key)
    return Racks(name, racks, monthly, _optional(value, "annual_cost", key))


def _staff(name: str, value: Mapping[str, Any], key: str, capex: tuple[Purchase, ...]) -> Staff:
    del capex
    each = _needed(value, "fully_loaded_cost_per_engineer", key)
    people = tuple(
        Line(kind, each, _number(heads, f"{key}.{kind}"))
        for kind, heads in value.items()
        if kind not in ("fully_loaded_cost_per_engineer", "annual_cost")
    )
    if not people:
        raise ValueError(f"{key}: says what an engineer costs, but not how many there are")
    return Staff(name, people, _optional(value, "annual_cost", key))


def _maintenance(
    name: str, value: Mapping[str, Any], key: str, capex: tuple[Purchase, ...]
) -> Maintenance | Plain:
    _known(value, ("annual_rate", "of", "annual_cost"), key)
    names = [one.name for one in capex]
    hardware = tuple(one for one in names if one not in HARDWARE_NOT)
    of = _names(value["of"], f"{key}.of", names) if "of" in value else hardware
    rate = _needed(value, "annual_rate", key, most=1.0)
    stated = _optional(value, "annual_cost", key)
    if of:
        return Maintenance(name, rate, of, stated)
    if stated is None:
        raise ValueError(f"{key}.annual_rate: there are no purchases to take a share of")
    return Plain(name, (Line(name, stated),), stated)


_KINDS: Mapping[str, _Reader] = {
    "it_power": _electricity,
    "electricity_rate": _electricity,
    "rack_count": _racks,
    "per_rack_monthly": _racks,
    "fully_loaded_cost_per_engineer": _staff,
    "annual_rate": _maintenance,
}


# ---------------------------------------------------------------- value and clouds


def _depreciation(value: object, capex: tuple[Purchase, ...]) -> Depreciation | None:
    """Return how the hardware loses value; None where the document assumes nothing."""
    if value is None:
        return None
    key, section = "depreciation", _mapping(value, "depreciation")
    _known(section, ("of", "curve", "generation", "residual"), key)
    names = [one.name for one in capex]
    gpus = tuple(name for name in names if name.startswith("gpu"))
    of = _names(section["of"], f"{key}.of", names) if "of" in section else gpus
    if not of:
        raise ValueError(f"{key}.of: name the purchases that lose value ({', '.join(names)})")
    curve = _curve(section["curve"], f"{key}.curve") if "curve" in section else CHAPTER
    price = sum(one.cost for one in capex if one.name in of)
    generations = {
        _number(age, f"{key}.generation"): _generation(name, f"{key}.generation.{age}", curve)
        for age, name in _mapping(section.get("generation", {}), f"{key}.generation").items()
    }
    stated = {}
    for age, worth in _mapping(section.get("residual", {}), f"{key}.residual").items():
        where = f"{key}.residual.{age}"
        dollars = _number(worth, where)
        if dollars > price:
            raise ValueError(f"{where}: {dollars:,.0f} is more than the {price:,.0f} that was paid")
        stated[_number(age, f"{key}.residual")] = dollars / price if price else 0.0
    return Depreciation(of, curve, generations, stated)


def _curve(value: object, key: str) -> Curve:
    """Return a curve of one's own: by generation, then by age in years, the share that is left."""
    points = []
    for generation, shares in _mapping(value, key).items():
        if not isinstance(generation, str):
            raise ValueError(f"{key}.{generation}: the name of a generation must be a word")  # noqa: TRY004
        for age, share in _mapping(shares, f"{key}.{generation}").items():
            where = f"{key}.{generation}.{age}"
            points.append(Point(_number(age, where), generation, _number(share, where, most=1.0)))
    if not points:
        raise ValueError(f"{key}: holds no point")
    return Curve(points)


def _generation(value: object, key: str, curve: Curve) -> str:
    if value not in curve.generations:
        raise ValueError(f"{key}: one of {', '.join(curve.generations)}, not {value!r}")
    return str(value)


def _clouds(value: object, prices: Listed) -> dict[str, Rate]:
    """Return what a GPU costs elsewhere by pricing model: stated, by discount, else by the list."""
    if value is None:
        return {}
    section = _mapping(value, "cloud")
    discounts = tuple(f"{pricing}_discount" for pricing in PRICINGS[1:])
    _known(section, ("instance_type", "gpus_per_instance", *PRICINGS, *discounts), "cloud")
    gpus = _optional(section, "gpus_per_instance", "cloud", above=0.0) or 1.0
    instance = section.get("instance_type")
    if instance is not None and not isinstance(instance, str):
        raise ValueError(f"cloud.instance_type: a name is wanted, not {instance!r}")
    found: dict[str, Rate] = {}
    for pricing in PRICINGS:
        discount = _optional(section, f"{pricing}_discount", "cloud", most=1.0)
        if pricing in section:
            dollars = per_gpu(_needed(section, pricing, "cloud", above=0.0), gpus)
            found[pricing] = Rate(dollars, "stated")
        elif discount is not None:
            if "on_demand" not in found:
                raise ValueError(
                    f"cloud.{pricing}_discount: there is no on_demand price to discount"
                )
            dollars = discounted(found["on_demand"].dollars, discount)
            found[pricing] = Rate(dollars, f"{100 * discount:g} % off on_demand")
        elif instance is not None and (price := prices(instance, pricing)) is not None:
            source = f"list price of {price.as_of}: {price.source}"
            found[pricing] = Rate(price.dollars_per_gpu_hour, source)
    if not found:
        raise ValueError(
            "cloud: no price is stated, and the list has none"
            + (f" for {instance!r}" if instance else " without an instance_type")
        )
    return found


# ---------------------------------------------------------------- values


def _mapping(value: object, key: str) -> Mapping[Any, Any]:
    if isinstance(value, Mapping):
        return value
    raise ValueError(f"{key}: a mapping of keys is wanted, not {_shown(value)}")


def _known(section: Mapping[Any, Any], keys: Collection[str], where: str) -> None:
    for name in section:
        if name not in keys:
            key = f"{where}.{name}" if where else f"{name}"
            raise ValueError(f"{key}: unknown key; there are {', '.join(sorted(keys))}")


def _names(value: object, key: str, known: list[str]) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{key}: a list of purchases is wanted, not {_shown(value)}")
    for name in value:
        if name not in known:
            raise ValueError(f"{key}: {_shown(name)} is not one of {', '.join(known)}")
        if value.count(name) > 1:
            raise ValueError(f"{key}: {_shown(name)} is named twice")
    return tuple(value)


def _pair(value: Mapping[str, Any], key: str, one: str, other: str) -> tuple[float, float] | None:
    if one not in value and other not in value:
        return None
    return _needed(value, one, key), _needed(value, other, key)


def _needed(section: Mapping[str, Any], name: str, key: str, **bounds: float) -> float:
    found = _optional(section, name, key, **bounds)
    if found is None:
        raise ValueError(f"{key}.{name}: this key is needed")
    return found


def _optional(section: Mapping[str, Any], name: str, key: str, **bounds: float) -> float | None:
    if name not in section:
        return None
    return _number(section[name], f"{key}.{name}" if key else name, **bounds)


def _number(
    value: object, key: str, *, least: float = 0.0, most: float = math.inf, above: float = -math.inf
) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
        raise ValueError(f"{key}: a number is wanted, not {_shown(value)}")
    if value < least or value > most or value <= above:
        wanted = f"above {above:g}" if above >= least else f"from {least:g} on"
        raise ValueError(
            f"{key}: a number {wanted}" + (f", {most:g} at most," if most < math.inf else "")
            + f" is wanted, not {value:g}"
        )  # fmt: skip
    return float(value)


def _shown(value: object) -> str:
    if not isinstance(value, str | int | float | None):
        return "a mapping" if isinstance(value, Mapping) else f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
