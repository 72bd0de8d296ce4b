"""How fast tokens come while there is something to do: what throughput objectives are judged by.

A server without requests makes no tokens and breaks no promise. So only time with demand counts:
between two readings that both show requests waiting (or what the objective takes for demand). Each
stretch between two readings is judged by its own tokens; nothing earlier is credited to it.

Engines count tokens in lumps, some of them only when a request ends. So of a stretch without any
tokens on a server at work nothing is said until some are counted, which are then spread over all
of it. After a minute there were none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from exporter import catalogue as c
from exporter.derive.serving.book import STEP, WINDOWS, Book, Entity
from exporter.objectives import Objective

_SLOT = 5.0
LONGEST_LUMP = 60.0
"""Seconds without tokens after which a server has made none; the same without a page."""


class Rate(NamedTuple):
    """Tokens in a second over one round, and whether there was demand."""

    tokens: float = 0.0
    demand: bool = False


class Pace:
    """What one model on one server made in each round, as soon as that is known.

    `rates` are of rounds that are known and not judged yet, oldest first; `missed` rounds came
    before it and are not judged yet either.
    """

    def __init__(self, missed: int = 0) -> None:
        self.rates: deque[Rate] = deque([Rate()] * missed)
        self.known = False
        self._unread = 0  # rounds since the last reading
        self._demands: list[bool] = []  # of rounds that were read and are not known
        self._seconds = 0.0
        self._asked = self._works = False
        self._read: float | None = None
        self._settled = 0.0

    def step(
        self, objective: Objective, book: Book, entity: Entity, now: float, *, fresh: bool
    ) -> None:
        """Take what has come since the round before; `fresh` is whether there is a page now."""
        self._unread += 1
        seconds = book.seconds(entity.server, STEP)
        if self._read is None:
            self._settled = now
        elif seconds <= 0:
            # However slow a server is read: its page is fresh until the next reading is due.
            if not fresh and now - self._read > LONGEST_LUMP:
                self._settle(0.0, now, known=False)
            return
        self._read = now
        direction = objective.signal.removesuffix("_tokens")
        tokens = book.increase(c.LLM_TOKENS_TOTAL, entity, STEP, direction=direction)
        self.known = self.known or tokens is not None
        asked, works = _asked(objective, book, entity), _works(book, entity)
        works = self._note(seconds, asked=asked, works=works)
        if tokens or not works or now - self._settled >= LONGEST_LUMP:
            self._settle(tokens or 0.0, now, known=tokens is not None)

    def _note(self, seconds: float, *, asked: bool, works: bool) -> bool:
        """Note whether there was demand since the reading before; return whether there was work."""
        self._demands += [self._asked and asked] * self._unread
        self._unread = 0
        self._seconds += seconds
        worked, self._works, self._asked = self._works, works or asked, asked
        return worked or self._works

    def _settle(self, tokens: float, now: float, *, known: bool) -> None:
        """Make known all rounds since the last time; of those that are not `known` nothing is."""
        rate = tokens / self._seconds if self._seconds else 0.0
        self.rates += [Rate(rate, known and demand) for demand in self._demands]
        self.rates += [Rate()] * self._unread
        self._demands, self._unread, self._seconds, self._settled = [], 0, 0.0, now
        self._asked = self._asked and known


class Paces:
    """The paces of all whom an objective judges together, and the rounds that wait for one."""

    def __init__(self) -> None:
        self._of: dict[Entity, Pace] = {}
        self._rounds: deque[tuple[float, float]] = deque()  # when it ended, seconds

    @property
    def known(self) -> bool:
        """Whether anything has been told of tokens."""
        return any(pace.known for pace in self._of.values())

    def step(
        self,
        objective: Objective,
        book: Book,
        who: Mapping[Entity, bool],
        ended: tuple[float, float],
    ) -> None:
        """Take a round: when it `ended`, its seconds; `who` says of whom there is a page now.

        Those who are not in it are gone.
        """
        missed = len(self._rounds)
        self._of = {entity: self._of.get(entity) or Pace(missed) for entity in who}
        self._rounds.append(ended)
        for entity, pace in self._of.items():
            pace.step(objective, book, entity, ended[0], fresh=who[entity])

    def judged(self) -> Iterator[tuple[float, float, float]]:
        """Yield, once, rounds with demand: when each ended, its seconds, tokens in a second."""
        paces = self._of.values()
        while self._rounds and all(pace.rates for pace in paces):
            now, passed = self._rounds.popleft()
            rates = [pace.rates.popleft() for pace in paces]
            if passed and any(rate.demand for rate in rates):
                yield now, passed, sum(rate.tokens for rate in rates)


def _asked(objective: Objective, book: Book, entity: Entity) -> bool:
    if objective.demand == "always":
        return True
    families = [c.LLM_WAITING_REQUESTS]
    if objective.demand == "active":
        families.append(c.LLM_ACTIVE_REQUESTS)
    return any((book.latest(family, entity) or 0) > 0 for family in families)


def _works(book: Book, entity: Entity) -> bool:
    families = (c.LLM_WAITING_REQUESTS, c.LLM_ACTIVE_REQUESTS)
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
