"""What lines of all frameworks have in common: colours, numbers, time stamps, prefixes of ranks."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

_ANSI = re.compile(
    r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)?|[()][0-9A-B])"
)
_NUMBER = re.compile(
    r"\s*([-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?"
    r"|[-+]?(?:nan|inf)(?![a-z]))\s*([KMBGT](?![A-Za-z]))?",
    re.IGNORECASE,
)
_SUFFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_LONGEST_NUMBER = 64

_DATE = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r"(Z|[+-]\d\d:?\d\d(?!\d))?"
)
_AMERICAN = re.compile(r"(\d\d)/(\d\d)(?:/(\d{4}))? (\d\d):(\d\d):(\d\d)")
_GLOG = re.compile(r"\b[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,9})")
_BEGINNING = 120
_PREFIX = re.compile(r"\s*(?:\[(?:rank|default)?(\d{1,6})\]:|(\d{1,6}): )")

_ANY_YEAR = 2000
"""For stamps without one: a leap year. Only differences of such stamps are used."""


class Stamp(NamedTuple):
    """When a line was written: seconds, how finely they are told, whether they are Unix seconds.

    Without a zone (`zoned` false) only differences mean something.
    """

    seconds: float
    resolution: float
    zoned: bool


def plain(text: str) -> str:
    """Return a line without terminal colours."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def number(text: str) -> float | None:
    """Return the number that a text begins with: `17,581`, `4.71K`, `1.249e+03`, `nan`."""
    match = _NUMBER.match(text, 0, _LONGEST_NUMBER)
    if match is None:
        return None
    suffix = (match[2] or "").upper()
    return float(match[1].replace(",", "")) * _SUFFIXES[suffix]


def whole(text: str) -> int | None:
    """Return the count that a text begins with, `None` if it is no whole number below 10**15."""
    value = number(text)
    if value is None or not math.isfinite(value) or value != int(value) or abs(value) >= 1e15:
        return None
    return int(value)


def rank_prefix(text: str) -> str:
    """Return which process a launcher says wrote the line: `3:`, `[default0]:`; "" if none is."""
    match = _PREFIX.match(text)
    return "" if match is None else match[1] or match[2]


def stamp(text: str) -> Stamp | None:
    """Return the time stamp near the beginning of a line."""
    head = text[:_BEGINNING]
    try:
        if (match := _DATE.search(head)) is not None:
            return _iso(match)
        if (match := _GLOG.search(head)) is not None:
            month, day, hour, minute, second, rest = match.groups()
            when = datetime(
                _ANY_YEAR, int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC
            )
            return Stamp(when.timestamp() + _fraction(rest), 10.0 ** -len(rest), zoned=False)
        if (match := _AMERICAN.search(head)) is not None:
            month, day, year, hour, minute, second = match.groups()
            when = datetime(
                int(year or _ANY_YEAR), int(month), int(day), int(hour), int(minute), int(second),
                tzinfo=UTC,
            )  # fmt: skip
            return Stamp(when.timestamp(), 1.0, zoned=False)
    except (ValueError, OverflowError):  # the 45th of a month
        return None
    return None


def _iso(match: re.Match[str]) -> Stamp:
    *parts, fraction, zone = match.groups()
    when = datetime(*map(int, parts), tzinfo=_zone(zone))  # type: ignore[arg-type,misc]
    resolution = 10.0 ** -len(fraction) if fraction else 1.0
    return Stamp(when.timestamp() + _fraction(fraction), resolution, zoned=zone is not None)


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=minutes if text[0] == "+" else -minutes))


def _fraction(digits: str | None) -> float:
    return int(digits) / 10 ** len(digits) if digits else 0.0
