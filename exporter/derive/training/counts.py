"""What a run has done so far: steps, tokens, samples, times, phases, each counted once.

Several readers tell of the same steps. For each quantity one of them is believed; when another
takes over, steps with numbers that have been counted are not counted again, and none that the
other one knows is lost. So the counters go on at a switch as if nothing had happened, over a
restart of the daemon too. They may miss steps that nobody told; they never count one twice.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from exporter.derive.training.teller import Known, Teller
from exporter.samples import Histogram
from exporter.training.ledger import STEP_BOUNDS
from exporter.training.records import PHASES

_RECENT = 5
"""A teller knows a quantity if one of its last so many tellings holds it."""


class Count:
    """One quantity, from whom it is believed, and up to which step it is counted.

    `knows` tells whether a telling holds the quantity, `take` adds it: `number` of the telling's
    steps are new, of which `again` had been done before.
    """

    def __init__(self) -> None:
        self.teller: Teller | None = None
        self.last: int | None = None
        self.news: list[tuple[Known, int, int]] = []
        """What was counted in this round: tellings, with how many steps and how many repeated."""
        self._highest = -1
        self._position = 0
        self._until: tuple[str, int] | None = None
        self._taken = -math.inf

    def knows(self, teller: Teller, known: Known) -> bool:
        """Tell whether a telling holds the quantity."""
        raise NotImplementedError

    def take(self, teller: Teller, known: Known, number: int, again: int) -> None:
        """Add a telling."""
        raise NotImplementedError

    def feed(self, tellers: Sequence[Teller]) -> None:
        """Count what is new; `tellers` are all that tell of it, the best one first."""
        self.news = []
        best = self._choose(tellers)
        if best is None:
            return
        if best is not self.teller:
            self._switch(best)
        if self._position == best.serial:
            return
        for known in best.after(self._position):
            self._count(best, known)
        self._position = best.serial

    def _choose(self, tellers: Sequence[Teller]) -> Teller | None:
        for teller in tellers:
            if teller.is_alive and self._able(teller):
                return teller
        able = [teller for teller in tellers if self._able(teller)]
        if self.teller in able:
            return self.teller
        return max(able, key=lambda teller: teller.latest.taken, default=None)

    def _able(self, teller: Teller) -> bool:
        known = teller.known
        return any(self.knows(teller, known[-at]) for at in range(1, min(_RECENT, len(known)) + 1))

    def _switch(self, best: Teller) -> None:
        self.teller, self._position = best, 0
        if self.last is None:
            return
        # Only its present attempt: what lies before that has been counted, or nobody knows.
        attempt = best.latest.step.attempt
        kept = list(best.known)
        at = len(kept)
        while at and kept[at - 1].step.attempt == attempt:
            at -= 1
        self._position = best.serial - len(kept) + at
        began_since = at > 0 and kept[at].taken > self._taken
        self._until = None if began_since else (attempt, self.last)

    def _count(self, teller: Teller, known: Known) -> None:
        step = known.step
        number = step.steps
        if self._until is not None:
            attempt, last = self._until
            if step.attempt == attempt:
                number = min(number, step.step - last)
                if number <= 0:
                    return
            else:
                self._until = None
        again = min(number, max(0, self._highest - step.step + number))
        self.last, self._taken = step.step, known.taken
        self._highest = max(self._highest, step.step)
        if self.knows(teller, known):
            self.take(teller, known, number, again)
            self.news.append((known, number, again))

    def memory(self) -> dict[str, Any]:
        """Return what has been counted, as JSON can hold it."""
        return {"last": self.last, "highest": self._highest, "sums": self.sums()}

    def restore(self, memory: Mapping[str, Any], *, final: bool) -> None:
        """Go on where another one was; raises for what is no such memory.

        If the other one has told more after that, its sums are left: a counter that begins at 0
        again is understood, one that falls a little counts all of it anew.
        """
        last = memory["last"]
        self.last = None if last is None else int(last)
        self._highest = int(memory["highest"])
        sums = [_counted(value) for value in memory["sums"]]
        self.put(sums if final else [0] * len(sums))

    def sums(self) -> list[float]:
        """Return the sums."""
        raise NotImplementedError

    def put(self, sums: list[float]) -> None:
        """Take sums over."""
        raise NotImplementedError


def _counted(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is no count")
    return value


class Steps(Count):
    """Steps, those that changed no weight, and those done again after a restart."""

    def __init__(self) -> None:
        super().__init__()
        self.total = self.skipped = self.repeated = 0

    def knows(self, teller: Teller, known: Known) -> bool:  # noqa: ARG002
        """Every telling is of steps."""
        return True

    def take(self, teller: Teller, known: Known, number: int, again: int) -> None:  # noqa: ARG002
        """Add a telling."""
        self.total += number
        self.repeated += again
        self.skipped += min(number, known.step.skipped)

    def sums(self) -> list[float]:
        """Return the sums."""
        return [self.total, self.skipped, self.repeated]

    def put(self, sums: list[float]) -> None:
        """Take sums over."""
        self.total, self.skipped, self.repeated = map(int, sums)


class Times(Count):
    """The times of steps, as a histogram."""

    def __init__(self) -> None:
        super().__init__()
        self._counts = [0] * (len(STEP_BOUNDS) + 1)
        self._seconds = 0.0

    def knows(self, teller: Teller, known: Known) -> bool:  # noqa: ARG002
        """Tell whether the step was timed."""
        return known.seconds is not None

    def take(self, teller: Teller, known: Known, number: int, again: int) -> None:  # noqa: ARG002
        """Add a telling."""
        seconds = known.seconds or 0.0
        self._counts[bisect_left(STEP_BOUNDS, seconds)] += number
        self._seconds += number * seconds

    @property
    def histogram(self) -> Histogram | None:
        """All times, cumulative; None where none is known."""
        if self.last is None:
            return None
        return Histogram(STEP_BOUNDS, tuple(map(float, accumulate(self._counts))), self._seconds)

    def sums(self) -> list[float]:
        """Return the sums."""
        return [self._seconds, *self._counts]

    def put(self, sums: list[float]) -> None:
        """Take sums over."""
        if len(sums) != len(self._counts) + 1:
            raise ValueError(f"{len(sums) - 1} buckets, not {len(self._counts)}")
        self._seconds, self._counts = sums[0], [int(value) for value in sums[1:]]


class Tokens(Count):
    """The tokens of the whole run."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0.0

    def knows(self, teller: Teller, known: Known) -> bool:
        """Tell whether the tokens of the run are known."""
        return known.tokens is not None and teller.factor is not None

    def take(self, teller: Teller, known: Known, number: int, again: int) -> None:  # noqa: ARG002
        """Add a telling."""
        self.total += number * (known.tokens or 0.0) * (teller.factor or 0.0)

    def sums(self) -> list[float]:
        """Return the sums."""
        return [self.total]

    def put(self, sums: list[float]) -> None:
        """Take sums over."""
        (self.total,) = sums


