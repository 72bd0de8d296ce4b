"""From submission to the end of a run: when it started, failed, and went on again.

A run has lives: one for each time that it was started. A life begins with a start that is told or
with the first step of a new attempt, and ends when a failure or the end is told. Several readers
may tell of the same thing, which counts once. A job that is killed says nothing: that is known by
the life that follows, and the end of its last step is taken for the moment. A run of which nothing
more is heard has neither failed nor ended as far as anybody knows (`train_stalled` tells of it).

An interruption is an end that the job knew beforehand: no failure, but what comes until the first
step after it is a recovery. Where the job goes on at another node it tells that node of it too.

Counted is what happens while the daemon runs: what a log tells of earlier times is known and not
counted. Nodes that do not speak for the run count nothing, so that a sum over nodes counts once.

    train_start_latency_seconds{run="llama-7b"} 187.4
    train_recovery_seconds{run="llama-7b"} 96.2
    train_runs_started_total 3
    train_runs_failed_total 1
    train_interruptions_total{run="llama-7b"} 1
    train_interruption_seconds_total{run="llama-7b"} 96.2
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Literal, NamedTuple

from exporter import catalogue as c
from exporter.derive.training.run import Run
from exporter.samples import Metric, Sample, View
from exporter.training import READERS, Moment, Told, Track, TrackedRun

OUTPUTS: tuple[Metric, ...] = (
    c.TRAIN_START_LATENCY_SECONDS, c.TRAIN_RECOVERY_SECONDS, c.TRAIN_RUNS_STARTED_TOTAL,
    c.TRAIN_RUNS_FAILED_TOTAL, c.TRAIN_INTERRUPTIONS_TOTAL, c.TRAIN_INTERRUPTION_RECOVERIES_TOTAL,
    c.TRAIN_INTERRUPTION_SECONDS_TOTAL,
)  # fmt: skip
"""What comes of it."""

SLACK = 30.0
"""Seconds by which a reader may be late: what happened so long before the daemon began still
counts, and of a step without a time nobody knows that it began after a failure sooner than that."""

RESOLUTION = 2.0
"""Seconds by which two readers' times of one thing may differ: logs tell whole seconds."""

BEGINNINGS = frozenset({"started", "first_step", "steps"})
"""What may be of another life than the present one."""

KEPT = 512
"""Moments of a run that are remembered as taken."""

Kind = Literal["started", "failed", "interrupted", "ended", "first_step", "recovered"]


class Happened(NamedTuple):
    """Something that counts: `seconds` is the latency of a first step, or of a recovery.

    `planned` says that the recovery is one from an interruption.
    """

    run: str
    kind: Kind
    seconds: float | None = None
    planned: bool = False


class Event(NamedTuple):
    """Something that was told of a run, in Unix seconds.

    `order` puts what has the same time into the order in which it must have happened. `who` told
    it, of which `attempt`. Of steps there is one event for a stretch of the same attempt: `wall` is
    when its first one ended, `until` its last, `spans` when each began and ended; `fresh` says that
    it began with the run's first step, `final` that it holds the last one.
    """

    wall: float
    order: int
    kind: str
    who: tuple[str, str] = ("", "")
    attempt: str = ""
    until: float = -math.inf
    spans: tuple[tuple[float, float], ...] = ()
    fresh: bool = False
    final: bool = False


