"""What became of a run's time: productive steps, and what was lost to what.

The wall time of a run is followed from its beginning, and each second of it is put to one account.
A step's time is productive but for what it waited for data, saved a checkpoint, or evaluated. The
first step of an attempt compiles: it counts as start, or as restart. What lies between steps goes
to the checkpoints saved then, to the restart if the job began anew, and else to `unknown`. While
nothing is told for too long it is `stalled`; a step that takes ten times the median is too, but
for the median. So the accounts add up to the wall time, and none of them ever falls.

Steps that were done before are `repeated`, whatever they consist of.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from exporter import catalogue as c
from exporter.derive.training.run import Run
from exporter.derive.training.teller import Known
from exporter.samples import Metric, Sample, View
from exporter.training import READERS
from exporter.training.ledger import FORGOTTEN
from exporter.training.records import Moment

OUTPUTS: tuple[Metric, ...] = (
    c.TRAIN_CHECKPOINTS_TOTAL,
    c.TRAIN_CHECKPOINT_SECONDS_TOTAL,
    c.TRAIN_LAST_CHECKPOINT_TIMESTAMP_SECONDS,
    c.TRAIN_GOODPUT_RATIO,
    c.TRAIN_PRODUCTIVE_SECONDS_TOTAL,
    c.TRAIN_LOST_SECONDS_TOTAL,
    c.TRAIN_ELAPSED_SECONDS,
)

CAUSES = (
    "start", "data", "checkpoint", "repeated", "restart", "stalled", "evaluation", "unknown",
)  # fmt: skip
PRODUCTIVE = "productive"
_IN_STEPS = ("data", "checkpoint", "evaluation")
_FAR_TOO_LONG = 10.0
_RESOLUTION = 2.0
"""Seconds by which two stamps may be off: logs tell whole seconds."""

_KEPT = 512


class _Checkpoints:
    """The checkpoints that were saved, each counted once: by step, else by when it was saved."""

    def __init__(self) -> None:
        self.number = 0
        self.seconds = 0.0
        self.timed = False
        self.last: float | None = None
        self._seen: dict[str, None] = {}
        self._rank: int | None = None

    def look(self, run: Run, now: float) -> float:
        """Count those that are new; return for how long they held the run up."""
        moments = [
            (reader, moment)
            for reader, moment in run.tracked.moments
            if moment.kind == "checkpoint_saved"
        ]
        readers = {reader for reader, _ in moments}
        best = next((reader for reader in READERS if reader in readers), None)
        # Each rank may tell of the same checkpoint, at a moment of its own.
        ranks = {moment.rank for reader, moment in moments if reader == best}
        if self._rank not in ranks:
            self._rank = min(ranks, key=lambda rank: -1 if rank is None else rank, default=None)
        held = 0.0
        for reader, moment in moments:
            key = _name(moment)
            if (reader, moment.rank) != (best, self._rank) or key in self._seen:
                continue
            self._seen[key] = None
            self.number += 1
            self.last = run.wall(now) if moment.wall is None else moment.wall
            if moment.seconds is not None:
                self.timed = True
                held += moment.seconds
        self.seconds += held
        while len(self._seen) > _KEPT:
            del self._seen[next(iter(self._seen))]
        return held

    def memory(self) -> list[Any]:
        """Return what is to outlive the daemon."""
        return [self.number, self.seconds, self.timed, self.last, list(self._seen)]

    def restore(self, memory: list[Any]) -> None:
        """Take that over."""
        number, seconds, timed, last, seen = memory
        self.number, self.seconds, self.timed = int(number), _amount(seconds), bool(timed)
        self.last = None if last is None else float(last)
        self._seen = dict.fromkeys(map(str, seen))


def _name(moment: Moment) -> str:
    """Return what tells one checkpoint from another."""
    if moment.step is not None:
        return f"step {moment.attempt} {moment.step}"
    return f"wall {moment.wall}"


class _Account:
    """The time of one run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.base: dict[str, float] = {}
        """What has been told before in a counter that began anew."""
        self.checkpoints = _Checkpoints()
        self.began: float | None = None
        self._until: float | None = None
        self._attempt: str | None = None
        self._reader: str | None = None
        self._stalled = 0.0
        self._owed: dict[str, float] = {}

    def keep(self, run: Run, now: float) -> None:
        """Put to account what has happened since the last round."""
        held = self.checkpoints.look(run, now)
        wall = run.wall(now)
        for news in _groups(run.counts.times.news):
            held = self._steps(run, news, held, wall)
            self._stalled = 0.0
        if run.status == "stalled" and run.age is not None and self._until is not None:
            # By the run's own age: its stamps may be of another time zone than our clock.
            more = max(0.0, min(wall - self._until, run.age - self._stalled))
            self._put("stalled", more)
            self._until += more
            self._stalled += more

    def _steps(
        self, run: Run, news: list[tuple[Known, int, int]], held: float, wall: float
    ) -> float:
        """Put new steps to account, and what lies between them and those before.

        `held` is for how long checkpoints held the run up; what of it is left is returned.
        """
        shares, total, starts = self._shares(run, news)
        last = news[-1][0].step.wall
        end = wall if last is None or last > wall else last
        if self._until is None:
            started = self._beginning(run, end - total)
            self.began = self._until = started
            starts = True
            cause = "start"
        else:
            cause = "restart"
        span = max(0.0, end - self._until)
        scale = min(1.0, span / total) if total > 0 else 0.0
        for name, seconds in shares.items():
            self._put(name, seconds * scale)
        gap = span - total * scale
        blocked = min(gap, held)
        self._put("checkpoint", blocked)
        gap -= blocked
        if starts:
            self._owed = {}
        else:
            gap -= self._pay(gap)
            self._owe({name: seconds * (1 - scale) for name, seconds in shares.items()})
        self._put(cause if starts else "unknown", gap)
        self._until = max(self._until, end)
        return held - blocked

    def _owe(self, shares: dict[str, float]) -> None:
        """Keep what found no room between two stamps: those of whole seconds come too early."""
        for name, seconds in shares.items():
            self._owed[name] = self._owed.get(name, 0.0) + seconds
        total = math.fsum(self._owed.values())
        if total > _RESOLUTION:
            self._owed = {
                name: seconds * _RESOLUTION / total for name, seconds in self._owed.items()
            }

    def _pay(self, gap: float) -> float:
        """Put to account what is owed, as far as it fits into a gap; return how much that is."""
        total = math.fsum(self._owed.values())
        paid = min(gap, total)
        if paid > 0:
            for name, seconds in self._owed.items():
                self._put(name, seconds * paid / total)
                self._owed[name] = seconds * (1 - paid / total)
        return max(0.0, paid)

    def _shares(
        self, run: Run, news: list[tuple[Known, int, int]]
    ) -> tuple[dict[str, float], float, bool]:
        """Return the time of steps by account, all of it, and whether the job began anew."""
        median, teller = run.median, run.counts.times.teller
        reader = None if teller is None else teller.reader
        shares: dict[str, float] = {}
        anew = False
        for known, number, again in news:
            step = known.step
            # Readers have names of their own for attempts: another one begins no other attempt.
            first = self._attempt is None or (
                step.attempt != self._attempt and reader == self._reader
            )
            anew = anew or (first and self._attempt is not None)
            compiles = known.first and first
            beginning = "start" if self._attempt is None else "restart"
            self._attempt, self._reader = step.attempt, reader
            if known.seconds is None:
                continue
            if compiles and number == 1:
                shares[beginning] = shares.get(beginning, 0.0) + known.seconds
                continue
            parts = _parts(known, median)
            for name, seconds in parts.items():
                fresh = seconds * (number - again)
                shares[name] = shares.get(name, 0.0) + fresh
                shares["repeated"] = shares.get("repeated", 0.0) + seconds * again
        return shares, math.fsum(shares.values()), anew

    @staticmethod
    def _beginning(run: Run, first: float) -> float:
        """Return when a run began: as told, else when its first step did."""
        told = [
            moment.wall
            for _, moment in run.tracked.moments
            if moment.kind == "started" and moment.wall is not None and moment.wall <= first
        ]
        return max(told, default=first)

    def _put(self, name: str, seconds: float) -> None:
        if seconds > 0:
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def told(self, name: str) -> float:
        """Return what a counter shows of an account."""
        return max(0.0, self.seconds.get(name, 0.0) - self.base.get(name, 0.0))

    def doubt(self) -> None:
        """Let counters begin at 0; the accounts stay."""
        self.base = dict(self.seconds)
        self.checkpoints.number, self.checkpoints.seconds = 0, 0.0

    def memory(self) -> dict[str, Any]:
        """Return what is to outlive the daemon."""
        return {
            "seconds": self.seconds, "base": self.base, "began": self.began, "until": self._until,
            "attempt": self._attempt, "reader": self._reader,
            "checkpoints": self.checkpoints.memory(),
        }  # fmt: skip

    def restore(self, memory: Mapping[str, Any]) -> None:
        """Take that over; raises for what is no such memory."""
        seconds = {str(name): _amount(value) for name, value in memory["seconds"].items()}
        self.seconds = {
            name: value for name, value in seconds.items() if name in (PRODUCTIVE, *CAUSES)
        }
        base = {str(name): _amount(value) for name, value in memory["base"].items()}
        self.base = {name: min(value, self.seconds.get(name, 0.0)) for name, value in base.items()}
        self.began = None if memory["began"] is None else float(memory["began"])
        self._until = None if memory["until"] is None else float(memory["until"])
        self._attempt = None if memory["attempt"] is None else str(memory["attempt"])
        self._reader = None if memory["reader"] is None else str(memory["reader"])
        self.checkpoints.restore(memory["checkpoints"])