class Samples(Tokens):
    """The samples of the whole run."""

    def knows(self, teller: Teller, known: Known) -> bool:
        """Tell whether the samples of the run are known."""
        return known.samples is not None and teller.factor is not None

    def take(self, teller: Teller, known: Known, number: int, again: int) -> None:  # noqa: ARG002
        """Add a telling."""
        self.total += number * (known.samples or 0.0) * (teller.factor or 0.0)


class Phases(Count):
    """The time of steps by phase, of one rank or of the run as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {}

    def knows(self, teller: Teller, known: Known) -> bool:  # noqa: ARG002
        """Tell whether the step was taken apart."""
        return bool(known.step.phases)

    def take(self, teller: Teller, known: Known, number: int, again: int) -> None:  # noqa: ARG002
        """Add a telling."""
        for phase, seconds in known.step.phases.items():
            self.seconds[phase] = self.seconds.get(phase, 0.0) + number * seconds

    def sums(self) -> list[float]:
        """Return the sums, one for each of `PHASES`."""
        return [self.seconds.get(phase, 0.0) for phase in PHASES]

    def put(self, sums: list[float]) -> None:
        """Take sums over."""
        self.seconds = {
            phase: value for phase, value in zip(PHASES, sums, strict=True) if value > 0
        }


class Counts:
    """All counters of a run."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.times = Times()
        self.tokens = Tokens()
        self.samples = Samples()
        self.phases: dict[int | None, Phases] = {}

    def feed(self, tellers: Sequence[Teller]) -> None:
        """Count what is new; the best teller first."""
        for one in (self.steps, self.times, self.tokens, self.samples):
            one.feed(tellers)
        by_rank: dict[int | None, list[Teller]] = {}
        for teller in tellers:
            if teller.latest.step.phases or teller.rank in self.phases:
                by_rank.setdefault(teller.rank, []).append(teller)
        for rank, some in by_rank.items():
            self.phases.setdefault(rank, Phases()).feed(some)

    def memory(self) -> dict[str, Any]:
        """Return all, as JSON can hold it."""
        told: dict[str, Any] = {name: one.memory() for name, one in self._named()}
        told["phases"] = [
            ["" if rank is None else rank, one.memory()] for rank, one in self.phases.items()
        ]
        return told

    def restore(self, memory: Mapping[str, Any], *, final: bool) -> None:
        """Go on where another one was; raises for what is no such memory."""
        for name, one in self._named():
            one.restore(memory[name], final=final)
        for rank, piece in memory["phases"]:
            phases = self.phases[None if rank == "" else int(rank)] = Phases()
            phases.restore(piece, final=final)

    def _named(self) -> Iterator[tuple[str, Count]]:
        yield "steps", self.steps
        yield "times", self.times
        yield "tokens", self.tokens
        yield "samples", self.samples


def told_by(counts: Counts) -> Iterable[str]:
    """Return the readers that are believed for one quantity or another."""
    tellers = [one.teller for one in (counts.steps, counts.times, counts.tokens, counts.samples)]
    return dict.fromkeys(teller.reader for teller in tellers if teller is not None)
