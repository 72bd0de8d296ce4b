"""Keeps what readers tell of training runs: each step once for each reader and rank.

Several readers may tell of the same run at once. They are kept apart here; whom to believe is
decided where things are derived. Work for a record is constant, and all that is kept has a limit:
runs, ranks, the steps of which the details are remembered, moments, profiles.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.samples import Histogram
from exporter.training.records import PHASES, READERS, Facts, Moment, Profile, Record, Step

STEP_BOUNDS = (
    0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0,
)  # fmt: skip
"""Upper bounds of the histogram of step times, in seconds."""

MAX_RUNS = 64
MAX_RANKS = 128
KEPT_STEPS = 2048
KEPT_MOMENTS = 256
KEPT_ATTEMPTS = 8
FORGOTTEN = 7200.0
"""Seconds after which a run of which nothing is told any more is dropped."""
OVER = 300.0
"""Seconds after its end from which on a run makes room for another, where there is none."""
SILENT = 1800.0
"""Seconds of silence after which one does of which no end was told."""


class Told(NamedTuple):
    """A step and when it was told, in monotonic seconds."""

    taken: float
    step: Step


@dataclass(slots=True)
class Track:
    """What one reader told of one rank (None: of the run): sums since the daemon began, and steps.

    `repeated` counts steps that an earlier attempt had done already. The sums are over steps for
    which the reader told the quantity: `seconds` of `timed` steps, and so on. `former` holds the
    last step of earlier attempts: what one of them tells once more, late, is no news.
    """

    steps: int = 0
    repeated: int = 0
    skipped: int = 0
    timed: int = 0
    seconds: float = 0.0
    repeated_seconds: float = 0.0
    tokens: float = 0.0
    samples: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)
    counts: list[int] = field(default_factory=lambda: [0] * (len(STEP_BOUNDS) + 1))
    recent: deque[Told] = field(default_factory=lambda: deque(maxlen=KEPT_STEPS))
    attempt: str = ""
    highest: int = -1
    last: int = -1
    former: dict[str, int] = field(default_factory=dict)
    duplicates: int = 0

    @property
    def histogram(self) -> Histogram:
        """The times of all timed steps, cumulative."""
        total, counts = 0, []
        for count in self.counts:
            total += count
            counts.append(float(total))
        return Histogram(STEP_BOUNDS, tuple(counts), self.seconds)

    def add(self, taken: float, step: Step) -> bool:
        """Count a step; False if this attempt has told it already."""
        last = self.last if step.attempt == self.attempt else self.former.get(step.attempt, -1)
        if step.step <= last:
            self.duplicates += 1
            return False
        again = min(step.steps, max(0, self.highest - step.step + step.steps))
        self._begin(step.attempt)
        self.last = step.step
        self.highest = max(self.highest, step.step)
        self.steps += step.steps
        self.repeated += again
        self.skipped += step.skipped
        self.tokens += step.steps * (step.tokens or 0.0)
        self.samples += step.steps * (step.samples or 0.0)
        if step.seconds is not None:
            self.timed += step.steps
            self.seconds += step.steps * step.seconds
            self.repeated_seconds += again * step.seconds
            self.counts[bisect_left(STEP_BOUNDS, step.seconds)] += step.steps
        for phase, seconds in step.phases.items():
            self.phases[phase] = self.phases.get(phase, 0.0) + step.steps * seconds
        self.recent.append(Told(taken, step))
        return True

    def _begin(self, attempt: str) -> None:
        if attempt == self.attempt:
            return
        if self.last >= 0:
            self.former[self.attempt] = self.last
            if len(self.former) > KEPT_ATTEMPTS:
                del self.former[next(iter(self.former))]
        self.former.pop(attempt, None)
        self.attempt = attempt

    def copy(self) -> Track:
        """Return a copy that a reader's thread does not change."""
        return dataclasses.replace(
            self,
            phases=dict(self.phases),
            counts=list(self.counts),
            former=dict(self.former),
            recent=self.recent.copy(),
        )


@dataclass(slots=True)
class TrackedRun:
    """All that is known of a run: facts by reader, tracks by reader and rank, moments, profiles.

    `began` and `told` are when it was first and last heard of, in monotonic seconds.
    """

    name: str
    began: float
    told: float
    facts: dict[str, Facts] = field(default_factory=dict)
    tracks: dict[tuple[str, int | None], Track] = field(default_factory=dict)
    moments: deque[tuple[str, Moment]] = field(default_factory=lambda: deque(maxlen=KEPT_MOMENTS))
    profiles: dict[int | None, Profile] = field(default_factory=dict)

    def copy(self) -> TrackedRun:
        """Return a copy that nobody else changes."""
        return dataclasses.replace(
            self,
            facts=dict(self.facts),
            tracks={key: track.copy() for key, track in self.tracks.items()},
            moments=self.moments.copy(),
            profiles=dict(self.profiles),
        )


