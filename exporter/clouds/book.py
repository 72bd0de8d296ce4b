"""What has been announced and still holds. A notice outlives the polls that failed after it.

An interruption stays until the machine is another run of itself (its boot id), whatever the service
says later: a notice that flickers drains nothing. Work on the host can be called off: what a
successful answer no longer tells is withdrawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from exporter.clouds.question import Told
from exporter.notices import KINDS, Kind, Notice

MOST = 64
"""Notices that are kept at once."""

_AWAKE = 120.0
"""Seconds after which a hibernation that was announced has been, if nothing announces it."""


class Book:
    """The notices of one machine, by the question that told of them."""

    def __init__(self) -> None:
        self._notices: dict[tuple[str, Kind, str], Notice] = {}
        self.interruptions = 0
        """How many have been announced, in all runs that the memory knows of."""

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What holds: interruptions first, the earliest first of each kind."""
        return tuple(sorted(self._notices.values(), key=_urgency))

    def take(self, question: str, told: Sequence[Told], now: float) -> None:
        """Take a successful answer, at `now` in Unix seconds."""
        present = set()
        for one in told:
            # An interruption is one, whatever its time is corrected to; work on the host may be
            # several things.
            key = (question, one.kind, one.id if one.kind == "maintenance" else "")
            present.add(key)
            former = self._notices.get(key)
            if former is None and len(self._notices) >= MOST:
                continue
            self._notices[key] = _noted(one, former, now)
            self.interruptions += former is None and one.kind == "interruption"
        for key, notice in list(self._notices.items()):
            if key[0] == question and key not in present and _is_over(notice, now):
                del self._notices[key]

    def memory(self) -> dict[str, Any]:
        """Return all of it as JSON can hold it."""
        held = [[key[0], *notice] for key, notice in self._notices.items()]
        return {"interruptions": self.interruptions, "notices": held}

    def restore(self, memory: Mapping[str, Any], *, same_boot: bool) -> None:
        """Take that over; notices only in the same run of the machine.

        Raises `ValueError`, `TypeError` or `LookupError` for what is no such memory.
        """
        number = memory["interruptions"]
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ValueError(f"{number!r} is no number of interruptions")
        found: dict[tuple[str, Kind, str], Notice] = {}
        for question, *rest in memory["notices"][:MOST] if same_boot else ():
            notice = _checked(Notice(*rest))
            key = notice.id if notice.kind == "maintenance" else ""
            found[str(question), notice.kind, key] = notice
        self.interruptions = number
        self._notices = found


def _noted(told: Told, former: Notice | None, now: float) -> Notice:
    """Return a notice as it is told now; what was known stays known."""
    if former is None:
        return Notice(told.kind, told.action, now, told.deadline, told.id, told.detail)
    deadline = former.deadline if told.deadline is None else told.deadline
    return former._replace(
        action=told.action, deadline=deadline, id=told.id or former.id, detail=told.detail
    )


def _is_over(notice: Notice, now: float) -> bool:
    """Tell whether a notice that is no longer told does not hold any more."""
    if notice.kind == "maintenance":
        return True
    # A machine that slept goes on with the same boot id.
    slept = notice.action == "hibernate"
    return slept and now > max(notice.seen, notice.deadline or 0.0) + _AWAKE


def _urgency(notice: Notice) -> tuple[int, float]:
    return KINDS.index(notice.kind), math.inf if notice.deadline is None else notice.deadline


def _checked(notice: Notice) -> Notice:
    times = [notice.seen, *([] if notice.deadline is None else [notice.deadline])]
    for time in times:
        if isinstance(time, bool) or not isinstance(time, int | float) or not math.isfinite(time):
            raise ValueError(f"{time!r} is no time")
    if notice.kind not in KINDS:
        raise ValueError(f"{notice.kind!r} is no kind of notice")
    texts = (notice.action, notice.id, notice.detail)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a notice without texts")
    return notice
