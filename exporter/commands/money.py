"""How sums of money are written for people, and numbers for JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence


def millions(dollars: float) -> str:
    """Return millions with two digits; a dash for nothing."""
    return f"{dollars / 1e6:,.2f}" if abs(dollars) >= 5e3 else "-" if not dollars else "0.00"


def price(dollars: float | None) -> str:
    """Return a price of an hour; a dash where it is not known, or nothing is got for it."""
    return "-" if dollars is None or not math.isfinite(dollars) else f"{dollars:,.2f}"


def percent(share: float) -> str:
    """Return a share in per cent with one digit."""
    return f"{100 * share:.1f} %" if math.isfinite(share) else "-"


def plain(value: float | None) -> float | None:
    """Return a number that JSON can hold: what is not finite is absent."""
    return value if value is not None and math.isfinite(value) else None


def columns(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Return rows as lines: the first column to the left, the others to the right."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        indent + "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]  # fmt: skip
