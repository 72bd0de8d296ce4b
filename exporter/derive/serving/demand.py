"""How fast tokens come while there is something to do: what throughput objectives are judged by.

A server without requests makes no tokens and breaks no promise. So only time with demand counts:
between two readings that both show requests waiting (or what the objective takes for demand). The
rate is that of the last minute of such time, for engines count tokens in lumps, some of them only
when a request ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from exporter import catalogue as c
from exporter.derive.serving.book import STEP, WINDOWS, Book, Entity
from exporter.objectives import Objective

_MINUTE, _SLOT = 60.0, 5.0
LONGEST_STEP = 60.0
"""Seconds after which a reading says nothing about the time since the one before."""


class _Step(NamedTuple):
    """What came between two readings of a server."""

    end: float
    seconds: float
    tokens: float
    demand: bool


class Pace:
    """The token rate of one model on one server, and whether there is demand."""

    def __init__(self) -> None:
        self._steps: deque[_Step] = deque()
        self._asked = False

    def step(self, objective: Objective, book: Book, entity: Entity, now: float) -> None:
        """Take what has come since the round before, if there is a new reading."""
        seconds = book.seconds(entity.server, STEP)
        if seconds <= 0 and self._steps:
            return
        direction = objective.signal.removesuffix("_tokens")
        tokens = book.increase(c.LLM_TOKENS_TOTAL, entity, STEP, direction=direction)
        before, self._asked = self._asked, _asked(objective, book, entity)
        if tokens is not None:
            demand = before and self._asked and seconds <= LONGEST_STEP
            self._steps.append(_Step(now, seconds, tokens, demand))
        while len(self._steps) > 1 and self._steps[0].end <= now - 3 * _MINUTE:
            self._steps.popleft()

    @property
    def known(self) -> bool:
        """Whether anything has been told of tokens."""
        return bool(self._steps)

    def demand(self, now: float) -> bool:
        """Tell whether there was demand by the last two readings."""
        return bool(self._steps) and self._steps[-1].demand and self._lives(now)

    def rate(self, now: float) -> float:
        """Return the tokens in a second, of time with demand where there was any."""
        if not self._lives(now):
            return 0.0
        busy = [step for step in self._steps if step.demand]
        seconds = tokens = 0.0
        for step in reversed(busy or self._steps):
            if seconds >= _MINUTE:
                break
            seconds += step.seconds
            tokens += step.tokens
        return tokens / seconds if seconds else 0.0

    def _lives(self, now: float) -> bool:
        return bool(self._steps) and now - self._steps[-1].end <= LONGEST_STEP


def _asked(objective: Objective, book: Book, entity: Entity) -> bool:
    if objective.demand == "always":
        return True
    families = [c.LLM_WAITING_REQUESTS]
    if objective.demand == "active":
        families.append(c.LLM_ACTIVE_REQUESTS)
    return any((book.latest(family, entity) or 0) > 0 for family in families)


class Times(NamedTuple):
    """Seconds with demand, seconds of them at a sufficient rate, and tokens that were made."""

    asked: float = 0.0
    kept: float = 0.0
    tokens: float = 0.0


class Spell:
    """Time with demand of the last hour, in slots of five seconds."""

    def __init__(self, slots: Iterable[tuple[float, Times]] = ()) -> None:
        self._slots: deque[tuple[float, Times]] = deque(slots)

    def add(self, now: float, seconds: float, rate: float, threshold: float) -> Times:
        """Add some seconds with demand up to `now`; return them."""
        new = Times(seconds, seconds if rate >= threshold else 0.0, rate * seconds)
        if self._slots and now - self._slots[-1][0] < _SLOT:
            start, old = self._slots[-1]
            self._slots[-1] = start, _sum((old, new))
        else:
            self._slots.append((now, new))
        while now - self._slots[0][0] > WINDOWS["1h"] + _SLOT:
            self._slots.popleft()
        return new

    def over(self, window: str, now: float) -> Times:
        """Return the time with demand within a window."""
        begin = now - WINDOWS[window]
        return _sum([times for at, times in self._slots if at > begin])

    def memory(self, now: float) -> list[list[float]]:
        """Return the slots as plain values, with their ages."""
        return [[now - at, *times] for at, times in self._slots]

    @classmethod
    def restored(cls, memory: Iterable[Sequence[float]], then: float) -> Spell:
        """Return what `memory` told at `then`. Raises `TypeError` or `ValueError`."""
        return cls(
            (then - float(age), Times(float(asked), float(kept), float(tokens)))
            for age, asked, kept, tokens in memory
        )


def _sum(found: Sequence[Times]) -> Times:
    return Times(*map(sum, zip(*found, strict=True))) if found else Times()
