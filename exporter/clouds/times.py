"""Times as metadata services write them, as Unix seconds."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime

_EARLIEST, _LATEST = 946_684_800.0, 4_102_444_800.0
"""The years 2000 to 2100: what lies outside is a mistake."""


def unix_seconds(text: object, *, hours: int = 0) -> float:
    """Return a time that is written in ISO 8601 or as in RFC 1123.

    Where no zone is written it is that of UTC + `hours`. Raises `ValueError`.
    """
    if not isinstance(text, str) or len(text) > 64:
        raise ValueError("no time")
    text = text.strip()
    try:
        found = datetime.fromisoformat(text) if re.match(r"\d{4}-", text) else _of_mail(text)
        if found.tzinfo is None:
            found = found.replace(tzinfo=timezone(timedelta(hours=hours)))
        seconds = found.timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        raise ValueError(f"{text!r} is no time") from None
    if not _EARLIEST <= seconds <= _LATEST:
        raise ValueError(f"{text!r} is no time of this century")
    return seconds


def _of_mail(text: str) -> datetime:
    return parsedate_to_datetime(text)


def time_or_none(text: object, *, hours: int = 0) -> float | None:
    """Return a time, `None` if it is none: a notice is believed without one too."""
    try:
        return unix_seconds(text, hours=hours)
    except ValueError:
        return None