class Life:
    """One run: the life that it is in, and what the ones before have left.

    Whoever tells of another attempt than before, in the same life, tells of another life; whoever
    tells of his first one joins the life that there is.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.latency: float | None = None
        self.recovery: float | None = None
        self._state: Literal["unknown", "starting", "running", "down", "over"] = "unknown"
        self._since = self._last = -math.inf
        self._first: float | None = None
        self._failed: float | None = None
        self._planned = False
        self._submitted: float | None = None
        self._timed = -math.inf
        self._complete = False
        self._attempts: dict[tuple[str, str], str] = {}
        self._former: dict[tuple[tuple[str, str], str], None] = {}

    def take(self, event: Event) -> Iterator[tuple[float, Happened]]:
        """Take one event; yield what counts, and when it happened."""
        if event.kind == "submitted":
            yield from self._submit(event.wall)
            return
        if (event.who, event.attempt) in self._former:
            return  # of an earlier life
        if self._is_new(event):
            yield from self._begin(event)
        known = self._attempts.get(event.who, event.attempt)
        elsewhere = event.kind == "interrupted" and known != event.attempt
        if event.who[0] and self._state != "unknown" and not elsewhere:
            self._attempts[event.who] = event.attempt
        yield from self._go_on(event)

    def _is_new(self, event: Event) -> bool:
        """Tell whether an event is of another life than the present one."""
        if event.kind not in BEGINNINGS:
            return False
        if self._state == "unknown":
            return True
        known = self._attempts.get(event.who)
        if known is not None:
            return known != event.attempt
        between = self._state in {"down", "over"}
        return between and event.wall > max(self._since, self._failed or self._last)

    def _begin(self, event: Event) -> Iterator[tuple[float, Happened]]:
        """Begin another life; the one before, if nobody told of its end, was cut short."""
        told = self._state != "unknown" or event.kind != "steps" or event.fresh
        if self._state in {"starting", "running"}:
            yield from self._end("ended" if self._complete else "failed", self._until)
        self._former.update(dict.fromkeys(self._attempts.items()))
        while len(self._former) > KEPT:
            del self._former[next(iter(self._former))]
        self._attempts, self._complete, self._first = {}, False, None
        self._state, self._since, self._last = "starting", event.wall, -math.inf
        if told:
            yield event.wall, Happened(self.name, "started")
        else:  # it may have run for days: neither its start nor its submission is seen
            self._state, self._submitted = "running", None

    def _go_on(self, event: Event) -> Iterator[tuple[float, Happened]]:
        """Take an event of the present life."""
        match event.kind:
            case "first_step" | "steps" if self._state == "starting":
                self._state, self._first = "running", event.wall
                yield from self._latency(event.wall)
                yield from self._recover(event.wall)
            case "steps" if self._state == "down":
                failed = math.inf if self._failed is None else self._failed
                after = [ended for began, ended in event.spans if began >= failed]
                if after:
                    yield from self._recover(after[0])
            case "recovered" if self._state == "down":
                yield from self._recover(event.wall)
            case "failed" | "interrupted" | "ended" if self._state in {"starting", "running"}:
                if event.wall >= self._since - RESOLUTION:
                    ended: Kind = event.kind
                    yield from self._end(ended, event.wall)
                elif event.kind == "interrupted" and self._failed is None:
                    self._hear(event)
            case "interrupted" if self._state == "unknown":
                self._hear(event)
                self._state = "down"
        self._last = max(self._last, event.until)
        self._complete = self._complete or event.final

    def _hear(self, event: Event) -> None:
        """Hear of an interruption at another node, where it was counted; we may be the next one."""
        if self._state == "unknown" or self._first is None:
            self._failed, self._planned = event.wall, True

    @property
    def _until(self) -> float:
        return max(self._since, self._last)

    def _end(self, kind: Kind, wall: float) -> Iterator[tuple[float, Happened]]:
        self._state = "over" if kind == "ended" else "down"
        self._failed = None if kind == "ended" else wall
        self._planned = kind == "interrupted"
        yield wall, Happened(self.name, kind)

    def _submit(self, wall: float) -> Iterator[tuple[float, Happened]]:
        """Take when the run was submitted; that may be told when it runs already."""
        self._submitted = wall
        if self._state == "running" and wall <= max(self._since, self._first or self._since):
            if self._first is not None and self._timed < self._first:
                yield from self._latency(self._first)
            self._submitted = None

    def _latency(self, wall: float) -> Iterator[tuple[float, Happened]]:
        if self._submitted is not None and self._submitted <= wall:
            self.latency, self._submitted, self._timed = wall - self._submitted, None, wall
            yield wall, Happened(self.name, "first_step", self.latency)

    def _recover(self, wall: float) -> Iterator[tuple[float, Happened]]:
        """Go on after a failure, if there was one."""
        if self._failed is not None and wall >= self._failed:
            self.recovery = wall - self._failed
            self._failed, self._state = None, "running"
            yield wall, Happened(self.name, "recovered", self.recovery, self._planned)


class Lifecycle:
    """The part of training that follows lives; `happened` is what counts of this round.

    `wall` turns a monotonic moment into Unix seconds.
    """

    def __init__(self, wall: Callable[[float], float]) -> None:
        self._wall = wall
        self._lives: dict[str, Life] = {}
        self._taken: dict[str, _Taken] = {}
        self._since: float | None = None
        self._started = 0
        self._failed = 0
        self._happened: list[Happened] = []
        self._interruptions: dict[str, _Interruptions] = {}

    def follow(self, run: Run, now: float) -> None:
        """Take what was told of a run."""
        life = self._lives.setdefault(run.name, Life(run.name))
        taken = self._taken.setdefault(run.name, _Taken())
        if taken.of is run.tracked:
            return  # nothing new
        taken.of = run.tracked
        for event in sorted(taken.news(run)):
            for wall, happened in life.take(event):
                if run.reports and wall >= self._begin(now):
                    self._count(happened)

    def __call__(self, run: Run, _view: View, _now: float) -> Iterable[Sample]:
        """Return how long the run took to start, and to go on after a failure."""
        life = self._lives.get(run.name)
        if life is not None and run.reports:
            yield from _told(life)
            if self._taken[run.name].knows_moments:  # who tells steps alone cannot tell of these
                yield from self._interruptions.get(run.name, _Interruptions()).tell(run.name)

    def _count(self, happened: Happened) -> None:
        self._happened.append(happened)
        self._started += happened.kind == "started"
        self._failed += happened.kind == "failed"
        self._interruptions.setdefault(happened.run, _Interruptions()).count(happened)

    def _begin(self, now: float) -> float:
        """Return from when on things count, in Unix seconds."""
        if self._since is None:
            self._since = self._wall(now) - SLACK
        return self._since

    def totals(self, now: float) -> Iterator[Sample]:
        """Yield what was counted of all runs."""
        self._begin(now)
        yield c.TRAIN_RUNS_STARTED_TOTAL(self._started)
        yield c.TRAIN_RUNS_FAILED_TOTAL(self._failed)

    def happened(self) -> list[Happened]:
        """Return what has counted since this was asked last."""
        found, self._happened = self._happened, []
        return found

    def forget(self, run: str) -> None:
        """Drop what is known of a run."""
        self._lives.pop(run, None)
        self._taken.pop(run, None)
        self._interruptions.pop(run, None)


def _told(life: Life) -> Iterator[Sample]:
    if life.latency is not None:
        yield c.TRAIN_START_LATENCY_SECONDS(life.latency, life.name)
    if life.recovery is not None:
        yield c.TRAIN_RECOVERY_SECONDS(life.recovery, life.name)


class _Interruptions:
    """How often a run was interrupted, how often it went on, and how long that took."""

    def __init__(self) -> None:
        self.number = self.recoveries = 0
        self.seconds = 0.0

    def count(self, happened: Happened) -> None:
        """Take what has happened."""
        self.number += happened.kind == "interrupted"
        if happened.kind == "recovered" and happened.planned:
            self.recoveries += 1
            self.seconds += happened.seconds or 0.0

    def tell(self, run: str) -> Iterator[Sample]:
        """Yield the counters; 0 from the beginning, so that the first one is an increase."""
        yield c.TRAIN_INTERRUPTIONS_TOTAL(self.number, run)
        yield c.TRAIN_INTERRUPTION_RECOVERIES_TOTAL(self.recoveries, run)
        yield c.TRAIN_INTERRUPTION_SECONDS_TOTAL(self.seconds, run)


class _Taken:
    """What has been taken of a run's records so far."""

    def __init__(self) -> None:
        self.of: TrackedRun | None = None
        self._moments: dict[tuple[str, Moment], None] = {}
        self._submitted: float | None = None
        self._until = -math.inf

    @property
    def knows_moments(self) -> bool:
        """Whether anything but steps was told."""
        return bool(self._moments)

    def news(self, run: Run) -> Iterator[Event]:
        """Yield what was told since the last time."""
        submitted = run.facts.submitted
        if submitted is not None and submitted != self._submitted:
            self._submitted = submitted
            yield Event(submitted, 0, "submitted")
        lowest = _lowest_ranks(run.tracked)
        for one in run.tracked.moments:
            reader, moment = one
            if one not in self._moments:
                self._moments[one] = None
                # One rank alone may be started anew within a run that goes on.
                if moment.kind != "started" or moment.rank == lowest[reader]:
                    yield from _of_moment(reader, moment)
        while len(self._moments) > KEPT:
            del self._moments[next(iter(self._moments))]
        yield from self._steps(run)

    def _steps(self, run: Run) -> Iterator[Event]:
        """Yield stretches of new steps, one for each attempt."""
        who, track = _steps_of(run.tracked)
        if track is None:
            return
        new: list[Told] = []
        for told in reversed(track.recent):
            if told.taken <= self._until:
                break
            new.append(told)
        if new:
            self._until = new[0].taken
        last = run.facts.last_step
        for some in _by_attempt(reversed(new)):
            step = some[0].step
            spans = tuple(_span(told, run.wall) for told in some)
            yield Event(
                wall=spans[0][1] - (step.steps - 1) * (step.seconds or 0.0),
                order=_ORDER["steps"],
                kind="steps",
                who=who,
                attempt=step.attempt,
                until=max(ended for _, ended in spans),
                spans=spans,
                fresh=step.step <= step.steps and _is_timed(some),
                final=last is not None and max(told.step.step for told in some) >= last,
            )