def _groups(
    news: list[tuple[Known, int, int]],
) -> Iterator[list[tuple[Known, int, int]]]:
    """Yield steps one by one where it is known when they ended, the others together."""
    for stamped, some in groupby(news, key=lambda one: one[0].step.wall is not None):
        if stamped:
            yield from ([one] for one in some)
        else:
            yield list(some)


def _amount(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is no amount of time")
    return float(value)


def _parts(known: Known, median: float | None) -> dict[str, float]:
    """Return the seconds of a step by account."""
    seconds = known.seconds or 0.0
    parts: dict[str, float] = {}
    left = seconds
    for phase in _IN_STEPS:
        if spent := min(left, known.step.phases.get(phase, 0.0)):
            parts[phase] = spent
            left -= spent
    if median and known.step.steps == 1 and left > max(60.0, _FAR_TOO_LONG * median):
        parts["stalled"] = left - median
        left = median
    parts[PRODUCTIVE] = left
    return parts


class Goodput:
    """Tells what became of the time of runs."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def __call__(self, run: Run, view: View, now: float) -> Iterable[Sample]:  # noqa: ARG002
        """Yield the samples of one run."""
        account = self._accounts.setdefault(run.name, _Account())
        account.keep(run, now)
        if not run.reports:
            return
        saved = account.checkpoints
        if saved.number:
            yield c.TRAIN_CHECKPOINTS_TOTAL(saved.number, run.name)
        if saved.last is not None:
            yield c.TRAIN_LAST_CHECKPOINT_TIMESTAMP_SECONDS(saved.last, run.name)
        # The larger of two that both only grow: which of them is told may change.
        seconds = max(saved.seconds, _in_phases(run))
        if saved.timed or seconds:
            yield c.TRAIN_CHECKPOINT_SECONDS_TOTAL(seconds, run.name)
        if account.began is not None and run.status != "ended":
            elapsed = run.wall(now) - account.began
            if elapsed >= 0:
                yield c.TRAIN_ELAPSED_SECONDS(elapsed, run.name)
        productive = account.seconds.get(PRODUCTIVE, 0.0)
        total = math.fsum(account.seconds.values())
        if productive == 0 or total == 0:
            return  # no step was timed yet
        yield c.TRAIN_PRODUCTIVE_SECONDS_TOTAL(account.told(PRODUCTIVE), run.name)
        yield c.TRAIN_GOODPUT_RATIO(productive / total, run.name)
        for cause in CAUSES:
            yield c.TRAIN_LOST_SECONDS_TOTAL(account.told(cause), run.name, cause)

    def forget(self, run: str) -> None:
        """Drop what is kept of a run."""
        self._accounts.pop(run, None)

    def memory(self) -> dict[str, object]:
        """Return the accounts of all runs."""
        return {name: account.memory() for name, account in self._accounts.items()}

    def restore(self, memory: Mapping[str, Any], now: float, age: float) -> None:  # noqa: ARG002
        """Take accounts over, unless all the runs have been forgotten meanwhile."""
        if age > FORGOTTEN:
            return
        accounts: dict[str, _Account] = {}
        for name, piece in memory.items():
            accounts[str(name)] = account = _Account()
            account.restore(piece)
        self._accounts = accounts

    def doubt(self) -> None:
        """Let all counters begin at 0."""
        for account in self._accounts.values():
            account.doubt()


def _in_phases(run: Run) -> float:
    """Return the time that steps spent on checkpoints, by their phases; of one rank."""
    phases = run.counts.phases
    if not phases:
        return 0.0
    first = min(phases, key=lambda rank: -1 if rank is None else rank)
    return phases[first].seconds.get("checkpoint", 0.0)
