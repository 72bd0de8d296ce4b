"""What instances with GPUs cost by the list, with the day and the public source of each price.

`load` reads `prices.json`, which may hold no row at all. A list price is nobody's contract: it
serves where an operator states nothing better, and its age says how far to trust it. What no
source told is absent; there is no guessing from a similar instance.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

PRICINGS = ("on_demand", "reserved", "spot")

_EPOCH = date(1970, 1, 1).toordinal()
_DAY = 86_400


class ListPrice(NamedTuple):
    """A price by the list: US dollars an hour of a whole instance, on the day `as_of`.

    `region` is empty where the source names none; `source` is an address or a place in a book.
    """

    instance_type: str
    pricing: str
    gpus: int
    dollars_per_hour: float
    region: str
    source: str
    as_of: date

    @property
    def dollars_per_gpu_hour(self) -> float:
        """What one of its GPUs costs an hour."""
        return self.dollars_per_hour / self.gpus

    @property
    def as_of_seconds(self) -> float:
        """The beginning of that day (UTC) in seconds since 1970."""
        return float((self.as_of.toordinal() - _EPOCH) * _DAY)

    def age(self, wall: float) -> float:
        """Return how old the price is in seconds; `wall` is now, in seconds since 1970."""
        return wall - self.as_of_seconds


class Prices:
    """A table of list prices. Raises `ValueError` for a row that lacks source, day or price."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self.rows = tuple(_price(at, row) for at, row in enumerate(rows))
        self._newest: dict[tuple[str, str], ListPrice] = {}
        for row in sorted(self.rows, key=lambda row: row.as_of):
            self._newest[row.instance_type.casefold(), row.pricing] = row

    @property
    def as_of(self) -> date | None:
        """The day of the newest row; None for an empty table."""
        return max((row.as_of for row in self.rows), default=None)

    def find(self, instance_type: str, pricing: str, until: date | None = None) -> ListPrice | None:
        """Return the newest price of an instance, upper and lower case aside; None if unknown.

        With `until` the newest that was known on that day.
        """
        if until is None:
            return self._newest.get((instance_type.casefold(), pricing))
        known = [
            row
            for row in self.rows
            if row.instance_type.casefold() == instance_type.casefold()
            and row.pricing == pricing
            and row.as_of <= until
        ]
        return max(known, key=lambda row: row.as_of, default=None)


@functools.cache
def load() -> Prices:
    """Return the table that comes with the package."""
    text = Path(__file__).with_name("prices.json").read_text("utf-8")
    return Prices(json.loads(text)["prices"])


def listed(instance_type: str, pricing: str) -> ListPrice | None:
    """Return the newest list price of an instance; None if the table has none.

    `pricing` is one of `PRICINGS`.
    """
    return load().find(instance_type, pricing)


def _price(at: int, row: Mapping[str, Any]) -> ListPrice:
    where = f"prices[{at}]"
    missing = sorted(
        {*ListPrice._fields} - {*row} | {k for k in ("source", "as_of") if not row.get(k)}
    )
    if missing:
        raise ValueError(f"{where}: {', '.join(missing)}: no row without it")
    if row["pricing"] not in PRICINGS:
        raise ValueError(f"{where}: pricing: one of {', '.join(PRICINGS)}, not {row['pricing']!r}")
    if not (row["gpus"] > 0 and row["dollars_per_hour"] > 0):
        raise ValueError(f"{where}: gpus and dollars_per_hour must be above 0")
    fields = {name: row[name] for name in ListPrice._fields}
    return ListPrice(**{**fields, "as_of": date.fromisoformat(row["as_of"])})
