"""Settings of what drivers of network cards are asked."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator

from exporter.config.values import Detected, Duration, Switch, as_list, as_list_or_none

Pattern = Annotated[str, Field(min_length=1, max_length=256)]


def compiles(value: str) -> str:
    """Return a regular expression if it is one. Raises `ValueError`."""
    try:
        re.compile(value)
    except (re.error, OverflowError) as error:
        raise ValueError(f"{value[:64]!r} is not a regular expression: {error}") from None
    except RecursionError:
        raise ValueError("not a regular expression: nested too deep") from None
    return value


class EthtoolSettings(Detected):
    """What drivers tell of their Ethernet interfaces by ethtool."""

    interval: Duration = Field(default="15s", ge=1, le=3600)  # type: ignore[assignment]
    deadline: Duration = Field(default="5s", ge=0.05, le=600)  # type: ignore[assignment]
    exclude_interfaces: Pattern | None = None
    counters: Annotated[
        Annotated[tuple[Pattern, ...], Field(max_length=64)] | None,
        BeforeValidator(as_list_or_none),
    ] = None
    exclude_counters: Annotated[
        tuple[Pattern, ...], Field(max_length=64), BeforeValidator(as_list)
    ] = ()
    rings: bool = False
    max_counters: int = Field(default=64, ge=0, le=4096)
    optics: Switch = "auto"

    @field_validator("exclude_interfaces")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        return value if value is None else compiles(value)

    @field_validator("counters", "exclude_counters")
    @classmethod
    def _compile(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return value if value is None else tuple(compiles(one) for one in value)
