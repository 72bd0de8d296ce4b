"""Settings of prices, and of the notices of clouds."""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    field_validator,
    model_validator,
)

from exporter.config.values import (
    AbsolutePath,
    Detected,
    Duration,
    PathText,
    Section,
    as_list,
    page_url,
    shown,
)

Contract = Literal["on_demand", "reserved", "spot", "owned"]
"""How GPUs are paid for."""

Dollars = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
"""US dollars."""

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)|(24):(00)")
_OFFSET = re.compile(r"([+-])([01]\d|2[0-3]):([0-5]\d)")


def _prices(value: object) -> dict[str, float]:
    """Return prices of an hour by a pattern of the GPU's name; one number is that of all."""
    rows: dict[Any, Any] = value if isinstance(value, dict) else {"*": value}
    found: dict[str, float] = {}
    for name, price in rows.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"{shown(name)} is not a pattern of a GPU's name, such as '*H100*'")
        number = isinstance(price, int | float) and not isinstance(price, bool)
        if not (number and math.isfinite(price) and 0 <= price <= 1e6):
            raise ValueError(
                f"{shown(price)} is not a price in dollars for an hour of a GPU, such as 2.10"
            )
        found[name] = float(price)
    return found


def _minute(value: object) -> int:
    """Return a time of the day as minutes. YAML takes 08:30 for text, and 22:00 for 1320."""
    if isinstance(value, str) and (match := _TIME.fullmatch(value)) is not None:
        hour, minute = match[1] or match[3], match[2] or match[4]
        return int(hour) * 60 + int(minute)
    if isinstance(value, int) and not isinstance(value, bool) and 60 <= value <= 24 * 60:
        return value
    raise ValueError(f"a time of the day such as '08:30' is wanted, not {shown(value)}")


def _days(value: object) -> tuple[int, ...]:
    """Return days of the week, Monday being 0; `mon-fri` is five of them."""
    words = value if isinstance(value, list | tuple) else [value]
    found: list[int] = []
    for word in words:
        ends = word.lower().split("-") if isinstance(word, str) else []
        if not 1 <= len(ends) <= 2 or not set(ends) <= set(_DAYS):
            raise ValueError(f"a day such as mon or mon-fri is wanted, not {shown(word)}")
        first, last = _DAYS.index(ends[0]), _DAYS.index(ends[-1])
        found += [day % 7 for day in range(first, last + 1 + 7 * (last < first))]
    return tuple(dict.fromkeys(found))


def _day(value: object) -> object:
    """Return a day; YAML makes one of 2026-11-01, quoted or not a moment is none."""
    if isinstance(value, str):
        try:
            return dt.date.fromisoformat(value)
        except ValueError:
            pass
    elif value is None or (isinstance(value, dt.date) and not isinstance(value, dt.datetime)):
        return value
    raise ValueError(f"a day such as 2026-11-01 is wanted, not {shown(str(value))}")


def zone_of(name: str) -> dt.tzinfo:
    """Return a time zone by its name, or by its distance from UTC. Raises `ValueError`."""
    if name == "UTC":
        return dt.UTC
    if (match := _OFFSET.fullmatch(name)) is not None:
        away = dt.timedelta(hours=int(match[2]), minutes=int(match[3]))
        return dt.timezone(-away if match[1] == "-" else away)
    try:
        return ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        raise ValueError(
            f"{shown(name)} is not a time zone that this machine knows, such as Asia/Shanghai;"
            " a distance from UTC such as +08:00 always works"
        ) from None


class HoursSettings(Section):
    """A part of the week in which prices are other ones."""

    begin: Annotated[int, BeforeValidator(_minute)] = Field(alias="from")
    end: Annotated[int, BeforeValidator(_minute)] = Field(alias="to")
    days: Annotated[tuple[int, ...], PlainValidator(_days)] = "mon-sun"  # type: ignore[assignment]
    factor: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)] | None = None
    price: Dollars | None = None

    @model_validator(mode="after")
    def _says_one_thing(self) -> HoursSettings:
        if (self.factor is None) == (self.price is None):
            raise ValueError("factor or price is needed, and not both")
        if self.begin == self.end:
            raise ValueError("from and to are the same; a whole day is from '00:00' to '24:00'")
        return self


class ScheduleSettings(Section):
    """How prices change over the week. A node's own time zone is mostly UTC: it is to be stated."""

    time_zone: str = ""
    hours: Annotated[tuple[HoursSettings, ...], BeforeValidator(as_list)] = ()

    @model_validator(mode="after")
    def _has_a_zone(self) -> ScheduleSettings:
        if self.hours and not self.time_zone:
            raise ValueError("time_zone is needed where there are hours")
        if self.time_zone:
            zone_of(self.time_zone)
        return self


class EnergySettings(Section):
    """What electricity costs, and emits."""

    dollars_per_kwh: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = None
    grams_per_kwh: Annotated[float, Field(ge=0, le=10_000, allow_inf_nan=False)] | None = None
    pue: Annotated[float, Field(ge=1, le=10, allow_inf_nan=False)] = 1.0


class TcoSettings(Section):
    """A file of the TCO model, and over how many years its GPUs are used."""

    file: AbsolutePath
    years: int = Field(default=5, ge=1, le=20)


def _quotas(value: object) -> dict[str, float]:
    rows = value if isinstance(value, dict) else None
    if rows is None:
        raise ValueError(f"GPUs by namespace are wanted, such as team-a: 8, not {shown(value)}")
    found: dict[str, float] = {}
    for name, gpus in rows.items():
        number = isinstance(gpus, int | float) and not isinstance(gpus, bool)
        if not isinstance(name, str) or not name:
            raise ValueError(f"{shown(name)} is not the name of a namespace")
        if not (number and math.isfinite(gpus) and 0 <= gpus <= 1e6):
            raise ValueError(f"{name}: {shown(gpus)} is not a number of GPUs")
        found[name] = float(gpus)
    return found


class CostSettings(Detected):
    """What GPUs cost. Without a price from anywhere no dollars are told."""

    interval: Duration = Field(default="5s", ge=0.1, le=30)  # type: ignore[assignment]
    gpu_hour: Annotated[dict[str, float], PlainValidator(_prices)] = Field(default_factory=dict)
    pricing: Contract | None = None
    as_of: Annotated[dt.date | None, BeforeValidator(_day)] = None
    tco: TcoSettings | None = None
    instance_type: str = Field(default="", max_length=128)
    schedule: ScheduleSettings = ScheduleSettings()
    energy: EnergySettings = EnergySettings()
    output_weight: Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)] = 4.0
    servers_without_gpus: Literal["absent", "node"] = "absent"
    quotas: Annotated[dict[str, float], PlainValidator(_quotas)] = Field(default_factory=dict)

    @field_validator("instance_type")
    @classmethod
    def _is_printable(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("a name of printable characters is wanted")
        return value


class OpenCostSettings(Section):
    """The page of an OpenCost in the cluster, asked for the price of this node's GPUs."""

    enabled: bool = False
    interval: Duration = Field(default="1m", ge=1, le=1800)  # type: ignore[assignment]
    max_series: int = Field(default=100, ge=1, le=1_000_000)
    timeout: Duration = Field(default="10s", ge=0.05, le=600)  # type: ignore[assignment]
    url: str = "http://opencost.opencost:9003/metrics"
    node: str = Field(default="", max_length=253)
    token_file: PathText | None = None
    ca_file: PathText | None = None
    insecure_skip_verify: bool = False

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        return page_url(value)
