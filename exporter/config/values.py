"""Kinds of values in the configuration, and what its sections have in common."""

from __future__ import annotations

import os
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from exporter.redaction import redacted

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SIZES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB|)")
HOST_NAME = re.compile(r"(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?")


class ConfigError(Exception):
    """The configuration cannot be used. `problems` holds one line each: file, key, reason."""

    def __init__(self, *problems: str) -> None:
        self.problems = tuple(printable(redacted(problem)) for problem in problems)
        super().__init__("\n".join(self.problems))


def printable(text: str) -> str:
    """Return one line of text for people: control characters of names are shown escaped."""
    if text.isprintable():
        return text
    escaped = (char.encode("unicode_escape").decode("ascii") for char in text)
    return "".join(
        char if char.isprintable() else code for char, code in zip(text, escaped, strict=True)
    )


def _duration(value: object) -> object:
    if isinstance(value, str):
        if (match := _DURATION.fullmatch(value.strip())) is not None:
            return float(match[1]) * _UNITS[match[2]]
        raise ValueError(f"{value!r} is not a duration such as 500ms, 5s, 1m")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a duration such as 500ms, 5s, 1m is wanted")  # noqa: TRY004 - for pydantic
    raise ValueError(f"{value} has no unit; write {value}s if you mean seconds")


def _size(value: object) -> object:
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())) is not None:
        return int(match[1]) * _SIZES[match[2]]
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"{value!r} is not a size such as 64KiB, 16MiB")


_RATES = {"": 1.0, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_RATE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?(?:[eE][+-]?\d{1,2})?)\s*([GTPE]?)")
_LEAST_RATE, _HIGHEST_RATE = 1e9, 1e21


def _rate(value: object) -> object:
    """Return operations or bytes a second; YAML takes 989e12 for text."""
    if isinstance(value, str) and (match := _RATE.fullmatch(value.strip())) is not None:
        number = float(match[1]) * _RATES[match[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = value
    else:
        raise ValueError(f"a number such as 989e12 or 989T is wanted, not {shown(value)}")
    if not _LEAST_RATE <= number <= _HIGHEST_RATE:
        raise ValueError(
            f"{shown(value)} is not between 1G and 1000E a second; if you mean TFLOP/s or TB/s,"
            " write 989T"
        )
    return float(number)


_WORK = re.compile(r"(\d{1,18}(?:\.\d{1,18})?(?:[eE][+-]?\d{1,2})?)\s*([MGTP]?)")


def as_work(value: object) -> object:
    """Return operations for a token; YAML takes 5e10 for text."""
    if isinstance(value, str) and (match := _WORK.fullmatch(value.strip())) is not None:
        return float(match[1]) * {**_RATES, "M": 1e6}[match[2]]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"a number such as 5e10 or 50G is wanted, not {shown(value)}")


Rate = Annotated[float, BeforeValidator(_rate)]
"""Operations or bytes a second, written as a number or with G, T, P or E behind it."""

Duration = Annotated[float, BeforeValidator(_duration)]
"""Seconds, written with a unit."""

Size = Annotated[int, BeforeValidator(_size)]
"""Bytes, written as a number or with a unit of 1024."""


def as_path(value: str) -> str:
    """Return a path that can be asked for. Raises `ValueError`."""
    try:
        usable = value != "" and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:  # half of a surrogate pair, written as "\ud800"
        usable = False
    if not usable:
        raise ValueError(f"{value!r} is not a path")
    return value


def _switch(value: object) -> object:
    if isinstance(value, bool) or value == "auto":
        return value
    raise ValueError(f"true, false or auto is wanted, not {shown(value)}")


Switch = Annotated[bool | Literal["auto"], BeforeValidator(_switch)]
"""On, off, or as the machine is."""


def as_list(value: object) -> object:
    """Return a list as a tuple. Raises `ValueError` for anything else."""
    if isinstance(value, list | tuple):
        return tuple(value)
    raise ValueError(f"a list is wanted, not {kind_of(value)}")


def as_list_or_none(value: object) -> object:
    """Return a list as a tuple, and nothing as nothing. Raises `ValueError`."""
    return None if value is None else as_list(value)


PathText = Annotated[str, AfterValidator(as_path)]
"""A path that the system can be asked for; whether it is there is another matter."""


def _absolute(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError("an absolute path is wanted")
    return value


AbsolutePath = Annotated[PathText, AfterValidator(_absolute)]
"""A path that means the same from wherever the daemon is started."""


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError("a name of printable characters is wanted")
    return value


RunName = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_printable)]
"""What a training run is called, such that the ledger takes it."""

Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._:-]+$")]


Port = Annotated[int, Field(ge=1, le=65535)]

Gpu = Annotated[int, Field(ge=0, le=1023)]
"""The index of a GPU, as its label `gpu` has it."""


class Section(BaseModel):
    """A section: frozen, unknown keys are errors, and nothing is converted unasked."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, document: object) -> object:
        """Take a key with nothing after its colon for one that is not there: Helm writes them."""
        if not isinstance(document, dict):
            return document
        known = keys_of(cls)
        return {
            key: value for key, value in document.items() if value is not None or key not in known
        }


def keys_of(section: type[BaseModel]) -> list[str]:
    """Return the keys of a section, as they are written in the file."""
    return [field.alias or name for name, field in section.model_fields.items()]


class Rated(Section):
    """What every source has: how often it is read, how long a read may take, its cap."""

    interval: Duration = Field(default="5s", ge=0.1, le=3600)  # type: ignore[assignment]
    deadline: Duration = Field(default="2s", ge=0.05, le=600)  # type: ignore[assignment]
    max_series: int = Field(default=5_000, ge=1, le=1_000_000)


class Timed(Rated):
    """A source that runs unless it is switched off."""

    enabled: bool = True


class Detected(Rated):
    """A source that runs where there is something for it to read."""

    enabled: Switch = "auto"


def page_url(value: str) -> str:
    """Return the address of a metrics page if it is one. Raises `ValueError`."""
    if re.fullmatch(r"https?://[^\s/?#@]+([/?][^\s#]*)?", value) is None:
        raise ValueError(
            "an http:// or https:// address without user name or password is wanted,"
            " such as http://127.0.0.1:8000/metrics"
        )
    try:
        parts = urlsplit(value)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise ValueError(f"{str(error)[:1].lower()}{str(error)[1:]}") from None
    if not named:
        raise ValueError(f"{value!r} names no host or the port 0")
    return value


def kind_of(value: object) -> str:
    """Return what kind of value something is, in the words of a YAML file."""
    return "a list" if isinstance(value, list) else f"the value {shown(value)}"


def shown(value: object) -> str:
    """Return a value as a message shows it: not a page of it."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write out very long numbers
        return "a number of more than 4000 digits"
    return text if len(text) <= 200 else f"{text[:200]}…"