_ORDER = {"submitted": 0, "started": 1, "first_step": 2, "steps": 3, "recovered": 4,
          "failed": 5, "interrupted": 5, "ended": 6}  # fmt: skip


def _lowest_ranks(tracked: TrackedRun) -> dict[str, int | None]:
    """Return who stands for the run by reader: the lowest rank whose start is told, or none."""
    found: dict[str, int | None] = {}
    for reader, moment in tracked.moments:
        if moment.kind == "started":
            rank, known = moment.rank, found.get(reader, moment.rank)
            found[reader] = None if rank is None or known is None else min(known, rank)
    return found


def _of_moment(reader: str, moment: Moment) -> Iterator[Event]:
    """Yield the event that a moment is; where no attempt is told each moment may be of another."""
    if moment.kind in _ORDER and moment.wall is not None:
        attempt = moment.attempt or f"@{moment.wall}"
        who = (f"{reader} moments", "" if moment.rank is None else str(moment.rank))
        if moment.kind == "first_step" and not moment.attempt:
            who = ("", "")  # it says nothing of the life that it is of
        yield Event(moment.wall, _ORDER[moment.kind], moment.kind, who, attempt)


def _steps_of(tracked: TrackedRun) -> tuple[tuple[str, str], Track | None]:
    """Return the best reader's track of the run, or of its lowest rank here, and who that is."""
    for reader in READERS:
        tracks = [(rank, track) for (who, rank), track in tracked.tracks.items() if who == reader]
        if tracks:
            rank, track = min(tracks, key=lambda one: -1 if one[0] is None else one[0])
            return (reader, "" if rank is None else str(rank)), track
    return ("", ""), None


def _is_timed(some: list[Told]) -> bool:
    """Tell whether it is known when steps ended: by a stamp, or because they are told at once.

    A file without stamps that is read for the first time may be years old.
    """
    first = some[0]
    return first.step.wall is not None or all(one.taken > first.taken for one in some[1:])


def _span(told: Told, wall: Callable[[float], float]) -> tuple[float, float]:
    """Return when a step began and ended; where no time was told, it may have been earlier."""
    step = told.step
    ended = wall(told.taken) if step.wall is None else step.wall
    late = SLACK if step.wall is None else 0.0
    return ended - (step.seconds or 0.0) - late, ended


def _by_attempt(told: Iterable[Told]) -> Iterator[list[Told]]:
    """Yield stretches of steps of the same attempt."""
    for _, some in groupby(told, key=lambda one: one.step.attempt):
        yield list(some)
