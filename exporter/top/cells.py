"""Cells of what is shown: texts of others, numbers with units, bars. A dash is what is not known.

Labels come from anywhere. Each becomes a `Text`, which knows no markup, with control characters
escaped, so that nothing in it speaks to the terminal; characters that turn the direction of writing
count as such.
"""

from __future__ import annotations

import unicodedata

from rich.text import Text

from exporter.config import printable

UNKNOWN = "-"
LONGEST = 200
"""Characters of a text that are looked at."""

_EIGHTHS = " ▏▎▍▌▋▊▉"
_TURNED = frozenset(("R", "AL", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI"))
_ISOLATE, _POP = "\u2068", "\u2069"


def text(value: str, style: str = "") -> Text:
    """Return somebody else's text as a cell of one line."""
    shown = printable(value[:LONGEST])
    if any(unicodedata.bidirectional(char) in _TURNED for char in shown):
        # Hebrew and Arabic keep to their own cell where the terminal knows directions.
        shown = f"{_ISOLATE}{shown}{_POP}"
    return Text(shown, style, no_wrap=True, overflow="ellipsis")


def words(value: str, style: str = "") -> Text:
    """Return our own words as a cell."""
    return Text(value, style, no_wrap=True, overflow="ellipsis")


def number(value: float | None, digits: int = 0, unit: str = "") -> Text:
    """Return a number, right-aligned."""
    shown = UNKNOWN if value is None else f"{value:,.{digits}f}{unit}"
    return Text(shown, "dim" if value is None else "", no_wrap=True, justify="right")


def share(value: float | None) -> Text:
    """Return a share of 1 in per cent."""
    return number(None if value is None else 100 * value, 0, "%")


def seconds(value: float | None) -> Text:
    """Return seconds, or milliseconds below one."""
    if value is None or value >= 1:
        return number(value, 2, " s")
    return number(1000 * value, 0, " ms")


def large(value: float | None) -> Text:
    """Return a number with k, M, G behind it."""
    if value is None:
        return number(None)
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return number(value / size, 1, unit)
    return number(value, 0 if value >= 10 else 1)


def dollars(value: float | None) -> Text:
    """Return dollars."""
    return number(value, 2, " $")


def duration(value: float | None) -> str:
    """Return a time as people say it."""
    if value is None:
        return UNKNOWN
    whole = round(value)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole // 60 % 60} min"


def bar(value: float | None, width: int, *, blocks: bool, style: str = "green") -> Text:
    """Return a bar for a share of 1, with its per cent behind it."""
    if value is None:
        return Text(f"{UNKNOWN:^{width}}     ", "dim", no_wrap=True)
    full = max(0.0, min(1.0, value)) * width
    if blocks:
        whole, part = divmod(round(full * 8), 8)
        drawn = "█" * whole + (_EIGHTHS[part] if part else "")
    else:
        drawn = "#" * round(full)
    found = Text(f"{drawn:<{width}}", style, no_wrap=True)
    return found.append(f"{100 * value:4.0f}%", "")