class TrainingLedger:
    """The runs of this node. Any thread may tell, and any may look.

    What makes no sense is refused with `ValueError` naming the field: a number that is not finite,
    a duration below zero, an unknown phase (a loss may be NaN: that is news). What is beyond a
    limit is not kept; `refused` counts it, too many `runs` and too many `ranks`.
    """

    def __init__(self, *, max_runs: int = MAX_RUNS, max_ranks: int = MAX_RANKS) -> None:
        self._max_runs = max_runs
        self._max_ranks = max_ranks
        self._lock = threading.Lock()
        self._runs: dict[str, TrackedRun] = {}
        self._refused: dict[tuple[str, str], int] = {}
        self._version = 0

    def tell(self, reader: str, records: Iterable[Record], now: float) -> int:
        """Take records of one reader at `now`, monotonic seconds; return how many were new.

        Raises `ValueError` for the first one that makes no sense; those before it are taken.
        """
        new = 0
        for record in records:
            check(record)
            with self._lock:
                new += self._take(reader, record, now)
        return new

    def runs(self, now: float) -> list[TrackedRun]:
        """Return all runs that are not forgotten at `now`, as copies."""
        with self._lock:
            self._forget(now)
            return [run.copy() for run in self._runs.values()]

    @property
    def version(self) -> int:
        """A number that grows whenever something new is told."""
        return self._version

    def refuse(self, reader: str, reason: str, number: int = 1) -> None:
        """Count records that could not be kept; readers tell of what made no sense to them."""
        with self._lock:
            self._refuse(reader, reason, number)

    def refused(self) -> Mapping[tuple[str, str], int]:
        """Return how many records were not kept, by reader and reason."""
        with self._lock:
            return dict(self._refused)

    def _take(self, reader: str, record: Record, now: float) -> bool:
        run = self._run(record.run, now)
        if run is None:
            return self._refuse(reader, "runs")
        run.told = now
        match record:
            case Step():
                key = (reader, record.rank)
                track = run.tracks.get(key)
                if track is None:
                    if len(run.tracks) >= self._max_ranks:
                        return self._refuse(reader, "ranks")
                    track = run.tracks[key] = Track()
                new = track.add(now, record)
            case Facts():
                former = run.facts.get(reader)
                joins = reader in READERS
                told = record if former is None else _merged(former, record, joins=joins)
                run.facts[reader] = told
                new = run.facts[reader] != former
            case Moment():
                new = (reader, record) not in run.moments
                if new:
                    run.moments.append((reader, record))
            case Profile():
                if record.rank not in run.profiles and len(run.profiles) >= self._max_ranks:
                    return self._refuse(reader, "ranks")
                new = run.profiles.get(record.rank) != record
                run.profiles[record.rank] = record
        self._version += new
        return new

    def _run(self, name: str, now: float) -> TrackedRun | None:
        run = self._runs.get(name)
        if run is None:
            self._forget(now)
            if len(self._runs) >= self._max_runs and not self._make_room(now):
                return None
            run = self._runs[name] = TrackedRun(name, now, now)
        return run

    def _make_room(self, now: float) -> bool:
        """Drop the run of which nothing was told for longest, if it is over; tell whether it was.

        A search over hyper-parameters has dozens of short runs in an hour.
        """
        over = [run for run in self._runs.values() if now - run.told > _kept_for(run)]
        if not over:
            return False
        del self._runs[min(over, key=lambda run: run.told).name]
        return True

    def _forget(self, now: float) -> None:
        for name in [name for name, run in self._runs.items() if now - run.told > FORGOTTEN]:
            del self._runs[name]

    def _refuse(self, reader: str, reason: str, number: int = 1) -> bool:
        key = reader, reason
        self._refused[key] = self._refused.get(key, 0) + number
        return False


def _kept_for(run: TrackedRun) -> float:
    """Return the seconds of silence for which a run keeps its place."""
    last = run.moments[-1][1].kind if run.moments else ""
    return OVER if last in {"ended", "failed"} else SILENT


def _merged(former: Facts, later: Facts, *, joins: bool) -> Facts:
    """Return the later facts, and of the former what those do not tell.

    With `joins` each rank of a node tells its own GPU and settings; else all that are there are
    told at once.
    """
    known = {
        one.name: value
        for one in dataclasses.fields(later)
        if (value := getattr(later, one.name)) is not None
    }
    if joins and former.local_ranks and later.local_ranks:
        both = {**former.local_ranks, **later.local_ranks}
        known["local_ranks"] = both if len(both) <= MAX_RANKS else later.local_ranks
    if joins and former.nccl_ranks and later.nccl_ranks:
        size = known.get("world_size") or former.world_size or math.inf
        told = {**former.nccl_ranks, **later.nccl_ranks}
        told = {rank: settings for rank, settings in told.items() if rank < size}
        known["nccl_ranks"] = told if len(told) <= MAX_RANKS else later.nccl_ranks
    return dataclasses.replace(former, **known)


_LONGEST_NAME = 128
_LARGEST = 1 << 256
_POSITIVE = frozenset({
    "world_size", "flops_per_token", "active_parameters", "sequence_length", "document_length",
    "global_batch", "micro_batch", "micro_batches", "data_parallel", "tensor_parallel",
    "pipeline_parallel", "virtual_stages", "context_parallel", "expert_parallel", "steps",
})  # fmt: skip
_ANY_SIGN = frozenset({"loss", "learning_rate"})
_MAY_DIVERGE = frozenset({"loss", "gradient_norm"})


def check(record: Record) -> None:
    """Raise `ValueError` naming the field if a record makes no sense."""
    if not 0 < len(record.run) <= _LONGEST_NAME or not record.run.isprintable():
        raise ValueError(f"run: a name of 1 to {_LONGEST_NAME} printable characters is needed")
    for one in dataclasses.fields(record):
        value = getattr(record, one.name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise ValueError(f"{one.name}: a number of {value.bit_length()} bits makes no sense")
        if not math.isfinite(value):
            if one.name in _MAY_DIVERGE:
                continue
            raise ValueError(f"{one.name}: {value} is not finite")
        if value < 0 and one.name not in _ANY_SIGN:
            raise ValueError(f"{one.name}: {value} is below zero")
        if value == 0 and one.name in _POSITIVE:
            raise ValueError(f"{one.name}: 0 makes no sense")
    if isinstance(record, Step):
        for phase, seconds in record.phases.items():
            if phase not in PHASES:
                raise ValueError(f"phases: {phase!r} is none of {', '.join(PHASES)}")
            if not 0 <= seconds < math.inf:
                raise ValueError(f"phases.{phase}: {seconds} is not a duration")
